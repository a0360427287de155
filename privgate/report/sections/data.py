"""Data and preconditions: what must hold before any number counts."""

from privgate.report import reading, words
from privgate.report.blocks import Section, Table
from privgate.report.reading import Doc
from privgate.report.text import plain


def section(doc: Doc) -> Section | None:
    """Return the preconditions in the order in which they were checked."""
    checked = reading.rows(reading.mapping(doc.get("evidence")).get("preconditions"))
    if not checked:
        return None
    rows = [
        (
            words.condition(p.get("name")),
            words.RESULT.get(str(p.get("outcome")), "Not decided"),
            plain(p.get("message")),
        )
        for p in checked
    ]
    return Section(
        "data",
        "Data and preconditions",
        [
            Table(
                "What must hold before any figure counts, in the order checked",
                ("Condition", "Result", "What was found"),
                rows,
            )
        ],
    )
