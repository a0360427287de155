"""How a certified solver answers units: records in sweeps, the largest first, and what is left one at a time."""

from abc import ABC, abstractmethod
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.families.logistic import objective
from privgate.families.logistic.binary_sweeps import stopped
from privgate.families.logistic.objective import Float, Objective
from privgate.families.retrained import Index
from privgate.subject.subject import Subject

#: nats; wanted bound on the error of each log-probability, two digits below any limit of a policy
TOLERANCE = 1e-6
#: nats; where both trainings together may stop further than this from their minima, leave-one-out measures the solver
STOPPED_SHORT = 0.05
#: parameters of models without a unit that are in memory at once
BLOCK = 1_000_000


@dataclass(eq=False)
class Solver(ABC):
    """The minimiser with every record, and certified minimisers without some.

    Parameters
    ----------
    problem : Objective
    S : Whitened or Minimum
        The full model, and what its Hessian says.
    """

    problem: Objective
    S: Any

    @property
    @abstractmethod
    def u(self) -> Float:
        """Parameters, shape (C, p): one row for two classes."""

    @property
    @abstractmethod
    def inverse(self) -> Float:
        """Inverse Hessian of all parameters."""

    @property
    @abstractmethod
    def spread(self) -> float:
        """Largest Euclidean length of parameters of length 1 in the Hessian's norm."""

    @property
    @abstractmethod
    def reach(self) -> Float:
        """Largest change of a logit difference at each pool row, (P,), per unit of the Hessian's norm."""

    @abstractmethod
    def shifts(self, records: Index, wanted: Float) -> tuple[Float, Float]:
        """Return (changes of the parameters (B, C, p), bounds on their error in the Hessian's norm (B,)).

        ``wanted`` (B,) says how small the bounds should be; a record that does not get there has a larger one, or inf.
        """

    @abstractmethod
    def length(self, delta: Float) -> Float:
        """Return the Hessian's norm of changes of the parameters (B, C, p), shape (B,)."""

    @abstractmethod
    def minimised(self, keep: NDArray[np.bool_]) -> "Kept | None":
        """Return the minimiser on the training records ``keep`` (n,), by damped Newton from ``u``; None if it fails."""

    def stops(self, allowed: Float, records: Index, length: Float) -> Float:
        """Return how far from their minima trainings without some records may stop, in the Hessian's norm (B,).

        ``allowed`` (p,) bounds the components of their gradients, ``length`` (B,) how far the minima are from ``u``.
        """
        off = self.S.defects[0]
        return stopped(self.inverse, allowed, self.S.radius, (self.S.keep[records] - off) * (1 - off), length)

    def bent(self, records: Index, delta: Float) -> Float:
        """Return lengths (B,) in the Hessian's norm that bend no loss of a kept record less than these changes do.

        How far the Hessian falls follows from the largest change of a logit difference of a record that is kept, which
        is seldom anywhere near what a change of that length could do.
        """
        X, largest = self.problem.X[: self.problem.n], np.zeros(len(delta))
        step = max(1, BLOCK // max(1, delta.shape[1] * len(X)))
        for first in range(0, len(delta), step):
            some = slice(first, first + step)
            U = np.einsum("bcp,np->bnc", delta[some], X, optimize=True)
            size = np.abs(U[..., 0]) if U.shape[2] == 1 else U.max(axis=2) - U.min(axis=2)
            size[np.arange(len(size)), records[some]] = 0.0
            largest[some] = size.max(axis=1)
        return np.asarray(largest * (1 + 1e-9) / self.S.radius)

    def stops_whole(self, allowed: Float) -> float:
        """Return how far from its minimum a training on all records may stop, in the Hessian's norm."""
        kept = np.array([1 - 2 * self.S.defects[0]])
        return float(stopped(self.inverse, allowed, self.S.radius, kept, np.zeros(1))[0])

    def without(self, rows: Index, allowed: Float | None = None) -> tuple[Float, Float, float] | None:
        """Return parameters (C, p) and bounds on their error; None if it fails.

        The bounds: on any logit difference at each pool row (P,), and on the parameters in the Euclidean norm; with
        ``allowed``, on the distance to wherever a training stops.
        """
        keep = np.ones(self.problem.n, dtype=bool)
        keep[rows] = False
        found = self.minimised(keep)
        if found is None or not found.reach.max() * found.apart <= 1e-3:
            return None
        apart = found.apart
        if allowed is not None:
            radius = float(found.reach[: self.problem.n][keep].max())
            apart += float(stopped(found.inverse, allowed, radius, np.full(1, 0.99), np.full(1, apart))[0])
        return found.u, apart * found.reach, apart * found.spread

    def screened(self) -> tuple[Float, Float] | None:
        """Return (change of each record's own logit by one step, bound on the step's error in the Hessian's norm).

        A rigorous interval for every record; None where none is cheap.
        """
        return None

    def one_step(self, records: Index) -> Float:
        """Return the changes of the parameters by that step, shape (B, 1, p)."""
        raise NotImplementedError


class Kept(NamedTuple):
    """A minimiser on some records: parameters (C, p), how far from the minimum, and what its Hessian says."""

    u: Float
    apart: float
    inverse: Float
    reach: Float  # (P,)
    spread: float


@dataclass(frozen=True, eq=False)
class Answers:
    """What is filled in block by block.

    ``reach`` (U,) is the largest change of a logit difference at a unit's queries for parameters moved by 1; ``error``
    (U,) bounds the distance to the minimum's log-probabilities, ``stop`` (U,) what a training may miss of the minimum.
    """

    units: Index
    row_unit: Index
    row_query: Index
    log_without: Float
    allowed: Float
    reach: Float
    error: Float
    stop: Float
    delta: Float | None
    delta_error: Float  # (U,) Euclidean, of wherever a training stops

    def rows(self, part: Index) -> tuple[Index, Index]:
        """Return the rows of some units (positions), and which entry of ``part`` each belongs to."""
        first, last = np.searchsorted(self.row_unit, part), np.searchsorted(self.row_unit, part, side="right")
        size = last - first
        at = np.repeat(np.arange(len(part)), size)
        return np.arange(size.sum()) + np.repeat(first - (np.cumsum(size) - size), size), at


def fill_records(  # noqa: PLR0917  the same four as its neighbors, and two more
    solver: Solver, problem: Objective, subject: Subject, answers: Answers, todo: Index, wanted: Float
) -> None:
    """Answer the units of one record, many at a time, within ``wanted`` nats where sweeps get there."""
    members = subject.data.units if subject.data.groups is not None else None
    if members is not None:
        single = np.array([len(members[answers.units[k]]) == 1 for k in todo], dtype=bool)
        todo, wanted = todo[single], wanted[single]
    records = answers.units if members is None else np.array([members[u][0] for u in answers.units], dtype=np.int64)
    block = max(64, BLOCK // solver.u.size)
    for begin in range(0, len(todo), block):
        part = todo[begin : begin + block]
        rows, at = answers.rows(part)
        query = answers.row_query[rows]
        reach = answers.reach[part]
        delta, error = solver.shifts(records[part], wanted[begin : begin + block] / reach)
        answers.error[part] = error * reach
        length = solver.length(delta) + error
        stop = solver.stops(answers.allowed, records[part], length)
        far = np.flatnonzero(np.isfinite(error) & ~(stop * reach <= STOPPED_SHORT / 2))
        if len(far):
            length[far] = np.minimum(length[far], solver.bent(records[part[far]], delta[far]) + error[far])
            stop[far] = solver.stops(answers.allowed, records[part[far]], length[far])
        answers.stop[part] = stop * reach
        moved, logits = solver.u + delta, np.empty((len(rows), len(solver.u)))
        for first in range(0, len(rows), block):
            some = slice(first, first + block)
            logits[some] = np.einsum("rp,rcp->rc", problem.X[query[some]], moved[at[some]])
        sure = np.isfinite(error)[at]
        answers.log_without[rows[sure]] = log_softmax(problem, logits[sure])
        if answers.delta is not None:
            answers.delta[part] = delta
            answers.delta_error[part] = (error + stop) * solver.spread


def fill_largest(  # noqa: PLR0917  the same four as its neighbors, and two more
    solver: Solver, problem: Objective, subject: Subject, answers: Answers, todo: Index, full: Float
) -> None:
    """Answer all records by one step with a rigorous radius, then closely those that may hold the maximum.

    A record that seems to be below the largest change so far is answered no closer than that takes.
    """
    found = solver.screened()
    if found is None:
        raise TypeError("this solver has no cheap interval")
    record, (change, radius) = answers.units, found
    z = full[record, 1] - full[record, 0]
    answers.log_without[todo] = log_softmax(problem, (z + change[record])[:, None])[todo]
    answers.error[todo] = (radius * solver.reach[: problem.n])[record][todo]
    length = np.abs(change) / np.maximum(solver.reach[: problem.n], 1e-300) + radius
    stop = solver.stops(answers.allowed, record, length[record])
    answers.stop[todo] = (stop * answers.reach)[todo]
    if answers.delta is not None:
        answers.delta[todo] = solver.one_step(record[todo])
        answers.delta_error[todo] = (radius[record] + stop)[todo] * solver.spread
    low, high = _pdtp_range(z, answers.log_without, answers.error)
    wanted = np.full(len(record), np.inf)
    while True:
        best = low[todo].max(initial=0.0)
        open_ = todo[(high[todo] > best) & (wanted[todo] > TOLERANCE)]
        if not len(open_):
            return
        part = np.sort(open_[np.argsort(-high[open_], kind="stable")[:64]])
        missing = best - np.abs(full[record[part]] - answers.log_without[part]).max(axis=1)
        wanted[part] = np.maximum(TOLERANCE, np.minimum(missing / 2, wanted[part] / 100))
        fill_records(solver, problem, subject, answers, part, wanted[part])
        fill_slowly(solver, problem, subject, answers, part[~(answers.error[part] <= wanted[part] * (1 + 1e-9))])
        low[part], high[part] = _pdtp_range(z[part], answers.log_without[part], answers.error[part])


def _pdtp_range(z: Float, log_without: Float, error: Float) -> tuple[Float, Float]:
    """Return the range of PDTP from logits ``z`` while the logit without the record lies within ``error`` of its own.

    Where the error is infinite, so is the range: [0, inf].
    """
    sure = np.isfinite(error)
    after = np.where(sure, log_without[:, 1] - log_without[:, 0], 0)
    ends = [np.where(sure, after + sign * error, after) for sign in (-1, 1)]
    change = [
        np.maximum(
            np.abs(objective.log_sigmoid(z) - objective.log_sigmoid(end)),
            np.abs(objective.log_sigmoid(-z) - objective.log_sigmoid(-end)),
        )
        for end in ends
    ]
    inside = (ends[0] <= z) & (z <= ends[1])
    high = np.where(sure, np.maximum(*change), np.inf)
    return np.where(inside | ~sure, 0.0, np.minimum(*change)), high


def fill_slowly(solver: Solver, problem: Objective, subject: Subject, answers: Answers, todo: Index) -> None:
    """Answer what no sweep could certify, and people with several records, by Newton's method one at a time."""
    for k in todo:
        rows, _ = answers.rows(np.array([k]))
        query = answers.row_query[rows]
        found = solver.without(subject.data.units[int(answers.units[k])], answers.allowed)
        if found is None:
            continue
        u, error, euclidean = found
        answers.log_without[rows] = log_softmax(problem, problem.X[query] @ u.T)
        answers.error[k], answers.stop[k] = error[query].max(initial=0.0), 0.0
        if answers.delta is not None:
            answers.delta[k] = u - solver.u
            answers.delta_error[k] = euclidean


def log_softmax(problem: Objective, logits: Float) -> Float:
    """Return log-probabilities (Q, K) from logits (Q, 1) of the second of two classes, or (Q, K)."""
    if problem.K == 2:
        z = logits[:, 0]
        return np.stack([objective.log_sigmoid(-z), objective.log_sigmoid(z)], axis=1)
    top = logits.max(axis=1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))
