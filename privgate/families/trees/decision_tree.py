"""Classification trees without each record, exactly; tied splits are handed on."""

from typing import Any

import numpy as np

from privgate.families import design
from privgate.families.engine import Asked, Cost, LibraryEngine
from privgate.families.removal import VANISHED, Float, vanishing
from privgate.families.retrained import Index, Retrained, Seeds, Status
from privgate.families.trees.tree_paths import Falls, falls
from privgate.families.trees.tree_splits import Growth
from privgate.statistics.leakage import largest_change
from privgate.subject.subject import Subject

#: scikit-learn draws no threshold between neighbouring values closer than this, added in single precision
SAME_VALUE = np.float32(1e-7)
PLAIN = {
    "criterion": "gini",
    "splitter": "best",
    "max_features": None,
    "max_leaf_nodes": None,
    "min_weight_fraction_leaf": 0.0,
    "min_impurity_decrease": 0.0,
    "class_weight": None,
    "ccp_alpha": 0.0,
    "monotonic_cst": None,
}


class DecisionTree(LibraryEngine):
    """Leave-one-out for ``DecisionTreeClassifier`` (CART: Gini, best splits of all features); exact without ties.

    Every record is followed down the tree grown without it; nodes are shared (``tree_paths``). Where its best splits
    tie, it is followed down each of them, because scikit-learn breaks ties by a shuffle of the features that a removal
    changes. A record whose branches end in different answers, all of them below the policy's limits, is answered up to
    an ``error`` that holds for every seed; any other one is handed on. The tree with every record is the
    library's own, one a seed. Answers each record at its own features only. O(n d log n) a level.
    """

    name = "decision_tree"
    library = "DecisionTreeClassifier"
    version = 4
    hands_on = "splits tie on their way"
    single_records = True
    limited = True

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        for name, value in PLAIN.items():
            if getattr(estimator, name, value) != value:
                return f"{name} is not {value!r}"
        whole = all(isinstance(v, int) for v in (estimator.min_samples_split, estimator.min_samples_leaf))
        return "" if whole else "min_samples_split or min_samples_leaf is a share of the records"

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of about ten levels of sorting."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2e-7 * n * d * np.log2(max(n, 2)) + 1e-3 * len(units), 40 * n * d)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return the records without tied splits; ties, people with several records and other queries are handed on."""
        subject, units, members = asked.subject, asked.units, asked.subject.data.units
        single = np.array([len(members[u]) == 1 for u in units], dtype=bool)
        record = np.array([members[u][0] for u in units], dtype=np.int64)
        row_unit, row_query = asked.queries or (np.arange(len(units)), record)
        if asked.queries is not None:
            single[row_unit[row_query != record[row_unit]]] = False
        growth = growth_of(subject)
        single &= ~growth.squeezed[record]
        found = falls(growth, record[single])
        kept = single & (~found.tied[record] | (~found.lost[record] if asked.limits else False))
        place = np.cumsum(kept) - 1
        rows = kept[row_unit]
        at = row_query[rows]
        made = self._made(subject, found, units[kept], (place[row_unit[rows]], at), asked.seeds)
        # whoever reads an error takes both models to be off by it
        sure = (made.error == 0) | (_pdtp(made) + 2 * made.error <= min(asked.limits, default=-np.inf))
        return made.select(sure), np.sort(np.concatenate([units[~kept], made.units[~sure]]))

    def drawn(self, subject: Subject) -> Index:
        """Return the units without whom the library draws between splits that tell them apart: the seed decides."""
        alone = np.array([u for u, rows in enumerate(subject.data.units) if len(rows) == 1], dtype=np.int64)
        record = np.array([subject.data.units[u][0] for u in alone], dtype=np.int64)
        growth = growth_of(subject)
        fine = ~growth.squeezed[record]
        return alone[fine][falls(growth, record[fine]).tied[record[fine]]]

    def _made(self, subject: Subject, found: Falls, units: Index, rows: tuple[Index, Index], seeds: Seeds) -> Retrained:
        row_query = rows[1]
        counts = found.counts[row_query]
        with np.errstate(divide="ignore", invalid="ignore"):
            without = np.log(counts) - np.log(counts.sum(axis=1, keepdims=True))
            # ties of the tree on everybody are broken by the seed, though those on a record's own path may be gone
            with_ = np.log(np.stack([_full(subject, seed)[row_query] for seed in seeds]))
        both = np.repeat(without[None], len(seeds), axis=0)
        gone = {int(k): VANISHED for k in np.flatnonzero(vanishing(subject, units))}
        error = np.zeros(len(units))
        tied = np.flatnonzero(found.tied[row_query])
        here = row_query[tied]
        with np.errstate(divide="ignore", invalid="ignore"):  # a share that is 0 in every leaf is 0 in this one
            ends = [np.abs(np.log(side[here]) - without[tied]) for side in (found.low, found.high)]
        error[rows[0][tied]] = np.nan_to_num(np.maximum(*ends), nan=0.0).max(axis=1, initial=0.0) * (1 + 1e-9)
        error[list(gone)] = 0.0
        status = np.where(error > 0, Status.CONVERGED, Status.EXACT).astype(object)
        return Retrained.of(self.name, units, seeds, rows, with_, both, status=status, error=error, undefined=gone)


