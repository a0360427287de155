"""Deletion capacity: how many people may ask for erasure before a full retraining is due."""

import math

from privgate.report import charts, reading
from privgate.report.blocks import Chart, Section, Table
from privgate.report.reading import Doc
from privgate.report.text import number, percent, real


def section(doc: Doc) -> Section | None:
    """Return the capacity at each required probability."""
    points = [(real(p.get("rho")), real(p.get("capacity"))) for p in reading.rows(reading.detail(doc).get("deletion"))]
    points = sorted(p for p in points if not math.isnan(p[0]) and not math.isnan(p[1]))
    if not points:
        return None
    title = "Records that can be erased before a full retraining"
    rho, capacity = points[-1]
    said = (
        f"{number(capacity)} records can be erased while a chance of at least {percent(rho)} remains that none of them "
        "was used in training"
    )
    table = Table(
        title,
        ("Required chance", "Records"),
        [(percent(r), number(c)) for r, c in points],
        (0, 1),
        "Numbers of this chart",
    )
    finite = [p for p in points if math.isfinite(p[1])]
    if len(finite) < 2:
        return Section(
            "deletion", "Deletion capacity", [Table(table.caption, table.columns, table.rows, table.numeric)]
        )
    svg = charts.curve("deletion", title, "Records over the required chance.", points=finite,
                       xlabel="required chance that nothing shows (rho)", ylabel="records")  # fmt: skip
    return Section("deletion", "Deletion capacity", [Chart("deletion", title, "", f"{said}.", svg, table)])
