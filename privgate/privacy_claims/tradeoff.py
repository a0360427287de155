"""Trade-off curves: the best TPR that any membership test can have at an FPR, and everything that follows from it.

A curve is given by its hockey-stick divergence ``H(x) = sup over tests of TPR - e^x FPR`` for every real x, the larger
of both directions (member/non-member and the reverse), so that every bound holds for either guess.

References
----------
Kairouz, Oh, Viswanath (2015), section II; Dong, Roth, Su (2022), "Gaussian Differential Privacy", Propositions 2.5,
2.12 and Corollary 2.13.
"""

import math
from abc import ABC, abstractmethod
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privgate.errors import UsageError
from privgate.kernel.transcript import Loss
from privgate.privacy_claims.bounds import checked_delta, checked_epsilon, checked_prior, logit, sigmoid

Float = NDArray[np.float64]


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