def _pdtp(made: Retrained) -> Float:
    """Return the largest change of each unit at its own queries, under any seed, shape (U,)."""
    worst = np.zeros(len(made.units))
    for with_, without in zip(made.log_with, made.log_without, strict=True):
        np.maximum.at(worst, made.row_unit, largest_change(with_, without))
    return worst


def growth_of(subject: Subject) -> Growth:
    """Return the tree's training data in the precision in which scikit-learn splits it."""
    estimator: Any = subject.recipe.library_estimator
    X = design.matrix(subject)[: subject.data.n].astype(np.float32)
    low, high = X.min(axis=0), X.max(axis=0)
    two = ((low == X) | (high == X)).all(axis=0) & ((high == low) | (high > low + SAME_VALUE))
    # 16 bits are sorted by radix
    codes = np.empty(X.T.shape, dtype=np.uint16 if len(X) < 2**16 else np.int64)
    codes[two] = (X[:, two] > low[two]).T
    reach, squeezed = dict[int, Index](), np.zeros(len(X), dtype=bool)
    for j in np.flatnonzero(~two).tolist():
        values, codes[j] = np.unique(X[:, j], return_inverse=True)
        close = values[1:] <= values[:-1] + SAME_VALUE
        if close.any():
            reach[j] = np.searchsorted(values, values + SAME_VALUE, side="right") - 1
            squeezed |= (np.append(close, False) & np.append(False, close))[codes[j]]
    far = codes.copy() if reach else codes
    for j, highest in reach.items():
        far[j] = highest[codes[j]]
    return Growth(
        X=X,
        codes=codes,
        far=far,
        squeezed=squeezed,
        two=two,
        high=codes[two].T.astype(np.float32, order="C"),
        y=subject.label_codes,
        K=len(subject.classes),
        max_depth=np.iinfo(np.int32).max if estimator.max_depth is None else int(estimator.max_depth),
        min_split=int(max(estimator.min_samples_split, 2 * estimator.min_samples_leaf)),
        min_leaf=int(estimator.min_samples_leaf),
    )


def _full(subject: Subject, seed: int | None) -> Float:
    """Return the delivered tree's probabilities on the training records; its own ties are the library's."""
    from privgate.subject import estimators

    model = estimators.set_seed(subject.recipe.library_estimator, seed).fit(subject.data.X, subject.data.y)
    return np.asarray(model.predict_proba(subject.data.X), dtype=np.float64)


ENGINE = DecisionTree()
