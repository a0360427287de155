"""The drawings of the report: two of page one, and one of the people whose records matter most.

Matplotlib to inline SVG, the same numbers giving the same bytes. Each draws what it is given and computes nothing about
privacy. Colours are placeholders while drawing and become the page's custom properties, so that one drawing serves
light, dark and print; every series differs by its mark or dash as well. Text stays text.
"""

import io
import logging
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from itertools import pairwise
from typing import Any, NamedTuple, Self
from xml.sax.saxutils import escape

from privgate.evidence import AttackFigures
from privgate.evidence.figures import fold, number, percent
from privgate.policy.rules import about
from privgate.report.schema import FigureName, ReportDocument, UnitsSummary, WorstUnit
from privgate.report.sentences import say
from privgate.report.text import plain

# what matplotlib draws with
INK, SOFT, GRID, LIMIT = "#010101", "#020202", "#030303", "#0b0b01"
SERIES = ("#0a0a01", "#0a0a02")
#: what the page shows instead: its custom properties
_SHOWN = {INK: "ink", SOFT: "chart-soft", GRID: "chart-grid", LIMIT: "chart-limit",
          SERIES[0]: "chart-a", SERIES[1]: "chart-b"}  # fmt: skip
DOTTED, DASHED = (0, (1, 1.5)), (0, (6, 2))
_SETTINGS: Mapping[str, Any] = {
    "svg.hashsalt": "privgate",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    **dict.fromkeys(("axes.edgecolor", "xtick.color", "ytick.color"), SOFT),
    **dict.fromkeys(("axes.labelcolor", "text.color", "xtick.labelcolor", "ytick.labelcolor"), INK),
    **dict.fromkeys(("axes.spines.top", "axes.spines.right", "legend.frameon"), False),
    "grid.color": GRID,
    "axes.axisbelow": True,
    "lines.linewidth": 1.8,
}

#: rate of false accusations up to which the second picture looks
_LOW_RATES = 0.1
_NAMED_RATE = 0.01
_HEIGHT = 2.3
#: points; half the page's width shrinks them
_LETTERS = 16


class Drawing:
    """One chart in the making; ``with Drawing(…) as d`` keeps matplotlib's settings local, ``d.svg`` holds it after.

    ``name`` is the prefix of every id on the page, ``height`` is in inches at a width of 7.6. ``title`` and ``desc``
    are for screen readers; without them the page's heading and caption say all that is drawn, and it is read once.
    """

    def __init__(self, name: str, title: str = "", desc: str = "", *, height: float) -> None:
        self.name, self.title, self.desc, self.height = name, title, desc, height
        self.svg = ""

    def __enter__(self) -> Self:
        import matplotlib as mpl
        from matplotlib.figure import Figure

        # names in scripts the metrics font lacks are drawn by the reader's own fonts
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        self._settings = mpl.rc_context(dict(_SETTINGS))
        self._settings.__enter__()
        self.figure = Figure(figsize=(7.6, self.height), layout="constrained")
        self.axes: Any = self.figure.add_subplot()
        return self

    def __exit__(self, *exc: object) -> None:
        with ExitStack() as stack:
            stack.push(self._settings)
            stack.enter_context(warnings.catch_warnings())
            if exc[0] is None:
                warnings.filterwarnings("ignore", message="Glyph")
                out = io.StringIO()
                self.figure.patch.set_visible(False)
                self.axes.patch.set_visible(False)
                nothing = dict.fromkeys(("Date", "Creator", "Format", "Type"))
                self.figure.savefig(out, format="svg", metadata=nothing)
                self.svg = self._inline(out.getvalue())

    def _inline(self, svg: str) -> str:
        """Return the drawing with ids of its own and the page's colours, its title and description before it."""
        name, box = self.name, re.search(r'viewBox="([^"]+)"', svg)
        inner = svg[svg.index(">", svg.index("<svg")) + 1 : svg.rindex("</svg>")]
        inner = re.sub(r"<metadata>.*?</metadata>|<!--.*?-->\s*", "", inner, flags=re.DOTALL)
        inner = re.sub(r'(\bid="|href="#|url\(#)', rf"\1{name}-", inner)
        for placeholder, colour in _SHOWN.items():
            inner = inner.replace(placeholder, f"var(--{colour})")
        inner = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", inner)
        inner = inner.replace("xlink:href", "href").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "").strip()
        title, desc = (escape(plain(text)) for text in (self.title, self.desc))
        read = (
            f'role="img" aria-labelledby="{name}-title {name}-desc">'
            f'<title id="{name}-title">{title}</title><desc id="{name}-desc">{desc}</desc>'
        )
        if not title:
            read, inner = 'aria-hidden="true">', re.sub(r"<style.*?</style>", "", inner, flags=re.DOTALL)
        return f'<svg class="chart" viewBox="{box[1] if box else "0 0 547 230"}" {read}{inner}</svg>'


