"""L2-regularised logistic regression without each unit, every unit with an error certificate."""

import numpy as np
from numpy.typing import NDArray

from privgate.engines import design, regression
from privgate.engines.base import Cost, Declined
from privgate.engines.certified import (
    TOLERANCE,
    Answers,
    LargestFirst,
    Solver,
    fill_largest,
    fill_records,
    fill_slowly,
    log_softmax,
)
from privgate.engines.regression import Float, Objective
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows, Status
from privgate.subject import Subject

#: nats; a solver that stops further than this from its own minimum would be what leave-one-out measures
STOPPED_SHORT = 0.01
#: a refit may stop further from its minimum than the delivered model: 3.2 times was seen; the re-check verifies it
SLACK = 10
VANISHED = "without the unit one class has no record left"


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
        full = log_softmax(problem, problem.X @ solver.u.T)
        answers = Answers(
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
            fill_largest(solver, problem, subject, answers, todo, full)
            todo = todo[:0]
        fill_records(solver, problem, subject, answers, todo, np.full(len(todo), TOLERANCE))
        slow = np.flatnonzero(~gone & ~(answers.error <= TOLERANCE * (1 + 1e-9)))
        if mode == "max":
            slow = slow[~np.isfinite(answers.error[slow])]
        fill_slowly(solver, problem, subject, answers, slow)
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
    theirs = log_softmax(problem, problem.X @ np.atleast_2d(start).T)
    ours = log_softmax(problem, problem.X @ made.u.T)
    slack = float(np.abs(theirs - ours).max())
    if not slack <= STOPPED_SHORT:
        raise Declined(
            f"the solver stops {slack:.2g} nats short of its own minimum, so leaving one out would measure the solver; "
            f"set tol=1e-8 and max_iter=10000 in the recipe"
        )
    return made, slack


def _vanishing(subject: Subject, units: Index) -> NDArray[np.bool_]:
    """Return which units hold every record of some class, shape (U,)."""
    labels, K = subject.label_codes, len(subject.classes)
    totals = np.bincount(labels, minlength=K)
    unit, rows = design.unit_rows(subject, units)
    lost = np.zeros((len(units), K), dtype=np.int64)
    np.add.at(lost, (unit, labels[rows]), 1)
    return np.asarray((lost == totals).any(axis=1))


def _changes(problem: Objective, solver: Solver, answers: Answers) -> dict[str, Float]:
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
