"""The two drawings of page one: everybody's influence beside its limit, and members found at low rates of error.

Inline SVG, computing nothing; the same numbers give the same bytes. Colours are the page's custom properties, so that
one drawing serves light, dark and print; every line differs by its dash as well.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from itertools import pairwise
from pathlib import Path
from typing import NamedTuple
from xml.sax.saxutils import escape

from privgate.evidence import AttackFigures
from privgate.evidence.figures import fold, number, percent
from privgate.policy.rules import about
from privgate.report.schema import FigureName, ReportDocument, UnitsSummary
from privgate.report.text import plain, say

# the page's custom properties
SOFT, LIMIT, SERIES = "chart-soft", "chart-limit", "chart-a"
DOTTED, DASHED = "2 3", "11 4"

#: rate of false accusations up to which the second picture looks
_LOW_RATES = 0.1
_NAMED_RATE = 0.01
#: of every drawing, and what is left free above and below the axes; letters are shrunk to half a page's width
_WIDTH, _HEIGHT, _ABOVE, _BELOW, _LETTERS = 547.0, 166.0, 14.0, 136.0, 16.0

Point = tuple[float, float]


def _line(points: Iterable[Point], colour: str, width: float = 1.8, dashes: str = "") -> str:
    path = "L".join(f"{x:.2f} {y:.2f}" for x, y in points)
    more = f"; stroke-dasharray: {dashes}" if dashes else ""
    return f'<path d="M{path}" style="fill: none; stroke: var(--{colour}); stroke-width: {width:g}{more}"/>'


def _word(text: str, point: Point, anchor: str) -> str:
    style = f"font-size: {_LETTERS:g}px; font-family: inherit; fill: var(--ink)"
    return f'<text x="{point[0]:.2f}" y="{point[1]:.2f}" text-anchor="{anchor}" style="{style}">{escape(text)}</text>'


class Drawing:
    """Two axes that begin at 0 and end at ``right`` and ``top``, with named places, and what is drawn between them."""

    def __init__(self, right: float, top: float, xs: Mapping[float, str], ys: Mapping[float, str]) -> None:
        self._right, self._top = right, top
        self._start = 10 + 0.62 * _LETTERS * max(map(len, ys.values()))
        self.parts = [_line([self.at(0, top), self.at(0, 0), self.at(right, 0)], SOFT, 0.8)]
        for x, text in xs.items():
            a, b = self.at(x, 0)
            self.parts += [_line([(a, b), (a, b + 4)], SOFT, 0.8), _word(text, (a, b + _LETTERS + 4), "middle")]
        for y, text in ys.items():
            a, b = self.at(0, y)
            self.parts += [_line([(a - 4, b), (a, b)], SOFT, 0.8), _word(text, (a - 7, b + 0.35 * _LETTERS), "end")]

    def at(self, x: float, y: float) -> Point:
        """Return where a figure stands; one beyond an axis stands at its end."""
        across, up = (min(max(v / end, 0.0), 1.0) for v, end in ((x, self._right), (y, self._top)))
        return self._start + across * (_WIDTH - 28 - self._start), _BELOW + up * (_ABOVE - _BELOW)

    def line(self, points: Iterable[Point], colour: str, dashes: str = "") -> None:
        """Draw a line through figures."""
        self.parts.append(_line([self.at(*p) for p in points], colour, dashes=dashes))

    def fill(self, points: Iterable[Point], colour: str) -> None:
        """Tint what lies within figures."""
        path = "L".join(f"{x:.2f} {y:.2f}" for x, y in (self.at(*p) for p in points))
        self.parts.append(f'<path d="M{path}z" style="fill: var(--{colour}); opacity: 0.15"/>')

    def svg(self) -> str:
        """Return the drawing; screen readers read the page's heading and caption, which say all that is drawn."""
        box = f'viewBox="0 0 {_WIDTH:g} {_HEIGHT:g}"'
        return f'<svg class="chart" {box} aria-hidden="true">{"".join(self.parts)}</svg>'


def _list_steps(points: Sequence[Point]) -> list[Point]:
    """Return the corners of stairs, each figure lasting until the next."""
    return [*(corner for (x, y), (then, _) in pairwise(points) for corner in ((x, y), (then, y))), points[-1]]


class Picture(NamedTuple):
    """A drawing under its question, and what it shows in one sentence; a notebook shows it, ``save`` keeps it."""

    title: str
    #: empty where there is nothing to draw
    svg: str
    caption: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        """Return title and caption: what those read who see no picture."""
        return f"<Picture {self.title}. {self.caption}>"

    def save(self, path: str | Path) -> Path:
        """Write the SVG and return where."""
        place = Path(path)
        place.write_text(self.svg, encoding="utf-8")
        return place


def draw(doc: ReportDocument) -> list[Picture]:
    """Return both pictures; where one cannot be drawn, its caption says why."""
    return [draw_influence(doc), _draw_attack(doc)]


