"""Risk against usefulness in the letters of a terminal: what stands left of the bar keeps the limit."""

import math
from collections.abc import Iterator

from privgate.advice.picture import useful_range
from privgate.advice.point import Point, Tried, front

_WIDTH, _HEIGHT = 56, 12
#: decades of risk over the limit; whatever lies beyond stands at the edge
_NEAREST, _FURTHEST = -2.0, 1.3


def drawn(advice: Tried) -> Iterator[str]:
    """Yield the lines of the picture, then those candidates that none beats in both, each with what it costs."""
    shown = [p for p in advice.points if not math.isnan(p.of_limit) and not math.isnan(p.useful)]
    if not shown:
        return
    low, high = useful_range(shown)
    rows = [[" "] * _WIDTH for _ in range(_HEIGHT)]
    bar = _column(1.0)
    for row in rows:
        row[bar] = "|"
    best = {p.number for p in advice.best[:1]}
    for p in sorted(shown, key=lambda p: p.number in best):  # what is advised is drawn over the others
        down = round((high - max(p.useful, low)) / (high - low) * (_HEIGHT - 1))
        rows[down][_column(p.of_limit)] = "@" if p.number in best else "o" if p.passes else "x"
    least = "; the lowest line holds what is lower" if any(p.useful < low for p in shown) else ""
    yield f"{advice.measure} against risk over the limit: o passes, x does not, @ advised, | the limit{least}"
    for k, row in enumerate(rows):
        label = f"{high:.4g}" if k == 0 else f"{low:.4g}" if k == _HEIGHT - 1 else ""
        yield f"{label:>8} {''.join(row).rstrip()}"
    yield f"{'':>8} {_ticks(bar)}"
    yield "beaten in both by none:"
    present = advice.points[0]
    for p in front(shown):
        yield f"  {p.number:>3}  {p.of_limit:.3g} of the limit, {advice.measure} {p.useful:.4f}{_cost(p, present)}"


def _column(of_limit: float) -> int:
    decades = _NEAREST if of_limit <= 0 else min(max(math.log10(min(of_limit, 1e9)), _NEAREST), _FURTHEST)
    at = round((decades - _NEAREST) / (_FURTHEST - _NEAREST) * (_WIDTH - 1))
    # what is beyond the limit by little must not stand on the other side of it
    edge = round(-_NEAREST / (_FURTHEST - _NEAREST) * (_WIDTH - 1))
    return edge if of_limit == 1 else max(at, edge + 1) if of_limit > 1 else min(at, edge - 1)


def _ticks(bar: int) -> str:
    line = [" "] * (_WIDTH + 8)
    for at, words in ((0, "1/100"), (_column(0.1), "1/10"), (bar, "1"), (_column(10.0), "10 times")):
        line[at : at + len(words)] = list(words)
    return "".join(line).rstrip()


def _cost(p: Point, present: Point) -> str:
    if p.number == present.number:
        return ", as it stands"
    lost = "" if math.isnan(present.useful) else f" ({p.useful - present.useful:+.4f})"
    return f"{lost}, measured with {p.trainings} trainings: {p.change.says}"
