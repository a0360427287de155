"""L2-regularised logistic regression as an exact minimisation problem: what its certificates share.

``f(u) = sum_i loss_i(u) + 1/2 sum_j lam_j u_j^2`` is scikit-learn's objective divided by C. Two classes have one
parameter vector, more have one each; the intercept is the last parameter of a vector.
"""

from dataclasses import dataclass, replace
from functools import lru_cache

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.logistic import objective, stopping
from privgate.families.over_all_queries import applies
from privgate.families.over_all_queries.reach import Reach
from privgate.subject.subject import Subject

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: beyond this condition number of the Hessian, inverses say nothing (docs/mathematics.md, section 6.3)
CONDITION = 1e10
#: more parameters than this make the Hessian too large to invert
_PARAMETERS = 3000


@dataclass(frozen=True, eq=False)
class FittedProblem:
    """The objective on the training data and its minimiser.

    Parameters
    ----------
    X : float64 array of shape (n, p)
        Records, a column of ones last where there is an intercept.
    labels : int64 array of shape (n,)
    C : int
        Number of parameter vectors: 1 for two classes, else K.
    lam : float64 array of shape (p,)
        Penalties; 0 for an unpenalised intercept.
    intercept : bool
    u : float64 array of shape (C, p)
        Exact minimiser, up to rounding.
    inverse : float64 array of shape (C, p, C, p)
        Inverse Hessian at ``u``.
    gradient : float64 array of shape (C, p)
        What rounding left of the gradient at ``u``.
    allowed : float64 array of shape (p,)
        Largest components of the gradient where a training by the library's solver ends, on these records or on fewer.
    seen : int
        Refits that were seen to end there.
    """

    X: Float
    labels: Index
    C: int
    lam: Float
    intercept: bool
    u: Float
    inverse: Float
    gradient: Float
    allowed: Float
    seen: int

    @property
    def gauge(self) -> bool:
        """Whether all intercepts may move together, which is held by adding ``(sum of intercepts)^2 / 2``."""
        return self.C > 1 and self.intercept and self.lam[-1] == 0

    @property
    def pairs(self) -> Float:
        """Differences of classes, shape (pairs, C): ``e_k - e_l``, or 1 for two classes."""
        if self.C == 1:
            return np.ones((1, 1))
        k, other = np.triu_indices(self.C, 1)
        return np.asarray(np.eye(self.C)[k] - np.eye(self.C)[other])

    def at(self, u: Float, rows: Index | slice = slice(None), *, curvature: bool = True) -> tuple[Float, Float]:
        """Return (probability minus indicator (m, C), curvature (m, C, C)) of each record's loss at ``u``."""
        return objective.residuals(self.X[rows] @ u.T, self.labels[rows], curvature=curvature)

    def moved(self, u: Float, inverse: Float, gradient: Float) -> "FittedProblem":
        """Return the same problem seen from other parameters."""
        return replace(self, u=u, inverse=inverse, gradient=gradient)

    def softmax(self, u: Float) -> tuple[Float, Float]:
        """Return parameters (..., C, p) as (bias (..., K), weights (..., K, d)) of a softmax."""
        if self.C == 1:
            u = np.concatenate([np.zeros_like(u), u], axis=-2)
        if self.intercept:
            return u[..., -1], u[..., :-1]
        return np.zeros(u.shape[:-1]), u

    def norms(self, directions: Float, reach: Reach) -> Float:
        """Return an upper bound of ``max_x ||a (x) (x, 1)||`` in the inverse Hessian, for each row ``a`` of (m, C).

        References
        ----------
        docs/mathematics.md, section 6.3 (ii): centre plus half widths.
        """
        metric = np.einsum("ma,apbq,mb->mpq", directions, self.inverse, directions, optimize=True)
        d = self.X.shape[1] - int(self.intercept)
        centre, spread = reach.centre(d)
        centre = np.where((self.X[:, :d] != 0).any(axis=0), centre, 0.0)
        if self.intercept:
            centre = np.append(centre, 1.0)
        at_centre = np.sqrt(np.maximum((metric @ centre) @ centre, 0.0))
        axis = np.sqrt(np.maximum(np.einsum("mjj->mj", metric)[:, :d], 0.0))
        # a feature that is 0 in every record has weight 0 in every minimiser: no error there
        used = (self.X[:, :d] != 0).any(axis=0)
        axis = np.where(used, axis, 0.0)
        if spread is not None:
            return np.asarray(at_centre + axis @ spread)
        if reach.length is not None:
            return np.asarray(at_centre + reach.length * axis.max(axis=1))
        largest = np.linalg.eigvalsh(metric[:, :d, :d])[:, -1]
        return np.asarray(at_centre + (reach.norm or 0.0) * np.sqrt(np.maximum(largest, 0.0)))


