"""Where scikit-learn's logistic regression stops: what its gradient test promises of any training, and who ends by it.

scikit-learn minimises ``f / n``, f the sum of the losses plus the penalty divided by C. Its Newton solvers end where
every component of that gradient is at most ``tol``, so that every component of f's is at most ``n tol``, whatever the
data; otherwise they warn. lbfgs may end sooner, without a word, where f hardly changes; sag, saga and liblinear test no
gradient at all.
"""

import warnings
from collections.abc import Mapping
from dataclasses import dataclass
from functools import cached_property, lru_cache
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.subject.containers import take
from privgate.subject.subject import Subject
from privgate.theorems.certificate import people_of
from privgate.theorems.logistic_moves import Loss, Minimum

#: solvers that end by their gradient or warn
PROMISING = ("newton-cholesky", "newton-cg")
ADVICE = "set solver='newton-cholesky', tol=1e-8 in the recipe"
#: multiplications spent on refits that are looked at: all of them for small data, where trouble is
_WORK = 1e8
#: fewer refits than this say nothing
_FEW = 10
#: the registered model may need at most this share of ``max_iter``, so that refits have enough
_SHARE = 3
#: rounding of the gradient, bounded for the worst case, may be this many times what the test asks for
_ROUNDED = 10.0


@dataclass(frozen=True, eq=False)
class Stopping:
    """What is known of every training on these records, or on fewer.

    Parameters
    ----------
    problem : str
        Why nothing is promised; empty if the gradient is bounded.
    u : float64 array of shape (C, p)
        Parameters trained on all records, the intercept last; one row for two classes.
    allowed : float64 array of shape (p,)
        Largest size of a component of f's gradient where a training ends, rounding included; the intercept's last.
    seen : int
        Refits that were looked at; all ended by the gradient test.
    """

    problem: str
    u: Float
    allowed: Float
    seen: int = 0


@lru_cache(maxsize=4)
def stopping(subject: Subject) -> Stopping:
    """Return where trainings of the recipe end, the registered model's and every refit's.

    ``refusal`` was empty. Refits are run and looked at, all of them where that is cheap, those of the riskiest people
    where some are; lbfgs is not believed unseen.
    """
    estimator, X = subject.recipe.library_estimator, make_table(subject)
    everyone = np.arange(len(X))
    u, steps, warned = _train(subject, everyone)
    allowed, tests, rounding = _allow(subject, X, u)
    if problem := warned or _beyond(subject, X, u, everyone, allowed + rounding):
        return Stopping(f"the solver did not end by its gradient ({problem}); {ADVICE}", u, allowed)
    if not (rounding <= _ROUNDED * tests).all():
        problem = f"tol={estimator.tol:g} is below what float64 resolves on these data; scale the features"
        return Stopping(problem, u, allowed)
    units = _rank_by_pull(subject, X, u)
    many = int(_WORK / (steps * _step_cost(estimator.solver, X, u)))
    few = units[: many if many >= _FEW else 0]
    if len(few) < len(units):
        if estimator.solver not in PROMISING:
            problem = f"a refit by {estimator.solver} may stop before its gradient is small; {ADVICE}"
            return Stopping(problem, u, allowed)
        if steps * _SHARE > estimator.max_iter:
            return Stopping(f"refits may need more than max_iter={estimator.max_iter} steps; raise it", u, allowed)
    for k in few:
        rows = np.setdiff1d(everyone, subject.data.units[int(k)])
        there, _, warned = _train(subject, rows)
        if problem := warned or _beyond(subject, X, there, rows, allowed + rounding):
            return Stopping(f"a refit did not end by its gradient ({problem}); {ADVICE}", u, allowed)
    return Stopping("", u, allowed, len(few))


