"""Ridge classifiers and least squares without each record, in closed form, released through ``linear_scores``."""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import estimators
from privgate.engines import design, single_records
from privgate.engines.base import SEVERAL, Cost, Declined
from privgate.engines.counts import Float
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows
from privgate.subject import Subject

RELEASE = "privgate.linear_scores:softmax_scores"
#: share of itself that a record's fitted value leaves over, 1 - h: below, eight digits are lost
KEPT = 1e-8


class Ridge:
    """Leave-one-out for ``RidgeClassifier``, ``Ridge`` and ``LinearRegression`` released by ``softmax_scores``; exact.

    Identity: a linear smoother without record t is ``f(q) - H(q, t) (y_t - f(t)) / (1 - H(t, t))``, H its hat function
    (``x_q (X'X + alpha I)^-1 x_t`` of centred records, plus 1 / n for the intercept). O(n d^2), or O(n^3) where d > n.
    Breaks down as H(t, t) goes to 1: such records are handed on. Without the declared release a ridge classifier has no
    probabilities, so nothing can be compared.
    """

    name = "ridge"
    version = 1
    hands_on = (SEVERAL, "their leverage is near 1")

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.linear_model import LinearRegression, RidgeClassifier
        from sklearn.linear_model import Ridge as Regression

        estimator = estimator_of(subject)
        if type(estimator) not in (RidgeClassifier, Regression, LinearRegression):
            return f"the recipe is no ridge or least squares of scikit-learn with predict={RELEASE}"
        if why := design.refusal(subject):
            return why
        if design.matrix(subject).dtype in (np.float32, np.float16):
            return "records are of single precision, in which scikit-learn then computes; pass float64"
        if estimator.positive or getattr(estimator, "class_weight", None) is not None:
            return "coefficients are constrained or classes weighted"
        if getattr(estimator, "solver", "auto") not in ("auto", "cholesky", "svd"):
            return "the solver is iterative, so its result is not the exact minimiser"
        if np.ndim(getattr(estimator, "alpha", 0.0)) != 0:
            return "alpha is not one number"
        if len(subject.classes) < 2:
            return "there is one class only"
        if type(estimator) is not RidgeClassifier and subject.classes.tolist() not in ([0, 1], [0.0, 1.0]):
            return "a regression is released as a probability for labels 0 and 1 only"
        return ""

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> Cost:
        """Return the cost of one factorisation."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2 * n * min(n, d) * d / 2e10 + 1e-6 * n, 24 * n * d)

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
    ) -> tuple[Retrained, Index]:
        """Return every record that leaves something of its own fitted value over; the others are handed on.

        Raises
        ------
        Declined
            The normal equations are singular.
        """
        estimator: Any = estimator_of(subject)
        n, y = subject.data.n, subject.label_codes
        X = design.matrix(subject).astype(np.float64, copy=False)
        Y = _targets(estimator, y, len(subject.classes))
        center = X[:n].mean(axis=0) if estimator.fit_intercept else 0.0
        mean = Y.mean(axis=0) if estimator.fit_intercept else 0.0
        own = 1.0 / n if estimator.fit_intercept else 0.0
        fitted, hat = _smoother(X - center, n, Y - mean, float(getattr(estimator, "alpha", 0.0)))
        fitted = fitted + mean
        everyone = np.arange(n)
        leverage = hat(everyone, everyone) + own
        residual = (Y - fitted[:n]) / np.maximum(1 - leverage, np.finfo(np.float64).tiny)[:, None]

        def joint(record: Index, query: Index) -> tuple[Float, Float, NDArray[np.bool_]]:
            rest = fitted[query] - (hat(query, record) + own)[:, None] * residual[record]
            return _logits(fitted[query], estimator), _logits(rest, estimator), np.asarray(1 - leverage[record] > KEPT)

        return single_records.leave_out(self.name, joint, subject=subject, units=units, seeds=seeds, queries=queries)

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return None: refits answer."""
        return None


def estimator_of(subject: Subject) -> Any:
    """Return the estimator if all its classes are scikit-learn's and ``softmax_scores`` releases it; else None."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] != RELEASE:
        return None
    if not all(r.split(".")[0] == "sklearn" for r in estimators.references(payload["estimator"])):
        return None
    return subject.recipe.estimator


def _targets(estimator: Any, y: Index, K: int) -> Float:
    if not hasattr(estimator, "decision_function"):
        return y[:, None].astype(np.float64)
    signs = 2.0 * (y[:, None] == np.arange(K)) - 1.0
    return np.asarray(signs[:, 1:] if K == 2 else signs)


def _logits(scores: Float, estimator: Any) -> Float:
    if not hasattr(estimator, "decision_function"):
        scores = scores - 0.5
    return np.column_stack([np.zeros(len(scores)), scores[:, 0]]) if scores.shape[1] == 1 else scores


def _smoother(X: Float, n: int, Y: Float, alpha: float) -> tuple[Float, Callable[[Index, Index], Float]]:
    """Return (fitted values of the pool (P, k), hat function of pool rows and training records, without intercept)."""
    import scipy.linalg as sl

    T, d = X[:n], X.shape[1]
    try:
        if d <= n:
            G = T.T @ T
            G[np.diag_indices(d)] += alpha
            L = np.linalg.cholesky(G)
            if np.diag(L).min() < 1e-7 * np.diag(L).max():
                raise Declined("the normal equations are nearly singular")
            Z = sl.solve_triangular(L, X.T, lower=True, check_finite=False).T
            return Z @ (Z[:n].T @ Y), lambda q, t: np.asarray(np.einsum("ij,ij->i", Z[q], Z[t]))
        G = T @ T.T
        G[np.diag_indices(n)] += alpha
        factor = sl.cho_factor(G, check_finite=False)
        if not alpha > 0:
            raise Declined("there are more features than records and no penalty")
        H = sl.cho_solve(factor, T @ X.T, check_finite=False).T  # (P, n)
    except np.linalg.LinAlgError as exc:
        raise Declined("the normal equations are singular") from exc
    return H @ Y, lambda q, t: np.asarray(H[q, t])


ENGINE = Ridge()
