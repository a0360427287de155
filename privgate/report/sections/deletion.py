"""Deletion capacity: how many people may ask for erasure before a full retraining is due."""

import math
from collections.abc import Sequence

from privgate.evidence import DeletionRow
from privgate.evidence.figures import number, percent
from privgate.report import charts
from privgate.report.blocks import Block, Chart, Section, TableBlock
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
    said = (
        f"{number(capacity)} people, each used with a chance of at most {percent(max(p.prior for p in held))}, can be "
        f"erased while a chance of at least {percent(rho)} remains that none of them was used in training"
        f"{_except(held)}"
    )
    rows = [(percent(r), number(c)) for r, c in points]
    table = TableBlock(title, ("Required chance", "People"), rows, (0, 1), "Numbers of this chart")
    grid = _by_prior(claims.deletion_by_prior)
    finite = [p for p in points if math.isfinite(p[1])]
    if len(finite) < 2:
        alone = TableBlock(table.caption, table.columns, table.rows, table.numeric)
        return Section("deletion", "Deletion capacity", [alone, *grid])
    svg = charts.curve("deletion", title, "People over the required chance.", points=finite,
                       xlabel="required chance that nothing shows (rho)", ylabel="people")  # fmt: skip
    return Section("deletion", "Deletion capacity", [Chart("deletion", title, "", f"{said}.", svg, table), *grid])


def _except(held: Sequence[DeletionRow]) -> str:
    failure = max(r.failure for r in held)
    return f", except with probability {number(failure)} over the training's randomness" if failure > 0 else ""


def _by_prior(found: Sequence[DeletionRow]) -> list[Block]:
    """Return the capacity for each required chance and each probability that a record was used at all."""
    if not found:
        return []
    rhos, priors = sorted({r.rho for r in found}), sorted({r.prior for r in found})
    capacity = {(r.prior, r.rho): number(r.capacity) for r in found}
    rows = [(percent(p), *(capacity.get((p, r), "") for r in rhos)) for p in priors]
    columns = ("Somebody was used with probability", *(f"chance {percent(r)}" for r in rhos))
    caption = "People, by the chance required and by how likely somebody was used at all"
    return [TableBlock(caption, columns, rows, tuple(range(len(columns))), "Capacity for other probabilities")]
