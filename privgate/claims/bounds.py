"""What a guarantee lets any attack achieve: trade-off curves, every bound that follows, the largest ε for a goal.

Records enter the training set independently, and the adversary holds the attacked one to be a member with prior
probability p; he computes any function of the released model and knows the other records. k records that are members
together or not at all need k·ε. Guarantees are add/remove; ``convert_to_inclusion`` covers sets of fixed size.

A trade-off curve is known by its hockey-stick divergence ``H(x) = sup over tests of TPR - e^x FPR`` for every real x,
the larger of both directions, so that every bound holds for either guess.

Thudi et al. (2022); Kairouz, Oh, Viswanath (2015), section II; Dong, Roth, Su (2022), Propositions 2.5, 2.12 and
Corollary 2.13. Accuracies are fractions.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from privgate.arrays import Float
from privgate.errors import UsageError
from privgate.evidence import GuaranteeBound


def check(value: float, what: str, *, holds: bool) -> float:
    """Return ``value`` if what is said of it holds, else raise ``UsageError``."""
    if not holds:
        raise UsageError(f"{what}, not {value}")
    return float(value)


def check_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` in nats if it is finite and not negative, else raise ``UsageError``."""
    holds = math.isfinite(epsilon) and epsilon >= 0
    return check(epsilon, "epsilon must be a finite number of nats, at least 0", holds=holds)


def check_delta(delta: float) -> float:
    """Return ``delta`` if it lies in [0, 1), else raise ``UsageError``."""
    return check(delta, "delta must lie in [0, 1)", holds=0 <= delta < 1)


def check_prior(prior: float) -> float:
    """Return ``prior`` if it lies strictly between 0 and 1, else raise ``UsageError``."""
    return check(prior, "the prior probability of membership must lie strictly between 0 and 1", holds=0 < prior < 1)


def logit(p: float) -> float:
    """Return ln(p / (1 - p)), nats, of a p strictly between 0 and 1."""
    return math.log(p) - math.log1p(-p)


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


class Tradeoff(ABC):
    """What a mechanism lets any adversary achieve; reports print its ``str``."""

    @abstractmethod
    def hockey_stick(self, x: float) -> float:
        """Return sup over tests of TPR - e^x FPR, in [0, 1]; any real x, in nats."""

    @abstractmethod
    def tpr(self, fpr: float) -> float:
        """Return the largest true-positive rate at a false-positive rate of at most ``fpr``, a fraction."""

    def advantage(self) -> float:
        """Return the largest TPR - FPR: the total variation distance."""
        return self.hockey_stick(0.0)

    def accuracy(self, prior: float) -> float:
        """Return the largest share of right guesses when a record is a member with probability ``prior``."""
        p = check_prior(prior)
        return min(1.0, (1 - p) + p * self.hockey_stick(-logit(p)))

    def positive_accuracy(self, prior: float, fpr: float) -> float:
        """Return the largest Pr[member | fires] of a test whose FPR is at least ``fpr``.

        With δ > 0 a test that fires rarely enough may be certain. Called with ``1 - prior`` and the least miss rate,
        this returns the largest Pr[not a member | does not fire].
        """
        p, f = check_prior(prior), check(fpr, "a false-positive rate must lie in (0, 1]", holds=0 < fpr <= 1)
        t = self.tpr(f)
        return p * t / (p * t + (1 - p) * f)


