"""Published and obtained, side by side."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, Self

from papers.pictures import Picture
from privgate.statistics.roc import Decisions


@dataclass(frozen=True, slots=True)
class Row:
    """One figure of a paper and what we obtain.

    Parameters
    ----------
    what : str
        The figure, in the paper's words.
    published : float or None
        As printed; None where the paper has no such figure for our data.
    obtained : float or None
        None where it was not measured, and ``note`` says why.
    note : str
    due : float or None
        What a theorem of the paper, or chance, gives; printed nowhere.
    """

    what: str
    published: float | None
    obtained: float | None
    note: str = ""
    due: float | None = None


@dataclass(frozen=True)
class Table:
    """One table or figure of a paper.

    Parameters
    ----------
    title : str
        Paper, table, data.
    rows : sequence of Row
    notes : sequence of str
        What differs from the paper; always shown.
    picture : Picture, optional
        The figure itself, where one was made.
    """

    title: str
    rows: Sequence[Row]
    notes: Sequence[str] = field(default_factory=tuple)
    picture: Picture | None = None

    def text(self) -> str:
        """Return the table as Markdown."""
        theory = any(r.due is not None for r in self.rows)
        lines = [f"### {self.title}", "", f"| figure | published |{' due |' * theory} obtained | |"]
        lines.append(f"| --- | ---: |{' ---: |' * theory} ---: | --- |")
        for r in self.rows:
            due = f" {shown(r.due)} |" * theory
            lines.append(f"| {r.what} | {shown(r.published)} |{due} {shown(r.obtained)} | {r.note} |")
        lines += ["", *(f"- {n}" for n in self.notes)]
        return "\n".join(lines) + "\n"

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        rows = [{"what": r.what, "published": r.published, "obtained": r.obtained, "note": r.note, "due": r.due}
                for r in self.rows]  # fmt: skip
        drawn = {"picture": self.picture.payload()} if self.picture else {}
        return {"title": self.title, "rows": rows, "notes": list(self.notes)} | drawn

    @classmethod
    def of(cls, payload: Mapping[str, Any]) -> Self:
        """Return the table of a ``payload``."""
        picture = Picture.of(payload["picture"]) if "picture" in payload else None
        return cls(payload["title"], tuple(Row(**row) for row in payload["rows"]), tuple(payload["notes"]), picture)


class Rates(NamedTuple):
    """What papers print of an attack's decisions: NaN of precision where nobody is called a member."""

    accuracy: float
    precision: float
    recall: float
    f1: float


def read_rates(d: Decisions) -> Rates:
    """Return what papers print of decisions on members and others."""
    fired = d.tp + d.fp
    accuracy = (d.tp + d.tn) / (fired + d.fn + d.tn)
    return Rates(accuracy, d.tp / fired if fired else float("nan"), d.recall, 2 * d.tp / (fired + d.tp + d.fn))


def shown(value: float | None) -> str:
    """Return a number as tables print it; "-" for none."""
    if value is None:
        return "-"
    if abs(value) >= 1000:
        return f"{value:,.0f}"
    return f"{value:.4f}" if abs(value) >= 1e-3 or value == 0 else f"{value:.3g}"
