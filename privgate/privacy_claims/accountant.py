"""ε recomputed from what a mechanism does, by the kernel; and what sums of releases and groups of records cost."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field, replace
from functools import cache, lru_cache

import numpy as np

from privgate.errors import MeasurementError, UsageError
from privgate.kernel import Refused, transcript
from privgate.privacy_claims.tradeoff import (
    Composed,
    EpsilonDelta,
    Gaussian,
    Tradeoff,
    checked_delta,
    checked_epsilon,
    checked_fpr,
    checked_prior,
    logit,
)

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
    scales : tuple of (steps, numbers, ratio, moved)
        Steps whose noise has another deviation for the neighbour, and how far, in deviations, the sum of all moves.
    """

    noise_multiplier: float
    sample_rate: float
    steps: int
    sampling: str
    adjacency: str
    records: int = 0
    copies: int = 1
    passes: int = 0
    scales: tuple[tuple[int, int, float, float], ...] = ()

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
    if mechanism.scales and mechanism.noise_multiplier > 0:
        return _rescaled(mechanism, delta)
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


def _rescaled(mechanism: Mechanism, delta: float) -> Guarantee:
    """Return the guarantee where who leaves also changes the scale of the noise, which no sampling amplifies.

    In between lies the training with the neighbour's scale and the record: P <= e^a R + x and R <= e^b Q + y make
    P <= e^(a + b) Q + x + e^a y, in both directions. Rényi divergences may not be added at one order.
    """
    smaller = mechanism.noise_multiplier * min(1.0, *(ratio for _, _, ratio, _ in mechanism.scales))
    own = recompute(replace(mechanism, scales=(), noise_multiplier=smaller), delta / 2)
    other = scale_epsilon(mechanism.scales, math.exp(-own.epsilon) * delta / 2)
    words = (*own.assumptions, f"the scale of the noise tells whether one more was there: {other:.4g} nats of epsilon")
    epsilon = own.epsilon + other
    curve = EpsilonDelta(epsilon, delta) if math.isfinite(epsilon) else None
    return Guarantee(epsilon, delta, curve, f"{own.accountant}, RDP", words)


def scale_epsilon(scales: Iterable[tuple[int, int, float, float]], delta: float) -> float:
    """Return ε at ``delta`` of Gaussian noise whose deviation, and mean, neighbours change; both directions, nats.

    Parameters
    ----------
    scales : iterable of (steps, numbers, ratio, moved)
        ``moved`` in deviations of the first.
    delta : float

    References
    ----------
    Gil, Alajaji and Linder (2013), table 2; Canonne, Kamath and Steinke (2020), Proposition 12.
    """
    held = list(scales)
    if delta <= 0:
        return math.inf

    def spent(order: float, way: int) -> float:
        renyi = sum(s * gaussian_renyi(order, n, r**way, m if way > 0 else m / r) for s, n, r, m in held)
        return renyi + math.log1p(-1 / order) - math.log(delta * order) / (order - 1)

    orders = 1 + np.geomspace(1e-4, 1e5, 1000)
    return max(0.0, *(min(spent(float(order), way) for order in orders) for way in (1, -1)))


def gaussian_renyi(order: float, numbers: int, ratio: float, moved: float) -> float:
    """Return the Rényi divergence from normal numbers of deviation ``ratio`` to some of 1, their mean ``moved`` off."""
    spread = order * ratio**2 + 1 - order
    if spread <= 0:
        return math.inf
    shape = math.log(ratio) + (2 * math.log(ratio) - math.log(spread)) / (2 * (order - 1))
    return order * moved**2 / (2 * spread) + numbers * shape


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


# How many records may be deleted before the model has to be trained again.
#
# ρ-MI unlearning (Thudi et al., Definition 2): given the model, the records asked to be deleted were with probability
# at least ρ not in the training set, so their owners have plausible deniability and nothing needs to be retrained.
#
# The published proof multiplies posteriors "because records are independent"; given the model they are not (a 4-record
# mechanism: joint and product differ by 0.163). The bound stands by the chain rule, each factor being at least the
# Corollary 1 bound. It needs: independent inclusion with a size that is not published, add/remove ε (or the fixed-size
# form with replace-one ε), and requests that depend neither on membership nor on the model.


