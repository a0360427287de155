"""Logistic regression with every parameter penalised: the classical stability bound, with a derived constant."""

import numpy as np

from privgate.families.certificate import Certified
from privgate.families.logistic import minimum
from privgate.families.over_all_queries import applies
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject


class StrongConvexity:
    """The gradient that a unit leaves behind, divided by the penalty, bounds how far the minimiser moves."""

    name = "strong_convexity"
    source = "docs/mathematics.md, section 6.3 (i)"
    needs_retrained = False

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        if problem := minimum.short_of_minimum(subject):
            return problem
        if not (minimum.agreed(subject).lam > 0).all():
            return "does not apply, because the intercept is not penalised"
        return ""

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``."""
        del retrained, limit
        problem, reach = minimum.agreed(subject), applies.reach(subject)
        stop = minimum.delivered(problem, reach, minimum.whole(minimum.Metric.of(problem, reach, problem.X)))
        residual, _ = problem.at(problem.u)
        members = [subject.data.units[int(u)] for u in units]
        left = np.array([np.linalg.norm(residual[rows].T @ problem.X[rows]) for rows in members])
        d = problem.X.shape[1] - int(problem.intercept)
        longest = float(np.hypot(reach.longest(d)[1], float(problem.intercept)))
        # two vectors of a softmax may move apart by sqrt(2) of their joint length; one vector moves alone
        apart = longest * (1.0 if problem.C == 1 else np.sqrt(2.0)) / problem.lam.min()
        rest = float(np.linalg.norm(problem.gradient))
        # a refit's own gradient moves it as the unit's does
        upper = apart * (left + rest + np.linalg.norm(problem.allowed) * np.sqrt(problem.C)) * (1 + minimum.MARGIN)
        upper += minimum.rounding(problem, *problem.softmax(problem.u[None]), reach, upper) + stop
        gone = np.array([applies.vanishes(subject, rows) for rows in members], dtype=bool)
        lower = np.where(gone, np.inf, 0.0)
        return Certified(np.where(gone, np.inf, upper), lower, gone, (reach.words(), minimum.assumption(problem)))
