"""L2-regularised logistic regression without each unit, every unit with an error certificate."""

from dataclasses import dataclass
from typing import Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from privgate.engines import design, regression
from privgate.engines.base import Cost, Declined
from privgate.engines.regression import Float, Objective
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows, Status
from privgate.subject import Subject

#: nats; wanted bound on the error of each log-probability, two digits below any limit of a policy
TOLERANCE = 1e-6
#: nats; a solver that stops further than this from its own minimum would be what leave-one-out measures
STOPPED_SHORT = 0.01
#: a refit may stop further from its minimum than the delivered model: 3.2 times was seen; the re-check verifies it
SLACK = 10
#: parameters of models without a unit that are in memory at once
BLOCK = 1_000_000
VANISHED = "without the unit one class has no record left"


class Solver(Protocol):
    """The minimiser with every record, and certified minimisers without some."""

    @property
    def u(self) -> Float:
        """Parameters, shape (C, p): one row for two classes."""
        ...

    def shifts(self, records: Index, wanted: Float) -> tuple[Float, Float]:
        """Return (changes of the parameters (B, C, p), bounds on their error in the Hessian's norm (B,)).

        ``wanted`` (B,) says how small the bounds should be; a record that does not get there has a larger one, or inf.
        """
        ...

    def without(self, rows: Index) -> tuple[Float, Float, float] | None:
        """Return parameters (C, p) and bounds on their error; None if it fails.

        The bounds: on any logit difference at each pool row (P,), and on the parameters in the Euclidean norm.
        """
        ...

    @property
    def spread(self) -> float:
        """Largest Euclidean length of parameters of length 1 in the Hessian's norm."""
        ...

    @property
    def reach(self) -> Float:
        """Largest change of a logit difference at each pool row, (P,), per unit of the Hessian's norm."""
        ...


@runtime_checkable
class LargestFirst(Protocol):
    """A two-class solver with a cheap rigorous interval for every record."""

    def screened(self) -> tuple[Float, Float]:
        """Return (change of each record's own logit by one step, bound on the step's error in the Hessian's norm)."""
        ...

    def one_step(self, records: Index) -> Float:
        """Return the changes of the parameters by that step, shape (B, 1, p)."""
        ...


@dataclass(frozen=True, eq=False)
class _Answers:
    """What is filled in block by block."""

    units: Index
    row_unit: Index
    row_query: Index
    log_without: Float
    error: Float
    delta: Float | None
    delta_error: Float  # (U,) Euclidean

    def rows(self, part: Index) -> tuple[Index, Index]:
        """Return the rows of some units (positions), and which entry of ``part`` each belongs to."""
        first, last = np.searchsorted(self.row_unit, part), np.searchsorted(self.row_unit, part, side="right")
        size = last - first
        at = np.repeat(np.arange(len(part)), size)
        return np.arange(size.sum()) + np.repeat(first - (np.cumsum(size) - size), size), at


