"""What first steps that learn make of the records when a person is left out: imputers, scalers and one-hot encoders.

Without a person a column of features is ``a z + b + c m``: z as everybody together gave it, m whether its value was
missing, (a, b, c) the person's own. A mean, a deviation or a median without one person has a closed form. A one-hot
column whose only holder leaves is 0 for everybody else, as if it was gone. Who changes anything else is left to refits.
What is followed is compared with real fits without a few people; where they differ nothing is said.
"""

import itertools
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.families.pipelines import steps
from privgate.subject.containers import take

Bool = NDArray[np.bool_]
#: largest change of a column's scale by one person that is followed
_FACTOR = 2.0
#: people without whom the first steps are really fitted, records compared, and how far features may be relatively
_TRIED, _ROWS, _CLOSE = 3, 1000, 1e-7


class Change(NamedTuple):
    """How a column of features changes without each of U people: (U,) or one number; ``missing`` (P,) of the pool.

    ``gone``: it is no column any more where only zeros are left.
    """

    a: Float | float = 1.0
    b: Float | float = 0.0
    c: Float | float = 0.0
    missing: Bool | None = None
    gone: bool = False


SAME = Change()


def refusal(step: Any, name: str = "") -> str:
    """Return which of the unfitted first steps is not followed; empty if all are."""
    if step is None or isinstance(step, str) or not steps.unfixed(step):
        return ""
    kind, library = type(step).__name__, type(step).__module__.startswith("sklearn.")
    if library and kind in ("Pipeline", "ColumnTransformer") and not getattr(step, "transformer_weights", None):
        return next((why for part, inner in steps.parts(step) if (why := refusal(inner, part))), "")
    why = "it learns in another way than an imputer, a scaler or one-hot codes"
    if library and kind == "SimpleImputer":
        nan = isinstance(step.missing_values, float) and np.isnan(step.missing_values) and not step.add_indicator
        known = step.strategy in ("mean", "median", "most_frequent", "constant")
        why = "" if nan and known else "it marks what is missing, or takes something else for it than NaN"
    elif library and kind == "OneHotEncoder":
        rare = step.min_frequency is not None or step.max_categories is not None
        why = "rare categories are merged by their counts" if rare else ""
    elif library and kind == "StandardScaler":
        why = ""
    return f"step {name!r} ({kind}) is not followed without each person: {why}" if why else ""


