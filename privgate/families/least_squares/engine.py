"""Ridge regression, least squares, kernel ridge and Gaussian processes without each unit, by the hat matrix; exact."""

import numpy as np

from privgate.families import design
from privgate.families.closed_form import ClosedForm, Form, Scores
from privgate.families.engine import Cost
from privgate.families.least_squares.smoothers import (
    Smoothed,
    kernel_refusal,
    least_refusal,
    smoothed,
)
from privgate.families.removal import Removal, spread
from privgate.families.retrained import Index, Seeds
from privgate.families.ridge import change_of
from privgate.subject.subject import Subject

#: with more numbers than this in its kernel matrix, a kernel regression is left to refits
MOST_KERNEL = 30_000_000


class LeastSquares(ClosedForm):
    """Leave-one-out of regressors that smooth their targets linearly; exact, no training.

    Identity: without the records T the answer at q is ``f(q) - H(q, T) (I - H(T, T))^-1 (y_T - f(T))`` with the hat
    function H: ``x_q (X'X + alpha I)^-1 x_t`` of centred records plus 1 / n for a free intercept, or
    ``k(q, X) (K + alpha I)^-1`` for kernels. O(n d^2), or O(n^3) for kernels. Breaks down as an eigenvalue of H(T, T)
    goes to 1: such units are handed on. A scaler or any other step before the regression is refitted without each unit.

    References
    ----------
    Allen (1974), PRESS; Golub, Heath and Wahba (1979); Rasmussen and Williams (2006), section 5.4.2.
    """

    name = "least_squares"
    hands_on = "their leverage is near 1"
    tasks = ("regression",)

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        estimator = subject.recipe.library_estimator
        names = ("Ridge", "LinearRegression", "KernelRidge", "GaussianProcessRegressor")
        if estimator is None or not any(design.estimator_of(subject, n) is not None for n in names):
            return "the recipe is no least squares, ridge, kernel ridge or Gaussian process of scikit-learn"
        if why := design.refusal(subject, double=True, real=True):
            return why
        if type(estimator).__name__ in ("Ridge", "LinearRegression"):
            return least_refusal(estimator)
        size = subject.data.n * len(design.matrix(subject))
        return "its kernel matrix is too large" if size > MOST_KERNEL else kernel_refusal(estimator)

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one factorisation."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        kernel = type(subject.recipe.library_estimator).__name__ in ("KernelRidge", "GaussianProcessRegressor")
        width = n if kernel else d
        return Cost(0, 2 * n * min(n, width) * width / 2e10 + 1e-6 * n, 24 * n * width)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units that leave next to nothing of their own answers over are handed on.

        Raises
        ------
        Declined
            The normal equations are singular.
        """
        found: Smoothed = smoothed(subject, subject.recipe.library_estimator)
        smoother, residual = found.smoother, found.residual

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            change, sure = change_of(smoother, residual, lost.whole, found.least)
            size = lost.size[unit]
            t, q = spread(lost.whole.start[unit], size), np.repeat(query, size)
            moved = smoother.hat(q, lost.rows[t])[:, None] * change[t]
            if not lost.records:
                moved = np.add.reduceat(moved, np.cumsum(size) - size, axis=0)
            return Scores(found.fitted[query], found.fitted[query] - moved, sure[unit])

        together = -(-subject.data.n // len(subject.data.units))
        return Form(joint, 2 * int(smoother.table.shape[1]) * together, normalize=False)


ENGINE = LeastSquares()
