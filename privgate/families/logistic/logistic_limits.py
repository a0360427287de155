"""Logistic regression: the case that the kernel is asked about, with a certificate that grows where it decides.

A minimum, one factor of its Hessian and a Newton step a person bound everybody at once. People on both sides of the
policy's limit get further steps, and the last few a minimum of their own. All of it is proposed; the kernel checks it.
In a ball, a bound that needs no data.
"""

from functools import lru_cache

import numpy as np

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.engines import logistic_moves
from privgate.families import designs
from privgate.families.certificate import (
    ByDesign,
    Certificate,
    Certified,
    Units,
    accepted_arrays,
    accepted_settings,
    attained,
    designed,
)
from privgate.families.logistic import stopping
from privgate.families.logistic.stopping import Stopping, Trained, asked_first
from privgate.families.over_all_queries import accepted_range, applies
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.models.ball_logistic import FLAT
from privgate.subject.subject import Subject

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

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; where trainings end is left to ``unfit``."""
        return _misfit(subject)

    def canonical(self, subject: Subject, units: Index, case: kernel.Case) -> kernel.Case:
        """Return what is minimised; ``allowed`` as it is where it is at least what the solver's test leaves open."""
        at = case.arrays.get("at", np.zeros((0, 0)))
        least, found = stopping.least(subject, at), case.arrays.get("allowed", np.zeros(0))
        reach, d = applies.reach(subject), int(subject.data.X.shape[1])
        arrays = {**accepted_arrays(reach, d), "allowed": found if (found >= least).all() else least}
        person = asked_first(subject, units)
        return stopping.posed(subject, stopping.loss_of(subject), "any", person, arrays, **accepted_settings(reach))

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units."""
        subject, units = about.subject, about.units
        made = _problem(subject)
        asked, loss, stops = np.arange(len(units)), made.trained.loss, made.trained.stops
        person = asked_first(subject, units)
        limit = 1.0 if about.limit is None else about.limit
        try:
            proposal = logistic_moves.propose(loss, person, stops.u, asked)
            cases = [made.judged(units, person, proposal, limit)]
        except (kernel.Refused, np.linalg.LinAlgError):
            return Certified(np.full(len(units), np.inf), np.zeros(len(units)), np.zeros(len(units), dtype=bool))
        size = loss.X.size * loss.C
        many = int(_STEPS / (8 * size)), int(_ALONE / (10 * size * loss.C * loss.X.shape[1]))
        for more, most in zip((logistic_moves.refine, logistic_moves.alone), many, strict=True):
            if len(open_ := self._open(*self._best(cases), about.limit)[:most]):
                proposal = more(loss, person, proposal, np.sort(open_))
                cases.append(made.judged(units, person, proposal, limit))
        lower, upper = self._best(cases)
        words = (made.reach.words(), _assumption(stops))
        detail = {"gradient": float(stops.allowed.max()), "seen": stops.seen, "units": len(units)}
        questions = made.questions(proposal["at"], proposal["moves"][asked])
        return Certified(upper, lower, attained(lower, upper), words, detail, questions, tuple(cases))

    @staticmethod
    def _best(cases: list[Kept]) -> tuple[Float, Float]:
        found = kernel.Limits.of(np.max([k.low for k in cases], axis=0), np.min([k.high for k in cases], axis=0))
        return found.low, found.high

    @staticmethod
    def _open(low: Float, high: Float, limit: float | None) -> Index:
        """Return whom more work may help, the most urgent first: on both sides of the limit, then the largest."""
        urgent = np.isinf(high) & np.isfinite(low)
        if limit is not None:
            urgent |= (low <= limit) & (limit < high)
        largest = (high > _LOOSE * low.max(initial=0.0)) & (high > _LOOSE * low)
        order = np.lexsort((-np.where(np.isinf(high), 0.0, high), ~urgent))
        return np.asarray(order[(urgent | largest)[order]])


class BallLogisticCertificate(ByDesign):
    """A record moves the minimiser by at most ``C radius``, and an answer by ``radius`` times that; g records, g times.

    The objective is strongly convex with constant 1 in every direction, the intercept's included, and a record's
    gradient is at most as long as the record. What the solver leaves over counts on both sides.
    """

    name = "ball_logistic"
    source = "docs/mathematics.md, section 12.3, Theorem 12.4"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.own_refusal(subject, "BallLogistic"):
            return problem
        return "" if subject.declared_classes is not None else "classes= does not declare every label"

    def every_data_set(self, subject: Subject) -> float:
        """Return the bound for one record a person; how many another one has is declared nowhere."""
        if subject.data.groups is not None:
            return np.inf
        return float(applies.own_estimator(subject, "BallLogistic").bound)

    def certify(self, about: Units) -> Certified:
        """Return the bound of each of the units by the number of its records."""
        estimator = applies.own_estimator(about.subject, "BallLogistic")
        words = (
            f"any query is allowed: records and queries are pulled into a ball of radius {estimator.radius:g}; "
            "nothing of the data is looked at"
        )
        if estimator.towards is not None:
            words += (
                "; the head that it is pulled towards is declared public: one made from these people would not show"
            )
        return Certified.without_data(self.judged(about), about.units, (words,))

    def design(self, subject: Subject, units: Index) -> kernel.Case:
        """Return the records of each unit."""
        estimator = applies.own_estimator(subject, "BallLogistic")
        held = np.array([len(subject.data.units[int(u)]) for u in units])
        told = {"C": float(estimator.C), "radius": float(estimator.radius), "stop": FLAT}
        return designed(held, design="ball", **told)


class _Problem:
    """What is trained, and which questions are accepted."""

    def __init__(self, trained: Trained, reach: Reach) -> None:
        self.trained, self.reach, self.d = trained, reach, trained.loss.X.shape[1] - trained.intercept

    def judged(self, units: Index, person: Index, proposal: dict[str, Float], limit: float) -> Kept:
        """Return the kernel's limits of some units over the declared domain."""
        arrays = {**accepted_arrays(self.reach, self.d), **proposal}
        arrays["question"] = self.questions(proposal["at"], proposal["moves"])
        settings = {"limit": float(limit), **accepted_settings(self.reach)}
        return Kept.of(self.trained.case("any", person, arrays, **settings), units)

    def questions(self, at: Float, moves: Float) -> Float:
        """Return where each person's absence may show most, (U, d); NaN where nothing is known of them."""
        known = np.isfinite(moves).all(axis=(1, 2))
        both = [self.softmax(u) for u in (at[None], at + moves[known])]
        found = np.full((len(moves), self.d), np.nan)
        if known.any():
            found[known] = accepted_range.telling(both[0], both[1], self.reach)
        return found

    def softmax(self, u: Float) -> tuple[Float, Float]:
        """Return parameters (U, C, p) as (bias (U, K), weights (U, K, d))."""
        if u.shape[-2] == 1:
            u = np.concatenate([np.zeros_like(u), u], axis=1)
        return (u[..., -1], u[..., :-1]) if self.trained.intercept else (np.zeros(u.shape[:-1]), u)


