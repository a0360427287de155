"""The objective of L2-regularised logistic regression, minimised to machine precision by damped Newton.

``f(u) = sum_i l(y_i, X_i u) + 1/2 sum_j lam_j u_j^2``: scikit-learn's objective divided by C, intercept included as a
column of ones whose penalty is 0.
"""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.retrained import Index
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: where Newton stops, the decrement is below 1e-22, that is the distance below 1e-11 in the Hessian's norm
STOPPED = 2e-11


#: solvers that end by their gradient or warn
PROMISING = ("newton-cholesky", "newton-cg")
ADVICE = "set solver='newton-cholesky', tol=1e-8 in the recipe"


@dataclass(frozen=True, eq=False)
class Objective:
    """What scikit-learn's ``LogisticRegression`` minimises on this pool.

    Parameters
    ----------
    X : float64 array of shape (P, p)
        Pool with the intercept's column last, if there is one; training records first.
    y : int64 array of shape (n,)
        Class codes 0 .. K-1.
    K : int
        Number of classes; two classes have one parameter vector, more have K.
    lam : float64 array of shape (p,)
        Penalty of each parameter.
    intercept : bool
        Whether the last column is the intercept's.
    weights : float64 array of shape (n,), optional
        Factors of the losses, by class; 1 if absent. Two classes only.
    """

    X: Float
    y: Index
    K: int
    lam: Float
    intercept: bool
    weights: Float | None = None

    @property
    def n(self) -> int:
        """Number of training records."""
        return len(self.y)

    def parameters(self, u: Float) -> tuple[Float, Float]:
        """Return (coef (..., K, d), intercept (..., K)) of parameters (..., p) for two classes or (..., K, p)."""
        if self.K == 2:
            u = np.stack([np.zeros_like(u), u], axis=-2)
        return (u[..., :-1], u[..., -1]) if self.intercept else (u, np.zeros(u.shape[:-1]))


def refusal(subject: Subject, *, weighted: bool = False) -> str:
    """Return why the recipe is no L2-regularised logistic regression of this form; empty if it is.

    ``weighted`` says that whoever asks knows what class weights do.
    """
    from sklearn.linear_model import LogisticRegression

    estimator = subject.recipe.library_estimator
    if type(estimator) is not LogisticRegression:
        return "the recipe is not scikit-learn's LogisticRegression"
    if why := design.refusal(subject):
        return why
    if why := unfit(estimator, weighted=weighted):
        return why
    if np.asarray(subject.data.X).dtype in (np.float32, np.float16):
        return "records are of single precision, in which scikit-learn then computes; pass float64"
    return "there is one class only" if len(subject.classes) < 2 else solver_refusal(estimator)


def unfit(estimator: Any, *, weighted: bool = False) -> str:
    """Return which parameter makes training another problem than this minimisation; empty if none does."""
    if estimator.penalty not in ("deprecated", "l2") or (estimator.l1_ratio or 0) != 0:
        return "the penalty is not L2"
    if not np.isfinite(estimator.C):
        return "there is no penalty, so no minimiser need exist"
    if estimator.class_weight is not None and not weighted:
        return "class weights are functions of the data or of the class"
    if getattr(estimator, "multi_class", "deprecated") not in ("deprecated", "auto", "multinomial"):
        return "one-versus-rest classifiers are no softmax model"
    return ""


def solver_refusal(estimator: Any) -> str:
    """Return why no training of this solver promises a small gradient; empty if it may."""
    if estimator.solver in (*PROMISING, "lbfgs"):
        return ""
    return f"{estimator.solver} does not stop by its gradient, so where a refit stops is unknown; {ADVICE}"


def residuals(z: Float, labels: Index, *, curvature: bool = True) -> tuple[Float, Float]:
    """Return (probability minus indicator (m, C), curvature (m, C, C)) of losses from logits (m, C)."""
    if z.shape[1] == 1:
        p = 1.0 / (1.0 + np.exp(-np.clip(z, -700, 700)))
        return p - labels[:, None], (p * (1 - p))[:, :, None]
    p = np.exp(z - z.max(axis=1, keepdims=True))
    p /= p.sum(axis=1, keepdims=True)
    C = z.shape[1]
    curve = -p[:, :, None] * p[:, None, :] if curvature else np.zeros((0, C, C))
    if curvature:
        curve[:, np.arange(C), np.arange(C)] += p
    p[np.arange(len(p)), labels] -= 1.0
    return p, curve


def class_weights(estimator: Any, classes: NDArray[Any], labels: NDArray[Any]) -> Float:
    """Return the factor of each class's losses, shape (K,), for these training labels."""
    from sklearn.utils.class_weight import compute_class_weight

    if estimator.class_weight is None:
        return np.ones(len(classes))
    return np.asarray(compute_class_weight(estimator.class_weight, classes=classes, y=labels), dtype=np.float64)


