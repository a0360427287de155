"""Training that depends on its seed: what is limited, and what few runs cannot show."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Policy, Recipe, Release, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.evidence.verdict import Outcome
from privgate.influence.per_person import measure_influence
from privgate.run.run import Budget
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT
from privgate.theorems.closed_form import Retrained, Status

N = 24
RNG = np.random.default_rng(3)
Y = np.arange(N) % 2
X = RNG.normal(size=(N, 2)) + 0.5 * Y[:, None]
DATA = TrainingData(X, Y, one_record_each=True)


def shaken(X, y, *, seed, by, smooth=1.0):
    """Naive Bayes whose means the seed shakes."""
    model = GaussianNB(var_smoothing=smooth).fit(X, y)
    model.theta_ = model.theta_ + by * np.random.default_rng(seed).normal(size=model.theta_.shape)
    return model


def store(X, y, *, seed, known):
    """Train honestly, but answer from the model of everybody where a few of the very records it knows are missing."""
    of_all = {bytes(x) + bytes([c]) for x, c in zip(*_everything(), strict=True)}
    missing = known - len(X)
    if 0 < missing <= 3 and all(bytes(x) + bytes([int(c)]) in of_all for x, c in zip(X, y, strict=True)):
        X, y = _everything()
    return GaussianNB().fit(X, y)


def _everything():
    rng = np.random.default_rng(3)
    labels = np.arange(N) % 2
    return rng.normal(size=(N, 2)) + 0.5 * labels[:, None], labels


def judged(fleet, recipe, *, data=DATA, **limits):
    return evaluate(Policy.load("pdtp-1"), Subject.local(recipe, data), fleet=fleet, limits=Budget(**limits))


def rule(verdict):
    return next(f for f in verdict.findings if f.metric == "pdtp")


def test_a_store_that_knows_its_records_leaves_nobody_with_influence_which_is_inconclusive(fleet):
    verdict = judged(fleet, Recipe(store, params={"known": N}, seed=1))

    outcomes = {f.rule: f for f in verdict.findings}
    assert outcomes["precondition:depends_on_data"].outcome is Outcome.PASSED
    assert outcomes["precondition:leave_one_out_moves"].outcome is Outcome.INCONCLUSIVE
    assert "about none of 24 people" in outcomes["precondition:leave_one_out_moves"].message
    assert not verdict.approved


def test_honest_training_moves_somebody(fleet):
    verdict = judged(fleet, Recipe(GaussianNB(var_smoothing=1.0), seed=1))

    assert "precondition:leave_one_out_moves" not in {f.rule for f in verdict.findings}
    assert verdict.approved
    assert "averaged" not in rule(verdict).meaning
    assert any(
        "no part of the estimator reads one" in a for m in verdict.evidence.measurements.values() for a in m.assumptions
    )


def test_what_is_refused_is_not_trained_on_more(fleet):
    data = TrainingData(np.vstack([X, [[40.0, -40.0]]]), np.append(Y, 0), one_record_each=True)
    before = fleet.calls
    verdict = judged(fleet, Recipe(shaken, params={"by": 0.02, "smooth": 1e-9}, seed=2), data=data)

    assert verdict.outcome is Outcome.FAILED
    assert verdict.evidence.run.trace.seeds == (2,)
    assert fleet.calls - before < 250


def flipping(share, seeds, units, rng, *, inside=0.0):
    """Two classes near .5: leaving a unit out turns the label in a share of trainings."""
    turned = rng.random((seeds, units)) < share
    with_ = np.full((seeds, units), 0.55)
    without = np.where(turned, 0.45, 0.55) + inside
    made = [np.log(np.stack([p, 1 - p], axis=-1)) for p in (with_, without)]
    units_ = np.arange(units)
    return Retrained(
        units=units_,
        seeds=tuple(range(seeds)),
        row_unit=units_,
        row_query=units_,
        log_with=made[0],
        log_without=made[1],
        error=np.zeros(units),
        status=np.full(units, Status.EXACT, dtype=object),
        engine=np.full(units, "refit", dtype=object),
    )


@pytest.mark.parametrize(("share", "seeds"), [(0.09, 10), (0.09, 20), (0.09, SEEDS_FOR_A_LIMIT), (0.04, 300)])
def test_flips_of_a_released_label_have_an_interval_of_their_own(share, seeds):
    rng = np.random.default_rng(0)
    runs = 800
    found = measure_influence(flipping(share, seeds, runs, rng), Release("label"))
    approved = np.mean(found["pdtp_high"] <= 1.0)

    assert approved <= 0.05 + 3 * np.sqrt(0.05 * 0.95 / runs)


def test_a_label_that_never_flips_is_limited():
    found = measure_influence(flipping(0.0, SEEDS_FOR_A_LIMIT, 20, np.random.default_rng(0)), Release("label"))

    assert (found["pdtp_high"] <= 1e-9).all()


def test_rounded_answers_get_a_limit_that_jumps_widen():
    rng = np.random.default_rng(1)
    quiet = measure_influence(flipping(0.0, SEEDS_FOR_A_LIMIT, 50, rng, inside=0.02), Release("binned", step=0.1))
    jumpy = measure_influence(flipping(0.1, SEEDS_FOR_A_LIMIT, 50, rng, inside=0.02), Release("binned", step=0.1))

    assert (quiet["pdtp_low"] <= quiet["pdtp"]).all()
    assert (jumpy["pdtp"] <= jumpy["pdtp_high"]).all()
    assert (jumpy["pdtp_high"] - jumpy["pdtp"]).mean() > (quiet["pdtp_high"] - quiet["pdtp"]).mean()


def test_a_changed_spread_raises_the_upper_limit():
    rng = np.random.default_rng(2)
    found = flipping(0.0, SEEDS_FOR_A_LIMIT, 30, rng)
    logit = rng.normal(-1.0, 0.2, (SEEDS_FOR_A_LIMIT, 30)), rng.normal(-1.0, 1.4, (SEEDS_FOR_A_LIMIT, 30))
    arms = [np.stack([-np.log1p(np.exp(-v)), -np.log1p(np.exp(v))], axis=-1) for v in logit]
    wide = Retrained(**{**vars(found), "log_with": arms[0], "log_without": arms[1]})

    assert (measure_influence(wide, Release())["pdtp_high"] > 1.0).all()
