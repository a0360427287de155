"""Logistic regression: where its trainings end, the model without each person, and limits over a declared domain.

A minimum, one factor of its Hessian and a Newton step a person are proposed for everybody at once
(``logistic_moves``); the kernel says how near they are. Whom that leaves open gets further steps, and the last few a
minimum of their own.
"""

from collections.abc import Callable
from functools import lru_cache, partial
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.kernel.accepted import Accepted
from privgate.kernel.softmax_release import over_questions
from privgate.statistics.leakage import largest_change
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses, logistic_moves
from privgate.theorems.certificate import (
    Certified,
    Theorem,
    Units,
    accepted_arrays,
    accepted_settings,
)
from privgate.theorems.closed_form import Asked, Declined, Engine
from privgate.theorems.hypotheses import VANISHED, design_refusal, estimator_of, matrix, vanishing
from privgate.theorems.retrained import Retrained, Status
from privgate.theorems.stopping import (
    ADVICE,
    Problem,
    asked_first,
    least_allowed,
    log_softmax,
    loss_on,
    make_table,
    pose,
    problem_of,
    refusal,
)

#: parameters beyond which the Hessian and its inverse take more than 1 GB, and beyond which it is too large to factor
LARGEST, _PARAMETERS = 8000, 2_500
#: nats; wanted bound on the error of each log-probability, two digits below any limit of a policy
TOLERANCE = 1e-6
#: nats; where both trainings together may stop further than this from their minima, leave-one-out measures the solver
STOPPED_SHORT = 0.05
#: nats by which a training may miss its minimum anywhere in a domain; beyond, a limit would be about the solver
SHORT_ANYWHERE = 0.5
#: log-odds from which on a released probability has lost digits, or is 0
DEEPEST = 700.0
#: log-odds of two classes beyond which 1 - p has lost its digits
_DIGITS_OF_TWO = 34.6
#: parameters of models without a person that are in memory at once
_MOVES = 30_000_000
#: multiplications spent on further steps, and on minima of their own
_STEPS, _ALONE = 2e10, 1e10
#: how many times what it would be without errors a limit may be, before it is worth more work
_LOOSE = 1.02


