"""Ridge classifiers and least squares without each record, in closed form, released through ``linear_scores``."""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import ClosedForm, Form, Removal, Scores, spread
from privgate.families.engine import Cost, Declined
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject

RELEASE = "privgate.linear_scores:softmax_scores"
#: share of themselves that a unit's fitted values leave over, 1 - h for one record: below, eight digits are lost
KEPT = 1e-8
#: 1 - h over what rounding does to h, below which fewer than five digits of a change are left
DIGITS = 1e5
#: share of a feature that the others leave unexplained: normal equations lose twice its digits
ALONE = 1e-4


class Ridge(ClosedForm):
    """Leave-one-out for ``RidgeClassifier``, ``Ridge`` and ``LinearRegression`` released by ``softmax_scores``; exact.

    Identity: a linear smoother without the records T is ``f(q) - H(q, T) (I - H(T, T))^-1 (y_T - f(T))``, H its hat
    function (``x_q (X'X + alpha I)^-1 x_t`` of centred records, plus 1 / n for the intercept). O(n d^2), or O(n^3)
    where d > n. Breaks down as an eigenvalue of H(T, T) goes to 1: such units are handed on. Without the declared
    release a ridge classifier has no probabilities, so nothing can be compared.
    """

    name = "ridge"
    hands_on = "their leverage is near 1"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.linear_model import LinearRegression, RidgeClassifier
        from sklearn.linear_model import Ridge as Regression

        estimator = estimator_of(subject)
        if type(estimator) not in (RidgeClassifier, Regression, LinearRegression):
            return f"the recipe is no ridge or least squares of scikit-learn with predict={RELEASE}"
        if why := designs.design_refusal(subject, double=True):
            return why
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

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2 * n * min(n, d) * d / 2e10 + 1e-6 * n, 24 * n * d)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units that leave next to nothing of their own fitted values over are handed on.

        Raises
        ------
        Declined
            The normal equations are singular.
        """
        estimator: Any = estimator_of(subject)
        n, y = subject.data.n, subject.label_codes
        X = designs.matrix(subject).astype(np.float64, copy=False)
        Y = _targets(estimator, y, len(subject.classes))
        center = X[:n].mean(axis=0) if estimator.fit_intercept else 0.0
        mean = Y.mean(axis=0) if estimator.fit_intercept else 0.0
        smoother = smoother_of(X - center, n, Y - mean, float(getattr(estimator, "alpha", 0.0)))
        smoother.intercept = 1.0 / n if estimator.fit_intercept else 0.0
        # least squares drop directions below their tolerance, so none may come near it
        tolerance = float(getattr(estimator, "tol", 0.0)) if type(estimator).__name__ == "LinearRegression" else 0.0
        if not smoother.ratio > 10 * tolerance:
            raise Declined("records nearly lie in fewer dimensions, and scikit-learn drops directions there")
        least = max(KEPT, (2 * tolerance / smoother.ratio) ** 2)
        fitted = smoother.fitted + mean
        residual = Y - fitted[:n]

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            change, sure = change_of(smoother, residual, lost.whole, least)
            size = lost.size[unit]
            t, q = spread(lost.whole.start[unit], size), np.repeat(query, size)
            moved = smoother.hat(q, lost.rows[t])[:, None] * change[t]
            if not lost.records:
                moved = np.add.reduceat(moved, np.cumsum(size) - size, axis=0)
            rest = fitted[query] - moved
            return Scores(_logits(fitted[query], estimator), _logits(rest, estimator), sure[unit])

        together = -(-n // len(subject.data.units))
        return Form(joint, 2 * X.shape[1] * together)


def estimator_of(subject: Subject) -> Any:
    """Return the estimator if all its classes are scikit-learn's and ``softmax_scores`` releases it; else None."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] != RELEASE:
        return None
    return subject.recipe.estimator_of("sklearn.")


def _targets(estimator: Any, y: Index, K: int) -> Float:
    if not hasattr(estimator, "decision_function"):
        return y[:, None].astype(np.float64)
    signs = 2.0 * (y[:, None] == np.arange(K)) - 1.0
    return np.asarray(signs[:, 1:] if K == 2 else signs)


def _logits(scores: Float, estimator: Any) -> Float:
    if not hasattr(estimator, "decision_function"):
        scores = scores - 0.5
    return np.column_stack([np.zeros(len(scores)), scores[:, 0]]) if scores.shape[1] == 1 else scores


