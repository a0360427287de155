"""``verdict.report(path)`` and ``verdict.plot()``: what a notebook asks of a verdict."""

from collections.abc import Mapping
from dataclasses import dataclass
from html import escape
from pathlib import Path
from typing import Any

from privgate import report as reports
from privgate.errors import MeasurementError
from privgate.evaluation.context_stated import STATED, with_context
from privgate.evaluation.context_stated import hash_key as own_key
from privgate.evidence.verdict import Outcome, Verdict
from privgate.report import assertions, charts, schema

#: the page's colours, for a drawing that stands alone
_COLORS = (
    "--paper:#fff;--ink:#16191d;--chart-a:#1b6ca8;--chart-b:#b3541e;"
    "--chart-limit:#9b1216;--chart-grid:#dfe3e8;--chart-soft:#5b646e"
)


@dataclass(frozen=True, slots=True)
class Picture:
    """A drawing: a notebook shows it, ``save`` keeps it."""

    #: what is drawn, and what it shows here in one sentence
    title: str
    reading: str
    #: SVG with its colours
    svg: str

    def _repr_svg_(self) -> str:
        return self.svg

    def __repr__(self) -> str:
        """Return title and reading: what those read who see no picture."""
        return f"<Picture {self.title}. {self.reading}>"

    def save(self, path: str | Path) -> Path:
        """Write the SVG and return where."""
        place = Path(path)
        place.write_text(self.svg, encoding="utf-8")
        return place


def overview(verdict: Verdict) -> str:
    """Return one row a rule and one a condition that does not hold, in HTML, in the words of the report."""
    told = sorted(map(verdict.said, verdict.findings), key=schema.badness)
    rules = assertions.of_rules([f for f in told if not schema.is_condition(f)], verdict.evidence.measurements.values())
    unheld = [f for f in told if schema.is_condition(f) and f.outcome is not Outcome.PASSED]
    # no message: it may name a person, and notebooks travel
    rows = [(f.outcome.word, f.title or f.rule, "", "") for f in unheld]
    rows += [(a.outcome.word, a.title, a.value if a.measured else "", a.threshold) for a in rules]
    cells = "".join(f"<tr>{''.join(f'<td>{escape(cell)}</td>' for cell in row)}</tr>" for row in rows)
    head = "<tr><th>Result</th><th>Rule</th><th>Measured</th><th>Limit</th></tr>"
    return f"<p><strong>{escape(repr(verdict)[1:-1])}</strong></p><table>{head}{cells}</table>"


def report(
    verdict: Verdict,
    path: str | Path,
    *,
    hash_key: bytes | None = None,
    baseline: Mapping[str, Any] | None = None,
    **stated: Any,
) -> list[Path]:
    """Write the report: one page where ``path`` ends in .html, else every format into that folder.

    Raises
    ------
    TypeError
        Something is stated that page one has no place for.
    """
    told = _stated(verdict, stated)
    place, key = Path(path), own_key() if hash_key is None else hash_key
    if place.suffix != ".html":
        return reports.write(told, place, hash_key=key, baseline=baseline)
    place.parent.mkdir(parents=True, exist_ok=True)
    page = reports.render(reports.document(told, hash_key=key, baseline=baseline), "html")
    place.write_text(page, encoding="utf-8")
    return [place]


def _stated(verdict: Verdict, stated: Mapping[str, Any]) -> Verdict:
    if unknown := sorted(set(stated) - set(STATED)):
        raise TypeError(f"page one has no place for {', '.join(unknown)}; known: {', '.join(STATED)}")
    if verdict.detail.get("context") and not stated:
        return verdict
    return with_context(verdict, None, None, stated)


def plot(verdict: Verdict) -> Picture:
    """Return everybody's influence, largest first, or the worst ones where not everybody was measured."""
    doc = schema.read(reports.document(verdict, hash_key=own_key()))
    drawn = charts.draw_influence(doc)
    if not drawn.svg:
        raise MeasurementError(f"there is nothing to draw: {drawn.caption}")
    head, _, body = drawn.svg.partition(">")
    head = head.replace("<svg ", '<svg xmlns="http://www.w3.org/2000/svg" ', 1)
    return Picture(drawn.title, drawn.caption, f'{head} style="{_COLORS}">{body}')
