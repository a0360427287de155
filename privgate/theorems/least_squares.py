"""Linear regressions and ridge classifiers: the model without each person by the hat matrix, and limits over a domain.

Without the records T the answer at q is ``f(q) - H(q, T) (I - H(T, T))^-1 (y_T - f(T))``, H the hat function
``x_q (X'X + alpha I)^-1 x_t`` of centred records, plus 1 / n for a free intercept: Allen (1974), PRESS; Golub, Heath
and Wahba (1979). The largest change of a regression's answer over a declared domain is the kernel's
(``kernel/squares``); the parameters and everybody's move are proposed here, and nothing of them is believed.
"""

from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.arrays import Float, Index
from privgate.cases import Kept
from privgate.subject.subject import Subject
from privgate.theorems import two_models
from privgate.theorems.certificate import accepted_arrays, accepted_settings, people_of
from privgate.theorems.closed_form import Asked, Declined, Engine
from privgate.theorems.hypotheses import VANISHED, Reach, design_refusal, matrix, unit_rows, vanishing
from privgate.theorems.retrained import Retrained

RELEASE = "privgate.linear_scores:softmax_scores"
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


@dataclass(frozen=True, eq=False)
class Leaving:
    """The records that people take with them: person u has ``rows[start[u]:start[u + 1]]``."""

    start: Index
    rows: Index

    @classmethod
    def of(cls, subject: Subject, units: Index) -> "Leaving":
        """Return the records of each of ``units``."""
        unit, rows = unit_rows(subject, units)
        return cls(np.searchsorted(unit, np.arange(len(units) + 1)), rows)

    @property
    def size(self) -> Index:
        """Number of records of each person, shape (U,)."""
        return np.diff(self.start)


@dataclass(frozen=True, eq=False)
class Smoother:
    """A fitted regression and its hat function.

    Parameters
    ----------
    fitted : float64 array of shape (P, k)
        Answers at the pool.
    residual : float64 array of shape (n, k)
        Targets less answers.
    table : float64 array of shape (P, d) or (P, n)
        Rows whose inner products are the hat function, or the hat function itself where it is ``whole``.
    intercept : float
        What a free intercept adds to the hat function.
    least : float
        What people must leave over of themselves.
    """

    fitted: Float
    residual: Float
    table: Float
    whole: bool
    intercept: float
    least: float

    def hat(self, query: Index, record: Index) -> Float:
        """Return H(query, record), one by one."""
        if self.whole:
            return np.asarray(self.table[query, record] + self.intercept)
        return np.asarray(np.einsum("ij,ij->i", self.table[query], self.table[record]) + self.intercept)

    def among(self, records: Index) -> Float:
        """Return H among the records of each person, shape (U, m, m), for ``records`` (U, m)."""
        if self.whole:
            return np.asarray(self.table[records[:, :, None], records[:, None, :]] + self.intercept)
        rows = self.table[records]
        return np.asarray(rows @ rows.transpose(0, 2, 1) + self.intercept)

    def pull(self, lost: Leaving) -> tuple[Float, NDArray[np.bool_]]:
        """Return ((I - H(T, T))^-1 (y_T - f(T)), row by row of what is lost, and which people leave enough over)."""
        out, sure = self.residual[lost.rows], np.zeros(len(lost.size), dtype=bool)
        for m in np.unique(lost.size).tolist():
            some = np.flatnonzero(lost.size == m)
            place = lost.start[some][:, None] + np.arange(m)
            left = np.eye(m) - self.among(lost.rows[place])
            sure[some] = (left[:, 0, 0] if m == 1 else np.linalg.eigvalsh(left)[:, 0]) > self.least
            fine = place[sure[some]]
            out[fine] = np.linalg.solve(left[sure[some]], out[fine])
        return out, sure


