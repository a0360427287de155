"""Logistic regression: the case that the kernel is asked about, with a certificate that grows where it decides.

A minimum, one factor of its Hessian and a Newton step a person bound everybody at once. People on both sides of the
policy's limit get further steps, and the last few a minimum of their own. All of it is proposed; the kernel checks it.
"""

from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.engines import logistic_moves
from privgate.families import design
from privgate.families.certificate import (
    Certificate,
    Certified,
    Units,
    accepted_arrays,
    accepted_settings,
    attained,
    people_of,
)
from privgate.families.logistic import objective, stopping
from privgate.families.logistic.stopping import Stopping
from privgate.families.over_all_queries import applies, linear
from privgate.families.over_all_queries.reach import Reach
from privgate.subject.subject import Subject

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: parameters beyond which the Hessian is too large to factor
_PARAMETERS = 2_500
#: log-odds from which on a released probability has lost digits, or is 0
DEEPEST = 700.0
#: nats by which a training on all records may miss its minimum; beyond, a bound would be about the solver
STOPPED_SHORT = 0.5
#: log-odds of two classes beyond which 1 - p has lost its digits
_DIGITS_OF_TWO = 34.6
#: multiplications spent on further steps, and on minima of their own
_STEPS, _ALONE = 4e10, 3e10
#: share of a limit's distance that is worth more work although it decides nothing
_LOOSE = 1.02


class Newton(Certificate):
    """Where the minimum goes without a person, as far as the kernel follows; section 6.3 of the mathematics."""

    name = "newton"
    source = "privgate/kernel/logistic.py; docs/mathematics.md, section 6.3"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return _unfit(subject)

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units."""
        subject, units = about.subject, about.units
        made = _problem(subject)
        asked = np.arange(len(units))
        person, labels = people_of(subject, units), subject.label_codes
        loss = logistic_moves.Loss(made.X, labels, np.ones(len(labels)), made.penalty, len(subject.classes))
        limit = 1.0 if about.limit is None else about.limit
        try:
            proposal = logistic_moves.propose(loss, person, made.stops.u)
            found = made.limits(labels, person, proposal, limit)
        except (kernel.Refused, np.linalg.LinAlgError):
            return Certified(np.full(len(units), np.inf), np.zeros(len(units)), np.zeros(len(units), dtype=bool))
        size = made.X.size * loss.C
        open_ = self._open(found, asked, about.limit)[: int(_STEPS / (8 * size))]
        if len(open_):
            proposal = logistic_moves.refine(loss, person, proposal, np.sort(open_))
            found = self._better(found, made.limits(labels, person, proposal, limit))
        open_ = self._open(found, asked, about.limit)[: int(_ALONE / (10 * size * loss.C * made.X.shape[1]))]
        if len(open_):
            proposal = logistic_moves.alone(loss, person, proposal, np.sort(open_))
            found = self._better(found, made.limits(labels, person, proposal, limit))
        upper, lower = found.high[asked], found.low[asked]
        words = (made.reach.words(), _assumption(made.stops))
        detail = {"gradient": float(made.stops.allowed.max()), "seen": made.stops.seen, "units": len(units)}
        questions = made.questions(proposal["at"], proposal["moves"][asked])
        return Certified(upper, lower, attained(lower, upper), words, detail, questions)

    @staticmethod
    def _better(one: kernel.Limits, other: kernel.Limits) -> kernel.Limits:
        return kernel.Limits.of(np.maximum(one.low, other.low), np.minimum(one.high, other.high))

    @staticmethod
    def _open(found: kernel.Limits, asked: Index, limit: float | None) -> Index:
        """Return whom more work may help, the most urgent first: on both sides of the limit, then the largest."""
        low, high = found.low[asked], found.high[asked]
        urgent = np.isinf(high) & np.isfinite(low)
        if limit is not None:
            urgent |= (low <= limit) & (limit < high)
        largest = (high > _LOOSE * low.max(initial=0.0)) & (high > _LOOSE * low)
        order = np.lexsort((-np.where(np.isinf(high), 0.0, high), ~urgent))
        return np.asarray(order[(urgent | largest)[order]])


class _Problem:
    """What is trained, on what, and where trainings end."""

    def __init__(self, subject: Subject, X: Float, stops: Stopping, reach: Reach) -> None:
        estimator = subject.recipe.library_estimator
        self.intercept, self.stops, self.reach = bool(estimator.fit_intercept), stops, reach
        self.classes = len(subject.classes)
        self.penalty = np.full(X.shape[1], 1.0 / estimator.C)
        if self.intercept:
            X, self.penalty = np.column_stack([X, np.ones(len(X))]), np.append(self.penalty, 0.0)
        self.X = X

    def limits(self, labels: Index, person: Index, proposal: dict[str, Float], limit: float) -> kernel.Limits:
        """Return the kernel's limits over the declared domain."""
        arrays: dict[str, NDArray[Any]] = {"X": self.X, "label": labels, "person": person, "penalty": self.penalty}
        arrays |= {"allowed": self.stops.allowed, **accepted_arrays(self.reach, self.X.shape[1] - self.intercept)}
        settings = {"classes": self.classes, "intercept": self.intercept, "limit": float(limit)}
        arrays |= {**proposal, "question": self.questions(proposal["at"], proposal["moves"])}
        return kernel.limits(kernel.Case("logistic", "any", settings | accepted_settings(self.reach), arrays))

    def questions(self, at: Float, moves: Float) -> Float:
        """Return where each person's absence may show most, (U, d); NaN where nothing is known of them."""
        d = self.X.shape[1] - self.intercept
        known = np.isfinite(moves).all(axis=(1, 2))
        both = [self.softmax(u) for u in (at[None], at + moves[known])]
        found = np.full((len(moves), d), np.nan)
        if known.any():
            found[known] = linear.telling(both[0], both[1], self.reach)
        return found

    def softmax(self, u: Float) -> tuple[Float, Float]:
        """Return parameters (U, C, p) as (bias (U, K), weights (U, K, d))."""
        if self.classes == 2:
            u = np.concatenate([np.zeros_like(u), u], axis=1)
        return (u[..., -1], u[..., :-1]) if self.intercept else (np.zeros(u.shape[:-1]), u)


