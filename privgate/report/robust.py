"""What the distance to the nearest wrong answer tells about membership, for the section on attacks."""

from privgate.evidence import RobustPart
from privgate.report.blocks import Block, Heading, TableBlock
from privgate.report.text import number, percent, plain

COLUMNS = ("Who guesses", "Radius", "Members called members", "Others called members", "Difference, with its interval")


def blocks(part: RobustPart | None) -> list[Block]:
    """Return one table of the adversaries."""
    if part is None:
        return []
    rows = []
    for a in part.adversaries:
        e = a.advantage
        limits = "" if e.low is None or e.high is None else f" ({percent(e.low)} to {percent(e.high)})"
        shown = "not known" if e.value is None else f"{percent(e.value)}{limits}"
        radius = "" if a.radius is None else number(a.radius)
        rows.append((plain(a.title, 60), radius, percent(a.inside), percent(a.outside), shown))
    caption = f"Distance to the nearest wrong answer, {plain(part.how, 60)}"
    return [Heading("Robustness"), TableBlock(caption, COLUMNS, rows)]