class Squares(Engine):
    """Leave-one-out of least squares and ridge; exact, no training.

    One factorisation, O(n d^2), or O(n^3) where d > n, answers everybody. People whose leverage is near 1 are left to
    refits, and so is everybody where the normal equations are nearly singular.
    """

    hands_on = "their leverage is near 1"

    def __init__(self, name: str, task: str, kinds: tuple[str, ...]) -> None:
        self.name, self.tasks, self.kinds = name, (task,), kinds

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        estimator = estimator_of(subject)
        if type(estimator).__name__ not in self.kinds:
            released = "" if subject.task == "regression" else f" with predict={RELEASE}"
            return f"the recipe is no least squares or ridge of scikit-learn{released}"
        if why := design_refusal(subject, real=subject.task == "regression"):
            return why
        if getattr(estimator, "positive", False) or getattr(estimator, "class_weight", None) is not None:
            return "coefficients are constrained or classes weighted"
        if getattr(estimator, "solver", "auto") not in ("auto", "cholesky", "svd"):
            return "the solver is iterative, so its result is not the exact minimiser"
        if np.ndim(getattr(estimator, "alpha", 0.0)) != 0:
            return "alpha is not one number"
        if subject.task == "regression":
            return ""
        if len(subject.classes) < 2:
            return "there is one class only"
        if type(estimator).__name__ != "RidgeClassifier" and subject.classes.tolist() not in ([0, 1], [0.0, 1.0]):
            return "a regression is released as a probability for labels 0 and 1 only"
        return ""

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return exact answers, and the people who leave next to nothing of their own fitted values over.

        Raises
        ------
        Declined
            The normal equations are nearly singular, or rounding decides.
        """
        subject, units, (row_unit, row_query) = asked.subject, asked.units, asked.rows
        smoother, sure = smooth(subject), np.ones(len(units), dtype=bool)
        without = smoother.fitted[row_query]
        width = 2 * smoother.table.shape[1] * -(-subject.data.n // len(subject.data.units))
        for some, rows in _blocks(row_unit, len(units), width):
            lost = Leaving.of(subject, units[some])
            pull, sure[some] = smoother.pull(lost)
            unit = row_unit[rows] - some.start
            ends = np.cumsum(lost.size[unit])
            first = ends - lost.size[unit]
            each = np.repeat(np.arange(len(unit)), lost.size[unit])  # one entry for each record of a row's person
            place = lost.start[unit][each] + np.arange(len(each)) - first[each]
            moved = smoother.hat(row_query[rows][each], lost.rows[place])[:, None] * pull[place]
            if len(unit):
                without[rows] -= np.add.reduceat(moved, first, axis=0)
        with_ = _released(subject, smoother.fitted[row_query])
        without, gone = _released(subject, without), vanishing(subject, units)
        sure = (sure & (np.bincount(row_unit, np.isnan(without).any(axis=1), len(units)) == 0)) | gone
        without[gone[row_unit] | ~sure[row_unit]] = -np.inf
        undefined = {int(u): VANISHED for u in np.flatnonzero(gone)}
        made = Retrained.of(
            self.name, units, asked.seeds[:1], asked.rows, with_[None], without[None], undefined=undefined
        )
        return (made, units[:0]) if sure.all() else (made.select(sure), units[~sure])


RIDGE = Squares("ridge", "classification", ("RidgeClassifier", "Ridge", "LinearRegression"))
LEAST_SQUARES = Squares("least_squares", "regression", ("Ridge", "LinearRegression"))


def estimator_of(subject: Subject) -> Any:
    """Return scikit-learn's estimator as the task releases it; else None."""
    if subject.task == "regression":
        estimator = subject.recipe.library_estimator
        return estimator if type(estimator).__module__.startswith("sklearn.") else None
    payload = subject.recipe.payload
    released = payload["kind"] == "estimator" and payload["predict"] == RELEASE
    return subject.recipe.estimator_of("sklearn.") if released else None


