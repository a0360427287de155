"""What removing the riskiest people does to the largest value."""

import math

from privgate.evidence import Count, Removals
from privgate.evidence.figures import number
from privgate.report.blocks import Section, Text
from privgate.report.report_schema import ReportDocument

TITLE = "Removing the riskiest people"


def section(doc: ReportDocument) -> Section | None:
    """Return what is gained; nothing where it was not computed, or nobody could go."""
    found = doc.evidence.run.removals
    return Section("removals", TITLE, [Text(f"{found.meaning}. {reading(found)}")]) if found else None


def reading(found: Removals) -> str:
    """Return whether removing helps; how many it takes is told as every count is."""
    before, after = (number(v) if math.isfinite(v) else "without limit" for v in (found.path[0], found.least))
    few = found.best is None or Count(found.best).hidden
    without = f"without {'some of the' if few else f'the {found.best}'} riskiest people"
    if found.least <= found.limit:
        text = f"The largest value falls from {before} to {after} nats {without}, and the limit is kept."
    else:
        least = "nothing is gained" if found.best == 0 else f"the smallest is {after} nats, {without}"
        text = f"No removal keeps the limit: {before} nats as it stands, {least}."
    return f"{text} Removing more may raise it again. Who was removed is telling, too: the list stays with the data."
