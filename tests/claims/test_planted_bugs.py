"""Audits find bugs planted in a small mechanism, in how many runs; the honest one is flagged no more than nominal."""

import math

import numpy as np
import pytest
from scipy.stats import binom

from privgate.claims import audit
from privgate.claims.bounds import Gaussian

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
    return audit.many_run(misses, counted, alarms, counted, delta=DELTA, confidence=confidence)


@pytest.mark.parametrize(("bug", "runs"), [("clipping off", 30), ("noise once", 60), ("noise seed reused", 30)])
def test_a_planted_bug_is_found_in_so_many_runs_of_each_kind(bug, runs):
    found = audited(np.random.default_rng(0), runs, bug=bug)
    print(f"{bug}: epsilon at least {found:.2f} from {2 * (20 + runs)} runs, claimed {CLAIM}")
    assert found > CLAIM


@pytest.mark.slow
def test_the_honest_mechanism_is_flagged_no_more_often_than_nominal():
    rng, trials = np.random.default_rng(1), 400
    for confidence in (0.8, 0.999):
        flagged = sum(audited(rng, 100, confidence=confidence) > CLAIM for _ in range(trials))
        assert flagged <= binom.ppf(0.999, trials, 1 - confidence)


@pytest.mark.slow
def test_one_run_flags_the_honest_mechanism_no_more_often_than_nominal():
    # 100 canaries in orthogonal directions of one run, each the worst case of the mechanism
    rng, trials, m = np.random.default_rng(2), 400, 100
    flagged = 0
    for _ in range(trials):
        included = rng.random(m) < 0.5
        scores = MU * included + rng.standard_normal(m)
        right = audit.guess(scores, included, 50, rng)
        found = audit.one_run(canaries=m, guesses=50, right=right, delta=DELTA, confidence=0.95)
        flagged += found > CLAIM
    assert flagged <= binom.ppf(0.999, trials, 0.05)
