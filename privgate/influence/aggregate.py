"""From one number a person to one number a model: maximum, quantile, share above; with what sampling leaves open."""

from dataclasses import dataclass, replace

import numpy as np

from privgate.arrays import Float
from privgate.evidence import Count, Request
from privgate.evidence.telling import sampled
from privgate.kernel.sample import LEVEL, PARDONED, Looks, exceeding_limit, quantile_rank


@dataclass(frozen=True, slots=True)
class Aggregated:
    """One number with its interval, ``low <= value <= high``; larger is worse. Section 9.1 of docs/mathematics.md."""

    value: float
    low: float
    high: float
    #: position of the worst person, -1 where no single one stands for the number
    where: int = -1
    #: what can no longer be claimed because people were sampled; empty at full coverage
    claim: str = ""
    #: of the interval; None where it is certain
    confidence: float | None = None
    #: share of people at most, with that confidence, whom the upper limit does not hold for; None where it is nobody
    beyond: float | None = None


def summarize(
    request: Request,
    value: Float,
    low: Float,
    high: Float,
    population: int,
    *,
    looks: Looks | None = None,
    unsure: int = 0,
) -> Aggregated:
    """Return the aggregate that a rule asks for; see ``maximum``, ``quantile`` and ``share_above``.

    ``value``, ``low`` and ``high``, shape (m,), are of those measured of a ``population``, all or the first of those
    drawn; the truth of each lies in [low, high]. ``looks``: how many were planned to be drawn, where a sample is
    judged. ``unsure``: of how many people at most a closed form may be wrong that refits of 59 did not contradict.
    """
    how = request.option("aggregate", "max")
    if how == "quantile":
        interval = quantile(value, low, high, population, q=float(request.option("q")), looks=looks)
    elif how == "share_above":
        interval = share_above(value, low, high, population, threshold=float(request.option("threshold")), looks=looks)
    else:
        interval = maximum(value, low, high, population)
    return _but_for(interval, unsure, high, population, request) if unsure else interval


def _but_for(aggregated: Aggregated, unsure: int, high: Float, population: int, request: Request) -> Aggregated:
    """Return a number that holds but for so many people, of whom a closed form may be wrong."""
    share = unsure / population
    if aggregated.where < 0:  # as many more may be above the threshold, or beyond the quantile
        if request.option("aggregate") == "share_above":
            aggregated = replace(aggregated, high=min(1.0, aggregated.high + share))
        else:
            place = min(len(high), int(np.ceil(float(request.option("q")) * population)) + unsure)
            aggregated = replace(aggregated, high=float(np.sort(high)[place - 1]) if place < population else np.inf)
        return replace(aggregated, confidence=1 - LEVEL)
    claim = f"a closed form answers: with {1 - LEVEL:.0%} confidence for all but {Count(unsure, population)} people"
    return replace(aggregated, beyond=share, confidence=1 - LEVEL, claim=aggregated.claim or claim)


def maximum(value: Float, low: Float, high: Float, population: int) -> Aggregated:
    """Return the largest value of all people; below full coverage nothing is said about it but a lower limit."""
    worst = int(np.argmax(low)) if np.max(low) == np.max(value) else int(np.argmax(value))
    if len(value) == population:
        return Aggregated(float(np.max(value)), float(np.max(low)), float(np.max(high)), worst)
    claim = f"{sampled(len(value), population)}: nothing is claimed about the largest value"
    return Aggregated(float(np.max(value)), float(np.max(low)), np.inf, worst, claim)


def quantile(
    value: Float, low: Float, high: Float, population: int, *, q: float, looks: Looks | None = None
) -> Aggregated:
    """Return the q-quantile over people: exact at full coverage, an order statistic of a random sample else.

    By planned looks nobody, or two, may exceed it; else by the j-th of m where BinCDF(j-1; m, q) >= 1-a.
    """
    m = len(value)
    point = float(np.quantile(value, q, method="inverted_cdf"))
    if m == population:
        lo, hi = (float(np.quantile(v, q, method="inverted_cdf")) for v in (low, high))
        return Aggregated(point, lo, hi)
    # the q-quantile from below is the (1 - q)-quantile from above
    upper, lower = (quantile_rank(m, share, alpha=LEVEL) for share in (q, 1 - q))
    if looks is not None:
        upper = {looks.sizes[0]: m, looks.sizes[1]: m - PARDONED}.get(m)
    hi = float("inf") if upper is None else float(np.sort(high)[upper - 1])
    lo = 0.0 if lower is None else float(np.sort(low)[m - lower])
    claim = f"limits from {Count(m, population)} of {population} people"
    return Aggregated(point, lo, max(hi, lo), claim=claim, confidence=1 - LEVEL)


def share_above(
    value: Float, low: Float, high: Float, population: int, *, threshold: float, looks: Looks | None = None
) -> Aggregated:
    """Return the fraction of people above ``threshold``: exact at full coverage, hypergeometric limits on a sample."""
    m = len(value)
    surely, possibly = int(np.sum(low > threshold)), int(np.sum(high > threshold))
    point = float(np.mean(value > threshold))
    if m == population:
        return Aggregated(point, surely / m, possibly / m)
    if looks is None:
        # at least so many are above, because at most so many are not
        most = exceeding_limit(possibly, m, population, alpha=LEVEL)
        least = population - exceeding_limit(m - surely, m, population, alpha=LEVEL)
    else:
        least, most = looks.share(surely, possibly, m)
    claim = f"limits from {Count(m, population)} of {population} people"
    return Aggregated(point, least / population, most / population, claim=claim, confidence=1 - LEVEL)
