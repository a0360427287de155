"""Random problems of regularised logistic regression, and minima found another way: in long double, or by refits."""

import warnings
from dataclasses import dataclass

import numpy as np
from sklearn.exceptions import ConvergenceWarning
from sklearn.linear_model import LogisticRegression

from privgate.kernel import Case
from privgate.theorems.logistic_moves import Loss

#: tolerance of the library's solver; its gradient test is about the mean
TOL = 1e-8


class NoMinimumError(Exception):
    """No parameters have such a gradient, or they were not found."""


@dataclass(frozen=True, eq=False)
class Sample:
    """Records (the intercept a last column of ones), labels, weights, penalties, and whose each record is."""

    X: np.ndarray
    y: np.ndarray
    w: np.ndarray
    penalty: np.ndarray
    person: np.ndarray
    K: int
    intercept: bool

    @property
    def people(self):
        return int(self.person.max()) + 1

    @property
    def d(self):
        return self.X.shape[1] - self.intercept

    @property
    def loss(self):
        return Loss(self.X, self.y, self.w, self.penalty, self.K)

    def case(self, certificate, *, allowed=None, asked="own", arrays=None, **settings):
        """Return a case that claims this certificate."""
        allowed = np.zeros(len(self.penalty)) if allowed is None else allowed
        given = {"X": self.X, "label": self.y, "weight": self.w, "penalty": self.penalty, "person": self.person}
        settings = {"classes": self.K, "intercept": self.intercept, **settings}
        return Case("logistic", asked, settings, {**given, "allowed": allowed, **certificate, **(arrays or {})})

    def kept(self, i):
        """Return which records stay without person i; None where a label would go."""
        keep = self.person != i
        return keep if len(np.unique(self.y[keep])) == self.K else None

    def minimum(self, keep=None, start=None, tilt=0.0):
        """Return where the gradient is ``tilt``, (C, p) in long double, by Newton with the Hessian record by record."""
        keep = np.ones(len(self.y), bool) if keep is None else keep
        X, w = self.X[keep].astype(np.longdouble), self.w[keep].astype(np.longdouble)
        hot = (self.y[keep][:, None] == np.arange(self.K)).astype(np.longdouble)
        first = self.K == 2  # the first of two classes has no parameters
        u = np.zeros((self.K - first, X.shape[1]), np.longdouble) if start is None else start.astype(np.longdouble)
        shared = (self.penalty == 0) & (not first)
        last = np.inf
        for _ in range(200):
            value, P = self._value(u, X, w, hot, shared, tilt)
            g = (w[:, None] * (P - hot)[:, first:]).T @ X + self.penalty * u + shared * u.sum(axis=0) - tilt
            H = self._hessian(P[:, first:], X, w, shared)
            scale = 1 / np.sqrt(np.diag(H))
            try:
                step = scale * np.linalg.solve(scale[:, None] * H * scale, scale * g.ravel().astype(float))
            except np.linalg.LinAlgError as exc:
                raise NoMinimumError from exc
            step = step.reshape(u.shape)
            square, t = float((step * g).sum()), 1.0
            while square > 1e-8 and t > 1e-9 and self._value(u - t * step, X, w, hot, shared, tilt)[0] > value:
                t /= 2
            u = u - t * step
            if square < 1e-34 or (square < 1e-20 and square >= last):
                return u
            last = square
        raise NoMinimumError

    def _value(self, u, X, w, hot, shared, tilt):
        Z = scores(u, X)
        top = Z.max(axis=1, keepdims=True)
        E = np.exp(Z - top)
        logs = Z - top - np.log(E.sum(axis=1, keepdims=True))
        rest = (self.penalty * u * u).sum() / 2 + (shared * u.sum(axis=0) ** 2).sum() / 2
        return -(w[:, None] * hot * logs).sum() + rest - (tilt * u).sum(), E / E.sum(axis=1, keepdims=True)

    def _hessian(self, P, X, w, shared):
        C, p = P.shape[1], X.shape[1]
        P, X, w = P.astype(float), X.astype(float), w.astype(float)
        curve = w[:, None, None] * (P[:, :, None] * np.eye(C) - P[:, :, None] * P[:, None, :])
        H = np.einsum("nab,np,nq->apbq", curve, X, X, optimize=True)
        H += np.eye(C)[:, None, :, None] * np.diag(self.penalty)[None, :, None, :]
        return (H + np.diag(shared.astype(float))[None, :, None, :]).reshape(C * p, C * p)

    def library(self):
        """Return scikit-learn's estimator of this problem: all penalties are one."""
        return LogisticRegression(
            C=1 / self.penalty[0], fit_intercept=self.intercept, solver="newton-cholesky", tol=TOL, max_iter=1000
        )

    def allowed(self):
        """Return at how large a gradient the library ends: its test, and the rounding of its own sums."""
        n, p = self.X.shape
        size = (self.w[:, None] * np.abs(self.X)).sum(axis=0)
        return self.w.sum() * TOL + 2.0**-52 * 50 * (n + p) * size

    def refit(self, keep=None):
        """Return scikit-learn's model of some records; None where its solver says that it did not converge."""
        keep = np.ones(len(self.y), bool) if keep is None else keep
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            try:
                return self.library().fit(self.X[keep, : self.d], self.y[keep], sample_weight=self.w[keep])
            except (ConvergenceWarning, RuntimeWarning, UserWarning):
                return None


