"""The charts of the report: matplotlib to inline SVG, the same numbers giving the same bytes.

Each draws what it is given and computes nothing about privacy. Colours are placeholders while drawing and become the
page's custom properties, so that one drawing serves light, dark and print; every series differs by its mark or dash as
well. Text stays text.
"""

import io
import logging
import math
import re
import warnings
from collections.abc import Mapping, Sequence
from contextlib import ExitStack
from dataclasses import dataclass
from itertools import pairwise
from typing import Any, Self
from xml.sax.saxutils import escape

from privgate.evidence.figures import number
from privgate.report.text import plain

# what matplotlib draws with -> what the page shows
_INK = {
    "#010101": "var(--ink)",
    "#020202": "var(--chart-soft)",
    "#030303": "var(--chart-grid)",
    "#040404": "var(--paper)",
    "#0a0a01": "var(--chart-a)",
    "#0a0a02": "var(--chart-b)",
    "#0a0a03": "var(--chart-c)",
    "#0a0a04": "var(--chart-d)",
    "#0b0b01": "var(--chart-limit)",
}
INK, SOFT, GRID, PAPER = "#010101", "#020202", "#030303", "#040404"
SERIES = ("#0a0a01", "#0a0a02", "#0a0a03", "#0a0a04")
LIMIT = "#0b0b01"
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)))
_SETTINGS: Mapping[str, Any] = {
    "svg.hashsalt": "privgate",
    "svg.fonttype": "none",
    "text.parse_math": False,
    "axes.unicode_minus": True,
    "font.family": "sans-serif",
    "font.sans-serif": ["DejaVu Sans"],
    "font.size": 11,
    "axes.edgecolor": SOFT,
    "axes.labelcolor": INK,
    "text.color": INK,
    "xtick.color": SOFT,
    "ytick.color": SOFT,
    "xtick.labelcolor": INK,
    "ytick.labelcolor": INK,
    "grid.color": GRID,
    "axes.spines.top": False,
    "axes.spines.right": False,
    "axes.axisbelow": True,
    "legend.frameon": False,
    "lines.linewidth": 1.8,
    "hatch.linewidth": 0.8,
}
_LABEL = 44


class Drawing:
    """One chart in the making; ``with Drawing(…) as d`` keeps matplotlib's settings local, ``d.svg`` holds it after.

    ``name`` is the prefix of every id on the page, ``title`` and ``desc`` are for screen readers, ``height`` is in
    inches at a width of 7.6.
    """

    def __init__(self, name: str, title: str, desc: str, *, height: float = 3.2) -> None:
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        # names in scripts the metrics font lacks are drawn by the reader's own fonts
        logging.getLogger("matplotlib").setLevel(logging.ERROR)
        self.name, self.title, self.desc = name, title, desc
        self.svg = ""
        self._stack = ExitStack()
        with self._stack:
            self._stack.enter_context(mpl.rc_context(dict(_SETTINGS)))
            self.figure = Figure(figsize=(7.6, height), layout="constrained")
            self.canvas = FigureCanvasSVG(self.figure)
            self.axes: Any = self.figure.add_subplot()
            self._stack = self._stack.pop_all()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        with self._stack, warnings.catch_warnings():
            if exc[0] is None:
                warnings.filterwarnings("ignore", message="Glyph")
                out = io.StringIO()
                self.figure.patch.set_visible(False)
                self.axes.patch.set_visible(False)
                self.canvas.print_svg(out, metadata={"Date": None, "Creator": None, "Format": None, "Type": None})
                self.svg = _inline(out.getvalue(), self.name, self.title, self.desc)

    def limit(self, x: float, text: str) -> None:
        """Draw a vertical limit line with its words at the top; a limit without an end has no place."""
        if not math.isfinite(x):
            return
        self.axes.axvline(x, color=LIMIT, linestyle=(0, (6, 2)), linewidth=2)
        self.axes.annotate(
            text, (x, 1), xycoords=("data", "axes fraction"), xytext=(4, 4), textcoords="offset points",
            ha="left", va="bottom", color=LIMIT, annotation_clip=False,
        )  # fmt: skip

    def legend(self, columns: int = 0) -> None:
        """Show the legend: below the drawing in so many columns, else within it."""
        if columns:
            self.figure.legend(loc="outside lower center", ncols=columns, fontsize=10)
        else:
            self.axes.legend(loc="upper left", fontsize=10)

    def rows(self, names: Sequence[str], **font: Any) -> None:
        """Name the rows, the first at the top."""
        self.axes.set_yticks(range(len(names), 0, -1), names, **font)
        self.axes.set_ylim(0.3, len(names) + 0.7)
        self.axes.grid(axis="x")

    def beyond(self, lane: float, end: float) -> None:
        """Mark the lane of what is infinite, beyond the finite end of the axis."""
        ticks = [t for t in self.axes.get_xticks() if 0 <= t < 0.97 * end]
        self.axes.set_xticks([*ticks, lane], [*(number(t) for t in ticks), "\u221e"])

    def percent(self, *axes: Any) -> None:
        """Write the fractions of an axis as percentages."""
        for axis in axes:
            axis.set_major_formatter(lambda v, _: f"{100 * v:g} %")


