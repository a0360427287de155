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
from privgate.engines.logistic_moves import Loss, Minimum
from privgate.families import designs
from privgate.families.certificate import people_of
from privgate.subject.containers import take
from privgate.subject.subject import Subject

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

    The recipe is an L2-regularised softmax loss on a finite table of numbers; the caller has seen to it. Refits are run
    and looked at, all of them where that is cheap, those of the riskiest people where some are; lbfgs is not believed
    unseen.
    """
    estimator = subject.recipe.library_estimator
    X = _table(subject, estimator)
    if problem := solver_refusal(estimator):
        return Stopping(problem, np.zeros((0, X.shape[1])), np.zeros(X.shape[1]))
    everyone = np.arange(len(X))
    u, steps, warned = _trained(subject, everyone)
    allowed, tests, rounding = _allowed(subject, X, u)
    if problem := warned or _beyond(subject, X, u, everyone, allowed + rounding):
        return Stopping(f"the solver did not end by its gradient ({problem}); {ADVICE}", u, allowed)
    if not (rounding <= _ROUNDED * tests).all():
        problem = f"tol={estimator.tol:g} is below what float64 resolves on these data; scale the features"
        return Stopping(problem, u, allowed)
    units = _riskiest(subject, X, u)
    many = int(_WORK / (steps * _step(estimator.solver, X, u)))
    few = units[: many if many >= _FEW else 0]
    if len(few) < len(units):
        if estimator.solver not in PROMISING:
            problem = f"a refit by {estimator.solver} may stop before its gradient is small; {ADVICE}"
            return Stopping(problem, u, allowed)
        if steps * _SHARE > estimator.max_iter:
            return Stopping(f"refits may need more than max_iter={estimator.max_iter} steps; raise it", u, allowed)
    for k in few:
        rows = np.setdiff1d(everyone, subject.data.units[int(k)])
        there, _, warned = _trained(subject, rows)
        if problem := warned or _beyond(subject, X, there, rows, allowed + rounding):
            return Stopping(f"a refit did not end by its gradient ({problem}); {ADVICE}", u, allowed)
    return Stopping("", u, allowed, len(few))


def _allowed(subject: Subject, X: Float, u: Float) -> tuple[Float, float, Float]:
    """Return the largest gradient where a training ends (p,), the solver's test's part of it, and rounding's (p,)."""
    estimator = subject.recipe.library_estimator
    weights = _weights(subject, np.arange(len(X)), estimator)
    tests = float(weights.sum()) * float(estimator.tol)
    rounding = _rounding(X, u, estimator) * max(1.0, float(weights.max()))
    return np.where((X != 0).any(axis=0), tests + rounding, 0.0), tests, rounding


def refusal(subject: Subject) -> str:
    """Return why the recipe is no L2-regularised logistic regression of this form; empty if it is."""
    from sklearn.linear_model import LogisticRegression

    estimator = subject.recipe.library_estimator
    if type(estimator) is not LogisticRegression:
        return "the recipe is not scikit-learn's LogisticRegression"
    if why := designs.design_refusal(subject):
        return why
    if why := unfit(estimator):
        return why
    if np.asarray(subject.data.X).dtype in (np.float32, np.float16):
        return "records are of single precision, in which scikit-learn then computes; pass float64"
    return "there is one class only" if len(subject.classes) < 2 else solver_refusal(estimator)


def unfit(estimator: Any, *, balanced: bool = False) -> str:
    """Return which parameter makes training another problem; empty if none does."""
    if estimator.penalty not in ("deprecated", "l2") or (estimator.l1_ratio or 0) != 0:
        return "the penalty is not L2"
    if not np.isfinite(estimator.C):
        return "there is no penalty, so no minimiser need exist"
    weight = estimator.class_weight
    if weight is not None and not isinstance(weight, dict) and not (balanced and str(weight) == "balanced"):
        return "balanced class weights depend on who is there"
    if getattr(estimator, "multi_class", "deprecated") not in ("deprecated", "auto", "multinomial"):
        return "one-versus-rest classifiers are no softmax model"
    return ""


def solver_refusal(estimator: Any) -> str:
    """Return why no training of this solver promises a small gradient; empty if it may."""
    if estimator.solver in (*PROMISING, "lbfgs"):
        return ""
    return f"{estimator.solver} does not stop by its gradient, so where a refit stops is unknown; {ADVICE}"


@dataclass(frozen=True, eq=False)
class Trained:
    """What is minimised, on what, and where trainings end.

    Parameters
    ----------
    subject : Subject
    loss : Loss
        Of all training records, the intercept's column of ones last.
    intercept : bool
    stops : Stopping
    """

    subject: Subject
    loss: Loss
    intercept: bool
    stops: Stopping

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
        return posed(self.subject, self.loss, asked, person, {"allowed": self.stops.allowed, **arrays}, **settings)


