"""A drawing: matplotlib to inline SVG, the same numbers giving the same bytes.

Colours are placeholders while drawing and become the page's custom properties, so that one drawing serves light, dark
and print; every series differs by its mark or dash as well. Text stays text.
"""

import io
import logging
import re
import warnings
from collections.abc import Mapping
from contextlib import ExitStack
from typing import Any, Self
from xml.sax.saxutils import escape

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

    Parameters
    ----------
    name : str
        Prefix of every id, so that several drawings fit on one page.
    title, desc : str
        For screen readers.
    height : float
        In inches at a width of 7.6.
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
                self.svg = inline(out.getvalue(), self.name, self.title, self.desc)

    def limit(self, x: float, text: str) -> None:
        """Draw a vertical limit line with its words at the top."""
        self.axes.axvline(x, color=LIMIT, linestyle=(0, (6, 2)), linewidth=2)
        self.axes.annotate(
            text, (x, 1), xycoords=("data", "axes fraction"), xytext=(4, 4), textcoords="offset points",
            ha="left", va="bottom", color=LIMIT, annotation_clip=False,
        )  # fmt: skip

    def legend(self, **kw: Any) -> None:
        """Show the legend beside the drawing's top."""
        self.axes.legend(loc=kw.pop("loc", "best"), fontsize=10, **kw)


def label(value: Any) -> str:
    """Return foreign text short enough for a chart."""
    text = plain(value, 4 * _LABEL)
    return text if len(text) <= _LABEL else f"{text[: _LABEL - 1]}…"


def inline(svg: str, name: str, title: str, desc: str) -> str:
    """Return matplotlib's file as an ``svg`` element of a page: named, ids its own, colours the page's."""
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
