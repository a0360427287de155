"""Logistic regression: where its trainings end, the model without each person, and limits over a declared domain.

scikit-learn minimises ``f / n``, f the sum of the losses plus the penalty divided by C. Its Newton solvers end where
every component of that gradient is at most ``tol``, whatever the data; otherwise they warn. lbfgs may end sooner,
without a word; sag, saga and liblinear test no gradient at all.

A minimum, one factor of its Hessian and a Newton step a person are proposed for everybody at once
(``logistic_moves``); the kernel says how near they are. Whom that leaves open gets further steps, and the last few a
minimum of their own.
"""

import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.kernel.scores import largest
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses
from privgate.theorems.closed_form import Declined, Engine, RefitRequest, Retrained, Status
from privgate.theorems.hypotheses import VANISHED, design_refusal, estimator_of, matrix, vanishing
from privgate.theorems.logistic_moves import Leaving, Loss, Minimum, Proposal
from privgate.theorems.theorem import Certified, Theorem, Units, people_of

#: solvers that end by their gradient or warn
PROMISING = ("newton-cholesky", "newton-cg")
ADVICE = "set solver='newton-cholesky', tol=1e-8 in the recipe"
_WORK = 1e8  # multiplications spent on refits that are looked at: all of them for small data, where trouble is
_FEW = 10  # fewer refits than this say nothing
_SHARE = 3  # the registered model may need at most this share of ``max_iter``, so that refits have enough
_ROUNDED = 10.0  # rounding of the gradient, bounded for the worst case, may be this many times what the test asks for
#: parameters beyond which the Hessian and its inverse take more than 1 GB, and beyond which it is too large to factor
LARGEST, _PARAMETERS = 8000, 2_500
TOLERANCE = 1e-6  # nats; wanted bound on the error of each log-probability, two digits below any limit of a policy
#: nats; where both trainings together may stop further than this from their minima, leave-one-out measures the solver
STOPPED_SHORT = 0.05
#: nats by which a training may miss its minimum anywhere in a domain; beyond, a limit would be about the solver
_SHORT_ANYWHERE = 0.5
#: log-odds from which on a released probability has lost digits, or is 0; of two classes, 1 - p
_DEEPEST, _DIGITS_OF_TWO = 700.0, 34.6
_MOVES = 30_000_000  # parameters of models without a person that are in memory at once
_STEPS, _ALONE = 4e10, 3e10  # multiplications spent on further steps, and on minima of their own
_MANY = 200  # people
_LOOSE = 1.02  # how many times what a question shows a limit may be, before it is worth more work
_ILL = "the Hessian is too ill-conditioned for a certificate"


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised on all training records, and what is known of every training on these, or on fewer."""

    subject: Subject
    loss: Loss
    intercept: bool  # whether the last parameter is one
    u: Float  # (C, p): parameters trained on all records, the intercept last; one row for two classes
    allowed: Float  # (p,): largest size of a component of f's gradient where a training ends, rounding included
    why: str = ""  # why no gradient is promised; empty if it is bounded
    seen: int = 0  # refits that were looked at; all ended by the gradient test

    @cached_property
    def minimum(self) -> Minimum:
        """Near the minimum; may raise ``LinAlgError``."""
        return self.loss.minimise(self.u - self.loss.shared * self.u.mean(axis=0))

    @cached_property
    def pool(self) -> Float:
        """Records that train, then candidates, the intercept's column of ones last, (P, p)."""
        return _design(matrix(self.subject), intercept=self.intercept)

    def group(self, units: Index) -> Index:
        """Return whose each record is: the ``units`` in their order; everybody else is one person."""
        return np.minimum(people_of(self.subject, units), len(units))

    def estimate_distance(self, X: Float) -> Float:
        """Return about how far scores at rows of X may be from the minimum's where a training ends, (m,)."""
        C, p = self.u.shape
        allowed, inverse = np.tile(self.allowed, C), np.linalg.inv(self.minimum[2])
        blocks = inverse.reshape(C, p, C, p)
        square = np.stack([np.einsum("np,pq,nq->n", X, blocks[c, :, c], X, optimize=True) for c in range(C)])
        return np.asarray(np.sqrt(allowed @ np.abs(inverse) @ allowed * np.maximum(square, 0.0).max(axis=0)))

    def case(
        self, scope: Literal["own", "any"], person: Index, arrays: Mapping[str, NDArray[Any]], **settings: Any
    ) -> kernel.Case:
        """Return what the kernel is asked, with the arrays of a certificate and of questions."""
        loss = self.loss
        records = {"X": loss.X, "label": loss.label, "weight": loss.weight, "penalty": loss.penalty, "person": person}
        settings = {"classes": loss.K, "intercept": self.intercept, **settings}
        return kernel.Case("logistic", scope, settings, {**records, "allowed": self.allowed, **arrays})


