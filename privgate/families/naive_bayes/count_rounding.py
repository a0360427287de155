"""Rounding of naive Bayes over categories: how far scikit-learn's answers are from the counts' exact ones.

``CategoricalNB`` takes logarithms of counts, whose errors are a few units in the last place. ``BernoulliNB`` computes
``ln(1 - exp(ln p))``: the error of ``ln p``, about ``ulp(ln n)``, is divided by ``1 - p``, which is as small as the
smoothing where everybody in a class has a feature (docs/mathematics.md, section 16).
"""

import numpy as np
from numpy.typing import NDArray

from privgate.families.naive_bayes.category_counts import Counts
from privgate.families.over_all_queries import rounding
from privgate.families.over_all_queries.rounding import LOG, U

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: entries of the largest temporary array
_CHUNK = 4_000_000


def of_model(counts: Counts) -> float:
    """Return the error of every log-probability of the model with all records, nats; infinite where unbounded."""
    return float(rounding.of_answers(*_scores(counts, counts.table, counts.class_counts)))


def of_changes(counts: Counts, units: list[Index]) -> Float:
    """Return how far rounding moves the change that leaving out each of ``units`` makes, shape (U,), nats.

    Both models err; the library's error and the certificate's own are counted.
    """
    found = np.zeros(len(units))
    single = np.array([len(rows) == 1 for rows in units], dtype=bool)
    found[single] = _alone(counts, np.array([units[k][0] for k in np.flatnonzero(single)], dtype=np.int64))
    for k in np.flatnonzero(~single):
        table, n = counts.without(units[k])
        found[k] = rounding.of_answers(*_scores(counts, table, n))
    return found + of_model(counts)


def _alone(counts: Counts, rows: Index) -> Float:
    """Return the error of the model without each single record, shape (U,)."""
    error, size = _scores(counts, counts.table, counts.class_counts)
    found, m = np.empty(len(rows)), len(counts.sizes)
    step = max(1, _CHUNK // (m + counts.n_classes))
    n = np.maximum(counts.class_counts - 1, 1)
    less = [_cells(counts, np.maximum(t, 0), n) for t in _less(counts)]
    for start in range(0, len(rows), step):
        part = rows[start : start + step]
        y = counts.labels[part]
        one, two = (np.repeat(v[None], len(y), axis=0) for v in (error, size))
        if counts.negated:
            held = counts.codes[part] == 1
            cells = tuple(np.where(held, less[1][k][y], less[0][k][y]) for k in range(2))
        else:
            cells = tuple(less[0][k][y] for k in range(2))
        row = np.arange(len(y))
        one[row, y], two[row, y] = _summed(counts, *cells)
        found[start : start + step] = rounding.of_answers(one, two)
    return found


def _less(counts: Counts) -> list[Float]:
    """Return the tables that taking off one record can leave, each feature on its own."""
    if not counts.negated:
        return [counts.table - 1]  # one more than this in all cells but one: ``_cells`` covers both
    zeros, ones = counts.table.copy(), counts.table.copy()
    zeros[:, ::2] -= 1
    ones[:, 1::2] -= 1
    return [zeros, ones]


def _scores(counts: Counts, table: Float, n: Float) -> tuple[Float, Float]:
    """Return (error, largest absolute value) of each class's score, shapes (K,)."""
    return _summed(counts, *_cells(counts, np.maximum(table, 0), np.maximum(n, 1)))


def _summed(counts: Counts, error: Float, size: Float) -> tuple[Float, Float]:
    """Return (error, size) of sums over features, the prior among them."""
    prior = np.abs(counts.prior(np.maximum(counts.class_counts - 1, 1))).max() + np.log(counts.class_counts.sum()) + 1
    whole = size.sum(axis=-1) + prior
    return error.sum(axis=-1) + 2 * LOG * prior + (size.shape[-1] + 8) * U * whole, whole


def _cells(counts: Counts, table: Float, n: Float) -> tuple[Float, Float]:
    """Return (error, size) of each feature's contribution to the scores at its worst value, shapes (K, m)."""
    if counts.negated:
        return negated(table[:, 1::2], table[:, ::2], counts.alpha)
    with np.errstate(divide="ignore"):
        logs = np.abs(np.log(np.stack([table, table + 1]) + counts.alpha))
    # without smoothing a count of 0 is exactly impossible, in the library too
    logs = np.where(np.isinf(logs), 0.0, logs).max(axis=0)
    size = np.maximum.reduceat(logs, counts.starts, axis=1) + np.abs(np.log(n[:, None] + counts.alpha * counts.sizes))
    return 2 * LOG * size + (counts.sizes + 8) * U, size


def negated(ones: Float, zeros: Float, alpha: float) -> tuple[Float, Float]:
    """Return (error, size) of ``x ln p + (1 - x) ln(1 - p)`` at its worst, ``1 - p`` computed from ``ln p``.

    Parameters
    ----------
    ones, zeros : float64 arrays of one shape
        Records of the class with the feature and without it.
    alpha : float

    Notes
    -----
    Where the query has the feature, ``ln(1 - p)`` is added and taken off again, so only the rounding of the sum stays.
    """
    total = ones + zeros + 2 * alpha
    with np.errstate(divide="ignore", invalid="ignore"):
        logs = np.abs(np.log(ones + alpha)) + np.abs(np.log(total))
        own = 2 * LOG * logs + 4 * U
        p, q = (ones + alpha) / total, (zeros + alpha) / total
        taken = rounding.of_logarithm(2 * (own * p / q + U))
        size = logs + 2 * np.abs(np.log(q))
        found = np.maximum(own, taken + 2 * LOG * size)
    return np.where(np.isnan(found), np.inf, found), np.where(np.isfinite(size), size, np.inf)