def intervals(title: str, *, rows: Sequence[WorstUnit], limit: float, top: float) -> str:
    """Return one horizontal line a person: PDTP, the certain range of DTP, the noise floor, the limit.

    ``top`` is the right end of what is finite, nats; infinite figures have a lane of their own beyond it.
    """
    desc = "Interval plot: one line a person, PDTP as a dot, DTP as a band."
    with Drawing("worst", title, desc, height=1.5 + 0.3 * len(rows)) as d:
        ax, lane = d.axes, 1.05 * top  # the lane of what is unlimited lies beyond everything finite
        named: set[str] = set()

        def mark(label: str, x: list[float], y: list[float], **style: Any) -> None:
            ax.plot(x, y, label=None if label in named else label, **style)
            named.add(label)

        alone: dict[str, Any] = {"linestyle": "none"}
        band: dict[str, Any] = {"color": SERIES[0], "alpha": 0.45}
        for y, r in zip(range(len(rows), 0, -1), rows, strict=True):
            low, high = r.dtp_lower, r.dtp_upper
            if math.isinf(low):
                mark("DTP is unlimited", [lane], [y], marker="s", markersize=13, **band, **alone)
            else:
                style = {**band, "linewidth": 5, "solid_capstyle": "projecting"}
                mark("DTP lies in this range", [low, min(high, lane)], [y, y], **style)
                if math.isinf(high):
                    mark("no upper limit known", [lane], [y], marker=">", markersize=9, color=SERIES[0], **alone)
            mark("PDTP, direct queries", [min(r.pdtp, lane)], [y], marker="o", markersize=7, color=INK, **alone)
            if r.noise_floor > 0:
                style = {"color": SERIES[1], "linestyle": DOTTED, "linewidth": 2.5}
                mark("noise floor", [min(r.noise_floor, lane)] * 2, [y - 0.3, y + 0.3], **style)
        ax.set_yticks(range(len(rows), 0, -1), [plain(r.unit, 20)[:8] for r in rows], fontfamily="monospace")
        ax.set_ylim(0.3, len(rows) + 0.7)
        ax.grid(axis="x")
        ax.set_xlim(0, top)
        if any(math.isinf(v) for r in rows for v in (r.pdtp, r.dtp_lower, r.dtp_upper)):
            ticks = [t for t in ax.get_xticks() if 0 <= t < 0.97 * top]
            ax.set_xticks([*ticks, lane], [*(number(t) for t in ticks), "\u221e"])
            ax.axvline(top, color=SOFT, linestyle=DOTTED, linewidth=1.2)
            ax.set_xlim(0, 1.1 * top)
        ax.set_xlabel("nats (0 is no change)")
        if math.isfinite(limit):
            ax.axvline(limit, color=LIMIT, linestyle=DASHED, linewidth=2)
            where = {"xycoords": ("data", "axes fraction"), "xytext": (4, 4), "textcoords": "offset points",
                     "va": "bottom"}  # fmt: skip
            ax.annotate(f"limit {number(limit)}", (limit, 1), **where, color=LIMIT, annotation_clip=False)
        d.figure.legend(loc="outside lower center", ncols=2, fontsize=10)
    return d.svg


# The two pictures of page one: everybody's influence beside its limit, and members found at low rates of error.


class Picture(NamedTuple):
    """A drawing under its question, and what it shows in one sentence."""

    title: str
    #: drawn by ``privgate.report.charts``; empty where there is nothing to draw
    svg: str
    caption: str


def draw(doc: ReportDocument) -> list[Picture]:
    """Return both pictures; where one cannot be drawn, its caption says why."""
    return [draw_influence(doc), _draw_attack(doc)]


def find_limit(doc: ReportDocument) -> tuple[float, FigureName]:
    """Return the limit that rules set on single people, nats, and the figure to draw it on; NaN without one."""
    upper = doc.units and doc.units.figures.get("dtp_upper")
    everywhere: FigureName = "dtp_upper" if upper and any(upper.counts) else "dtp_lower"
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


def _rank(units: UnitsSummary, figure: FigureName) -> list[tuple[float, float]]:
    """Return (people so far, nats), largest first; each range stands at its upper end, a hidden count between others.

    Counts that are hidden share what is left of all people evenly.
    """
    summary = units.figures[figure]
    cells = [(high, count) for (_, high), count in zip(pairwise(summary.edges), summary.counts, strict=True)]
    cells.append((math.inf, summary.unbounded))
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
    attack, figures = max(ran, key=lambda r: [_find_rate(r[1], rate) for rate in (_NAMED_RATE, _LOW_RATES)])
    caption = say("picture.best", attack=plain(attack.title or attack.name, 80), count=len(ran))
    at, most = _find_rate(figures, _NAMED_RATE), _find_rate(figures, _LOW_RATES)
    points = [(0.0, 0.0), *((p[0], p[1]) for p in figures.roc if p[0] <= _LOW_RATES), (_LOW_RATES, most)]
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
