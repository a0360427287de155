"""Small counts of people, hidden wherever a report says them in numbers; sentences say them by ``evidence.told``.

A count from 1 to 9 is hidden, and so is one that leaves 1 to 9 of a total: whoever knows the total and one part knows
the other part (Willenborg & de Waal, "Elements of Statistical Disclosure Control", 2001, chapter 4). A hidden
count becomes ``null``. How many there are in all, nobody and everybody are told.
"""

from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from privgate.evidence.values import SMALL_CELL, bounds
from privgate.report.text import number


def shown(count: int | None, total: int | None = None) -> str:
    """Return a count in words, its range where it is hidden; None is one that was hidden before.

    Examples
    --------
    >>> shown(4, 1000), shown(996, 1000), shown(1234), shown(None)
    ('1 to 9', '991 to 999', '1,234', 'suppressed')
    """
    if count is None:
        return "suppressed"
    low, high = bounds(count, total)
    return number(count) if low == high else f"{number(low)} to {number(high)}"


def cells(counts: NDArray[np.int64] | Sequence[int]) -> list[int | None]:
    """Return counts that add up to a total: small ones as None, never exactly one of them alone beside another count.

    Examples
    --------
    >>> cells([400, 30, 0, 3])
    [400, None, 0, None]
    """
    given = np.asarray(counts, dtype=np.int64)
    small = (given > 0) & (given < SMALL_CELL)
    rest = np.flatnonzero((given > 0) & ~small)
    if small.sum() == 1 and len(rest):
        small[rest[np.argmin(given[rest])]] = True
    return [None if hide else int(c) for c, hide in zip(given, small, strict=True)]


def nested(counts: Sequence[int], total: int) -> list[int | None]:
    """Return counts of which each contains the smaller ones, without those from which a small difference follows.

    How many lie above 1 nat and how many above 1.1 tell how many lie between.

    Examples
    --------
    >>> nested([400, 395, 20, 3], 1000)
    [400, None, 20, None]
    """
    told, last = [0, total], {}
    for i in sorted(range(len(counts)), key=lambda i: -counts[i]):
        if counts[i] in (0, total) or not any(0 < abs(counts[i] - known) < SMALL_CELL for known in told):
            told.append(counts[i])
            last[i] = counts[i]
    return [last.get(i) for i in range(len(counts))]


def at_least(count: int, totals: Iterable[int], floors: Iterable[int] = ()) -> int:
    """Return a sample's size, rounded down where it leaves a small rest of a total: who was left out of it is nobody's.

    Examples
    --------
    >>> at_least(298, [300]), at_least(298, [300], [295]), at_least(250, [300])
    (291, 295, 250)
    """
    for total in totals if count not in totals else ():
        if 0 < total - count < SMALL_CELL:
            return max([total - SMALL_CELL + 1, *(f for f in floors if f <= count)])
    return count


def share(low: float, high: float, people: int, limits: Iterable[float]) -> tuple[float, float]:
    """Return the interval of a share of people whose ends tell no small count, on the same side of every limit.

    Examples
    --------
    >>> share(0.004, 0.004, 1000, [0.01]), share(0.004, 0.004, 1000, [0.005]), share(0.04, 0.04, 1000, [0.05])
    ((0.001, 0.009), (0.001, 0.005), (0.04, 0.04))
    """
    given = tuple(limits)
    least, most = (bounds(round(v * people), people)[i] / people for i, v in enumerate((low, high)))
    least = max([least, *(float(np.nextafter(v, 2.0)) for v in given if low > v)]) if least < low else low
    most = min([most, *(v for v in given if high <= v)]) if most > high else high
    return least, most
