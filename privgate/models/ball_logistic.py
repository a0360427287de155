"""Logistic regression whose answers one record moves by at most C times the squared radius, whatever the data are."""

from dataclasses import dataclass
from typing import Any, Self

import numpy as np

from privgate.arrays import Float
from privgate.models.classifier import Classifier

#: largest gradient with which training ends, per unit of the radius; far above what float64 makes of it
FLAT = 1e-7
#: C times records, beyond which it might not be
_MOST = 1e6
#: features times length of the weights, per unit of the radius, beyond which sums round by more than ``FLAT``
_MOST_WEIGHT = 1e8
#: scores beyond which probabilities are no longer told apart: cutting moves no two answers further apart
_DEEPEST = 600.0


@dataclass(eq=False, repr=False)
class BallLogistic(Classifier):
    """Two-class logistic regression on records and questions that are pulled into a ball; its intercept is penalised.

    Minimises ``||u||^2 / 2 + C sum of losses`` over ``u = (w, b)``; a record longer than allowed is shortened, so that
    ``||(x, 1)|| <= radius`` for every record and question. Without records, and with records of one label, it answers
    as the same formula says.

    Parameters
    ----------
    C : float
        As scikit-learn's; the bound for every data set is ``C radius^2`` for one record.
    radius : float
        Above 1; declared, not read off the data. Scale features by declared ranges first (``FixedScaler``).
    classes : sequence of two labels
        Declared before the data are seen.
    towards : sequence of numbers, optional
        Weights and, last, intercept of a public head: ``||u - towards||^2 / 2`` is penalised in the place of
        ``||u||^2 / 2``, so that little data leaves the public model as it is. The bound is the same.

    Examples
    --------
    >>> model = BallLogistic(C=0.1, radius=2.0, classes=[0, 1]).fit([[-1.0], [1.0]], [0, 1])
    >>> model.predict_proba([[9.0]]).round(3).tolist(), model.predict_proba([[1.0]]).round(3).tolist()
    ([[0.459, 0.541]], [[0.476, 0.524]])
    """

    __module__ = "privgate.models"  # the name that recipes and stored models keep

    C: float = 0.01
    radius: float = 2.0
    classes: Any = None
    towards: Any = None

    @property
    def bound(self) -> float:
        """What one record changes any label's log-probability by at most, nats, on every data set."""
        # the solver ends with a gradient of at most FLAT radius, on both sides; as much again is for rounded scores
        return float((self.C + 4 * FLAT) * self.radius**2) * (1 + 1e-9) + 1e-9

    def fit(self, X: Any, y: Any) -> Self:
        """Minimise by Newton's method until the gradient is next to nothing."""
        if self.classes is None or len(np.unique(np.asarray(self.classes))) != 2:
            raise ValueError("BallLogistic needs classes=[a, b], both labels there can be")
        if not (np.isfinite(self.C) and self.C > 0 and np.isfinite(self.radius) and self.radius > 1):
            raise ValueError(f"C must be above 0 and radius above 1, not {self.C!r} and {self.radius!r}")
        sign: Float = np.asarray(2.0 * self._labels(y) - 1.0, dtype=np.float64)
        Z = self._inside(X)
        self.start_ = np.zeros(Z.shape[1]) if self.towards is None else np.array(self.towards, dtype=np.float64)
        if self.start_.shape != (Z.shape[1],) or not np.isfinite(self.start_).all():
            raise ValueError(f"towards must hold {Z.shape[1]} finite numbers: a weight a feature, then the intercept")
        self.u_ = self.start_.copy()
        # a score rounds by at most eps features |u| radius, which FLAT radius^2 has room for
        if Z.shape[1] * (np.linalg.norm(self.start_) + self.C * len(Z) * self.radius) > _MOST_WEIGHT * self.radius:
            raise ValueError("weights may become so large that scores are rounded by more than the bound has room for")
        if self.C * len(Z) > _MOST:
            raise ValueError(f"C times the number of records is above {_MOST:g}: lower C, or no bound can be kept")
        gradient = self._gradient(Z, sign, self.u_)[0]
        for _ in range(200):
            if np.linalg.norm(gradient) <= FLAT * self.radius:
                return self
            away = self._gradient(Z, sign, self.u_)[1]
            curvature = np.eye(Z.shape[1]) + self.C * (Z * (away * (1 - away))[:, None]).T @ Z
            step, share, length = np.linalg.solve(curvature, gradient), 1.0, np.linalg.norm(gradient)
            while share > 1e-9:  # down along Newton's direction the gradient becomes shorter
                gradient = self._gradient(Z, sign, self.u_ - share * step)[0]
                if np.linalg.norm(gradient) <= (1 - 1e-4 * share) * length:
                    break
                share /= 2
            self.u_ = self.u_ - share * step
        raise ArithmeticError("the minimum was not reached; no bound holds for what was, so nothing is released")

    def _gradient(self, Z: Float, sign: Float, u: Float) -> tuple[Float, Float]:
        away = 1 / (1 + np.exp(np.clip(sign * (Z @ u), -_DEEPEST, _DEEPEST)))
        return np.asarray(u - self.start_ - self.C * Z.T @ (sign * away)), np.asarray(away)

    def _inside(self, X: Any) -> Float:
        """Return (x, 1) of every record, its first part shortened to where the radius ends."""
        X = np.asarray(X, dtype=np.float64)
        if X.ndim != 2 or not np.isfinite(X).all():
            raise ValueError("X must be a table of finite numbers: what is missing or infinite has no place in a ball")
        longest = np.sqrt(self.radius**2 - 1) * (1 - 1e-12)
        with np.errstate(over="ignore"):  # what is longer than any number is pulled into the middle
            size = np.linalg.norm(X, axis=1, keepdims=True)
        short = X * np.divide(longest, size, out=np.ones_like(size), where=size > longest)
        return np.column_stack([short, np.ones(len(X))])

    def predict_proba(self, X: Any) -> Float:
        """Return probabilities, each of its own logistic function: none is 1 minus another."""
        z = np.clip(self._inside(X) @ self.u_, -_DEEPEST, _DEEPEST)
        return np.column_stack([1 / (1 + np.exp(z)), 1 / (1 + np.exp(-z))])