@dataclass(frozen=True, slots=True)
class Capacity:
    """A number of deletion requests and what it rests on.

    Parameters
    ----------
    records : int
        How many requests the model covers together, not each time anew; larger is better.
    rho : float
        Least probability that none of them was in the training set.
    prior : float
        Largest inclusion probability among them.
    epsilon, delta : float
        The guarantee.
    failure : float
        δ > 0 only: probability, over the model given that none was used, with which the statement may not hold.
    """

    records: int
    rho: float
    prior: float
    epsilon: float
    delta: float = 0.0
    failure: float = 0.0

    @property
    def sentence(self) -> str:
        """What a compliance officer can say."""
        but = f", except with probability {self.failure:g} over the training's randomness" if self.failure else ""
        who = f"each by somebody used with probability at most {self.prior:g}"
        return f"at ρ = {self.rho:g} this model covers {self.records:,} deletion requests, {who}{but}"


def checked_rho(rho: float) -> float:
    """Return ``rho`` if it lies strictly between 0 and 1, else raise ``UsageError``."""
    if not 0 < rho < 1:
        raise UsageError(f"rho, the probability of not having been used, must lie strictly between 0 and 1, not {rho}")
    return float(rho)


def deletion_capacity(
    epsilon: float, prior: float, rho: float, *, delta: float = 0.0, failure: float = 0.001
) -> Capacity:
    """Return how many records may be deleted before retraining, independent inclusion.

    Parameters
    ----------
    epsilon : float
        Add/remove ε, nats.
    prior : float in (0, 1)
        Largest inclusion probability among the records.
    rho : float in (0, 1)
    delta : float
        With δ > 0 no statement holds for every model; ``failure`` is the probability of a model for which it may not.
    failure : float in (0, 1)
        Used for δ > 0 only.

    Returns
    -------
    Capacity
        ``m = floor(ln(1/ρ) / ln(1 + e^ε' p/(1-p)))``; ε' = ε for δ = 0.

    Notes
    -----
    For δ > 0 let B be the models at which some posterior odds exceed e^ε' times the prior odds. Each of the m factors
    has Pr[B | record out, the earlier ones out] ≤ e^-ε' δ/(1 - e^(ε-ε')); conditioning on the later ones being out
    divides by at most (1-p)^m ≥ ρ. The sum stays below ``failure`` for ``e^ε' = e^ε + m δ/(ρ · failure)``.

    References
    ----------
    Thudi et al. (2022), Corollary 2, proof corrected by the chain rule.

    Examples
    --------
    >>> deletion_capacity(1.0, 0.001, 0.9).records, deletion_capacity(1.0, 0.001, 0.5).records
    (38, 255)
    """
    checked_epsilon(epsilon), checked_delta(delta)
    odds = checked_prior(prior) / (1 - prior)
    budget = -math.log(checked_rho(rho))
    if delta and not 0 < failure < 1:
        raise UsageError(f"the failure probability must lie strictly between 0 and 1, not {failure}")

    def cost(m: int) -> float:
        extra = m * delta / (rho * failure) if delta else 0.0
        # a value computed as exactly the budget must not fail by rounding in the last place
        return m * math.log1p((math.exp(epsilon) + extra) * odds) * (1 - 1e-13)

    low, high = 0, 1
    while cost(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return Capacity(low, rho, prior, epsilon, delta, failure if delta else 0.0)


def group_capacity(epsilon: float, allowed: float) -> int:
    """Return how many deletions group privacy covers under Sekhari et al.'s (ε, δ)-unlearning, pure DP.

    An ε-DP model is (mε)-indistinguishable from one trained without m records, so ``floor(allowed / ε)`` requests need
    no update; constants are explicit here, which the published rate does not have.
    """
    if checked_epsilon(epsilon) == 0:
        raise UsageError("epsilon 0 does not depend on the data; its capacity has no limit")
    return math.floor(checked_epsilon(allowed) / epsilon * (1 + 1e-12))


# From a goal to the ε, and to the noise, that achieve it.


def epsilon_for_capacity(
    records: int, rho: float, prior: float, *, delta: float = 0.0, failure: float = 0.001
) -> float:
    """Return the largest ε at which ``records`` deletions are covered at ``rho``; inverse of ``deletion_capacity``.

    Raises
    ------
    UsageError
        Even ε = 0 does not cover them: then fewer of the pool must be used (a smaller ``prior``).
    """
    if records < 1:
        raise UsageError(f"the number of deletion requests must be at least 1, not {records}")
    odds = checked_prior(prior) / (1 - prior)
    growth = math.expm1(-math.log(checked_rho(rho)) / records) / odds
    if checked_delta(delta):
        growth -= records * delta / (rho * failure)
    return _log_growth(growth, f"{records} deletions at rho {rho:g} with inclusion probability {prior:g}")


def epsilon_for_accuracy(largest: float, prior: float = 0.5, *, delta: float = 0.0) -> float:
    """Return the largest ε at which no adversary is right more often than ``largest``, (ε, δ)-DP.

    ``(e^ε + δ)/(1 + e^ε) ≤ a``, and the base rates max(1-p+pδ, p+(1-p)δ) must not exceed a already.
    """
    p = checked_prior(prior)
    base = max(1 - p + p * checked_delta(delta), p + (1 - p) * delta)
    if not base <= largest < 1:
        raise UsageError(
            f"accuracy {largest:g} cannot be promised at prior {p:g}: guessing without a model already reaches {base:g}"
        )
    return _log_growth((largest - delta) / (1 - largest), f"accuracy {largest:g}")


def epsilon_for_positive_accuracy(
    largest: float, prior: float, *, delta: float = 0.0, fpr: float | None = None
) -> float:
    """Return the largest ε at which Pr[member | fires] ≤ ``largest``; with δ > 0 only for tests of FPR ≥ ``fpr``."""
    p = checked_prior(prior)
    if not p < largest < 1:
        raise UsageError(f"a positive accuracy of {largest:g} must lie between the prior {p:g} and 1")
    if fpr is None:
        if checked_delta(delta):
            raise UsageError(
                "with delta above 0, positive accuracy is unbounded without a false-positive rate; pass one"
            )
        return logit(largest) - logit(p)
    f = checked_fpr(fpr)
    allowed = f * (1 - p) * largest / (p * (1 - largest))
    if allowed >= 1:
        raise UsageError(f"at FPR {f:g} and prior {p:g} no test exceeds {largest:g}, whatever epsilon is")
    growth = max((allowed - delta) / f, (1 - delta - f) / (1 - allowed))
    return _log_growth(growth, f"positive accuracy {largest:g} at FPR {f:g}")


def noise_multiplier(
    epsilon: float, delta: float, *, sample_rate: float, steps: int, sampling: str, adjacency: str, records: int = 0
) -> float:
    """Return the least noise multiplier whose recomputed ε at ``delta`` is at most ``epsilon``, rounded up to 1e-4.

    Raises
    ------
    MeasurementError
        No multiplier up to 10^5 is enough.
    """

    @cache  # each value accounts for the whole training anew
    def beyond(sigma: float) -> float:
        spent = epsilon_of(Mechanism(sigma, sample_rate, steps, sampling, adjacency, records), delta)
        return math.log(min(max(spent, 1e-12), 1e12) / epsilon)

    low, high = 0.0, 1.0
    while beyond(high) > 0:
        low, high = high, 2 * high
        if high > 1e5:
            raise MeasurementError(f"no noise multiplier up to 100000 gives epsilon {epsilon:g} at delta {delta:g}")
    if low == 0.0:
        # very little noise makes the accountant slow, and nobody asks for it
        low = 0.2
        if beyond(low) <= 0:
            return low
    from scipy.optimize import brentq

    found: int = math.ceil(brentq(beyond, low, high, xtol=2e-5) * 1e4)
    while beyond(found / 1e4) > 0:
        found += 1
    return found / 1e4


def _log_growth(growth: float, goal: str) -> float:
    if growth < 1:
        raise UsageError(f"{goal} cannot be promised by any epsilon, not even 0; use a smaller share of the pool")
    return math.log(growth)
