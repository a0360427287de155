"""ε recomputed from what a mechanism does, by an accountant that its author does not control (``dp_accounting``)."""

import math
from dataclasses import dataclass, field
from functools import lru_cache
from typing import Any

from privgate.errors import MeasurementError, UsageError
from privgate.privacy_claims.bounds import checked_delta
from privgate.privacy_claims.tradeoff import Composed, EpsilonDelta, Gaussian, Tradeoff, least_epsilon

#: width of the loss buckets, nats; rounding is upward, and at 10^4 steps costs less than 0.1 % of ε
INTERVAL = 1e-3
#: a declared ε this much below the recomputed one counts as rounding of its accountant, as a share
ROUNDING = 0.01

SAMPLING_WORDS = {
    "poisson": "every record enters every batch independently (Poisson sampling)",
    "fixed_size": "every batch is a fresh random set of fixed size, drawn without replacement",
    "shuffled": "each epoch passes through the records once in shuffled batches: no amplification by sampling is "
    "proved for this, so each epoch counts as one full release of every record",
    "unknown": "that batches are drawn in secret is not known, so every step counts as if every record were in it",
}


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
    sampling : {"poisson", "fixed_size", "shuffled", "unknown"}
        Irrelevant at rate 1.
    adjacency : {"add_remove", "replace_one"}
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
        if self.sampling not in SAMPLING_WORDS or self.adjacency not in ("add_remove", "replace_one"):
            raise UsageError(f"sampling {self.sampling!r} with adjacency {self.adjacency!r} is not known here")

    @property
    def releases(self) -> int:
        """How many times one record can be part of an unamplified release."""
        if self.sampling == "shuffled":
            return max(1, self.passes, math.ceil(self.steps * self.sample_rate * (1 - 1e-9)))
        return self.steps


@dataclass(frozen=True)
class Guarantee:
    """What an accountant finds for a mechanism.

    Parameters
    ----------
    epsilon : float
        Nats, an upper bound; infinite without noise.
    delta : float
    curve : Tradeoff or None
        The mechanism's own trade-off curve, or that of (ε, δ)-DP where none is known; None where ε is infinite.
    accountant : str
        "PLD", "Gaussian" (closed form), "RDP" or "none".
    rdp_epsilon : float
        The same by Rényi accounting; NaN where that does not cover the case.
    assumptions : tuple of str
    """

    epsilon: float
    delta: float
    curve: Tradeoff | None
    accountant: str
    rdp_epsilon: float = float("nan")
    assumptions: tuple[str, ...] = field(default=())


def epsilon_of(mechanism: Mechanism, delta: float) -> float:
    """Return the epsilon of ``recompute`` alone, without its curve; for searches."""
    poisson = 0 < mechanism.sample_rate < 1 and mechanism.sampling == "poisson" and mechanism.copies == 1
    if poisson and mechanism.noise_multiplier > 0:
        return float(poisson_loss(mechanism).get_epsilon_for_delta(delta))
    return recompute(mechanism, delta).epsilon


def recompute(mechanism: Mechanism, delta: float) -> Guarantee:
    """Return ε at ``delta`` for the mechanism, with its trade-off curve.

    Parameters
    ----------
    mechanism : Mechanism
    delta : float in (0, 1)
        Gaussian noise has no finite ε at δ = 0.

    Raises
    ------
    MeasurementError
        The accountant is not installed, or no theorem covers the combination.

    References
    ----------
    Koskela et al. (2020) and Doroshenko et al. (2022) for privacy loss distributions; Mironov et al. (2019) for RDP.
    Choquette-Choo et al. (2024), "Privacy Amplification for Matrix Mechanisms", for several records of one person: how
    many of k are drawn is binomial, and no k gradients move a sum further than equal ones.
    """
    if not checked_delta(delta) > 0:
        raise UsageError("Gaussian noise has no finite epsilon at delta 0; pass a delta above 0")
    words = (_adjacency_words(mechanism.adjacency), _sampling_words(mechanism))
    if mechanism.noise_multiplier == 0:
        return Guarantee(math.inf, delta, None, "none", assumptions=words)
    if mechanism.copies > 1:
        _check_copies(mechanism)
    rdp = math.nan if mechanism.copies > 1 else _rdp_epsilon(mechanism, delta)
    if mechanism.sample_rate < 1 and mechanism.sampling == "poisson":
        loss = poisson_loss(mechanism)
        curve: Tradeoff = _poisson_curve(mechanism)
        return Guarantee(float(loss.get_epsilon_for_delta(delta)), delta, curve, "PLD", rdp, words)
    if mechanism.sample_rate < 1 and mechanism.sampling == "fixed_size":
        if math.isnan(rdp):
            raise MeasurementError(
                "batches of fixed size are accounted for replace-one neighbors only; state the claim with adjacency "
                "'replace_one', or draw batches by Poisson sampling"
            )
        return Guarantee(rdp, delta, EpsilonDelta(rdp, delta), "RDP", rdp, words)
    sensitivity = mechanism.copies * (2.0 if mechanism.adjacency == "replace_one" else 1.0)
    curve = Gaussian(sensitivity * math.sqrt(mechanism.releases) / mechanism.noise_multiplier)
    return Guarantee(least_epsilon(curve, delta), delta, curve, "Gaussian", rdp, words)


