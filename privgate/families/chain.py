"""The chain: each engine answers the units it covers, the next one gets the rest, the last one refits."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from typing import Literal

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.errors import MeasurementError
from privgate.evidence import EngineShare, Precondition
from privgate.families import catalogue, closed_form, designs, in_parts, listed
from privgate.families.engine import Asked, Declined, Engine
from privgate.families.recheck import Asker, recheck
from privgate.families.refit import screened
from privgate.families.retrained import Retrained, Seeds, Shadows, Status
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

Mode = Literal["all", "max", "screen"]
#: (the last engine, what is left for it, what the others answered) -> answers, and units that nobody needs any more
Refitting = Callable[[Engine, Asked, Sequence[Retrained]], tuple[Retrained, Index]]
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


def answer(
    subject: Subject,
    units: Index,
    seeds: Seeds,
    fleet: Fleet,
    *,
    queries: tuple[Index, Index] | None = None,
    limits: tuple[float, ...] = (1.0,),
    changes: bool = False,
    mode: Mode = "all",
    engines: tuple[Engine, ...] | None = None,
    asker: Asker | None = None,
    refitting: Refitting | None = None,
    rehearsed: bool = False,
    elsewhere: bool = False,
) -> Answered:
    """Return models without each unit from the first engine that covers it; complete unless ``refitting`` stops.

    Parameters
    ----------
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``, each once.
    seeds : tuple
        Paired seeds. Training without randomness is answered for the first one only.
    queries : (row_unit, row_query), optional
        As in ``Retrained``; each unit's own records if absent.
    limits : tuple of float
        PDTP limits of the policy, nats: the units nearest to them are re-checked too.
    changes : bool
        Whether parameters of the models without each unit are wanted in ``Retrained.changes``.
    mode : {"all", "max", "screen"}
        Every unit closely; only those that could hold the maximum closely, where an engine can (the others carry an
        error that excludes them); or, where only refits are left, a shadow ranking whose top tenth is retrained (the
        others get status ``screened`` and never approve).
    engines : tuple of Engine, optional
        The catalogue if absent; the last one must hand on nothing.
    asker : Asker, optional
        Puts further questions to the models that re-checks train.
    refitting : callable, optional
        Asks the last engine instead, and may leave units over; not used by mode "screen", which ranks.
    rehearsed : bool
        Nobody is judged by the answers: fast engines are not re-checked.
    elsewhere : bool
        A search for questions that tell more: engines were compared before, see ``recheck``.

    Raises
    ------
    MeasurementError
        The last engine left units over.
    """
    units = np.asarray(units, dtype=np.int64)
    rows = designs.unit_rows(subject, units) if queries is None else queries
    if changes and (more := listed.beside(subject, units, rows)) is not None:
        larger, rows = more
        # what ends early judges people by their own records alone, and these models were asked more
        made = _answer(
            larger,
            units,
            seeds,
            fleet,
            rows,
            limits,
            changes,
            mode,
            engines,
            asker,
            None,
            rehearsed,
            elsewhere,
        )
        return replace(made, retrained=listed.apart(subject, made.retrained))
    return _answer(
        subject,
        units,
        seeds,
        fleet,
        queries,
        limits,
        changes,
        mode,
        engines,
        asker,
        refitting,
        rehearsed,
        elsewhere,
    )


def _answer(  # noqa: PLR0917  what ``answer`` was given
    subject: Subject,
    units: Index,
    seeds: Seeds,
    fleet: Fleet,
    queries: tuple[Index, Index] | None,
    limits: tuple[float, ...],
    changes: bool,  # noqa: FBT001  ditto
    mode: Mode,
    engines: tuple[Engine, ...] | None,
    asker: Asker | None,
    refitting: Refitting | None,
    rehearsed: bool,  # noqa: FBT001  ditto
    elsewhere: bool,  # noqa: FBT001  ditto
) -> Answered:
    rest, parts = units, list[Retrained]()
    rechecks, declined, shares = list[Precondition](), dict[str, str](), list[EngineShare]()
    chain = catalogue.of(subject) if engines is None else engines
    for engine in chain:
        if not len(rest) and parts:
            break
        if why := engine.refusal(subject):
            declined[engine.name] = why
            continue
        there = _queries_of(queries, units, rest)
        asked = Asked(subject, rest, seeds, fleet, there, changes, mode, limits=limits)
        try:
            made, handed_on = _made(engine, asked, parts, refitting)
        except Declined as exc:
            declined[engine.name] = str(exc)
            shares.append(EngineShare.of(engine.name, len(rest), 0, {str(exc): len(rest)}))
            continue
        rounded = handed_on[:0]
        if engine.complements:
            made, rounded = closed_form.as_released(made)
        if engine.name != "refit" and len(made.units) and not rehearsed:  # refits are the training function itself
            checked = engine.compared(subject, made, fleet, limits) or recheck(
                engine, subject, made, fleet, limits=limits, asker=asker, elsewhere=elsewhere
            )
            rechecks.append(checked)
            if checked.outcome != "passed":
                declined[engine.name] = checked.message
                shares.append(
                    EngineShare.of(engine.name, len(rest), 0, {"it disagreed with the training function": len(rest)})
                )
                continue
            if notes := engine.notes(subject):
                rechecks[-1] = replace(checked, detail={**checked.detail, "notes": notes})
        if len(made.units):
            parts.append(made)
            seeds = made.seeds  # training without randomness needs no further seeds from the next engine either
        shares += _shares(engine, subject, rest, made, handed_on=handed_on, rounded=len(rounded))
        rest = np.sort(np.concatenate([handed_on, rounded])) if len(rounded) else handed_on
    if len(rest) and refitting is None:
        raise MeasurementError(f"{len(rest)} units have no answer from any engine: {declined}")
    whole = parts[0] if len(parts) == 1 and (np.diff(parts[0].units) > 0).all() else Retrained.concatenate(parts)
    return Answered(whole, tuple(rechecks), declined, tuple(shares), rest)


def _made(engine: Engine, asked: Asked, parts: list[Retrained], refitting: Refitting | None) -> tuple[Retrained, Index]:
    """Return what an engine answers and hands on; what trains is ranked by mode "screen", and may end early."""
    if engine.name == "refit" and asked.mode == "screen":
        return screened(engine, asked)
    if engine.trains and refitting is not None and asked.mode != "screen":
        return refitting(engine, asked, parts)
    return in_parts.remembered_answers(engine, asked)


def subsets(subject: Subject, masks: NDArray[np.bool_], seeds: Seeds, fleet: Fleet) -> Shadows:
    """Return models trained on subsets of the pool, from the first engine that has a way.

    Raises
    ------
    MeasurementError
        No engine answered.
    """
    for engine in catalogue.of(subject):
        if not engine.refusal(subject) and (made := engine.subsets(subject, masks, seeds, fleet)) is not None:
            return made
    raise MeasurementError("no engine can train on subsets of this pool")


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
    if queries is None or rest is units:
        return queries
    order = np.argsort(rest, kind="stable")
    place = np.minimum(np.searchsorted(rest, units, sorter=order), len(rest) - 1)
    new = np.where(rest[order[place]] == units, order[place], -1)
    row_unit = new[queries[0]]
    kept = np.flatnonzero(row_unit >= 0)
    kept = kept[np.argsort(row_unit[kept], kind="stable")]
    return row_unit[kept].astype(np.int64), queries[1][kept]