@lru_cache(maxsize=2)
def _problem(subject: Subject) -> _Problem:
    return _Problem(stopping.trained(subject), applies.reach(subject))


def _misfit(subject: Subject) -> str:
    if problem := applies.refusal(subject, "LogisticRegression"):
        return problem
    estimator, X = designs.estimator_of(subject, "LogisticRegression"), applies.dense(subject.data.X)
    if X is None:
        return "the features are not finite numbers"
    if problem := applies.single_precision(subject.data.X):
        return problem
    if problem := stopping.unfit(estimator) or stopping.solver_refusal(estimator):
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
    return ""


@lru_cache(maxsize=4)
def _unfit(subject: Subject) -> str:
    if problem := _misfit(subject):
        return problem
    asked = _problem(subject)
    return asked.trained.stops.problem or _unknown(asked)


def _unknown(problem: _Problem) -> str:
    """Return why the kernel will say nothing because of everybody's model; empty if it may. Estimates, no limits."""
    stops, loss = problem.trained.stops, problem.trained.loss
    bias, weights = problem.softmax(stops.u[None])
    ranges = accepted_range.pair_ranges(bias, weights, problem.reach)[1][0]
    # of two classes the first is released as 1 - p
    if np.abs(ranges).max() > DEEPEST or (loss.K == 2 and ranges[1, 0] > _DIGITS_OF_TWO):
        return "float64 holds some probabilities of the domain in too few digits; declare a narrower domain or lower C"
    curve = 0.25 * loss.weight @ loss.X**2 + loss.penalty
    longest = problem.reach.longest(weights.shape[2])[1]
    # a gradient that is left moves the parameters by at least this much, and scores by that times a question
    if float(np.linalg.norm(stops.allowed / curve)) * longest > STOPPED_SHORT:
        return f"its tolerance lets the solver stop far from its own minimum; {stopping.ADVICE}"
    return ""


def _assumption(stops: Stopping) -> str:
    """Return the hypothesis about the solver, in words."""
    return (
        "every training of the recipe ends by its solver's gradient test, at a gradient of at most "
        f"{stops.allowed.max():.2g} (sum over records); {stops.seen} refits were seen to"
    )
