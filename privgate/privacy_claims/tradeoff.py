"""What a guarantee says about every membership adversary: bounds of pure ε, trade-off curves, earlier bounds."""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np

from privgate.arrays import Float
from privgate.errors import UsageError
from privgate.kernel.transcript import Loss

# What a pure ε-DP guarantee says about every membership adversary, and the earlier bounds beside it.
#
# Setting, for all of them: records enter the training set independently, the record in question with prior probability
# p in the adversary's eyes; training is ε-DP for add/remove adjacency; the adversary is any function of the released
# model with any knowledge of the other records. Fixed-size sampling needs the replace-one ε instead
# (``effective_guarantee``). Accuracies are fractions, larger is worse for privacy.
#
# ``p`` is the prior given everything the adversary knows about this record alone. Knowledge that ties the record to
# others ("both or neither") is not covered by any of these: k tied records need k·ε.
#
# Source: Thudi et al. (2022), "Bounding Membership Inference"; Yeom et al. (2020); Erlingsson et al.
# (2019); Sablayrolles et al. (2019).


def checked_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` in nats if it is finite and not negative, else raise ``UsageError``."""
    if not math.isfinite(epsilon) or epsilon < 0:
        raise UsageError(f"epsilon must be a finite number of nats, at least 0, not {epsilon}")
    return float(epsilon)


def checked_prior(prior: float) -> float:
    """Return ``prior`` if it lies strictly between 0 and 1, else raise ``UsageError``."""
    if not 0 < prior < 1:
        raise UsageError(f"the prior probability of membership must lie strictly between 0 and 1, not {prior}")
    return float(prior)


def checked_delta(delta: float) -> float:
    """Return ``delta`` if it lies in [0, 1), else raise ``UsageError``."""
    if not 0 <= delta < 1:
        raise UsageError(f"delta must lie in [0, 1), not {delta}")
    return float(delta)


def logit(p: float) -> float:
    """Return ln(p / (1 - p)), nats; infinite at 0 and 1."""
    if p <= 0:
        return -math.inf
    return math.inf if p >= 1 else math.log(p) - math.log1p(-p)


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


def positive_accuracy(epsilon: float, prior: float) -> tuple[float, float]:
    """Return the least and the largest possible Pr[member | the adversary says member].

    Parameters
    ----------
    epsilon : float
        Pure ε-DP, nats.
    prior : float in (0, 1)
        Probability of membership before the model was seen.

    Returns
    -------
    (low, high) : floats in (0, 1)
        ``logit(p) ± ε`` as probabilities. Attained by randomised response, so nothing smaller holds.

    References
    ----------
    Thudi et al. (2022), Theorem 1.

    Examples
    --------
    >>> [round(positive_accuracy(e, 0.5)[1], 4) for e in (1, 2)]
    [0.7311, 0.8808]
    """
    center = logit(checked_prior(prior))
    return sigmoid(center - checked_epsilon(epsilon)), sigmoid(center + epsilon)


def negative_accuracy(epsilon: float, prior: float) -> tuple[float, float]:
    """Return the least and the largest possible Pr[not a member | the adversary says so]; Thudi, Corollary 1."""
    return positive_accuracy(epsilon, 1 - checked_prior(prior))


def advantage(epsilon: float) -> float:
    """Return the largest TPR - FPR, tanh(ε/2); needs no prior, attained by randomised response."""
    return math.tanh(checked_epsilon(epsilon) / 2)


def accuracy(epsilon: float, prior: float) -> float:
    """Return the largest share of right guesses, max(σ(ε), p, 1-p).

    At p = ½ it equals the bound on positive accuracy; elsewhere "accuracy = max(positive, negative)" is wrong.
    """
    return max(sigmoid(checked_epsilon(epsilon)), checked_prior(prior), 1 - prior)


def erlingsson_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return Erlingsson et al.'s bound on accuracy at p = ½, 1 - e^-ε (1-δ) / 2."""
    return 1 - math.exp(-checked_epsilon(epsilon)) * (1 - checked_delta(delta)) / 2


def sablayrolles_positive_accuracy(epsilon: float, prior: float) -> float:
    """Return Sablayrolles et al.'s bound p + ε/4, at most 1; theirs assumes a form of the weight distribution.

    It holds without that assumption, because σ' ≤ ¼ makes it weaker than Theorem 1.
    """
    return min(1.0, checked_prior(prior) + checked_epsilon(epsilon) / 4)


def yeom_advantage(epsilon: float) -> float:
    """Return Yeom et al.'s bound on TPR - FPR, e^ε - 1, at most 1; says nothing from ε = ln 2 on."""
    return min(1.0, math.expm1(min(checked_epsilon(epsilon), 1.0)))


def yeom_accuracy(epsilon: float) -> float:
    """Return Yeom et al.'s bound on accuracy at p = ½, e^ε / 2, at most 1."""
    return (1 + yeom_advantage(epsilon)) / 2


def generalization_gap(epsilon: float, loss_bound: float) -> float:
    """Return the largest |generalization gap| of an ε-DP learner whose loss lies in [0, B]: B tanh(ε/2).

    Parameters
    ----------
    epsilon : float
        Add/remove ε for the gap between in-sample and out-of-sample records of the pool; replace-one ε for fresh draws.
    loss_bound : float
        B > 0, in units of the loss. A loss without a bound (cross-entropy) has no such statement.

    References
    ----------
    Thudi et al. (2022), Corollary 3; Yeom et al. (2020), Theorem 2.
    """
    if not (math.isfinite(loss_bound) and loss_bound > 0):
        raise UsageError(f"the loss must be bounded by a positive number, not {loss_bound}")
    return loss_bound * advantage(epsilon)


def pool_epsilon(epsilon: float, keep: float) -> float:
    """Return ε of membership in the *pool* when each record of it is kept for training with probability ``keep``.

    ``ln(1 + s(e^ε - 1))``; exact for randomised response. Membership in the *training set* keeps ε: there only the
    prior shrinks (``training_prior``). Either holds only while the selection stays secret. δ becomes s·δ.

    References
    ----------
    Thudi et al. (2022), section 4.2.
    """
    return math.log1p(_checked_keep(keep) * math.expm1(checked_epsilon(epsilon)))


def training_prior(prior: float, keep: float) -> float:
    """Return the prior of membership in the training set, given that of membership in the pool: p·s."""
    return checked_prior(prior) * _checked_keep(keep)


def _checked_keep(keep: float) -> float:
    if not 0 < keep <= 1:
        raise UsageError(f"the share of the pool that is kept must lie in (0, 1], not {keep}")
    return keep


def effective_guarantee(epsilon: float, delta: float, *, adjacency: str, inclusion: str) -> tuple[float, float]:
    """Return (ε, δ) as they enter the bounds, given how records came into the training set.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee.
    adjacency : {"add_remove", "replace_one"}
        What it is about.
    inclusion : {"independent", "fixed_size"}
        Each record independently, size not published; or a random set of a size that the adversary knows.

    Returns
    -------
    (epsilon, delta)
        Add/remove ε under fixed-size inclusion doubles: swapping one record is one removal and one addition.

    Raises
    ------
    UsageError
        Replace-one under independent inclusion: it says nothing about a record's presence or absence.
    """
    checked_epsilon(epsilon), checked_delta(delta)
    if adjacency not in ("add_remove", "replace_one") or inclusion not in ("independent", "fixed_size"):
        raise UsageError(
            f"adjacency {adjacency!r} with inclusion {inclusion!r} is unknown: adjacency is 'add_remove' or "
            "'replace_one', inclusion 'independent' or 'fixed_size'"
        )
    if (adjacency, inclusion) == ("replace_one", "independent"):
        raise UsageError(
            "a replace-one guarantee bounds nothing when records enter independently: it never compares a data set "
            "with the same one minus a record; use inclusion 'fixed_size' or an add/remove guarantee"
        )
    if adjacency == "add_remove" and inclusion == "fixed_size":
        return 2 * epsilon, min(delta * (1 + math.exp(epsilon)), 1.0) if delta else 0.0
    return epsilon, delta


# Trade-off curves: the best TPR that any membership test can have at an FPR, and everything that follows from it.
#
# A curve is given by its hockey-stick divergence ``H(x) = sup over tests of TPR - e^x FPR`` for every real x, the
# larger of both directions (member/non-member and the reverse), so that every bound holds for either guess.
#
# Source: Kairouz, Oh, Viswanath (2015), section II; Dong, Roth, Su (2022), "Gaussian Differential
# Privacy", Propositions 2.5, 2.12 and Corollary 2.13.


class Tradeoff(ABC):
    """What a mechanism lets any adversary achieve."""

    #: how it reads in a report
    name: str

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
        p = checked_prior(prior)
        return min(1.0, (1 - p) + p * self.hockey_stick(-logit(p)))

    def positive_accuracy(self, prior: float, fpr: float) -> float:
        """Return the largest Pr[member | fires] of a test whose FPR is at least ``fpr``.

        Without an FPR there is no bound below 1 unless δ = 0: rare tests may be certain.
        """
        p, f = checked_prior(prior), checked_fpr(fpr)
        u = self.tpr(f)
        return p * u / (p * u + (1 - p) * f)

    def negative_accuracy(self, prior: float, fnr: float) -> float:
        """Return the largest Pr[not a member | does not fire] of a test whose miss rate is at least ``fnr``."""
        return self.positive_accuracy(1 - checked_prior(prior), fnr)


def checked_fpr(fpr: float) -> float:
    """Return ``fpr`` if it lies in (0, 1], else raise ``UsageError``."""
    if not 0 < fpr <= 1:
        raise UsageError(f"a false-positive rate must lie in (0, 1], not {fpr}")
    return float(fpr)


@dataclass(frozen=True)
class EpsilonDelta(Tradeoff):
    """All mechanisms that are (ε, δ)-DP; the curve is attained by one of them.

    Parameters
    ----------
    epsilon : float
        Nats.
    delta : float in [0, 1)
    """

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        checked_epsilon(self.epsilon), checked_delta(self.delta)

    @property
    def name(self) -> str:  # type: ignore[override]  # read-only in the base
        """How it reads in a report."""
        return f"({self.epsilon:.4g}, {self.delta:.3g})-DP"

    def tpr(self, fpr: float) -> float:
        """Return min(e^ε f + δ, 1 - e^-ε (1-δ-f), 1)."""
        grow = math.exp(min(self.epsilon, 700.0))
        return max(0.0, min(grow * fpr + self.delta, 1 - (1 - self.delta - fpr) / grow, 1.0))

    def hockey_stick(self, x: float) -> float:
        """Return the supremum over the corners of the curve: (0, δ), (1-u, u) and (1-δ, 1)."""
        corner = (1 - self.delta) * sigmoid(-self.epsilon)
        ratio = math.exp(min(x, 700.0))
        return max(0.0, self.delta, 1 - corner - ratio * corner, 1 - ratio * (1 - self.delta))


@dataclass(frozen=True)
class Gaussian(Tradeoff):
    """μ-GDP: as hard to tell apart as N(0, 1) and N(μ, 1).

    Parameters
    ----------
    mu : float
        For one Gaussian mechanism sensitivity over standard deviation; √T/σ for T of them without sampling.
    """

    mu: float

    def __post_init__(self) -> None:
        if not (math.isfinite(self.mu) and self.mu >= 0):
            raise UsageError(f"mu must be a finite number, at least 0, not {self.mu}")

    @property
    def name(self) -> str:  # type: ignore[override]  # read-only in the base
        """How it reads in a report."""
        return f"{self.mu:.4g}-GDP"

    def tpr(self, fpr: float) -> float:
        """Return Φ(Φ⁻¹(f) + μ)."""
        from scipy.special import ndtr, ndtri

        return float(ndtr(ndtri(fpr) + self.mu))

    def hockey_stick(self, x: float) -> float:
        """Return δ(ε) at ε = x: Φ(-x/μ + μ/2) - e^x Φ(-x/μ - μ/2)."""
        from scipy.special import log_ndtr, ndtr

        if self.mu == 0:
            return max(0.0, -math.expm1(x)) if x < 0 else 0.0
        return max(0.0, float(ndtr(-x / self.mu + self.mu / 2) - np.exp(x + log_ndtr(-x / self.mu - self.mu / 2))))

    def epsilon(self, delta: float) -> float:
        """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``, to 1e-10, rounded up."""
        return least_epsilon(self, delta)


@dataclass(frozen=True, eq=False)
class Composed(Tradeoff):
    """The composed mechanism's own curve, from δ(ε) on a grid.

    Every line ``e^x f + δ(x)`` is a valid bound by itself, so a coarse grid loosens and never breaks it.

    Parameters
    ----------
    epsilons, deltas : float arrays of shape (G,)
        ε ≥ 0 ascending from 0, and an upper bound on δ(ε), the larger of both directions.
    name : str
    """

    epsilons: Float = field(repr=False)
    deltas: Float = field(repr=False)
    name: str = "composed mechanism"

    def __post_init__(self) -> None:
        if not len(self.epsilons) or self.epsilons[0] != 0 or (np.diff(self.epsilons) <= 0).any():
            raise ValueError("a composed curve needs ascending epsilons that begin with 0")

    @classmethod
    def of(cls, losses: list[Loss], *, name: str, largest: float = 60.0, points: int = 1200) -> "Composed":
        """Return the curve of composed privacy losses, one a direction."""
        grid = np.unique(np.concatenate([np.linspace(0, 6, points // 2), np.linspace(6, largest, points // 2)]))
        return cls(grid, np.array([max(loss.delta(e) for loss in losses) for e in grid.tolist()]), name)

    def tpr(self, fpr: float) -> float:
        """Return the least of all lines, e^ε f + δ(ε) and 1 - e^-ε (1 - δ(ε) - f)."""
        grow = np.exp(self.epsilons)
        upper = np.minimum(grow * fpr + self.deltas, 1 - (1 - self.deltas - fpr) / grow)
        return float(min(1.0, max(0.0, upper.min())))

    def hockey_stick(self, x: float) -> float:
        """Return δ(x), or for x < 0 its mirror 1 - e^x (1 - δ(-x)).

        δ is convex in e^ε, so the chord between two points of the grid lies above it.
        """
        delta = float(np.interp(math.exp(min(abs(x), 700.0)), np.exp(self.epsilons), self.deltas))
        return delta if x >= 0 else 1 - math.exp(x) * (1 - delta)


def least_epsilon(curve: Tradeoff, delta: float) -> float:
    """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``; infinite where none up to 700 nats is.

    δ(ε) is nonincreasing, so bisection is safe; the upper end is returned, which satisfies it.
    """
    checked_delta(delta)
    if curve.hockey_stick(0.0) <= delta:
        return 0.0
    low, high = 0.0, 1.0
    while curve.hockey_stick(high) > delta:
        low, high = high, 2 * high
        if high > 700:
            return math.inf
    while high - low > 1e-10 * max(1.0, high):
        middle = (low + high) / 2
        low, high = (low, middle) if curve.hockey_stick(middle) <= delta else (middle, high)
    return high
