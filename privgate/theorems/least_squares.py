"""Linear regressions: the model without each person by the hat matrix, and limits over a domain.

Without the records T the answer at q is ``f(q) - H(q, T) (I - H(T, T))^-1 (y_T - f(T))``, H the hat function
``x_q (X'X + alpha I)^-1 x_t`` of centred records, plus 1 / n for a free intercept: Allen (1974), PRESS; Golub, Heath
and Wahba (1979). The largest change of a regression's answer over a declared domain is the kernel's
(``kernel/squares``); the parameters and everybody's move are proposed here, and nothing of them is believed.
"""

from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.subject.subject import Subject
from privgate.theorems import hypotheses, two_models
from privgate.theorems.closed_form import Declined, Engine, RefitRequest, Retrained
from privgate.theorems.hypotheses import design_refusal, matrix, unit_rows
from privgate.theorems.theorem import Certified, people_of

_KINDS = ("Ridge", "LinearRegression")
#: share of themselves that a person's fitted values leave over, 1 - h for one record: below, eight digits are lost
KEPT = 1e-8
#: 1 - h over what rounding does to h, below which fewer than five digits of a change are left
DIGITS = 1e5
#: share of a feature that the others leave unexplained: normal equations lose twice its digits
ALONE = 1e-4
#: distance from 0, in deviations, from which on eight digits are lost to rounding
FAR = 1e7
#: largest size of a feature, and of its inverse
LARGEST = 1e100
#: numbers handled at once: 8 MB of float64 stay near the processor
_BLOCK = 1_000_000
#: units of roundoff of what a solver of scikit-learn leaves of a gradient, as a share of the sizes that it adds up
_SOLVER = 4