class Logistic:
    """Leave-one-out for ``sklearn.linear_model.LogisticRegression`` with an L2 penalty, two classes or more.

    Every unit's answer is within ``error`` of the exact minimiser without the unit, by a certificate (mathematical
    reference, section 6.3 ii); added to it is ten times the largest difference that the user's own solver leaves
    between its result and the minimiser on all records, because a refit is a run of that solver. A solver that stops
    short by more than 0.01 nats is refitted instead, and told so (section 6.4). O(n^2 p) a sweep, by matrix products.
    """

    name = "logistic"
    version = 4
    hands_on = "no sweep and no Newton step could certify them"
    complements = True
    modes = ("max",)
    gives = ("coef", "intercept", "coef_with", "intercept_with", "coef_error")

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        return regression.refusal(subject)

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...], *, mode: str = "all") -> Cost:
        """Return the cost of four sweeps over all units; for two classes and ``mode="max"``, over 64 of them."""
        n, d, K = subject.data.n, design.matrix(subject).shape[1], len(subject.classes)
        width = d * (1 if K == 2 else K)
        close = min(len(units), 64) if mode == "max" and K == 2 else len(units)
        flops = 16 * n * width * close + 20 * n * width**2
        return Cost(0, flops / 2e10 + 2e-8 * n * close * K, 24 * n * width + 16 * width**2)

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
        changes: bool = False,
        mode: str = "all",
    ) -> tuple[Retrained, Index]:
        """Return every unit that can be certified; the others are handed on.

        With ``mode="max"`` (two classes, records, their own queries) only the units that could hold the largest PDTP
        are answered closely; the others keep a rigorous but wide ``error`` that excludes them.

        Raises
        ------
        Declined
            The Hessian is too ill-conditioned, or the user's solver stops too far from the minimum.
        """
        problem = regression.objective(subject)
        solver, slack = _solved(subject, problem)
        row_unit, row_query = design.unit_rows(subject, units) if queries is None else queries
        full = _log_softmax(problem, problem.X @ solver.u.T)
        answers = _Answers(
            units,
            row_unit,
            row_query,
            np.full((len(row_query), problem.K), -np.inf),
            np.full(len(units), np.inf),
            np.zeros((len(units), *solver.u.shape)) if changes else None,
            np.full(len(units), np.inf),
        )
        gone = _vanishing(subject, units)
        todo = np.flatnonzero(~gone)
        if mode == "max" and queries is None and subject.data.groups is None and isinstance(solver, LargestFirst):
            _fill_largest(solver, problem, subject, answers, todo, full)
            todo = todo[:0]
        _fill_records(solver, problem, subject, answers, todo, np.full(len(todo), TOLERANCE))
        slow = np.flatnonzero(~gone & ~(answers.error <= TOLERANCE * (1 + 1e-9)))
        if mode == "max":
            slow = slow[~np.isfinite(answers.error[slow])]
        _fill_slowly(solver, problem, subject, answers, slow)
        status = np.full(len(units), Status.CONVERGED, dtype=object)
        status[gone] = Status.UNDEFINED
        made = Retrained(
            units=np.asarray(units, dtype=np.int64),
            seeds=seeds[:1],
            row_unit=row_unit,
            row_query=row_query,
            log_with=full[row_query][None],
            log_without=answers.log_without[None],
            error=np.where(gone, 0.0, answers.error + SLACK * slack),
            status=status,
            engine=np.full(len(units), self.name, dtype=object),
            reason={int(k): VANISHED for k in np.flatnonzero(gone)},
            changes=_changes(problem, solver, answers) if changes else {},
        )
        kept = gone | np.isfinite(answers.error)
        return (made, np.zeros(0, dtype=np.int64)) if kept.all() else (made.select(kept), np.asarray(units)[~kept])

    def notes(self, subject: Subject) -> dict[str, float]:
        """Return how far the delivered model is from its own minimum (mathematical reference, section 6.4).

        ``gradient`` is the largest component of its gradient (objective in scikit-learn's scale, divided by n C);
        ``distance`` the largest difference of a log-probability to the minimiser's over the pool, nats.
        """
        problem = regression.objective(subject)
        start = regression.delivered(subject, problem)
        _, slack = _solved(subject, problem)
        gradient = regression.gradient(problem, np.atleast_2d(start))
        return {"gradient": float(np.abs(gradient).max()) / problem.n, "distance": slack, "allowed": STOPPED_SHORT}

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return None: refits answer."""
        return None


def _solved(subject: Subject, problem: Objective) -> tuple[Solver, float]:
    """Return the exact minimiser and how far the user's solver stops from it, nats at the worst pool row."""
    from privgate.engines.binary import Binary
    from privgate.engines.softmax import Softmax

    start = regression.delivered(subject, problem)
    made: Solver | None = (Binary if problem.K == 2 else Softmax).solve(problem, start)
    if made is None:
        raise Declined("the Hessian is too large or too ill-conditioned (beyond 1e10) for a certificate")
    theirs = _log_softmax(problem, problem.X @ np.atleast_2d(start).T)
    ours = _log_softmax(problem, problem.X @ made.u.T)
    slack = float(np.abs(theirs - ours).max())
    if not slack <= STOPPED_SHORT:
        raise Declined(
            f"the solver stops {slack:.2g} nats short of its own minimum, so leaving one out would measure the solver; "
            f"set tol=1e-8 and max_iter=10000 in the recipe"
        )
    return made, slack