def _label(value: Any) -> str:
    text = plain(value, 4 * _LABEL)
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def _inline(svg: str, name: str, title: str, desc: str) -> str:
    body = svg[svg.index("<svg") :]
    box = re.search(r'viewBox="([^"]+)"', body)
    inner = body[body.index(">") + 1 : body.rindex("</svg>")]
    inner = re.sub(r"<metadata>.*?</metadata>", "", inner, flags=re.DOTALL)
    inner = re.sub(r"<!--.*?-->\s*", "", inner, flags=re.DOTALL)
    inner = re.sub(r'\bid="([^"]+)"', rf'id="{name}-\1"', inner)
    inner = re.sub(r'href="#([^"]+)"', rf'href="#{name}-\1"', inner)
    inner = re.sub(r"url\(#([^)]+)\)", rf"url(#{name}-\1)", inner)
    for placeholder, colour in _INK.items():
        inner = inner.replace(placeholder, colour)
    inner = re.sub(r"font: ([\d.]+)px [^;\"]*", r"font-size: \1px", inner)
    inner = inner.replace("xlink:href", "href").replace(' xmlns:xlink="http://www.w3.org/1999/xlink"', "")
    return (
        f'<svg class="chart" viewBox="{box[1] if box else "0 0 547 230"}" role="img" '
        f'aria-labelledby="{name}-title {name}-desc">'
        f'<title id="{name}-title">{escape(plain(title))}</title><desc id="{name}-desc">{escape(plain(desc))}</desc>'
        f"{inner.strip()}</svg>"
    )


Curve = Sequence[tuple[float, ...]]


def histogram(
    name: str, title: str, desc: str, *, edges: Sequence[float], counts: Sequence[int | None], unbounded: int | None,
    limit: float,
) -> str:  # fmt: skip
    """Return a histogram with a logarithmic count axis; bins are as wide as the ranges that were joined.

    What has no upper limit stands in a lane of its own, right of all else. A suppressed cell is hatched over the full
    height: how large it is must not be seen.
    """
    with Drawing(name, title, desc) as d:
        ax = d.axes
        widths = [0.96 * (b - a) for a, b in pairwise(edges)]
        right = max(edges[-1], limit * 1.12) if math.isfinite(limit) else edges[-1]
        lane, broad = right + 0.04 * right, 0.08 * right
        top = 2.2 * max([10, *(c for c in counts if c), unbounded or 0])
        known = [(e, c, w) for e, c, w in zip(edges, counts, widths, strict=False) if c]
        hidden = [(e, w) for e, c, w in zip(edges, counts, widths, strict=False) if c is None]
        ax.bar([e for e, _, _ in known], [c for _, c, _ in known], width=[w for _, _, w in known], align="edge",
               color=SERIES[0], label="people or records")  # fmt: skip
        if hidden:
            ax.bar([e for e, _ in hidden], [top] * len(hidden), width=[w for _, w in hidden], align="edge",
                   facecolor="none", hatch="////", edgecolor=SERIES[0], linewidth=1,
                   label="suppressed: how many would tell a small count")  # fmt: skip
        if unbounded is None or unbounded > 0:
            ax.axvline(right + 0.02 * right, color=SOFT, linestyle=DASHES[2], linewidth=1.2)
            hatched = {"facecolor": "none", "edgecolor": SERIES[1], "hatch": "////"}
            said = "no upper limit known" + ("" if unbounded else ": suppressed")
            style = {"color": SERIES[1]} if unbounded else hatched
            ax.bar([lane], [unbounded or top], width=broad, align="edge", label=said, **style)
            d.beyond(lane + broad / 2, right)
            right = lane + broad
        ax.set_yscale("log", subs=())  # no ticks between the powers of ten: they cost more than all the rest
        ax.set_ylim(0.8, top)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}" if v >= 1 else "")
        ax.set_xlim(0, right)
        ax.set_xlabel("change of the model's answer without the person, nats")
        ax.set_ylabel("how many")
        ax.grid(axis="y")
        d.limit(limit, f"limit {number(limit)}")
        d.legend(2)
    return d.svg