def scores(u, X):
    Z = X @ u.T
    return np.column_stack([np.zeros(len(Z), Z.dtype), Z]) if Z.shape[1] == 1 else Z


def log_p(u, X):
    """Return log-probabilities (m, K) in the precision of u."""
    Z = scores(u, X.astype(u.dtype))
    top = Z.max(axis=1, keepdims=True)
    return Z - top - np.log(np.exp(Z - top).sum(axis=1, keepdims=True))


def sample(rng, *, K=None, library=False, small=False):
    """Return a problem: K = 2 to 4, groups, weights, columns of any scale, separable or equal records, or none."""
    K = int(rng.integers(2, 5)) if K is None else K
    n, d = int(rng.integers(15, 60 if small else 140)), int(rng.integers(1, 7))
    X = rng.normal(size=(n, d)) * 10.0 ** rng.uniform(-2, 2, size=d)
    if rng.random() < 0.3:
        X[:, rng.integers(d)] = rng.random(n) < rng.choice([0.1, 1 / n])  # a rare flag
    if rng.random() < 0.2:
        X[: n // 2] = X[rng.integers(0, 5, n // 2)]  # equal records
    intercept = bool(rng.random() < 0.7)
    X = np.column_stack([X, np.ones(n)]) if intercept else X
    size = np.abs(X).max(axis=0)
    strength = 10.0 ** rng.uniform(-0.5, 2)  # the largest separate the labels
    Z = (X / np.where(size > 0, size, 1)) @ rng.normal(size=(X.shape[1], K)) * strength
    y = (Z + rng.gumbel(size=(n, K))).argmax(1)
    y[: 2 * K] = np.tile(np.arange(K), 2)
    w = rng.uniform(0.2, 5, n) if rng.random() < 0.4 else np.ones(n)
    one = 10.0 ** rng.uniform(-4, 3) if not library else 10.0 ** rng.uniform(-2, 3)
    penalty = np.full(X.shape[1], one) * (1 if library else 10.0 ** rng.uniform(-1, 1, X.shape[1]))
    if intercept:
        penalty[-1] = 0.0
    person = np.arange(n)
    if rng.random() < 0.4:
        person = rng.permutation(np.concatenate([np.arange(n // 2), rng.integers(0, n // 2, n - n // 2)]))
    return Sample(X, y.astype(np.int64), w, penalty, person.astype(np.int64), K, intercept)


def sharp(rng):
    """Return a problem in which distances are nearly what is proved of them: one direction, or some without a link.
    Each person holds many records in one direction, with labels that nearly cancel: steps are short, leverages are not.
    Or one label is rare, and a probability grows as its score does: remainders are what they can be.
    """
    if rng.random() < 0.4:
        n, few = int(rng.integers(100, 400)), int(rng.integers(3, 12))
        X, y = np.full((n, 1), 10.0 ** rng.uniform(-1, 1)), (np.arange(n) < few).astype(np.int64)
        return Sample(X, y, np.ones(n), np.full(1, 1e-4), np.arange(n), 2, intercept=False)
    d, each, K = int(rng.integers(1, 4)), int(rng.choice([2, 6, 20])), 2
    person = np.repeat(np.arange(2 * d), each)
    X = 10.0 ** rng.uniform(-3, -1) * (np.eye(d)[person % d] + 0.02 * rng.normal(size=(len(person), d)))
    y = np.arange(len(person)) % 2
    y[rng.random(len(y)) < 0.1] ^= 1
    y[:2] = 0, 1
    w = np.full(len(y), 10.0 ** rng.uniform(-1, 1) * 4 / (X**2).sum(axis=0).mean())
    return Sample(X, y.astype(np.int64), w, np.ones(d), person.astype(np.int64), K, intercept=False)
