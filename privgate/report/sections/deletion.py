"""Deletion capacity: how many people may ask for erasure before a full retraining is due."""

import math
from collections.abc import Sequence

from privgate.evidence import DeletionRow
from privgate.evidence.figures import number, percent
from privgate.report import charts
from privgate.report.blocks import Chart, Section, TableBlock
from privgate.report.report_schema import ReportDocument


def section(doc: ReportDocument) -> Section | None:
    """Return the capacity at each required probability."""
    claims = doc.evidence.claims
    if claims is None or not claims.deletion:
        return None
    held = claims.deletion
    points = sorted((p.rho, p.capacity) for p in held)
    title = "People who can be erased before a full retraining"
    rho, capacity = points[-1]
    prior = percent(max(p.prior for p in held))
    said = (
        f"At the stated prior of {prior} and the stated chance of {percent(rho)} that none of them was used, "
        f"{number(capacity)} people can be erased{_except(held)}"
    )
    rows = [(percent(r), number(c)) for r, c in points]
    table = TableBlock(title, ("Required chance", "People"), rows, (0, 1), "Numbers of this chart")
    finite = [p for p in points if math.isfinite(p[1])]
    if len(finite) < 2:
        alone = TableBlock(table.caption, table.columns, table.rows, table.numeric)
        return Section("deletion", "Deletion capacity", [alone])
    svg = charts.curve("deletion", title, "People over the required chance.", points=finite,
                       xlabel="required chance that nothing shows (rho)", ylabel="people")  # fmt: skip
    return Section("deletion", "Deletion capacity", [Chart("deletion", title, "", f"{said}.", svg, table)])


def _except(held: Sequence[DeletionRow]) -> str:
    failure = max(r.failure for r in held)
    return f", except with probability {number(failure)} over the training's randomness" if failure > 0 else ""
