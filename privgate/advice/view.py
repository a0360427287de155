"""Advice for people: a table for the terminal, and one page with risk against usefulness for the browser."""

import math
from collections.abc import Iterator
from html import escape

from privgate.advice.point import Point, Tried, front

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE, _RIGHT = 680, 320, 64, 48, 18, 18
#: decades beyond the limit, and below it, that the picture shows
_FURTHEST, _NEAREST = 1.3, -2.0
_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;"
    "background:#fff}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".best td{font-weight:600}svg{max-width:100%;height:auto}"
)


def summary(advice: Tried) -> str:
    """Return in a sentence or two what came out."""
    present = advice.points[0]
    if present.passes:
        return "The model as it stands keeps every rule in the search; check it."
    if not advice.best:
        return (
            f"No change that was tried keeps {advice.policy}; the nearest is {_nearest(advice)}. "
            "More time, another policy or another kind of model is needed."
        )
    found = advice.best[0]
    cost = f"{advice.measure} {present.useful:.4f} becomes {found.useful:.4f}" if not math.isnan(found.useful) else ""
    if not math.isnan(found.confirmed_useful):
        cost += f" ({found.confirmed_useful:.4f} on folds that the search did not choose by)"
    return (
        f"{found.change.says}: {_number(found)} where {found.limit:g} is allowed and the model as it stands has "
        f"{_number(present)}; {cost}. A whole check with other randomness agrees: {found.confirmed_value:.3g}, and the "
        f"search saw {found.value:.3g}; it was chosen among {len(advice.points) - 1} candidates."
    )


def _nearest(advice: Tried) -> str:
    known = [p for p in advice.points[1:] if not math.isnan(p.of_limit) and not p.change.games]
    if not known:
        return "unknown: nothing could be measured"
    least = min(known, key=lambda p: p.of_limit)
    return f"{least.change.says!r} with {_number(least)} of {least.limit:g}"


def _number(point: Point) -> str:
    return f"{point.value:.3g}{' ' + point.unit if point.unit else ''}"


def _rows(advice: Tried) -> Iterator[tuple[str, ...]]:
    for p in advice.points:
        again = "" if math.isnan(p.confirmed_value) else f" at {p.confirmed_value:.3g}"
        result = p.outcome + (f", a whole check: {p.confirmed}{again}" if p.confirmed else "")
        other = "" if math.isnan(p.confirmed_useful) else f", other folds {p.confirmed_useful:.4f}"
        useful = "" if math.isnan(p.useful) else f"{p.useful:.4f} ± {p.useful_error:.4f}{other}"
        risk = "unknown" if math.isnan(p.of_limit) else f"{_number(p)} of {p.limit:g}"
        yield str(p.number), result, risk, useful, f"{p.trainings} in {p.seconds:.0f} s", p.change.says


def text(advice: Tried) -> str:
    """Return a table for the terminal."""
    head = ("no", "result", "risk of limit", advice.measure, "trainings", "change")
    rows = [head, *_rows(advice)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[-1]]) for r in rows]
    games = [f"{p.number}: not advised: {p.change.games}" for p in advice.points if p.change.games]
    return "\n".join([*lines, *games, *(f"not tried: {left}" for left in advice.left)])


def picture(advice: Tried) -> str:
    """Return risk (share of the limit, equal factors at equal steps) against usefulness as a self-contained SVG.

    What lies left of the dashed line keeps the limit; the line through the points joins those that nobody beats.
    """
    shown = [p for p in advice.points if not math.isnan(p.of_limit) and not math.isnan(p.useful)]
    if not shown:
        return ""
    low, high = min(p.useful for p in shown), max(p.useful for p in shown)
    spread = max(high - low, 1e-6)

    def x(p: Point) -> float:
        decades = math.log10(p.of_limit) if 0 < p.of_limit < math.inf else (_FURTHEST if p.of_limit > 0 else _NEAREST)
        share = (min(max(decades, _NEAREST), _FURTHEST) - _NEAREST) / (_FURTHEST - _NEAREST)
        return _LEFT + (_WIDTH - _LEFT - _RIGHT) * share

    def y(p: Point) -> float:
        return _ABOVE + (_HEIGHT - _ABOVE - _BELOW) * (1 - (p.useful - low) / spread)

    limit = _LEFT + (_WIDTH - _LEFT - _RIGHT) * (-_NEAREST) / (_FURTHEST - _NEAREST)
    line = " ".join(f"{x(p):.1f},{y(p):.1f}" for p in front(shown))
    dots = "".join(
        f'<circle cx="{x(p):.1f}" cy="{y(p):.1f}" r="5" fill="{"#1b6e3c" if p.passes else "#a33"}"><title>'
        f"{p.number}: {escape(p.change.says)}</title></circle>"
        f'<text x="{x(p) + 8:.1f}" y="{y(p) - 6:.1f}">{p.number}</text>'
        for p in shown
    )
    return (
        f'<svg xmlns="http://www.w3.org/2000/svg" viewBox="0 0 {_WIDTH} {_HEIGHT}" role="img" font-size="12" '
        f'font-family="sans-serif" fill="#333"><title>Risk against {escape(advice.measure)} of every candidate</title>'
        f'<line x1="{limit:.1f}" x2="{limit:.1f}" y1="{_ABOVE}" y2="{_HEIGHT - _BELOW}" stroke="#a33" '
        f'stroke-dasharray="5 4"/><text x="{limit - 4:.1f}" y="{_HEIGHT - _BELOW + 16}" text-anchor="end" '
        f'fill="#a33">the limit</text><polyline points="{line}" fill="none" stroke="#246"/>{dots}'
        f'<text x="{_LEFT - 6}" y="{_ABOVE + 4}" text-anchor="end">{high:.3f}</text>'
        f'<text x="{_LEFT - 6}" y="{_HEIGHT - _BELOW}" text-anchor="end">{low:.3f}</text>'
        f'<text x="{(_LEFT + _WIDTH - _RIGHT) / 2:.0f}" y="{_HEIGHT - 8}" text-anchor="middle">'
        f"risk as a share of the limit, a hundredth to 20 times (further is drawn at the edge)</text></svg>"
    )


def html(advice: Tried) -> str:
    """Return the summary, the picture and the table, as HTML."""
    best = {p.number for p in advice.best[:1]}
    head = "".join(f"<th scope=col>{escape(c)}</th>" for c in ("", "result", "risk", advice.measure, "took", "change"))
    body = "".join(
        f"<tr{' class=best' if int(r[0]) in best else ''}>" + "".join(f"<td>{escape(c)}</td>" for c in r) + "</tr>"
        for r in _rows(advice)
    )
    notes = "".join(
        f"<p>{p.number} is not advised: {escape(p.change.games)}.</p>" for p in advice.points if p.change.games
    ) + "".join(f"<p>Not tried: {escape(left)}.</p>" for left in advice.left)
    return f"<p>{escape(summary(advice))}</p>{picture(advice)}<table><tr>{head}</tr>{body}</table>{notes}"


def page(advice: Tried) -> str:
    """Return ``html`` as a page of its own: no scripts, nothing fetched."""
    title = escape(f"Advice for {advice.uri or 'a local model'} by {advice.policy}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title}</h1>{html(advice)}</main></body></html>"
    )