def _allow(subject: Subject, X: Float, u: Float) -> tuple[Float, float, Float]:
    """Return the largest gradient where a training ends (p,), the solver's test's part of it, and rounding's (p,)."""
    weights = _weights(subject, np.arange(len(X)))
    tests = float(weights.sum()) * float(subject.recipe.library_estimator.tol)
    rounding = _round_gradient(X, u, subject.recipe.library_estimator) * max(1.0, float(weights.max()))
    return np.where((X != 0).any(axis=0), tests + rounding, 0.0), tests, rounding


def refusal(estimator: Any) -> str:
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


@dataclass(frozen=True, eq=False)
class Problem:
    """What is minimised on all training records, the intercept's column of ones last, and where trainings end."""

    subject: Subject
    loss: Loss
    stops: Stopping

    @property
    def intercept(self) -> bool:
        """Whether the last parameter is an intercept."""
        return bool(self.subject.recipe.library_estimator.fit_intercept)

    @cached_property
    def minimum(self) -> Minimum:
        """Near the minimum; may raise ``LinAlgError``."""
        return self.loss.minimise(self.stops.u - self.loss.shared * self.stops.u.mean(axis=0))

    @cached_property
    def inverse(self) -> Float:
        """The inverse of the Hessian near the minimum, (C p, C p); may raise ``LinAlgError``."""
        return np.asarray(np.linalg.inv(self.minimum[2]), dtype=np.float64)

    def case(
        self, asked: Literal["own", "any"], person: Index, arrays: Mapping[str, NDArray[Any]], **settings: Any
    ) -> kernel.Case:
        """Return what the kernel is asked, with the arrays of a certificate and of questions."""
        return pose(self.subject, self.loss, asked, person, {"allowed": self.stops.allowed, **arrays}, **settings)


@lru_cache(maxsize=4)
def problem_of(subject: Subject) -> Problem:
    """Return the problem of a subject that ``refusal`` agreed to, on a finite table."""
    return Problem(subject, loss_on(subject, make_table(subject), np.arange(subject.data.n)), stopping(subject))


def pose(
    subject: Subject,
    loss: Loss,
    asked: Literal["own", "any"],
    person: Index,
    arrays: Mapping[str, NDArray[Any]],
    **settings: Any,
) -> kernel.Case:
    """Return what the kernel is asked."""
    told = {"X": loss.X, "label": loss.label, "weight": loss.weight, "penalty": loss.penalty, "person": person}
    intercept = bool(subject.recipe.library_estimator.fit_intercept)
    return kernel.Case("logistic", asked, {"classes": loss.K, "intercept": intercept, **settings}, {**told, **arrays})


def least_allowed(subject: Subject, at: Float) -> Float:
    """Return what a gradient may at least be where a training ends, (p,), near parameters that are nearly minimal.

    Infinite where they are none of these: the solver's test, and rounding at parameters within a thousandth of its own.
    """
    X, vectors = make_table(subject), 1 if len(subject.classes) == 2 else len(subject.classes)
    if at.shape != (vectors, X.shape[1]):
        return np.full(X.shape[1], np.inf)
    return (1 - 1e-3) * _allow(subject, X, at)[0]


def asked_first(subject: Subject, units: Index) -> Index:
    """Return whose each record is: those asked about in their order; everybody else is one person."""
    return np.minimum(people_of(subject, units), len(units))


def loss_on(subject: Subject, X: Float, rows: Index) -> Loss:
    """Return what the recipe minimises on some rows of the design X."""
    estimator = subject.recipe.library_estimator
    penalty = np.full(X.shape[1], 1.0 / estimator.C)
    if estimator.fit_intercept:
        penalty[-1] = 0.0
    return Loss(X[rows], subject.label_codes[rows], _weights(subject, rows), penalty, len(subject.classes))


def _step_cost(solver: str, X: Float, u: Float) -> float:
    """Return what one step of a solver costs, in multiplications; for small data it is the time of Python."""
    size = float(X.size * len(u))
    if solver == "lbfgs":
        return max(4 * size, 2e4)
    return max(size * (u.size if solver == "newton-cholesky" else 50), 5e4)


