"""What a guarantee lets any attack achieve: trade-off curves, every bound that follows, the largest ε for a goal.

Setting, for all of them: records enter the training set independently, the record in question with prior probability
p in the adversary's eyes; training is private for add/remove adjacency; the adversary is any function of the released
model with any knowledge of the other records. Fixed-size sampling needs the replace-one ε instead
(``effective_guarantee``). Knowledge that ties the record to others ("both or neither") is not covered: k tied records
need k·ε. Accuracies are fractions, larger is worse for privacy.

A curve is given by its hockey-stick divergence ``H(x) = sup over tests of TPR - e^x FPR`` for every real x, the
larger of both directions (member/non-member and the reverse), so that every bound holds for either guess.

References
----------
Thudi et al. (2022), "Bounding Membership Inference"; Yeom et al. (2020); Erlingsson et al. (2019); Sablayrolles et al.
(2019). Kairouz, Oh, Viswanath (2015), section II; Dong, Roth, Su (2022), "Gaussian Differential Privacy", Propositions
2.5, 2.12 and Corollary 2.13.
"""

import math
from abc import ABC, abstractmethod
from collections.abc import Sequence
from dataclasses import dataclass, field

import numpy as np

from privgate.arrays import Float
from privgate.errors import UsageError
from privgate.evidence import GuaranteeBound


def checked_epsilon(epsilon: float) -> float:
    """Return ``epsilon`` in nats if it is finite and not negative, else raise ``UsageError``."""
    if not (math.isfinite(epsilon) and epsilon >= 0):
        raise UsageError(f"epsilon must be a finite number of nats, at least 0, not {epsilon}")
    return float(epsilon)


def checked_delta(delta: float) -> float:
    """Return ``delta`` if it lies in [0, 1), else raise ``UsageError``."""
    if not 0 <= delta < 1:
        raise UsageError(f"delta must lie in [0, 1), not {delta}")
    return float(delta)


def checked_prior(prior: float) -> float:
    """Return ``prior`` if it lies strictly between 0 and 1, else raise ``UsageError``."""
    if not 0 < prior < 1:
        raise UsageError(f"the prior probability of membership must lie strictly between 0 and 1, not {prior}")
    return float(prior)


def _checked_fpr(fpr: float) -> float:
    if not 0 < fpr <= 1:
        raise UsageError(f"a false-positive rate must lie in (0, 1], not {fpr}")
    return float(fpr)


def logit(p: float) -> float:
    """Return ln(p / (1 - p)), nats, of a p strictly between 0 and 1."""
    return math.log(p) - math.log1p(-p)


def sigmoid(x: float) -> float:
    """Return 1 / (1 + e^-x) without overflow."""
    return 1 / (1 + math.exp(-x)) if x >= 0 else math.exp(x) / (1 + math.exp(x))


class Tradeoff(ABC):
    """What a mechanism lets any adversary achieve; as text, how it reads in a report."""

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

        Without an FPR there is no bound below 1 unless δ = 0: rare tests may be certain. Of Pr[not a member | does not
        fire] it is the same with 1 - prior and the miss rate.
        """
        p, f = checked_prior(prior), _checked_fpr(fpr)
        u = self.tpr(f)
        return p * u / (p * u + (1 - p) * f)


@dataclass(frozen=True)
class EpsilonDelta(Tradeoff):
    """All mechanisms that are (ε, δ)-DP, ε in nats and δ in [0, 1); the curve is attained by one of them."""

    epsilon: float
    delta: float = 0.0

    def __post_init__(self) -> None:
        checked_epsilon(self.epsilon), checked_delta(self.delta)

    def __str__(self) -> str:
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

    Of one Gaussian mechanism μ is sensitivity over standard deviation; of T without sampling, √T/σ.
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
        """Return the least ε ≥ 0 with δ(ε) ≤ ``delta``, to 1e-10, rounded up; infinite where none up to 700 nats is."""
        checked_delta(delta)
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
    """The composed mechanism's own curve, from δ(ε) on a grid: ε ascending from 0, δ the larger of both directions.

    Every line ``e^x f + δ(x)`` is a valid bound by itself, so a coarse grid loosens and never breaks it.
    """

    epsilons: Float = field(repr=False)
    deltas: Float = field(repr=False)
    name: str

    def __str__(self) -> str:
        return self.name

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


# Bounds of pure ε, and the earlier ones beside them.


def positive_accuracy(epsilon: float, prior: float) -> float:
    """Return the largest Pr[member | the adversary says member] under pure ε-DP: σ(logit(p) + ε); Thudi, Theorem 1.

    Attained by randomised response, so nothing smaller holds. Of Pr[not a member | the adversary says so] it is the
    same with 1 - prior (Corollary 1).

    Examples
    --------
    >>> [round(positive_accuracy(e, 0.5), 4) for e in (1, 2)]
    [0.7311, 0.8808]
    """
    return sigmoid(logit(checked_prior(prior)) + checked_epsilon(epsilon))


def erlingsson_accuracy(epsilon: float, delta: float = 0.0) -> float:
    """Return Erlingsson et al.'s bound on accuracy at p = ½, 1 - e^-ε (1-δ) / 2."""
    return 1 - math.exp(-checked_epsilon(epsilon)) * (1 - checked_delta(delta)) / 2


