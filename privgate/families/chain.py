"""The chain: each engine answers the units it covers, the next one gets the rest, the last one refits."""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace

import numpy as np

from privgate.arrays import Index
from privgate.errors import MeasurementError
from privgate.evidence import Count, EngineShare, Precondition
from privgate.families import catalogue, closed_form, listed
from privgate.families.engine import Asked, Declined, Engine
from privgate.families.recheck import recheck
from privgate.families.refit import screened
from privgate.families.retrained import Retrained, Shown, Status
from privgate.subject.subject import Subject

#: why units were left without an answer
DECIDED = "the verdict was decided without them"


@dataclass(frozen=True, eq=False)
class Answered:
    """Retrained models for every unit asked about, and how they were come by.

    Parameters
    ----------
    retrained : Retrained
        All units, ascending.
    rechecks : tuple of Precondition
        One for each fast engine that answered: passed, or warned where it disagreed with the training function and its
        answers were thrown away.
    declined : mapping engine -> sentence
        Why an engine was not used.
    shares : tuple of EngineShare
        What each engine that was asked answered and handed on, in the order in which they were asked.
    left : int64 array
        Units without an answer, because ``refitting`` needed none; ascending.
    """

    retrained: Retrained
    rechecks: tuple[Precondition, ...] = ()
    declined: Mapping[str, str] = field(default_factory=dict)
    shares: tuple[EngineShare, ...] = ()
    left: Index = field(default_factory=lambda: np.zeros(0, dtype=np.int64))


def answer(asked: Asked) -> Answered:
    """Return models without each unit from the first engine that covers it; complete unless ``refitting`` stops.

    Raises
    ------
    MeasurementError
        The last engine left units over.
    """
    asked = replace(asked, limits=asked.limits or (1.0,))  # where no policy says another
    if asked.changes and (more := listed.beside(asked.subject, asked.units, asked.rows)) is not None:
        larger, rows = more
        # what ends early judges people by their own records alone, and these models were asked more
        made = _answer(replace(asked, subject=larger, queries=rows, refitting=None))
        return replace(made, retrained=listed.apart(asked.subject, made.retrained))
    return _answer(asked)


def _answer(asked: Asked) -> Answered:
    left, parts = asked, list[Retrained]()
    rechecks, declined, shares = list[Precondition](), dict[str, str](), list[EngineShare]()
    for engine in catalogue.of(asked.subject) if asked.engines is None else asked.engines:
        rest = left.units
        if not len(rest) and parts:
            break
        if why := engine.refusal(asked.subject):
            declined[engine.name] = why
            continue
        try:
            made, handed_on = _made(engine, left, parts)
        except Declined as exc:
            declined[engine.name] = str(exc)
            shares.append(EngineShare.of(engine.name, len(rest), 0, {str(exc): len(rest)}))
            continue
        rounded = handed_on[:0]
        if engine.complements:
            made, rounded = closed_form.as_released(made)
        checked, made = _compared(engine, left, made)
        if checked is not None:
            rechecks.append(checked)
            if checked.outcome != "passed":
                declined[engine.name] = checked.message
                wrong = {"it disagreed with the training function": len(rest)}
                shares.append(EngineShare.of(engine.name, len(rest), 0, wrong))
                continue
        if len(made.units):
            parts.append(made)
        shares += _shares(engine, asked.subject, rest, made, handed_on=handed_on, rounded=len(rounded))
        rest = np.sort(np.concatenate([handed_on, rounded])) if len(rounded) else handed_on
        # training without randomness needs no further seeds from the next engine either
        seeds = made.seeds if len(made.units) else left.seeds
        left = replace(left, units=rest, seeds=seeds, queries=_queries_of(asked.queries, asked.units, rest))
    if len(left.units) and asked.refitting is None:
        raise MeasurementError(f"{Count(len(left.units))} people have no answer from any engine: {declined}")
    whole = parts[0] if len(parts) == 1 and (np.diff(parts[0].units) > 0).all() else Retrained.concatenate(parts)
    return Answered(whole, tuple(rechecks), declined, tuple(shares), left.units)


