"""From one number a unit to one number a model: maximum, quantile, share above; with what sampling leaves open.

Whom an engine without a certificate only ranked counts as not measured: what is known of them is what a random sample
of refits shows, which is drawn before anybody is looked at. The laws, with M people of all at most beyond a number by
``kernel.sample`` and everybody else's limits:

- ``max``: what nobody who is limited or was refitted exceeds, and no rank either; it is shown for all but M people.
- ``share_above``: at most M people lie above the threshold.
- ``quantile``: the least number beyond which M is no more than the quantile leaves out.

From below, ranks count only if somebody of them was really refitted and is above; ``where`` names a refit.
"""

from bisect import bisect_left
from dataclasses import dataclass, replace
from typing import Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.errors import MeasurementError
from privgate.evidence import Count, Request
from privgate.evidence.figures import percent_at_most
from privgate.evidence.telling import sampled
from privgate.families.retrained import OPEN, Retrained, Shown
from privgate.kernel.sample import Looks, exceeding_limit, quantile_rank

#: probability at most of a limit that is wrong
ALPHA = 0.05
#: of a limit that shows nothing, where an earlier look has spent all
LEAST = 1e-12
#: share of an engine's people whom its sample may leave open
LEFT_OUT = 0.05


@dataclass(frozen=True, eq=False)
class Ranking:
    """Whom engines without a certificate only ranked.

    Parameters
    ----------
    groups : tuple of (int64 array, int64 array)
        Positions of all whom one engine ranked, and of those drawn at random of them and refitted.
    real : bool array
        Of the measured units, who is limited or was trained without for real.
    names : tuple of str
        The engines.
    grew : bool
        Whether fewer people were looked at before: of the level is left what that look did not spend.
    """

    groups: tuple[tuple[Index, Index], ...]
    real: NDArray[np.bool_]
    names: tuple[str, ...] = ()
    grew: bool = False

    @classmethod
    def of(cls, found: Retrained, limited: NDArray[np.bool_], more: int = 0, *, grew: bool = False) -> Self:
        """Return who was only ranked and has no limit of another kind; of an engine with everybody refitted nobody is.

        Parameters
        ----------
        limited : bool array of shape (U,)
            Whom the kernel limits, whatever an engine says.
        more : int
            People behind those of ``found`` of whom nothing was asked.
        grew
            As above.
        """
        loose = (found.shown != Shown.LIMITED) & ~limited
        kinds = [
            (str(name), np.flatnonzero(loose & (found.engine == name)))
            for name in np.unique(found.engine[loose].astype(str))
        ]
        open_ = [(n, p) for n, p in kinds if np.isin(found.shown[p], OPEN).any()]
        groups = tuple((p, p[found.shown[p] == Shown.DRAWN]) for _, p in open_)
        real = np.append(limited | (found.shown != Shown.RANKED), np.ones(more, dtype=bool))
        return cls(groups, real, tuple(n for n, _ in open_), grew)

    @property
    def enough(self) -> bool:
        """Whether of each engine's people so many were drawn that they speak for all but one in twenty."""
        return all(exceeding_limit(0, len(d), len(p), alpha=ALPHA) <= len(p) * LEFT_OUT for p, d in self.groups)

    def beyond(self, high: Float, number: float, population: int, *, alpha: float = ALPHA) -> int:
        """Return how many people of all may exceed a number, where those measured are a random sample or everybody."""
        alpha /= len(self.groups) + (len(high) < population)
        limited = np.ones(len(high), dtype=bool)
        found = 0
        for people, drawn in self.groups:
            limited[people] = False
            over = int((high[drawn] > number).sum())
            found += exceeding_limit(over, len(drawn), len(people), alpha=alpha)
        found += int((high[limited] > number).sum())
        return found if len(high) == population else exceeding_limit(found, len(high), population, alpha=alpha)

    def said(self, count: int, population: int) -> str:
        """Return what the refits show, one sentence."""
        drawn, people = sum(len(d) for _, d in self.groups), sum(len(p) for p, _ in self.groups)
        some = f"{Count(people, population)} of {population} people" if people < population else "people"
        if not drawn:
            return f"{' and '.join(self.names)} only ranked {some}, and nobody was drawn at random"
        return (
            f"{' and '.join(self.names)} only ranked {some}; {drawn} drawn at random were trained without: with "
            f"{1 - ALPHA:.0%} confidence at most {percent_at_most(count / population, 3)} of all exceed this"
        )


