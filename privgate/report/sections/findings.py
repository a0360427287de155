"""All findings, in full words, with their ids for engineers."""

from privgate.report import words
from privgate.report.blocks import Section, Table
from privgate.report.reading import Doc
from privgate.report.text import plain


def section(doc: Doc) -> Section:
    """Return every finding of the verdict, worst first."""
    rows = [
        (
            words.title(f),
            words.RESULT.get(str(f.get("outcome")), "Not decided"),
            plain(f.get("message")),
            plain(f.get("rule"), 80),
            plain(f.get("mode"), 20),
        )
        for f in sorted([*words.preconditions(doc), *words.rules(doc)], key=words.badness)
    ]
    return Section(
        "findings",
        "All findings",
        [
            Table(
                "Preconditions and rules, worst first",
                ("Finding", "Result", "Message", "Id in the policy", "Mode"),
                rows,
            )
        ],
    )
