"""Linear least squares, kernel ridge and Gaussian processes without each unit, by the hat matrix; exact.

The largest change of a linear regression's answer over a declared domain is the kernel's (``kernel/squares``).
"""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.engines import square_moves
from privgate.families import designs
from privgate.families.certificate import accepted_arrays, accepted_settings, people_of
from privgate.families.closed_form import ClosedForm, Form, Removal, Scores, removal, spread
from privgate.families.engine import Cost, Declined
from privgate.families.over_all_queries.accepted_range import Reach
from privgate.families.retrained import Seeds
from privgate.families.ridge import KEPT, Smoother, change_of, rounding_of, smoother_of
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
    """

    smoother: Smoother
    fitted: Float
    residual: Float
    least: float


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
    X = designs.matrix(subject).astype(np.float64, copy=False)
    _in_range(X[:n], mean, deviation)
    if type(estimator).__name__ in ("KernelRidge", "GaussianProcessRegressor"):
        # without an intercept the targets' mean is no answer to anything: it is put back before smoothing
        shift = mean / deviation
        made = _kernel(X, n, y + shift, estimator)
        fitted = made.fitted - shift
        return Smoothed(made, fitted, y - fitted[:n], KEPT)
    shift = 0.0 if estimator.fit_intercept else mean / deviation
    center = X[:n].mean(axis=0) if estimator.fit_intercept else np.zeros(X.shape[1])
    made = smoother_of(X - center, n, y + shift, float(getattr(estimator, "alpha", 0.0)))
    made.intercept = 1.0 / n if estimator.fit_intercept else 0.0
    # least squares drop directions below their tolerance, so none may come near it
    tolerance = float(getattr(estimator, "tol", 0.0)) if type(estimator).__name__ == "LinearRegression" else 0.0
    if not made.ratio > 10 * tolerance:
        raise Declined("records nearly lie in fewer dimensions, and scikit-learn drops directions there")
    fitted = made.fitted - shift
    return Smoothed(made, fitted, y - fitted[:n], max(KEPT, (2 * tolerance / made.ratio) ** 2))


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
        if estimator is None or not any(designs.estimator_of(subject, n) is not None for n in names):
            return "the recipe is no least squares, ridge, kernel ridge or Gaussian process of scikit-learn"
        if why := designs.design_refusal(subject, double=True, real=True):
            return why
        if type(estimator).__name__ in ("Ridge", "LinearRegression"):
            return least_refusal(estimator)
        size = subject.data.n * len(designs.matrix(subject))
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


#: units of roundoff of what a solver of scikit-learn leaves of a gradient, as a share of the sizes that it adds up
_SOLVER = 4


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
    cases : tuple of Kept
        What the kernel was asked.
    why : str
        Why nothing is bounded; empty if something is.
    """

    upper: Float
    where: Float
    why: str = ""
    seen: Float = field(default_factory=lambda: np.zeros(0))
    cases: tuple[Kept, ...] = ()


def not_over_domain(subject: Subject) -> str:
    """Return why no theorem bounds the change over the declared domain, known without training; empty if one may."""
    if why := ENGINE.refusal(subject):
        return why
    if type(subject.recipe.library_estimator).__name__ not in ("Ridge", "LinearRegression"):
        return "its answers are not linear in the features"
    if subject.accepted is None:
        return "no domain is declared: pass TrainingData(..., domain=...) with what the endpoint accepts"
    reach = Reach.of(subject.accepted, int(subject.data.X.shape[1]))
    return reach if isinstance(reach, str) else ""


def over_domain(subject: Subject, units: Index) -> OverDomain:
    """Return the largest change over the declared domain; infinite, with the reason, where no theorem speaks."""
    nothing = OverDomain(np.full(len(units), np.inf), np.zeros((len(units), 0)), not_over_domain(subject))
    if nothing.why or subject.accepted is None:
        return nothing
    try:
        found = smoothed(subject, subject.recipe.library_estimator)
        # whoever leaves next to nothing of their own over: the library may drop a direction without them
        sure = change_of(found.smoother, found.residual, removal(subject, units).whole, found.least)[1]
        arrays, settings = _case(subject, units)
        kept = Kept.of(kernel.Case("squares", "any", settings, arrays), units, theorem="least_squares").about(sure)
    except (Declined, kernel.Refused) as exc:
        return OverDomain(nothing.upper, nothing.where, str(exc))
    except np.linalg.LinAlgError:
        return OverDomain(nothing.upper, nothing.where, "the normal equations are singular")
    high, low = np.where(sure, kept.high, np.inf), np.where(sure, kept.low, 0.0)
    return OverDomain(high, arrays["question"][: len(units)], seen=low, cases=(kept,))


def left_by_solver(X: Float, y: Float, penalty: Float, proposal: dict[str, Float], most: int) -> Float:
    """Return how large a component of the gradient may be where a training of scikit-learn ends, (p,): an axiom.

    Its solvers are backward stable: they solve the problem of records that are off by a share of the largest, and where
    features are more than records, by way of one dual number a record. ``most`` is the largest number of records that
    leave at once. docs/mathematics.md, section 8.4; compared with the library by ``test_axiom_of_solvers``.
    """
    n, p = X.shape
    whole, longest = float(np.linalg.norm(X)), np.nan_to_num(np.linalg.norm(proposal["moves"], axis=1)).max(initial=0.0)
    size = whole * 2 * (np.linalg.norm(proposal["at"]) + longest) + np.linalg.norm(y)
    if p > n - most and (penalty > 0).any():
        rest = float(np.linalg.norm(y - X @ proposal["at"]))
        size += 4 * whole**2 * rest / penalty[penalty > 0].min()
    return np.full(p, _SOLVER * (n + p) * 2.0**-53 * whole * size)


def _case(subject: Subject, units: Index) -> tuple[dict[str, NDArray[Any]], dict[str, Any]]:
    """Return arrays and settings of the kernel's case: everybody's moves, those of ``units`` first."""
    estimator, n = subject.recipe.library_estimator, subject.data.n
    X = designs.matrix(subject)[:n].astype(np.float64)
    y, d = subject.data.y.astype(np.float64), X.shape[1]
    penalty = np.full(d, float(getattr(estimator, "alpha", 0.0)))
    if estimator.fit_intercept:
        X, penalty = np.column_stack([X, np.ones(n)]), np.append(penalty, 0.0)
    person = people_of(subject, units)
    proposal = square_moves.proposed(X, y, penalty, person)
    allowed = left_by_solver(X, y, penalty, proposal, int(np.bincount(person).max()))
    reach = Reach.of(subject.accepted, d) if subject.accepted is not None else ""
    assert isinstance(reach, Reach)  # noqa: S101  not_over_domain() said so
    weights = np.nan_to_num(proposal["moves"][:, :d])
    offset = np.nan_to_num(proposal["moves"][:, d:]).sum(axis=1)
    ends = offset + reach.maximum(weights), -offset + reach.maximum(-weights)
    question = np.where((ends[0] >= ends[1])[:, None], reach.best(weights), reach.best(-weights))
    if reach.length is not None or reach.norm is not None:
        question = question * (1 - 1e-12)  # for sure inside
    arrays = {
        "X": X,
        "y": y,
        "penalty": penalty,
        "person": person,
        "allowed": allowed,
        "question": question,
        **proposal,
    }
    return {**arrays, **accepted_arrays(reach, d)}, {
        "intercept": bool(estimator.fit_intercept),
        **accepted_settings(reach),
    }
