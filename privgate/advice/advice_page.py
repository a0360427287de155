"""Advice as people read it: a table for the terminal, a picture of risk against usefulness, and one page."""

import json
import math
from collections.abc import Iterator, Sequence
from html import escape
from pathlib import Path
from typing import Self

from pydantic import ValidationError

from privgate.advice.point import Point, Tried, front
from privgate.documents import LARGE, strict_json
from privgate.errors import UsageError
from privgate.evidence import encode
from privgate.evidence.figures import figure
from privgate.outcome import Outcome

# Risk against usefulness as a self-contained SVG: what lies left of the dashed line keeps the limit.

_WIDTH, _HEIGHT, _LEFT, _BELOW, _ABOVE, _RIGHT = 720, 380, 70, 84, 34, 26  # pixels of the drawing, and of its margins
#: decades of risk over the limit that are drawn; whatever lies beyond stands at the edge
_NEAREST, _FURTHEST = -2.0, 1.3
#: decades of the distance to the limit
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
    title = f"Risk against {advice.measure} of every change"
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
    y, shown = _HEIGHT - 14, ((_PASSES, _PASSES, 2, 5, "approved"), (_FAILS, "#fff", 2, 5, "refused or undecided"),
                              (_PASSES, _PASSES, 4, 7, "advised"))  # fmt: skip
    made, x = [], float(_LEFT)
    for color, inside, width, r, words in shown:
        # a square of the key is no candidate
        made.append(
            f'<rect x="{x:.0f}" y="{y - r - 4:.0f}" width="{2 * r}" height="{2 * r}" rx="{r}" fill="{inside}" '
            f'stroke="{color}" stroke-width="{width}"/><text x="{x + 22:.0f}" y="{y}">{words}</text>'
        )
        x += 40 + 7 * len(words)
    made.append(f'<text x="{x:.0f}" y="{y}" fill="{_SOFT}">the line: beaten in both by none</text>')
    return "".join(made)


_LETTERS, _LINES = 56, 12  # of the drawing in a terminal


def drawn(advice: Tried) -> Iterator[str]:
    """Yield the lines of the picture, then those candidates that none beats in both, each with what it costs."""
    shown = [p for p in advice.points if not math.isnan(p.of_limit) and not math.isnan(p.useful)]
    if not shown:
        return
    low, high = useful_range(shown)
    rows = [[" "] * _LETTERS for _ in range(_LINES)]
    bar = _column(1.0)
    for row in rows:
        row[bar] = "|"
    best = {p.number for p in advice.best[:1]}
    for p in sorted(shown, key=lambda p: p.number in best):  # what is advised is drawn over the others
        down = round((high - max(p.useful, low)) / (high - low) * (_LINES - 1))
        rows[down][_column(p.of_limit)] = "@" if p.number in best else "o" if p.passes else "x"
    least = "; the lowest line holds what is lower" if any(p.useful < low for p in shown) else ""
    signs = "o approved, x refused or undecided, @ advised, | the limit"
    yield f"{advice.measure} against risk over the limit: {signs}{least}"
    for k, row in enumerate(rows):
        label = f"{high:.4g}" if k == 0 else f"{low:.4g}" if k == _LINES - 1 else ""
        yield f"{label:>8} {''.join(row).rstrip()}"
    yield f"{'':>8} {_ticks(bar)}"
    yield "beaten in both by none:"
    present = advice.points[0]
    for p in front(shown):
        yield f"  {p.number:>3}  {p.of_limit:.3g} of the limit, {advice.measure} {p.useful:.4f}{_cost(p, present)}"


def _column(of_limit: float) -> int:
    decades = _NEAREST if of_limit <= 0 else min(max(math.log10(min(of_limit, 1e9)), _NEAREST), _FURTHEST)
    at = round((decades - _NEAREST) / (_FURTHEST - _NEAREST) * (_LETTERS - 1))
    # what is beyond the limit by little must not stand on the other side of it
    edge = round(-_NEAREST / (_FURTHEST - _NEAREST) * (_LETTERS - 1))
    return edge if of_limit == 1 else max(at, edge + 1) if of_limit > 1 else min(at, edge - 1)


def _ticks(bar: int) -> str:
    line = [" "] * (_LETTERS + 8)
    for at, words in ((0, "1/100"), (_column(0.1), "1/10"), (bar, "1"), (_column(10.0), "10 times")):
        line[at : at + len(words)] = list(words)
    return "".join(line).rstrip()


def _cost(p: Point, present: Point) -> str:
    if p.number == present.number:
        return ", as it stands"
    lost = "" if math.isnan(present.useful) else f" ({p.useful - present.useful:+.4f})"
    return f"{lost}, measured with {p.trainings} trainings: {p.change.says}"


_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;"
    "background:#fff}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".best td{font-weight:600}svg{display:block;width:100%;max-width:52rem;height:auto;margin:1rem 0}"
)


