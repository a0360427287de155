"""Gaussian naive Bayes without a unit, in closed form: means, variances and the variance floor go back."""

from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import BLOCK, Removal, rows_of
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.naive_bayes.counts import Prior
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject

#: taking records off a sum of squares loses digits where little is left of it: there, compute anew from the records
CANCELLED = 1e-4
#: relative change of a variance below which a first-order change of the logarithm is right to 1e-13 a feature
LINEAR = 1e-7
#: largest x^2 / variance at which (x - M)^2 / v may be multiplied out: four digits of sixteen are lost, not more
EXPANDED = 1e4


class _Prepared(NamedTuple):
    floor: Float  # (U,) var_smoothing * largest variance of the remaining records
    mean: Float | None = None  # (T, d) of each pair's class without the lost records, centred
    variance: Float | None = None  # (T, d) without the floor; None where each unit is one record


@dataclass(frozen=True, eq=False)
class _Model(counts.ClassModel):
    X: Float  # pool, centred at the mean of the training records, (P, d)
    labels: Index  # (n,)
    totals: Float  # (K,)
    mean: Float  # (K, d)
    squares: Float  # (K, d) sums of squares about the class means
    all_squares: Float  # (d,) about the overall mean
    farthest: Float  # (d,) largest square of a pool record
    smoothing: float

    @property
    def n(self) -> int:
        return len(self.labels)

    @property
    def floor(self) -> float:
        return self.smoothing * float(self.all_squares.max()) / self.n

    @property
    def variance(self) -> Float:
        return self.squares / self.totals[:, None] + self.floor

    @property
    def width(self) -> int:
        return int(self.X.shape[1]) * 8

    def prepare(self, removal: Removal) -> _Prepared:
        if removal.records:
            return _Prepared(self._record_floors(removal))
        lost = removal.lost[:, None].astype(np.float64)
        gone = removal.sums(self.X) / lost
        scatter = removal.scatter(self.X, gone)
        total = self.totals[removal.label][:, None]
        left = np.maximum(total - lost, 1)
        shift = self.mean[removal.label] - gone
        squares = self.squares[removal.label] - (total * lost / left) * shift**2 - scatter
        mean = self.mean[removal.label] + (lost / left) * shift
        doubtful = (squares < CANCELLED * self.squares[removal.label]).any(axis=1) & (total > lost)[:, 0]
        for p in np.flatnonzero(doubtful):
            mean[p], squares[p] = self._anew(removal.label[p], removal.rows[removal.start[p] : removal.start[p + 1]])
        return _Prepared(self._floors(removal), mean, np.maximum(squares, 0) / left)

    def _anew(self, label: int, lost: Index) -> tuple[Float, Float]:
        """Return (mean, sum of squares) of a class without some records, from the records themselves."""
        kept = self.labels == label
        kept[lost] = False
        mean = self.X[: self.n][kept].mean(axis=0)
        return mean, ((self.X[: self.n][kept] - mean) ** 2).sum(axis=0)

    def _record_floors(self, removal: Removal) -> Float:
        """Return the same as ``_floors`` for units of one record, from the few features that may vary most."""
        share = self.n / max(self.n - 1, 1)
        reached = (self.all_squares - share * self.farthest).max()
        if not reached > CANCELLED * self.all_squares.max():
            return self._floors(removal)
        rivals = np.flatnonzero(self.all_squares >= reached)
        best = (self.all_squares[rivals] - share * self.X[removal.rows[:, None], rivals] ** 2).max(axis=1)
        return np.asarray(self.smoothing * best / (self.n - 1))

    def _floors(self, removal: Removal) -> Float:
        """Return the variance floor without each unit, shape (U,)."""
        whole = removal.whole
        lost = np.diff(whole.start)[:, None].astype(np.float64)
        gone = whole.sums(self.X) / lost
        left = np.maximum(self.n - lost, 1)
        squares = self.all_squares - (self.n * lost / left) * gone**2 - whole.scatter(self.X, gone)
        best = squares.max(axis=1)
        cancelled = squares < CANCELLED * self.all_squares
        doubtful = (cancelled & (CANCELLED * self.all_squares >= best[:, None])).any(axis=1)
        for u in np.flatnonzero(doubtful):
            kept = np.ones(self.n, dtype=bool)
            kept[whole.rows[whole.start[u] : whole.start[u + 1]]] = False
            remaining = self.X[: self.n][kept]
            best[u] = ((remaining - remaining.mean(axis=0)) ** 2).sum(axis=0).max() if len(remaining) else 0.0
        return np.asarray(self.smoothing * best / left[:, 0])

    def scores(self, queries: Index, unit: Index, prepared: _Prepared) -> tuple[Float, Float]:
        """Every class changes without a unit, because the variance floor is a function of all records."""
        x, variance = rows_of(self.X, queries), self.variance
        change = (prepared.floor[unit] - self.floor)[:, None]
        full, slope = self._slope(x, variance)
        rest = full + slope * change
        exact = (np.abs(change) > LINEAR * variance.min())[:, 0]
        for c in range(len(variance)) if exact.any() else ():
            # not the variance plus its change: where one person is the floor, nothing of a difference would be left
            moved = self.squares[c] / self.totals[c] + prepared.floor[unit[exact]][:, None]
            square = (x[exact] - self.mean[c]) ** 2
            rest[exact, c] = -0.5 * (square / moved + np.log(2 * np.pi * moved)).sum(axis=1)
        return full, rest

    def _slope(self, x: Float, variance: Float) -> tuple[Float, Float]:
        """Return log p(x | c), shape (Q, K), and its derivative by the variance floor."""
        inverse = 1 / variance
        weights, means = np.concatenate([inverse, inverse**2]), np.tile(self.mean, (2, 1))
        if (self.farthest * inverse).max() < EXPANDED:
            distance = (x * x) @ weights.T - 2 * (x @ (means * weights).T) + (means**2 * weights).sum(axis=1)
        else:  # expanded squares would cancel
            K = len(variance)
            distance = np.empty((len(x), 2 * K))
            for c, mean in enumerate(self.mean):
                distance[:, c::K] = ((x - mean) ** 2) @ weights[c::K].T
        first, second = np.split(distance, 2, axis=1)
        full = -0.5 * (first + np.log(2 * np.pi * variance).sum(axis=1))
        return full, 0.5 * (second - inverse.sum(axis=1))

    def without(self, queries: Index, pair: Index, removal: Removal, prepared: _Prepared) -> Float:
        if prepared.mean is None or prepared.variance is None:
            return self._without_record(queries, removal.rows[pair], prepared.floor[pair])
        unit = np.searchsorted(removal.first, pair, side="right") - 1
        variance = prepared.variance[pair] + prepared.floor[unit][:, None]
        return _log_density(self.X[queries] - prepared.mean[pair], variance)

    def _without_record(self, queries: Index, record: Index, floor: Float) -> Float:
        """Return the same class by class; where the record is the query, x - M' = (x - M) N / (N - 1)."""
        out, label, own = np.zeros(len(queries)), self.labels[record], np.array_equal(queries, record)
        for c in np.flatnonzero(self.totals > 1).tolist():
            at, left = np.flatnonzero(label == c), self.totals[c] - 1
            away = self.X[record[at]] - self.mean[c]
            variance = away * away
            variance *= -self.totals[c] / left
            variance += self.squares[c]
            doubtful = at[(variance < CANCELLED * self.squares[c]).any(axis=1)]
            variance /= left
            variance += floor[at, None]
            if own:
                away *= self.totals[c] / left
            else:
                away = self.X[queries[at]] - self.mean[c] + away / left
            out[at] = _log_density(away, variance)
            for k in doubtful:
                mean, square = self._anew(c, record[k : k + 1])
                out[k] = _log_density((self.X[queries[k]] - mean)[None], square[None] / left + floor[k])[0]
        return out


