"""Traces of single records in a model: rows, values, words, and leaves that one record alone made."""

import re
from collections import Counter
from collections.abc import Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from importlib import import_module
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.artifact.keepers import Carried, Context
from privgate.artifact.walk import Held

# Finding training records in any array: rows of numbers that are, to the last bit, rows of the training data.
#
# A row is named by the sum of mixed bits of its numbers, zeros adding nothing, so that sparse and dense ones agree.
# Where records are so coarse that chance alone makes rows like theirs, finding one shows nothing: columns that were
# permuted one by one make rows that nobody has, and an array that holds these as often was not made of the records.

Hash = NDArray[np.uint64]
Mask = NDArray[np.bool_]

#: rows by chance over rows of the data, above which nothing is shown
CHANCE = 0.1
#: permuted rows that are looked for at most
_PERMUTED = 20_000
#: and at least: of few records there are several permutations
_LEAST = 200
#: numbers of a sparse table that is permuted at most; larger ones are no work of chance
_MOST = 20_000_000
_KINDS = {"double": np.float64, "single": np.float32, "half": np.float16}
#: rows of an array that are looked for in single precision too
_NEARLY = 1_000_000


@dataclass(eq=False)
class Table:
    """Training records as one estimator sees them, to be looked for.

    Parameters
    ----------
    values : float64 array of shape (n, columns), or sparse
    """

    values: Any

    @property
    def columns(self) -> int:
        """Numbers in a record."""
        return int(self.values.shape[1])

    @cached_property
    def double(self) -> tuple[Hash, Hash]:
        """Names of the records, shape (n,), and of permuted rows that are no record's."""
        return self._names(np.float64)

    @cached_property
    def single(self) -> tuple[Hash, Hash]:
        """The same in single precision."""
        return self._names(np.float32)

    @cached_property
    def half(self) -> tuple[Hash, Hash]:
        """The same in half precision."""
        return self._names(np.float16)

    def _names(self, kind: Any) -> tuple[Hash, Hash]:
        own = named(self.values, kind)
        few = self.values[:_PERMUTED]
        dense = few.toarray() if hasattr(few, "tocsr") and few.shape[1] * few.shape[0] < _MOST else few
        if hasattr(dense, "tocsr"):
            return own, np.zeros(0, dtype=np.uint64)
        several = np.tile(dense, (-(-_LEAST // len(dense)), 1)) if len(dense) < _LEAST else dense
        return own, np.setdiff1d(named(np.random.default_rng(0).permuted(several, axis=0), kind), own)


def table(values: Any) -> Table | None:
    """Return records ready to be looked for; None where there is no table of numbers."""
    if hasattr(values, "tocsr"):
        return Table(values.tocsr())
    values = np.asarray(values)
    if values.dtype.kind not in "biuf" or values.ndim < 2 or 0 in values.shape:
        return None
    return Table(values.reshape(len(values), -1).astype(np.float64))


def named(values: Any, kind: Any = np.float64) -> Hash:
    """Return a name of each row, equal for equal rows; 0 for a row of zeros."""
    if hasattr(values, "tocsr"):
        made = values.tocsr()
        rows = np.repeat(np.arange(made.shape[0]), np.diff(made.indptr))
        total = np.zeros(made.shape[0], dtype=np.uint64)
        np.add.at(total, rows, _bits(made.data.astype(kind).astype(np.float64), made.indices.astype(np.uint64)))
        return total
    dense = np.asarray(values)
    total = np.zeros(len(dense), dtype=np.uint64)
    with np.errstate(over="ignore", invalid="ignore"):  # beyond half precision is infinite
        for j in range(dense.shape[1]):
            total += _bits(dense[:, j].astype(kind).astype(np.float64), np.uint64(j))
    return total


def found(array: Any, own: Table) -> tuple[Mask, Mask]:
    """Return which records an array holds for certain, and which perhaps, each of shape (n,)."""
    n = int(own.values.shape[0])
    sure = perhaps = np.zeros(n, dtype=bool)
    # a mean of one record alone is it but for the last digits; numbers of a text or of raw bytes are so many
    kinds = ("double", "single") if hasattr(array, "dtype") and array.shape[:1] <= (_NEARLY,) else ("double",)
    if getattr(array, "dtype", None) == np.float16:
        kinds = ("half",)
    for view, kind in ((v, k) for v in _views(array, own.columns) for k in kinds):
        names = np.unique(named(view, _KINDS[kind]))
        known, mixed = getattr(own, kind)
        hit = np.isin(known, names) & (known != 0)
        if not hit.any():
            continue
        sparse = hasattr(own.values, "tocsr") and not len(mixed)
        chance = np.isin(mixed, names).mean() if len(mixed) else float(not sparse)
        if chance <= CHANCE * hit.mean():
            sure = sure | hit
        elif view.shape[0] >= n // 2:
            perhaps = perhaps | hit
    return sure, perhaps & ~sure


def _views(array: Any, columns: int) -> list[Any]:
    """Return the ways in which an array may be made of rows of so many columns."""
    if hasattr(array, "tocsr"):
        return [array] if array.shape[1] == columns else []
    if array.dtype.kind not in "biuf" or array.size < columns or array.ndim == 0:
        return []
    made = []
    if array.ndim == 2 and 0 <= array.shape[1] - columns <= 4:  # records with a few columns beside them
        made += [array[:, k : k + columns] for k in range(array.shape[1] - columns + 1)]
    if array.ndim == 2 and array.shape[0] == columns:
        made.append(array.T)
    if array.ndim > 2 and (array.shape[-1] == columns or np.prod(array.shape[1:]) == columns):
        made.append(array.reshape(-1, columns))
    if array.ndim == 1 and columns > 1 and array.size % columns == 0:
        made += [array.reshape(-1, columns), array.reshape(columns, -1).T]
    return made


def _bits(values: Float, salt: Any) -> Hash:
    """Return mixed bits of numbers, 0 for 0 (splitmix64 of Steele, Lea and Flood, 2014)."""
    values = np.where(np.isnan(values), np.nan, values)  # one NaN
    z: Hash = np.ascontiguousarray(values + 0.0).view(np.uint64)
    with np.errstate(over="ignore"):
        z = z ^ ((salt + np.uint64(1)) * np.uint64(0x9E3779B97F4A7C15))
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        z = z ^ (z >> np.uint64(31))
    return np.where(values == 0, np.uint64(0), z)


def sequence(array: Any, columns: list[NDArray[Any]]) -> bool:
    """Return whether an array is, in order and to the last bit, one of the columns; of two values or more."""
    if not isinstance(array, np.ndarray) or array.dtype.kind not in "biufU":
        return False
    flat = array.reshape(-1)
    for column in columns:
        if flat.size != column.size or (flat.dtype.kind == "U") != (column.dtype.kind in "OU"):
            continue
        if flat.dtype.kind == "U":
            if (flat == column.astype(str)).all():
                return True
        elif column.dtype.kind in "biuf" and _same(flat.astype(np.float64), column.astype(np.float64), flat.dtype):
            return True
    return False


def _same(a: Float, b: Float, dtype: Any) -> bool:
    if np.nanmin(b, initial=np.inf) == np.nanmax(b, initial=-np.inf):
        return False
    rounded = b.astype(dtype).astype(np.float64) if dtype == np.float32 else b
    return bool(np.array_equal(a, rounded, equal_nan=True))


# Words, names, categories and rows of weights that one record alone brought into a model.

#: shorter texts are in every file
_SHORT = 2
_WORD = re.compile(r"\w+")


def singles(columns: list[NDArray[Any]]) -> dict[str, int]:
    """Return text -> record, of cells, whole documents and words that one record alone has."""
    seen: dict[str, int] = {}
    often: Counter[str] = Counter()
    for column in columns:
        for row, value in enumerate(column.tolist()):
            if isinstance(value, str):
                for text in {value, value.lower(), *(w.lower() for w in _WORD.findall(value))}:
                    if len(text) >= _SHORT and seen.get(text) != row:
                        often[text] += 1
                        seen[text] = row
    return {text: row for text, row in seen.items() if often[text] == 1}


def texts(held: Held, known: dict[str, int], n: int) -> Iterator[Carried]:
    """Give texts of the walk that one record alone has, by where they were met."""
    by_place: dict[str, Mask] = {}
    for text, where in held.texts.items():
        row = known.get(text)
        if row is not None:
            by_place.setdefault(where, np.zeros(n, dtype=bool))[row] = True
    for where, rows in by_place.items():
        yield Carried("single_text", where, rows)


def of(thing: Any, about: Context) -> Iterator[Carried]:
    """Give categories and words of one encoder or vectorizer that one record alone has."""
    own, name = getattr(thing, "__dict__", None), type(thing).__name__
    if not isinstance(own, dict):
        return
    if isinstance(own.get("categories_"), list) and (X := about.given(thing)) is not None:
        rows = np.zeros(about.n, dtype=bool)
        for column in _columns(X):
            _, inverse, counts = _different(column)
            rows |= counts[inverse] == 1
        if rows.any():
            yield Carried("single_text", f"{name}.categories_", rows)
    elif isinstance(own.get("categories_"), list):
        most = sum(len(c) for c in own["categories_"])
        yield Carried("single_text", f"{name}.categories_", most=min(about.n, most))
    if isinstance(own.get("vocabulary_"), dict) and hasattr(thing, "transform"):
        yield from _vocabulary(thing, name, about)


def _vocabulary(thing: Any, name: str, about: Context) -> Iterator[Carried]:
    X = about.given(thing)
    if X is None:
        yield Carried("single_text", f"{name}.vocabulary_", most=about.n)
        return
    made = thing.transform(X).tocsc()
    once = np.flatnonzero(np.diff(made.indptr) == 1)
    rows = np.zeros(about.n, dtype=bool)
    rows[made.indices[made.indptr[once]]] = True
    if rows.any():
        yield Carried("single_text", f"{name}.vocabulary_", rows)


def embeddings(objects: Iterable[Any], columns: list[NDArray[Any]], n: int) -> Iterator[Carried]:
    """Give rows of embeddings for values that one record alone has.

    An embedding of m rows is taken for one of every column of whole numbers from 0 to m - 1 at most that uses half of
    them: whose column it is stands in code that nobody reads. Where no column fits, its rows may be anybody's.
    """
    for thing in objects:
        if not type(thing).__name__.startswith("Embedding") or not type(thing).__module__.startswith("torch.nn"):
            continue
        size = int(thing.num_embeddings)
        rows, fits = np.zeros(n, dtype=bool), False
        for column in columns:
            if column.dtype.kind not in "iuf" or not np.isfinite(column.astype(np.float64)).all():
                continue
            whole = column.astype(np.int64)
            if (whole != column).any() or whole.min() < 0 or whole.max() >= size:
                continue
            values, inverse, counts = np.unique(whole, return_inverse=True, return_counts=True)
            if len(values) > size // 2:
                fits = True
                rows |= counts[inverse] == 1
        if rows.any():
            yield Carried("embedding", type(thing).__name__, rows)
        elif not fits:
            yield Carried("embedding", type(thing).__name__, most=min(n, size))


def _columns(X: Any) -> list[NDArray[Any]]:
    if hasattr(X, "iloc"):
        return [np.asarray(X[c]) for c in X.columns]
    made = X.toarray() if hasattr(X, "toarray") else np.asarray(X)
    return [made[:, j] for j in range(made.shape[1])] if made.ndim == 2 else []


def _different(column: NDArray[Any]) -> tuple[NDArray[Any], NDArray[np.int64], NDArray[np.int64]]:
    if column.dtype.kind == "O":
        column = np.array([f"{type(v).__name__}:{v}" for v in column.tolist()])
    return np.unique(column, return_inverse=True, return_counts=True)


# Trees: leaves that one record alone made, in scikit-learn's, LightGBM's, XGBoost's and our own trees.
#
# A leaf of one record holds its exact target, and the path to it a box around its features. Trees grown on all records
# with counts in their leaves give the whole training set away where there are enough of them (Ferry et al., 2024).

#: trees grown on all records, fewer of which are no forest
_FOREST = 10
#: leaves of fewer records than this are small
FEW = 5


def leaves_of(thing: Any, about: Context) -> Iterator[Carried]:
    """Give what the trees of one object carry."""
    home, name = type(thing).__module__, type(thing).__name__
    if hasattr(thing, "tree_") and hasattr(thing.tree_, "n_node_samples"):
        yield from _single(thing.tree_, f"{name}.tree_", None, about.matrix(thing), about.n)
    if home.startswith("sklearn.ensemble") and isinstance(getattr(thing, "estimators_", None), list):
        yield from _reconstructed(thing, about)
    stages = getattr(thing, "_predictors", None)
    if isinstance(stages, list):
        nodes = [p.nodes for stage in stages for p in stage]
        sizes = [t["count"][t["is_leaf"].astype(bool)] for t in nodes]
        yield from _counted(sizes, f"{name}._predictors", about.n)
    if home == "lightgbm.basic" and name == "Booster":
        trees = thing.dump_model()["tree_info"]
        yield from _counted([_leaves(t["tree_structure"]) for t in trees], "Booster", about.n)
    if home == "xgboost.core" and name == "Booster":
        yield from _xgboost(thing, about)
    if type(thing).__module__ == "privgate.models" and hasattr(thing, "parts_"):
        counts = [np.bincount(p.tree[_alone(p)], minlength=1).max(initial=0) for p in thing.parts_]
        most = sum(int(_alone(p).sum()) for p in thing.parts_)
        if most:
            yield Carried("single_leaf", f"{name}.parts_", least=int(max(counts)), most=most)


def _alone(part: Any) -> Mask:
    """Return which nodes are leaves that one record of weight one made."""
    return np.asarray((part.feature < 0) & (part.counts.sum(axis=1) == 1))


def in_bag(thing: Any, about: Context, bag: Mask) -> Iterator[Carried]:
    """Give what one tree of a forest carries whose records are known."""
    if hasattr(thing, "tree_"):
        yield from _single(thing.tree_, f"{type(thing).__name__}.tree_", bag, about.matrix(thing), about.n)


def inside(forest: Any, about: Context) -> Iterator[tuple[Any, Mask]]:
    """Give each tree of a forest with the records in its bag."""
    samples = getattr(forest, "estimators_samples_", None)
    for k, tree in enumerate(forest.estimators_):
        bag = np.zeros(about.n, dtype=bool)
        if samples is None:
            bag[:] = True
        else:
            bag[np.asarray(samples[k], dtype=np.int64)] = True
        yield tree, bag


def _single(tree: Any, where: str, bag: Mask | None, X: NDArray[np.float64] | None, n: int) -> Iterator[Carried]:
    """Give the leaves of one record, and whose they are where that can be told."""
    leaf = tree.children_left == -1
    if small := _small(tree.n_node_samples[leaf]):
        yield Carried("small_leaf", where, beside=min(n, small))
    alone = leaf & (tree.n_node_samples == 1)
    if not alone.any():
        return
    many = int(alone.sum())
    rows = np.zeros(n, dtype=bool)
    if X is not None and X.shape == (n, tree.n_features):
        reached = tree.apply(np.ascontiguousarray(X, dtype=np.float32))
        among = np.ones(n, dtype=bool) if bag is None else bag
        counts = np.bincount(reached[among], minlength=tree.node_count)
        # a tree of a bag or a fold that nobody names: who reaches the leaf alone may not have made it
        if (counts[leaf] == tree.n_node_samples[leaf]).all():
            rows = among & alone[reached]
    yield Carried("single_leaf", where, rows if rows.any() else None, min(many, n), min(many, n))


def _reconstructed(forest: Any, about: Context) -> Iterator[Carried]:
    whole = not getattr(forest, "bootstrap", True) and len(forest.estimators_) >= _FOREST
    if whole and hasattr(forest.estimators_[0], "tree_") and "Boosting" not in type(forest).__name__:
        yield Carried("reconstruction", type(forest).__name__, most=about.n)


def _counted(sizes: list[NDArray[Any]], where: str, n: int) -> Iterator[Carried]:
    """Give one-record leaves that nobody is named for: different records within a tree, perhaps the same over trees."""
    alone = [int((t == 1).sum()) for t in sizes]
    if any(alone):
        yield Carried("single_leaf", where, least=min(n, max(alone)), most=min(n, sum(alone)))
    if small := max((_small(t) for t in sizes), default=0):
        yield Carried("small_leaf", where, beside=min(n, small))


def _small(sizes: NDArray[Any]) -> int:
    """Return how many records share a leaf with fewer than ``FEW``, those that are alone left out."""
    return int(sizes[(sizes > 1) & (sizes < FEW)].sum())


def _leaves(tree: Any) -> NDArray[np.int64]:
    """Return how many records made each leaf of a tree of LightGBM's."""
    waiting, found = [tree], []
    while waiting:
        at = waiting.pop()
        if "left_child" in at:
            waiting += [at["left_child"], at["right_child"]]
        else:
            found.append(int(at.get("leaf_count", 0)))
    return np.array(found, dtype=np.int64)


def _xgboost(booster: Any, about: Context) -> Iterator[Carried]:
    """Give leaves that one training record reaches; without the records, leaves that could be of one."""
    xgboost: Any = import_module("xgboost")  # installed, or there were no booster

    X = about.matrix(booster)
    if X is None:
        yield Carried("single_leaf", "Booster", most=about.n)
        return
    names = booster.feature_names
    reached = booster.predict(xgboost.DMatrix(X, feature_names=names), pred_leaf=True).reshape(about.n, -1)
    rows = np.zeros(about.n, dtype=bool)
    for column in reached.T:
        _, place, counts = np.unique(column, return_inverse=True, return_counts=True)
        rows |= counts[place] == 1
    if rows.any():
        yield Carried("single_leaf", "Booster", rows)
