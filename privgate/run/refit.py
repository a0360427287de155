"""Refits: the training function without single people, which defines leaving out; closed forms are compared with it."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.controls.reproduces import no_answers
from privgate.errors import MeasurementError
from privgate.evidence import Precondition
from privgate.statistics.leakage import largest_change
from privgate.subject.subject import Subject
from privgate.theorems import closed_form, two_models
from privgate.theorems.closed_form import REFIT, Declined, Engine, RefitRequest, Retrained, Seeds, Status
from privgate.theorems.hypotheses import vanishing
from privgate.theorems.pipelines import seen
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: exp(-700) is the last probability that float64 holds in full; below it a released 0 and a tiny number are one
UNDERFLOW = -700.0


def leave_out(request: RefitRequest, *, changes: bool = False) -> Retrained:
    """Return models with and without each unit, trained by the recipe itself, in a worker process.

    Exact by definition: same seed, same order of the remaining records, all preprocessing included. A unit whose class
    vanishes with it is undefined without being trained. ``MeasurementError``: training on the complete data fails.
    """
    subject, units, seeds = request.subject, request.units, request.seeds
    members, (row_unit, row_query) = subject.data.units, request.rows
    bounds = np.searchsorted(row_unit, np.arange(len(units) + 1)).tolist()
    gone, reads = vanishing(subject, units), two_models.reads(subject) if changes else ("", 0)
    tried = np.flatnonzero(~gone)
    without = [
        Fit(seed, row_query[bounds[u] : bounds[u + 1]], members[units[u]], repeat=_repeat(seed, s), reads=reads)
        for s, seed in enumerate(seeds)
        for u in tried
    ]
    log_with = train_on_all(subject, seeds, request.fleet)[:, row_query]
    answers = request.fleet.fits(subject, without, label="retraining without single people")
    log_without = np.full_like(log_with, np.nan)
    tables = np.full((len(seeds), len(units), reads[1], subject.width), -np.inf)
    status, failed = np.full(len(units), Status.EXACT, dtype=object), dict[int, str]()
    for i, answer in enumerate(answers):
        s, u = divmod(i, len(tried))
        person = int(tried[u])
        if answer.problem:
            status[person] = Status.FAILED
            failed.setdefault(person, answer.problem)
        else:
            own = bounds[person + 1] - bounds[person]
            log_without[s, bounds[person] : bounds[person + 1]] = answer.log_p[:own]
            tables[s, person] = answer.log_p[own:]
    vanished = {int(u): "its class vanishes from the training data without it" for u in np.flatnonzero(gone)}
    retrained = Retrained.from_columns(
        REFIT, units, seeds, request.rows, log_with, log_without, status=status, undefined=vanished, reason=failed
    )
    return replace(retrained, changes={two_models.TABLES: tables}) if reads[1] else retrained


def train_on_all(subject: Subject, seeds: Seeds, fleet: Fleet) -> Float:
    """Return log-probabilities of models trained on everything, at every pool record: shape (S, P, K)."""
    pool, nobody = np.arange(subject.data.pool_size, dtype=np.int64), np.zeros(0, dtype=np.int64)
    fits = [Fit(seed, pool, left_out=nobody, repeat=_repeat(seed, s)) for s, seed in enumerate(seeds)]
    answers = fleet.fits(subject, fits, label="training on all records")
    bad: list[Answer] = [a for a in answers if a.problem]
    if bad:
        raise MeasurementError(no_answers(bad[0].problem))
    return np.stack([a.log_p for a in answers])


def _repeat(seed: int | None, position: int) -> int:
    """Tell runs without a seed apart: they are different runs on purpose."""
    return position if seed is None else 0


# Closed forms: what they answer counts only beside refits that agree with them.


@dataclass(frozen=True, eq=False)
class Computed:
    """What a closed form answers, and whom it leaves to refits: how many for which reason."""

    engine: Engine
    answers: Retrained
    rest: Index
    why: Mapping[str, int] = field(default_factory=dict)


def compute(engine: Engine, request: RefitRequest) -> Computed | str:
    """Return what a closed form answers; why it declines, where only its work shows that it does."""
    try:
        answers, rest = engine.answers(replace(request, subject=seen(request.subject).subject))
    except Declined as exc:
        return str(exc)
    why, rounded = {engine.hands_on: len(rest)}, rest[:0]
    if engine.complements:
        answers, rounded = closed_form.as_released(answers)
        why[closed_form.WHY] = len(rounded)
    rest = np.sort(np.concatenate([rest, rounded]))
    return Computed(engine, answers, rest, {reason: count for reason, count in why.items() if count})


def compare(computed: Computed, refits: Retrained, whole: Float) -> Precondition:
    """Return how a closed form compares with refits: ``warned`` where any answer differs, and then none may be used.

    ``refits`` are of people drawn before anybody was looked at, and of any others. ``whole`` (P, K) answers for the
    model trained on everything. If none of 59 drawn differs, fewer than 5 % of all do, with 95 % confidence (0.95^59 <
    0.05).
    """
    answers, engine = computed.answers, computed.engine
    allowed = np.nan_to_num(answers.error, nan=0.0)
    alive = ~np.isneginf(answers.log_with[0]).all(axis=1)  # where no class has a probability, training may raise or not
    gaps = measure_gaps(answers.log_with[0, alive], whole[answers.row_query[alive]])
    worst = float(gaps.max(initial=0.0))
    beyond = (gaps > closed_form.TOLERANCE + allowed[answers.row_unit[alive]]).any()
    wrong = ["the model with every record"] if beyond else []
    place = {int(person): k for k, person in enumerate(answers.units)}
    compared = [(k, place[int(person)]) for k, person in enumerate(refits.units) if int(person) in place]
    problem = ""
    for k, own in compared:
        gap = _difference(answers, own, refits, k)
        worst = max(worst, gap)
        if gap > closed_form.TOLERANCE + allowed[own]:
            wrong.append(f"unit {int(answers.units[own])}")
            problem = problem or refits.reason.get(k, "")
    detail = {
        "engine": engine.name,
        "units_checked": len(compared),
        "units": len(answers.units),
        "worst_difference": worst,
        "tolerance": closed_form.TOLERANCE,
        "wrong": wrong[:10],
    }
    if wrong:
        text = f"{engine.name} disagrees with the training function by {worst:.3g} nats ({wrong[0]}); it was not used"
        return Precondition(f"recheck_{engine.name}", "warned", f"{text}: {problem}" if problem else text, detail)
    extent = f"{len(compared)} of {len(answers.units)} people to {worst:.1e} nats"
    text = f"{engine.name} agrees with the training function on {extent}"
    return Precondition(f"recheck_{engine.name}", "passed", text, detail)


def _difference(answers: Retrained, own: int, refits: Retrained, k: int) -> float:
    """Return how far a closed form is from a refit of one person; 0 where both say that there is no value."""
    ours, theirs = (
        models.log_without[0, slice(*np.searchsorted(models.row_unit, [at, at + 1]))]
        for models, at in ((answers, own), (refits, k))
    )
    if answers.lost[own]:
        with_ = answers.log_with[0, slice(*np.searchsorted(answers.row_unit, [own, own + 1]))]
        infinite = bool(refits.lost[k]) or bool(np.isinf(largest_change(with_, theirs)).any())
        return 0.0 if infinite else np.inf
    return np.inf if refits.lost[k] else float(measure_gaps(ours, theirs).max(initial=0.0))


def measure_gaps(ours: Float, theirs: Float) -> Float:
    """Return the largest difference of a log-probability in each row, shape (R,); infinite for other shapes."""
    if ours.shape != theirs.shape:
        return np.full(len(ours), np.inf)
    gap = np.abs(np.maximum(ours, UNDERFLOW) - np.maximum(theirs, UNDERFLOW))
    return np.asarray(np.nan_to_num(gap, nan=np.inf).max(axis=-1, initial=0.0))


# Shadow models: trained on subsets of the pool.


@dataclass(frozen=True, eq=False)
class Shadows:
    """Models trained on subsets of the pool, asked about all of it or its trials: one training serves every attack."""

    #: which of the records that were asked about each of N models was trained on, shape (N, R)
    masks: NDArray[np.bool_]
    #: log-probabilities of every model on the records that were asked about, shape (N, R, K); NaN where training failed
    log_p: Float
    #: why trainings failed, by number
    reason: Mapping[int, str] = field(default_factory=dict)
    #: the same as ``log_p`` of questions beside R of the records, shape (N, R, Q, K)
    near: Float | None = None

    def first(self, count: int) -> Self:
        """Return so many of these models, the first ones."""
        names = ("masks", "log_p", *(() if self.near is None else ("near",)))
        reason = {i: why for i, why in self.reason.items() if i < count}
        return replace(self, reason=reason, **{n: getattr(self, n)[:count] for n in names})

    def joined(self, more: Self) -> Self:
        """Return the models of both, ``more`` last."""
        names = ("masks", "log_p", *(() if self.near is None else ("near",)))
        both: dict[str, Any] = {n: np.concatenate([getattr(self, n), getattr(more, n)]) for n in names}
        return replace(self, reason={**self.reason, **{len(self.masks) + i: w for i, w in more.reason.items()}}, **both)


def train_on_subsets(
    subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet, *, rows: Index | None = None
) -> Shadows:
    """Return models trained on subsets of the pool (N, P), asked about ``rows`` or all of it; ``seeds``: one or N."""
    count, questions = len(masks), np.arange(masks.shape[1], dtype=np.int64) if rows is None else rows
    each = seeds * count if len(seeds) == 1 else seeds
    if len(each) != count:
        raise ValueError(f"{len(seeds)} seeds for {count} subsets")
    fits = [
        Fit(seed, questions, members=np.flatnonzero(mask).astype(np.int32), repeat=_repeat(seed, i))
        for i, (mask, seed) in enumerate(zip(masks, each, strict=True))
    ]
    log_p, reason = np.full((count, len(questions), subject.width), np.nan), dict[int, str]()
    for i, answer in enumerate(fleet.fits(subject, fits, label="training shadow models")):
        if answer.problem:
            reason[i] = answer.problem
        else:
            log_p[i] = answer.log_p
    return Shadows(masks, log_p, reason)
