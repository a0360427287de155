"""Measurements about a guarantee: what was observed counts, what contradicts the claim blocks, doubt never passes."""

import dataclasses
import json
import math
from types import SimpleNamespace

import numpy as np
import pytest

from privgate import Claim, Recipe, Subject, TrainingData
from privgate.check import questions
from privgate.claims import audit as measure_audit
from privgate.claims import guarantee_basis
from privgate.claims.guarantee_basis import GuaranteeBasis
from privgate.errors import MeasurementError
from privgate.evidence import (
    ClaimsPart,
    Measurement,
    Observation,
)
from privgate.policy.rules.claims import DeletionCapacity, DpAttackAccuracyBound, DpEpsilon, DpEpsilonLowerBound
from privgate.run.run import Run
from privgate.training.fit import Answer

SGD = Claim(
    mechanism="dp-sgd", adjacency="replace_one", epsilon=4.0, delta=1e-5, noise_multiplier=2.0, sample_rate=0.05,
    steps=200, max_grad_norm=1.0, sampling="poisson",
)  # fmt: skip
SEEN = Observation(
    library="opacus", runs=2, records=400, steps=200, noise_multiplier=2.0, max_grad_norm=1.0, sampling="poisson",
    sample_rate=0.05, noise_stated=2.0, noise_share=1.0, noise_error=0.01,
)  # fmt: skip
PURE = Claim("laplace", "add_remove", epsilon=1.0, delta=0)
SPENT = Observation(library="diffprivlib", runs=2, records=400, steps=2, spends=((0.6, 0.0), (0.4, 0.0)))


def replace(old, **changes):
    return old.model_copy(update=changes) if isinstance(old, Observation) else dataclasses.replace(old, **changes)


def fit(X, y, *, seed):
    raise AssertionError("nothing is trained here")