class Logistic(Engine):
    """Leave-one-out for ``sklearn.linear_model.LogisticRegression`` with an L2 penalty, two classes or more.

    ``error`` is what the kernel says of both models: how far from them any two trainings may end whose gradients are
    as small as the user's solver leaves them. A person for whom that is more than 0.05 nats is refitted, and so are all
    where the solver stops by something else (docs/mathematics.md, sections 6.3 and 6.4).
    """

    name = "logistic"
    hands_on = "no Newton step of theirs could be certified, or the solver's tolerance is too coarse"
    complements = True
    certain = True

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        estimator = estimator_of(subject, "LogisticRegression")
        if estimator is None:
            return "the recipe is not scikit-learn's LogisticRegression"
        if why := design_refusal(subject) or refusal(estimator):
            return why
        return "there is one class only" if len(subject.classes) < 2 else ""

    def declines(self, subject: Subject) -> str:
        """Return why ``answers`` will decline; empty if it answers. The subject must be supported."""
        return _declined(subject)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return everybody who can be certified; the others are left to refits.

        Raises
        ------
        Declined
            The Hessian is too ill-conditioned, or where the user's solver stops is not known closely enough.
        """
        subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
        if why := self.declines(subject):
            raise Declined(why)
        problem = problem_of(subject)
        pool, most = _pool(problem), max(1, _MOVES // problem.stops.u.size)
        error, K = np.zeros(len(units)), len(subject.classes)
        log_with, log_without = np.empty((2, len(row_unit), K))
        try:
            for first in range(0, len(units), most):
                some, part = slice(*np.searchsorted(row_unit, [first, first + most])), units[first : first + most]
                rows = row_unit[some] - first, pool[row_query[some]]
                found = _Some(problem, asked_first(subject, part), len(part), rows).closely(asked)
                log_with[some], log_without[some] = found.log_with, found.log_without
                error[first : first + most] = found.error
        except (kernel.Refused, np.linalg.LinAlgError) as exc:
            raise Declined(f"the Hessian is too ill-conditioned for a certificate ({exc})") from exc
        gone = vanishing(subject, units)
        log_without[gone[row_unit]], error[gone] = -np.inf, 0.0
        made = Retrained.of(
            self.name,
            units,
            asked.seeds[:1],
            asked.rows,
            log_with[None],
            log_without[None],
            status=Status.CONVERGED,
            error=error,
            undefined={int(k): VANISHED for k in np.flatnonzero(gone)},
        )
        kept = gone | (error <= STOPPED_SHORT)
        return (made, units[:0]) if kept.all() else (made.select(kept), units[~kept])

    def notes(self, subject: Subject) -> dict[str, float]:
        """Return how far the delivered model is from its own minimum (docs/mathematics.md, section 6.4).

        ``gradient`` is the largest component of its gradient (scikit-learn's objective, divided by n C); ``distance``
        the largest difference of a log-probability to the minimiser's over the pool, nats; ``allowed`` about how large
        that may be for a training on these records that ends by its gradient; ``seen`` how many refits were seen to.
        """
        problem = problem_of(subject)
        pool = _pool(problem)
        theirs, ours = (log_softmax(pool @ u.T) for u in (problem.stops.u, problem.minimum[0]))
        return {
            "gradient": float(np.abs(problem.loss.gradient(problem.stops.u)).max()) / subject.data.n,
            "distance": float(np.abs(theirs - ours).max()),
            "allowed": float(_missed(problem, pool).max()),
            "seen": float(problem.stops.seen),
        }


LOGISTIC = Logistic()


class _Found(NamedTuple):
    """Answers at rows; of each person the largest change, how far it may be off, and whether more work may help."""

    log_with: Float
    log_without: Float
    change: Float
    error: Float
    loose: NDArray[np.bool_]


class _Some:
    """People who are answered about together.

    Parameters
    ----------
    person : int64 array of shape (n,)
        Whose each record is: the people first, then everybody else as one.
    rows : (int64 array of shape (R,), float64 array of shape (R, p))
        Which of the people each question is about, and the question.
    """

    def __init__(
        self, problem: Problem, person: Index, people: int, rows: tuple[Index, Float], known: Any = None
    ) -> None:
        self.problem, self.person, self.rows, self.people, self.known = problem, person, rows, np.arange(people), known

    def closely(self, asked: Asked) -> _Found:
        """Return answers as near as the budget allows."""
        loss = self.problem.loss
        proposal = logistic_moves.propose(loss, self.person, self.problem.minimum, self.people)
        found, size = self._near(proposal), loss.X.size * loss.C
        affordable = int(_ALONE / (10 * size * loss.C * loss.X.shape[1]))
        open_ = self._open(found, found.error > TOLERANCE, asked, int(_STEPS / (16 * size)))
        if len(open_) > affordable:
            self._again(found, proposal, open_, partial(logistic_moves.refine, found=self.problem.minimum, rounds=1))
            open_ = self._open(found, found.loose, asked, affordable)
        if len(open_):
            self._again(found, proposal, open_, logistic_moves.alone)
        return found

    def _near(self, proposal: logistic_moves.Certificate) -> _Found:
        """Return what the kernel says of a proposal."""
        person, X = self.rows
        case = self.problem.case("own", self.person, {**proposal, "rows": X, "whose": person})
        self.known = self.known or kernel.everybody(case)
        z0, e0, z1, e1 = kernel.near(case, self.known)
        log_with, log_without = log_softmax(z0), log_softmax(z1)
        change, error, loose = np.zeros((3, len(self.people)))
        np.maximum.at(change, person, largest_change(log_with, log_without))
        np.maximum.at(error, person, e0 + e1)
        np.maximum.at(loose, person, e1 > 2 * e0 + TOLERANCE)
        return _Found(log_with, log_without, change, error, loose > 0)

    def _again(
        self,
        found: _Found,
        proposal: logistic_moves.Certificate,
        open_: Index,
        further: Callable[..., logistic_moves.Certificate],
    ) -> None:
        """Replace what was found of some people by what more work shows; everybody else is one person."""
        place = np.full(len(self.people) + 1, len(open_))
        place[open_] = np.arange(len(open_))
        person, whose = place[self.person], place[self.rows[0]]
        mine = whose < len(open_)
        moves = np.full((int(person.max()) + 1, *proposal["at"].shape), np.nan)
        moves[: len(open_)] = proposal["moves"][open_]
        part = _Some(self.problem, person, len(open_), (whose[mine], self.rows[1][mine]), self.known)
        made = part._near(further(self.problem.loss, person, {**proposal, "moves": moves}, part.people))
        better = made.error < found.error[open_]
        rows = np.flatnonzero(mine)[better[whose[mine]]]
        found.log_without[rows] = made.log_without[better[whose[mine]]]
        for old, new in ((found.change, made.change), (found.error, made.error), (found.loose, made.loose)):
            old[open_[better]] = new[better]

    @staticmethod
    def _open(found: _Found, wanted: NDArray[np.bool_], asked: Asked, most: int) -> Index:
        """Return who gets more work: all who want it if that is affordable, else those who may decide something."""
        low, high = np.maximum(found.change - found.error, 0.0), found.change + found.error
        urgent = ~(found.error <= STOPPED_SHORT)
        for limit in asked.limits:
            urgent |= (low <= limit) & (limit < high)
        leading = high > low.max(initial=0.0)
        some = np.flatnonzero(wanted)
        if len(some) > most:
            some = some[(urgent | leading)[some]]
        order = np.lexsort((-np.where(np.isinf(high), 0.0, high)[some], ~urgent[some]))
        return np.sort(some[order][:most])


@lru_cache(maxsize=4)
def _declined(subject: Subject) -> str:
    """Return why a supported subject is declined; empty if it is answered. Estimates; the kernel decides."""
    problem = problem_of(subject)
    if problem.stops.problem:
        return problem.stops.problem
    if problem.stops.u.size > LARGEST:
        return "the Hessian is too large for a certificate"
    try:
        missed = _missed(problem, problem.loss.X)
    except np.linalg.LinAlgError:
        return "the Hessian is too ill-conditioned for a certificate"
    if not missed.min() <= STOPPED_SHORT:
        return (
            "its tolerance lets the solver stop far from its own minimum, so leaving one out would measure the "
            f"solver; {ADVICE}"
        )
    return ""


def _pool(problem: Problem) -> Float:
    """Return records that train, then candidates, the intercept's column of ones last, (P, p)."""
    made = matrix(problem.subject).astype(np.float64, copy=False)
    return np.column_stack([made, np.ones(len(made))]) if problem.intercept else made


def _missed(problem: Problem, X: Float) -> Float:
    """Return about how far scores at rows of X may be from the minimum's where a training ends, (m,)."""
    C, p = problem.stops.u.shape
    allowed = np.tile(problem.stops.allowed, C)
    blocks = problem.inverse.reshape(C, p, C, p)
    square = np.stack([np.einsum("np,pq,nq->n", X, blocks[c, :, c], X, optimize=True) for c in range(C)])
    return np.asarray(np.sqrt(allowed @ np.abs(problem.inverse) @ allowed * np.maximum(square, 0.0).max(axis=0)))


class Newton(Theorem):
    """Where the minimum goes without a person, as far as the kernel follows; section 6.3 of the mathematics."""

    name = "newton"
    source = "privgate/kernel/logistic.py; docs/mathematics.md, section 6.3"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return _unfit(subject)

    def misfit(self, subject: Subject) -> str:
        """Return which hypothesis fails; where trainings end is left to ``unfit``."""
        if problem := hypotheses.refusal(subject, "LogisticRegression"):
            return problem
        estimator, X = estimator_of(subject, "LogisticRegression"), hypotheses.dense(subject.data.X)
        if X is None:
            return "the features are not finite numbers"
        if problem := hypotheses.single_precision(subject.data.X) or refusal(estimator):
            return problem
        otherwise = (
            "for queries without limits DTP is infinite; declare the range of every feature, TrainingData(X, y, "
            "domain=Domain(box=[(low, high), …])), and let the endpoint refuse anything else"
        )
        if isinstance(made := hypotheses.declared(subject, X, otherwise), str):
            return made
        parameters = (1 if len(subject.classes) == 2 else len(subject.classes)) * (X.shape[1] + 1)
        return f"{parameters} parameters make the Hessian too large to factor" if parameters > _PARAMETERS else ""

    def canonical(self, subject: Subject, units: Index, case: kernel.Case) -> kernel.Case:
        """Return what is minimised; ``allowed`` as it is where it is at least what the solver's test leaves open."""
        at = case.arrays.get("at", np.zeros((0, 0)))
        least, found = least_allowed(subject, at), case.arrays.get("allowed", np.zeros(0))
        reach, d = hypotheses.reach(subject), int(subject.data.X.shape[1])
        arrays = {**accepted_arrays(reach, d), "allowed": found if (found >= least).all() else least}
        loss = loss_on(subject, make_table(subject), np.arange(subject.data.n))
        return pose(subject, loss, "any", asked_first(subject, units), arrays, **accepted_settings(reach))

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units."""
        subject, units = about.subject, about.units
        problem, reach, person = problem_of(subject), hypotheses.reach(subject), asked_first(subject, units)
        asked, loss, stops = np.arange(len(units)), problem.loss, problem.stops
        settings = {"limit": 1.0 if about.limit is None else float(about.limit), **accepted_settings(reach)}

        def judge(proposal: logistic_moves.Certificate) -> Kept:
            arrays = {**accepted_arrays(reach, loss.X.shape[1] - problem.intercept), **proposal}
            return Kept.judge_case(problem.case("any", person, arrays, **settings), units)

        try:
            proposal = logistic_moves.propose(loss, person, stops.u, asked)
            cases = [judge(proposal)]
        except (kernel.Refused, np.linalg.LinAlgError):
            return Certified.nothing(units)
        size = loss.X.size * loss.C
        many = int(2 * _STEPS / (8 * size)), int(3 * _ALONE / (10 * size * loss.C * loss.X.shape[1]))
        nearly = _estimate(problem, cases[0].case, len(units))
        for more, most in zip((logistic_moves.refine, logistic_moves.alone), many, strict=True):
            if len(open_ := self._open(nearly, _best(cases)[1], about.limit)[:most]):
                proposal = more(loss, person, proposal, np.sort(open_))
                cases.append(judge(proposal))
        lower, upper = _best(cases)
        ends = (
            "every training of the recipe ends by its solver's gradient test, at a gradient of at most "
            f"{stops.allowed.max():.2g} (sum over records); {stops.seen} refits were seen to"
        )
        return Certified(upper, lower, (reach.words(), ends), cases=tuple(cases))

    @staticmethod
    def _open(nearly: Float, high: Float, limit: float | None) -> Index:
        """Return whom more work may help, the most urgent first: on both sides of the limit, then the largest."""
        urgent = np.isinf(high) & np.isfinite(nearly)
        if limit is not None:
            urgent |= (nearly <= limit) & (limit < high)
        order = np.lexsort((-np.where(np.isinf(high), 0.0, high), ~urgent))
        return np.asarray(order[(urgent | (high > _LOOSE * nearly))[order]])


def _estimate(problem: Problem, case: kernel.Case, people: int) -> Float:
    """Return about what the limits of the first people are where nothing errs, (people,); infinite without a move."""
    at, moves = case.arrays["at"], case.arrays["moves"][:people]
    if problem.loss.K == 2:
        at, moves = np.stack([0 * at[0], at[0]]), np.stack([0 * moves[:, 0], moves[:, 0]], axis=1)
    if not problem.intercept:
        at, moves = (np.concatenate([v, np.zeros((*v.shape[:-1], 1))], axis=-1) for v in (at, moves))
    known = np.isfinite(moves).all(axis=(1, 2))
    found, accepted, nothing = np.full(people, np.inf), Accepted.of(case, at.shape[1] - 1), np.zeros(int(known.sum()))
    rounded, limit = (np.zeros(()), nothing), float(case.settings["limit"])
    with np.errstate(all="ignore"):
        found[known] = over_questions(accepted, at, moves[known], errors=(0.0, nothing), rounded=rounded, limit=limit)
    return found


def _best(cases: list[Kept]) -> tuple[Float, Float]:
    found = kernel.Limits.of(np.max([k.low for k in cases], axis=0), np.min([k.high for k in cases], axis=0))
    return found.low, found.high


@lru_cache(maxsize=4)
def _unfit(subject: Subject) -> str:
    """Return why the kernel will say nothing of a subject, of everybody's model too; empty if it may. Estimates."""
    if why := NEWTON.misfit(subject):
        return why
    problem, reach = problem_of(subject), hypotheses.reach(subject)
    stops, loss = problem.stops, problem.loss
    if stops.problem:
        return stops.problem
    u = np.concatenate([np.zeros_like(stops.u), stops.u]) if loss.K == 2 else stops.u
    apart = u[:, None] - u[None]
    ranges = reach.maximum(apart[..., : loss.X.shape[1] - problem.intercept])
    if problem.intercept:
        ranges = ranges + apart[..., -1]
    # of two classes the first is released as 1 - p
    if np.abs(ranges).max() > DEEPEST or (loss.K == 2 and ranges[1, 0] > _DIGITS_OF_TWO):
        return "float64 holds some probabilities of the domain in too few digits; declare a narrower domain or lower C"
    curve = 0.25 * loss.weight @ loss.X**2 + loss.penalty
    # a gradient that is left moves the parameters by at least this much, and scores by that times a question
    longest = reach.longest(loss.X.shape[1] - problem.intercept)[1]
    if float(np.linalg.norm(stops.allowed / curve)) * longest > SHORT_ANYWHERE:
        return f"its tolerance lets the solver stop far from its own minimum; {ADVICE}"
    return ""


NEWTON = Newton()