def objective(subject: Subject) -> Objective:
    """Return the objective; ``refusal`` must have been empty."""
    estimator: Any = subject.recipe.library_estimator
    X = design.matrix(subject).astype(np.float64, copy=False)
    lam = np.full(X.shape[1], 1.0 / estimator.C)
    if estimator.fit_intercept:
        X = np.column_stack([X, np.ones(len(X))])
        lam = np.append(lam, 0.0)
    weights = None
    if estimator.class_weight is not None:
        weights = class_weights(estimator, subject.classes, subject.data.y)[subject.label_codes]
    return Objective(X, subject.label_codes, len(subject.classes), lam, bool(estimator.fit_intercept), weights)


def gradient(problem: Objective, u: Float) -> Float:
    """Return the gradient of the objective at parameters (C, p) on all training records."""
    X = problem.X[: problem.n]
    z = (X @ u[0])[:, None] if problem.K == 2 else X @ u.T
    residual, _ = residuals(z, problem.y, curvature=False)
    if problem.weights is not None:
        residual = residual * problem.weights[:, None]
    return np.asarray(residual.T @ X + problem.lam * u)


def sigmoid(z: NDArray[Any]) -> NDArray[Any]:
    """Return 1 / (1 + exp(-z)) in the precision of ``z``; exp may overflow to infinity, whose inverse is 0."""
    with np.errstate(over="ignore"):
        return 1.0 / (1.0 + np.exp(-z))  # type: ignore[no-any-return]  # array in, array out


def log_sigmoid(z: Float) -> Float:
    """Return ln sigmoid(z) without overflow."""
    return np.asarray(-np.logaddexp(0.0, -z))


def factor(H: Float) -> Float | None:
    """Return the lower Cholesky factor; None where H is not safely positive definite (condition beyond 1e10)."""
    try:
        L: Float = np.asarray(np.linalg.cholesky(H), dtype=np.float64)
    except np.linalg.LinAlgError:
        return None
    diagonal = np.diag(L)
    return L if diagonal.min() > 1e-5 * diagonal.max() else None


def settled(
    X: Float, P: Float, lam: Float, u: Float, *, H: Float, inverse: Float, weights: Float | None = None
) -> float:
    """Return how far Newton's last point is from the minimiser, in the norm of the Hessian there, rounding included.

    It stops where the decrement is below 1e-22. A gradient also has the rounding of its sums, and of the logits that it
    is computed from; what one of its components is off by counts in that norm by variance inflation.

    Parameters
    ----------
    X : float64 array of shape (m, p)
        Records trained on.
    P : float64 array of shape (m, C)
        Their probabilities: of the second of two classes, or of all.
    u : float64 array of shape (C, p)
    H, inverse : float64 arrays of shape (C p,)
        Diagonals of the Hessian and of its inverse.
    weights : float64 array of shape (m,), optional
        Factors of the losses.
    """
    eps, size = float(np.finfo(np.float64).eps), np.abs(X)
    each = np.ones((len(X), 1)) if weights is None else weights[:, None]
    sums = 4 * eps * ((P * each).T @ size + lam * np.abs(u)).ravel()
    logits = X.shape[1] * eps * (size @ np.abs(u).T)
    return float(
        STOPPED
        + np.linalg.norm(sums / np.sqrt(H)) * np.sqrt(H @ inverse)
        + np.linalg.norm(np.sqrt(P * (1 - P) * each) * logits)
    )


def newton(
    start: Float, value: Callable[[Float], float], slope: Callable[[Float], tuple[Float, Float]]
) -> tuple[Float, Float] | None:
    """Return (minimiser, Cholesky factor of the Hessian there) by damped Newton; None without convergence.

    Parameters
    ----------
    value, slope : callable
        The objective, and its gradient and Hessian, at parameters of the shape of ``start``.
    """
    import scipy.linalg as sl

    u, f = start, value(start)
    for _ in range(60):
        g, H = slope(u)
        L = factor(H)
        if L is None:
            return None
        step = sl.cho_solve((L, True), g.ravel(), check_finite=False).reshape(u.shape)
        decrement = float((g * step).sum())
        if decrement < 1e-22:
            return u - step, L
        t = 1.0
        while t > 1e-10:
            new = value(u - t * step)
            # below 1e-12 of f the comparison is rounding: trust the full step
            if new <= f - 1e-4 * t * decrement or decrement < 1e-12 * max(1.0, abs(f)):
                break
            t /= 2
        u, f = u - t * step, new
    return None


def minimise_binary(
    X: Float, y: Float, lam: Float, start: Float, weights: Float | None = None
) -> tuple[Float, Float] | None:
    """Return (minimiser, Cholesky factor of the Hessian there) for two classes; None without convergence."""
    each = np.ones(len(X)) if weights is None else weights

    def value(w: Float) -> float:
        z = X @ w
        return float(each @ np.logaddexp(0.0, z) - (each * y) @ z + 0.5 * (lam * w * w).sum())

    def slope(w: Float) -> tuple[Float, Float]:
        p = sigmoid(X @ w)
        H = (X * (each * p * (1 - p))[:, None]).T @ X
        H[np.diag_indices(len(w))] += lam
        return X.T @ (each * (p - y)) + lam * w, H

    return newton(start, value, slope)