class Squares(Engine):
    """Leave-one-out of least squares and ridge; exact: one factorisation, O(n d^2), or O(n^3) where d > n."""

    name = "least_squares"
    hands_on = "their leverage is near 1"
    task = "regression"

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        estimator = subject.recipe.library_estimator
        if type(estimator).__name__ not in _KINDS or not type(estimator).__module__.startswith("sklearn."):
            return "the recipe is no least squares or ridge of scikit-learn"
        if why := design_refusal(subject, real=True):
            return why
        if getattr(estimator, "positive", False):
            return "coefficients are constrained"
        if getattr(estimator, "solver", "auto") not in ("auto", "cholesky", "svd"):
            return "the solver is iterative, so its result is not the exact minimiser"
        return "" if np.ndim(getattr(estimator, "alpha", 0.0)) == 0 else "alpha is not one number"

    def answers(self, request: RefitRequest) -> tuple[Retrained, Index]:
        """Return exact answers, and the people who leave next to nothing of themselves over, or ``Declined``."""
        subject, units, (row_unit, row_query) = request.subject, request.units, request.rows
        fit, sure = fit_whole(subject), np.ones(len(units), dtype=bool)
        without = fit.fitted[row_query]
        each = fit.half.shape[1] * (1 + -(-len(row_unit) // max(len(units), 1)))
        for first in range(0, len(units), step := max(_BLOCK // each, 1)):
            person, rows = unit_rows(subject, units[first : first + step])
            pulled, sure[first : first + step] = pull_away(fit.half[rows], fit.rest[rows], person, fit.least)
            some = slice(*np.searchsorted(row_unit, [first, first + step]))
            without[some] -= (fit.half[row_query[some]] * pulled[row_unit[some] - first]).sum(axis=1)
        sure &= np.bincount(row_unit, np.isnan(without), len(units)) == 0
        without[~sure[row_unit]] = -np.inf
        answers = fit.fitted[row_query][None, :, None], without[None, :, None]
        made = Retrained.from_columns(self.name, units, request.seeds[:1], request.rows, *answers)
        return made.select(sure), units[~sure]


LEAST_SQUARES = Squares()


class Fit(NamedTuple):
    """A fitted regression: pool rows whose inner products are the hat function, answers at the pool, and residuals.

    Shapes (P, p), (P,) and (n,). ``least`` is what people must leave over of themselves, by ``pull_away``.
    """

    half: Float
    fitted: Float
    rest: Float
    least: float


def fit_whole(subject: Subject) -> Fit:
    """Return the regression of a supported subject; it raises ``Declined`` where rounding would decide."""
    estimator, n, (mean, deviation) = subject.recipe.library_estimator, subject.data.n, subject.scale
    Y = (subject.data.y.astype(np.float64) - mean) / deviation
    X, offset = matrix(subject).astype(np.float64, copy=False), -mean / deviation
    _refuse_sizes(X[:n], mean, deviation)
    if estimator.fit_intercept:
        X, offset = X - X[:n].mean(axis=0), Y.mean()  # else the targets' own 0 counts
    half, ratio, rounding = _whiten(X, n, float(getattr(estimator, "alpha", 0.0)))
    # least squares drop directions below their tolerance, so none may come near it
    tolerance = float(getattr(estimator, "tol", 0.0)) if type(estimator).__name__ == "LinearRegression" else 0.0
    if not ratio > 10 * tolerance:
        raise Declined("records nearly lie in fewer dimensions, and scikit-learn drops directions there")
    fitted = half @ (half[:n].T @ (Y - offset)) + offset
    if estimator.fit_intercept:
        half = np.column_stack([half, np.full(len(half), n**-0.5)])
    return Fit(half, fitted, Y - fitted[:n], max(KEPT, (2 * tolerance / ratio) ** 2, DIGITS * rounding))


def _refuse_sizes(X: Float, mean: float, deviation: float) -> None:
    """Decline numbers whose rounding, in the library's own arithmetic, is of the size of what one record changes."""
    if abs(mean) > FAR * deviation:
        raise Declined("the targets lie so far from 0 for their deviation that rounding decides; subtract their mean")
    size = np.abs(X).max(axis=0)
    if ((size > LARGEST) | ((size > 0) & (size < 1 / LARGEST))).any():
        raise Declined("a feature's squares leave the range of numbers; use another unit")
    spread = X.std(axis=0)
    if ((np.abs(X.mean(axis=0)) > FAR * spread) & (spread > 0)).any():
        raise Declined("a feature lies so far from 0 for its deviation that rounding decides; subtract its mean")


def _whiten(X: Float, n: int, alpha: float) -> tuple[Float, float, float]:
    """Return rows whose products are the hat function, least over largest singular value, and rounding of a product.

    Of centred pool rows X, of which the first n train; where features are more, of their part in the records' space.
    """
    near, wide = "the normal equations are nearly singular", X.shape[1] > n
    if wide:
        if not alpha > 0:
            raise Declined("there are more features than records and no penalty")
        length = np.sqrt((X[:n] ** 2).sum(axis=1) + alpha)
        Q, R = np.linalg.qr(X[:n].T)
        if (np.sqrt(np.diag(R) ** 2 + alpha) < ALONE * length).any():  # a record nearly made of those before it
            raise Declined(near)
        X = X @ Q
    G = X[:n].T @ X[:n] + alpha * np.eye(X.shape[1])
    try:
        L = np.linalg.cholesky(G)
    except np.linalg.LinAlgError as exc:
        raise Declined("the normal equations are singular") from exc
    sides, scale = np.diag(L), np.ones(len(G)) if wide else np.sqrt(np.diag(G))
    if not wide and ((sides < ALONE * scale).any() or sides.min() < 1e-7 * sides.max()):
        raise Declined(near)
    rounding = np.finfo(np.float64).eps * np.linalg.cond(G / scale[:, None] / scale, 1)
    ratio = 1.0 if wide else 1 / float(np.linalg.cond(L))  # a penalty leaves no direction to drop
    return np.linalg.solve(L, X.T).T, ratio, float(rounding)


def pull_away(half: Float, rest: Float, people: Index, least: float) -> tuple[Float, NDArray[np.bool_]]:
    """Return ``half' (I - half half')^-1 rest`` of people, shape (U, p), and whether they leave enough over, (U,).

    An answer loses that times its own whitened features when they leave; it is 0 for who does not leave enough over,
    an eigenvalue of ``I - half half'`` above ``least``. ``half`` (R, p) are whitened features of people's records,
    ``rest`` (R,) targets less answers; ``people`` (R,) is whose each is, ascending, nobody left out.
    """
    sizes = np.bincount(people)
    start = np.cumsum(sizes) - sizes
    pulled, sure = np.zeros((len(sizes), half.shape[1])), np.zeros(len(sizes), dtype=bool)
    for m in np.unique(sizes).tolist():
        some = np.flatnonzero(sizes == m)
        own = half[rows := start[some][:, None] + np.arange(m)]
        remainder = np.eye(m) - own @ own.transpose(0, 2, 1)
        fine = (remainder[:, 0, 0] if m == 1 else np.linalg.eigvalsh(remainder)[:, 0]) > least
        solved = np.linalg.solve(remainder[fine], rest[rows[fine]][:, :, None])
        pulled[some[fine]] = (own[fine].transpose(0, 2, 1) @ solved)[:, :, 0]
        sure[some] = fine
    return pulled, sure


def not_over_domain(subject: Subject) -> str:
    """Return why no theorem limits the change over the declared domain, known without training; empty if one may."""
    why = _refuse(subject)
    return why if two_models.refusal(subject) else ""


def _refuse(subject: Subject) -> str:
    if (why := LEAST_SQUARES.refusal(subject)) or subject.accepted is None:
        return why or "no domain is declared: pass TrainingData(..., domain=...) with what the endpoint accepts"
    reach = hypotheses.read_domain(subject.accepted, int(subject.data.X.shape[1]))
    return reach if isinstance(reach, str) else ""


def over_domain(subject: Subject, units: Index) -> Certified:
    """Return limits of the change of any answer over the domain, in deviations of the targets; or why none."""
    if why := _refuse(subject):
        return Certified.nothing(units, why=why)
    try:
        # whoever leaves next to nothing of their own over: the library may drop a direction without them
        fit, (person, rows) = fit_whole(subject), unit_rows(subject, units)
        sure = pull_away(fit.half[rows], fit.rest[rows], person, fit.least)[1]
        kept = Kept.judge_case(pose(subject, units), units, theorem="least_squares").about(sure)
    except (Declined, kernel.Refused, np.linalg.LinAlgError) as exc:
        singular = isinstance(exc, np.linalg.LinAlgError)
        return Certified.nothing(units, why="the normal equations are singular" if singular else str(exc))
    return Certified(np.where(sure, kept.high, np.inf), np.where(sure, kept.low, 0.0), cases=(kept,))


def pose(subject: Subject, units: Index) -> kernel.Case:
    """Return the kernel's case over the declared domain, which ``not_over_domain`` has agreed to; ``units`` first."""
    estimator, n, reach = subject.recipe.library_estimator, subject.data.n, hypotheses.reach(subject)
    X = matrix(subject)[:n].astype(np.float64)
    y, d = subject.data.y.astype(np.float64), X.shape[1]
    penalty = np.full(d, float(getattr(estimator, "alpha", 0.0)))
    if estimator.fit_intercept:
        X, penalty = np.column_stack([X, np.ones(n)]), np.append(penalty, 0.0)
    person = people_of(subject, units)
    proposal = propose(X, y, penalty, person)
    arrays = {"X": X, "y": y, "penalty": penalty, "person": person, **proposal}
    arrays["allowed"] = left_by_solver(X, y, penalty, proposal, int(np.bincount(person).max()))
    moves = np.nan_to_num(proposal["moves"])
    weights, offset = moves[:, :d], moves[:, d:].sum(axis=1)
    up = offset + reach.bound_dot(weights) >= reach.bound_dot(-weights) - offset
    question = np.where(up[:, None], hypotheses.attain(reach, weights), hypotheses.attain(reach, -weights))
    settings, accepted = hypotheses.state_domain(reach)
    settings |= {"intercept": bool(estimator.fit_intercept)}
    return kernel.Case("squares", "any", settings, arrays | accepted | {"question": question})


def left_by_solver(X: Float, y: Float, penalty: Float, proposal: dict[str, Float], most: int) -> Float:
    """Return how large a component of the gradient may be where a training of scikit-learn ends, (p,): an axiom.

    Its solvers are backward stable: they solve the problem of records that are off by a share of the largest, or of
    one dual number a record where features are more. At ``most`` so many records leave at once. docs/mathematics.md,
    section 8.4; compared with the library by ``test_axiom_of_solvers``.
    """
    n, p = X.shape
    whole, longest = float(np.linalg.norm(X)), np.nan_to_num(np.linalg.norm(proposal["moves"], axis=1)).max(initial=0.0)
    size = whole * 2 * (np.linalg.norm(proposal["at"]) + longest) + np.linalg.norm(y)
    if p > n - most and (penalty > 0).any():
        rest = float(np.linalg.norm(y - X @ proposal["at"]))
        size += 4 * whole**2 * rest / penalty[penalty > 0].min()
    return np.full(p, _SOLVER * (n + p) * 2.0**-53 * whole * size)


def propose(X: Float, y: Float, penalty: Float, person: Index) -> dict[str, NDArray[Any]]:
    """Return arrays ``at``, ``factor`` and ``moves`` of a case; a move is NaN where a person holds a direction alone.

    ``X`` has a column of ones last where there is an intercept; ``penalty`` has shape (p,).
    """
    factor = np.linalg.inv(np.linalg.cholesky(X.T @ X + np.diag(penalty)))
    at = np.zeros(X.shape[1])
    for _ in range(3):  # each round takes off what rounding left
        at = at - factor.T @ (factor @ (X.T @ (X @ at - y) + penalty * at))
    rows = np.argsort(person, kind="stable")
    pulled, sure = pull_away((X @ factor.T)[rows], (y - X @ at)[rows], person[rows], 1e-9)
    moves = np.where(sure[:, None], -pulled @ factor, np.nan)
    return {"at": at, "factor": factor, "moves": moves}
