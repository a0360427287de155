"""Laws that hold for every rule in the catalogue."""

import importlib
import math
import pkgutil
from pkgutil import resolve_name

import pytest
from hypothesis import given
from hypothesis import strategies as st

from privgate.evidence import COLUMNS, SENSITIVITY_COLUMNS, Measurement, Request
from privgate.evidence.verdict import Outcome
from privgate.policy import rules
from privgate.policy.rules import ALL, METRICS
from privgate.policy.rules.rule_base import Rule
from privgate.run.needs import Need
from tests.policy.rules.rule_pages import EXAMPLES, example


def measured(rule, low, high=None, **options):
    high = low if high is None else high
    value = low if math.isfinite(low) else high
    return Measurement(rule.request(), value, low, high, **{"n": 1000, "population": 1000, **options})


#: limits and results stay near one another, so that every outcome is met often; ties are frequent
NUMBERS = st.sampled_from([0.0, 0.5, 0.55, 0.6, 0.7, 0.75, 0.9, 1.0, 1.5, 2.0, 8.0, 10.0, math.inf]) | st.floats(0, 12)


@st.composite
def intervals(draw):
    low, high = sorted([draw(NUMBERS), draw(NUMBERS)])
    return low, high


FACTS = {"certificates": [], "n_units": 10, "candidates": 0, "dp": False, "probabilities": True}
RICH = {"certificates": ["categorical_nb"], "n_units": 10, "candidates": 10**6, "dp": True, "probabilities": True}


def worse(rule, low, high):
    """Order an interval so that a larger first argument is worse."""
    return (low, high) if rule.direction == "max" else (-high, -low)


@pytest.fixture(params=sorted(ALL))
def rule(request):
    return example(request.param)


def test_every_file_that_holds_a_rule_is_in_the_catalogue():
    found = set()
    for module in pkgutil.iter_modules(rules.__path__):
        loaded = importlib.import_module(f"privgate.policy.rules.{module.name}")
        for thing in vars(loaded).values():
            own = isinstance(thing, type) and issubclass(thing, Rule) and thing.__module__ == loaded.__name__
            if own and thing is not Rule and "metric" in vars(thing).get("__annotations__", {}):
                found.add(thing.model_fields["metric"].default)
    assert found == set(ALL) == set(METRICS)


def test_its_page_ends_with_an_example_that_is_a_rule_and_survives_json(rule):
    assert EXAMPLES[rule.metric]["metric"] == rule.metric
    assert type(rule).model_validate_json(rule.model_dump_json()) == rule


def test_its_metric_says_how_it_is_measured_and_what_it_reaches(rule):
    about = rule.about

    assert callable(resolve_name(f"privgate.{about.measured_by}"))
    assert about.name == rule.metric
    assert about.title
    assert about.reaches
    assert about.needs
    assert math.isnan(about.worst) == (not about.unit)
    assert about.per_unit == bool(about.columns)
    assert set(about.columns) <= {*COLUMNS, *SENSITIVITY_COLUMNS}


def test_every_field_is_described(rule):
    assert [n for n, f in type(rule).model_fields.items() if not f.description and n != "metric"] == []


def test_nan_never_passes(rule):
    for low, high in [(math.nan, 0.0), (0.0, math.nan), (math.nan, math.nan)]:
        if rule.metric == "dp_epsilon_lower_bound" and low == 0.0:
            continue  # an audit has no upper end
        assert rule.judge(measured(rule, low, high)).outcome is Outcome.INCONCLUSIVE


def test_a_problem_is_inconclusive_and_told(rule):
    finding = rule.judge(Measurement(rule.request(), problem="the attack crashed"))

    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "the attack crashed" in finding.message
    assert finding.advice


def test_a_point_estimate_never_concludes(rule):
    if rule.metric == "dp_epsilon_lower_bound":
        pytest.skip("an audit gives no point estimates")
    for value in (0.0, 1e9):
        assert rule.judge(measured(rule, value, kind="point")).outcome is Outcome.INCONCLUSIVE


def test_the_answer_to_another_question_is_no_answer(rule):
    other = Measurement(Request.build("pdtp" if rule.metric == "dtp" else "dtp"), 0.0, 0.0, 0.0)

    assert rule.judge(other).outcome is Outcome.INCONCLUSIVE


def test_equality_passes(rule):
    assert rule.judge(measured(rule, rule.limit)).outcome is Outcome.PASSED


def test_the_finding_carries_the_numbers(rule):
    finding = rule.judge(measured(rule, rule.limit, unit="nats"))

    assert (finding.limit, finding.low, finding.high) == (rule.limit, rule.limit, rule.limit)
    assert finding.direction == rule.direction
    assert finding.request == rule.request().key
    assert finding.meaning
    assert not finding.advice


def test_a_failure_says_what_to_do_and_what_it_means(rule):
    bad = 1e6 if rule.direction == "max" else 0.0
    finding = rule.judge(measured(rule, bad))

    assert finding.outcome is Outcome.FAILED
    assert finding.advice
    assert "nan" not in f"{finding.message} {finding.meaning}".lower()


def test_warn_mode_releases_at_worst_with_a_warning(rule):
    warn = rule.model_copy(update={"mode": "warn"})

    for m in (measured(rule, 1e6), measured(rule, 0.0), Measurement(rule.request(), problem="crashed")):
        assert warn.judge(m).outcome in (Outcome.PASSED, Outcome.WARNED)


