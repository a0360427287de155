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
from typing import Any, Self
from xml.sax.saxutils import escape

from privgate.evidence.figures import number
from privgate.report.schema import WorstUnit
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