def sablayrolles_positive_accuracy(epsilon: float, prior: float) -> float:
    """Return Sablayrolles et al.'s bound p + ε/4, at most 1; theirs assumes a form of the weight distribution.

    It holds without that assumption, because σ' ≤ ¼ makes it weaker than Theorem 1.
    """
    return min(1.0, checked_prior(prior) + checked_epsilon(epsilon) / 4)


def yeom_accuracy(epsilon: float) -> float:
    """Return Yeom et al.'s bound on accuracy at p = ½, e^ε / 2, at most 1: it says nothing from ε = ln 2 on."""
    return (1 + min(1.0, math.expm1(min(checked_epsilon(epsilon), 1.0)))) / 2


def generalization_gap(epsilon: float, loss_bound: float) -> float:
    """Return the largest |generalization gap| of an ε-DP learner with loss in [0, B], B tanh(ε/2); Thudi, Corollary 3.

    Add/remove ε is for the gap between in-sample and out-of-sample records of the pool, replace-one ε for fresh draws.
    """
    if not (math.isfinite(loss_bound) and loss_bound > 0):
        raise UsageError(f"the loss must be bounded by a positive number, not {loss_bound}")
    return loss_bound * math.tanh(checked_epsilon(epsilon) / 2)


def pool_epsilon(epsilon: float, keep: float) -> float:
    """Return ε of membership in the *pool* when each record of it is kept for training with probability ``keep``.

    ``ln(1 + s(e^ε - 1))`` (Thudi, section 4.2); exact for randomised response; δ becomes s·δ. Membership in the
    *training set* keeps ε: there only the prior p shrinks, to p·s. Either holds only while the selection stays secret.
    """
    if not 0 < keep <= 1:
        raise UsageError(f"the share of the pool that is kept must lie in (0, 1], not {keep}")
    return math.log1p(keep * math.expm1(checked_epsilon(epsilon)))


def effective_guarantee(epsilon: float, delta: float, *, adjacency: str, inclusion: str) -> tuple[float, float]:
    """Return (ε, δ) as they enter the bounds, given how records came into the training set.

    Add/remove ε under fixed-size inclusion doubles: swapping one record is one removal and one addition. Replace-one
    under independent inclusion is a ``UsageError``: it says nothing about a record's presence or absence.

    Parameters
    ----------
    epsilon, delta : float
    adjacency : {"add_remove", "replace_one"}
        What the guarantee is about.
    inclusion : {"independent", "fixed_size"}
        Each record independently, size not published; or a random set of a size that the adversary knows.
    """
    checked_epsilon(epsilon), checked_delta(delta)
    if (adjacency, inclusion) == ("replace_one", "independent"):
        raise UsageError(
            "a replace-one guarantee bounds nothing when records enter independently: it never compares a data set "
            "with the same one minus a record; use inclusion 'fixed_size' or an add/remove guarantee"
        )
    if adjacency == "add_remove" and inclusion == "fixed_size":
        return 2 * epsilon, min(delta * (1 + math.exp(epsilon)), 1.0) if delta else 0.0
    return epsilon, delta


# Every bound of one guarantee, side by side, each with its hypotheses in words.

INCLUSION = {
    "independent": "records enter the training set independently of each other, and its exact size is not published",
    "fixed_size": "the training set is a random set of known size",
}
_COMPARED = {
    ("add_remove", "independent"): "added or removed",
    ("add_remove", "fixed_size"): "added or removed; a known size means two such steps, so epsilon counts twice",
    ("replace_one", "fixed_size"): "replaced",
}


