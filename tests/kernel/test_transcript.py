"""The kernel's accounting beside another library's, closed forms, and what an adversary really reaches."""

import itertools
import math

import numpy as np
import pytest
from dp_accounting import NeighboringRelation, dp_event, rdp
from dp_accounting.pld import privacy_loss_distribution
from scipy.stats import norm

from privgate.kernel import Case, Refused, limits, transcript
from privgate.kernel.transcript import Transcript, epsilon

SETTINGS = [
    (2.0, 0.2, 50),  # what the default run asks
    (0.3, 0.3, 20),
    (0.5, 0.01, 100),
    (0.8, 0.05, 300),
    (1.0, 0.01, 1000),
    (1.1, 256 / 60_000, 15_000),
    (6.0, 0.9, 10),
    (40.0, 0.001, 100_000),
]


def published(noise, rate, steps, *, replace, upper=True):
    """The same by dp-accounting, on a finer grid: no less than the truth, or no more."""
    relation = NeighboringRelation.REPLACE_ONE if replace else NeighboringRelation.ADD_OR_REMOVE_ONE
    loss = privacy_loss_distribution.from_gaussian_mechanism(
        noise,
        sampling_prob=rate,
        value_discretization_interval=1e-4 if noise < 10 else 2e-6,
        neighboring_relation=relation,
        pessimistic_estimate=upper,
    )
    return loss.self_compose(steps)


@pytest.mark.quick(1)
@pytest.mark.parametrize("replace", [False, True])
@pytest.mark.parametrize(("noise", "rate", "steps"), SETTINGS)
def test_poisson_batches_cost_what_another_accountant_says(noise, rate, steps, replace):
    told = Transcript(noise, rate, steps, "poisson", replace)
    least, most = (published(noise, rate, steps, replace=replace, upper=upper) for upper in (False, True))

    for delta in (1e-3, 1e-5, 1e-8):
        ours = epsilon(told, delta)
        assert ours >= float(least.get_epsilon_for_delta(delta))
        assert ours <= float(most.get_epsilon_for_delta(delta)) * (1.002 if delta > 1e-6 else 1.02) + 2e-3


def test_a_grid_ten_times_coarser_says_no_less(monkeypatch):
    told = Transcript(1.0, 0.05, 200, "poisson", replace=False)
    fine = epsilon(told, 1e-6)
    monkeypatch.setattr(transcript, "_STEP", 1e-2)

    assert fine <= epsilon(told, 1e-6) <= 1.02 * fine


@pytest.mark.parametrize("copies", [1, 2, 5])
def test_no_threshold_on_a_simulated_sum_beats_it(copies):
    noise, rate, steps = 3.0, 0.2, 1
    told = Transcript(noise, rate, steps, "poisson", replace=False, copies=copies)
    x = np.linspace(-30, 40, 200_001)
    weights = [math.comb(copies, i) * rate**i * (1 - rate) ** (copies - i) for i in range(copies + 1)]
    inside = sum(w * norm.pdf(x, loc=i, scale=noise) for i, w in enumerate(weights))
    outside = norm.pdf(x, scale=noise)

    for e in (0.0, 0.1, 0.3):
        told_delta = max(loss.delta(e) for loss in transcript.losses(told))
        for p, q in ((inside, outside), (outside, inside)):
            real = float(np.trapezoid(np.maximum(p - math.exp(e) * q, 0), x))
            assert real <= told_delta + 1e-9
        assert told_delta <= real + 0.05


def test_every_step_counts_where_nothing_amplifies():
    assert epsilon(Transcript(5.0, 1.0, 25, "poisson", replace=False), 1e-5) == pytest.approx(4.377, abs=1e-3)
    hidden = Transcript(5.0, 0.01, 25, "unknown", replace=False)
    assert epsilon(hidden, 1e-5) == epsilon(Transcript(5.0, 1.0, 25, "poisson", replace=False), 1e-5)
    once = Transcript(5.0, 0.04, 25, "shuffled", replace=False, releases=1)
    assert epsilon(once, 1e-5) == epsilon(Transcript(5.0, 1.0, 1, "poisson", replace=False), 1e-5)