def refuse_recipe(estimator: Any) -> str:
    """Return why no training of a logistic regression promises a small gradient of a softmax loss; empty if it may."""
    if estimator.penalty not in ("deprecated", "l2") or (estimator.l1_ratio or 0) != 0:
        return "the penalty is not L2"
    if not np.isfinite(estimator.C):
        return "there is no penalty, so no minimiser need exist"
    if estimator.class_weight is not None and not isinstance(estimator.class_weight, dict):
        return "balanced class weights depend on who is there"
    if getattr(estimator, "multi_class", "deprecated") not in ("deprecated", "auto", "multinomial"):
        return "one-versus-rest classifiers are no softmax model"
    if estimator.solver in (*PROMISING, "lbfgs"):
        return ""
    return f"{estimator.solver} does not stop by its gradient, so where a refit stops is unknown; {ADVICE}"


@lru_cache(maxsize=4)
def pose_problem(subject: Subject) -> Problem:
    """Return the problem of a recipe that ``refuse_recipe`` agreed to, on a finite table; it is trained on it."""
    estimator, codes = subject.recipe.library_estimator, subject.label_codes
    X = _design(subject.data.X, intercept=estimator.fit_intercept)
    penalty = np.full(X.shape[1], 1.0 / estimator.C)
    if estimator.fit_intercept:
        penalty[-1] = 0.0
    named = estimator.class_weight or {}
    weight = np.array([float(named.get(label, 1.0)) for label in subject.classes.tolist()])[codes]
    u, steps, warned = _train(subject, np.arange(len(X)))
    (n, p), size, eps = X.shape, np.abs(X), float(np.finfo(np.float64).eps)
    tests, logits = float(weight.sum()) * float(estimator.tol), float((size @ np.abs(u).T).max(initial=0.0))
    # Residuals are at most 1, and sums of n terms lose at most n units of roundoff of the sum of their sizes. Logits
    # lose p of theirs, and newton-cholesky adds them up over its steps; a quarter enters a residual.
    rounding = eps * ((n + p + 50) * (1 + logits) * size.sum(axis=0) + 4 * np.abs(u).max(axis=0) / estimator.C)
    rounding *= max(1.0, float(weight.max()))
    allowed = np.where((X != 0).any(axis=0), tests + rounding, 0.0)
    loss = Loss(X, codes, weight, penalty, len(subject.classes))
    problem = Problem(subject, loss, bool(estimator.fit_intercept), u, allowed)
    if why := warned or _exceed(problem.loss, u, allowed + rounding):
        why = f"the solver did not end by its gradient ({why}); {ADVICE}"
    elif not (rounding <= _ROUNDED * tests).all():
        why = f"tol={estimator.tol:g} is below what float64 resolves on these data; scale the features"
    why, seen = (why, 0) if why else _look_at_refits(problem, steps, allowed + rounding)
    return replace(problem, why=why, seen=seen)


