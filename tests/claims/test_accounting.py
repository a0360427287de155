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
from privgate.errors import UsageError

FROZEN = [json.loads(line) for line in (Path(__file__).parent / "epsilons.jsonl").read_text().splitlines()]
STANDARD = [row["setting"][:3] for row in FROZEN[:5]]


#: where little noise is added, the distribution of the loss is long
DEAR = [pytest.param(row, marks=[pytest.mark.slow] * (row["setting"][0] < 0.6)) for row in FROZEN]


@pytest.mark.quick(11)
@pytest.mark.parametrize("row", DEAR, ids=lambda row: " ".join(map(str, row["setting"])))
def test_no_epsilon_moved_with_the_accountant(row):
    """The lower end is what another grid, or batches that tell less, cost at least; ``freeze.py`` names each."""
    noise, rate, steps, sampling, adjacency, _, copies, delta = row["setting"]
    found = recompute(Mechanism(noise, rate, steps, sampling, adjacency, copies), delta).epsilon
    assert row["lower"] <= found <= row["epsilon"] * (1 + 1e-3)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("sigma", "rate", "steps"), STANDARD)
def test_within_one_percent_of_opacus_for_standard_settings(sigma, rate, steps):
    from opacus.accountants import PRVAccountant, RDPAccountant

    ours = recompute(Mechanism(sigma, rate, steps, "poisson", "add_remove"), 1e-5)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        prv, rdp = PRVAccountant(), RDPAccountant()
        prv.history = rdp.history = [(sigma, rate, steps)]
        assert ours.epsilon == pytest.approx(prv.get_epsilon(1e-5), rel=0.01)
        assert ours.epsilon <= rdp.get_epsilon(1e-5)


def test_shuffled_batches_get_no_amplification():
    poisson = recompute(Mechanism(1.0, 0.01, 1000, "poisson", "add_remove"), 1e-5)
    shuffled = recompute(Mechanism(1.0, 0.01, 1000, "shuffled", "add_remove"), 1e-5)
    assert shuffled.epsilon > 5 * poisson.epsilon
    assert shuffled.curve == Gaussian(math.sqrt(5) * math.sqrt(10))  # one more displaces another
    assert "no amplification" in " ".join(shuffled.assumptions)


def test_basic_composition_and_groups():
    assert accounting.add_releases(((0.5, 0.0), (0.25, 1e-6))) == (0.75, 1e-6)
    assert accounting.add_releases(((0.5, 0.0), (math.nan, 0.0))) == (math.inf, 1.0)
    assert accounting.add_releases(((0.5, 0.7), (0.5, 0.7))) == (1.0, 1.0)
    assert accounting.convert_to_group(1.0, 0.0, 3) == (3.0, 0.0)
    epsilon, delta = accounting.convert_to_group(0.5, 1e-6, 4)
    assert epsilon == 2.0
    assert delta == pytest.approx(1e-6 * sum(math.exp(0.5 * i) for i in range(4)))


def test_a_declared_epsilon_may_round_but_not_understate():
    assert not accounting.understates(2.0, 2.01)
    assert accounting.understates(1.0, 2.3)
    assert accounting.understates(1.0, math.inf)
    assert accounting.understates(math.nan, 1.0)
    assert math.isinf(recompute(Mechanism(0.0, 0.01, 1000, "poisson", "add_remove"), 1e-5).epsilon)


@pytest.mark.parametrize(
    "mechanism",
    [
        lambda: Mechanism(-1.0, 0.1, 10, "poisson", "add_remove"),
        lambda: Mechanism(math.nan, 0.1, 10, "poisson", "add_remove"),
        lambda: Mechanism(1.0, 0.0, 10, "poisson", "add_remove"),
        lambda: Mechanism(1.0, 0.1, 0, "poisson", "add_remove"),
        lambda: Mechanism(1.0, 0.1, 10, "", "add_remove"),
    ],
)
def test_what_is_no_mechanism_is_refused(mechanism):
    with pytest.raises(UsageError):
        mechanism()


def test_several_records_of_one_person_are_a_mixture_of_gaussians():
    # one step by brute force: with the person, the sum moves by i clipping norms with the chance that i of k are drawn
    sigma, rate, k, epsilon = 1.5, 0.3, 3, 1.0
    x = np.linspace(-15, 20, 400_001)
    without = norm.pdf(x, scale=sigma)
    inside = sum(binom.pmf(i, k, rate) * norm.pdf(x, loc=i, scale=sigma) for i in range(k + 1))
    gaps = [np.maximum(p - np.exp(epsilon) * q, 0) for p, q in ((inside, without), (without, inside))]
    delta = max(float(np.trapezoid(g, x)) for g in gaps)
    found = recompute(Mechanism(sigma, rate, 1, "poisson", "add_remove", copies=k), delta)
    assert epsilon * (1 - 1e-6) <= found.epsilon <= epsilon + 1e-3
