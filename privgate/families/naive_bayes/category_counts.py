"""Naive Bayes over categories: counts, what leaving a unit out does to them, and which values a query may take."""

from dataclasses import dataclass, replace
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privgate.families.over_all_queries.separable import Tables, offsets

Float = NDArray[np.float64]
Index = NDArray[np.int64]


@dataclass(frozen=True, eq=False)
class Counts:
    """Count tables of a naive Bayes model over categories. Features' values ("cells") lie one after the other.

    Parameters
    ----------
    codes : int64 array of shape (n, m)
        Value of every feature of every record, from 0.
    labels : int64 array of shape (n,)
        Class position of every record.
    n_classes : int
    sizes : int64 array of shape (m,)
        V_j, which enters the smoothing.
    floor : int64 array of shape (m,)
        What V_j would at least be without any one unit (declared categories); 0 where nothing is declared.
    allowed : bool array of shape (cells,)
        Which values a query may take.
    alpha : float
        Additive smoothing, at least 0.
    learnt_prior : bool
        Whether class priors follow the class counts.
    log_prior : float64 array of shape (K,), optional
        Fixed priors; uniform if absent and ``learnt_prior`` is false.
    weights : float64 array of shape (n,), optional
        How many records each row stands for; 1 if absent. Leaving out a row leaves out one of them.
    negated : bool
        Two values a feature, and the library takes the second one's probability off 1 in floating point.
    """

    codes: Index
    labels: Index
    n_classes: int
    sizes: Index
    floor: Index
    allowed: NDArray[np.bool_]
    alpha: float
    learnt_prior: bool = True
    log_prior: Float | None = None
    weights: Float | None = None
    negated: bool = False

    @cached_property
    def starts(self) -> Index:
        """Cell at which each feature begins, shape (m,)."""
        return offsets(self.sizes)

    @cached_property
    def feature_of(self) -> Index:
        """Feature of each cell, shape (cells,)."""
        return np.repeat(np.arange(len(self.sizes)), self.sizes)

    @cached_property
    def table(self) -> Float:
        """Counts, shape (K, cells)."""
        cells = int(self.sizes.sum())
        flat = (self.labels[:, None] * cells + self.codes + self.starts).ravel()
        weights = None if self.weights is None else np.repeat(self.weights, len(self.sizes))
        table = np.bincount(flat, weights=weights, minlength=self.n_classes * cells)
        return table.reshape(self.n_classes, cells).astype(np.float64)

    @cached_property
    def class_counts(self) -> Float:
        """Records of each class, shape (K,)."""
        return np.bincount(self.labels, weights=self.weights, minlength=self.n_classes).astype(np.float64)

    def prior(self, class_counts: Float) -> Float:
        """Return log-priors up to a common constant, shape (K,)."""
        if self.learnt_prior:
            return np.log(class_counts)
        return np.zeros(self.n_classes) if self.log_prior is None else self.log_prior

    def log_theta(self, table: Float, class_counts: Float) -> Float:
        """Return log-probabilities of every cell given the class, shape (K, cells)."""
        return np.log(table + self.alpha) - np.log(class_counts[:, None] + self.alpha * self.sizes[self.feature_of])

    def without(self, rows: Index) -> tuple[Float, Float]:
        """Return (table, class counts) with the given records left out."""
        cells = self.table.shape[1]
        flat = (self.labels[rows, None] * cells + self.codes[rows] + self.starts).ravel()
        gone = np.bincount(flat, minlength=self.table.size).reshape(self.table.shape)
        return self.table - gone, self.class_counts - np.bincount(self.labels[rows], minlength=self.n_classes)

    @property
    def records(self) -> Index:
        """A number for each row, equal for equal records."""
        columns = np.column_stack([self.labels, self.codes])
        sizes = [self.n_classes, *self.sizes.tolist()]
        if np.prod(np.asarray(sizes, dtype=np.float64)) < 2**62:
            return np.asarray(np.ravel_multi_index(tuple(columns.T), sizes), dtype=np.int64)
        return np.asarray(np.unique(columns, axis=0, return_inverse=True)[1].ravel(), dtype=np.int64)

    def merged(self) -> tuple["Counts", Index]:
        """Return the same counts with one row for all equal records, and which row each record became."""
        _, first, inverse = np.unique(self.records, return_index=True, return_inverse=True)
        weights = np.bincount(inverse, weights=self.weights, minlength=len(first)).astype(np.float64)
        return replace(self, codes=self.codes[first], labels=self.labels[first], weights=weights), inverse.ravel()

    def undefined_alone(self, rows: Index) -> NDArray[np.bool_]:
        """Return ``undefined`` for each single record of ``rows``, shape (U,)."""
        last = self.starts + self.sizes - 1
        only = (self.table[:, last].sum(axis=0) == 1) & (self.sizes > self.floor)
        holds = (self.codes[rows] == self.sizes - 1) & only
        return np.asarray((self.class_counts[self.labels[rows]] <= 1) | holds.any(axis=1))

    def undefined(self, rows: Index) -> bool:
        """Whether the model without these records lacks a class or a category that the model with them has."""
        gone = np.bincount(self.labels[rows], minlength=self.n_classes)
        if bool(((self.class_counts - gone) <= 0).any()):
            return True
        last = self.starts + self.sizes - 1
        holders = (self.codes[rows] == self.sizes - 1).sum(axis=0)
        return bool(((self.table[:, last].sum(axis=0) == holders) & (holders > 0) & (self.sizes > self.floor)).any())

    def tables(self, rows: Index) -> Tables:
        """Return scores with and without the given records, columns restricted to allowed values."""
        table, counts = self.without(rows)
        cut = [np.flatnonzero(self.allowed & (self.feature_of == j)) for j in range(len(self.sizes))]
        with_, without = self._log_theta, self.log_theta(table, counts)
        return Tables(
            self.prior(self.class_counts),
            self.prior(counts),
            tuple(with_[:, c] for c in cut),
            tuple(without[:, c] for c in cut),
        )

    @cached_property
    def _log_theta(self) -> Float:
        return self.log_theta(self.table, self.class_counts)

    @property
    def spread(self) -> float:
        """Largest difference of two classes' scores over all allowed queries, impossible values left out."""
        total = self.prior(self.class_counts)
        total = total[:, None] - total[None, :]
        with np.errstate(divide="ignore", invalid="ignore"):
            scores = self._log_theta
            for j in range(len(self.sizes)):
                own = scores[:, self.allowed & (self.feature_of == j)]
                apart = own[:, None, :] - own[None, :, :]
                total = total + np.where(np.isfinite(apart), apart, -np.inf).max(axis=2, initial=-np.inf)
        return float(np.nan_to_num(total, nan=-np.inf).max())

    @property
    def queries(self) -> float:
        """Number of different queries."""
        return float(np.prod(np.add.reduceat(self.allowed, self.starts).astype(np.float64)))

    @cached_property
    def never_zero(self) -> NDArray[np.bool_]:
        """Classes that give every allowed query a positive probability, shape (K,)."""
        if self.alpha > 0:
            return np.ones(self.n_classes, dtype=bool)
        return np.asarray((self.table[:, self.allowed] > 0).all(axis=1))
