"""Deletion capacity: how many people may ask for erasure before a full retraining is due."""

import math
from dataclasses import replace

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
    failure = max(r.failure for r in held)
    missing = f", except with probability {number(failure)} over the training's randomness" if failure > 0 else ""
    prior = percent(max(p.prior for p in held))
    said = (
        f"At the stated prior of {prior} and the stated chance of {percent(rho)} that none of them was used, "
        f"{number(capacity)} people can be erased{missing}"
    )
    rows = [(percent(r), number(c)) for r, c in points]
    table = TableBlock(title, ("Required chance", "People"), rows, (0, 1), "Numbers of this chart")
    finite = [p for p in points if math.isfinite(p[1])]
    if len(finite) < 2:
        return Section("deletion", "Deletion capacity", [replace(table, folded="")])
    svg = charts.curve("deletion", title, "People over the required chance.", points=finite,
                       xlabel="required chance that nothing shows (rho)", ylabel="people")  # fmt: skip
    return Section("deletion", "Deletion capacity", [Chart("deletion", title, "", f"{said}.", svg, table)])
