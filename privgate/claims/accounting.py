"""What noise costs: dp-accounting recomputes ε of a mechanism; formulas add releases and convert to groups."""

import math
from dataclasses import dataclass
from functools import lru_cache
from importlib.util import find_spec
from typing import Any

import numpy as np

from privgate.claims.bounds import Composed, Gaussian, Tradeoff, check_delta
from privgate.errors import MeasurementError, UsageError

#: share of the recomputed ε by which a declared ε may lie below it, because two accountants round differently
ROUNDING_SHARE = 0.01
MISSING_LIBRARY = "recomputing epsilon needs the library dp-accounting; install it with pip install 'privgate[dp]'"
#: dp-accounting divides the privacy loss into intervals: their largest width in nats, also for mixtures of Gaussians
#: (slow to compute), and as a share of the loss of one training step, because wider intervals round a small loss up
_WIDTH, _MIXTURE_WIDTH, _WIDTH_SHARE = 1e-4, 1e-3, 0.1

NEIGHBORS = {
    "add_remove": "neighbors differ in one record added or removed",
    "replace_one": "neighbors differ in one record replaced by another",
}
SAMPLING = {
    "poisson": "every record enters every batch independently (Poisson sampling)",
    "shuffled": "each epoch passes through the records once in shuffled batches: no amplification by sampling is "
    "proved for this, so each epoch counts as one full release of every record",
    "unknown": "that batches are drawn in secret is not known, so every step counts as if every record were in it",
}


def has_accountant() -> bool:
    """Return whether dp-accounting is installed, without importing it."""
    return find_spec("dp_accounting") is not None


@dataclass(frozen=True, slots=True)
class Mechanism:
    """A sequence of noised sums of clipped gradients."""

    #: standard deviation of the noise over the clipping norm; 0 is no noise at all
    noise_multiplier: float
    #: expected share of the records in a batch, in (0, 1]
    sample_rate: float
    steps: int
    #: a key of ``SAMPLING``; irrelevant at rate 1
    sampling: str
    #: a key of ``NEIGHBORS``
    adjacency: str
    #: records of one person, who comes or goes with all of them
    copies: int = 1
    #: how often training began to go through its shuffled batches; a broken-off pass may have used any record
    passes: int = 0

    def __post_init__(self) -> None:
        noise_is_valid = math.isfinite(self.noise_multiplier) and self.noise_multiplier >= 0
        if not (noise_is_valid and 0 < self.sample_rate <= 1 and self.steps >= 1):
            raise UsageError(
                f"noise multiplier {self.noise_multiplier}, sample rate {self.sample_rate} and {self.steps} steps "
                "describe no mechanism; pass noise >= 0, a rate in (0, 1] and at least one step"
            )
        if self.sampling not in SAMPLING:
            raise UsageError(f"sampling {self.sampling!r} is not known here")

    @property
    def amplified(self) -> bool:
        """Whether secret batches lower ε: an attacker does not know which steps used a record."""
        return self.sample_rate < 1 and self.sampling == "poisson"

    @property
    def unamplified_curve(self) -> Gaussian:
        """The trade-off curve without amplification; its μ is the distance, in deviations, that one person causes."""
        releases = self.steps
        if self.sampling == "shuffled":
            releases = max(1, self.passes, math.ceil(self.steps * self.sample_rate * (1 - 1e-9)))
        sensitivity = self.copies * (2.0 if self.adjacency == "replace_one" else 1.0)
        if self.sampling == "shuffled" and self.sample_rate < 1 and self.adjacency == "add_remove":
            # one record more displaces another, which moves to the last batch: 2 there, 1 here, in each pass
            sensitivity = self.copies * math.sqrt(5.0)
        return Gaussian(sensitivity * math.sqrt(releases) / self.noise_multiplier)


@dataclass(frozen=True)
class Guarantee:
    """An upper bound ε, in nats, at δ; ε is infinite without noise.

    ``curve`` is the mechanism's own trade-off curve, else that of (ε, δ)-DP, else (where ε is infinite) None.
    ``accountant`` names the source of ε: "PLD" (privacy loss distributions), "Gaussian" (closed form), "budget
    accountant" (diffprivlib's), "declared" (the claim), or "none" (no noise).
    """

    epsilon: float
    delta: float
    curve: Tradeoff | None
    accountant: str
    assumptions: tuple[str, ...] = ()


