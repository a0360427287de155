"""What engines share that answer in closed form: units in blocks, vanishing classes, handing on."""

import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.families.engine import Asked, Engine
from privgate.families.removal import VANISHED, Float, Removal, blocks, removal, vanishing
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

NO_VALUE = "every class has probability 0 at one of the queries (0/0)"


class Scores(NamedTuple):
    """Joint log-probabilities of rows, each a unit at a query."""

    full: Float  # (R, K) of the model with every record
    without: Float  # (R, K) of the model without the unit; NaN where there is none
    sure: NDArray[np.bool_]  # (R,) whether the answer may be used; else the unit is handed on


#: (what is lost, unit of each row (R,), query of each row (R,)) -> scores
Joint = Callable[[Removal, Index, Index], Scores]


@dataclass(frozen=True, eq=False)
class Form:
    """The closed form of one subject.

    Parameters
    ----------
    joint : callable
    width : int
        Numbers that one row touches: sets the block size.
    normalize : bool
        Whether the scores are to be normalized to log-probabilities; else they are such already.
    undefined : mapping position in units -> reason
        Units without which there is no model.
    """

    joint: Joint
    width: int
    normalize: bool = True
    undefined: Mapping[int, str] = field(default_factory=dict)


class ClosedForm(Engine):
    """An engine that answers in closed form; it says what it covers and gives the form."""

    version = 3
    divisible = True

    def prepared(self, subject: Subject) -> Any:
        """Return the closed form, or what it is made of."""
        return self.form(subject)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; may raise ``Declined``."""
        raise NotImplementedError

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return exact answers, and the units that are handed on."""
        return self.evaluated(self.form(asked.subject) if asked.common is None else asked.common, asked)

    def evaluated(self, form: Form, asked: Asked) -> tuple[Retrained, Index]:
        """Return what a form says of the units that are sure, and the others; block by block."""
        subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
        K = subject.width
        with_, without = np.empty((len(row_query), K)), np.empty((len(row_query), K))
        sure, started = np.ones(len(units), dtype=bool), time.monotonic()
        for part, rows in blocks(row_unit, len(units), max(form.width, K)):
            with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
                made = form.joint(removal(subject, units[part]), row_unit[rows] - part.start, row_query[rows])
            with_[rows] = normalized(made.full) if form.normalize else made.full
            without[rows] = normalized(made.without) if form.normalize else made.without
            sure[row_unit[rows][~made.sure | np.isnan(made.without).any(axis=1)]] = False
            if part != slice(0, len(units)):  # what is done at once needs no progress
                _tell(asked.fleet, f"answering by {self.name}", part.stop, len(units), time.monotonic() - started)
        reason = {int(u): VANISHED for u in np.flatnonzero(vanishing(subject, units))}
        dead = (np.isneginf(with_).all(axis=1) | np.isneginf(without).all(axis=1)) & sure[row_unit]
        reason |= {int(u): NO_VALUE for u in np.unique(row_unit[dead]) if int(u) not in reason}
        reason |= form.undefined
        gone = np.fromiter(reason, dtype=np.int64)
        sure[gone] = True
        without[np.isin(row_unit, gone) | ~sure[row_unit]] = -np.inf  # nothing is said about those handed on
        result = Retrained.of(
            self.name, units, asked.seeds[:1], asked.rows, with_[None], without[None], undefined=reason
        )
        return (result, units[:0]) if sure.all() else (result.select(sure), units[~sure])


def _tell(fleet: Fleet | None, what: str, done: int, total: int, took: float) -> None:
    """Say how far a closed form is; nothing where nobody listens."""
    if fleet is not None:
        fleet.activity = what
        fleet.report(done, total, took * (total - done) / done)


def normalized(joint: Float) -> Float:
    """Return log-posteriors from joint log-probabilities of shape (R, K); -inf everywhere where all are -inf."""
    # reductions along a short axis are slow
    top = np.ascontiguousarray(joint.T).max(axis=0)[:, None]
    dead = np.isneginf(top)
    with np.errstate(invalid="ignore", divide="ignore"):
        shifted = joint - np.where(dead, 0.0, top)
        shifted -= np.log(np.exp(shifted) @ np.ones((joint.shape[1], 1)))
    if dead.any():
        shifted[dead[:, 0]] = -np.inf
    return np.asarray(shifted)


def by_size(
    one: Callable[[Index, Index], Scores], several: Callable[[list[tuple[int, Index]], Index], Scores]
) -> Joint:
    """Return a form that answers units of one record together, and units of several one after the other.

    Parameters
    ----------
    one : callable
        (record (R,), query (R,)) -> scores.
    several : callable
        ((class, lost records) of each class that loses some, query (R,)) -> scores.
    """

    def joint(lost: Removal, unit: Index, query: Index) -> Scores:
        begin = lost.start[lost.first[:-1]]
        if lost.records:
            return one(lost.rows[begin[unit]], query)
        alone = np.flatnonzero((lost.size == 1)[unit])
        made, rows = [one(lost.rows[begin[unit[alone]]], query[alone])], [alone]
        for u in np.flatnonzero(lost.size > 1).tolist():
            rows.append(np.arange(*np.searchsorted(unit, [u, u + 1])))
            made.append(several(lost.parts(u), query[rows[-1]]))
        place = np.argsort(np.concatenate(rows), kind="stable")
        return Scores(*(np.concatenate(a)[place] for a in zip(*made, strict=True)))

    return joint
