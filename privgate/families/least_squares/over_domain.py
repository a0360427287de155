"""The largest change of a linear regression's answer over a declared domain: the change is linear in the question.

Without the records T the coefficients change by ``(X'X + alpha I)^-1 X_T' c``, c = (I - H(T, T))^-1 (y_T - f(T)), and a
free intercept by ``sum(c) / n - mean(X) . dw``. So the change at a question x is ``a + w . x``, and over a box its
largest size is ``|a + w . centre| + |w| . half width``, attained at a corner.
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families import design
from privgate.families.engine import Declined
from privgate.families.least_squares.engine import ENGINE
from privgate.families.least_squares.smoothers import smoothed
from privgate.families.over_all_queries.reach import Reach
from privgate.families.removal import Float, removal
from privgate.families.retrained import Index
from privgate.families.ridge import change_of
from privgate.subject.subject import Subject

#: relative; what rounding of the factorisation, the refit and the answer may add (section 8.4 of the mathematics)
MARGIN = 1e-3


@dataclass(frozen=True, eq=False)
class OverDomain:
    """The change of any answer when each unit is left out, in deviations of the targets.

    Parameters
    ----------
    upper : float64 array of shape (U,)
        Over the whole domain; infinite where the closed form does not answer.
    where : float64 array of shape (U, d)
        A question of the domain at which it is largest, or nearly where several constraints are stated.
    seen : float64 array of shape (U,)
        The change there; 0 where that question is not of the domain.
    why : str
        Why nothing is bounded; empty if something is.
    """

    upper: Float
    where: Float
    why: str = ""
    seen: Float = field(default_factory=lambda: np.zeros(0))


def refusal(subject: Subject) -> str:
    """Return why no theorem bounds the change over the declared domain, known without training; empty if one may."""
    if why := ENGINE.refusal(subject):
        return why
    if type(subject.recipe.library_estimator).__name__ not in ("Ridge", "LinearRegression"):
        return "its answers are not linear in the features"
    if subject.data.domain is None:
        return "no domain is declared: pass TrainingData(..., domain=...) with what the endpoint accepts"
    reach = Reach.of(subject.data.domain, int(subject.data.X.shape[1]))
    return reach if isinstance(reach, str) else ""


def bound(subject: Subject, units: Index) -> OverDomain:
    """Return the largest change over the declared domain; infinite, with the reason, where no theorem speaks."""
    nothing = np.full(len(units), np.inf)
    why, domain = refusal(subject), subject.data.domain
    if why or domain is None:
        return OverDomain(nothing, np.zeros((len(units), 0)), why)
    try:
        weights, offset, sure = changes(subject, units)
    except Declined as exc:
        return OverDomain(nothing, np.zeros((len(units), 0)), str(exc))
    reach = Reach.of(domain, weights.shape[1])
    if isinstance(reach, str):  # refused above
        return OverDomain(nothing, np.zeros((len(units), 0)), reach)
    up, down = offset + reach.maximum(weights), -offset + reach.maximum(-weights)
    where = np.where((up >= down)[:, None], reach.best(weights), reach.best(-weights))
    there = np.abs(offset + (weights * where).sum(axis=1))
    seen = np.where(sure & reach.inside(where), np.minimum(there, np.maximum(up, down)), 0.0)
    return OverDomain(np.where(sure, (1 + MARGIN) * np.maximum(up, down), np.inf), where, seen=seen)


def changes(subject: Subject, units: Index) -> tuple[Float, Float, NDArray[np.bool_]]:
    """Return (weights (U, d), offset (U,), which units are sure) of the change of the answer, linear in the question.

    Raises
    ------
    Declined
        The normal equations are singular.
    """
    estimator: Any = subject.recipe.library_estimator
    found, lost = smoothed(subject, estimator), removal(subject, units).whole
    change, sure = change_of(found.smoother, found.residual, lost, found.least)
    n = subject.data.n
    T = design.matrix(subject)[:n].astype(np.float64) - found.center
    alpha = float(getattr(estimator, "alpha", 0.0))
    import scipy.linalg as sl

    if T.shape[1] <= n:
        G = T.T @ T
        G[np.diag_indices(len(G))] += alpha
        each = sl.cho_solve(sl.cho_factor(G), (T[lost.rows] * change).T).T
    else:  # X'(XX' + alpha I)^-1 for more features than records
        G = T @ T.T
        G[np.diag_indices(n)] += alpha
        right = np.zeros((n, len(lost.rows)))
        right[lost.rows, np.arange(len(lost.rows))] = change[:, 0]
        each = (T.T @ sl.cho_solve(sl.cho_factor(G), right)).T
    weights = np.add.reduceat(each, lost.start[:-1], axis=0)
    own = np.add.reduceat(change[:, 0], lost.start[:-1])
    offset = found.smoother.intercept * own - weights @ np.broadcast_to(found.center, weights.shape[1:])
    return np.asarray(weights), np.asarray(offset), sure
