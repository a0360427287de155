"""All findings, in full words, with their ids for engineers."""

from privgate.report import front, reading, words
from privgate.report.blocks import Block, Heading, List, Section, Table
from privgate.report.reading import Doc
from privgate.report.text import moment, number, plain


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
    columns = ("Finding", "Result", "Message", "Id in the policy", "Mode")
    blocks: list[Block] = [Table("Preconditions and rules, worst first", columns, rows)]
    waivers = reading.rows(doc.get("waivers"))
    if waivers:
        blocks.append(Table("All waivers", [name for _, name in _WAIVER], [_waiver(w) for w in waivers]))
    if reading.rows(doc.get("next_steps")) or not doc.get("approved"):
        blocks += [Heading("What to do next, in full"), List(front.steps(doc))]
    return Section("findings", "All findings", blocks)


_WAIVER = (
    ("rule", "Rule"),
    ("status", "Status"),
    ("reason", "Reason"),
    ("ceiling", "Up to"),
    ("requester", "Asked by"),
    ("approver", "Approved by"),
    ("expires", "Until"),
)


def _waiver(waiver: Doc) -> list[str]:
    shown = {**waiver, "ceiling": number(waiver["ceiling"]) if "ceiling" in waiver else "none"}
    return [moment(shown.get(k)) if k == "expires" else plain(shown.get(k), 300) for k, _ in _WAIVER]