def test_batches_of_fixed_size_cost_what_renyi_accounting_says():
    told = Transcript(1.5, 0.01, 500, "fixed_size", replace=True, records=10_000)
    one = dp_event.SampledWithoutReplacementDpEvent(10_000, 100, dp_event.GaussianDpEvent(0.75))
    theirs = rdp.RdpAccountant(neighboring_relation=NeighboringRelation.REPLACE_ONE)
    theirs.compose(dp_event.SelfComposedDpEvent(one, 500))

    assert epsilon(told, 1e-5) == pytest.approx(theirs.get_epsilon(1e-5), rel=0.05)


def test_a_sum_of_losses_is_what_convolving_term_by_term_gives(monkeypatch):
    told = Transcript(1.2, 0.2, 16, "poisson", replace=False)
    by_fft, direct = [], []
    monkeypatch.setattr(transcript, "_DIRECT", 0)
    by_fft = [loss.delta(2.0) for loss in transcript.losses(told)]
    monkeypatch.setattr(transcript, "_DIRECT", 10**9)
    direct = [loss.delta(2.0) for loss in transcript.losses(told)]

    for a, b in zip(by_fft, direct, strict=True):
        assert a >= b * (1 - 1e-9)
        assert a == pytest.approx(b, rel=1e-3)


@pytest.mark.parametrize("spread", [0.3, 30.0, 3000.0])
def test_a_convolution_by_transforms_errs_by_no_more_than_is_counted_as_certain(spread):
    rng, place = np.random.default_rng(5), np.arange(-4000, 4001)
    one, other = (np.exp(-((place / spread) ** 2) / 2) * rng.uniform(0.5, 1.0, len(place)) for _ in range(2))
    one, other = one / one.sum(), other / other.sum()
    made = transcript.Loss(one, 0, 0.0, 1e-3).both(transcript.Loss(other, 0, 0.0, 1e-3))
    truth = np.convolve(one.astype(np.longdouble), other.astype(np.longdouble))
    found = np.zeros(len(truth))
    found[made.first : made.first + len(made.mass)] = made.mass
    found[made.first] = truth[made.first]  # what was cut below stands there

    assert len(one) * len(other) > transcript._DIRECT
    missing = np.maximum(truth - found, 0.0)[made.first : made.first + len(made.mass)].sum()
    assert missing <= made.certain < 1e-9


@pytest.mark.slow
def test_less_noise_more_steps_larger_batches_and_more_copies_never_cost_less():
    base = {"noise": 1.5, "rate": 0.05, "steps": 40, "copies": 1}
    worse = {"noise": 1.2, "rate": 0.08, "steps": 60, "copies": 2}
    cost = {
        turn: epsilon(
            Transcript(
                sampling="poisson",
                replace=False,
                **{k: (worse if w else base)[k] for k, w in zip(base, turn, strict=True)},
            ),
            1e-5,
        )
        for turn in itertools.product((0, 1), repeat=4)
    }
    for a, b in itertools.product(cost, repeat=2):
        if all(x <= y for x, y in zip(a, b, strict=True)):
            assert cost[a] <= cost[b] * (1 + 1e-9)


def test_what_no_theorem_covers_is_refused():
    good = {"noise": 1.0, "rate": 0.1, "steps": 10, "sampling": "poisson", "replace": False, "delta": 1e-5}
    assert limits(Case("transcript", "any", good)).high[0] == epsilon(Transcript(1.0, 0.1, 10, "poisson", False), 1e-5)
    assert math.isinf(limits(Case("transcript", "any", good | {"noise": 0.0})).high[0])
    for change in (
        {"noise": -1.0},
        {"noise": float("nan")},
        {"rate": 0.0},
        {"rate": 1.5},
        {"steps": 0},
        {"sampling": "secret"},
        {"delta": 0.0},
        {"delta": 1.0},
        {"replace": "no"},
        {"replace": True, "copies": 2},
        {"sampling": "shuffled"},  # how often a record can be used is not told
        {"sampling": "fixed_size"},
        {"sampling": "fixed_size", "replace": True},
    ):
        with pytest.raises(Refused):
            limits(Case("transcript", "any", good | change))
