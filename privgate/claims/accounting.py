"""Epsilon recomputed by dp-accounting from what a mechanism does; and what sums of releases and groups cost."""

import logging
import math
from dataclasses import dataclass, replace
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from privgate.claims.bounds import Composed, EpsilonDelta, Gaussian, Tradeoff, checked_delta
from privgate.errors import MeasurementError, UsageError

#: a declared ε this much below the recomputed one counts as rounding of its accountant, as a share
ROUNDING = 0.01
EXTRA = "recomputing epsilon needs the library dp-accounting; install it with pip install 'privgate[dp]'"
#: largest width of a step of the privacy loss, nats; of mixtures, whose steps are slow to compute; and as a share of
#: the loss of one step, because a coarser grid would say more than a small loss
_STEP, _STEP_OF_MIXTURES, _SHARE = 1e-4, 1e-3, 0.1
_ORDERS = (*range(2, 65), 96, 128, 192, 256, 512, 1024)

NEIGHBORS = {
    "add_remove": "neighbors differ in one record added or removed",
    "replace_one": "neighbors differ in one record replaced by another",
}
SAMPLING = {
    "poisson": "every record enters every batch independently (Poisson sampling)",
    "fixed_size": "every batch is a fresh random set of fixed size, drawn without replacement",
    "shuffled": "each epoch passes through the records once in shuffled batches: no amplification by sampling is "
    "proved for this, so each epoch counts as one full release of every record",
    "unknown": "that batches are drawn in secret is not known, so every step counts as if every record were in it",
}


def has_accountant() -> bool:
    """Return whether the library that recomputes epsilon is installed; imports nothing."""
    return find_spec("dp_accounting") is not None


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A sequence of noised sums of clipped gradients.

    Parameters
    ----------
    noise_multiplier : float
        Standard deviation of the noise over the clipping norm; 0 is no noise at all.
    sample_rate : float in (0, 1]
        Expected share of the records in a batch.
    steps : int
    sampling, adjacency : str
        Keys of ``SAMPLING``, irrelevant at rate 1, and of ``NEIGHBORS``.
    records : int
        Training size; needed for "fixed_size" alone.
    copies : int
        Records of one person, who comes or goes with all of them.
    passes : int
        Passes that were begun, of shuffled batches: one may leave records out, and use any record all the same.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    sampling: str
    adjacency: str
    records: int = 0
    copies: int = 1
    passes: int = 0

    def __post_init__(self) -> None:
        good = math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0
        if not (good and 0 < self.sample_rate <= 1 and self.steps >= 1):
            raise UsageError(
                f"noise multiplier {self.noise_multiplier}, sample rate {self.sample_rate} and {self.steps} steps "
                "describe no mechanism; pass noise >= 0, a rate in (0, 1] and at least one step"
            )
        if self.sampling not in SAMPLING:
            raise UsageError(f"sampling {self.sampling!r} is not known here")

    @property
    def amplified(self) -> bool:
        """Whether the way in which batches are drawn amplifies privacy."""
        return self.sample_rate < 1 and self.sampling in ("poisson", "fixed_size")

    @property
    def curve(self) -> Gaussian:
        """What the noise gives where no sampling amplifies: how many deviations one person moves all sums by."""
        releases = self.steps
        if self.sampling == "shuffled":
            releases = max(1, self.passes, math.ceil(self.steps * self.sample_rate * (1 - 1e-9)))
        moved = self.copies * (2.0 if self.adjacency == "replace_one" else 1.0)
        return Gaussian(moved * math.sqrt(releases) / self.noise_multiplier)


@dataclass(frozen=True)
class Guarantee:
    """What an accountant finds for a mechanism: an upper bound ε in nats at δ, infinite without noise.

    ``curve`` is the mechanism's own, or that of (ε, δ)-DP where none is known; None where ε is infinite.
    ``accountant`` is "PLD" (privacy loss distributions), "Gaussian" (closed form), "RDP" (Rényi), or where ε is from.
    """

    epsilon: float
    delta: float
    curve: Tradeoff | None
    accountant: str
    assumptions: tuple[str, ...] = ()


def _event_of(mechanism: Mechanism) -> Any:
    """Return the ``dp_accounting.DpEvent`` of a mechanism whose sampling amplifies.

    Several records of one person, drawn independently, move a sum by a binomial number of clipping norms
    (Choquette-Choo et al. 2024). One replaced record of a batch of fixed size moves it by two.
    """
    from dp_accounting import dp_event

    noise, rate, copies = mechanism.noise_multiplier, mechanism.sample_rate, mechanism.copies
    replaced = mechanism.adjacency == "replace_one"
    if mechanism.sampling == "fixed_size":
        if not replaced or copies > 1 or mechanism.records < 1:
            raise MeasurementError("batches of fixed size are accounted for where single records are replaced, only")
        size = max(1, math.ceil(rate * mechanism.records * (1 - 1e-9)))
        one = dp_event.SampledWithoutReplacementDpEvent(mechanism.records, size, dp_event.GaussianDpEvent(noise / 2))
    elif copies == 1:
        one = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    elif replaced:
        raise MeasurementError("several records of one person that are replaced together have no theorem here")
    else:
        chances = [math.comb(copies, i) * rate**i * (1 - rate) ** (copies - i) for i in range(copies + 1)]
        one = dp_event.MixtureOfGaussiansDpEvent(noise, list(range(copies + 1)), chances)
    return dp_event.SelfComposedDpEvent(one, mechanism.steps)