def _look_at_refits(problem: Problem, steps: int, allowed: Float) -> tuple[str, int]:
    """Return (why refits may end anywhere, how many were seen): all where that is cheap, else of the riskiest.

    ``steps`` is what the training on everybody needed; lbfgs is not believed unseen.
    """
    subject, loss, size = problem.subject, problem.loss, float(problem.loss.X.size * problem.loss.C)
    estimator, everyone = subject.recipe.library_estimator, np.arange(subject.data.n)
    # in multiplications; for small data a step is the time of Python
    cost = max(size * (4 if estimator.solver == "lbfgs" else problem.u.size), 2e4)
    own = np.exp(log_softmax(loss.X @ problem.u.T))[everyone, loss.label]
    pull = (1 - own) * np.linalg.norm(loss.X - loss.X.mean(axis=0), axis=1)
    people = np.argsort(-np.bincount(subject.data.units.owner, pull), kind="stable")
    people = people[~vanishing(subject, people)]
    many = int(_WORK / (steps * cost))
    few = people[: many if many >= _FEW else 0]
    if len(few) < len(people):
        if estimator.solver not in PROMISING:
            return f"a refit by {estimator.solver} may stop before its gradient is small; {ADVICE}", 0
        if steps * _SHARE > estimator.max_iter:
            return f"refits may need more than max_iter={estimator.max_iter} steps; raise it", 0
    for k in few:
        rows = np.setdiff1d(everyone, subject.data.units[int(k)])
        u, _, warned = _train(subject, rows)
        if why := warned or _exceed(loss.keep(rows), u, allowed):
            return f"a refit did not end by its gradient ({why}); {ADVICE}", 0
    return "", len(few)


def _design(X: Any, *, intercept: bool) -> Float:
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    return np.column_stack([X, np.ones(len(X))]) if intercept else X


def _train(subject: Subject, rows: Index) -> tuple[Float, int, str]:
    """Return (parameters (C, p), steps, what it warned of) of the recipe trained on some records."""
    import scipy.linalg as sl
    from sklearn.exceptions import ConvergenceWarning

    estimator, X = subject.recipe.library_estimator, subject.data.X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = estimator.fit(take(X.tocsr() if hasattr(X, "tocsr") else X, rows), subject.data.y[rows])
    u = np.column_stack([model.coef_, model.intercept_]) if estimator.fit_intercept else np.asarray(model.coef_)
    alarms = (ConvergenceWarning, sl.LinAlgWarning)
    bad = [str(w.message) for w in caught if issubclass(w.category, alarms) or "Line Search" in str(w.message)]
    return u.astype(np.float64), max(1, int(np.max(model.n_iter_))), " ".join(bad[0].split())[:60] if bad else ""


def _exceed(loss: Loss, u: Float, allowed: Float) -> str:
    """Return by how much the gradient at ``u`` is larger than allowed, twice the rounding included; empty if not."""
    size = np.abs(loss.gradient(u))
    return "" if (size <= allowed).all() else f"{size.max():.2g} is left of it, {allowed.max():.2g} is allowed"


def log_softmax(Z: Float) -> Float:
    """Return log-probabilities (m, K) from scores (m, C), of the second of two classes or of all."""
    Z = np.column_stack([np.zeros(len(Z)), Z]) if Z.shape[1] == 1 else Z
    return np.asarray(Z - np.logaddexp.reduce(Z, axis=1)[:, None])


