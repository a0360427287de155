"""What removing the riskiest people does to the largest value: Figure 6 of Long et al. (2017) for this model."""

import math
from itertools import pairwise

from privgate.evidence import Removals
from privgate.evidence.figures import number
from privgate.report import charts
from privgate.report.blocks import Chart, Section, TableBlock
from privgate.report.report_schema import ReportDocument

TITLE = "Removing the riskiest people"


def section(doc: ReportDocument) -> Section | None:
    """Return the largest value while the riskiest go; nothing where it was not computed, or nobody could go."""
    found = doc.evidence.run.removals
    if found is None or len(found.path) < 2:
        return None
    rows = [(str(k), _value(v), "keeps it" if v <= found.limit else "exceeds it") for k, v in enumerate(found.path)]
    columns = ("People removed", "Largest value of all who are left, nats", f"The limit of {number(found.limit)}")
    caption = f"{TITLE}: {found.meaning}"
    if not all(map(math.isfinite, found.path)):  # nothing to draw to scale
        return Section("removals", TITLE, [TableBlock(f"{caption}. {reading(found)}", columns, rows, (0, 1))])
    svg = charts.removals(
        "removals", TITLE, "Largest value over the number of people removed.",
        path=found.path, best=found.best, limit=found.limit, ylabel="largest value, nats",
    )  # fmt: skip
    table = TableBlock(caption, columns, rows, (0, 1), "Numbers of this chart")
    return Section("removals", TITLE, [Chart("removals", TITLE, "", reading(found), svg, table)])


def reading(found: Removals) -> str:
    """Return what the path says: whether removing helps, how many, and that the next one may undo it."""
    path, best = found.path, found.best
    rises = sum(b > a for a, b in pairwise(path))
    before, after = _value(path[0]), _value(path[best])
    if path[best] <= found.limit:
        people = "the riskiest person" if best == 1 else f"the {best} riskiest people"
        text = f"Without {people} the largest value falls from {before} to {after} nats and the limit is kept."
    else:
        least = "nothing is gained" if best == 0 else f"the smallest is {after} nats, without {best}"
        text = f"Of up to {len(path) - 1} removals none keeps the limit: {before} nats as it stands, {least}."
    if best + 1 < len(path) and path[best + 1] > path[best]:
        text += (
            f" Removing one more raises it to {_value(path[best + 1])}: who is left may tell more when somebody goes."
        )
    if rises:
        text += f" {rises} of {len(path) - 1} removals raised it."
    return f"{text} Who was removed is telling, too: the list stays with the training data."


def _value(value: float) -> str:
    return number(value) if math.isfinite(value) else "without limit"
