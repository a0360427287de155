"""Naive Bayes over categories: counts, what leaving a unit out does to them, and which values a query may take."""

from dataclasses import dataclass
from functools import cached_property

import numpy as np
from numpy.typing import NDArray

from privgate.certificates.separable import Tables, offsets

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
        return np.bincount(flat, minlength=self.n_classes * cells).reshape(self.n_classes, cells).astype(np.float64)

    @cached_property
    def class_counts(self) -> Float:
        """Records of each class, shape (K,)."""
        return np.bincount(self.labels, minlength=self.n_classes).astype(np.float64)

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
    def queries(self) -> float:
        """Number of different queries."""
        return float(np.prod(np.add.reduceat(self.allowed, self.starts).astype(np.float64)))

    @cached_property
    def never_zero(self) -> NDArray[np.bool_]:
        """Classes that give every allowed query a positive probability, shape (K,)."""
        if self.alpha > 0:
            return np.ones(self.n_classes, dtype=bool)
        return np.asarray((self.table[:, self.allowed] > 0).all(axis=1))
