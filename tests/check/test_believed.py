"""What confirming believes: nothing of who was sampled, or in which order rules stand."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest

from privgate import Domain, Policy, Recipe, Subject, TrainingData, cases, report
from privgate.check import confirm, gate
from privgate.errors import DigestMismatchError, ExitCode, SubjectError
from privgate.evidence import Precondition, Request
from privgate.evidence.verdict import Finding, Outcome
from privgate.kernel.sample import plan_looks
from privgate.models import SmoothedNeighbors
from privgate.theorems import catalogue
from privgate.theorems.closed_form import REFIT
from privgate.theorems.newton import Newton
from privgate.theorems.theorem import Units
from privgate.training.fleet import Fleet
from tests.check.test_confirm import APPROVED, evidence, numbers, subject

BOX = Domain(box=[(-1, 1)] * 3)


@pytest.fixture(scope="module")
def fleet():
    with Fleet(ledger="none", jobs=1) as made:
        yield made


@pytest.fixture
def policy(load_policy):
    return lambda *rules: load_policy("rules:\n" + "".join(f"  - {{{r}}}\n" for r in rules))


def people(n=60, **more):
    rng = np.random.default_rng(2)
    X = rng.uniform(-1, 1, (n, 3))
    y = (X[:, 0] + 0.5 * rng.normal(size=n) > 0).astype(int)
    return TrainingData(X, y, **{"domain": BOX, "one_record_each": "groups" not in more, **more})


def of(estimator, data=None, **more):
    return Subject.local(Recipe(estimator, **more), people() if data is None else data)


def found(verdict, name="dtp"):
    return next(f for f in verdict.findings if f.rule == name)


@pytest.fixture(scope="module")
def proven(fleet):
    asked = numbers()
    verdict = gate.evaluate(Policy.load("dtp-1"), asked, fleet=fleet)
    assert found(verdict).outcome == "passed"
    return asked, verdict.evidence


def one(kept, **more):
    return replace(kept, case=replace(kept.case, **more))


# Samples of people.

ORDER = np.random.default_rng(4).permutation(80)


def share(kept, drawn, *, threshold, most, order=lambda: ORDER, sample=20, up_to=None):
    measured = SimpleNamespace(n=drawn, population=80, confidence=0.95, behind=None)
    request = Request("dtp")
    passed = Finding("dtp", "DTP", Outcome.PASSED, "passed", metric="dtp", request=request.key)
    told = evidence(kept, measurements={request: measured})
    rule = {"metric": "dtp", "id": "", "aggregate": "share_above", "threshold": threshold, "max": most}
    rule |= {"sample": sample, "up_to": up_to}
    (ended,) = confirm.confirm_findings([passed], {"rules": [rule], "waivers": []}, numbers(), told, order)
    return ended


def sampled(units):
    """Cases of which the kernel is asked about these people."""
    kept = Newton().certify(Units(numbers(), np.sort(units), None, 1.0)).cases[0]
    return replace(kept, theorem="newton")


def test_a_sample_is_whom_the_secret_drew():
    high = sampled(np.arange(80)).judge_again().high
    calm, told = np.argsort(high)[:20], sampled(ORDER[:20])
    asked = {"threshold": float(np.median(high)), "most": 0.95}

    assert share([told], 20, **asked).outcome == "passed"
    assert "other people than were drawn" in share([sampled(calm)], 20, **asked).message
    assert "other people than were drawn" in share([told], 20, order=None, **asked).message
    assert share([sampled(np.arange(80))], 80, order=None, **asked).outcome == "passed"  # everybody is no sample


def test_whoever_was_drawn_and_has_no_case_counts_as_above():
    high = sampled(np.arange(80)).judge_again().high
    first, _ = plan_looks(80, 24).sizes
    told = sampled(ORDER[:first])
    asked = {"threshold": float(high.max()), "most": 0.3}
    harmless = told.about(np.isin(told.units, ORDER[: first - 3]))  # of the other three nothing is claimed

    assert share([told], first, **asked).outcome == "passed"
    assert share([harmless], first - 3, **asked).outcome == "inconclusive"  # whoever may choose how many, chooses well
    assert share([harmless], first, **asked).outcome == "inconclusive"


# What stands beside a limit, and in which order.


def test_how_far_the_registered_model_is_from_the_recipes_counts(proven):
    asked, told = proven
    f = found(gate.judged(Policy.load("dtp-1"), told, observe=False, subject=asked))
    rules, high = Policy.load("dtp-1").resolved, float(confirm.upper(asked, told).max())
    for control, key, apart, outcome in (
        ("reproduces", "from_registered_model_elsewhere_nats", 1.01, "inconclusive"),
        ("reproduces", "from_registered_model_nats", 1.01, "inconclusive"),
        ("reproduces", "from_registered_model_elsewhere_nats", 0.99, "passed"),
        ("served", "ways_apart", 1.01, "inconclusive"),
    ):
        beside = replace(told, preconditions=(Precondition(control, "passed", "", {key: apart - high}),))
        assert confirm.confirm_findings([f], rules, asked, beside)[0].outcome == outcome


def test_findings_that_are_not_the_policys_rules_are_no_yes(proven, policy):
    asked, told = proven
    rules = policy("metric: dtp, id: one, max: 1.0", "metric: pdtp, id: two, max: 1.0").resolved
    passed = found(gate.judged(Policy.load("dtp-1"), told, observe=False, subject=asked))
    one, two = (replace(passed, rule=name) for name in ("one", "two"))
    for given in ([two, one], [one], [two], [one, one], [one, two, two]):
        ended = confirm.confirm_findings(given, rules, asked, told)
        assert {str(f.outcome) for f in ended} == {"inconclusive"}, given
        assert "not one for each rule" in ended[0].message


def test_engines_whose_people_no_theorem_of_data_limits_are_all_named():
    certain = {e.name for e in catalogue.CLOSED_FORMS if e.certain}

    assert set(confirm.TRAINED) == certain | {REFIT}


# Doubt that a policy takes for a warning stays one.


def doubted(rule, finding, told, asked=None):
    return confirm.confirm_findings([finding], {"rules": [rule], "waivers": []}, asked or numbers(), told)[0]


@pytest.mark.parametrize(
    ("outcome", "rule", "ended"),
    [
        ("passed", {}, "inconclusive"),
        ("passed", {"mode": "warn"}, "warned"),
        ("passed", {"bound": "lower"}, "warned"),
        ("warned", {"mode": "warn"}, "warned"),
        ("warned", {"bound": "lower"}, "warned"),
        ("warned", {}, "inconclusive"),
        ("failed", {}, "failed"),
    ],
)
def test_what_does_not_come_out_again_is_no_more_than_the_rule_makes_of_doubt(outcome, rule, ended):
    stated = {"metric": "dtp", "id": "", "aggregate": "max", "max": 1.0, **rule}
    made = doubted(stated, Finding("dtp", "DTP", Outcome(outcome), "said", metric="dtp"), evidence(()))
    assert made.outcome == ended
    if outcome == "passed":
        assert "no case of it was kept" in made.message


def test_a_rule_that_does_not_apply_stays_a_warning():
    stated = {"metric": "dtp", "id": "", "aggregate": "max", "max": 1.0}
    warned = Finding("dtp", "DTP", Outcome.WARNED, "not applicable", metric="dtp", applies=False)

    assert doubted({**stated, "required": False}, warned, evidence(())) is warned
    assert doubted({**stated, "required": True}, warned, evidence(())).outcome == "inconclusive"


def test_people_who_vanish_with_a_class_leave_a_sample_as_it_is():
    labels = np.arange(40) % 2
    labels[7] = 2
    asked = of(SmoothedNeighbors(5, alpha=2.0), people(40, candidates=None))
    asked = asked.with_data(TrainingData(asked.data.X, labels, one_record_each=True))
    theorem = catalogue.THEOREMS["smoothed_neighbors"]
    some = np.array([3, 5, 7, 11, 20])
    (kept,) = theorem.certify(Units(asked, some)).cases
    kept = replace(kept, theorem="smoothed_neighbors")

    assert kept.units.tolist() == [3, 5, ~7, 11, 20]
    assert confirm.canonical(asked, kept) == ""
    again = confirm.upper(asked, evidence([kept]))
    assert np.flatnonzero(np.isfinite(again)).tolist() == [3, 5, 11, 20]
    claimed = replace(kept, units=some)
    assert np.array_equal(confirm.upper(asked, evidence([claimed])), again)


# Cases of strangers: each family, each array and setting, of the wrong kind, size or value.


@pytest.fixture(scope="module")
def posed(fleet):
    """(subject, case) of each family whose cases are made of data."""
    made = {}
    for name in APPROVED:
        asked = subject(name, "approved")
        told = gate.evaluate(Policy.load("dtp-1"), asked, fleet=fleet).evidence.cases
        made |= {k.case.family: (asked, k) for k in told if k.theorem in catalogue.THEOREMS}
    asked = numbers()
    made["logistic"] = asked, sampled(np.arange(80))
    return made


def spoilt(array):
    """Yield the array with another value, size, shape or type."""
    other = array + 1 if array.dtype.kind == "i" else array / 2 + 0.125
    yield from (other, array[:-1], array[..., None], array.reshape(-1)[:1, None, None], np.concatenate([array, array]))
    yield array.astype(np.float64 if array.dtype.kind == "i" else np.int64)
    if array.dtype.kind == "f":
        yield from (np.full_like(array, np.nan), np.full_like(array, np.inf), -array - 1)


def test_whatever_is_canonical_is_compared_in_each_family(posed):
    assert len(posed) >= 4
    for family, (asked, kept) in posed.items():
        free = confirm.PROPOSED.get(family, {"question", "limit"})
        arrays, settings = dict(kept.case.arrays), dict(kept.case.settings)
        assert confirm.canonical(asked, kept) == "", family
        for name in arrays.keys() - free - {"allowed"}:
            for array in spoilt(arrays[name]):
                assert confirm.canonical(asked, one(kept, arrays={**arrays, name: array})), (family, name)
        for name in settings.keys() - free:
            for value in (None, [], "x", 1e9, -1, not settings[name]):
                assert confirm.canonical(asked, one(kept, settings={**settings, name: value})), (family, name)
        others = [kept.units * 0, kept.units + 1, *([kept.units[::-1].copy()] if "person" in arrays else [])]
        for units in others:
            assert confirm.canonical(asked, replace(kept, units=units)), (family, units)


def test_a_certificate_of_any_kind_ends_in_limits_or_a_sentence(posed):
    """What is proposed is not compared: the kernel judges it, and whatever it says holds what it said of the honest."""
    for asked, kept in posed.values():
        arrays = kept.case.arrays
        for name in arrays.keys() & (confirm.PROPOSED["logistic"] | {"question", "allowed"}):
            for array in spoilt(arrays[name]):
                other = evidence([one(kept, arrays={**arrays, name: array})])
                found = confirm.upper(asked, other)
                assert isinstance(found, str) or (found[kept.units] >= kept.low).all(), name


# A report that is held against the data once more.


@pytest.fixture
def reported(proven, tmp_path):
    asked, told = proven
    verdict = gate.judged(Policy.load("dtp-1"), told, observe=False, subject=asked)
    report.write(verdict, tmp_path, hash_key=b"k" * 32)
    return asked, json.loads((tmp_path / "report.json").read_text()), tmp_path


def again(asked, document, folder, policy="dtp-1"):
    return gate.again(asked, document, folder, Policy.load(policy))


def renamed(document, folder, kept):
    """Write the cases, and name them in the report as whoever can write both would."""
    cases.write(folder / cases.FILE, [kept])
    told = {"digest": kept.digest(), "high": float(kept.high.max()), "low": float(kept.low.max())}
    noted = document["evidence"]["influence"]["cases"]
    noted[:] = [noted[-1] | told]
    return document


def test_a_report_comes_out_again_and_says_of_what(reported):
    first, second = again(*reported)

    assert first == "newton: its arrays are what the data make"
    assert second.startswith("dtp: the kernel's limits come to")


@pytest.mark.quick(4)
@pytest.mark.parametrize(
    ("where", "value", "says"),
    [
        (("findings", -1, "limit"), 5.0, "rule 'dtp' of the report is not the policy's"),
        (("findings", -1, "rule"), "mine", "rule 'mine' of the report is not the policy's"),
        (("findings", -1, "metric"), "pdtp", "rule 'dtp' of the report is not the policy's"),
        (("evidence", "measurements", -1, "request", "options"), {"aggregate": "share_above"}, "is not the policy's"),
        (("evidence", "subject", "n_units"), 12, "another number of people"),
        (("evidence", "subject", "digests", "data"), "sha256:0", "another data"),
        (("policy", "digest"), "sha256:0", "another policy"),
        (("policy",), 1, "report.json cannot be recomputed"),
    ],
)
def test_a_report_that_was_changed_is_refused(reported, where, value, says):
    asked, document, folder = reported
    place = document
    for key in where[:-1]:
        place = place[key]
    place[where[-1]] = value

    with pytest.raises(SubjectError, match=says) as refused:
        again(asked, document, folder)
    assert refused.value.exit_code is ExitCode.SUBJECT


def test_a_case_with_digests_made_again_is_compared_with_the_data(reported):
    asked, document, folder = reported
    *_, kept = cases.read(folder / cases.FILE)
    halved = one(kept, arrays={**kept.case.arrays, "box": kept.case.arrays["box"] / 2})
    for other, says in (
        (halved.judge_again(), "array 'box' of newton"),
        (replace(kept, units=kept.units + 1), "not there"),
        (replace(kept, theorem="least_squares"), "are not made of data again; privgate verify"),
        (replace(kept, theorem="gaussian_nb"), "does not apply"),
    ):
        with pytest.raises(SubjectError, match=says):
            again(asked, renamed(document, folder, other), folder)


def test_nobody_is_claimed_with_whom_a_class_vanishes(fleet, policy, tmp_path):
    """A design knows no labels: of whoever holds the last of one, it may claim nothing."""
    labels = np.arange(40) % 2
    labels[7] = 2
    asked = of(SmoothedNeighbors(5, alpha=2.0), TrainingData(people(40).X, labels, one_record_each=True))
    rule = "metric: dtp, aggregate: share_above, threshold: 1.0, max: {}"
    verdict = gate.evaluate(policy(rule.format(0.05)), asked, fleet=fleet)
    report.write(verdict, tmp_path / "out", hash_key=b"k" * 32)
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    (kept,) = cases.read(tmp_path / "out" / cases.FILE)
    everybody = replace(kept, units=kept.everybody).judge_again()
    stricter = policy(rule.format(0.01))
    document["policy"]["digest"] = stricter.digest
    document["findings"][-1] |= {"limit": 0.01, "low": 0.0, "high": 0.0}

    assert found(verdict).outcome == "passed"
    with pytest.raises(DigestMismatchError, match=r"come to 0\.0(25|5): allowed is 0\.01"):
        gate.again(asked, renamed(document, tmp_path / "out", everybody), tmp_path / "out", stricter)


def test_what_controls_found_only_adds_to_a_limit():
    near = "from_registered_model_nats"
    told = [("reproduces", {near: 5.0}), ("reproduces", {near: -1.0}), ("served", {"ways_apart": -1.0})]

    assert cases.apart(told, every=True) == cases.apart(told, every=False) == 5.0
    assert cases.apart([*told, ("served", {"ways_apart": 0.25}), ("other", {near: 9.0})], every=True) == 5.25


def test_a_number_about_other_people_than_there_are_is_no_yes():
    few = SimpleNamespace(n=5, population=5, confidence=None, behind=None)
    request = Request("dtp")
    passed = Finding("dtp", "DTP", Outcome.PASSED, "passed", metric="dtp", request=request.key)
    rule = {"metric": "dtp", "id": "", "aggregate": "max", "max": 9.0, "sample": None}
    told = evidence([sampled(np.arange(80))], measurements={request: few})
    (ended,) = confirm.confirm_findings([passed], {"rules": [rule], "waivers": []}, numbers(), told)

    assert ended.outcome == "inconclusive"
    assert "about 5 people, and the data hold 80" in ended.message