def _compared(engine: Engine, asked: Asked, made: Retrained) -> tuple[Precondition | None, Retrained]:
    """Return what a re-check found, if there was one, and the answers with what stands behind each."""
    checked: Precondition | None = None
    if not engine.real and len(made.units) and not asked.rehearsed:
        checked, made = recheck(engine, asked, made)
        if checked.outcome == "passed" and (notes := engine.notes(asked.subject)):
            checked = replace(checked, detail={**checked.detail, "notes": notes})
    if asked.rehearsed or engine.certain:  # nobody is judged by a rehearsal
        made = replace(made, shown=np.full(len(made.units), Shown.LIMITED, dtype=object))
    return checked, made


def _made(engine: Engine, asked: Asked, parts: list[Retrained]) -> tuple[Retrained, Index]:
    """Return what an engine answers and hands on; what trains is ranked by mode "screen", and may end early."""
    if engine.name == "refit" and asked.mode == "screen":
        return screened(engine, asked)
    if engine.trains and asked.refitting is not None and asked.mode != "screen":
        return asked.refitting(engine, asked, parts)
    return engine.answers(asked)


def _shares(
    engine: Engine, subject: Subject, rest: Index, made: Retrained, *, handed_on: Index, rounded: int
) -> list[EngineShare]:
    """Return what an engine answered and handed on; people who were only ranked are the ranking's, not the engine's."""
    ranked = int((made.status == Status.SCREENED).sum())
    why = _why(engine, subject, handed_on) | ({closed_form.WHY: rounded} if rounded else {})
    if not ranked:
        return [EngineShare.of(_name(engine, made), len(rest), len(made.units), why, _without_limit(made))]
    why["they are not at the top of the ranking"] = ranked
    first = EngineShare.of(engine.name, len(rest), len(made.units) - ranked, why, _without_limit(made))
    return [first, EngineShare.of("screen", ranked, ranked)]


def _name(engine: Engine, made: Retrained) -> str:
    """Return the engine's name, or what it calls itself where it answered all units in another way than usual."""
    names = set(made.engine.tolist())
    return str(names.pop()) if len(names) == 1 else engine.name


def _why(engine: Engine, subject: Subject, handed_on: Index) -> dict[str, int]:
    """Return why units were handed on, each reason with its number of units."""
    several = 0
    if engine.single_records:
        several = sum(len(subject.data.units[int(u)]) > 1 for u in handed_on)
    why = DECIDED if engine.name == "refit" else engine.hands_on  # refits hand nothing on
    counts = {why: len(handed_on) - several, "they have several records": several}
    return {reason: count for reason, count in counts.items() if count}


def _without_limit(made: Retrained) -> dict[str, int]:
    """Return why units have no model to compare with; what training said when it failed may name data, and stays."""
    counts: dict[str, int] = {}
    for k in np.flatnonzero((made.status == Status.UNDEFINED) | (made.status == Status.FAILED)):
        failed = made.status[k] == Status.FAILED
        reason = "training without them failed" if failed else made.reason.get(int(k), "no model without them exists")
        counts[reason] = counts.get(reason, 0) + 1
    return counts


def _queries_of(queries: tuple[Index, Index] | None, units: Index, rest: Index) -> tuple[Index, Index] | None:
    """Return the queries of the units handed on, with positions counted among them."""
    if queries is None or rest is units or not len(rest):
        return queries
    order = np.argsort(rest, kind="stable")
    place = np.minimum(np.searchsorted(rest, units, sorter=order), len(rest) - 1)
    new = np.where(rest[order[place]] == units, order[place], -1)
    row_unit = new[queries[0]]
    kept = np.flatnonzero(row_unit >= 0)
    kept = kept[np.argsort(row_unit[kept], kind="stable")]
    return row_unit[kept].astype(np.int64), queries[1][kept]
