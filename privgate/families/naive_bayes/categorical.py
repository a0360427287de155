"""Categorical naive Bayes: without a unit in closed form in one pass."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families import designs
from privgate.families.closed_form import BLOCK, Removal
from privgate.families.engine import Cost
from privgate.families.naive_bayes import counts
from privgate.families.over_all_queries import applies
from privgate.families.retrained import Seeds
from privgate.subject.subject import Subject

SHRUNK = "the person alone holds a feature's highest category, unknown to training without it; declare min_categories"
UNKNOWN = "a query holds a category beyond those that the model knows"


@dataclass(frozen=True, eq=False)
class _Model(counts.ClassModel):
    """Counts of each (feature, category, class), scikit-learn's convention: V_j = max(highest code + 1, declared)."""

    codes: NDArray[np.int64]  # pool, (P, d)
    tables: tuple[Float, ...]  # (V_j, K) counts
    totals: Float  # (K,)
    alpha: float
    n: int
    declared: tuple[bool, ...]  # whether min_categories alone fixes V_j

    @property
    def width(self) -> int:
        return int(self.codes.shape[1]) * 2

    def scores(self, queries: Index, unit: Index, prepared: Any) -> tuple[Float, None]:
        out = np.zeros((len(queries), len(self.totals)))
        for j, table in enumerate(self.tables):
            V = len(table)
            with np.errstate(divide="ignore"):
                log = np.vstack([np.log(table + self.alpha) - np.log(self.totals + self.alpha * V), _beyond(table)])
            code = self.codes[queries, j]
            out += log[np.where((code >= 0) & (code < V), code, V)]
        return out, None

    def without(self, queries: Index, pair: Index, removal: Removal, prepared: Any) -> Float:
        out = np.zeros(len(queries))
        label, lost = removal.label[pair], removal.lost[pair].astype(np.float64)
        for j, table in enumerate(self.tables):
            V = len(table)
            code = self.codes[queries, j]
            known = (code >= 0) & (code < V)
            count = table[np.where(known, code, 0), label] - self._same(queries, pair, removal, j)
            with np.errstate(divide="ignore"):
                out += np.where(known, np.log(count + self.alpha), -np.inf)
                out -= np.log(self.totals[label] - lost + self.alpha * V)
        return out

    def _same(self, queries: Index, pair: Index, removal: Removal, j: int) -> NDArray[Any]:
        """Return how many lost records of each pair agree with the query in feature j."""
        if removal.single:
            return np.asarray(self.codes[queries, j] == self.codes[removal.rows[pair], j])
        size = removal.lost[pair]
        begin = np.cumsum(size) - size
        member = removal.rows[np.repeat(removal.start[pair] - begin, size) + np.arange(size.sum())]
        agree = self.codes[member, j] == np.repeat(self.codes[queries, j], size)
        return np.add.reduceat(agree.astype(np.int64), begin) if len(begin) else np.zeros(0)

    def missing(self, subject: Subject, units: Index) -> Mapping[int, str]:
        """Name the units that alone hold the highest category of a feature whose categories are not declared."""
        unit_of_row = subject.data.units.owner
        found: set[int] = set()
        for j, table in enumerate(self.tables):
            if not self.declared[j]:
                holders = unit_of_row[np.flatnonzero(self.codes[: self.n, j] == len(table) - 1)]
                found |= {int(holders[0])} if (holders == holders[0]).all() else set()
        return {int(u): SHRUNK for u in np.flatnonzero(np.isin(units, sorted(found)))} if found else {}

    def representatives(self, rows: Index, labels: Index) -> tuple[Index, Index] | None:
        """Return one record for each cell of the contingency table, if that has far fewer cells than records."""
        K = len(self.totals)
        cells = K * int(np.prod([len(t) for t in self.tables], dtype=np.float64))
        if cells > max(len(rows), 100_000):
            return None
        code = labels[rows].copy()
        for j, table in enumerate(self.tables):
            code *= len(table)
            code += self.codes[rows, j]
        place = np.full(cells, -1, dtype=np.int64)
        place[code] = np.arange(len(rows))
        seen = np.flatnonzero(place >= 0)
        if 2 * len(seen) > len(rows):
            return None
        first = np.sort(place[seen])
        rank = np.empty(cells, dtype=np.int64)
        rank[code[first]] = np.arange(len(first))
        return first, rank[code]


def _beyond(table: Float) -> Float:
    """Return the row looked up by categories that the model does not know."""
    return np.full((1, table.shape[1]), -np.inf)


def _model(subject: Subject, estimator: Any) -> _Model:
    codes = designs.matrix(subject).astype(np.int64, copy=False)
    n, labels, K = subject.data.n, subject.label_codes, len(subject.classes)
    highest = codes[:n].max(axis=0) + 1
    minimum = np.zeros_like(highest) if estimator.min_categories is None else np.asarray(estimator.min_categories)
    sizes = np.maximum(highest, minimum)
    tables = tuple(
        np.bincount(codes[:n, j] * K + labels, minlength=V * K).reshape(V, K).astype(np.float64)
        for j, V in enumerate(sizes)
    )
    totals = np.bincount(labels, minlength=K).astype(np.float64)
    declared = tuple(bool(v) for v in np.broadcast_to(minimum, highest.shape) >= highest)
    return _Model(codes, tables, totals, float(applies.smoothings(estimator)), n, declared)


