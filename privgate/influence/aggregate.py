"""From one number a unit to one number a model: maximum, quantile, share above; with what sampling leaves open."""

from dataclasses import dataclass

import numpy as np

from privgate.arrays import Float
from privgate.errors import MeasurementError
from privgate.evidence import Count, Request
from privgate.kernel.sample import Looks, exceeding_limit, quantile_rank


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
    """

    value: float
    low: float
    high: float
    where: int = -1
    claim: str = ""
    confidence: float | None = None


def asked(request: Request, value: Float, low: Float, high: Float, population: int) -> Aggregated:
    """Return the aggregate that a rule asks for; see ``maximum``, ``quantile`` and ``share_above``.

    Raises
    ------
    MeasurementError
        The aggregate is unknown.
    """
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
            claim = f"{len(value)} of {population} units were measured: nothing is claimed about the largest value"
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
        point, lo, hi, claim=f"limits from {Count(m, population)} of {population} units", confidence=confidence
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
        claim=f"limits from {Count(m, population)} of {population} units",
        confidence=confidence,
    )
