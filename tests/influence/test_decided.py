"""Leave-one-out ends where the verdict is decided: what was not computed can block, and never approves."""

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate import Recipe, Subject, TrainingData, evaluate, report
from privgate import report as rendering
from privgate.check import prepare
from privgate.evidence import Measurement, Request
from privgate.evidence.verdict import Outcome
from privgate.influence import aggregate, left_out, per_person
from privgate.influence.left_out import DECIDED
from privgate.run.run import Budget
from privgate.subject.release import Release
from privgate.theorems.closed_form import Retrained, Status

N = 60
RNG = np.random.default_rng(5)
Y = np.arange(N) % 2
X = RNG.normal(size=(N, 2)) + Y[:, None]
X[17], Y[17] = [6.0, 6.0], 0  # the one who matters
DATA = TrainingData(X, Y, one_record_each=True)
LARGEST = "  - metric: pdtp\n    max: {}\n"


def fitted(X, y, *, seed, C=10.0):
    """Logistic regression that only refits cover."""
    del seed
    return LogisticRegression(C=C).fit(X, y)


@pytest.fixture
def policy(load_policy):
    return lambda *rules, rest="": load_policy("rules:\n" + "".join(rules) + rest)


def checked(policy, fleet, recipe=None, data=DATA, **limits):
    subject = Subject.local(recipe or Recipe(fitted, seed=1), data)
    return evaluate(policy, subject, fleet=fleet, limits=Budget(**limits))


def rule(verdict, name="pdtp"):
    return next(f for f in verdict.findings if f.rule == name)


def covered(verdict):
    return verdict.evidence.influence.coverage


def test_the_riskiest_decide_and_nobody_else_is_trained_without(fleet, policy):
    mine = policy(LARGEST.format(1))
    verdict = checked(mine, fleet)
    trained = fleet.calls
    everybody = checked(mine, fleet, full=True)

    assert verdict.outcome is everybody.outcome is Outcome.FAILED
    assert covered(verdict).n_measured <= 4
    assert covered(verdict).not_computed == N - covered(verdict).n_measured
    assert covered(verdict).decided_by == "pdtp"
    assert fleet.calls - trained >= N - 12  # whom the controls left out is asked, and not trained
    assert covered(everybody).not_computed == 0
    assert rule(verdict).low == pytest.approx(rule(everybody).low, abs=1e-12)  # the ranking found the worst
    assert rule(verdict).high == np.inf


def test_the_report_says_what_was_not_computed(fleet, policy):
    verdict = checked(policy(LARGEST.format(1)), fleet)
    document = report.document(verdict, hash_key=b"k" * 32)

    few = covered(verdict).n_measured
    assert f"{few} of {N} people measured" in rule(verdict).message
    assert "was not measured" in rule(verdict).meaning
    assert "--full" in rule(verdict).advice
    assert document["units"]["figures"] == {}  # the riskiest few are no distribution
    for way in ("html", "markdown"):
        assert "others were not measured, because the verdict was decided" in rendering.render(document, way)
    last = verdict.evidence.influence.engines[-1]
    assert (last.engine, last.why) == ("refit", {DECIDED: N - few})
    assert not any("measure everybody" in step.action for step in verdict.evidence.run.next_steps)


def test_an_approval_has_measured_everybody(fleet, policy):
    verdict = checked(policy(LARGEST.format(20)), fleet)

    assert verdict.approved
    assert covered(verdict).n_measured == N
    assert covered(verdict).decided_by == ""


def test_only_enforced_rules_decide_and_the_others_say_that_they_were_not_computed(fleet, policy):
    warns = LARGEST.format(0.5) + "    id: advice\n    mode: warn\n"
    advised = checked(policy(LARGEST.format(20), warns), fleet)
    middle = "  - {metric: pdtp, id: middle, max: 0.2, aggregate: quantile, q: 0.5}\n"
    blocked = checked(policy(LARGEST.format(1), warns, middle), fleet)

    assert covered(advised).not_computed == 0
    assert rule(advised, "advice").outcome is Outcome.WARNED
    assert blocked.outcome is Outcome.FAILED
    assert rule(blocked, "middle").outcome is Outcome.INCONCLUSIVE
    assert "others not computed: pdtp was decided before" in rule(blocked, "middle").message


def test_a_rule_that_a_waiver_may_excuse_decides_nothing(policy):
    waiver = (
        f"waivers:\n  - {{rule: pdtp, model: credit, version: 'sha256:{'0' * 64}', ceiling: 3, reason: r, requester: "
        f"Ada Example, approver: Bob Example, granted: 2026-01-01, expires: 2026-01-31}}\n"
    )
    assert list(prepare.breaks(policy(LARGEST.format(1)))) == [Request.build("pdtp", aggregate="max")]
    assert not prepare.breaks(policy(LARGEST.format(1), rest=waiver))


