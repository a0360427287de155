"""What leaving units out takes from the classes, and units in blocks that stay near the processor."""

import time
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, field, replace
from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.engine import Asked, Engine
from privgate.families.retrained import Retrained, Status
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

VANISHED = "without the person one class has no record left"

#: numbers handled at once: 8 MB of float64 stay near the processor
BLOCK = 1_000_000


@dataclass(frozen=True, eq=False)
class Removal:
    """Which classes lose which records when units are left out: one pair for each (unit, class) that loses some.

    Parameters
    ----------
    label : int64 array of shape (T,)
        Class of each pair.
    start : int64 array of shape (T + 1,)
        Pair p loses ``rows[start[p]:start[p + 1]]``.
    rows : int64 array
        Training records.
    first : int64 array of shape (U + 1,)
        Unit u has pairs ``first[u] .. first[u + 1] - 1``.
    """

    label: Index
    start: Index
    rows: Index
    first: Index

    @property
    def lost(self) -> Index:
        """Number of records that each pair loses, shape (T,)."""
        return np.diff(self.start)

    @property
    def size(self) -> Index:
        """Number of records of each unit, shape (U,)."""
        return np.diff(self.start[self.first])

    @property
    def single(self) -> bool:
        """Whether every pair loses exactly one record."""
        return len(self.rows) == len(self.start) - 1  # not the labels, which `whole` leaves as they are

    @property
    def records(self) -> bool:
        """Whether every unit is one record."""
        return len(self.rows) == len(self.first) - 1

    @property
    def whole(self) -> "Removal":
        """The same units with one pair each, whatever the classes of their records."""
        return Removal(self.label, self.start[self.first], self.rows, self.first)


def spread(first: Index, size: Index) -> Index:
    """Return first[0], first[0] + 1, … (size[0] numbers), first[1], … in one array."""
    return np.repeat(first - (np.cumsum(size) - size), size) + np.arange(size.sum())


def removal(subject: Subject, units: Index) -> Removal:
    """Return what the classes lose when each of ``units`` is left out."""
    labels, K = subject.label_codes, len(subject.classes)
    unit, rows = designs.unit_rows(subject, units)
    edges = np.arange(len(units) + 1, dtype=np.int64)
    if subject.data.groups is None:
        return Removal(labels[rows], edges, rows, edges)
    key = unit * K + labels[rows]
    order = np.argsort(key, kind="stable")
    pairs, start = np.unique(key[order], return_index=True)
    first = np.searchsorted(pairs // K, edges).astype(np.int64)
    return Removal(pairs % K, np.append(start, len(rows)).astype(np.int64), rows[order], first)


def blocks(row_unit: Index, n_units: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield (units, rows) slices with at most about ``BLOCK`` numbers each, never less than one unit."""
    ends = np.searchsorted(row_unit, np.arange(n_units + 1))
    unit = 0
    while unit < n_units:
        stop = int(np.searchsorted(ends, ends[unit] + max(BLOCK // max(width, 1), 1), side="right")) - 1
        stop = min(max(stop, unit + 1), n_units)
        yield slice(unit, stop), slice(int(ends[unit]), int(ends[stop]))
        unit = stop


# What engines share that answer in closed form: units in blocks, vanishing classes, handing on.

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

    def form(self, subject: Subject) -> Form:
        """Return the closed form; may raise ``Declined``."""
        raise NotImplementedError

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return exact answers, and the units that are handed on."""
        form = self.form(asked.subject)
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
        reason = {int(u): VANISHED for u in np.flatnonzero(designs.vanishing(subject, units))}
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


# Two classes whose first probability is released as 1 - p: near 0 it has few digits left, and then none.
#
# scikit-learn computes the second of two probabilities and subtracts it from 1, so that a first probability q carries
# a rounding of up to 1e-16 and is exactly 0 below 6e-17. A closed form knows ln q better than the released number
# does. What counts is the released number: 0 is said where it is certain, a rounding that matters little is charged to
# the unit's error (docs/mathematics.md, section 16), and where it matters the unit is handed on.

#: ln q: e^-18 is 1.5e-8, of which a rounding of 1.1e-16 takes less than 1e-8 nats
WHOLE = -18.0
#: ln q: half the distance from 1 to the next smaller number is 5.6e-17 = e^-37.4, below which 1 - p is 0
NOTHING = -38.0
#: how far 1 - p may be from q: p is off by at most two units in the last place below 1, and 1 - p itself is exact
ROUNDING = 2.0**-52
#: nats of rounding that are charged to the error; beyond, the training function is asked
CHARGED = 1e-3
WHY = "the probability of their first class, released as 1 - p, has no digits left"


def as_released(made: Retrained) -> tuple[Retrained, Index]:
    """Return an engine's answer without the units whose first probability is rounded too far, and those units.

    Parameters
    ----------
    made : Retrained
        Its log-probabilities are those of exact arithmetic. With more than two classes nothing is subtracted from 1.
    """
    if made.log_with.shape[-1] != 2 or not len(made.units):
        return made, made.units[:0]
    live = np.isin(made.status, (Status.EXACT, Status.CONVERGED))
    first = np.stack([made.log_with[..., 0], made.log_without[..., 0]])
    margin = np.nan_to_num(made.error, nan=0.0)[made.row_unit]
    rounded = (first < WHOLE + margin) & (first > NOTHING - margin)
    with np.errstate(over="ignore", divide="ignore"):
        share = np.minimum(ROUNDING * np.exp(margin - first), 1.0)
        charge = np.where(rounded, -np.log1p(-share), 0.0).max(axis=(0, 1))
    off = np.zeros(len(made.units))
    np.maximum.at(off, made.row_unit, charge)
    unsure = live & (off > CHARGED)
    made = replace(made, error=made.error + np.where(live & ~unsure, off, 0.0))
    with_, without = made.log_with.copy(), made.log_without.copy()
    for values in (with_, without):
        values[..., 0][values[..., 0] <= NOTHING] = -np.inf
    made = replace(made, log_with=with_, log_without=without)
    return (made.select(~unsure), made.units[unsure]) if unsure.any() else (made, made.units[:0])
