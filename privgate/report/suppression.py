"""Small counts of people, hidden wherever a report says them in numbers; sentences say them by ``evidence.told_count``.

A count from 1 to 9 is hidden, and so is one that leaves 1 to 9 of a total: whoever knows the total and one part knows
the other part (Willenborg & de Waal, "Elements of Statistical Disclosure Control", 2001, chapter 4). A hidden
count becomes ``null``. How many there are in all, nobody and everybody are told.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.evidence.json_values import SMALL_CELL, bounds
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


# Histograms from which no small count of people follows: bins are joined until each holds nobody or ten.
#
# Counts above the limits of rules are sums of the same bins, so that no difference of two of them is small either.
# Where a few people have no finite figure, the highest bin that holds people is hidden with them, and holds enough
# that any number of them from 1 to 9 is possible.


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of people in bins ``(edge, next edge]``, the first with its lower edge.

    Parameters
    ----------
    values : array
        Everybody's figure, nats; what is not finite lies above everything.
    edges : tuple of float
        Ascending.
    cuts : frozenset of float
        Limits at which the count above may be told.
    open_end : bool
        How many have no finite figure is hidden, whatever it is: that of another figure differs by a few.
    """

    values: Float
    edges: tuple[float, ...]
    cuts: frozenset[float]
    open_end: bool = False

    def above(self, edge: float) -> int:
        """Return how many lie above ``edge``; NaN lies above everything."""
        return int((~(self.values <= edge)).sum())

    @property
    def unbounded(self) -> int:
        """How many have no finite figure."""
        return int((~np.isfinite(self.values)).sum())

    def counts(self) -> tuple[list[int | None], int | None]:
        """Return the count of each bin and of who has no finite figure; None where the two would tell a few."""
        over = [len(self.values), *(self.above(e) for e in self.edges[1:-1]), self.unbounded]
        told: list[int | None] = [a - b for a, b in pairwise(over)]
        finite = len(self.values) - self.unbounded
        hide = self.open_end or _few(self.unbounded) or (_few(finite) and self.unbounded)
        if not hide or not finite:
            return told, self.unbounded
        top = max(i for i, c in enumerate(told) if c)
        return [None if i == top else c for i, c in enumerate(told)], None

    def without(self, edges: Iterable[float]) -> "Histogram":
        """Return it with the bins beside each of ``edges`` joined; its two ends stay."""
        gone = set(edges)
        inner = (e for e in self.edges[1:-1] if e not in gone)
        return replace(self, edges=(self.edges[0], *inner, self.edges[-1]), cuts=self.cuts - gone)


def _few(count: int) -> bool:
    return 0 < count < SMALL_CELL


def histogram(values: Float, edges: Sequence[float], limits: Iterable[float]) -> Histogram:
    """Return the histogram of one figure, its bins joined."""
    whole = Histogram(values, tuple(edges), frozenset())
    unbounded = whole.unbounded
    #: so many in the bin hidden beside a few without a finite figure that they may be any number of a few
    beside = 2 * SMALL_CELL - 1 if _few(unbounded) else SMALL_CELL
    cuts: list[float] = []
    for cut in sorted(set(limits), reverse=True):
        here = whole.above(cut) - (whole.above(cuts[-1]) if cuts else unbounded)
        if here >= (SMALL_CELL if cuts else beside) or (here == 0 and (cuts or not _few(unbounded))):
            cuts.append(cut)
    while cuts and _few(len(values) - whole.above(cuts[-1])):
        cuts.pop()
    kept, need = [edges[-1]], beside
    inner = sorted({*edges[1:-1], *(c for c in cuts if edges[0] < c < edges[-1])}, reverse=True)
    last = unbounded  # how many lie above the edge kept last
    ends = [c for c in cuts if edges[0] < c < edges[-1]] + [edges[0]]
    for edge in inner:
        here = whole.above(edge) - last
        end = next(e for e in ends if e <= edge)  # where this stretch between two limits ends
        rest = (whole.above(end) if end > edges[0] else len(values)) - whole.above(edge)
        if edge in ends or ((here == 0 or here >= need) and not _few(rest)):
            kept.append(edge)
            need, last = (SMALL_CELL if here else need), whole.above(edge)
    return Histogram(values, tuple(float(e) for e in [*kept, edges[0]][::-1]), frozenset(cuts))


def apart(figures: Mapping[str, Histogram]) -> dict[str, Histogram]:
    """Return histograms of several figures of the same people, of which no two differ by a few at an edge of both."""
    made: dict[str, Histogram] = {}
    for name, mine in figures.items():
        close = {e for other in made.values() for e in {*mine.edges, *mine.cuts} & {*other.edges, *other.cuts}
                 if _few(abs(mine.above(e) - other.above(e)))}  # fmt: skip
        few = any(_few(abs(mine.unbounded - other.unbounded)) for other in made.values())
        made[name] = replace(mine.without(close), open_end=few)
    return made