def _log_density(away: Float, variance: Float) -> Float:
    """Return log densities of independent normal features, row by row; overwrites ``away``."""
    away *= away
    away /= variance
    away += np.log(variance)
    return np.asarray(-0.5 * (away.sum(axis=1) + away.shape[1] * np.log(2 * np.pi)))


def _model(subject: Subject, smoothing: float) -> _Model:
    n, labels = subject.data.n, subject.label_codes
    X = designs.matrix(subject).astype(np.float64, copy=False)
    X = X - X[:n].mean(axis=0)  # a large common offset would eat the digits of the squares
    totals = np.bincount(labels, minlength=len(subject.classes)).astype(np.float64)
    hot = (labels[:, None] == np.arange(len(totals))).astype(np.float64)
    mean = (hot.T @ X[:n]) / totals[:, None]
    squares = np.zeros_like(mean)
    for k in range(0, n, 1000):  # temporaries that stay near the processor
        squares += hot[k : k + 1000].T @ (X[k : min(k + 1000, n)] - mean[labels[k : k + 1000]]) ** 2
    farthest = np.maximum(X.max(axis=0), -X.min(axis=0)) ** 2
    return _Model(X, labels, totals, mean, squares, np.einsum("ij,ij->j", X[:n], X[:n]), farthest, smoothing)


