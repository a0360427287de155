"""What was found about training code that could collude, for the section on attacks."""

from privgate.evidence import CollusionPart
from privgate.report.blocks import Block, Heading, TableBlock, Text
from privgate.report.text import plain

_SEEN = {"clear": "nothing seen", "found": "a sign", "unknown": "could not look"}


def blocks(part: CollusionPart | None) -> list[Block]:
    """Return one table of detectors, and what none of them can see."""
    if part is None:
        return []
    rows = [(plain(s.title, 80), _SEEN[s.outcome], plain(s.sentence, 400)) for s in part.signs]
    table = TableBlock("Whether training code hides messages in the model", ("What is expected", "Seen", "How"), rows)
    return [Heading("Training code that colludes"), table, Text(part.undetectable)]
