"""ε recomputed from what a mechanism does, by the kernel; and what sums of releases and groups of records cost."""

import math
from dataclasses import dataclass, field
from functools import lru_cache

from privgate.errors import MeasurementError, UsageError
from privgate.kernel import Refused, transcript
from privgate.privacy_claims.bounds import checked_delta
from privgate.privacy_claims.tradeoff import Composed, EpsilonDelta, Gaussian, Tradeoff

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

    @property
    def transcript(self) -> transcript.Transcript:
        """What the kernel is told."""
        return transcript.Transcript(
            self.noise_multiplier,
            self.sample_rate,
            self.steps,
            self.sampling,
            self.adjacency == "replace_one",
            self.records,
            self.copies,
            self.releases,
        )


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
        "PLD" (privacy loss distributions), "Gaussian" (closed form), "RDP" (Rényi) or "none".
    assumptions : tuple of str
    """

    epsilon: float
    delta: float
    curve: Tradeoff | None
    accountant: str
    assumptions: tuple[str, ...] = field(default=())


def epsilon_of(mechanism: Mechanism, delta: float) -> float:
    """Return ε at ``delta`` of the mechanism, nats; infinite without noise.

    Raises
    ------
    MeasurementError
        No theorem covers the combination.
    """
    if not checked_delta(delta) > 0:
        raise UsageError("Gaussian noise has no finite epsilon at delta 0; pass a delta above 0")
    try:
        return transcript.epsilon(mechanism.transcript, delta)
    except Refused as exc:
        raise MeasurementError(f"epsilon cannot be recomputed: {exc}") from exc


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
        No theorem covers the combination.

    References
    ----------
    ``privgate/kernel/transcript.py``, which has each theorem's source.
    """
    words = (_adjacency_words(mechanism.adjacency), _sampling_words(mechanism))
    epsilon, sampled = epsilon_of(mechanism, delta), mechanism.sample_rate < 1
    if mechanism.noise_multiplier == 0:
        return Guarantee(math.inf, delta, None, "none", words)
    if sampled and mechanism.sampling == "poisson":
        return Guarantee(epsilon, delta, _poisson_curve(mechanism), "PLD", words)
    if sampled and mechanism.sampling == "fixed_size":
        return Guarantee(epsilon, delta, EpsilonDelta(epsilon, delta), "RDP", words)
    sensitivity = mechanism.copies * (2.0 if mechanism.adjacency == "replace_one" else 1.0)
    curve = Gaussian(sensitivity * math.sqrt(mechanism.releases) / mechanism.noise_multiplier)
    return Guarantee(epsilon, delta, curve, "Gaussian", words)


@lru_cache(maxsize=8)
def _poisson_curve(mechanism: Mechanism) -> Tradeoff:
    name = (
        f"{mechanism.steps} steps, noise multiplier {mechanism.noise_multiplier:.4g}, "
        f"sample rate {mechanism.sample_rate:.4g}"
    )
    return Composed.of(transcript.losses(mechanism.transcript), name=name)


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