def test_not_applicable_is_a_warning_only_where_the_policy_allows_it(rule):
    nothing = Measurement(rule.request(), problem="no candidates", applicable=False)
    optional = rule.model_copy(update={"required": False})

    assert rule.judge(nothing).outcome is Outcome.INCONCLUSIVE
    assert optional.judge(nothing).outcome is Outcome.WARNED
    assert "not applicable" in optional.judge(nothing).message
    crashed = Measurement(rule.request(), problem="crashed")
    assert optional.judge(crashed).outcome is Outcome.INCONCLUSIVE


def test_says_before_training_what_can_never_pass(rule):
    assert rule.cannot_conclude(dict(RICH)) == ""
    if not rule.about.needs & {Need.CANDIDATES, Need.CLAIM, Need.EVERY_QUERY}:
        return
    if rule.metric == "dp_epsilon_lower_bound" and rule.max != "claim":
        return
    assert rule.name in rule.cannot_conclude(dict(FACTS))


@given(
    metric=st.sampled_from(sorted(ALL)), one=intervals(), other=intervals(), bound=st.sampled_from(["upper", "lower"])
)
def test_worse_evidence_never_improves_the_outcome(metric, one, other, bound):
    if metric == "dp_epsilon_lower_bound":
        bound = "lower"
    rule = example(metric, bound=bound)
    (low, high), (low2, high2) = worse(rule, *one), worse(rule, *other)
    bad = max(low, low2), max(high, high2)
    bad = bad if rule.direction == "max" else (-bad[1], -bad[0])

    before, after = rule.judge(measured(rule, *one)), rule.judge(measured(rule, *bad))

    assert after.outcome.rank >= before.outcome.rank


@given(
    metric=st.sampled_from(sorted(set(ALL) - {"dp_epsilon_lower_bound"})),
    value=NUMBERS.filter(math.isfinite),
    error=st.floats(0, 2),
)
def test_value_and_error_are_judged_against_release(metric, value, error):
    rule = example(metric)
    finding = rule.judge(measured(rule, value - error, value + error))

    if rule.direction == "max":
        good, bad = value + error <= rule.limit, value - error > rule.limit
    else:
        good, bad = value - error >= rule.limit, value + error < rule.limit
    doubt = Outcome.WARNED if rule.bound == "lower" else Outcome.INCONCLUSIVE
    expected = Outcome.PASSED if good else (Outcome.FAILED if bad else doubt)
    assert finding.outcome is expected
    # more error never helps
    wider = rule.judge(measured(rule, value - 2 * error, value + 2 * error))
    assert not (wider.outcome is Outcome.PASSED and finding.outcome is not Outcome.PASSED)


CHANGES = {
    "max": NUMBERS.filter(math.isfinite),
    "min": st.integers(1, 30),
    "mode": st.sampled_from(["enforce", "warn"]),
    "bound": st.sampled_from(["upper", "lower"]),
    "required": st.booleans(),
}


@given(data=st.data(), metric=st.sampled_from(sorted(ALL)), numbers=intervals(), applicable=st.booleans())
def test_what_counts_as_tighter_never_turns_a_refusal_into_an_approval(data, metric, numbers, applicable):
    fields = [
        n
        for n in CHANGES
        if n in ALL[metric].model_fields and not (metric == "dp_epsilon_lower_bound" and n == "bound")
    ]
    one, two = (
        example(metric).model_copy(
            update={n: data.draw(CHANGES[n]) for n in data.draw(st.sets(st.sampled_from(fields)))}
        )
        for _ in range(2)
    )
    if two.loosened(one):
        return
    problem = "" if applicable else "no candidates"
    old, new = (rule.judge(measured(rule, *numbers, problem=problem, applicable=applicable)) for rule in (one, two))

    assert old.outcome.releases or not new.outcome.releases


@pytest.mark.parametrize("metric", sorted(ALL))
def test_every_other_field_is_part_of_the_question(metric):
    rule = example(metric)
    allowed = {"max", "min", "mode", "bound", "required", "confidence", "delta"}
    for name in set(type(rule).model_fields) - allowed - {"id", "reason", "source", "metric"}:
        changed = rule.model_copy(update={name: "something else"})
        assert name in changed.loosened(rule)
    for name in ("id", "reason", "source"):
        assert rule.model_copy(update={name: "x"}).loosened(rule) == {}


@pytest.mark.parametrize("metric", ["attack_accuracy", "generalization_gap"])
def test_confidence_tightens_upwards_and_where_only_proof_blocks_downwards(metric):
    rule = example(metric)
    assert rule.model_copy(update={"confidence": 0.99}).loosened(rule) == {}
    assert "confidence" in rule.model_copy(update={"confidence": 0.9}).loosened(rule)
    proof = example(metric, bound="lower")
    assert "confidence" in proof.model_copy(update={"confidence": 0.99}).loosened(proof)
    audit = example("dp_epsilon_lower_bound")
    assert "confidence" in audit.model_copy(update={"confidence": 0.9999}).loosened(audit)


def test_a_rule_is_never_tighter_than_one_about_something_else():
    assert "metric" in example("pdtp").loosened(example("dtp"))
