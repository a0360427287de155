"""The two pictures of page one: everybody's influence beside its limit, and members found at low rates of error."""

import math
from collections.abc import Iterator
from itertools import pairwise
from typing import Any, NamedTuple

from privgate.evidence import AttackFigures
from privgate.evidence.figures import fold, number, percent
from privgate.policy.rules import about
from privgate.report import people
from privgate.report.charts import DASHED, DOTTED, LIMIT, SERIES, SOFT, Drawing
from privgate.report.schema import FigureName, ReportDocument, UnitsSummary
from privgate.report.sentences import say
from privgate.report.text import plain

#: rate of false accusations up to which the second picture looks
_LOW_RATES = 0.1
_NAMED_RATE = 0.01
_HEIGHT = 2.3
#: points; half the page's width shrinks them
_LETTERS = 16


class Picture(NamedTuple):
    """A drawing under its question, and what it shows in one sentence."""

    title: str
    #: drawn by ``privgate.report.charts``; empty where there is nothing to draw
    svg: str
    caption: str


def draw(doc: ReportDocument) -> list[Picture]:
    """Return both pictures; where one cannot be drawn, its caption says why."""
    return [draw_influence(doc), _draw_attack(doc)]


def draw_influence(doc: ReportDocument) -> Picture:
    """Return everybody's influence, largest first, or that of those listed, beside the limit."""
    title, units = say("picture.influence"), doc.units
    limit, figure = people.limit_of(doc)
    if math.isnan(limit):
        limit = min(_high_influence(doc), default=math.nan)
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
    with Drawing("everybody", height=_HEIGHT) as d:
        x, y = [k for k, _ in steps], [min(v, top) for _, v in steps]
        d.axes.fill_between(x, y, step="post", color=SERIES[0], alpha=0.15, linewidth=0)
        d.axes.step(x, y, where="post", color=SERIES[0])
        d.axes.set_xlim(0, x[-1])
        d.axes.set_ylim(0, top)
        if math.isfinite(limit):
            d.axes.axhline(limit, color=LIMIT, linestyle=DASHED)
        named = limit if math.isfinite(limit) else max(finite)
        _ticks(d.axes.yaxis, {0.0: fold(0.0), named: fold(named)})
        _ticks(d.axes.xaxis, {})
    return Picture(title, d.svg, caption)


def _high_influence(doc: ReportDocument) -> Iterator[float]:
    """Yield what rules on the share of people take for high influence, nats."""
    for m in doc.evidence.measurements:
        if about(m.request.metric).per_unit and (least := m.request.option("threshold")) and m.unit == "fraction":
            yield float(least)


def _rank(units: UnitsSummary, figure: FigureName) -> list[tuple[float, float]]:
    """Return (people so far, nats), largest first; each range stands at its upper end, a hidden count between others.

    Counts that are hidden share what is left of all people evenly.
    """
    made = units.figures[figure]
    cells = [(high, count) for (_, high), count in zip(pairwise(made.edges), made.counts, strict=True)]
    cells.append((math.inf, made.unbounded))
    hidden = sum(count is None for _, count in cells)
    rest = (units.n - sum(count or 0 for _, count in cells)) / max(hidden, 1)
    steps, so_far = list[tuple[float, float]](), 0.0
    for nats, count in reversed(cells):
        if count != 0:
            steps.append((so_far, nats))
            so_far += rest if count is None else count
    return [*steps, (so_far, steps[-1][1])]


def _draw_attack(doc: ReportDocument) -> Picture:
    title = say("picture.attack")
    ran = [(a, a.figures) for a in doc.attacks if a.figures is not None and a.figures.roc]
    if not ran:
        return Picture(title, "", say("picture.no_attack"))
    attack, found = max(ran, key=lambda r: [_find_rate(r[1], rate) for rate in (_NAMED_RATE, _LOW_RATES)])
    caption = say("picture.best", attack=plain(attack.title or attack.name, 80), count=len(ran))
    at, most = _find_rate(found, _NAMED_RATE), _find_rate(found, _LOW_RATES)
    points = [(0.0, 0.0), *((p[0], p[1]) for p in found.roc if p[0] <= _LOW_RATES), (_LOW_RATES, most)]
    with Drawing("low-rates", height=_HEIGHT) as d:
        d.axes.plot([0, _LOW_RATES], [0, _LOW_RATES], color=SOFT, linestyle=DOTTED)
        d.axes.step([p[0] for p in points], [p[1] for p in points], where="post", color=SERIES[0])
        if any(0 < false <= _NAMED_RATE for false, _ in points):  # finer rates than a sample's would tell few people
            d.axes.plot([_NAMED_RATE], [at], marker="o", color=SERIES[0], clip_on=False)
            away = {"xytext": (6, 5), "textcoords": "offset points", "fontsize": _LETTERS}
            d.axes.annotate(percent(at), (_NAMED_RATE, at), **away)
        d.axes.set_xlim(0, _LOW_RATES)
        d.axes.set_ylim(0, min(max(0.2, 1.1 * most), 1.02))
        _ticks(d.axes.xaxis, {rate: percent(rate) for rate in (_NAMED_RATE, _LOW_RATES)})
        _ticks(d.axes.yaxis, {most: percent(most)})
    return Picture(title, d.svg, caption)


def _find_rate(figures: AttackFigures, fpr: float) -> float:
    return max((tpr for false, tpr in figures.roc if false <= fpr), default=0.0)


def _ticks(axis: Any, named: dict[float, str]) -> None:
    axis.set_ticks(list(named), list(named.values()), fontsize=_LETTERS)