@dataclass(frozen=True, slots=True)
class Line:
    """One person in the interval plot, nats; ``high`` may be infinite."""

    unit: str
    pdtp: float
    low: float
    high: float
    noise: float


def intervals(name: str, title: str, desc: str, *, rows: Sequence[Line], limit: float, top: float) -> str:
    """Return one horizontal line a unit: PDTP, the certain range of DTP, the noise floor, the limit.

    ``top`` is the right end of what is finite, nats; infinite figures have a lane of their own beyond it.
    """
    with Drawing(name, title, desc, height=1.5 + 0.3 * len(rows)) as d:
        ax = d.axes
        lane = 1.05 * top  # of what is unlimited, beyond everything finite
        told: set[str] = set()

        def once(text: str) -> str | None:
            return None if text in told or told.add(text) else text  # type: ignore[func-returns-value]  # adds, says None

        for i, r in enumerate(rows):
            y = len(rows) - i
            if math.isinf(r.low):
                ax.plot([lane], [y], marker="s", markersize=13, color=SERIES[0], alpha=0.45, linestyle="none",
                        label=once("DTP is unlimited"))  # fmt: skip
            else:
                ax.plot([r.low, lane if math.isinf(r.high) else r.high], [y, y], color=SERIES[0], linewidth=5,
                        alpha=0.45, solid_capstyle="projecting", label=once("DTP lies in this range"))  # fmt: skip
                if math.isinf(r.high):
                    ax.plot([lane], [y], marker=">", markersize=9, color=SERIES[0], linestyle="none",
                            label=once("no upper limit known"))  # fmt: skip
            ax.plot([min(r.pdtp, lane)], [y], marker="o", markersize=7, color=INK, linestyle="none",
                    label=once("PDTP, direct queries"))  # fmt: skip
            if r.noise > 0:
                ax.plot([min(r.noise, lane)] * 2, [y - 0.3, y + 0.3], color=SERIES[1], linestyle=DASHES[2],
                        linewidth=2.5, label=once("noise floor"))  # fmt: skip
        d.rows([str(r.unit) for r in rows], fontfamily="monospace")
        ax.set_xlim(0, top)
        if any(math.isinf(v) for r in rows for v in (r.pdtp, r.low, r.high)):
            ax.axvline(top, color=SOFT, linestyle=DASHES[2], linewidth=1.2)
            d.beyond(lane, top)
            ax.set_xlim(0, 1.1 * top)
        ax.set_xlabel("nats (0 is no change)")
        d.limit(limit, f"limit {number(limit)}")
        d.legend(2)
    return d.svg


def roc(name: str, title: str, desc: str, *, curves: Sequence[tuple[str, Curve]], floor: float) -> str:
    """Return ROC curves, points (fpr, tpr) ascending, on logarithmic axes from ``floor`` on, and a line of guessing."""
    with Drawing(name, title, desc, height=4.6) as d:
        ax = d.axes
        ax.plot([floor, 1], [floor, 1], color=SOFT, linewidth=1.2, linestyle=DASHES[2], label="guessing")
        for i, (text, curve) in enumerate(curves[:4]):
            points = [p for p in curve if p[0] > 0 and p[1] > 0]
            x, y = [p[0] for p in points], [max(p[1], floor) for p in points]
            ax.step(x, y, where="post", color=SERIES[i], linestyle=DASHES[i], label=_label(text))
        ax.set_xscale("log", subs=())
        ax.set_yscale("log", subs=())
        ax.set_xlim(floor, 1)
        ax.set_ylim(floor, 1.05)
        d.percent(ax.xaxis, ax.yaxis)
        ax.set_xlabel("candidates who are accused")
        ax.set_ylabel("people in the data who are found")
        ax.grid(which="major")
        d.legend()
    return d.svg


