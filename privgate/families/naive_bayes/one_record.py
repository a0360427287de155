"""Naive Bayes over categories, one record left out: cheap bounds for all records at once.

Only the record's own class changes, and each feature offers two changes: ``u_j`` where the query agrees with the
record, ``s_j`` where it does not (docs/mathematics.md, section 3.1).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families.naive_bayes.category_counts import Counts
from privgate.families.over_all_queries import label_change
from privgate.families.over_all_queries.frontier import Points, at_vertices, largest_label_change

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: entries of the largest temporary array
_CHUNK = 4_000_000


@dataclass(frozen=True, eq=False)
class Agreement:
    """Score changes of single records.

    Parameters
    ----------
    label : int64 array of shape (U,)
    cell : int64 array of shape (U, m)
        Cell of each feature's value.
    d0 : float64 array of shape (U,)
    agree, differ : float64 array of shape (U, m)
        ``u_j`` and ``s_j``; ``differ`` is ``-inf`` where no other value is allowed.
    """

    label: Index
    cell: Index
    d0: Float
    agree: Float
    differ: Float

    @property
    def high(self) -> Float:
        """Return d_max, at the record's own features: agreeing always raises d more."""
        return np.asarray(self.d0 + self.agree.sum(axis=1))

    @property
    def low(self) -> Float:
        """Return d_min, at a query that differs wherever it can."""
        return np.asarray(self.d0 + np.where(np.isneginf(self.differ), self.agree, self.differ).sum(axis=1))

    @property
    def odds(self) -> Float:
        """Return ODTP, bound (A)."""
        return np.maximum(self.high, -self.low)


def agreement(counts: Counts, rows: Index) -> Agreement:
    """Return the score changes of single records ``rows``; the class keeps at least one record without them."""
    y, cell = counts.labels[rows], counts.codes[rows] + counts.starts
    n_y, a, V = counts.class_counts[y], counts.alpha, counts.sizes
    c = counts.table[y[:, None], cell]
    d0 = np.log(n_y / (n_y - 1)) if counts.learnt_prior else np.zeros(len(rows))
    s = np.log1p(-1.0 / (n_y[:, None] + a * V))
    with np.errstate(divide="ignore"):
        u = np.log((c + a) / (c - 1 + a)) + s
    other = np.add.reduceat(counts.allowed, counts.starts) > 1
    return Agreement(y, cell, d0, u, np.where(other, s, -np.inf))


def _others(lam: Float, cell: Index, counts: Counts, sign: int) -> Float:
    """Return the best allowed contribution that differs from the record's value, shape (U, K, m)."""
    signed = np.where(counts.allowed, sign * lam, -np.inf)
    best = np.maximum.reduceat(signed, counts.starts, axis=1)
    at_best = signed == best[:, counts.feature_of]
    # a second value that is as good counts as another one
    first = np.cumsum(at_best, axis=1)
    before = np.concatenate([np.zeros((len(lam), 1), dtype=first.dtype), first], axis=1)[:, counts.starts]
    is_first = at_best & (first - before[:, counts.feature_of] == 1)
    second = np.maximum.reduceat(np.where(is_first, -np.inf, signed), counts.starts, axis=1)
    mine = np.swapaxes(is_first[:, cell], 0, 1)
    return sign * np.where(mine, second[None], best[None])


def cheap(counts: Counts, rows: Index, *, maximum_only: bool = False) -> tuple[Float, Float]:
    """Return (lower, upper) for single records, each of shape (U,): bounds (A), (B) and, for two classes, (C).

    Every class keeps a record, every category a place, and smoothing is positive; the caller has seen to it. With
    ``maximum_only`` bound (C) is kept for records that may hold the maximum.
    """
    lower, upper = np.zeros(len(rows)), np.zeros(len(rows))
    for part, place in _parts(counts, rows):
        lower[place], upper[place] = _one_class(counts, part, frontier=not maximum_only)
    if maximum_only and len(rows):
        top = np.flatnonzero(upper > lower.max())
        for part, place in _parts(counts, rows[top]):
            lower[top[place]], upper[top[place]] = _one_class(counts, part, frontier=True)
    return lower, upper