@dataclass(frozen=True, slots=True)
class Aggregated:
    """One number with its interval.

    Parameters
    ----------
    value, low, high : float
        ``low <= value <= high``; larger is worse.
    where : int
        Position of the worst unit, -1 where no single unit stands for the number.
    claim : str
        What can no longer be claimed because units were sampled; empty at full coverage.
    confidence : float or None
        Of the interval; None where it is certain.
    beyond : float or None
        Share of people at most, with that confidence, whom the upper limit does not hold for; None where it is nobody.
    """

    value: float
    low: float
    high: float
    where: int = -1
    claim: str = ""
    confidence: float | None = None
    beyond: float | None = None


def asked(
    request: Request, value: Float, low: Float, high: Float, population: int, *, ranking: Ranking | None = None
) -> Aggregated:
    """Return the aggregate that a rule asks for; see ``maximum``, ``quantile`` and ``share_above``.

    Raises
    ------
    MeasurementError
        The aggregate is unknown.
    """
    if ranking is not None and ranking.groups:
        return ranked(request, value, low, high, population, ranking=ranking)
    how = request.option("aggregate", "max")
    if how == "max":
        return maximum(value, low, high, population)
    if how == "quantile":
        return quantile(value, low, high, population, q=float(request.option("q")))
    if how == "share_above":
        return share_above(
            value, low, high, population, threshold=float(request.option("threshold")), looks=looks(request, population)
        )
    raise MeasurementError(f"unknown aggregate {how!r}; known: max, quantile, share_above")


def ranked(request: Request, value: Float, low: Float, high: Float, population: int, *, ranking: Ranking) -> Aggregated:
    """Return the aggregate over people of whom some were only ranked; see the laws above."""
    seen = np.where(ranking.real, low, 0.0)
    worst, plain = int(np.argmax(seen)), asked(request, value, low, high, population)
    if plain.where >= 0 and seen[plain.where] == seen[worst]:
        worst = plain.where
    how = request.option("aggregate", "max")
    if how == "max":
        count = ranking.beyond(high, plain.high, population)
        top = plain.high if ranking.enough else np.inf
        made = replace(plain, low=float(seen[worst]), high=top, beyond=count / population)
    elif how == "share_above":
        threshold = float(request.option("threshold"))
        count = ranking.beyond(high, threshold, population, alpha=level(request, population, grew=ranking.grew))
        sure = plain.low if seen[worst] > threshold else 0.0
        made = replace(plain, low=sure, high=max(plain.value, count / population))
    else:
        count = population - int(np.ceil(float(request.option("q")) * population - 1e-9))
        steps = np.append(np.unique(high), np.inf)
        at = bisect_left(steps, 1, key=lambda t: int(ranking.beyond(high, t, population) <= count))
        top = float(steps[min(at, len(steps) - 1)])
        made = replace(plain, low=min(plain.low, float(seen[worst])), high=max(plain.value, top))
    claim = plain.claim or ranking.said(count, population)
    return replace(made, where=worst if made.low > 0 or how == "max" else -1, confidence=1 - ALPHA, claim=claim)


def level(request: Request, population: int, *, grew: bool) -> float:
    """Return what an earlier look at fewer people leaves of the level, where the sample grew."""
    grows = looks(request, population) if grew else None
    return ALPHA if grows is None else max(grows.left()[0], LEAST)


def second(request: Request, population: int) -> int:
    """Return of how many people drawn a second look can approve where one more exceeds than leaves the first open.

    Twice as many as at first, and twice again until then: what the first look leaves of the level may be little.
    """
    if (grows := looks(request, population)) is None:
        return 0
    first, allowed, alpha = grows.sizes[0], grows.allowed, level(request, population, grew=True)
    open_ = next(
        k for k in range(first + 2) if exceeding_limit(min(k, first), first, population, alpha=ALPHA) > allowed
    )
    size = 2 * first
    while size < population and exceeding_limit(open_ + 1, size, population, alpha=alpha) > allowed:
        size *= 2
    return min(size, population)


