"""For how many people figures speak: what the report says of who was left out, and of who was not."""

from typing import Any

from privgate.evidence import Count, RecheckRow, UnitCoverage
from privgate.influence import left_out
from privgate.run.run import Run


def describe_end(run: Run) -> str:
    """Return that people were left out of the work, and what their figures are worth, one sentence; else empty."""
    if not (missing := left_out.count_missing(run)):
        return ""
    people, decided = run.once(left_out.leave_out).people, run.once(left_out.leave_out).decided_by
    return (
        f"{Count(missing, people)} of {people} people were not left out of any training, because the rule "
        f"{decided} had refused before; riskiest first, so that figures over all people are lower limits only"
    )


def describe_missing(run: Run) -> dict[str, Any]:
    """Return for evidence of how many people nothing was computed, and which rule decided that; empty where of none."""
    missing = left_out.count_missing(run)
    return {"not_computed": missing, "decided_by": run.once(left_out.leave_out).decided_by} if missing else {}


def describe_theorem(run: Run) -> str:
    """Return what theorems say of whom, one sentence; empty where people had to be left out."""
    if (limits := run.once(left_out.limit_everybody)) is None:
        return ""
    some = run.once(left_out.plan_people).sizes[0]
    return (
        f"a certificate over all questions limits everybody's change to {limits.upper.max():.4g} nats; "
        f"{some} people drawn at random are trained without, to contradict it"
    )


def describe_coverage(run: Run) -> UnitCoverage:
    """Return how many of all people were measured, and what a sample says about the others."""
    made = run.once(left_out.leave_out)
    claims = (describe_end(run), describe_theorem(run) or run.once(left_out.plan_people).lost)
    return UnitCoverage(
        n_measured=len(made.retrained.units),
        n_units=run.n_units,
        claim="; ".join(c for c in claims if c),
        not_computed=left_out.count_missing(run),
        decided_by=made.decided_by,
    )


def list_rechecks(run: Run) -> tuple[RecheckRow, ...]:
    """Return what refits say of a closed form, as a row of the report's table."""
    if (compared := run.once(left_out.leave_out).compared) is None:
        return ()
    told = compared.detail
    row = RecheckRow(
        engine=told["engine"],
        checked=told["units_checked"],
        max_difference=told["worst_difference"],
        tolerance=told["tolerance"],
        notes=told.get("notes", {}),
    )
    return (row,)