def _build_event(mechanism: Mechanism) -> Any:
    from dp_accounting import dp_event

    noise, rate, copies = mechanism.noise_multiplier, mechanism.sample_rate, mechanism.copies
    if copies == 1:
        step_event = dp_event.PoissonSampledDpEvent(rate, dp_event.GaussianDpEvent(noise))
    elif mechanism.adjacency == "replace_one":
        raise MeasurementError("several records of one person that are replaced together have no theorem here")
    else:  # a batch holds a binomial number of the person's records (Choquette-Choo et al. 2024)
        chances = [math.comb(copies, i) * rate**i * (1 - rate) ** (copies - i) for i in range(copies + 1)]
        step_event = dp_event.MixtureOfGaussiansDpEvent(noise, list(range(copies + 1)), chances)
    return dp_event.SelfComposedDpEvent(step_event, mechanism.steps)


@lru_cache(maxsize=8)
def _build_accountant(mechanism: Mechanism) -> Any:
    if not has_accountant():
        raise MeasurementError(MISSING_LIBRARY)
    from dp_accounting import NeighboringRelation, pld

    relations = {"add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE, "replace_one": NeighboringRelation.REPLACE_ONE}
    relation, event = relations[mechanism.adjacency], _build_event(mechanism)
    largest_width = _MIXTURE_WIDTH if mechanism.copies > 1 else _WIDTH
    width = min(largest_width, _WIDTH_SHARE * mechanism.sample_rate / mechanism.noise_multiplier)
    return pld.PLDAccountant(relation, width).compose(event)


def recompute(mechanism: Mechanism, delta: float) -> Guarantee:
    """Return ε at ``delta`` in (0, 1) for the mechanism, with its trade-off curve.

    ``MeasurementError``: no theorem covers the combination, or dp-accounting is not installed. Doroshenko et al. (2022)
    for Poisson batches; Balle and Wang (2018), Theorem 8, where nothing is amplified.
    """
    if not check_delta(delta) > 0:
        raise UsageError("Gaussian noise has no finite epsilon at delta 0; pass a delta above 0")
    batches = "every step uses all records" if mechanism.sample_rate == 1 else SAMPLING[mechanism.sampling]
    assumptions = (NEIGHBORS[mechanism.adjacency], batches)
    if mechanism.noise_multiplier == 0:
        return Guarantee(math.inf, delta, None, "none", assumptions)
    if not mechanism.amplified:
        curve = mechanism.unamplified_curve
        return Guarantee(curve.epsilon(delta), delta, curve, "Gaussian", assumptions)
    epsilon = float(_build_accountant(mechanism).get_epsilon(delta))
    return Guarantee(epsilon, delta, _compute_curve(mechanism), "PLD", assumptions)


@lru_cache(maxsize=8)
def _compute_curve(mechanism: Mechanism) -> Tradeoff:
    # dense up to 6 nats, where claims usually are; ``Composed`` stays valid between and beyond the points
    epsilons = np.unique(np.concatenate([np.linspace(0, 6, 600), np.linspace(6, 60, 600)]))
    deltas = np.asarray(_build_accountant(mechanism).get_delta(epsilons), dtype=np.float64)
    drawn = f"noise multiplier {mechanism.noise_multiplier:.4g}, sample rate {mechanism.sample_rate:.4g}"
    return Composed(epsilons, deltas, f"{mechanism.steps} steps, {drawn}")


def add_releases(spends: tuple[tuple[float, float], ...]) -> tuple[float, float]:
    """Return the sum of (ε, δ) over releases: basic composition, valid for every adaptive sequence."""
    if any(not (math.isfinite(e) and e >= 0 and 0 <= d < 1) for e, d in spends):
        return math.inf, 1.0
    return math.fsum(e for e, _ in spends), min(1.0, math.fsum(d for _, d in spends))


def convert_to_group(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return (ε, δ) for ``size`` = k records of one person: k ε and δ (e^kε - 1)/(e^ε - 1)."""
    group_epsilon = size * epsilon
    if not delta or group_epsilon > 700:  # e^700 is close to the largest float
        return group_epsilon, float(delta > 0)
    growth = math.expm1(group_epsilon) / math.expm1(epsilon) if epsilon else size
    return group_epsilon, min(1.0, delta * growth)


def understates(declared: float, recomputed: float) -> bool:
    """Return whether a declared ε is below the recomputed one by more than ``ROUNDING_SHARE``."""
    return not declared >= recomputed * (1 - ROUNDING_SHARE)