def _blocks(row_unit: Index, units: int, width: int) -> Iterator[tuple[slice, slice]]:
    """Yield (units, rows) slices with at most about ``_BLOCK`` numbers each, never less than one unit."""
    ends, unit = np.searchsorted(row_unit, np.arange(units + 1)), 0
    while unit < units:
        stop = int(np.searchsorted(ends, ends[unit] + max(_BLOCK // max(width, 1), 1), side="right")) - 1
        stop = min(max(stop, unit + 1), units)
        yield slice(unit, stop), slice(int(ends[unit]), int(ends[stop]))
        unit = stop


def _released(subject: Subject, scores: Float) -> Float:
    """Return log-probabilities (R, K) from scores (R, k); a regression's answers as they are."""
    if subject.task == "regression":
        return scores
    if type(estimator_of(subject)).__name__ != "RidgeClassifier":
        scores = scores - 0.5
    if scores.shape[1] == 1:
        scores = np.column_stack([np.zeros(len(scores)), scores])
    return np.asarray(scores - np.logaddexp.reduce(scores, axis=1, keepdims=True))


def _targets(subject: Subject) -> Float:
    """Return what is fitted, shape (n, k): a regression's targets about their mean, in their deviations; or labels."""
    if subject.task == "regression":
        mean, deviation = subject.scale
        return np.asarray((subject.data.y.astype(np.float64) - mean) / deviation)[:, None]
    y, K = subject.label_codes, len(subject.classes)
    if type(estimator_of(subject)).__name__ != "RidgeClassifier":
        return y[:, None].astype(np.float64)
    signs = 2.0 * (y[:, None] == np.arange(K)) - 1.0
    return np.asarray(signs[:, 1:] if K == 2 else signs)


def smooth(subject: Subject) -> Smoother:
    """Return the fitted regression of a supported subject.

    Raises
    ------
    Declined
        The normal equations are nearly singular, or rounding decides.
    """
    estimator, n, Y = estimator_of(subject), subject.data.n, _targets(subject)
    X, offset = matrix(subject).astype(np.float64, copy=False), np.zeros(1)
    if subject.task == "regression":
        mean, deviation = subject.scale
        _check_range(X[:n], mean, deviation)
        offset = np.array([-mean / deviation])  # without an intercept the targets' own 0 counts
    if estimator.fit_intercept:
        X, offset = X - X[:n].mean(axis=0), Y.mean(axis=0)
    fitted, table, whole, ratio, rounding = _solve(X, n, Y - offset, float(getattr(estimator, "alpha", 0.0)))
    # least squares drop directions below their tolerance, so none may come near it
    tolerance = float(getattr(estimator, "tol", 0.0)) if type(estimator).__name__ == "LinearRegression" else 0.0
    if not ratio > 10 * tolerance:
        raise Declined("records nearly lie in fewer dimensions, and scikit-learn drops directions there")
    least = max(KEPT, (2 * tolerance / ratio) ** 2, DIGITS * rounding)
    fitted = fitted + offset
    return Smoother(fitted, Y - fitted[:n], table, whole, 1.0 / n if estimator.fit_intercept else 0.0, least)


def _check_range(X: Float, mean: float, deviation: float) -> None:
    """Decline numbers whose rounding, in the library's own arithmetic, is of the size of what one record changes."""
    if abs(mean) > FAR * deviation:
        raise Declined("the targets lie so far from 0 for their deviation that rounding decides; subtract their mean")
    size = np.abs(X).max(axis=0)
    if ((size > LARGEST) | ((size > 0) & (size < 1 / LARGEST))).any():
        raise Declined("a feature's squares leave the range of numbers; use another unit")
    spread = X.std(axis=0)
    if ((np.abs(X.mean(axis=0)) > FAR * spread) & (spread > 0)).any():
        raise Declined("a feature lies so far from 0 for its deviation that rounding decides; subtract its mean")


def _solve(X: Float, n: int, Y: Float, alpha: float) -> tuple[Float, Float, bool, float, float]:
    """Return (answers, hat table, whether it is whole, smallest over largest singular value, rounding of a hat value).

    Of centred pool rows X, of which the first n train.
    """
    import scipy.linalg as sl

    T, d = X[:n], X.shape[1]
    if d > n and not alpha > 0:
        raise Declined("there are more features than records and no penalty")
    G = T.T @ T if d <= n else T @ T.T
    G[np.diag_indices(len(G))] += alpha
    try:
        L = np.linalg.cholesky(G)
    except np.linalg.LinAlgError as exc:
        raise Declined("the normal equations are singular") from exc
    sides = np.diag(L)
    if (sides < ALONE * np.sqrt(np.diag(G))).any() or (d <= n and sides.min() < 1e-7 * sides.max()):
        raise Declined("the normal equations are nearly singular")
    if d <= n:
        table = sl.solve_triangular(L, X.T, lower=True, check_finite=False).T
        return table @ (table[:n].T @ Y), table, False, 1 / float(np.linalg.cond(L)), _round_hat(G)
    hat = sl.cho_solve((L, True), T @ X.T, check_finite=False).T  # (P, n)
    return hat @ Y, hat, True, 1.0, _round_hat(G)


def _round_hat(G: Float) -> float:
    """Return what rounding may do to a hat value made by the factor of G: its condition, rows scaled, times epsilon."""
    import scipy.linalg as sl

    sides = np.sqrt(np.diag(G))
    scaled = G / sides[:, None] / sides
    factor, failed = sl.lapack.dpotrf(scaled)
    inverse, wrong = sl.lapack.dpocon(factor, np.abs(scaled).sum(axis=0).max())
    return float(np.finfo(np.float64).eps / inverse) if inverse > 0 and not failed and not wrong else np.inf


@dataclass(frozen=True, eq=False)
class OverDomain:
    """The change of any answer when each person is left out, in deviations of the targets.

    Parameters
    ----------
    upper : float64 array of shape (U,)
        Over the whole domain; infinite where the theorem says nothing.
    where : float64 array of shape (U, d)
        A question at which it is largest, or nearly where several constraints are stated.
    why : str
        Why nothing is limited; empty if something is.
    seen : float64 array of shape (U,)
        The change there; 0 where that question is not of the domain.
    cases : tuple of Kept
        What the kernel was asked.
    """

    upper: Float
    where: Float
    why: str = ""
    seen: Float = field(default_factory=lambda: np.zeros(0))
    cases: tuple[Kept, ...] = ()

    @classmethod
    def of_two_models(cls, why: str, kept: Kept | None, units: Index) -> "OverDomain":
        """Return what two read models of each unit limit; nothing, and ``why``, where none was read."""
        upper, seen, where = np.full(len(units), np.inf), np.zeros(len(units)), np.zeros((len(units), 0))
        if kept is None:
            return cls(upper, where, why)
        at = np.isin(units, kept.units)
        upper[at], seen[at] = kept.high, kept.low
        return cls(upper, where, seen=seen, cases=(replace(kept, theorem="linear"),))


def not_over_domain(subject: Subject) -> str:
    """Return why no theorem limits the change over the declared domain, known without training; empty if one may."""
    why = _refuse(subject)
    return why if two_models.refusal(subject) else ""


def _refuse(subject: Subject) -> str:
    if why := LEAST_SQUARES.refusal(subject):
        return why
    if subject.accepted is None:
        return "no domain is declared: pass TrainingData(..., domain=...) with what the endpoint accepts"
    reach = Reach.of(subject.accepted, int(subject.data.X.shape[1]))
    return reach if isinstance(reach, str) else ""


def over_domain(subject: Subject, units: Index) -> OverDomain:
    """Return the largest change over the declared domain; infinite, with the reason, where no theorem speaks."""
    if why := _refuse(subject):
        return OverDomain(np.full(len(units), np.inf), np.zeros((len(units), 0)), why)
    try:
        # whoever leaves next to nothing of their own over: the library may drop a direction without them
        sure = smooth(subject).pull(Leaving.of(subject, units))[1]
        case = pose(subject, units)
        kept = Kept.of(case, units, theorem="least_squares").about(sure)
    except (Declined, kernel.Refused, np.linalg.LinAlgError) as exc:
        why = "the normal equations are singular" if isinstance(exc, np.linalg.LinAlgError) else str(exc)
        return OverDomain(np.full(len(units), np.inf), np.zeros((len(units), 0)), why)
    high, low = np.where(sure, kept.high, np.inf), np.where(sure, kept.low, 0.0)
    return OverDomain(high, case.arrays["question"][: len(units)], seen=low, cases=(kept,))


def pose(subject: Subject, units: Index) -> kernel.Case:
    """Return the kernel's case over the declared domain, which ``not_over_domain`` has agreed to; ``units`` first."""
    estimator, n = subject.recipe.library_estimator, subject.data.n
    X = matrix(subject)[:n].astype(np.float64)
    y, d = subject.data.y.astype(np.float64), X.shape[1]
    penalty = np.full(d, float(getattr(estimator, "alpha", 0.0)))
    if estimator.fit_intercept:
        X, penalty = np.column_stack([X, np.ones(n)]), np.append(penalty, 0.0)
    person = people_of(subject, units)
    proposal = propose(X, y, penalty, person)
    arrays = {"X": X, "y": y, "penalty": penalty, "person": person, **proposal}
    arrays["allowed"] = left_by_solver(X, y, penalty, proposal, int(np.bincount(person).max()))
    reach = Reach.of(subject.accepted, d) if subject.accepted is not None else ""
    assert isinstance(reach, Reach)  # noqa: S101  not_over_domain() said so
    weights = np.nan_to_num(proposal["moves"][:, :d])
    offset = np.nan_to_num(proposal["moves"][:, d:]).sum(axis=1)
    ends = offset + reach.maximum(weights), -offset + reach.maximum(-weights)
    question = np.where((ends[0] >= ends[1])[:, None], reach.best(weights), reach.best(-weights))
    if reach.length is not None or reach.norm is not None:
        question = question * (1 - 1e-12)  # for sure inside
    arrays |= {"question": question, **accepted_arrays(reach, d)}
    return kernel.Case(
        "squares", "any", {"intercept": bool(estimator.fit_intercept), **accepted_settings(reach)}, arrays
    )


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


def propose(X: Float, y: Float, penalty: Float, person: Index) -> dict[str, Float]:
    """Return arrays ``at``, ``factor`` and ``moves``; a move is NaN where a person holds a direction alone.

    Parameters
    ----------
    X : float64 array of shape (n, p)
        A column of ones last where there is an intercept.
    y, person : arrays of shape (n,)
    penalty : float64 array of shape (p,)
    """
    factor = np.linalg.inv(np.linalg.cholesky(X.T @ X + np.diag(penalty)))
    at = np.zeros(X.shape[1])
    for _ in range(3):  # each round takes off what rounding left
        at = at - factor.T @ (factor @ (X.T @ (X @ at - y) + penalty * at))
    rest, people = y - X @ at, int(person.max()) + 1
    half = X @ factor.T  # half . half' is the hat matrix
    moves = np.full((people, X.shape[1]), np.nan)
    rows = np.argsort(person, kind="stable")
    edges = np.searchsorted(person[rows], np.arange(people + 1))
    single = np.flatnonzero(np.diff(edges) == 1)
    own = rows[edges[single]]
    with np.errstate(divide="ignore", invalid="ignore"):
        moves[single] = -(half[own] @ factor) * (rest[own] / (1 - (half[own] ** 2).sum(axis=1)))[:, None]
    for k in np.flatnonzero(np.diff(edges) > 1):
        some = rows[edges[k] : edges[k + 1]]
        hat = half[some] @ half[some].T
        if np.linalg.eigvalsh(hat)[-1] < 1 - 1e-9:
            moves[k] = -(half[some].T @ np.linalg.solve(np.eye(len(some)) - hat, rest[some])) @ factor
    return {"at": at, "factor": factor, "moves": moves}