class Logistic(Engine):
    """Leave-one-out for ``sklearn.linear_model.LogisticRegression`` with an L2 penalty, two classes or more.

    ``error`` is the kernel's: how far from both models trainings may end whose gradients the solver leaves. Who has
    more than 0.05 nats is refitted, and all where it stops by something else (docs/mathematics.md, 6.3 and 6.4).
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
        if why := design_refusal(subject) or refuse_recipe(estimator):
            return why
        return "there is one class only" if len(subject.classes) < 2 else ""

    def declines(self, subject: Subject) -> str:
        """Return why ``answers`` will decline; empty if it answers. Estimates of a supported subject."""
        problem = pose_problem(subject)
        if problem.why or problem.u.size > LARGEST:
            return problem.why or "the Hessian is too large for a certificate"
        try:
            near = problem.estimate_distance(problem.loss.X).min() <= STOPPED_SHORT
        except np.linalg.LinAlgError:
            return _ILL
        far = "its tolerance lets the solver stop far from its own minimum, so leaving one out would measure the solver"
        return "" if near else f"{far}; {ADVICE}"

    def answers(self, request: RefitRequest) -> tuple[Retrained, Index]:
        """Return everybody who can be certified, and those left to refits; or raise ``Declined``, which says why."""
        subject, units, (row_unit, row_query) = request.subject, request.units, request.rows
        if why := self.declines(subject):
            raise Declined(why)
        problem = pose_problem(subject)
        most, error = max(1, _MOVES // problem.u.size), np.zeros(len(units))
        log_with, log_without = np.empty((2, len(row_unit), len(subject.classes)))
        try:
            for first in range(0, len(units), most):
                some, part = slice(*np.searchsorted(row_unit, [first, first + most])), units[first : first + most]
                rows = row_unit[some] - first, problem.pool[row_query[some]]
                log_with[some], log_without[some], error[first : first + most] = _answer(problem, part, rows)
        except (kernel.Refused, np.linalg.LinAlgError) as exc:
            raise Declined(f"{_ILL} ({exc})") from exc
        gone = vanishing(subject, units)
        log_without[gone[row_unit]], error[gone] = -np.inf, 0.0
        undefined = {int(k): VANISHED for k in np.flatnonzero(gone)}
        columns = (self.name, units, request.seeds[:1], request.rows, log_with[None], log_without[None])
        retrained = Retrained.from_columns(*columns, status=Status.CONVERGED, error=error, undefined=undefined)
        kept = gone | (error <= STOPPED_SHORT)
        return (retrained, units[:0]) if kept.all() else (retrained.select(kept), units[~kept])


def _answer(problem: Problem, units: Index, rows: tuple[Index, Float]) -> tuple[Float, Float, Float]:
    """Return log-probabilities of both models at ``rows`` (whose, X), and how far each person's may be off, (U,)."""
    (whose, X), person = rows, problem.group(units)
    error, (log_with, log_without) = np.full(len(units), np.inf), np.full((2, len(whose), problem.loss.K), -np.inf)
    loose: NDArray[np.bool_] = np.ones(len(units), dtype=bool)
    known: Any = None

    def judge(proposal: Proposal) -> None:
        nonlocal known
        known = kernel.everybody(problem.case("own", person, proposal)) if known is None else known
        case = problem.case("own", person, {**proposal, "rows": X, "whose": whose})
        z0, e0, z1, e1 = kernel.near(case, known)
        off, own = (largest(whose, len(units), e) for e in (e0 + e1, e1 - 2 * e0))
        better, loose[:] = off < error, own > TOLERANCE
        some = better[whose]
        log_with[:], log_without[some], error[better] = log_softmax(z0), log_softmax(z1)[some], off[better]

    def choose(proposal: Proposal) -> Index:
        order = np.argsort(-error, kind="stable")
        # of many, only those whom a minimum of their own brings nearer
        wanting = loose if "swept" in proposal and len(units) > _MANY else error > TOLERANCE
        return np.asarray(order[wanting[order]])

    _improve(problem, person, len(units), judge, choose)
    return log_with, log_without, error


def _improve(
    problem: Problem, person: Index, people: int, judge: Callable[[Proposal], None], choose: Callable[[Proposal], Index]
) -> None:
    """Have a Newton step of all ``people`` judged, then more work on those chosen, as many as are affordable."""
    leaving, size, C = Leaving(problem.loss, person, problem.minimum), problem.loss.X.size, problem.loss.C
    proposal = leaving.propose(np.arange(people))
    judge(proposal)
    refined, alone = int(_STEPS / (8 * size * C)), int(_ALONE / (10 * size * C**2 * problem.loss.X.shape[1]))
    for improve, most in ((leaving.refine, refined), (leaving.minimise_alone, alone)):
        if len(some := choose(proposal)[:most]):
            proposal = improve(proposal, np.sort(some))
            judge(proposal)


LOGISTIC = Logistic()