@dataclass(frozen=True)
class EpsilonDelta(Tradeoff):
    """The worst curve of all (ε, δ)-DP mechanisms, ε in nats and δ in [0, 1); one mechanism attains it."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        check_epsilon(self.epsilon), check_delta(self.delta)

    def __str__(self) -> str:
        return f"({self.epsilon:.4g}, {self.delta:.3g})-DP"

    def tpr(self, fpr: float) -> float:
        """Return min(e^ε f + δ, 1 - e^-ε (1-δ-f), 1)."""
        factor = math.exp(min(self.epsilon, 700.0))
        return max(0.0, min(factor * fpr + self.delta, 1 - (1 - self.delta - fpr) / factor, 1.0))

    def hockey_stick(self, x: float) -> float:
        """Return the supremum over the corners (FPR, TPR) of the curve: (0, δ), (u, 1-u) and (1-δ, 1)."""
        u = (1 - self.delta) * sigmoid(-self.epsilon)
        ratio = math.exp(min(x, 700.0))
        return max(0.0, self.delta, 1 - u - ratio * u, 1 - ratio * (1 - self.delta))


@dataclass(frozen=True)
class Gaussian(Tradeoff):
    """μ-GDP: neighboring data sets are as hard to tell apart as N(0, 1) and N(μ, 1).

    One Gaussian mechanism has μ = sensitivity / standard deviation; T of them without sampling have √T times that.
    """

    mu: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mu) and self.mu > 0):
            raise UsageError(f"mu must be a finite number above 0, not {self.mu}")

    def __str__(self) -> str:
        return f"{self.mu:.4g}-GDP"

    def tpr(self, fpr: float) -> float:
        """Return Φ(Φ⁻¹(f) + μ)."""
        from scipy.special import ndtr, ndtri

        return float(ndtr(ndtri(fpr) + self.mu))

    def hockey_stick(self, x: float) -> float:
        """Return δ(ε) at ε = x: Φ(-x/μ + μ/2) - e^x Φ(-x/μ - μ/2)."""
        from scipy.special import log_ndtr, ndtr

        return max(0.0, float(ndtr(-x / self.mu + self.mu / 2) - np.exp(x + log_ndtr(-x / self.mu - self.mu / 2))))

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``, rounded up by at most 1e-10; infinite above 700 nats."""
        check_delta(delta)
        if self.hockey_stick(0.0) <= delta:
            return 0.0
        low, high = 0.0, 1.0
        while self.hockey_stick(high) > delta:
            low, high = high, 2 * high
            if high > 700:
                return math.inf
        while high - low > 1e-10 * max(1.0, high):
            middle = (low + high) / 2
            low, high = (low, middle) if self.hockey_stick(middle) <= delta else (middle, high)
        return high


@dataclass(frozen=True, eq=False)
class Composed(Tradeoff):
    """The curve of a composed mechanism, from δ(ε) on a grid: ε ascends from 0, δ is the larger of both directions.

    Every point of the grid gives a valid bound ``e^ε f + δ(ε)`` by itself: a coarse grid only makes the curve looser.
    """

    epsilons: Float = field(repr=False)
    deltas: Float = field(repr=False)
    name: str

    def __str__(self) -> str:
        return self.name

    def tpr(self, fpr: float) -> float:
        """Return the least of e^ε f + δ(ε) and 1 - e^-ε (1 - δ(ε) - f) over the grid."""
        factors = np.exp(self.epsilons)
        limits = np.minimum(factors * fpr + self.deltas, 1 - (1 - self.deltas - fpr) / factors)
        return float(min(1.0, max(0.0, limits.min())))

    def hockey_stick(self, x: float) -> float:
        """Return δ(x), for x < 0 by the symmetry 1 - e^x (1 - δ(-x)).

        δ is convex in e^ε, so linear interpolation between two points of the grid never understates it.
        """
        delta = float(np.interp(math.exp(min(abs(x), 700.0)), np.exp(self.epsilons), self.deltas))
        return delta if x >= 0 else 1 - math.exp(x) * (1 - delta)


# Bounds that follow from ε alone.


def positive_accuracy(epsilon: float, prior: float) -> float:
    """Return the largest Pr[member | the adversary says member] under pure ε-DP: σ(logit(p) + ε); Thudi, Theorem 1.

    Attained. Of ``1 - prior`` it bounds Pr[not a member | the adversary says non-member] (Corollary 1).
    """
    return sigmoid(logit(check_prior(prior)) + check_epsilon(epsilon))


def convert_to_inclusion(epsilon: float, delta: float, *, adjacency: str, inclusion: str) -> tuple[float, float]:
    """Return the (ε, δ) to put into the bounds when records enter training by ``inclusion``, a key of ``INCLUSION``.

    With fixed size, add/remove ε doubles. ``UsageError``: replace-one and independent inclusion say nothing together.
    """
    check_epsilon(epsilon), check_delta(delta)
    if (adjacency, inclusion) == ("replace_one", "independent"):
        raise UsageError(
            "a replace-one guarantee bounds nothing when records enter independently: it never compares a data set "
            "with the same one minus a record; use inclusion 'fixed_size' or an add/remove guarantee"
        )
    if adjacency == "add_remove" and inclusion == "fixed_size":
        return 2 * epsilon, min(delta * (1 + math.exp(epsilon)), 1.0) if delta else 0.0
    return epsilon, delta


