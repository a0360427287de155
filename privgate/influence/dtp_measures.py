"""The metrics ``dtp`` and ``pdtp``: from the per-person table to one number."""

from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.controls.seeds import JUDGED_AT
from privgate.errors import MeasurementError
from privgate.evidence import BehindInfluence, Kind, Measurement, Request
from privgate.influence import aggregate, extent, left_out, per_unit, sensitivities
from privgate.influence.other_seeds import describe_seeds
from privgate.run import beside
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.theorems import catalogue

#: nats by which a real change may exceed a theorem's limit: rounding of the comparison
_ROUNDING = 1e-9


def every_query(run: Run, request: Request) -> Measurement:
    """Return DTP of the model, aggregated over units as the rule asks.

    ``low`` is a change at a query that was really evaluated, ``high`` a theorem's bound. Infinity is a value: a unit
    whose retraining failed, or no certificate.
    """
    if run.subject.task == "regression":
        return sensitivities.noised(run, request, everywhere=True)
    return _measured(run, request, ("dtp_lower", "dtp_lower", "dtp_upper"), every=True)


def direct_queries(run: Run, request: Request) -> Measurement:
    """Return PDTP of the model, aggregated over units as the rule asks; the interval is the value's error."""
    if run.subject.task == "regression":
        return sensitivities.noised(run, request, everywhere=False)
    return _measured(run, request, ("pdtp", "pdtp_low", "pdtp_high"), every=False)


def _measured(run: Run, request: Request, columns: tuple[str, str, str], *, every: bool) -> Measurement:
    """Return the aggregate of the columns for value, lower and upper limit; ``every`` where theorems limit it."""
    records = run.once(per_unit.table)
    if len(records["unit"]) == 0:
        raise MeasurementError("nobody was measured; raise --max-retrains or the budget")
    value, low, high = (np.asarray(records[name], dtype=np.float64) for name in columns)
    left, units = left_out.count_missing(run), run.once(left_out.retrained).units
    run.once(per_unit.contradicted)
    high, least, others = _limit(run, units, low, high, every=every)
    apart = run.registered_apart[int(every)]  # released is the registered model, trained again is the recipe's
    high, others = high + apart, others + apart
    padded = (np.append(c, o) for c, o in ((value, least), (low, least), (high, others)))
    found = left_out.summarize(run, request, *left_out.pad_missing(left, *padded))
    where = str(records["unit"][found.where]) if 0 <= found.where < len(low) else ""
    return Measurement(
        request,
        found.value,
        found.low,
        found.high,
        unit="nats" if request.option("aggregate", "max") != "share_above" else "fraction",
        kind=_kind(run, found, every=every),
        confidence=_confidence(found.confidence, 0.95 if run.averaged else None),
        n=len(units),
        population=run.n_units,
        where=where,
        assumptions=tuple(_assumptions(run, every=every)),
        behind=BehindInfluence(
            claim=extent.describe_end(run) or extent.describe_theorem(run) or found.claim,
            over_limit={str(t): int((low > t).sum()) for t in run.thresholds},
            **_seeds(run),
            **({} if found.beyond is None else {"beyond": found.beyond}),
            **extent.describe_missing(run),
            **({"why_no_certificate": _why_none(run)} if every else {}),
        ),
    )


def _limit(run: Run, units: Index, low: Float, high: Float, *, every: bool) -> tuple[Float, Float, Float]:
    """Return upper limits of those measured, and lower and upper ones of others, where a theorem limits everybody.

    A theorem that a real change contradicts limits nobody: then the others have no limit.
    """
    if (limits := run.once(left_out.limit_everybody)) is None:
        return high, np.zeros(0), np.zeros(0)
    least, most = (np.delete(side, units) for side in (limits.lower, limits.upper))
    if (low > limits.upper[units] + _ROUNDING).any():
        return high, 0 * least, np.full(len(most), np.inf)
    return np.maximum(np.minimum(high, limits.upper[units]), low), least if every else 0 * least, most


def _why_none(run: Run) -> list[str]:
    """Return why certificates of this kind of model did not apply, each once; empty where one spoke."""
    notes = run.once(per_unit.certificate_notes)
    if any(n.applies for n in notes):
        return []
    return catalogue.reasons(n.because for n in notes)


def _paired(run: Run) -> int:
    """Return over how many seeds the figures really are: an engine that answered for one has seen one."""
    return len(run.once(left_out.retrained).seeds)


def _confidence(sampled: float | None, trained: float | None) -> float | None:
    """Return the confidence of limits over a sample of people, over seeds, or over both, whose errors add up."""
    wrong = [1 - c for c in (sampled, trained) if c is not None]
    return round(1 - sum(wrong), 12) if wrong else None


def _kind(run: Run, found: aggregate.Aggregated, *, every: bool) -> Kind:
    if run.averaged:
        # a single seed measures the seed, not the person: it neither blocks nor approves
        return "confidence" if _paired(run) > 1 else "point"
    if found.confidence is not None:
        return "confidence"
    return "bound" if every or found.low != found.high else "exact"


def _seeds(run: Run) -> dict[str, Any]:
    """Return over how many runs the figure is averaged, or that it is about the released seed."""
    if run.at_seed:
        return describe_seeds(run)
    return {"paired_seeds": _paired(run), "unseen": leakage.unseen(_paired(run))} if run.averaged else {}


def _assumptions(run: Run, *, every: bool) -> list[str]:
    same = "the same seed for what randomness there is"
    said = [f"left out means: same initial state, {same}, the record absent everywhere"]
    if run.averaged:
        said += _over_seeds(_paired(run), limited=bool(extent.describe_theorem(run)))
    elif run.at_seed:
        said.append(JUDGED_AT)
    elif run.seed_control is not None:
        compared = f"{run.seed_control.compared} seeds gave the same models, rarer differences were not sought"
        alike = "no part of the estimator reads one" if run.seed_control.unread else compared
        said.append(f"this very model's seed; {alike}")
    if (apart := run.registered_apart[int(every)]) > 0:
        said.append(f"the registered model's answers are up to {apart:.3g} nats from the recipe's, which is added")
    if why := extent.describe_theorem(run):
        said.append(why)
    if not every:
        said.append(f"direct queries only: each person is asked about {beside.asked_at(run)}")
    else:
        said += [a for note in run.once(per_unit.certificate_notes) for a in note.assumptions]
    return said


def _over_seeds(count: int, *, limited: bool) -> list[str]:
    """Return what an interval over paired seeds rests on."""
    said = [f"averaged over {count} paired seeds of training, not this very model"]
    if count > 1:
        said.append("changes over seeds are roughly normal (Student's limits, corrected over labels and people)")
    if limited:
        return said  # the theorem holds under every seed
    if count >= leakage.SEEDS_FOR_A_LIMIT:
        share = leakage.unseen(count)
        said.append(
            f"the upper limit allows for skew and jumps: what is rarer than {share:.1%} of trainings, and may be "
            "missing among these, changes answers no more than the largest change seen"
        )
    elif count > 1:
        said.append(
            f"no upper limit: a jump in {leakage.unseen(count):.0%} of trainings may be missing among these; "
            f"{leakage.SEEDS_FOR_A_LIMIT} seeds are needed"
        )
    return said
