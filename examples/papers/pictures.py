"""Figures of the papers as SVG: the same numbers give the same bytes."""

from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from textwrap import fill
from typing import Any, Self

import numpy as np

#: one look a series, told apart without colour as well
COLOURS = ("#0b5fa5", "#b3470f", "#2e7d32", "#6a3d9a", "#5c5c5c", "#a3006b")
DASHES: tuple[Any, ...] = ("-", (0, (5, 2)), (0, (1, 1.5)), (0, (5, 2, 1, 2)), (0, (8, 2)), (0, (3, 1, 1, 1, 1, 1)))
MARKS = "os^Dvx"
SETTINGS: Mapping[str, Any] = {
    "svg.hashsalt": "privgate papers", "svg.fonttype": "none", "path.simplify": True, "font.size": 10,
    "font.family": "sans-serif", "font.sans-serif": ["DejaVu Sans"], "axes.spines.top": False,
    "axes.spines.right": False, "axes.grid": True, "grid.color": "#dddddd", "legend.frameon": False,
}  # fmt: skip


@dataclass(frozen=True)
class Series:
    """One curve, or one image where ``kind`` is image.

    Parameters
    ----------
    label : str
    x, y : sequences of float
        ``y`` holds the pixels of an image, row by row, and ``x`` is empty.
    kind : {"line", "dots", "steps", "image"}
        Published points are dots.
    """

    label: str
    x: Sequence[float]
    y: Sequence[float]
    kind: str = "line"


@dataclass(frozen=True)
class Picture:
    """One figure of a paper.

    Parameters
    ----------
    name : str
        Of its file, without the suffix.
    x, y : str
        What the axes show.
    series : sequence of Series
    logarithmic : bool
        Whether x grows by factors.
    """

    name: str
    x: str
    y: str
    series: Sequence[Series]
    logarithmic: bool = False

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        rounded = [
            asdict(s) | {"x": [float(f"{v:.5g}") for v in s.x], "y": [float(f"{v:.5g}") for v in s.y]}
            for s in self.series
        ]
        return asdict(self) | {"series": rounded}

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Self:
        """Return the picture of a ``payload``."""
        return cls(**{**payload, "series": tuple(Series(**s) for s in payload["series"])})

    def write(self, folder: Path, title: str) -> Path:
        """Draw to ``folder`` and return the file; numbers are rounded as in ``payload``."""
        import matplotlib as mpl
        from matplotlib.backends.backend_svg import FigureCanvasSVG
        from matplotlib.figure import Figure

        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"{self.name}.svg"
        with mpl.rc_context(dict(SETTINGS)):
            figure = Figure(figsize=(7.0, 3.4), layout="constrained")
            figure.suptitle(fill(title, 90), fontsize=10)
            shown = self.of(self.payload())
            shown.images(figure) if shown.series[0].kind == "image" else shown.curves(figure.add_subplot())
            FigureCanvasSVG(figure).print_svg(str(path), metadata={"Date": None, "Creator": None})
        return path

    def curves(self, axes: Any) -> None:
        """Draw lines, dots and steps; many dots are opaque, for each one's style is text of its own."""
        few = sum(len(s.x) for s in self.series if s.kind == "dots") < 100
        for i, one in enumerate(self.series):
            look = {"color": COLOURS[i % 6], "label": one.label}
            if one.kind == "dots":
                axes.plot(one.x, one.y, MARKS[i % 6], markersize=5, alpha=0.75 if few else None, **look)
            else:
                style = "steps-mid" if one.kind == "steps" else "default"
                axes.plot(one.x, one.y, linestyle=DASHES[i % 6], drawstyle=style, **look)
        axes.set_xlabel(self.x)
        axes.set_ylabel(self.y)
        if self.logarithmic:
            axes.set_xscale("log")
        axes.legend(fontsize=8, loc="center left", bbox_to_anchor=(1.0, 0.5))

    def images(self, figure: Any) -> None:
        """Draw square grey images, five a row."""
        for i, one in enumerate(self.series):
            axes = figure.add_subplot(-(-len(self.series) // 5), 5, i + 1)
            side = round(len(one.y) ** 0.5)
            axes.imshow(np.reshape(one.y, (side, side)), cmap="gray_r")
            axes.set_title(one.label, fontsize=8)
            axes.set_axis_off()
