"""Trade-off curves of a guarantee, and every bound that follows from one, with its hypotheses in words."""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privgate.arrays import Float
from privgate.claims import bounds
from privgate.claims.bounds import checked_delta, checked_epsilon, checked_fpr, checked_prior, logit, sigmoid
from privgate.errors import UsageError

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


# Every bound of one guarantee, side by side, each with its hypotheses in words.

ANY_ADVERSARY = "any adversary with any knowledge of the other records"
_INCLUSION = {
    "independent": "records enter the training set independently of each other, and its exact size is not published",
    "fixed_size": "the training set is a random set of known size",
}


def bounds_table(
    epsilon: float,
    delta: float,
    prior: float,
    *,
    adjacency: str = "add_remove",
    inclusion: str = "independent",
    fprs: Sequence[float] = (),
    curve: Tradeoff | None = None,
    loss_bound: float = 1.0,
    keep: float | None = None,
) -> list[dict[str, Any]]:
    """Return one row a bound: name, epsilon, delta, prior, bound, fpr, measured (None), assumptions.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee as stated.
    prior : float in (0, 1)
        Probability of membership in the adversary's eyes before the model was seen.
    adjacency : {"add_remove", "replace_one"}
    inclusion : {"independent", "fixed_size"}
        How records came into the training set; see ``bounds.effective_guarantee``.
    fprs : sequence of float
        For TPR and, with δ > 0, for positive and negative accuracy, which have no bound without one.
    curve : Tradeoff, optional
        The mechanism's own curve, for add/remove and independent inclusion or replace-one and fixed size alike.
    loss_bound : float
        B of the generalization gap.
    keep : float, optional
        Share of the pool that training kept, in secret: adds the rows of both secrets.
    """
    e, d = bounds.effective_guarantee(epsilon, delta, adjacency=adjacency, inclusion=inclusion)
    words = [ANY_ADVERSARY, _INCLUSION[inclusion], _adjacency(adjacency, inclusion)]

    def row(name: str, bound: float, *, fpr: float | None = None, extra: str = "", p: float | None = prior) -> None:
        rows.append(
            {
                "name": name,
                "epsilon": e,
                "delta": d,
                "prior": p,
                "fpr": fpr,
                "bound": bound,
                "measured": None,
                "assumptions": [*words, *([extra] if extra else [])],
            }
        )

    rows: list[dict[str, Any]] = []
    known = EpsilonDelta(e, d)
    if d == 0:
        row("positive accuracy (Thudi, Theorem 1)", bounds.positive_accuracy(e, prior)[1])
        row("negative accuracy (Thudi, Corollary 1)", bounds.negative_accuracy(e, prior)[1])
    row("accuracy", known.accuracy(prior))
    row("advantage, TPR - FPR", known.advantage(), p=None)
    usable = None if inclusion == "fixed_size" and adjacency == "add_remove" else curve
    for source, which in ((known, ""), (usable, ", exact curve")):
        if source is None:
            continue
        if which:
            row(f"accuracy{which}", source.accuracy(prior), extra=source.name)
            row(f"advantage{which}", source.advantage(), extra=source.name, p=None)
        for f in fprs:
            row(f"TPR at FPR {f:g}{which}", source.tpr(f), fpr=f, p=None)
            row(
                f"positive accuracy at FPR {f:g}{which}",
                source.positive_accuracy(prior, f),
                fpr=f,
                extra=f"tests that wrongly accuse at least {f:g} of candidates; rarer tests may be more certain",
            )
            row(
                f"negative accuracy at miss rate {f:g}{which}",
                source.negative_accuracy(prior, f),
                fpr=f,
                extra=f"tests that miss at least {f:g} of members",
            )
    _earlier(row, e, d, prior)
    if d == 0:
        row(
            "generalization gap (Thudi, Corollary 3)",
            bounds.generalization_gap(e, loss_bound),
            extra=f"loss within [0, {loss_bound:g}]; between records of the pool in and out of the training set",
            p=None,
        )
    if keep is not None:
        _both_secrets(row, e, d, prior, keep)
    return rows


def _earlier(row: Any, e: float, d: float, prior: float) -> None:
    half = "stated for prior 1/2"
    row("accuracy, Erlingsson et al. 2019", bounds.erlingsson_accuracy(e, d), extra=half, p=0.5)
    if d == 0:
        row("positive accuracy, Sablayrolles et al. 2019", bounds.sablayrolles_positive_accuracy(e, prior))
        row("accuracy, Yeom et al. 2020", bounds.yeom_accuracy(e), extra=half, p=0.5)


def _both_secrets(row: Any, e: float, d: float, prior: float, keep: float) -> None:
    secret = f"each record of the pool is kept with probability {keep:g}, and which ones stays secret"
    if d:
        pool = EpsilonDelta(bounds.pool_epsilon(e, keep), keep * d)
        row("accuracy, membership in the pool", pool.accuracy(prior), extra=secret)
        own = bounds.training_prior(prior, keep)
        row("accuracy, membership in the training set", EpsilonDelta(e, d).accuracy(own), extra=secret, p=own)
        return
    own = bounds.training_prior(prior, keep)
    row(
        "positive accuracy, membership in the training set",
        bounds.positive_accuracy(e, own)[1],
        extra=f"{secret}; prior {prior:g} of being in the pool",
        p=own,
    )
    pooled = bounds.pool_epsilon(e, keep)
    row(
        "positive accuracy, membership in the pool",
        bounds.positive_accuracy(pooled, prior)[1],
        extra=f"{secret}; epsilon is ln(1 + s(e^eps - 1)) = {pooled:.4g}",
    )


def _adjacency(adjacency: str, inclusion: str) -> str:
    if adjacency == "replace_one":
        return "the guarantee compares data sets that differ in one record replaced"
    if inclusion == "fixed_size":
        return (
            "the guarantee compares data sets that differ in one record added or removed; a known size means two such "
            "steps, so epsilon counts twice"
        )
    return "the guarantee compares data sets that differ in one record added or removed"