class Followed:
    """Features of the pool by fitted first steps, and how they change without each person.

    Parameters
    ----------
    first : Pipeline
        Fitted on the pool's first records.
    person : int64 array of shape (n,)
        Whose each of these is.

    Attributes
    ----------
    table : array of shape (P, d)
    changes : list of Change
        Of each column.
    unsure : bool array of shape (U,)
        Without whom features change in another way.
    """

    def __init__(self, first: Any, pool: Any, person: Index) -> None:
        self.first, self.person, self.size = first, person, np.bincount(person)
        self.unsure = np.zeros(len(self.size), dtype=bool)
        self.table, self.changes = self._through(first, pool, [SAME] * pool.shape[1])
        for change in self.changes:
            self.unsure |= (change.a > _FACTOR) | (np.asarray(change.a) < 1 / _FACTOR)

    def wrong(self, X: Any, y: Any, pool: Any, rng: np.random.Generator) -> bool:
        """Return whether the library gives other features, with everybody or without a few people."""
        from sklearn.base import clone

        train = self.table[: len(self.person)]
        if not np.isfinite(self.table).all() or not np.array_equal(_dense(self.first.transform(X)), train):
            return True
        sure, rows = np.flatnonzero(~self.unsure), rng.permutation(len(self.table))[:_ROWS]
        for u in rng.permutation(sure)[:_TRIED]:
            others, ours = np.flatnonzero(self.person != u), []
            for change, z in zip(self.changes, self.table.T, strict=True):
                if not (change.gone and not z[others].any() and z[: len(train)].any()):
                    a, b, c = (v[u] if isinstance(v, np.ndarray) else v for v in change[:3])
                    ours.append(a * z[rows] + b + (0 if change.missing is None else c * change.missing[rows]))
            real = _dense(clone(self.first).fit(take(X, others), y[others]).transform(take(pool, rows)))
            if real.shape[1] != len(ours) or not np.allclose(np.transpose(ours), real, rtol=_CLOSE, atol=_CLOSE):
                return True
        return False

    def _own(self, values: NDArray[Any]) -> Float:
        return np.bincount(self.person, values.astype(np.float64), len(self.size)).astype(np.float64)

    def _without(self, values: NDArray[Any]) -> Float:
        return np.asarray(values.astype(np.float64).sum() - self._own(values))

    def _alone(self, held: Bool) -> Bool:
        return np.asarray((self._without(held) == 0) & held.any())

    def _through(self, step: Any, table: Any, changes: list[Change]) -> tuple[NDArray[Any], list[Change]]:
        """Return what a fitted step makes of a table whose columns change; adds to who is unsure."""
        kind = type(step).__name__
        if step == "passthrough":
            return _dense(table), changes
        if kind == "Pipeline":
            for _, inner in step.steps:
                table, changes = self._through(inner, table, changes)
            return table, changes
        if kind == "ColumnTransformer":
            parts = list[Any]()
            for name, inner, _ in step.transformers_:
                at = list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names and selectors
                if step.output_indices_[name].stop > step.output_indices_[name].start:
                    some = table.iloc[:, at] if hasattr(table, "iloc") else table[:, at]
                    parts.append(self._through(inner, some, [changes[k] for k in at]))
            return np.column_stack([made for made, _ in parts]), [c for _, found in parts for c in found]
        made = _dense(step.transform(table))
        if kind == "StandardScaler":
            return made, [self._scaled(step, k, made[:, k], change) for k, change in enumerate(changes)]
        if any(change is not SAME for change in changes):
            raise ValueError("only a scaler is followed behind a step that learns")
        if not steps.unfixed(step):
            return made, [SAME] * made.shape[1]
        if kind == "OneHotEncoder":
            self._held(step, made[: len(self.person)])
            return made, [Change(gone=True)] * made.shape[1]
        return made, self._filled(step, table, made)

    def _filled(self, step: Any, table: Any, made: NDArray[Any]) -> list[Change]:
        import pandas as pd

        missing, n, found = np.asarray(pd.isna(table)), len(self.person), list[Change]()
        for column, empty, old in zip(made.T, missing.T, step.statistics_, strict=True):
            known, change = ~empty[:n], SAME
            self.unsure |= self._alone(known)
            if empty.any() and step.strategy == "most_frequent":
                mode = known & (column[:n] == old)
                other = np.unique(column[:n][known & ~mode], return_counts=True)[1].max(initial=0)
                self.unsure |= (self._own(mode) > 0) & (self._without(mode) <= other)
            elif empty.any() and step.strategy == "mean":
                total = self._without(np.where(known, column[:n], 0.0))
                change = Change(c=total / np.maximum(self._without(known), 1) - old, missing=empty)
            elif empty.any() and step.strategy == "median":
                self.unsure |= self._own(known) > 1  # one of several records moves it differently
                change = Change(c=self._median(column[:n].astype(np.float64), known, float(old)) - old, missing=empty)
            found.append(change)
        return found

    def _median(self, x: Float, known: Bool, old: float) -> Float:
        """Return the median without each person, who has one record with a value or none."""
        order = np.flatnonzero(known)[np.argsort(x[known], kind="stable")]
        s, rank, left = x[order], np.arange(len(order)), max(len(order) - 1, 1)
        low, high = (left - 1) // 2, left // 2
        new = np.full(len(self.size), old)
        if len(order) > 1:
            new[self.person[order]] = (s[low + (rank <= low)] + s[high + (rank <= high)]) / 2
        return new

    def _held(self, step: Any, made: NDArray[Any]) -> None:
        drops = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
        edges = np.cumsum([0, *(len(c) - (d is not None) for c, d in zip(step.categories_, drops, strict=True))])
        for first, last in itertools.pairwise(edges):
            block = made[:, first:last]
            for one in np.column_stack([block, 1 - block.sum(axis=1)]).T:
                if step.handle_unknown == "error" or step.drop_idx_ is not None:
                    self.unsure |= self._alone(one > 0.5)

    def _scaled(self, step: Any, k: int, made: NDArray[Any], change: Change) -> Change:
        z, n = made[: len(self.person)].astype(np.float64), len(self.person)
        if not z.std() > 1e-9:  # a column without any spread keeps its scale of 1
            return SAME
        s0, m0 = (1.0 if step.scale_ is None else step.scale_[k]), (step.mean_[k] if step.with_mean else 0.0)
        A, B, c = change.a * s0, change.a * m0 + change.b, change.c
        empty, left = np.zeros(n) if change.missing is None else change.missing[:n], np.maximum(n - self.size, 1)
        m1, m2, q1, q2 = (self._without(v) / left for v in (z, z**2, empty, z * empty))
        square = A**2 * (m2 - m1**2) + 2 * A * c * (q2 - m1 * q1) + c**2 * (q1 - q1**2)
        self.unsure |= square < (A / _FACTOR) ** 2 * z.var()
        s = np.sqrt(np.where(self.unsure, 1.0, square)) if step.with_std else 1.0
        centre = A * m1 + B + c * q1 if step.with_mean else 0.0
        return Change(A / s, (B - centre) / s, c / s, change.missing)


def _dense(made: Any) -> NDArray[Any]:
    return np.asarray(made.toarray() if hasattr(made, "toarray") else made)