class Newton(Theorem):
    """Where the minimum goes without a person, as far as the kernel follows; section 6.3 of the mathematics."""

    name = "newton"
    source = "privgate/kernel/logistic.py; docs/mathematics.md, section 6.3"

    def unfit(self, subject: Subject) -> str:
        """Return why the theorem does not apply, or the kernel will say nothing of everybody's model; else empty."""
        if why := hypotheses.refusal(subject, "LogisticRegression"):
            return why
        X, classes = hypotheses.dense(subject.data.X), len(subject.classes)
        if X is None:
            return "the features are not finite numbers"
        estimator = estimator_of(subject, "LogisticRegression")
        if why := hypotheses.single_precision(subject.data.X) or refuse_recipe(estimator):
            return why
        otherwise = (
            "for queries without limits DTP is infinite; declare the range of every feature, TrainingData(X, y, "
            "domain=Domain(box=[(low, high), …])), and let the endpoint refuse anything else"
        )
        if isinstance(reach := hypotheses.declared(subject, X, otherwise), str):
            return reach
        if (parameters := (1 if classes == 2 else classes) * (X.shape[1] + 1)) > _PARAMETERS:
            return f"{parameters} parameters make the Hessian too large to factor"
        problem = pose_problem(subject)
        if problem.why:
            return problem.why
        loss, u, d = problem.loss, problem.u, X.shape[1]
        u = np.concatenate([np.zeros_like(u), u]) if classes == 2 else u
        apart = u[:, None] - u[None]
        ranges = reach.bound_dot(apart[..., :d]) + (apart[..., -1] if problem.intercept else 0.0)
        # of two classes the first is released as 1 - p
        if np.abs(ranges).max() > _DEEPEST or (classes == 2 and ranges[1, 0] > _DIGITS_OF_TWO):
            what = "float64 holds some probabilities of the domain in too few digits"
            return f"{what}; declare a narrower domain or lower C"
        curve = 0.25 * loss.weight @ loss.X**2 + loss.penalty
        # a gradient that is left moves the parameters by at least this much, and scores by that times a question
        far = np.linalg.norm(hypotheses.attain(reach, reach.low + reach.high))
        if float(np.linalg.norm(problem.allowed / curve) * far) > _SHORT_ANYWHERE:
            return f"its tolerance lets the solver stop far from its own minimum; {ADVICE}"
        return ""

    def canonical(self, subject: Subject, units: Index, case: kernel.Case) -> kernel.Case:
        """Return what is minimised; ``allowed`` as it is where it is at least what the solver's test leaves open."""
        problem, reach = pose_problem(subject), hypotheses.reach(subject)
        least, stated = (1 - 1e-3) * problem.allowed, case.arrays.get("allowed", np.zeros(0))
        enough = stated.shape == least.shape and (stated >= least).all()
        settings, arrays = hypotheses.state_domain(reach)
        arrays["allowed"] = stated if enough else least
        return problem.case("any", problem.group(units), arrays, **settings)

    def certify(self, about: Units) -> Certified:
        """Return the kernel's limits of each of the units, nats."""
        units, problem, reach = about.units, pose_problem(about.subject), hypotheses.reach(about.subject)
        settings, accepted = hypotheses.state_domain(reach)
        settings["limit"] = 1.0 if about.limit is None else float(about.limit)
        person, cases = problem.group(units), list[Kept]()

        def judge(proposal: Proposal) -> None:
            case = problem.case("any", person, {**accepted, **proposal}, **settings)
            cases.append(Kept.judge_case(case, units))

        def combine() -> kernel.Limits:
            low, high = np.max([k.low for k in cases], axis=0), np.min([k.high for k in cases], axis=0)
            return kernel.Limits.from_ends(low, high)

        def choose(proposal: Proposal) -> Index:
            known = combine()
            urgent = np.isinf(known.high) & np.isfinite(proposal["moves"][: len(units)]).all(axis=(1, 2))
            if about.limit is not None:
                urgent |= (known.low <= about.limit) & (about.limit < known.high)
            order = np.lexsort((-np.where(np.isinf(known.high), 0.0, known.high), ~urgent))  # then the largest
            return np.asarray(order[(urgent | (known.high > _LOOSE * known.low))[order]])

        try:
            _improve(problem, person, len(units), judge, choose)
        except (kernel.Refused, np.linalg.LinAlgError):
            if not cases:
                return Certified.nothing(units)
        limits, gradient = combine(), float(problem.allowed.max())
        ends = (
            "every training of the recipe ends by its solver's gradient test, at a gradient of at most "
            f"{gradient:.2g} (sum over records); {problem.seen} refits were seen to"
        )
        return Certified(limits.high, limits.low, (hypotheses.OUTSIDE, ends), cases=tuple(cases))


NEWTON = Newton()
