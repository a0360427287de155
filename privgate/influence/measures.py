"""The metrics ``dtp``, ``pdtp`` and ``sensitivity``: from the per-person table to one number with its interval.

Sensitivity is not DTP: an answer that is one number changes it or not, and no probability of any answer is bounded.
"""

from typing import Any

import numpy as np

from privgate.arrays import Float, Index
from privgate.controls.seeds import JUDGED_AT
from privgate.controls.served import describe_release
from privgate.errors import MeasurementError
from privgate.evidence import BehindInfluence, Kind, Measurement, Request
from privgate.influence import left_out, person_table, published, regressors
from privgate.influence.per_person import describe_seeds
from privgate.run import near_questions
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject.release import Gaussian
from privgate.theorems import catalogue

NOT_DTP = "sensitivity is not DTP: it bounds no probability and no attack by itself"
#: nats by which a real change may exceed a theorem's limit: rounding of the comparison
_ROUNDING = 1e-9


def measure_dtp(run: Run, request: Request) -> Measurement:
    """Return DTP of the model, aggregated over people as the rule asks, nats; larger is worse.

    ``low`` was evaluated at a question, ``high`` is a theorem's; infinite where retraining failed or none applies.
    """
    if run.subject.task == "regression":
        return _measure_noised(run, request, every=True)
    return _measure_people(run, request, ("dtp_lower", "dtp_lower", "dtp_upper"), every=True)


def measure_pdtp(run: Run, request: Request) -> Measurement:
    """Return PDTP of the model, aggregated over people as the rule asks, nats; the interval is the value's error."""
    if run.subject.task == "regression":
        return _measure_noised(run, request, every=False)
    return _measure_people(run, request, ("pdtp", "pdtp_low", "pdtp_high"), every=False)


def measure_sensitivity(run: Run, request: Request) -> Measurement:
    """Return the aggregate over people of how far each moves answers, in residual deviations; larger is worse."""
    records, over = run.compute(regressors.list_people), run.compute(regressors.limit_domain)
    value, low, high = (records[name] for name in ("moved", "moved_low", "moved_high"))
    everywhere = request.option("over", "own") == "domain"
    if everywhere:
        high = records["moved_upper"]
        if not over.why:  # attained at a question, but for what rounding takes there
            seen = over.lower / run.compute(regressors.measure_unit)
            value, low = np.maximum(value, seen), np.maximum(low, seen)
    why = [over.why] if everywhere and over.why else None
    said = [*_assume(run, every=everywhere), _tell_unit(run)]
    return _aggregate(
        run, request, (value, low, high), said, unit_name="residual deviations", proven=everywhere, why=why
    )


def _measure_noised(run: Run, request: Request, *, every: bool) -> Measurement:
    """Return the change of one noisy answer in nats, at each person's own records or over the whole declared domain."""
    records, why = run.compute(regressors.list_people), run.compute(regressors.limit_domain).why
    columns = [records[name] for name in ("pdtp", "pdtp_low", "dtp_upper" if every else "pdtp_high")]
    release = run.subject.release
    said = [
        *_assume(run, every=every),
        "one answer: whoever asks the same k times, or k related questions, learns up to k times as much",
        f"the endpoint adds {describe_release(release)}, fresh each time, and nothing else tells the answer",
    ]
    if isinstance(release.noise, Gaussian):
        said.append("normal noise bounds no change over unbounded answers; Laplace noise does")
    return _aggregate(run, request, columns, said, unit_name="nats", proven=every, why=[why] if every and why else None)


def _measure_people(run: Run, request: Request, names: tuple[str, str, str], *, every: bool) -> Measurement:
    """Return the aggregate of the columns for value, lower and upper limit; ``every`` where theorems limit it."""
    records, units = run.compute(person_table.list_people), run.compute(left_out.retrained).units
    value, low, high = (np.asarray(records[name], dtype=np.float64) for name in names)
    high, least, others = _limit_others(run, units, low, high, every=every)
    apart = run.registered_apart[int(every)]  # released is the registered model, trained again is the recipe's
    columns = [np.append(c, o) for c, o in ((value, least), (low, least), (high + apart, others + apart))]
    notes = run.compute(person_table.list_notes) if every else []
    none = catalogue.reasons(n.because for n in notes) if not any(n.applies for n in notes) else []
    why = none if every else None
    return _aggregate(run, request, columns, _assume(run, every=every), unit_name="nats", proven=every, why=why)


