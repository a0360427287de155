"""Empirical lower bounds on ε: coverage on mechanisms whose ε is known."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from privgate.claims import audit
from privgate.claims.bounds import Gaussian, sigmoid
from privgate.errors import UsageError


@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_many_run_exceeds_the_truth_no_more_often_than_nominal(epsilon):
    rng = np.random.default_rng(int(epsilon * 10))
    miss = 1 - sigmoid(epsilon)
    over = sum(
        audit.bound_many_runs(rng.binomial(500, miss), 500, rng.binomial(500, miss), 500, delta=0, confidence=0.95)
        > epsilon
        for _ in range(1000)
    )
    assert over <= binom.ppf(0.999, 1000, 0.05)


@pytest.mark.quick(2)
@pytest.mark.parametrize("epsilon", [0.5, 1.0, 2.0])
def test_one_run_exceeds_the_truth_no_more_often_than_nominal(epsilon):
    rng = np.random.default_rng(int(epsilon * 10))
    right = rng.binomial(400, sigmoid(epsilon), 1000)
    bound = {
        v: audit.bound_one_run(canaries=400, guesses=400, right=int(v), delta=0, confidence=0.95)
        for v in np.unique(right)
    }
    over = sum(bound[v] > epsilon for v in right)
    assert over <= binom.ppf(0.999, 1000, 0.05)


def test_the_delta_term_keeps_a_leaking_mechanism_at_nominal():
    # (0, 0.02)-DP: each of 160 canaries is given away with probability 0.02; the 5 most confident guesses are counted
    rng, delta, m, r = np.random.default_rng(0), 0.02, 160, 5
    bound = {
        d: [audit.bound_one_run(canaries=m, guesses=r, right=v, delta=d, confidence=0.95) for v in range(r + 1)]
        for d in (0.0, delta)
    }
    naive = sound = 0
    for _ in range(1000):
        known = min(r, int((rng.random(m) < delta).sum()))
        right = known + rng.binomial(r - known, 0.5)
        naive += bound[0.0][right] > 0
        sound += bound[delta][right] > 0
    assert 0.35 < naive / 1000 < 0.43  # what copies without the term do at a nominal 5 %
    assert sound / 1000 <= 0.05


def test_all_right_gives_the_closed_form():
    for r in (10, 100, 1000):
        found = audit.bound_one_run(canaries=r, guesses=r, right=r, delta=0, confidence=0.95)
        q = 0.05 ** (1 / r)
        assert found == pytest.approx(math.log(q / (1 - q)), abs=1e-8)


def test_the_ceiling_without_errors_and_the_floor_of_chance():
    found = [audit.bound_many_runs(0, n, 0, n, delta=0, confidence=0.95) for n in (100, 1000, 5000)]
    assert [round(v, 2) for v in found] == [3.28, 5.60, 7.21]
    assert audit.bound_many_runs(50, 100, 50, 100, delta=0, confidence=0.95) == 0
    assert audit.bound_one_run(canaries=100, guesses=100, right=50, delta=0, confidence=0.95) == 0


def test_the_p_value_equals_enumeration_of_the_theorem():
    m, r, v, delta, epsilon = 30, 12, 9, 0.01, 0.4
    q = sigmoid(epsilon)
    p = [math.comb(r, k) * q**k * (1 - q) ** (r - k) for k in range(r + 1)]
    term = max(sum(p[max(0, v - i) : v]) / i for i in range(1, v + 1))
    expected = sum(p[v:]) + 2 * m * delta * term
    found = audit.one_run_p_value(epsilon, canaries=m, guesses=r, right=v, delta=delta)
    assert found == pytest.approx(min(1.0, expected), abs=1e-12)


def test_guesses_are_the_most_confident_and_ties_are_drawn():
    rng = np.random.default_rng(0)
    scores = np.arange(10.0)
    assert audit.count_right_guesses(scores, scores >= 5, 4, rng) == 4
    tied = [audit.count_right_guesses(np.zeros(10), np.arange(10) < 5, 10, rng) for _ in range(300)]
    assert 4.5 < np.mean(tied) < 5.5


def test_canaries_without_a_score_are_refused():
    with pytest.raises(UsageError):
        audit.count_right_guesses(np.array([0.0, np.nan]), np.zeros(2, bool), 2, np.random.default_rng(0))


# -- bugs planted in a small mechanism ---------------------------------------------------------------------------------

STEPS, CLAIM, DELTA, CLIP = 200, 1.0, 1e-5, 1.0
#: noise at which 200 full-batch steps are (1, 1e-5)-DP
MU = next(m for m in np.linspace(0.3, 0.2, 1001) if Gaussian(m).epsilon(DELTA) <= CLAIM)
SIGMA = math.sqrt(STEPS) / MU


def release(rng, runs, *, member, bug=""):
    """Return the sum of all noised steps, shape (runs,): what an adversary sees who knows the other records."""
    gradient = 50.0 if bug == "clipping off" else CLIP
    signal = STEPS * gradient * member
    if bug == "noise once":
        return signal + SIGMA * CLIP * rng.standard_normal(runs)
    if bug == "noise seed reused":
        noise = np.random.default_rng(1234).standard_normal(STEPS).sum()
        return np.full(runs, signal + SIGMA * CLIP * noise)
    return signal + SIGMA * CLIP * rng.standard_normal((runs, STEPS)).sum(axis=1)


def audited(rng, counted, *, bug="", confidence=0.999):
    tuning = [release(rng, 20, member=m, bug=bug) for m in (1, 0)]
    fires = audit.choose_test(*tuning)
    inside, outside = (release(rng, counted, member=m, bug=bug) for m in (1, 0))
    misses, alarms = int((~fires(inside)).sum()), int(fires(outside).sum())
    return audit.bound_many_runs(misses, counted, alarms, counted, delta=DELTA, confidence=confidence)


@pytest.mark.parametrize(("bug", "runs"), [("clipping off", 30), ("noise once", 60), ("noise seed reused", 30)])
def test_a_planted_bug_is_found_in_so_many_runs_of_each_kind(bug, runs):
    found = audited(np.random.default_rng(0), runs, bug=bug)
    print(f"{bug}: epsilon at least {found:.2f} from {2 * (20 + runs)} runs, claimed {CLAIM}")
    assert found > CLAIM