def _parts(counts: Counts, rows: Index) -> Iterator[tuple[Index, Index]]:
    """Yield records class by class, in pieces that fit the memory."""
    step = max(1, _CHUNK // max(1, counts.n_classes * len(counts.sizes)))
    for c in range(counts.n_classes):
        place = np.flatnonzero(counts.labels[rows] == c)
        for start in range(0, len(place), step):
            yield rows[place[start : start + step]], place[start : start + step]


def _one_class(counts: Counts, rows: Index, *, frontier: bool) -> tuple[Float, Float]:
    a = agreement(counts, rows)
    y = int(a.label[0])
    others = np.array([c for c in range(counts.n_classes) if c != y])
    n_y, alpha = counts.class_counts[y], counts.alpha
    log_theta = counts.log_theta(counts.table, counts.class_counts)[others]
    norm = np.log(n_y - 1 + alpha * counts.sizes)
    # contributions to the log-odds against the own class, in the model without the record
    lam = log_theta - np.log(counts.table[y] + alpha) + norm[counts.feature_of]
    own = np.log(counts.table[y][a.cell] - 1 + alpha) - norm
    lam_own = np.swapaxes(log_theta[:, a.cell], 0, 1) - own[:, None, :]
    prior = counts.prior(counts.class_counts)
    rho = prior[others] - (np.log(n_y - 1) if counts.learnt_prior else prior[y])
    most, least = _others(lam, a.cell, counts, 1), _others(lam, a.cell, counts, -1)
    r_high = np.logaddexp.reduce(rho + np.maximum(lam_own, most).sum(axis=2), axis=1)
    r_low = np.logaddexp.reduce(rho + np.minimum(lam_own, least).sum(axis=2), axis=1)
    r_self = np.logaddexp.reduce(rho + lam_own.sum(axis=2), axis=1)
    upper = np.minimum(a.odds, label_change.from_ranges(a.low, a.high, r_low, r_high))
    lower = label_change.largest(a.high, r_self)
    if not frontier:
        return lower, np.maximum(lower, upper)
    if counts.n_classes == 2:
        found, hull = _two_classes(a, rho, lam_own[:, 0], most[:, 0], least[:, 0])
        lower, upper = np.maximum(lower, found), np.minimum(upper, hull)
    else:
        lower = np.maximum(lower, _against_one(a, rho, lam_own, most))
    return lower, np.maximum(lower, upper)


def _against_one(a: Agreement, rho: Float, lam_own: Float, most: Float) -> Float:
    """Return a lower bound for more than two classes: own-label changes grow with r, and one class alone is less."""
    rival = (rho + np.maximum(lam_own, most).sum(axis=2)).argmax(axis=1)
    row = np.arange(len(rival))
    own, best = lam_own[row, rival], most[row, rival]
    other = ~np.isneginf(a.differ)
    second = (np.where(other, a.differ, a.agree), np.where(other, best, own))
    return at_vertices(Points(a.d0, rho[rival], (a.agree, own), second))


def _two_classes(a: Agreement, rho: Float, lam_own: Float, most: Float, least: Float) -> tuple[Float, Float]:
    """Return (lower, upper) on the frontier; with two classes r is a sum over features too.

    Own-label changes want large r, other-label changes small r, so the differing value is chosen for either.
    """
    other = ~np.isneginf(a.differ)
    r0 = np.broadcast_to(rho[0], a.d0.shape)
    lower, upper = np.zeros(len(a.d0)), np.zeros(len(a.d0))
    for best, own in ((most, True), (least, False)):
        second = (np.where(other, a.differ, a.agree), np.where(other, best, lam_own))
        found, hull = largest_label_change(Points(a.d0, r0, (a.agree, lam_own), second), own=own)
        lower, upper = np.maximum(lower, found), np.maximum(upper, hull)
    return lower, upper
