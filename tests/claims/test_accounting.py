"""Recomputing ε: against what was frozen, Opacus, closed forms, and the hazards of sampling."""

import json
import math
import warnings
from pathlib import Path

import numpy as np
import pytest
from scipy.stats import binom, norm

from privgate.claims import accounting
from privgate.claims.accounting import Mechanism, recompute
from privgate.claims.bounds import Gaussian
from privgate.errors import MeasurementError, UsageError

FROZEN = [json.loads(line) for line in (Path(__file__).parent / "epsilons.jsonl").read_text().splitlines()]
STANDARD = [row["setting"][:3] for row in FROZEN[:5]]


@pytest.mark.parametrize("row", FROZEN, ids=lambda row: " ".join(map(str, row["setting"])))
def test_no_epsilon_moved_with_the_accountant(row):
    """The lower end is what another grid, or batches that tell less, cost at least; ``freeze.py`` names each."""
    noise, rate, steps, sampling, adjacency, records, copies, delta = row["setting"]
    found = recompute(Mechanism(noise, rate, steps, sampling, adjacency, records, copies), delta).epsilon
    assert row["lower"] <= found <= row["epsilon"] * (1 + 1e-3)