def find_limit(doc: ReportDocument) -> tuple[float, FigureName]:
    """Return the limit that rules set on single people, nats, and the figure to draw it on; NaN without one."""
    upper = doc.units and doc.units.figures.get("dtp_upper")
    everywhere: FigureName = "dtp_upper" if upper and any(map(math.isfinite, upper.quantiles.values())) else "dtp_lower"
    findings = [f for f in doc.rules if f.unit == "nats" and math.isfinite(f.limit) and about(f.metric).per_unit]
    for f in sorted(findings, key=lambda f: about(f.metric).direct_only):
        return f.limit, "pdtp" if about(f.metric).direct_only else everywhere
    return math.nan, "pdtp"


def draw_influence(doc: ReportDocument) -> Picture:
    """Return everybody's influence, largest first, or that of those listed, beside the limit."""
    title, units = say("picture.influence"), doc.units
    limit, figure = find_limit(doc)
    if math.isnan(limit):
        # what rules on the share of people take for high influence
        per_person = (m.request for m in doc.evidence.measurements if m.unit == "fraction")
        high = (r.option("threshold") for r in per_person if about(r.metric).per_unit)
        limit = min((float(nats) for nats in high if nats), default=math.nan)
    if units is None or not units.worst:
        numbers = doc.evidence.influence is not None and doc.evidence.influence.sensitivity is not None
        return Picture(title, "", say("picture.numbers" if numbers else "picture.no_people"))
    shown, key = [getattr(w, figure) for w in units.worst], "picture.worst"
    steps = [(float(k), v) for k, v in enumerate([*shown, shown[-1]])]
    if units.everybody:
        steps, key = _rank(units, figure), "picture.drawn" if units.n < doc.subject.n_units else "picture.everybody"
    caption = say(key, total=number(units.n))
    caption += f" {say('picture.limit')}" if math.isfinite(limit) else ""
    finite = [v for _, v in steps if math.isfinite(v)]
    if not finite:
        return Picture(title, "", say("picture.unlimited"))
    top = 1.15 * max([*finite, limit] if math.isfinite(limit) else finite) or 1.0
    named = limit if math.isfinite(limit) else max(finite)
    stairs = _list_steps([(k, min(v, top)) for k, v in steps])
    d = Drawing(stairs[-1][0], top, {}, {0.0: fold(0.0), named: fold(named)})
    d.fill([(0, 0), *stairs, (stairs[-1][0], 0)], SERIES)
    d.line(stairs, SERIES)
    if math.isfinite(limit):
        d.line([(0, limit), (stairs[-1][0], limit)], LIMIT, dashes=DASHED)
    return Picture(title, d.svg(), caption)


def _rank(units: UnitsSummary, figure: FigureName) -> list[tuple[float, float]]:
    """Return (people so far, nats), largest first; each range between quantiles stands at its upper end."""
    told = sorted((float(q), nats) for q, nats in units.figures[figure].quantiles.items() if not math.isnan(nats))
    steps = [(units.n * (1 - q), nats) for q, nats in reversed(told)]
    return [*steps, (float(units.n), steps[-1][1])]


def _draw_attack(doc: ReportDocument) -> Picture:
    title = say("picture.attack")
    ran = [(a, a.figures) for a in doc.attacks if a.figures is not None and a.figures.roc]
    if not ran:
        return Picture(title, "", say("picture.no_attack"))
    attack, figures = max(ran, key=lambda r: [_find_rate(r[1], rate) for rate in (_NAMED_RATE, _LOW_RATES)])
    caption = say("picture.best", attack=plain(attack.title or attack.name, 80), count=len(ran))
    at, most = _find_rate(figures, _NAMED_RATE), _find_rate(figures, _LOW_RATES)
    points = [(0.0, 0.0), *((p[0], p[1]) for p in figures.roc if p[0] <= _LOW_RATES), (_LOW_RATES, most)]
    xs = {rate: percent(rate) for rate in (_NAMED_RATE, _LOW_RATES)}
    top = min(max(0.2, 1.1 * most), 1.02)
    d = Drawing(_LOW_RATES, top, xs, {most: percent(most)})
    d.line([(0, 0), (min(_LOW_RATES, top), min(_LOW_RATES, top))], SOFT, dashes=DOTTED)
    d.line(_list_steps(points), SERIES)
    if any(0 < false <= _NAMED_RATE for false, _ in points):  # finer rates than a sample's would tell few people
        x, y = d.at(_NAMED_RATE, at)
        style = f'style="fill: var(--{SERIES}); opacity: 1"'
        d.parts += [f'<circle cx="{x:.2f}" cy="{y:.2f}" r="4" {style}/>', _word(percent(at), (x + 8, y - 7), "start")]
    return Picture(title, d.svg(), caption)


def _find_rate(figures: AttackFigures, fpr: float) -> float:
    return max((tpr for false, tpr in figures.roc if false <= fpr), default=0.0)
