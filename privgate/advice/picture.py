"""Risk against usefulness as a self-contained SVG: what lies left of the dashed line keeps the limit."""

import math
from collections.abc import Iterator, Sequence
from html import escape

from privgate.advice.point import Point, Tried, front

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE, _RIGHT = 720, 380, 70, 84, 34, 26
#: decades of risk over the limit that are drawn; whatever lies beyond stands at the edge
_NEAREST, _FURTHEST = -2.0, 1.3
_TICKS = ((-2.0, "1/100"), (-1.0, "1/10"), (0.0, "the limit"), (1.0, "10 times"))
#: usefulness is drawn down to so many times what the best that passes loses, or so much of the scale
_LOSSES, _LEAST = 4.0, 0.02
#: points nearer than this, in both directions, share one label
_TOGETHER = 16
_PASSES, _FAILS, _SOFT = "#1b6e3c", "#a33a2c", "#667"


def picture(advice: Tried) -> str:
    """Return the picture; empty where no candidate has both numbers."""
    shown = [p for p in advice.points if not math.isnan(p.of_limit) and not math.isnan(p.useful)]
    if not shown:
        return ""
    low, high = useful_range(shown)
    places = {p.number: (_x(p.of_limit), _y(p.useful, low, high)) for p in shown}
    line = " ".join(f"{places[p.number][0]:.1f},{places[p.number][1]:.1f}" for p in front(shown))
    best = {p.number for p in advice.best[:1]}
    dots = "".join(_dot(p, places[p.number], chosen=p.number in best) for p in shown)
    words = "".join(_labels(places))
    cut = any(p.useful < low for p in shown)
    said = f"{advice.measure}, cross-validated" + ("; lower is drawn at the bottom edge" if cut else "")
    title = f"Risk against {advice.measure} of every candidate"
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-size="13" '
        f'font-family="sans-serif" fill="#333"><title>{escape(title)}</title>{"".join(_frame(low, high))}'
        f'<text x="{_LEFT}" y="{_ABOVE - 16}">{escape(said)}</text>'
        f'<polyline points="{line}" fill="none" stroke="#88a" stroke-width="1.5"/>{dots}{words}{_legend()}</svg>'
    )


def useful_range(shown: Sequence[Point]) -> tuple[float, float]:
    """Return the usefulness at the bottom and at the top: what is useless is not drawn to scale."""
    high, low = max(p.useful for p in shown), min(p.useful for p in shown)
    kept = [p.useful for p in shown if p.passes]
    lost = high - max(kept) if kept else 0.0
    least = high - max(_LOSSES * lost, _LEAST * max(abs(high), 1e-9))
    return (max(low, least) if high > low else high - 1e-6), high


def _x(of_limit: float) -> float:
    decades = _NEAREST if of_limit <= 0 else math.log10(min(of_limit, 1e9))
    return _across(min(max(decades, _NEAREST), _FURTHEST))


def _across(decades: float) -> float:
    return _LEFT + (_WIDTH - _LEFT - _RIGHT) * (decades - _NEAREST) / (_FURTHEST - _NEAREST)


def _y(useful: float, low: float, high: float) -> float:
    return _ABOVE + (_HEIGHT - _ABOVE - _BELOW) * (1 - (max(useful, low) - low) / (high - low))


def _frame(low: float, high: float) -> Iterator[str]:
    bottom, right = _HEIGHT - _BELOW, _WIDTH - _RIGHT
    beyond = right - _across(0)
    yield f'<rect x="{_across(0):.1f}" y="{_ABOVE}" width="{beyond:.1f}" height="{bottom - _ABOVE}" fill="#f7ecea"/>'
    for part in (0.0, 0.5, 1.0):
        value = low + part * (high - low)
        y = _y(value, low, high)
        yield f'<line x1="{_LEFT}" x2="{right}" y1="{y:.1f}" y2="{y:.1f}" stroke="#ddd"/>'
        yield f'<text x="{_LEFT - 8}" y="{y + 4:.1f}" text-anchor="end">{value:.4g}</text>'
    for decades, words in _TICKS:
        x, at = _across(decades), decades == 0
        stroke = f'stroke="{_FAILS}" stroke-width="1.5" stroke-dasharray="5 4"' if at else 'stroke="#ddd"'
        yield f'<line x1="{x:.1f}" x2="{x:.1f}" y1="{_ABOVE}" y2="{bottom}" {stroke}/>'
        how = f'text-anchor="{"start" if decades == _NEAREST else "middle"}" fill="{_FAILS if at else "#333"}"'
        yield f'<text x="{x:.1f}" y="{bottom + 18}" {how}>{words}</text>'
    said = "risk, as a share of the limit; what is beyond is drawn at the edges"
    yield f'<text x="{(_LEFT + right) / 2:.0f}" y="{bottom + 38}" text-anchor="middle">{said}</text>'


def _dot(p: Point, place: tuple[float, float], *, chosen: bool) -> str:
    color = _PASSES if p.passes else _FAILS
    inside = color if p.passes else "#fff"  # told apart without colours, too
    ring = 'stroke-width="4" r="7"' if chosen else 'stroke-width="2" r="5"'
    return (
        f'<circle cx="{place[0]:.1f}" cy="{place[1]:.1f}" fill="{inside}" stroke="{color}" {ring}><title>{p.number}: '
        f"{escape(p.change.says)}</title></circle>"
    )


def _labels(places: dict[int, tuple[float, float]]) -> Iterator[str]:
    """Yield the numbers; of points that lie on one another they stand in one place."""
    left = sorted(places)
    while left:
        first = left[0]
        near = [n for n in left if all(abs(a - b) < _TOGETHER for a, b in zip(places[n], places[first], strict=True))]
        left = [n for n in left if n not in near]
        x, y = places[first]
        right = x < _WIDTH - _RIGHT - 14 * len(near) - 10
        below = (
            _ABOVE + 14 < y < _HEIGHT - _BELOW - 14 and first % 2
        )  # neighbours on a line do not write over each other
        yield (
            f'<text x="{x + (8 if right else -8):.1f}" y="{y + (18 if below else -9):.1f}" '
            f'text-anchor="{"start" if right else "end"}">{", ".join(map(str, near))}</text>'
        )


def _legend() -> str:
    y, shown = _HEIGHT - 14, ((_PASSES, _PASSES, 2, 5, "passes"), (_FAILS, "#fff", 2, 5, "does not pass"),
                              (_PASSES, _PASSES, 4, 7, "advised"))  # fmt: skip
    made, x = [], float(_LEFT)
    for color, inside, width, r, words in shown:
        # a square of the key is no candidate
        made.append(
            f'<rect x="{x:.0f}" y="{y - r - 4:.0f}" width="{2 * r}" height="{2 * r}" rx="{r}" fill="{inside}" '
            f'stroke="{color}" stroke-width="{width}"/><text x="{x + 22:.0f}" y="{y}">{words}</text>'
        )
        x += 118
    made.append(f'<text x="{x:.0f}" y="{y}" fill="{_SOFT}">the line: beaten in both by none</text>')
    return "".join(made)