def test_a_share_is_decided_by_counting(fleet, policy):
    share = policy("  - {metric: pdtp, max: 0.05, aggregate: share_above, threshold: 0.02}\n")
    verdict, everybody = checked(share, fleet), checked(share, fleet, full=True)

    assert verdict.outcome is everybody.outcome is Outcome.FAILED
    assert 4 <= covered(verdict).n_measured < N  # 3 of 60 are 5 %
    assert 0.05 < rule(verdict).low <= rule(everybody).low


def test_whom_a_closed_form_leaves_to_refits_decides_before_it_is_compared(fleet, policy):
    far, labels = X.copy(), Y.copy()
    far[3], labels[3] = [30.0, 30.0], 1  # 1 - p has no digits there
    exact = Recipe(LogisticRegression(C=10, solver="newton-cholesky", tol=1e-10), seed=0)
    verdict = checked(policy(LARGEST.format(5)), fleet, exact, TrainingData(far, labels, one_record_each=True))

    assert verdict.outcome is Outcome.FAILED
    assert 0 < covered(verdict).n_measured < 10
    assert set(verdict.evidence.records["engine"]) == {"refit"}


def test_a_person_whose_label_vanishes_decides_without_training_anybody(fleet, policy):
    data = TrainingData(X, np.where(np.arange(N) == 3, 2, Y), one_record_each=True)
    verdict = checked(policy(LARGEST.format(20)), fleet, data=data)

    assert verdict.outcome is Outcome.FAILED
    assert np.isinf(rule(verdict).low)
    assert covered(verdict).n_measured <= 4


def test_a_sample_stays_the_sample_that_was_drawn(fleet, policy):
    mine = policy(LARGEST.format(20))
    drawn = checked(mine, fleet, max_retrains=30)
    share = policy("  - {metric: pdtp, max: 0.05, aggregate: share_above, threshold: 0.02}\n")
    verdict = checked(share, fleet, max_retrains=30)

    assert set(verdict.evidence.records["unit"]) < set(drawn.evidence.records["unit"])
    assert covered(verdict).n_measured + covered(verdict).not_computed == 30


# -- the laws -----------------------------------------------------------------------------------------------------

POLICIES = {
    "largest": LARGEST.format(1),
    "middle": "  - {metric: pdtp, max: 1, aggregate: quantile, q: 0.6}\n",
    "share": "  - {metric: pdtp, max: 0.1, aggregate: share_above, threshold: 1.0}\n",
}


@pytest.mark.parametrize("name", POLICIES)
@pytest.mark.parametrize("population", [40, 400])
def test_what_some_people_decide_no_value_of_the_others_takes_back(policy, name, population):
    rng = np.random.default_rng(7)
    mine = policy(POLICIES[name])
    ((request, (_, breaks)),) = prepare.breaks(mine).items()

    def judged(value, low, high):
        found = aggregate.summarize(request, value, low, high, population)
        return breaks(Measurement(request, found.value, found.low, found.high, kind="bound"))

    decided = 0
    for _ in range(300):
        value = rng.exponential(rng.choice([0.05, 0.2, 4.0]), 40)
        value[rng.random(40) < 0.01] = np.inf
        known = np.argsort(-value)[: rng.integers(1, 40)]
        if judged(*left_out.pad_missing(40 - len(known), value[known], value[known], value[known])):
            decided += 1
            rest = rng.choice([0.0, 0.5, np.inf], 40 - len(known))
            whole = np.append(value[known], rest)
            assert judged(whole, whole, whole)
            assert judged(value, value, value)
    assert 20 < decided < 290


def noisy(rng, mean, seeds, *, spread=0.5):
    """Return models of people whose mean change is given: normal changes of a log-probability over seeds."""
    units = np.arange(len(mean))
    change = mean + spread * rng.normal(size=(seeds, len(mean)))
    base = np.full((seeds, len(mean), 2), -20.0)
    without = base - np.stack([change, np.zeros_like(change)], axis=-1)
    return Retrained.from_columns(
        "refit", units, tuple(range(seeds)), (units, units), base, without, status=Status.EXACT
    )


def test_nobody_at_the_limit_is_blocked_by_looking_at_one_after_another():
    """Looking in any order until somebody is above blocks exactly where anybody is, each by the limit that is fixed."""
    runs, people = 300, 40
    rng = np.random.default_rng(11)
    blocked = 0
    for _ in range(runs):
        found = noisy(rng, np.full(people, 1.0), 10)
        blocked += bool((per_person.measure_influence(found, Release(), people=people)["pdtp_low"] > 1.0).any())
    assert blocked / runs <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)