def bench(claim=SGD, seen=SEEN, *, groups=None, fleet=None, n=400):
    rng = np.random.default_rng(0)
    data = TrainingData(rng.normal(size=(n, 3)), np.repeat(["a", "b"], n // 2), groups=groups)
    made = Run(Subject.local(Recipe(fit, dp=claim), data), fleet or SimpleNamespace(calls=0, limits=None, activity=""))
    if seen is not None and claim is not None:
        made._kept[guarantee_basis.observe_rerun] = seen
        made.compute(guarantee_basis.note_contradictions)
    return made


def measured(rule, made):
    return questions.measure(made, rule.request())


def judged(rule, made):
    return rule.judge(measured(rule, made))


def outcomes(made):
    return {p.name: p.outcome for p in made.preconditions}


def test_the_observed_guarantee_is_judged_not_the_claimed():
    made = bench()
    found = measured(DpEpsilon(max=8), made)
    assert found.value == pytest.approx(2.9488, abs=1e-3)  # dp-accounting's own loss distribution, replace_one
    assert outcomes(made) == {"dp_claim": "passed"}
    assert judged(DpEpsilon(max=2.9), made).outcome == "failed"
    assert judged(DpEpsilon(max=3.0), made).outcome == "passed"


STATED = replace(SGD, epsilon=1.0, noise_multiplier=None, sample_rate=None, steps=None)


@pytest.mark.parametrize(
    ("claim", "seen", "but"),
    [
        (STATED, replace(SEEN, noise_multiplier=1.4), "what was observed costs 4."),
        (replace(SGD, epsilon=1.0), Observation(problem="nothing was seen"), "its own parameters give 2.949"),
    ],
)
def test_a_claim_below_the_mechanism_blocks_and_says_both_numbers(claim, seen, but):
    [wrong] = [p for p in bench(claim, seen).preconditions if p.outcome == "failed"]
    assert wrong.name == "dp_claim"
    assert wrong.message.startswith(f"the recipe claims epsilon 1, but {but}")


def test_shuffled_batches_accounted_as_poisson_are_named():
    made = bench(seen=replace(SEEN, sampling="shuffled"))
    by = {p.name: p for p in made.preconditions}
    assert by["dp_sampling"].outcome == "failed"
    assert "shuffled" in by["dp_sampling"].message
    assert "accounted as poisson" in by["dp_sampling"].message
    assert by["dp_claim"].outcome == "failed"
    # what is proved without amplification is no lower bound either
    assert judged(DpEpsilon(max=5), made).outcome == "inconclusive"
    assert judged(DpEpsilon(max=20), made).outcome == "passed"


def test_an_honest_shuffled_claim_is_only_warned_of():
    epsilon = GuaranteeBasis(SGD, replace(SEEN, sampling="shuffled")).guarantee(1e-5).epsilon
    made = bench(replace(SGD, sampling="shuffled", epsilon=epsilon), replace(SEEN, sampling="shuffled"))
    assert outcomes(made) == {"dp_doubt": "warned", "dp_sampling": "warned", "dp_claim": "passed"}


def test_what_cannot_be_observed_is_inconclusive():
    unseen = Observation(problem="no library of differential privacy was seen at work in the rerun")
    made = bench(seen=unseen)
    for rule in (DpEpsilon(max=8), DpAttackAccuracyBound(max=0.9), DeletionCapacity(min=1, rho=0.9, prior=0.001)):
        with pytest.raises(MeasurementError, match="declared counts nowhere"):
            measured(rule, made)


def test_a_recipe_without_a_claim_has_no_guarantee():
    with pytest.raises(MeasurementError, match="states no"):
        measured(DpEpsilon(max=8), bench(None, None))
    with pytest.raises(MeasurementError, match="states no"):
        measure_audit.measure_lower_bound(bench(None, None), DpEpsilonLowerBound().request())


def test_a_budget_accountant_is_summed_and_gaussian_noise_is_never_pure():
    assert outcomes(bench(PURE))["dp_claim"] == "failed"
    made = bench(PURE, SPENT)
    found = measured(DpEpsilon(max=8), made)
    assert (found.value, found.behind.accountant) == (1.0, "budget accountant")
    bound = measured(DpAttackAccuracyBound(max=0.75), made)
    assert bound.value == pytest.approx(0.7311, abs=1e-4)
    assert outcomes(bench(replace(PURE, epsilon=0.5), SPENT))["dp_claim"] == "failed"
    assert outcomes(bench(PURE, replace(SPENT, hazards=("a leak",))))["dp_hazard"] == "failed"


def test_pure_guarantees_convert_between_neighbors_only_where_they_may():
    doubled = questions.measure(bench(PURE, SPENT), DpEpsilon(max=8, adjacency="replace_one").request())
    assert doubled.value == 2.0
    made = bench(replace(PURE, adjacency="replace_one"), SPENT)
    with pytest.raises(MeasurementError, match="one record replaced"):
        questions.measure(made, DpEpsilon(max=8, adjacency="add_remove").request())
    with pytest.raises(MeasurementError, match="add_remove"):
        questions.measure(made, DeletionCapacity(min=1, rho=0.9, prior=0.01).request())


@pytest.mark.slow
def test_people_with_several_records_pay_for_all_of_them():
    groups = np.arange(400) // 2
    single, pairs = (measured(DpEpsilon(max=8), bench(PURE, SPENT, groups=g)) for g in (None, groups))
    assert pairs.value == 2 * single.value
    assert "2 that one person has at most" in " ".join(pairs.assumptions)
    one, two = (measured(DpEpsilon(max=8), bench(groups=g)) for g in (None, groups))
    assert two.value > 2 * one.value  # at the same delta the pair needs a smaller one for each
    by_person = measured(DpEpsilon(max=8), bench(replace(PURE, unit="person"), SPENT, groups=groups))
    assert by_person.value == pairs.value  # nobody saw whose the records of a release are


def test_the_accuracy_bound_uses_the_exact_curve_and_fills_the_report():
    made = bench()
    found = measured(DpAttackAccuracyBound(max=0.75), made)
    assert found.value == pytest.approx(0.6378, abs=2e-3)
    part = made.notes["claims"]
    assert part.bounds
    assert all(r.assumptions for r in part.bounds)
    assert ClaimsPart.model_validate(json.loads(json.dumps(part.payload(), allow_nan=False))) == part
    questions.measure(made, DpAttackAccuracyBound(max=0.99, prior=0.1).request())
    assert {r.prior for r in made.notes["claims"].bounds} >= {0.1, 0.5}


FIVE = DeletionCapacity(min=5, epsilon=4, delta=1e-5)
NOISY = replace(SEEN, noise_multiplier=8.0)


@pytest.mark.parametrize("adjacency", ["replace_one", "add_remove"])
def test_ordinary_opacus_covers_five_deletions_whatever_its_claim_compares(adjacency):
    """Noised sums bound one person more or less, and one replaced."""
    made = bench(replace(SGD, adjacency=adjacency), NOISY)
    assert judged(FIVE, made).outcome == "passed"
    assert judged(FIVE.model_copy(update={"min": 500}), made).outcome == "failed"
    assert judged(FIVE, bench(seen=replace(NOISY, noiseless_steps=1))).outcome == "failed"


def test_a_stated_prior_counts_only_where_the_training_set_is_seen_to_be_drawn():
    rule = DeletionCapacity(min=4, rho=0.5, prior=0.01)
    with pytest.raises(MeasurementError, match="not seen to draw its training set"):
        questions.measure(bench(PURE, SPENT), rule.request())
    drawn = bench(replace(SGD, adjacency="add_remove"), replace(NOISY, populations=(2, 1)), n=4000)
    drawn._kept[guarantee_basis.observe_rerun] = replace(NOISY, records=4000, populations=(20, 17))
    found = rule.judge(questions.measure(drawn, rule.request()))
    assert found.outcome == "passed"
    assert "at the stated rho 0.5 and the stated prior 0.01" in found.meaning


def test_who_has_claimed_is_not_told_to_claim():
    wanting = [FIVE.judge(Measurement(FIVE.request(), problem="p", applicable=a)).advice for a in (True, False)]
    assert "mend what the message names" in wanting[0]
    assert "claim differential privacy" in wanting[1]


# -- audits, on a fleet that draws answers instead of training --------------------------------------------------------


class Drawn:
    """Answers whose log-probability of the asked label is shifted where the canary took part."""

    def __init__(self, shift, n=400):
        self.shift, self.n, self.calls, self.limits, self.activity = shift, n, 0, None, ""
        self.rng = np.random.default_rng(0)

    def fits(self, subject, fits, *, label=""):
        answers = []
        for f in fits:
            relabelled = np.isin(f.queries, [row for row, _ in f.relabel])
            gone = np.isin(f.queries, f.left_out if f.left_out is not None else [])
            score = -5 + self.rng.normal(size=len(f.queries)) + self.shift * (relabelled & ~gone)
            answers.append(Answer(np.stack([score, score], axis=1)))
        return answers


@pytest.mark.parametrize("adjacency", ["add_remove", "replace_one"])
def test_an_audit_finds_a_leak_and_blocks_the_claim(adjacency):
    claim = replace(SGD, epsilon=1.0, adjacency=adjacency)
    made = bench(claim, fleet=Drawn(8.0))
    found = judged(DpEpsilonLowerBound(), made)
    assert found.outcome == "failed"
    assert "the claim does not hold" in found.message
    audit = measured(DpEpsilonLowerBound(), made).behind.audit
    assert audit.many_runs.counted == 160
    assert (audit.one_run is not None) == (adjacency == "add_remove")
    assert found.limit == 1.0


def test_an_audit_of_nothing_does_not_contradict():
    made = bench(fleet=Drawn(0.0))
    found = judged(DpEpsilonLowerBound(), made)
    assert (found.outcome, found.low) == ("passed", 0.0)
    assert math.isinf(found.high)


def test_an_audit_whose_trainings_fail_is_no_measurement():
    fleet = Drawn(0.0)
    fleet.fits = lambda _, fits, **__: [Answer(np.zeros((0, 0)), problem="training raised") for _ in fits]
    with pytest.raises(MeasurementError, match="could not train"):
        measure_audit.measure_lower_bound(bench(fleet=fleet), DpEpsilonLowerBound().request())
