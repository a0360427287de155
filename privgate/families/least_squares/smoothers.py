"""The hat function of each regression that smooths its targets linearly, from scikit-learn's own parameters."""

from dataclasses import dataclass
from typing import Any

import numpy as np

from privgate.families import design
from privgate.families.engine import Declined
from privgate.families.removal import Float
from privgate.families.ridge import KEPT, Smoother, rounding_of, smoother_of
from privgate.subject.subject import Subject

#: distance from 0, in deviations, from which on eight digits are lost to rounding
FAR = 1e7
#: largest size of a feature, and of its inverse
LARGEST = 1e100


@dataclass(frozen=True, eq=False)
class Smoothed:
    """Answers of one regression and what they are made of; targets about their mean, in their deviations.

    Parameters
    ----------
    smoother : Smoother
    fitted : float64 array of shape (P, 1)
        Answers at the pool.
    residual : float64 array of shape (n, 1)
        Targets less answers.
    least : float
        What units must leave over of themselves.
    center : float64 array of shape (d,) or 0.0
        What records are centred by.
    """

    smoother: Smoother
    fitted: Float
    residual: Float
    least: float
    center: Any


def least_refusal(estimator: Any) -> str:
    """Return why a linear regression is no exact minimiser; empty if it is."""
    if getattr(estimator, "positive", False):
        return "coefficients are constrained"
    if getattr(estimator, "solver", "auto") not in ("auto", "cholesky", "svd"):
        return "the solver is iterative, so its result is not the exact minimiser"
    return "" if np.ndim(getattr(estimator, "alpha", 0.0)) == 0 else "alpha is not one number"


def kernel_refusal(estimator: Any) -> str:
    """Return why a kernel regression chooses more than its answers from the data; empty if it does not."""
    if np.ndim(estimator.alpha) != 0:
        return "alpha is not one number"
    if type(estimator).__name__ == "KernelRidge":
        named = isinstance(estimator.kernel, str) and estimator.kernel != "precomputed"
        return "" if named else "the kernel is a function or a table of its own"
    if estimator.optimizer is not None and (estimator.kernel is None or estimator.kernel.n_dims):
        return "its kernel's parameters are chosen by the data, so that they change with each record (optimizer=None)"
    return "targets are scaled by their own deviation" if estimator.normalize_y else ""


def smoothed(subject: Subject, estimator: Any) -> Smoothed:
    """Return the smoother and its answers.

    Raises
    ------
    Declined
        The normal equations are singular.
    """
    n, (mean, deviation) = subject.data.n, subject.scale
    y = ((subject.data.y.astype(np.float64) - mean) / deviation)[:, None]
    X = design.matrix(subject).astype(np.float64, copy=False)
    _in_range(X[:n], mean, deviation)
    if type(estimator).__name__ in ("KernelRidge", "GaussianProcessRegressor"):
        # without an intercept the targets' mean is no answer to anything: it is put back before smoothing
        shift = mean / deviation
        made = _kernel(X, n, y + shift, estimator)
        fitted = made.fitted - shift
        return Smoothed(made, fitted, y - fitted[:n], KEPT, 0.0)
    shift = 0.0 if estimator.fit_intercept else mean / deviation
    center = X[:n].mean(axis=0) if estimator.fit_intercept else np.zeros(X.shape[1])
    made = smoother_of(X - center, n, y + shift, float(getattr(estimator, "alpha", 0.0)))
    made.intercept = 1.0 / n if estimator.fit_intercept else 0.0
    # least squares drop directions below their tolerance, so none may come near it
    tolerance = float(getattr(estimator, "tol", 0.0)) if type(estimator).__name__ == "LinearRegression" else 0.0
    if not made.ratio > 10 * tolerance:
        raise Declined("records nearly lie in fewer dimensions, and scikit-learn drops directions there")
    fitted = made.fitted - shift
    return Smoothed(made, fitted, y - fitted[:n], max(KEPT, (2 * tolerance / made.ratio) ** 2), center)


def _in_range(X: Float, mean: float, deviation: float) -> None:
    """Decline numbers whose rounding, in the library's own arithmetic, is of the size of what one record changes.

    Raises
    ------
    Declined
        Targets or a feature lie far from 0 for their deviation, or squares leave the range of numbers.
    """
    if abs(mean) > FAR * deviation:
        raise Declined("the targets lie so far from 0 for their deviation that rounding decides; subtract their mean")
    size = np.abs(X).max(axis=0)
    if ((size > LARGEST) | ((size > 0) & (size < 1 / LARGEST))).any():
        raise Declined("a feature's squares leave the range of numbers; use another unit")
    spread = X.std(axis=0)
    if ((np.abs(X.mean(axis=0)) > FAR * spread) & (spread > 0)).any():
        raise Declined("a feature lies so far from 0 for its deviation that rounding decides; subtract its mean")


def _kernel(X: Float, n: int, y: Float, estimator: Any) -> Smoother:
    import scipy.linalg as sl

    K, G = _grams(X, n, estimator)
    G[np.diag_indices(n)] += float(estimator.alpha)
    try:
        factor = sl.cho_factor(G, check_finite=False)
    except np.linalg.LinAlgError as exc:
        raise Declined("the kernel matrix is singular") from exc
    if np.diag(factor[0]).min() < 1e-6 * np.diag(factor[0]).max():
        raise Declined("the kernel matrix is nearly singular")
    H = sl.cho_solve(factor, K.T, check_finite=False).T
    return Smoother(H @ y, H, whole=True, rounding=rounding_of(G))


def _grams(X: Float, n: int, estimator: Any) -> tuple[Float, Float]:
    """Return the kernel between pool rows and training records (P, n), and that of training (n, n) with its noise."""
    if type(estimator).__name__ == "KernelRidge":
        from sklearn.metrics.pairwise import pairwise_kernels

        own = {"gamma": estimator.gamma, "degree": estimator.degree, "coef0": estimator.coef0}
        K = np.asarray(pairwise_kernels(X, X[:n], metric=estimator.kernel, filter_params=True, **own))
        return K, K[:n].copy()
    from sklearn.gaussian_process.kernels import RBF, ConstantKernel

    kernel = ConstantKernel(1.0, constant_value_bounds="fixed") * RBF(1.0, length_scale_bounds="fixed")
    made = kernel if estimator.kernel is None else estimator.kernel
    # noise kernels count among training records only, where they are asked about one argument
    return np.asarray(made(X, X[:n]), dtype=np.float64), np.asarray(made(X[:n]), dtype=np.float64)