# All bounds of one guarantee in one list, each with its assumptions in words.

INCLUSION = {
    "independent": "records enter the training set independently of each other, and its exact size is not published",
    "fixed_size": "the training set is a random set of known size",
}
#: how two compared data sets differ, in words; "such steps" are one addition and one removal
_DIFFERENCES = {
    ("add_remove", "independent"): "added or removed",
    ("add_remove", "fixed_size"): "added or removed; a known size means two such steps, so epsilon counts twice",
    ("replace_one", "fixed_size"): "replaced",
}


def list_bounds(
    epsilon: float,
    delta: float,
    prior: float,
    *,
    adjacency: str,
    inclusion: str,
    fprs: Sequence[float] = (),
    curve: Tradeoff | None = None,
) -> list[GuaranteeBound]:
    """Return every bound that follows from the guarantee (ε, δ) as stated, without what attacks achieved.

    ``prior`` is of membership, before the adversary sees the model; at each of ``fprs`` TPR, positive and negative
    accuracy are bounded. ``curve`` is the mechanism's own, which counts unless add/remove is converted to fixed size.
    """
    epsilon, delta = convert_to_inclusion(epsilon, delta, adjacency=adjacency, inclusion=inclusion)
    common_words = (
        "any adversary with any knowledge of the other records",
        INCLUSION[inclusion],
        f"the guarantee compares data sets that differ in one record {_DIFFERENCES[adjacency, inclusion]}",
    )
    rows: list[GuaranteeBound] = []

    def add(name: str, bound: float, extra: str = "", *, p: float | None = prior, fpr: float | None = None) -> None:
        words = (*common_words, extra) if extra else common_words
        rows.append(
            GuaranteeBound(name=name, epsilon=epsilon, delta=delta, prior=p, fpr=fpr, bound=bound, assumptions=words)
        )

    if not delta:
        add("positive accuracy (Thudi, Theorem 1)", positive_accuracy(epsilon, prior))
        add("negative accuracy (Thudi, Corollary 1)", positive_accuracy(epsilon, 1 - prior))
    worst_curve = EpsilonDelta(epsilon, delta)
    add("accuracy", worst_curve.accuracy(prior))
    add("advantage, TPR - FPR", worst_curve.advantage(), p=None)
    curves: list[tuple[Tradeoff, str]] = [(worst_curve, "")]
    if curve is not None and (adjacency, inclusion) != ("add_remove", "fixed_size"):
        curves.append((curve, ", exact curve"))
    for source, suffix in curves:
        if source is not worst_curve:
            add(f"accuracy{suffix}", source.accuracy(prior), str(source))
            add(f"advantage{suffix}", source.advantage(), str(source), p=None)
        for f in fprs:
            add(f"TPR at FPR {f:g}{suffix}", source.tpr(f), p=None, fpr=f)
            accusing = f"tests that wrongly accuse at least {f:g} of candidates; rarer tests may be more certain"
            add(f"positive accuracy at FPR {f:g}{suffix}", source.positive_accuracy(prior, f), accusing, fpr=f)
            missing, bound = f"tests that miss at least {f:g} of members", source.positive_accuracy(1 - prior, f)
            add(f"negative accuracy at miss rate {f:g}{suffix}", bound, missing, fpr=f)
    if not delta:
        losses = "loss within [0, 1]; between records of the pool in and out of the training set"
        add("generalization gap (Thudi, Corollary 3)", math.tanh(epsilon / 2), losses, p=None)
    return rows


# From a goal to the largest ε that achieves it.


def epsilon_for_accuracy(largest: float, prior: float, *, delta: float) -> float:
    """Return the largest ε at which (ε, δ)-DP lets no adversary be right more often than ``largest`` = a.

    It solves ``(e^ε + δ)/(1 + e^ε) = a``. ``UsageError``: at ε = 0 a constant answer is right more often than a.
    """
    p = check_prior(prior)
    base = max(1 - p + p * check_delta(delta), p + (1 - p) * delta)
    if not base <= largest < 1:
        raise UsageError(
            f"accuracy {largest:g} cannot be promised at prior {p:g}: guessing without a model already reaches {base:g}"
        )
    return math.log(max((largest - delta) / (1 - largest), 1.0))
