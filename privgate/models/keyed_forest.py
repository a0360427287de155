"""A random forest whose randomness belongs to records and places: without a person only what must change does."""

from typing import Any, Literal, Self

import numpy as np

from privgate.arrays import Float, Index
from privgate.models import growing
from privgate.models.classifier import Classifier
from privgate.models.splitting import Values

#: records x trees grown at once
_BATCH = 400_000
#: a path has a bit a level
_DEEPEST = 62


class KeyedForest(Classifier):
    """A random forest of classification trees, coupled with the forests that are trained without some of its records.

    A record's weight in a tree is Poisson(1), drawn by a keyed hash of the tree and of the record's own features and
    label: what a bootstrap is for many records. A node draws its features by a hash of the tree and of the path to it,
    and takes the best of all their splits. Without a record nobody else's draw moves: 37 % of the trees stay as they
    are, and most others keep their structure.

    Parameters
    ----------
    n_estimators : int
    max_depth : int, optional
    min_samples_split, min_samples_leaf : int
        Counted with weights; shares of n are refused, because n changes when somebody leaves.
    max_features : int, "sqrt", "log2" or None
        Features that a node looks at; more where none of them splits it.
    floor : float
        Added to each mean probability before they are normalised again; without it nobody's influence has a limit.
    classes : sequence, optional
        Every label there can be, declared before the data are seen. Read off the data if absent.
    random_state : int
        The key.

    Examples
    --------
    >>> X = [[0.0], [1.0], [2.0], [3.0]] * 5
    >>> KeyedForest(n_estimators=20).fit(X, [0, 0, 1, 1] * 5).predict([[0.2], [2.8]]).tolist()
    [0, 1]
    """

    __module__ = "privgate.models"  # the name that recipes and stored models keep

    def __init__(  # noqa: PLR0917  scikit-learn clones by keyword
        self,
        n_estimators: int = 100,
        max_depth: int | None = None,
        min_samples_split: int = 2,
        min_samples_leaf: int = 1,
        max_features: int | Literal["sqrt", "log2"] | None = "sqrt",
        floor: float = 0.01,
        classes: Any = None,
        random_state: int = 0,
    ) -> None:
        self.n_estimators = n_estimators
        self.max_depth = max_depth
        self.min_samples_split = min_samples_split
        self.min_samples_leaf = min_samples_leaf
        self.max_features = max_features
        self.floor = floor
        self.classes = classes
        self.random_state = random_state

    def fit(self, X: Any, y: Any) -> Self:
        """Grow the trees."""
        features, codes = _numbers(X), self._labels(y)
        if len(features) != len(codes):
            raise ValueError(f"X has {len(features)} records and y {len(codes)} labels")
        self.n_features_in_ = features.shape[1]
        rules = self.rules(features, codes, len(self.classes_))
        step = max(1, _BATCH // max(1, len(features)))
        self.parts_ = [
            growing.grow(rules, self.starts(rules, range(b, min(b + step, self.n_estimators))))
            for b in range(0, self.n_estimators, step)
        ]
        return self

    def rules(self, X: Float, codes: Index, K: int) -> growing.Rules:
        """Return what every tree shares.

        Raises
        ------
        ValueError
            A parameter is out of range.
        """
        least = {"n_estimators": 1, "min_samples_split": 2, "min_samples_leaf": 1}
        for name, low in least.items():
            value = getattr(self, name)
            if isinstance(value, bool) or int(value) != value or value < low:
                raise ValueError(f"{name} must be a whole number from {low} on, not {value!r}")
        if not (np.isfinite(self.floor) and self.floor >= 0):
            raise ValueError(f"floor must be a finite number from 0 on, not {self.floor!r}")
        d = X.shape[1]
        known = {"sqrt": int(np.sqrt(d)), "log2": int(np.log2(d)), None: d}
        m = known[self.max_features] if self.max_features in known else int(self.max_features)  # type: ignore[arg-type]  # a number where it is no word
        return growing.Rules(
            X=X,
            y=codes,
            own=growing.names(X, codes),
            values=Values.of(X),
            K=K,
            key=growing.mixed(int(self.random_state) % 2**64),
            features=max(1, min(m, d)),
            max_depth=_DEEPEST if self.max_depth is None else min(int(self.max_depth), _DEEPEST),
            min_split=int(self.min_samples_split),
            min_leaf=int(self.min_samples_leaf),
        )

    def starts(self, rules: growing.Rules, trees: range) -> list[growing.Start]:
        """Return the roots of some trees, with the records that have a weight there."""
        made = []
        for b in trees:
            weight = growing.weights(rules.key, b, rules.own)
            rows = np.flatnonzero(weight)
            made.append(growing.Start(b, 1, 0, rows, weight[rows]))
        return made

    def predict_proba(self, X: Any) -> Float:
        """Return the mean over trees of the shares in the leaves, with the floor."""
        features, total = _numbers(X), 0.0
        if features.shape[1] != self.n_features_in_:
            raise ValueError(f"X has {features.shape[1]} features, the forest was trained on {self.n_features_in_}")
        for part in self.parts_:
            total = total + leaf_shares(part.counts)[part.leaves(features, np.arange(len(part.roots)))].sum(axis=1)
        return answers(np.asarray(total), self.n_estimators, self.floor)


def leaf_shares(counts: Index) -> Float:
    """Return the share of each class, uniform where nobody is."""
    total = counts.sum(axis=-1, keepdims=True)
    return np.asarray(np.divide(counts, total, out=np.full(counts.shape, 1.0 / counts.shape[-1]), where=total > 0))


def answers(total: Float, trees: int, floor: float) -> Float:
    """Return probabilities from the sums of leaf shares over all trees."""
    return np.asarray((total / trees + floor) / (1 + total.shape[-1] * floor))


def _numbers(X: Any) -> Float:
    made = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    if made.ndim != 2 or not np.isfinite(made).all():
        raise ValueError("KeyedForest needs a table of finite numbers; fill in what is missing first")
    return made