def summary(advice: Tried) -> str:
    """Return in a sentence or two what came out."""
    present = advice.points[0]
    if present.passes:
        return "The model as it stands keeps every rule in the search; check it."
    if not advice.best:
        return f"No change that was tried keeps {advice.policy} and answers well. {_why_none(advice)}"
    found, useful = advice.best[0], f"{present.useful:.4f} becomes "
    cost = f"{advice.measure[:1].upper()}{advice.measure[1:]} {'' if math.isnan(present.useful) else useful}"
    cost += f"{found.useful:.4f}"
    if not math.isnan(found.confirmed_useful):
        cost += f", and {found.confirmed_useful:.4f} on folds that the search did not choose by"
    says, saw = found.change.says, f"{_shown(found.confirmed_value, found.unit)}, and the search saw {_number(found)}"
    other = "" if present.rule == found.rule else f" ({present.rule})"
    return (
        f"{says[:1].upper()}{says[1:]}: {_number(found)} where {_shown(found.limit, found.unit)} is allowed. "
        f"The model as it stands has {_number(present)}{other}. {cost}. A whole check with other randomness agrees: "
        f"{saw}. It was chosen among {len(advice.points) - 1} changes."
    )


def _why_none(advice: Tried) -> str:
    """Return in sentences what ended the candidates, and which was nearest."""
    tried, ends = [p for p in advice.points[1:] if not p.change.games], dict[str, list[Point]]()
    for p in tried:
        ends.setdefault(_end(p), []).append(p)
    counted = ", ".join(f"{len(found)} {end}" for end, found in ends.items())
    said = (
        [f"Of {len(tried)} change{'s' * (len(tried) != 1)}: {counted}."]
        if tried
        else [": ".join(["Nothing was tried", *advice.left[:1]]) + "."]
    )
    if near := ends.get(_BEYOND):
        least = min(near, key=lambda p: p.of_limit)
        limit = f"{_shown(least.limit, least.unit)} ({least.rule})"
        said.append(f"The nearest was {least.change.says!r} with {_number(least)} of {limit}.")
    said += [f"One reason: {p.why}." for p in ends.get(_UNDECIDED, [])[:1]]
    if advice.measure == "accuracy" and advice.points[0].useful <= advice.points[0].floor:
        said.append("The model as it stands answers no better either: where labels are rare, try --measure auc.")
    return " ".join(said)


_BEYOND, _UNDECIDED = "beyond the limit or perhaps so", "undecided"


def _end(p: Point) -> str:
    if not p.worth and not math.isnan(p.useful):
        return "no better than an answer that ignores the features"
    if not p.passes:
        return _UNDECIDED if math.isnan(p.of_limit) else _BEYOND
    if p.confirmed and Outcome(p.confirmed).releases:
        return "no better than that on other folds"
    return "not approved by a whole check" if p.confirmed else "approved in the search alone"


def _number(point: Point) -> str:
    if math.isnan(point.of_limit):
        return "an undecided risk"
    return _shown(point.value, point.unit)


def _shown(value: float, unit: str) -> str:
    if not math.isfinite(value):
        return "without limit"
    return figure(value, unit) if unit != "nats" else f"{value:.3g} nat{'s' * (f'{value:.3g}' != '1')}"


def _rows(advice: Tried) -> Iterator[tuple[str, ...]]:
    for p in advice.points:
        again = "" if math.isnan(p.confirmed_value) else f" at {_shown(p.confirmed_value, p.unit)}"
        whole = f", a whole check: {Outcome(p.confirmed).word}{again}" if p.confirmed else ""
        result, folds = Outcome(p.outcome).word + whole, p.confirmed_useful
        other = f", other folds {'unknown' if math.isinf(folds) else f'{folds:.4f}'}" if not math.isnan(folds) else ""
        useful = "" if math.isnan(p.useful) else f"{p.useful:.4f} ± {p.useful_error:.4f}{other}"
        risk = "unknown" if math.isnan(p.of_limit) else f"{_number(p)} of {_shown(p.limit, p.unit)}"
        why = f" ({p.why})" if math.isnan(p.of_limit) and p.why else ""
        yield str(p.number), result, risk, useful, f"{p.trainings} in {p.seconds:.0f} s", f"{p.change.says}{why}"


def text(advice: Tried) -> str:
    """Return a table for the terminal."""
    head = ("no", "result", "risk of limit", advice.measure, "trainings", "change")
    rows = [head, *_rows(advice)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[-1]]) for r in rows]
    games = [f"{p.number}: not advised: {p.change.games}" for p in advice.points if p.change.games]
    return "\n".join([*lines, *games, *(f"not tried: {left}" for left in advice.left)])


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


class Advice(Tried):
    """What was tried, kept and shown; see ``Tried`` for its parts."""

    def _repr_html_(self) -> str:
        return html(self)

    def __repr__(self) -> str:
        """Return what came out, in words."""
        return f"<Advice: {summary(self)}>"

    def payload(self) -> dict[str, object]:
        """Return JSON values; infinities and NaN become text."""
        found: dict[str, object] = encode(self.model_dump())
        return found

    def write(self, path: Path) -> None:
        """Write ``payload`` to a file."""
        path.write_text(json.dumps(self.payload(), indent=1), encoding="utf-8")

    @classmethod
    def read(cls, path: Path) -> Self:
        """Return the advice in a file.

        Raises
        ------
        UsageError
            There is none, or it is not what ``privgate advise`` writes.
        """
        if not path.is_file():
            raise UsageError(f"there is no advice in {path}; run `privgate advise` first, or name its --out folder")
        try:
            return cls.model_validate(strict_json.read(path, LARGE))
        except ValidationError as exc:
            first = exc.errors()[0]
            raise UsageError(f"{path}: {'.'.join(map(str, first['loc']))}: {first['msg']}") from exc
