"""Logistic regression by classical bounds: what parameters with and without a unit say of all queries.

Two of them read the parameters that an engine leaves behind, the third needs the penalty only.
"""

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.logistic import distances, minimum
from privgate.families.logistic.minimum import FittedProblem
from privgate.families.over_all_queries import applies, linear
from privgate.families.over_all_queries.reach import Reach
from privgate.families.removal import vanishing
from privgate.families.retrained import Index, Retrained, Status
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 4_000_000


def _known(subject: Subject) -> tuple[FittedProblem, Reach, float]:
    """Return the problem, the declared domain, and what a training on all records may miss of its minimum, nats."""
    problem, reach = minimum.agreed(subject), applies.reach(subject)
    return (
        problem,
        reach,
        distances.delivered(problem, reach, distances.whole(distances.HessianNorm.of(problem, reach, problem.X))),
    )


class LinearSoftmax(Certificate):
    """The difference of two linear models is linear, so its largest value over a box is a sum over features."""

    name = "linear_softmax"
    source = "docs/mathematics.md, section 6.2"
    needs_retrained = True
    divisible = True

    def prepared(self, subject: Subject) -> tuple[FittedProblem, Reach, float]:
        """Return the problem, the domain, and what a training may miss."""
        return _known(subject)

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return distances.short_of_minimum(subject)

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``; infinite where the engine gives no parameters."""
        subject, units = about.subject, about.units
        problem, reach, stop = _known(subject) if about.common is None else about.common
        found = parameters(about.retrained, subject)
        upper, lower = np.full(len(units), np.inf), np.zeros(len(units))
        if found is not None:
            with_, without, distance, known = found
            d = without[1].shape[2]
            # every pair of classes may be off by sqrt(2) of the joint error of all parameters
            error = np.sqrt(2.0) * distance * float(np.hypot(reach.longest(d)[1], 1.0))
            error += distances.rounding(problem, *without, reach, error) + stop
            step = max(1, _CHUNK // without[1][0].size // max(1, without[1].shape[1]))
            for part in np.split(known, np.arange(step, len(known), step)):
                if len(part):
                    low, high = linear.any_classes(
                        (with_[0][part], with_[1][part]), (without[0][part], without[1][part]), reach
                    )
                    upper[part], lower[part] = high + error[part], np.maximum(low - error[part], 0.0)
        return Certified(upper, lower, attained(lower, upper), (reach.words(), minimum.assumption(problem)))


class Lipschitz(Certificate):
    """Log-probabilities move by at most L times the largest change of a parameter: loose by a factor of 5 to hundreds.

    L is derived; a constant that somebody states is not asked for: nobody checks it, so it could not approve.
    """

    name = "lipschitz"
    source = "Long et al. (2017), Theorem 6.9; constant of docs/mathematics.md, section 6.1"
    needs_retrained = True
    divisible = True

    def prepared(self, subject: Subject) -> tuple[FittedProblem, Reach, float]:
        """Return the problem, the domain, and what a training may miss."""
        return _known(subject)

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return distances.short_of_minimum(subject)

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``; infinite where the engine gives no parameters."""
        subject, units = about.subject, about.units
        problem, reach, stop = _known(subject) if about.common is None else about.common
        found = parameters(about.retrained, subject)
        upper = np.full(len(units), np.inf)
        if found is not None:
            with_, without, error, known = found
            K, d = without[1].shape[1:]
            moved = np.maximum(
                np.abs(with_[1] - without[1]).max(axis=(1, 2)), np.abs(with_[0] - without[0]).max(axis=1)
            )
            constant = (1.0 if K == 2 else 2.0) * (1.0 + reach.longest(d)[0])
            lost = distances.rounding(problem, *without, reach, constant * error)
            upper[known] = (constant * (moved + error) + lost + stop)[known]
        derived = "the Lipschitz constant is derived from the domain, not stated"
        assumptions = (reach.words(), minimum.assumption(problem), derived)
        return Certified(upper, np.zeros(len(units)), np.zeros(len(units), dtype=bool), assumptions)


class StrongConvexity(Certificate):
    """The gradient that a unit leaves behind, divided by the penalty, bounds how far the minimiser moves."""

    name = "strong_convexity"
    source = "docs/mathematics.md, section 6.3 (i)"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := distances.short_of_minimum(subject):
            return problem
        if not (minimum.agreed(subject).lam > 0).all():
            return "the intercept is not penalised"
        return ""

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``."""
        subject, units = about.subject, about.units
        problem, reach, stop = _known(subject)
        residual, _ = problem.at(problem.u)
        members = about.members
        left = np.array([np.linalg.norm(residual[rows].T @ problem.X[rows]) for rows in members])
        d = problem.X.shape[1] - int(problem.intercept)
        longest = float(np.hypot(reach.longest(d)[1], float(problem.intercept)))
        # two vectors of a softmax may move apart by sqrt(2) of their joint length; one vector moves alone
        apart = longest * (1.0 if problem.C == 1 else np.sqrt(2.0)) / problem.lam.min()
        rest = float(np.linalg.norm(problem.gradient))
        # a refit's own gradient moves it as the unit's does
        upper = apart * (left + rest + np.linalg.norm(problem.allowed) * np.sqrt(problem.C)) * (1 + distances.MARGIN)
        upper += distances.rounding(problem, *problem.softmax(problem.u[None]), reach, upper) + stop
        gone = vanishing(subject, units)
        lower = np.where(gone, np.inf, 0.0)
        return Certified(np.where(gone, np.inf, upper), lower, gone, (reach.words(), minimum.assumption(problem)))


def parameters(
    retrained: Retrained | None, subject: Subject
) -> tuple[tuple[Float, Float], tuple[Float, Float], Float, Index] | None:
    """Return ((bias, weights) with each unit, the same without, Euclidean error, units that have them), or None.

    ``bias`` has shape (U, K), ``weights`` (U, K, d), ``error`` (U,); what the engines leave in ``Retrained.changes``.
    """
    names = ("coef", "intercept", "coef_with", "intercept_with", "coef_error")
    if retrained is None or len(retrained.seeds) != 1 or not all(n in retrained.changes for n in names):
        return None
    coef, intercept, coef_with, intercept_with, error = (
        np.asarray(retrained.changes[n][0], dtype=np.float64) for n in names
    )
    if coef.shape[1] != len(subject.classes):
        return None
    trusted = np.array([s in (Status.EXACT, Status.CONVERGED) for s in retrained.status], dtype=bool)
    trusted &= np.isfinite(error) & np.isfinite(coef).all(axis=(1, 2)) & np.isfinite(intercept).all(axis=1)
    return (intercept_with, coef_with), (intercept, coef), error, np.flatnonzero(trusted)