def make_table(subject: Subject) -> Float:
    """Return the training records, the intercept's column of ones last, (n, p)."""
    X = subject.data.X
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    return np.column_stack([X, np.ones(len(X))]) if subject.recipe.library_estimator.fit_intercept else X


def _train(subject: Subject, rows: Index) -> tuple[Float, int, str]:
    """Return (parameters (C, p), steps, what it warned of) of the recipe trained on some records."""
    import scipy.linalg as sl
    from sklearn.exceptions import ConvergenceWarning

    estimator, X = subject.recipe.library_estimator, subject.data.X
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        model = estimator.fit(take(X.tocsr() if hasattr(X, "tocsr") else X, rows), subject.data.y[rows])
    u = np.column_stack([model.coef_, model.intercept_]) if estimator.fit_intercept else np.asarray(model.coef_)
    bad = [
        w
        for w in caught
        if issubclass(w.category, (ConvergenceWarning, sl.LinAlgWarning)) or "Line Search" in str(w.message)
    ]
    said = " ".join(str(bad[0].message).split())[:60] if bad else ""
    return u.astype(np.float64), max(1, int(np.max(model.n_iter_))), said


def _beyond(subject: Subject, X: Float, u: Float, rows: Index, allowed: Float) -> str:
    """Return by how much the gradient at ``u`` is larger than allowed; empty if it is not.

    Rounding is allowed twice: in the library's own gradient, and in this one.
    """
    size = np.abs(loss_on(subject, X, rows).gradient(u))
    return "" if (size <= allowed).all() else f"{size.max():.2g} is left of it, {allowed.max():.2g} is allowed"


def _weights(subject: Subject, rows: Index) -> Float:
    """Return the factors of the losses of some records, shape (m,)."""
    from sklearn.utils.class_weight import compute_class_weight

    weight = subject.recipe.library_estimator.class_weight
    if weight is None:
        return np.ones(len(rows))
    named = compute_class_weight(weight, classes=subject.classes, y=subject.data.y[rows])
    return np.asarray(named, dtype=np.float64)[subject.label_codes[rows]]


def _round_gradient(X: Float, u: Float, estimator: Any) -> Float:
    """Return what rounding may add to each component of f's gradient as the library computes it, shape (p,).

    Residuals are at most 1 and sums of n terms lose at most n units of roundoff of the sum of their sizes; logits lose
    p units of theirs, and newton-cholesky adds them up over its steps, of which a quarter enters a residual.
    """
    n, p = X.shape
    size = np.abs(X)
    logits = float((size @ np.abs(u).T).max(initial=0.0))
    eps = float(np.finfo(np.float64).eps)
    return np.asarray(eps * ((n + p + 50) * (1 + logits) * size.sum(axis=0) + 4 * np.abs(u).max(axis=0) / estimator.C))


def _rank_by_pull(subject: Subject, X: Float, u: Float) -> Index:
    """Return the people without whom a model can be trained, those that pull most at the parameters first."""
    codes = subject.label_codes
    totals = np.bincount(codes, minlength=len(subject.classes))
    P = np.exp(log_softmax(X @ u.T))
    pull = (1 - P[np.arange(len(P)), codes]) * np.linalg.norm(X - X.mean(axis=0), axis=1)
    if subject.data.groups is None:
        total = np.where(totals[codes] > 1, pull, -1.0)
    else:
        total = np.full(len(subject.data.units), -1.0)
        for k, rows in enumerate(subject.data.units):
            if (np.bincount(codes[rows], minlength=len(totals)) < totals).all():
                total[k] = pull[rows].sum()
    order = np.argsort(-total, kind="stable")
    return order[total[order] >= 0]


def log_softmax(Z: Float) -> Float:
    """Return log-probabilities (m, K) from scores (m, C), of the second of two classes or of all."""
    Z = np.column_stack([np.zeros(len(Z)), Z]) if Z.shape[1] == 1 else Z
    return np.asarray(Z - np.logaddexp.reduce(Z, axis=1)[:, None])
