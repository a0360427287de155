"""What the first question found out beside its numbers, for the evidence."""

from privgate.evidence import CertificatesCompared, InfluencePart
from privgate.influence import as_published, leave_one_out, per_unit, sensitivity
from privgate.run.needs import Need
from privgate.run.run import Run


def part(run: Run) -> InfluencePart | None:
    """Return how the per-unit table was come by; None where no rule needed it, or it could not be made."""
    if run.made(sensitivity.table):
        return _of_regressor(run)
    if not run.made(per_unit.table):
        return None
    answered, witness = run.once(leave_one_out.answered), run.witness
    return InfluencePart(
        coverage=leave_one_out.coverage(run),
        engines=answered.shares,
        declined=answered.declined,
        recheck=tuple(leave_one_out.recheck_row(p) for p in answered.rechecks),
        noise=per_unit.noise(run),
        registered=run.once(per_unit.registered),
        certificates=run.once(per_unit.certificate_notes),
        certificates_compared=None
        if witness is None
        else CertificatesCompared(units=len(witness.seen), questions=witness.questions),
        indirect_queries=run.once(per_unit.over_all_queries)[2],
        as_published=as_published.rows(run) if Need.EVERY_QUERY in run.asked else (),
    )


def _of_regressor(run: Run) -> InfluencePart:
    answered = run.once(leave_one_out.answered)
    return InfluencePart(
        coverage=leave_one_out.coverage(run),
        engines=answered.shares,
        declined=answered.declined,
        recheck=tuple(leave_one_out.recheck_row(p) for p in answered.rechecks),
        sensitivity=sensitivity.figures(run),
    )