@dataclass(eq=False)
class Smoother:
    """Fitted values of the pool, and the hat function of pool rows and training records.

    Parameters
    ----------
    fitted : float64 array of shape (P, k)
    table : float64 array of shape (P, d) or (P, n)
        Rows whose inner products are the hat function, or the hat function itself.
    whole : bool
        Whether it is the hat function itself.
    intercept : float
        What an unpenalized intercept adds.
    """

    fitted: Float
    table: Float
    whole: bool
    intercept: float = 0.0
    ratio: float = 1.0  # of the smallest singular value of the records to the largest
    rounding: float = 0.0  # what a hat value may be wrong by, see ``rounding_of``

    def hat(self, query: Index, record: Index) -> Float:
        """Return H(query, record), one by one."""
        if self.whole:
            return np.asarray(self.table[query, record] + self.intercept)
        return np.asarray(np.einsum("ij,ij->i", self.table[query], self.table[record]) + self.intercept)

    def among(self, records: Index) -> Float:
        """Return H among the records of each unit, shape (U, m, m), for ``records`` (U, m)."""
        if self.whole:
            return np.asarray(self.table[records[:, :, None], records[:, None, :]] + self.intercept)
        rows = self.table[records]
        return np.asarray(rows @ rows.transpose(0, 2, 1) + self.intercept)


def change_of(smoother: Smoother, residual: Float, lost: Removal, least: float) -> tuple[Float, NDArray[np.bool_]]:
    """Return ((I - H(T, T))^-1 (y_T - f(T)), row by row of what is lost, and which units leave enough over)."""
    least = max(least, DIGITS * smoother.rounding)
    out, sure = residual[lost.rows], np.zeros(len(lost.lost), dtype=bool)
    for m in np.unique(lost.lost).tolist():
        some = np.flatnonzero(lost.lost == m)
        place = lost.start[some][:, None] + np.arange(m)
        if m == 1:
            kept = 1 - smoother.hat(lost.rows[place[:, 0]], lost.rows[place[:, 0]])
            out[place[:, 0]] /= np.maximum(kept, np.finfo(np.float64).tiny)[:, None]
            sure[some] = kept > least
            continue
        left = np.eye(m) - smoother.among(lost.rows[place])
        sure[some] = np.linalg.eigvalsh(left)[:, 0] > least
        fine = place[sure[some]]
        out[fine] = np.linalg.solve(left[sure[some]], out[fine])
    return out, sure


def smoother_of(X: Float, n: int, Y: Float, alpha: float) -> Smoother:
    """Return the smoother of centred records and targets, without an intercept."""
    import scipy.linalg as sl

    T, d = X[:n], X.shape[1]
    try:
        if d <= n:
            G = T.T @ T
            G[np.diag_indices(d)] += alpha
            L = np.linalg.cholesky(G)
            if np.diag(L).min() < 1e-7 * np.diag(L).max() or (np.diag(L) < ALONE * np.sqrt(np.diag(G))).any():
                raise Declined("the normal equations are nearly singular")
            Z = sl.solve_triangular(L, X.T, lower=True, check_finite=False).T
            ratio = 1 / float(np.linalg.cond(L))
            return Smoother(Z @ (Z[:n].T @ Y), Z, whole=False, ratio=ratio, rounding=rounding_of(G))
        G = T @ T.T
        G[np.diag_indices(n)] += alpha
        factor = sl.cho_factor(G, check_finite=False)
        if not alpha > 0:
            raise Declined("there are more features than records and no penalty")
        if (np.diag(factor[0]) < ALONE * np.sqrt(np.diag(G))).any():
            raise Declined("the normal equations are nearly singular")
        H = sl.cho_solve(factor, T @ X.T, check_finite=False).T  # (P, n)
    except np.linalg.LinAlgError as exc:
        raise Declined("the normal equations are singular") from exc
    return Smoother(H @ Y, H, whole=True, rounding=rounding_of(G))


def rounding_of(G: Float) -> float:
    """Return what rounding may do to a hat value made by the factor of G: its condition, rows scaled, times epsilon."""
    import scipy.linalg as sl

    sides = np.sqrt(np.diag(G))
    scaled = G / sides[:, None] / sides
    factor, failed = sl.lapack.dpotrf(scaled)
    inverse, wrong = sl.lapack.dpocon(factor, np.abs(scaled).sum(axis=0).max())
    return float(np.finfo(np.float64).eps / inverse) if inverse > 0 and not failed and not wrong else np.inf


ENGINE = Ridge()