@lru_cache(maxsize=2)
def _problem(subject: Subject) -> _Problem:
    X = applies.dense(subject.data.X)
    if X is None:
        raise TypeError("certify() without unfit(): the features are not numbers")
    return _Problem(subject, X, stopping.stopping(subject), applies.reach(subject))


@lru_cache(maxsize=4)
def _unfit(subject: Subject) -> str:
    if problem := applies.refusal(subject, "LogisticRegression"):
        return problem
    estimator, X = design.estimator_of(subject, "LogisticRegression"), applies.dense(subject.data.X)
    if X is None:
        return "the features are not finite numbers"
    if problem := applies.single_precision(subject.data.X):
        return problem
    if problem := objective.unfit(estimator) or objective.solver_refusal(estimator):
        return problem
    made = applies.declared(
        subject,
        X,
        "for queries without limits DTP is infinite; declare the range of every feature, TrainingData(X, y, "
        "domain=Domain(box=[(low, high), …])), and let the endpoint refuse anything else",
    )
    if isinstance(made, str):
        return made
    vectors = 1 if len(subject.classes) == 2 else len(subject.classes)
    if vectors * (X.shape[1] + 1) > _PARAMETERS:
        return f"{vectors * (X.shape[1] + 1)} parameters make the Hessian too large to factor"
    trained = _problem(subject)
    return trained.stops.problem or _unknown(trained)


def _unknown(problem: _Problem) -> str:
    """Return why the kernel will say nothing because of everybody's model; empty if it may. Estimates, no limits."""
    bias, weights = problem.softmax(problem.stops.u[None])
    ranges = linear.pair_ranges(bias, weights, problem.reach)[1][0]
    # of two classes the first is released as 1 - p
    if np.abs(ranges).max() > DEEPEST or (problem.classes == 2 and ranges[1, 0] > _DIGITS_OF_TWO):
        return "float64 holds some probabilities of the domain in too few digits; declare a narrower domain or lower C"
    curve = (0.25 * problem.X**2).sum(axis=0) + problem.penalty
    longest = problem.reach.longest(weights.shape[2])[1]
    # a gradient that is left moves the parameters by at least this much, and scores by that times a question
    if float(np.linalg.norm(problem.stops.allowed / curve)) * longest > STOPPED_SHORT:
        return f"its tolerance lets the solver stop far from its own minimum; {objective.ADVICE}"
    return ""


def _assumption(stops: Stopping) -> str:
    """Return the hypothesis about the solver, in words."""
    return (
        "every training of the recipe ends by its solver's gradient test, at a gradient of at most "
        f"{stops.allowed.max():.2g} (sum over records); {stops.seen} refits were seen to"
    )