def _aggregate(
    run: Run, request: Request, columns: Any, assumptions: list[str], unit_name: str, *, proven: bool, why: Any
) -> Measurement:
    records = run.compute(regressors.list_people if run.subject.task == "regression" else person_table.list_people)
    people = len(records["unit"])
    if people == 0:
        raise MeasurementError("nobody was measured; raise the budget")
    run.compute(person_table.contradicted)
    total = left_out.summarize(run, request, *left_out.pad_missing(left_out.count_missing(run), *columns))
    seeds = len(run.compute(left_out.retrained).seeds)
    kind: Kind = "bound" if proven or total.low != total.high else "exact"
    if run.averaged and seeds == 1:
        kind = "point"  # a single seed measures the seed, not the person: it neither blocks nor approves
    elif run.averaged or total.confidence is not None or (unit_name == "residual deviations" and people < run.n_units):
        kind = "confidence"  # so is a unit that comes from folds, or from a sample
    paired = {"paired_seeds": seeds, "unseen": leakage.unseen(seeds)} if run.averaged else describe_seeds(run)
    return Measurement(
        request,
        total.value,
        total.low,
        total.high,
        unit="fraction" if request.option("aggregate", "max") == "share_above" else unit_name,
        kind=kind,
        confidence=add_doubts(total.confidence, 0.95 if run.averaged else None),
        n=people,
        population=run.n_units,
        where=str(records["unit"][total.where]) if 0 <= total.where < people else "",
        assumptions=tuple(assumptions),
        behind=BehindInfluence(
            claim=published.describe_end(run) or published.describe_theorem(run) or total.claim,
            **paired,
            **({} if total.beyond is None else {"beyond": total.beyond}),
            **published.describe_missing(run),
            **({} if why is None else {"why_no_certificate": why}),
        ),
    )


def _limit_others(run: Run, units: Index, low: Float, high: Float, *, every: bool) -> tuple[Float, Float, Float]:
    """Return upper limits of those measured, and lower and upper ones of others, where a theorem limits everybody.

    A theorem that a real change contradicts limits nobody: then the others have no limit.
    """
    if (limits := run.compute(left_out.limit_everybody)) is None:
        return high, np.zeros(0), np.zeros(0)
    least, most = (np.delete(side, units) for side in (limits.lower, limits.upper))
    if (low > limits.upper[units] + _ROUNDING).any():
        return high, 0 * least, np.full(len(most), np.inf)
    return np.maximum(np.minimum(high, limits.upper[units]), low), least if every else 0 * least, most


def add_doubts(sampled: float | None, trained: float | None) -> float | None:
    """Return the confidence of limits over a sample of people, over seeds, or over both, whose errors add up."""
    wrong = [1 - c for c in (sampled, trained) if c is not None]
    return round(1 - sum(wrong), 12) if wrong else None


# What a number rests on, one sentence each.


def _assume(run: Run, *, every: bool) -> list[str]:
    said = [
        "left out means: same initial state, the same seed for what randomness there is, the record absent everywhere"
    ]
    theorem, apart = published.describe_theorem(run), run.registered_apart[int(every)]
    if run.averaged:
        said += _assume_seeds(len(run.compute(left_out.retrained).seeds), limited=bool(theorem))
    elif run.at_seed:
        said.append(JUDGED_AT)
    elif run.seed_control is not None:
        compared = f"{run.seed_control.compared} seeds gave the same models, rarer differences were not sought"
        alike = "no part of the estimator reads one" if run.seed_control.unread else compared
        said.append(f"this very model's seed; {alike}")
    if apart > 0:
        said.append(f"the registered model's answers are up to {apart:.3g} nats from the recipe's, which is added")
    if theorem:
        said.append(theorem)
    if every and run.subject.task == "regression":
        return [*said, "every question of the declared domain, and the endpoint refuses all others"]
    if every:
        return said + [a for note in run.compute(person_table.list_notes) for a in note.assumptions]
    return [*said, f"direct queries only: each person is asked about {near_questions.describe_place(run)}"]


def _assume_seeds(count: int, *, limited: bool) -> list[str]:
    """Return what an interval over paired seeds rests on; a theorem holds under every seed."""
    said = [f"averaged over {count} paired seeds of training, not this very model"]
    if count == 1:
        return said
    said.append("changes over seeds are roughly normal (Student's limits, corrected over labels and people)")
    if not limited and count >= leakage.SEEDS_FOR_A_LIMIT:
        said.append(
            f"the upper limit allows for skew and jumps: what is rarer than {leakage.unseen(count):.1%} of trainings, "
            "and may be missing among these, changes answers no more than the largest change seen"
        )
    elif not limited:
        said.append(
            f"no upper limit: a jump in {leakage.unseen(count):.0%} of trainings may be missing among these; "
            f"{leakage.SEEDS_FOR_A_LIMIT} seeds are needed"
        )
    return said


def _tell_unit(run: Run) -> str:
    shown = run.compute(regressors.measure_unit) * run.subject.scale[1]
    people = len(run.compute(left_out.retrained).units)
    folds = f"taken for {shown:.4g}, a quarter more than models without a fifth of the people miss targets by"
    extent = folds if left_out.count_missing(run) else f"{shown:.4g}, over {people} people left out"
    return f"the residual deviation is {extent}; {NOT_DTP}"