@lru_cache(maxsize=4)
def trained(subject: Subject) -> Trained:
    """Return the problem of a subject that is none of what ``unfit`` refuses, on a finite table."""
    return Trained(subject, loss_of(subject), bool(subject.recipe.library_estimator.fit_intercept), stopping(subject))


def loss_of(subject: Subject) -> Loss:
    """Return what is minimised on all records."""
    estimator = subject.recipe.library_estimator
    return loss_on(subject, _table(subject, estimator), np.arange(subject.data.n), estimator)


def posed(
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


def least(subject: Subject, at: Float) -> Float:
    """Return what a gradient may at least be where a training ends, (p,), near parameters that are nearly minimal.

    Infinite where they are none of these: the solver's test, and rounding at parameters within a thousandth of its own.
    """
    estimator = subject.recipe.library_estimator
    X, vectors = _table(subject, estimator), 1 if len(subject.classes) == 2 else len(subject.classes)
    if at.shape != (vectors, X.shape[1]):
        return np.full(X.shape[1], np.inf)
    return (1 - 1e-3) * _allowed(subject, X, at)[0]


def asked_first(subject: Subject, units: Index) -> Index:
    """Return whose each record is: those asked about in their order; everybody else is one person."""
    return np.minimum(people_of(subject, units), len(units))


def loss_on(subject: Subject, X: Float, rows: Index, estimator: Any) -> Loss:
    """Return what an estimator minimises on some rows of the design X."""
    penalty = np.full(X.shape[1], 1.0 / estimator.C)
    if estimator.fit_intercept:
        penalty[-1] = 0.0
    return Loss(X[rows], subject.label_codes[rows], _weights(subject, rows, estimator), penalty, len(subject.classes))


def _step(solver: str, X: Float, u: Float) -> float:
    """Return what one step of a solver costs, in multiplications; for small data it is the time of Python."""
    size = float(X.size * len(u))
    if solver == "lbfgs":
        return max(4 * size, 2e4)
    return max(size * (u.size if solver == "newton-cholesky" else 50), 5e4)


def _table(subject: Subject, estimator: Any) -> Float:
    X = subject.data.X
    X = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    return np.column_stack([X, np.ones(len(X))]) if estimator.fit_intercept else X


def _trained(subject: Subject, rows: Index) -> tuple[Float, int, str]:
    """Return (parameters (C, p), steps, what it warned of) of the recipe trained on some records."""
    import scipy.linalg as sl
    from sklearn.exceptions import ConvergenceWarning

    estimator = subject.recipe.library_estimator
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        X = subject.data.X
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
    size = np.abs(loss_on(subject, X, rows, subject.recipe.library_estimator).gradient(u))
    return "" if (size <= allowed).all() else f"{size.max():.2g} is left of it, {allowed.max():.2g} is allowed"


def _weights(subject: Subject, rows: Index, estimator: Any) -> Float:
    """Return the factors of the losses of some records, shape (m,)."""
    from sklearn.utils.class_weight import compute_class_weight

    if estimator.class_weight is None:
        return np.ones(len(rows))
    named = compute_class_weight(estimator.class_weight, classes=subject.classes, y=subject.data.y[rows])
    return np.asarray(named, dtype=np.float64)[subject.label_codes[rows]]


def _rounding(X: Float, u: Float, estimator: Any) -> Float:
    """Return what rounding may add to each component of f's gradient as the library computes it, shape (p,).

    Residuals are at most 1 and sums of n terms lose at most n units of roundoff of the sum of their sizes; logits lose
    p units of theirs, and newton-cholesky adds them up over its steps, of which a quarter enters a residual.
    """
    n, p = X.shape
    size = np.abs(X)
    logits = float((size @ np.abs(u).T).max(initial=0.0))
    eps = float(np.finfo(np.float64).eps)
    return np.asarray(eps * ((n + p + 50) * (1 + logits) * size.sum(axis=0) + 4 * np.abs(u).max(axis=0) / estimator.C))


def _riskiest(subject: Subject, X: Float, u: Float) -> Index:
    """Return the units without which a model can be trained, those that pull most at the parameters first."""
    codes = subject.label_codes
    totals = np.bincount(codes, minlength=len(subject.classes))
    Z = X @ u.T
    if len(u) == 1:
        Z = np.column_stack([np.zeros(len(Z)), Z[:, 0]])
    P = np.exp(Z - Z.max(axis=1, keepdims=True))
    pull = (1 - P[np.arange(len(P)), codes] / P.sum(axis=1)) * np.linalg.norm(X - X.mean(axis=0), axis=1)
    if subject.data.groups is None:
        kept = totals[codes] > 1
        total = np.where(kept, pull, -1.0)
    else:
        total = np.full(len(subject.data.units), -1.0)
        for k, rows in enumerate(subject.data.units):
            if (np.bincount(codes[rows], minlength=len(totals)) < totals).all():
                total[k] = pull[rows].sum()
    order = np.argsort(-total, kind="stable")
    return order[total[order] >= 0]
