"""Deletion capacity: how many people may ask for erasure before a full retraining is due."""

import math

from privgate.report import charts, reading
from privgate.report.blocks import Block, Chart, Section, Table
from privgate.report.reading import Doc
from privgate.report.text import number, percent, real


def section(doc: Doc) -> Section | None:
    """Return the capacity at each required probability."""
    held = reading.rows(reading.detail(doc).get("deletion"))
    points = [(real(p.get("rho")), real(p.get("capacity"))) for p in held]
    points = sorted(p for p in points if not math.isnan(p[0]) and not math.isnan(p[1]))
    if not points:
        return None
    title = "People who can be erased before a full retraining"
    rho, capacity = points[-1]
    said = (
        f"{number(capacity)} people, {_used(held)}, can be erased while a chance of at least {percent(rho)} remains "
        f"that none of them was used in training{_except(held)}"
    )
    table = Table(
        title,
        ("Required chance", "People"),
        [(percent(r), number(c)) for r, c in points],
        (0, 1),
        "Numbers of this chart",
    )
    grid = _by_prior(reading.rows(reading.detail(doc).get("deletion_by_prior")))
    finite = [p for p in points if math.isfinite(p[1])]
    if len(finite) < 2:
        return Section(
            "deletion", "Deletion capacity", [Table(table.caption, table.columns, table.rows, table.numeric), *grid]
        )
    svg = charts.curve("deletion", title, "People over the required chance.", points=finite,
                       xlabel="required chance that nothing shows (rho)", ylabel="people")  # fmt: skip
    return Section("deletion", "Deletion capacity", [Chart("deletion", title, "", f"{said}.", svg, table), *grid])


def _used(held: list[Doc]) -> str:
    """Return the prior of the headline: without it the number means nothing."""
    priors = [p for p in (real(r.get("prior")) for r in held) if not math.isnan(p)]
    if not priors:
        return "used with a probability that this report does not name"
    return f"each used with a chance of at most {percent(max(priors))}"


def _except(held: list[Doc]) -> str:
    failure = max((real(r.get("failure", 0.0)) for r in held), default=0.0)
    return f", except with probability {number(failure)} over the training's randomness" if failure > 0 else ""


def _by_prior(found: list[Doc]) -> list[Block]:
    """Return the capacity for each required chance and each probability that a record was used at all."""
    rhos = sorted({real(r.get("rho")) for r in found})
    priors = sorted({real(r.get("prior")) for r in found})
    capacity = {(real(r.get("prior")), real(r.get("rho"))): number(r.get("capacity")) for r in found}
    if not capacity:
        return []
    rows = [(percent(p), *(capacity.get((p, r), "") for r in rhos)) for p in priors]
    columns = ("Somebody was used with probability", *(f"chance {percent(r)}" for r in rhos))
    caption = "People, by the chance required and by how likely somebody was used at all"
    return [Table(caption, columns, rows, tuple(range(len(columns))), "Capacity for other probabilities")]
