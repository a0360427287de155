"""Histograms from which no small count of people follows: bins are joined until each holds nobody or ten.

Counts above the limits of rules are sums of the same bins, so that no difference of two of them is small either.
Where a few people have no finite figure, the highest bin that holds people is hidden with them, and holds enough
that any number of them from 1 to 9 is possible.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import pairwise

import numpy as np

from privgate.arrays import Float
from privgate.evidence.telling import SMALL_CELL


@dataclass(frozen=True, slots=True)
class Histogram:
    """Counts of people in bins ``(edge, next edge]``, the first with its lower edge."""

    #: everybody's figure, nats; what is not finite lies above everything
    values: Float
    #: ascending
    edges: tuple[float, ...]
    #: limits at which the count above may be told
    cuts: frozenset[float]
    #: how many have no finite figure is hidden, whatever it is: that of another figure differs by a few
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