def derivatives(X: Float, labels: Index, u: Float, lam: Float, *, gauge: bool) -> tuple[Float, Float]:
    """Return (gradient (C, p), Hessian (C p, C p)) of the objective on these records."""
    C, p = u.shape
    residual, curvature = objective.residuals(X @ u.T, labels)
    gradient = residual.T @ X + lam * u
    H = np.zeros((C, p, C, p))
    for a in range(C):
        for b in range(a, C):
            H[a, :, b, :] = (X * curvature[:, a, b, None]).T @ X
            H[b, :, a, :] = H[a, :, b, :].T
        H[a, np.arange(p), a, np.arange(p)] += lam
    if gauge:
        gradient[:, -1] += u[:, -1].sum()
        H[:, -1, :, -1] += 1.0
    return gradient, H.reshape(C * p, C * p)


def minimise(
    X: Float, labels: Index, start: Float, lam: Float, *, gauge: bool, rounds: int = 50
) -> tuple[Float, Float, Float] | None:
    """Return (minimiser (C, p), gradient there, Hessian there) by damped Newton; None without convergence."""
    u, last = start.copy(), np.inf
    for _ in range(rounds):
        gradient, H = derivatives(X, labels, u, lam, gauge=gauge)
        try:
            step = np.linalg.solve(H, gradient.ravel()).reshape(u.shape)
        except np.linalg.LinAlgError:
            return None
        decrement = float((step * gradient).sum())
        if not np.isfinite(decrement):
            return None
        # rounding ends it too: what is left of the gradient enters every bound
        if decrement < 1e-24 * len(X) or (decrement < 1e-14 and decrement > last / 4):
            return u, gradient, H
        last = decrement
        scale = 1.0 if decrement < 0.05 else 1.0 / (1.0 + np.sqrt(decrement))
        u = u - scale * step
    return None


def refusal(subject: Subject) -> str:
    """Return why the recipe is not the exact minimiser of such an objective; empty if it is, up to its tolerance."""
    if problem := applies.refusal(subject, "LogisticRegression"):
        return problem
    estimator = design.estimator_of(subject, "LogisticRegression")
    X = applies.dense(subject.data.X)
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
    return made if isinstance(made, str) else ""


@lru_cache(maxsize=2)
def problem_of(subject: Subject) -> FittedProblem | str:
    """Return the problem and its minimiser, or why it does not apply; ``refusal`` was empty."""
    estimator, X = design.estimator_of(subject, "LogisticRegression"), applies.dense(subject.data.X)
    if X is None:
        raise ValueError("problem_of() without refusal(): the features are not numbers")
    intercept = bool(estimator.fit_intercept)
    lam = np.full(X.shape[1], 1.0 / estimator.C)
    if intercept:
        X = np.column_stack([X, np.ones(len(X))])
        lam = np.append(lam, 0.0)
    K = len(subject.classes)
    C = 1 if K == 2 else K
    if C * X.shape[1] > _PARAMETERS:
        return f"{C * X.shape[1]} parameters make the Hessian too large to invert"
    stops = stopping.stopping(subject)
    if stops.problem:
        return f"{stops.problem}"
    start, gauge = stops.u.copy(), C > 1 and intercept
    if gauge:
        start[:, -1] -= start[:, -1].mean()
    found = minimise(X, subject.label_codes, start, lam, gauge=gauge)
    if found is None:
        return "the exact minimiser could not be computed"
    u, gradient, H = found
    if not np.linalg.cond(H) < CONDITION:
        return "the Hessian is too ill-conditioned (beyond 1e10)"
    p = X.shape[1]
    inverse = np.linalg.inv(H)
    inverse = ((inverse + inverse.T) / 2).reshape(C, p, C, p)
    return FittedProblem(X, subject.label_codes, C, lam, intercept, u, inverse, gradient, stops.allowed, stops.seen)


def agreed(subject: Subject) -> FittedProblem:
    """Return the problem of a subject that ``short_of_minimum`` had nothing against."""
    problem = problem_of(subject)
    if isinstance(problem, str):
        raise TypeError(f"bound() without applies(): {problem}")
    return problem


def assumption(problem: FittedProblem) -> str:
    """Return the hypothesis about the solver, in words."""
    return (
        "every training of the recipe ends by its solver's gradient test, at a gradient of at most "
        f"{problem.allowed.max():.2g} (sum over records); {problem.seen} refits were seen to"
    )