class GaussianNb(counts.CountingEngine):
    """Leave-one-out for ``sklearn.naive_bayes.GaussianNB``; exact, O(n d K), no retraining.

    Identity: with m of N records gone, whose mean is g and scatter s, M' = M + m (M - g) / (N - m) and
    SS' = SS - s - N m (M - g)^2 / (N - m) (Chan, Golub and LeVeque 1979, run backwards). The floor
    ``var_smoothing * max_j Var(X_j)`` is a function of all records, so all classes change (docs/mathematics.md,
    section 3.5). Where SS' keeps fewer than four digits of SS it is computed anew from the records.
    """

    name = "gaussian_nb"
    library = "GaussianNB"
    double = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if not estimator.var_smoothing > 0:
            return "var_smoothing is 0: a feature may lose all its variance without one person"
        if not np.ptp(designs.matrix(subject)[: subject.data.n], axis=0).any():
            return "every feature is constant"
        if estimator.priors is not None:
            array = np.asarray(estimator.priors, dtype=np.float64)
            if array.shape != (len(subject.classes),) or (array < 0).any() or not np.isclose(array.sum(), 1.0):
                return "priors do not list one probability for each class"
        return ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of a few passes over n d K numbers."""
        n, d, K = subject.data.n, designs.matrix(subject).shape[1], len(subject.classes)
        return Cost(0, 6e-9 * n * d * K, 16 * n * d + 48 * len(units) * K + BLOCK * 64)

    def model(self, subject: Subject) -> tuple[_Model, Prior]:
        """Return the moments of the classes, and the prior."""
        model = _model(subject, float(subject.recipe.library_estimator.var_smoothing))
        return model, _prior(subject, model.totals)

    def on_subsets(self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float) -> counts.OnSubsets:
        """Return models on subsets of the pool, from two-pass moments of each."""
        prior = _prior(subject, np.bincount(label).astype(np.float64))
        X = designs.matrix(subject).astype(np.float64, copy=False)
        X = X - X.mean(axis=0)
        joint = np.full((len(masks), len(X), totals.shape[1]), -np.inf)
        log_prior = prior.log(totals)
        for i, mask in enumerate(masks):
            floor = subject.recipe.library_estimator.var_smoothing * X[mask].var(axis=0).max() if mask.any() else 1.0
            for c in np.flatnonzero(totals[i]):
                own = X[mask & (label == c)]
                variance = own.var(axis=0) + floor
                square = (X - own.mean(axis=0)) ** 2
                joint[i, :, c] = -0.5 * (square @ (1 / variance) + np.log(2 * np.pi * variance).sum()) + log_prior[i, c]
        return counts.OnSubsets(counts.log_posteriors(joint), prior, np.asarray(~masks.any(axis=1)), "no record")


def _prior(subject: Subject, totals: Float) -> Prior:
    priors = subject.recipe.library_estimator.priors
    with np.errstate(divide="ignore"):
        fixed = None if priors is None else np.log(np.asarray(priors, dtype=np.float64))
    return Prior(totals, fixed, listed=fixed is not None)


ENGINE = GaussianNb()