@lru_cache(maxsize=8)
def _accounted(mechanism: Mechanism) -> Any:
    """Return dp-accounting's accountant with the mechanism composed; Rényi's for batches of fixed size."""
    if not has_accountant():
        raise MeasurementError(EXTRA)
    from dp_accounting import NeighboringRelation, pld, rdp

    between = {"add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE, "replace_one": NeighboringRelation.REPLACE_ONE}
    relation, event = between[mechanism.adjacency], _event_of(mechanism)
    if mechanism.sampling == "fixed_size":
        return rdp.RdpAccountant(_ORDERS, relation).compose(event)
    widest = _STEP_OF_MIXTURES if mechanism.copies > 1 else _STEP
    step = min(widest, _SHARE * mechanism.sample_rate / mechanism.noise_multiplier)
    logging.getLogger().addFilter(_is_no_advice)
    try:
        return pld.PLDAccountant(relation, step).compose(event)
    finally:
        logging.getLogger().removeFilter(_is_no_advice)


def _is_no_advice(record: logging.LogRecord) -> bool:
    return "use_connect_dots" not in record.getMessage()


def recompute(mechanism: Mechanism, delta: float) -> Guarantee:
    """Return ε at ``delta`` in (0, 1) for the mechanism, with its trade-off curve.

    ``MeasurementError``: no theorem covers the combination, or dp-accounting is not installed.

    Doroshenko et al. (2022) for Poisson batches; Balle and Wang (2018), Theorem 8, where nothing is amplified; Wang,
    Balle and Kasiviswanathan (2019) for batches of fixed size.
    """
    if not checked_delta(delta) > 0:
        raise UsageError("Gaussian noise has no finite epsilon at delta 0; pass a delta above 0")
    drawn = "every step uses all records" if mechanism.sample_rate == 1 else SAMPLING[mechanism.sampling]
    words = (NEIGHBORS[mechanism.adjacency], drawn)
    if mechanism.noise_multiplier == 0:
        return Guarantee(math.inf, delta, None, "none", words)
    epsilon = _epsilon_of(mechanism, delta)
    if not mechanism.amplified:
        return Guarantee(epsilon, delta, mechanism.curve, "Gaussian", words)
    if mechanism.sampling == "fixed_size":
        return Guarantee(epsilon, delta, EpsilonDelta(epsilon, delta) if math.isfinite(epsilon) else None, "RDP", words)
    return Guarantee(epsilon, delta, _curve_of(mechanism), "PLD", words)


def _epsilon_of(mechanism: Mechanism, delta: float) -> float:
    return float(_accounted(mechanism).get_epsilon(delta)) if mechanism.amplified else mechanism.curve.epsilon(delta)


@lru_cache(maxsize=8)
def _curve_of(mechanism: Mechanism) -> Tradeoff:
    grid = np.unique(np.concatenate([np.linspace(0, 6, 600), np.linspace(6, 60, 600)]))
    drawn = f"noise multiplier {mechanism.noise_multiplier:.4g}, sample rate {mechanism.sample_rate:.4g}"
    deltas = np.asarray(_accounted(mechanism).get_delta(grid), dtype=np.float64)
    return Composed(grid, deltas, f"{mechanism.steps} steps, {drawn}")


def noise_multiplier(epsilon: float, delta: float, mechanism: Mechanism) -> float:
    """Return the least noise multiplier whose recomputed ε at ``delta`` is at most ``epsilon``, rounded up to 1e-4.

    ``mechanism``'s own noise counts for nothing. ``MeasurementError``: no multiplier up to 10^5 is enough.
    """

    def spent(noise: float) -> float:
        return _epsilon_of(replace(mechanism, noise_multiplier=noise), delta)

    low, high = 0.2, 1.0  # with less, accounting is slow, and nobody asks for it
    if spent(low) <= epsilon:
        return low
    while spent(high) > epsilon:
        low, high = high, 2 * high
        if high > 1e5:
            raise MeasurementError(f"no noise multiplier up to 100000 gives epsilon {epsilon:g} at delta {delta:g}")
    while math.ceil(low * 1e4) < math.ceil(high * 1e4) - 1:
        middle = (low + high) / 2
        low, high = (low, middle) if spent(middle) <= epsilon else (middle, high)
    return math.ceil(high * 1e4) / 1e4


def pure_composition(spends: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    """Return the sum of (ε, δ) over releases: basic composition, valid for every adaptive sequence."""
    if any(not (math.isfinite(e) and e >= 0 and 0 <= d < 1) for e, d in spends):
        return math.inf, 1.0
    return math.fsum(e for e, _ in spends), min(1.0, math.fsum(d for _, d in spends))


def for_groups(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return (ε, δ) for k records of one person: k ε and δ (e^kε - 1)/(e^ε - 1)."""
    together = size * epsilon
    if not delta or together > 700:
        return together, float(delta > 0)
    return together, min(1.0, delta * (math.expm1(together) / math.expm1(epsilon) if epsilon else size))


def understates(declared: float, recomputed: float) -> bool:
    """Whether a declared ε is below the recomputed one by more than two accountants may differ."""
    return not declared >= recomputed * (1 - ROUNDING)