def _fill_records(  # noqa: PLR0917  the same four as its neighbors, and two more
    solver: Solver, problem: Objective, subject: Subject, answers: _Answers, todo: Index, wanted: Float
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
        reach = np.full(len(part), 1e-300)
        np.maximum.at(reach, at, solver.reach[query])
        delta, error = solver.shifts(records[part], wanted[begin : begin + block] / reach)
        answers.error[part] = error * reach
        moved, logits = solver.u + delta, np.empty((len(rows), len(solver.u)))
        for first in range(0, len(rows), block):
            some = slice(first, first + block)
            logits[some] = np.einsum("rp,rcp->rc", problem.X[query[some]], moved[at[some]])
        sure = np.isfinite(error)[at]
        answers.log_without[rows[sure]] = _log_softmax(problem, logits[sure])
        if answers.delta is not None:
            answers.delta[part] = delta
            answers.delta_error[part] = error * solver.spread


def _fill_largest(  # noqa: PLR0917  the same four as its neighbors, and two more
    solver: Solver, problem: Objective, subject: Subject, answers: _Answers, todo: Index, full: Float
) -> None:
    """Answer all records by one step with a rigorous radius, then closely those that may hold the maximum.

    A record that seems to be below the largest change so far is answered no closer than that takes.
    """
    if not isinstance(solver, LargestFirst):
        raise TypeError("this solver has no cheap interval")
    record, (change, radius) = answers.units, solver.screened()
    z = full[record, 1] - full[record, 0]
    answers.log_without[todo] = _log_softmax(problem, (z + change[record])[:, None])[todo]
    answers.error[todo] = (radius * solver.reach[: problem.n])[record][todo]
    if answers.delta is not None:
        answers.delta[todo] = solver.one_step(record[todo])
        answers.delta_error[todo] = radius[record][todo] * solver.spread
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
        _fill_records(solver, problem, subject, answers, part, wanted[part])
        _fill_slowly(solver, problem, subject, answers, part[~(answers.error[part] <= wanted[part] * (1 + 1e-9))])
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
            np.abs(regression.log_sigmoid(z) - regression.log_sigmoid(end)),
            np.abs(regression.log_sigmoid(-z) - regression.log_sigmoid(-end)),
        )
        for end in ends
    ]
    inside = (ends[0] <= z) & (z <= ends[1])
    high = np.where(sure, np.maximum(*change), np.inf)
    return np.where(inside | ~sure, 0.0, np.minimum(*change)), high


def _fill_slowly(solver: Solver, problem: Objective, subject: Subject, answers: _Answers, todo: Index) -> None:
    """Answer what no sweep could certify, and people with several records, by Newton's method one at a time."""
    for k in todo:
        rows, _ = answers.rows(np.array([k]))
        query = answers.row_query[rows]
        found = solver.without(subject.data.units[int(answers.units[k])])
        if found is None:
            continue
        u, error, euclidean = found
        answers.log_without[rows] = _log_softmax(problem, problem.X[query] @ u.T)
        answers.error[k] = error[query].max(initial=0.0)
        if answers.delta is not None:
            answers.delta[k] = u - solver.u
            answers.delta_error[k] = euclidean


def _log_softmax(problem: Objective, logits: Float) -> Float:
    """Return log-probabilities (Q, K) from logits (Q, 1) of the second of two classes, or (Q, K)."""
    if problem.K == 2:
        z = logits[:, 0]
        return np.stack([regression.log_sigmoid(-z), regression.log_sigmoid(z)], axis=1)
    top = logits.max(axis=1, keepdims=True)
    return np.asarray(logits - top - np.log(np.exp(logits - top).sum(axis=1, keepdims=True)))


def _vanishing(subject: Subject, units: Index) -> NDArray[np.bool_]:
    """Return which units hold every record of some class, shape (U,)."""
    labels, K = subject.label_codes, len(subject.classes)
    totals = np.bincount(labels, minlength=K)
    unit, rows = design.unit_rows(subject, units)
    lost = np.zeros((len(units), K), dtype=np.int64)
    np.add.at(lost, (unit, labels[rows]), 1)
    return np.asarray((lost == totals).any(axis=1))


def _changes(problem: Objective, solver: Solver, answers: _Answers) -> dict[str, Float]:
    """Return parameters with and without each unit as softmax scores of K classes.

    ``coef_error`` bounds the Euclidean error of all parameters without the unit together, intercepts included.
    """
    delta = np.zeros((len(answers.units), *solver.u.shape)) if answers.delta is None else answers.delta
    shape = (-1,) if problem.K == 2 else solver.u.shape
    coef, intercept = problem.parameters((solver.u + delta).reshape(len(delta), *shape))
    coef_with, intercept_with = problem.parameters(solver.u.reshape(shape))
    return {
        "coef": coef[None],
        "intercept": intercept[None],
        "coef_with": np.broadcast_to(coef_with, (1, *coef.shape)),
        "intercept_with": np.broadcast_to(intercept_with, (1, *intercept.shape)),
        "coef_error": answers.delta_error[None] * max(1.0, problem.scale),
    }


ENGINE = Logistic()