class CategoricalNb(counts.CountingEngine):
    """Leave-one-out for ``sklearn.naive_bayes.CategoricalNB``; exact, O(n d K), no retraining.

    Identity: removing records of class c lowers its counts; log p'(x | c) is the sum over
    features of ln(c_j - m_j + a) - ln(N_c - m + a V_j).
    The number of categories V_j follows scikit-learn: where it shrinks without the unit, training knows one category
    less and raises at the unit's own record, so the unit is undefined (docs/mathematics.md, section 3.1).
    """

    name = "categorical_nb"
    library = "CategoricalNB"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if why := counts.prior_refusal(estimator, subject):
            return why
        codes = designs.matrix(subject)[: subject.data.n].astype(np.int64)
        if codes.min() < 0:
            return "records hold negative categories"
        if estimator.min_categories is not None:
            array = np.asarray(estimator.min_categories)
            if array.dtype.kind != "i" or array.shape not in ((), (codes.shape[1],)) or array.min() < 1:
                return "min_categories does not list one whole number for each feature"
        fine = np.ndim(estimator.alpha) == 0 and float(estimator.alpha) >= 0
        return "" if fine else "alpha is not one number above 0"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one pass over the data."""
        n, K = len(units), len(subject.classes)
        return Cost(0, 4e-7 * subject.data.n, 48 * n * K + BLOCK * 24)

    def model(self, subject: Subject) -> tuple[_Model, counts.Prior]:
        """Return the counts of categories, and the prior."""
        estimator = subject.recipe.library_estimator
        return _model(subject, estimator), counts.prior_of(estimator, subject)

    def on_subsets(
        self, subject: Subject, masks: NDArray[np.bool_], label: Index, totals: Float
    ) -> counts.OnSubsets | None:
        """Return models on subsets of the pool; products with one-hot codes count, and add logarithms up, for all."""
        import scipy.sparse as sp

        estimator = subject.recipe.library_estimator
        prior, alpha = counts.prior_of(estimator, subject), float(applies.smoothings(estimator))
        codes = designs.matrix(subject).astype(np.int64, copy=False)
        if codes.min() < 0:
            return None
        top = codes.max(axis=0)
        least = np.broadcast_to(0 if estimator.min_categories is None else estimator.min_categories, top.shape)
        width = np.maximum(top + 1, least)
        place = codes + np.cumsum(width) - width
        rows = np.arange(0, codes.size + 1, codes.shape[1])
        hot = sp.csr_matrix((np.ones(codes.size), place.ravel(), rows), shape=(len(codes), int(width.sum())))
        known = _known(codes, masks, least)
        log_p = np.empty((len(masks), len(codes), totals.shape[1]))
        step = max(1, 20 * BLOCK // (hot.shape[1] * totals.shape[1]))
        for i in range(0, len(masks), step):
            part = slice(i, i + step)
            with np.errstate(divide="ignore"):
                table = np.log(_seen(hot, label, masks[part], totals.shape[1]) + alpha)
                held = np.log(totals[part, :, None] + alpha * known[part, None]).sum(axis=2)
            constant = np.where(totals[part] > 0, prior.log(totals[part]) - held, -np.inf)
            _answer(hot, table, constant, log_p[part])
        return counts.OnSubsets(log_p, prior, (known <= top).any(axis=1), UNKNOWN)


def _known(codes: Index, masks: NDArray[np.bool_], least: Index) -> Index:
    """Return how many categories of each feature a model trained on each subset knows, shape (N, c)."""
    known = np.repeat(least[None].astype(np.int64), len(masks), axis=0)
    for j in np.flatnonzero(codes.max(axis=0) + 1 > least):
        known[:, j] = np.maximum(least[j], np.where(masks, codes[:, j], -1).max(axis=1) + 1)
    return known


def _seen(hot: Any, label: Index, masks: NDArray[np.bool_], K: int) -> Float:
    """Return how often each model saw each category of all features in each class, shape (V, K, N)."""
    seen = np.empty((hot.shape[1], K, len(masks)))
    for k in range(K):
        at = label == k
        seen[:, k] = hot[at].T @ masks[:, at].T.astype(np.float64)
    return seen


def _answer(hot: Any, table: Float, constant: Float, out: Float) -> None:
    """Write log-probabilities (N, P, K) from logarithms (V, K, N) and constants (N, K), block by block."""
    V, K, N = table.shape
    step = max(64, BLOCK // (K * N))
    for i in range(0, hot.shape[0], step):
        joint = (hot[i : i + step] @ table.reshape(V, K * N)).reshape(-1, K, N)
        joint += constant.T
        out[:, i : i + step] = counts.by_class(joint, axis=1).transpose(2, 0, 1)


ENGINE = CategoricalNb()