def looks(request: Request, population: int) -> Looks | None:
    """Return how the sample of a rule on a share may grow; None where it does not."""
    first, then = request.option("sample"), request.option("up_to")
    if then is None or first >= population:
        return None
    allowed = int(np.floor(float(request.option("limit")) * population + 1e-9))
    return Looks((int(first), min(int(then), population)), population, allowed)


def maximum(value: Float, low: Float, high: Float, population: int, unmeasured_high: float = np.inf) -> Aggregated:
    """Return the largest value over all units of the population.

    Parameters
    ----------
    value, low, high : float64 arrays of shape (m,)
        Of the m units that were measured; the truth of each lies in [low, high].
    population : int
        Units there are; with ``m < population`` nothing can be said about the maximum but a lower bound.
    unmeasured_high : float
        Upper bound that holds for every unit that was not measured (a certificate), infinity if there is none.

    References
    ----------
    Section 9.1 of docs/mathematics.md: about the maximum nothing can be said below full coverage.
    """
    worst = int(np.argmax(low)) if np.max(low) == np.max(value) else int(np.argmax(value))
    top = float(np.max(high))
    claim = ""
    if len(value) < population:
        top = max(top, unmeasured_high)
        if not np.isfinite(unmeasured_high):
            claim = f"{sampled(len(value), population)}: nothing is claimed about the largest value"
    return Aggregated(float(np.max(value)), float(np.max(low)), top, worst, claim)


def quantile(
    value: Float, low: Float, high: Float, population: int, *, q: float, confidence: float = 0.95
) -> Aggregated:
    """Return the q-quantile over units: exact at full coverage, an order-statistic interval on a random sample.

    Parameters
    ----------
    value, low, high : float64 arrays of shape (m,)
    population : int
    q : float in (0, 1)
    confidence : float
        Of each one-sided limit, when units were sampled.

    References
    ----------
    Section 9.1 of docs/mathematics.md: the j-th order statistic is an upper limit if BinCDF(j-1; m, q) >= 1-a.
    """
    m = len(value)
    point = float(np.quantile(value, q, method="inverted_cdf"))
    if m == population:
        lo, hi = (float(np.quantile(v, q, method="inverted_cdf")) for v in (low, high))
        return Aggregated(point, lo, hi)
    # the q-quantile from below is the (1 - q)-quantile from above
    upper, lower = (quantile_rank(m, share, alpha=1 - confidence) for share in (q, 1 - q))
    hi = float("inf") if upper is None else float(np.sort(high)[upper - 1])
    lo = 0.0 if lower is None else float(np.sort(low)[m - lower])
    return Aggregated(
        point, lo, hi, claim=f"limits from {Count(m, population)} of {population} people", confidence=confidence
    )


def share_above(
    value: Float,
    low: Float,
    high: Float,
    population: int,
    *,
    threshold: float,
    confidence: float = 0.95,
    looks: Looks | None = None,
) -> Aggregated:
    """Return the fraction of units above ``threshold``: exact at full coverage, hypergeometric limits on a sample.

    Parameters
    ----------
    value, low, high : float64 arrays of shape (m,)
    population : int
    threshold : float
    confidence : float
        Of each one-sided limit, when units were sampled.
    looks : Looks, optional
        How the sample may grow, where what follows from it decides whether it does.

    References
    ----------
    Section 9.1 of docs/mathematics.md: M_U = max{M : P(Hypergeom(n, M, m) <= k) > a}.
    """
    m = len(value)
    surely, possibly = int(np.sum(low > threshold)), int(np.sum(high > threshold))
    point = float(np.mean(value > threshold))
    if m == population:
        return Aggregated(point, surely / m, possibly / m)
    if looks is not None and m in looks.sizes:
        least, most = looks.share(surely, possibly, m)
    else:
        # at least so many are above, because at most so many are not
        most = exceeding_limit(possibly, m, population, alpha=1 - confidence)
        least = population - exceeding_limit(m - surely, m, population, alpha=1 - confidence)
    return Aggregated(
        point,
        least / population,
        most / population,
        claim=f"limits from {Count(m, population)} of {population} people",
        confidence=confidence,
    )
