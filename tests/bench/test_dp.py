"""How fast ε is recomputed: 10^4 composed steps in under a second, beside the same by Opacus."""

import time
import warnings

import pytest

from privgate.privacy_claims.accountant import Mechanism, recompute
from tests.bench.results_table import note


@pytest.mark.bench
def test_ten_thousand_steps_compose_in_under_a_second():
    from opacus.accountants import PRVAccountant

    recompute(Mechanism(1.0, 0.02, 10, "poisson", "add_remove"), 1e-5)  # imports
    started = time.perf_counter()
    ours = recompute(Mechanism(1.0, 0.01, 10_000, "poisson", "add_remove"), 1e-5)
    seconds = time.perf_counter() - started
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        accountant = PRVAccountant()
        accountant.history = [(1.0, 0.01, 10_000)]
        started = time.perf_counter()
        theirs = accountant.get_epsilon(1e-5)
        opacus = time.perf_counter() - started
    note(bench="dp composition of 10^4 steps", seconds=seconds, opacus_seconds=opacus, epsilon=ours.epsilon,
         opacus_epsilon=theirs)  # fmt: skip
    assert seconds < 1
    assert abs(ours.epsilon / theirs - 1) < 0.01
