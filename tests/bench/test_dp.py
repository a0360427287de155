"""How fast ε is recomputed: 10^4 composed steps in under a second, beside the same by Opacus."""

import json
import time
import warnings
from pathlib import Path

import pytest

from privgate.privacy_claims.accountant import Mechanism, recompute

RESULTS = Path("bench-results.jsonl")


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
    line = json.dumps(
        {
            "bench": "dp composition of 10^4 steps",
            "seconds": round(seconds, 3),
            "opacus_seconds": round(opacus, 3),
            "epsilon": ours.epsilon,
            "opacus_epsilon": theirs,
        }
    )
    print(line)
    with RESULTS.open("a") as f:
        f.write(line + "\n")
    assert seconds < 1
    assert abs(ours.epsilon / theirs - 1) < 0.01