def bounds_table(
    epsilon: float,
    delta: float,
    prior: float,
    *,
    adjacency: str,
    inclusion: str,
    fprs: Sequence[float] = (),
    curve: Tradeoff | None = None,
    loss_bound: float = 1.0,
    keep: float | None = None,
) -> list[GuaranteeBound]:
    """Return one row a bound, nothing measured beside it.

    Parameters
    ----------
    epsilon, delta : float
        The guarantee as stated.
    prior : float in (0, 1)
        Probability of membership in the adversary's eyes before the model was seen.
    adjacency, inclusion : str
        See ``effective_guarantee``.
    fprs : sequence of float
        For TPR and, with δ > 0, for positive and negative accuracy, which have no bound without one.
    curve : Tradeoff, optional
        The mechanism's own curve, for add/remove and independent inclusion or replace-one and fixed size alike.
    loss_bound : float
        B of the generalization gap.
    keep : float, optional
        Share of the pool that training kept, in secret: adds the rows of both secrets.
    """
    e, d = effective_guarantee(epsilon, delta, adjacency=adjacency, inclusion=inclusion)
    words = (
        "any adversary with any knowledge of the other records",
        INCLUSION[inclusion],
        f"the guarantee compares data sets that differ in one record {_COMPARED[adjacency, inclusion]}",
    )
    rows: list[GuaranteeBound] = []

    def row(name: str, bound: float, extra: str = "", *, p: float | None = prior, fpr: float | None = None) -> None:
        hypotheses = (*words, extra) if extra else words
        rows.append(
            GuaranteeBound(name=name, epsilon=e, delta=d, prior=p, fpr=fpr, bound=bound, assumptions=hypotheses)
        )

    if not d:
        row("positive accuracy (Thudi, Theorem 1)", positive_accuracy(e, prior))
        row("negative accuracy (Thudi, Corollary 1)", positive_accuracy(e, 1 - prior))
    known = EpsilonDelta(e, d)
    row("accuracy", known.accuracy(prior))
    row("advantage, TPR - FPR", known.advantage(), p=None)
    sources: list[tuple[Tradeoff, str]] = [(known, "")]
    if curve is not None and (adjacency, inclusion) != ("add_remove", "fixed_size"):
        sources.append((curve, ", exact curve"))
    for source, which in sources:
        if which:
            row(f"accuracy{which}", source.accuracy(prior), str(source))
            row(f"advantage{which}", source.advantage(), str(source), p=None)
        for f in fprs:
            row(f"TPR at FPR {f:g}{which}", source.tpr(f), p=None, fpr=f)
            accuses = f"tests that wrongly accuse at least {f:g} of candidates; rarer tests may be more certain"
            row(f"positive accuracy at FPR {f:g}{which}", source.positive_accuracy(prior, f), accuses, fpr=f)
            misses, bound = f"tests that miss at least {f:g} of members", source.positive_accuracy(1 - prior, f)
            row(f"negative accuracy at miss rate {f:g}{which}", bound, misses, fpr=f)
    row("accuracy, Erlingsson et al. 2019", erlingsson_accuracy(e, d), "stated for prior 1/2", p=0.5)
    if not d:
        row("positive accuracy, Sablayrolles et al. 2019", sablayrolles_positive_accuracy(e, prior))
        row("accuracy, Yeom et al. 2020", yeom_accuracy(e), "stated for prior 1/2", p=0.5)
        between = f"loss within [0, {loss_bound:g}]; between records of the pool in and out of the training set"
        row("generalization gap (Thudi, Corollary 3)", generalization_gap(e, loss_bound), between, p=None)
    if keep is not None:
        secret = f"each record of the pool is kept with probability {keep:g}, and which ones stays secret"
        pooled, own = pool_epsilon(e, keep), prior * keep
        if d:
            row("accuracy, membership in the pool", EpsilonDelta(pooled, keep * d).accuracy(prior), secret)
            row("accuracy, membership in the training set", known.accuracy(own), secret, p=own)
        else:
            training = f"{secret}; prior {prior:g} of being in the pool"
            row("positive accuracy, membership in the training set", positive_accuracy(e, own), training, p=own)
            pool = f"{secret}; epsilon is ln(1 + s(e^eps - 1)) = {pooled:.4g}"
            row("positive accuracy, membership in the pool", positive_accuracy(pooled, prior), pool)
    return rows


# From a goal to the largest ε that achieves it.


def epsilon_for_accuracy(largest: float, prior: float, *, delta: float) -> float:
    """Return the largest ε at which no adversary is right more often than ``largest``, (ε, δ)-DP.

    ``(e^ε + δ)/(1 + e^ε) ≤ a``, and the base rates max(1-p+pδ, p+(1-p)δ) must not exceed a already.
    """
    p = checked_prior(prior)
    base = max(1 - p + p * checked_delta(delta), p + (1 - p) * delta)
    if not base <= largest < 1:
        raise UsageError(
            f"accuracy {largest:g} cannot be promised at prior {p:g}: guessing without a model already reaches {base:g}"
        )
    return largest_epsilon((largest - delta) / (1 - largest), f"accuracy {largest:g}")


def epsilon_for_positive_accuracy(largest: float, prior: float, *, delta: float, fpr: float | None) -> float:
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
    f = _checked_fpr(fpr)
    allowed = f * (1 - p) * largest / (p * (1 - largest))
    if allowed >= 1:
        raise UsageError(f"at FPR {f:g} and prior {p:g} no test exceeds {largest:g}, whatever epsilon is")
    growth = max((allowed - delta) / f, (1 - delta - f) / (1 - allowed))
    return largest_epsilon(growth, f"positive accuracy {largest:g} at FPR {f:g}")


def largest_epsilon(growth: float, goal: str) -> float:
    """Return ln(growth), nats; a growth of the odds below 1 is promised by no ε."""
    if growth < 1:
        raise UsageError(f"{goal} cannot be promised by any epsilon, not even 0; use a smaller share of the pool")
    return math.log(growth)
