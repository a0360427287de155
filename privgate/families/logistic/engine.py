"""L2-regularised logistic regression without each unit, every unit with an error certificate."""

from functools import lru_cache

import numpy as np

from privgate.families import design
from privgate.families.engine import Asked, Cost, Declined, Engine
from privgate.families.logistic import objective, stopping
from privgate.families.logistic.answers import (
    STOPPED_SHORT,
    TOLERANCE,
    Answers,
    Solver,
    fill_largest,
    fill_records,
    fill_slowly,
    log_softmax,
)
from privgate.families.logistic.objective import Float, Objective
from privgate.families.logistic.stopping import Stopping
from privgate.families.removal import VANISHED, vanishing
from privgate.families.retrained import Index, Retrained, Seeds, Status
from privgate.subject.subject import Subject


class Logistic(Engine):
    """Leave-one-out for ``sklearn.linear_model.LogisticRegression`` with an L2 penalty, two classes or more.

    Every unit's answer is within a certified distance of the exact minimiser without the unit (docs/mathematics.md,
    section 6.3 ii). ``error`` adds to it how far the model with all records and a refit may stop from their own minima,
    together, derived from the gradient at which the user's solver stops. A unit for which that is more than 0.05 nats
    is refitted, and so are all where the solver stops by something else (section 6.4). O(n^2 p) a sweep, by matrix
    products.
    """

    name = "logistic"
    version = 6
    hands_on = "no sweep and no Newton step could certify them, or the solver's tolerance is too coarse"
    complements = True
    modes = ("max",)
    divisible = True

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        return objective.refusal(subject)

    def declines(self, subject: Subject) -> str:
        """Return why ``leave_out`` will decline; empty if it answers. The subject must be supported."""
        return declined(subject)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of four sweeps over all units; for two classes and ``mode="max"``, over 64 of them."""
        n, d, K = subject.data.n, design.matrix(subject).shape[1], len(subject.classes)
        width = d * (1 if K == 2 else K)
        close = min(len(units), 64) if mode == "max" and K == 2 else len(units)
        flops = 16 * n * width * close + 20 * n * width**2
        return Cost(0, flops / 2e10 + 2e-8 * n * close * K, 24 * n * width + 16 * width**2)

    def prepared(self, subject: Subject) -> tuple[Objective, tuple[Solver, Stopping, float]]:
        """Return the problem and its solution."""
        problem = objective.objective(subject)
        return problem, solved(subject, problem)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return every unit that can be certified; the others are handed on.

        With ``mode="max"`` (two classes, records, their own queries) only the units that could hold the largest PDTP
        are answered closely; the others keep a rigorous but wide ``error`` that excludes them.

        Raises
        ------
        Declined
            The Hessian is too ill-conditioned, or where the user's solver stops is not known closely enough.
        """
        subject, units, mode, (row_unit, row_query) = asked.subject, asked.units, asked.mode, asked.rows
        problem, (solver, stops, whole) = self.prepared(subject) if asked.common is None else asked.common
        full = log_softmax(problem, problem.X @ solver.u.T)
        reach = np.full(len(units), 1e-300)
        np.maximum.at(reach, row_unit, solver.reach[row_query])
        answers = Answers(
            units,
            row_unit,
            row_query,
            np.full((len(row_query), problem.K), -np.inf),
            stops.allowed,
            reach,
            np.full(len(units), np.inf),
            np.full(len(units), np.inf),
            np.zeros((len(units), *solver.u.shape)) if asked.changes else None,
            np.full(len(units), np.inf),
        )
        gone = vanishing(subject, units)
        todo = np.flatnonzero(~gone)
        if mode == "max" and asked.queries is None and subject.data.groups is None and problem.K == 2:
            fill_largest(solver, problem, subject, answers, todo, full)
            todo = todo[:0]
        fill_records(solver, problem, subject, answers, todo, np.full(len(todo), TOLERANCE))
        coarse = ~(answers.stop + whole * reach <= STOPPED_SHORT)
        slow = ~np.isfinite(answers.error) if mode == "max" else ~(answers.error <= TOLERANCE * (1 + 1e-9))
        fill_slowly(solver, problem, subject, answers, np.flatnonzero(~gone & (slow | coarse)))
        error = answers.error + answers.stop + whole * reach
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            full[row_query][None],
            answers.log_without[None],
            status=Status.CONVERGED,
            error=np.where(gone, 0.0, error),
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
            changes=_changes(problem, solver, answers) if asked.changes else {},
        )
        # with mode="max" a certificate may be wide, but not what a training may miss of the minimum
        sure = np.isfinite(error) & (~coarse | (error <= STOPPED_SHORT)) if mode == "max" else error <= STOPPED_SHORT
        kept = gone | sure
        return (made, units[:0]) if kept.all() else (made.select(kept), units[~kept])

    def notes(self, subject: Subject) -> dict[str, float]:
        """Return how far the delivered model is from its own minimum (docs/mathematics.md, section 6.4).

        ``gradient`` is the largest component of its gradient (scikit-learn's objective, divided by n C); ``distance``
        the largest difference of a log-probability to the minimiser's over the pool, nats; ``allowed`` how large that
        may be for any training on these records that ends by its gradient; ``seen`` how many refits were seen to.
        """
        problem = objective.objective(subject)
        solver, stops, whole = solved(subject, problem)
        theirs, ours = (log_softmax(problem, problem.X @ u.T) for u in (stops.u, solver.u))
        gradient = objective.gradient(problem, stops.u)
        return {
            "gradient": float(np.abs(gradient).max()) / problem.n,
            "distance": float(np.abs(theirs - ours).max()),
            "allowed": float(whole * solver.reach.max()),
            "seen": float(stops.seen),
        }


def solved(subject: Subject, problem: Objective) -> tuple[Solver, Stopping, float]:
    """Return the exact minimiser, where trainings stop, and how far from it one on all records may, in its norm."""
    from privgate.families.logistic.binary import Binary
    from privgate.families.logistic.softmax import Softmax

    stops = stopping.stopping(subject)
    if stops.problem:
        raise Declined(stops.problem)
    kind = Binary if problem.K == 2 else Softmax
    made: Solver | None = kind.solve(problem, stops.u[0] if problem.K == 2 else stops.u)
    if made is None:
        raise Declined("the Hessian is too large or too ill-conditioned (beyond 1e10) for a certificate")
    whole = made.stops_whole(stops.allowed)
    missed = whole * float(made.reach[: problem.n].min())
    if not missed <= STOPPED_SHORT:
        raise Declined(
            "its tolerance lets the solver stop far from its own minimum, so leaving one out would measure the "
            f"solver; {objective.ADVICE}"
        )
    return made, stops, whole


@lru_cache(maxsize=4)
def declined(subject: Subject) -> str:
    """Return why a supported subject is declined; empty if it is answered."""
    try:
        solved(subject, objective.objective(subject))
    except Declined as exc:
        return str(exc)
    return ""


def _changes(problem: Objective, solver: Solver, answers: Answers) -> dict[str, Float]:
    """Return parameters with and without each unit as softmax scores of K classes.

    ``coef_error`` bounds the Euclidean distance of all parameters without the unit together, intercepts included, to
    those of any refit, up to what no probability depends on.
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
        "coef_error": answers.delta_error[None],
    }


ENGINE = Logistic()