def _check_copies(mechanism: Mechanism) -> None:
    known = mechanism.sampling != "fixed_size" and (
        mechanism.sampling != "poisson" or mechanism.adjacency == "add_remove"
    )
    if mechanism.sample_rate < 1 and not known:
        raise MeasurementError(
            "no accountant here covers people with several records under this sampling and adjacency"
        )


@lru_cache(maxsize=8)
def _poisson_curve(mechanism: Mechanism) -> Composed:
    return Composed.of(poisson_loss(mechanism), name=_name(mechanism))


@lru_cache(maxsize=8)
def poisson_loss(mechanism: Mechanism) -> Any:
    """Return the privacy loss distribution of the composed Poisson-sampled Gaussian, rounded upward."""
    accounting = _accounting()
    if mechanism.copies > 1:
        return _several(mechanism, accounting["loss"]).self_compose(mechanism.steps)
    loss = accounting["loss"].from_gaussian_mechanism(
        mechanism.noise_multiplier,
        sampling_prob=mechanism.sample_rate,
        value_discretization_interval=INTERVAL,
        neighboring_relation=accounting[mechanism.adjacency],
    )
    return loss.self_compose(mechanism.steps)


def _several(mechanism: Mechanism, loss: Any) -> Any:
    """Return the loss of one step for somebody of whose k records a binomial number is drawn."""
    from scipy.stats import binom

    counts = range(mechanism.copies + 1)
    return loss.from_mixture_gaussian_mechanism(
        mechanism.noise_multiplier,
        [float(i) for i in counts],
        [float(binom.pmf(i, mechanism.copies, mechanism.sample_rate)) for i in counts],
        value_discretization_interval=INTERVAL,
    )


def _name(mechanism: Mechanism) -> str:
    return (
        f"{mechanism.steps} steps, noise multiplier {mechanism.noise_multiplier:.4g}, "
        f"sample rate {mechanism.sample_rate:.4g}"
    )


def _rdp_epsilon(mechanism: Mechanism, delta: float) -> float:
    accounting = _accounting()
    event, rate = accounting["event"], mechanism.sample_rate
    one = event.GaussianDpEvent(mechanism.noise_multiplier)
    count = mechanism.steps
    if rate < 1 and mechanism.sampling == "poisson":
        one = event.PoissonSampledDpEvent(rate, one)
    elif rate < 1 and mechanism.sampling == "fixed_size":
        if mechanism.records < 1:
            raise UsageError("batches of fixed size need the number of training records")
        size = max(1, math.ceil(rate * mechanism.records * (1 - 1e-9)))
        # swapping one record moves the sum by two clipping norms, which this accountant leaves to the caller
        one = event.GaussianDpEvent(mechanism.noise_multiplier / 2)
        one = event.SampledWithoutReplacementDpEvent(mechanism.records, size, one)
    else:
        count = mechanism.releases
        if mechanism.adjacency == "replace_one":
            one = event.GaussianDpEvent(mechanism.noise_multiplier / 2)
    accountant = accounting["rdp"](neighboring_relation=accounting[mechanism.adjacency])
    composed = event.SelfComposedDpEvent(one, count)
    if not accountant.supports(composed):
        return math.nan
    return float(accountant.compose(composed).get_epsilon(delta))


def pure_composition(spends: list[tuple[float, float]]) -> tuple[float, float]:
    """Return the sum of (ε, δ) over releases: basic composition, valid for every adaptive sequence."""
    if any(not (math.isfinite(e) and e >= 0 and 0 <= d < 1) for e, d in spends):
        return math.inf, 1.0
    return math.fsum(e for e, _ in spends), min(1.0, math.fsum(d for _, d in spends))


def for_groups(epsilon: float, delta: float, size: int) -> tuple[float, float]:
    """Return (ε, δ) for k records of one person: k ε and δ (e^kε - 1)/(e^ε - 1)."""
    if size < 1:
        raise UsageError(f"a group has at least one record, not {size}")
    if size == 1 or epsilon == 0:
        return epsilon, min(1.0, size * delta)
    if not delta:
        return size * epsilon, 0.0
    if size * epsilon > 700:
        return size * epsilon, 1.0
    return size * epsilon, min(1.0, delta * math.expm1(size * epsilon) / math.expm1(epsilon))


def understates(declared: float, recomputed: float) -> bool:
    """Whether a declared ε is below the recomputed one by more than two accountants may differ."""
    return not declared >= recomputed * (1 - ROUNDING)


def _adjacency_words(adjacency: str) -> str:
    return {
        "add_remove": "neighbors differ in one record added or removed",
        "replace_one": "neighbors differ in one record replaced by another",
    }[adjacency]


def _sampling_words(mechanism: Mechanism) -> str:
    return "every step uses all records" if mechanism.sample_rate == 1 else SAMPLING_WORDS[mechanism.sampling]


def _accounting() -> dict[str, Any]:
    """Import ``dp_accounting``; it is heavy and an extra."""
    try:
        from dp_accounting import NeighboringRelation, dp_event, rdp
        from dp_accounting.pld import privacy_loss_distribution
    except ImportError as exc:
        raise MeasurementError(
            f"epsilon cannot be recomputed: {exc}; install the accountant with pip install 'privgate[dp]'"
        ) from exc
    return {
        "loss": privacy_loss_distribution,
        "event": dp_event,
        "rdp": rdp.RdpAccountant,
        "add_remove": NeighboringRelation.ADD_OR_REMOVE_ONE,
        "replace_one": NeighboringRelation.REPLACE_ONE,
    }