def groups(
    name: str, title: str, desc: str, *, rows: Sequence[tuple[str, float, float, float]], xlabel: str,
    reference: float, reference_text: str,
) -> str:  # fmt: skip
    """Return a fraction with its interval for each row (name, value, low, high), and a line at ``reference``."""
    with Drawing(name, title, desc, height=1.2 + 0.32 * len(rows)) as d:
        ax = d.axes
        for i, (_, value, low, high) in enumerate(rows):
            y = len(rows) - i
            ax.plot([low, high], [y, y], color=SERIES[0], linewidth=2.5)
            ax.plot([low, high], [y, y], color=SERIES[0], linestyle="none", marker="|", markersize=10)
            ax.plot([value], [y], color=INK, marker="o", markersize=7, linestyle="none")
        d.rows([_label(r[0]) for r in rows])
        ax.set_xlabel(xlabel)
        d.percent(ax.xaxis)
        d.limit(reference, reference_text)
    return d.svg


def against_pdtp(name: str, title: str, desc: str, *, rows: Sequence[tuple[float, float]]) -> str:
    """Return attack accuracy over PDTP: rows (nats, fraction), ascending."""
    with Drawing(name, title, desc) as d:
        ax = d.axes
        ax.axhline(0.5, color=SOFT, linestyle=DASHES[2], linewidth=1.2, label="guessing")
        ax.plot([r[0] for r in rows], [r[1] for r in rows], color=SERIES[0], marker="o", label="attack accuracy")
        ax.set_ylim(min(0.45, *(r[1] for r in rows)), 1.02)
        d.percent(ax.yaxis)
        ax.set_xlabel("PDTP of the records, nats")
        ax.set_ylabel("guesses that are right")
        ax.grid()
        d.legend()
    return d.svg


def pairs(
    name: str, title: str, desc: str, *, rows: Sequence[tuple[str, float, float]], first: str, second: str,
    xlabel: str, limits: Sequence[float] = (), percent: bool = False,
) -> str:  # fmt: skip
    """Return two values a row (name, first, second), joined by a line; NaN where there is none."""
    with Drawing(name, title, desc, height=1.5 + 0.36 * len(rows)) as d:
        ax = d.axes
        finite = [v for r in rows for v in r[1:] if math.isfinite(v)] + [v for v in limits if math.isfinite(v)]
        right = 1.08 * max(finite, default=1.0) or 1.0
        for i, row in enumerate(rows):
            y = len(rows) - i
            a, b = (v if math.isnan(v) else min(v, right) for v in row[1:])
            ax.plot([a, b], [y, y], color=SOFT, linewidth=1.5)
            ax.plot([a], [y], color=SERIES[0], marker="o", markersize=8, linestyle="none", markerfacecolor=PAPER,
                    markeredgewidth=2, label=first if i == 0 else None)  # fmt: skip
            ax.plot([b], [y], color=SERIES[1], marker="D", markersize=7, linestyle="none",
                    label=second if i == 0 else None)  # fmt: skip
            if limits and math.isfinite(limits[i]):
                ax.plot([limits[i]] * 2, [y - 0.32, y + 0.32], color=LIMIT, linewidth=2.2, linestyle=(0, (3, 1)),
                        label="limit" if i == 0 else None)  # fmt: skip
        d.rows([_label(r[0]) for r in rows])
        ax.set_xlim(0, right)
        ax.set_xlabel(xlabel)
        if percent:
            d.percent(ax.xaxis)
        d.legend(3)
    return d.svg


def curve(name: str, title: str, desc: str, *, points: Sequence[tuple[float, float]], xlabel: str, ylabel: str) -> str:
    """Return a falling step line with its points, for example capacity over a required probability."""
    with Drawing(name, title, desc) as d:
        ax = d.axes
        ax.plot([p[0] for p in points], [p[1] for p in points], color=SERIES[0], marker="o")
        ax.set_ylim(bottom=0)
        ax.set_xlabel(xlabel)
        ax.set_ylabel(ylabel)
        ax.yaxis.set_major_formatter(lambda v, _: f"{v:,.0f}")
        ax.grid()
    return d.svg
