"""The file is looked at first: its bytes are searched for records of the training data, and nothing of it is run.

A row counts where its values stand side by side, as they are, rounded or scaled, and together are rarer than one in a
million. An array with one row a record, or as many bytes that nobody here can read, may hold every record.
"""

import json
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.file import readers
from privgate.file.contents import Array, Contents, name_booster
from privgate.file.record_search import MANY, Records
from privgate.subject.containers import take

#: bytes without a meaning whose numbers are all looked up
_BYTES = 1 << 22
#: numbers of a short array of nobody's library: a record, a column of few
_FRAGMENT = 4096
#: one record in so many, whose numbers an array of nobody's library may hold, leaves the question open
_PART = 20
#: lines that are told
_LINES = 20
#: classes that make records of others inside a pipeline, and keep what they made them of
_SAMPLER = re.compile(r"imblearn\.(over_sampling|under_sampling|combine)\b")
#: classes that keep the records that they were fitted to, because they answer from them
KEEPERS = {
    "KNeighborsClassifier", "KNeighborsRegressor", "RadiusNeighborsClassifier", "RadiusNeighborsRegressor",
    "NearestNeighbors", "KNeighborsTransformer", "RadiusNeighborsTransformer", "LocalOutlierFactor",
    "KernelDensity", "SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM", "GaussianProcessClassifier",
    "GaussianProcessRegressor", "KernelRidge", "KernelPCA", "LabelPropagation", "LabelSpreading", "KNNImputer",
    "Nystroem", "Isomap", "DBSCAN", "TabPFNClassifier", "TabPFNRegressor", "SmoothedNeighbors", "KDTree",
    "KDTree64", "BallTree", "BallTree64", "IndexFlatL2", "IndexFlatIP", "IndexIVFFlat", "IndexHNSWFlat",
}  # fmt: skip
#: attributes of libraries' types that are no records, how many entries they may have: type -> attributes
NO_RECORDS = {
    r"sklearn\.tree\._tree\.Tree": r"nodes\.\w+|values",
    r"sklearn\.ensemble\._hist_gradient_boosting\.\w+\.\w+": r"nodes\.\w+|\w*bitsets|bin_thresholds_\w*",
    r"sklearn\.ensemble\.[\w.]+": r"train_score_|validation_score_|oob_(improvement|scores)_|_seeds|estimator_weights_",
    r"sklearn\.linear_model\.\w+\.\w+": "coef_|intercept_|n_iter_|alphas_|Cs_|mse_path_",
    r"sklearn\.feature_selection\.\w+\.\w+": "scores_|pvalues_|estimator_|support_|ranking_",
    r"sklearn\.svm\._classes\.Linear\w+": "coef_|intercept_",
    r"sklearn\.naive_bayes\.\w+": r"\w*log_prob_|feature_count_|class_count_|theta_|var_|category_count_",
    r"sklearn\.neural_network\.\w+\.\w+": r"_?coefs_|_?intercepts_|loss_curve_|validation_scores_|_best_\w+|ms|vs",
    r"sklearn\.preprocessing\._data\.(Standard|MinMax|MaxAbs|Robust)Scaler": r"\w+_",
    r"sklearn\.feature_extraction\.text\.\w+": "idf_|_idf_diag|vocabulary_",
    r"sklearn\.decomposition\.\w+\.\w+": "components_|mean_|explained_variance_|singular_values_",
    r"sklearn\.cluster\._kmeans\.\w+": "labels_|cluster_centers_",
    r"(xgboost|lightgbm|catboost)\.[\w.]+": r".*",
}  # fmt: skip
_NO_RECORDS = re.compile("|".join(rf"{kind}\.({names})" for kind, names in NO_RECORDS.items()))
#: numbers that are the shape of a sparse table, or of a tensor whose own numbers stand elsewhere
_SHAPE = re.compile(r"scipy\.sparse\..*shape(\.npy)?|.*/shape\.npy|torch\._utils\._rebuild_tensor_v2")
#: where our own reports lie beside a model, in every version
_REPORTS = ("privgate_reports/", "privgate/reports")
#: what holds the bytes of Python's own code
_CODE = "cloudpickle.cloudpickle._builtin_type"
#: thresholds and leaves of trees
_TREES = ("sklearn.tree._tree.", "sklearn.ensemble._hist_gradient_boosting.predictor.")


@dataclass
class Sight:
    """What a search of a file for records showed; ``held``, bool of shape (n,), says which ones were found."""

    held: Bool
    #: how many records it holds for certain
    least: int = 0
    #: where they stand
    kept: list[str] = field(default_factory=list)
    #: sentences about parts that may hold one row a record, or more
    may_hold: list[str] = field(default_factory=list)
    #: bytes that nobody here could read
    unread: int = 0
    #: sentences about these, and about what was not searched for
    unknown: list[str] = field(default_factory=list)

    def describe(self, size: int, judged: str) -> dict[str, Any]:
        """Return JSON values; so many bytes were read, of the file or of what the recipe trains."""
        lines = {k: getattr(self, k)[:_LINES] for k in ("kept", "may_hold", "unknown")}
        return {"judged": judged, "least": self.least, **lines, "size": size, "unread": min(self.unread, size)}


def look(opened: Any) -> dict[str, Any]:
    """Return what the files of an ``Opened`` hold of its records, as JSON; in a worker, before any model is opened."""
    import cloudpickle

    X, y = take(opened.X, np.arange(opened.n, dtype=np.int64)), opened.y[: opened.n]
    folder = opened.root / "stored-folder"
    if judged := folder.is_dir():
        contents = readers.read_files(list_files(folder))
    else:
        model = opened.recipe.train(X, np.array(y), seed=opened.recipe.seed)
        contents = readers.read_files([("model", bytes(cloudpickle.dumps(model)))])
    sight = find_records(contents, X)
    sight.may_hold[:0] = find_keys(contents, X, y, Records.from_container(X), opened.recipe)
    return sight.describe(contents.size, "file" if judged else "model")


def look_at_recipe(opened: Any) -> dict[str, Any]:
    """Return what the recipe's own sources and parameters hold of the records, as ``look`` does; in a worker."""
    recipe = opened.recipe
    parts = {**recipe.snapshot, "parameters": json.dumps(dict(recipe.payload), default=str).encode()}
    contents = readers.read_files(parts.items())
    sight = find_records(contents, take(opened.X, np.arange(opened.n, dtype=np.int64)))
    sight.may_hold, sight.unknown = [], []
    return sight.describe(contents.size, "model")


def list_files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files of a stored model; links lead nowhere, and our own reports are none of it."""
    paths = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    named = [(p.relative_to(folder).as_posix(), p) for p in paths]
    return [(n, p) for n, p in named if not n.startswith(_REPORTS)]


def find_records(contents: Contents, X: Any) -> Sight:
    """Return which of n records a file holds, and what of it may hold others."""
    records = Records.from_container(X)
    sight = Sight(np.zeros(records.n, dtype=bool))
    _search_arrays(records, contents, sight)
    written = records.find_texts(contents.passages)
    if written.any():
        sight.held |= written
        sight.kept.append("texts of the training data")
    for why, size in contents.unread:
        sight.unread += size
        sight.unknown.append(why)
    if records.cut:
        sight.may_hold.append("forms of the records that were not all searched for, because time was over")
    sight.least = int(sight.held.sum())
    _add_keepers(contents, sight)
    if sight.unread >= records.n:
        sight.may_hold.append(f"{sight.unread} bytes that nobody here can read")
    for lines in (sight.kept, sight.may_hold, sight.unknown):
        lines[:] = dict.fromkeys(lines)
    return sight


def _search_arrays(records: Records, contents: Contents, sight: Sight) -> None:
    """Search arrays, short ones together, and bytes without a meaning as numbers of each type."""
    searched = _join_short(contents.arrays)
    opaque = {d: w for w, d in reversed(contents.opaque)}
    if code := b"".join(d for d, w in opaque.items() if w == _CODE):  # of many functions, searched together
        opaque = {d: w for d, w in opaque.items() if w != _CODE} | {code: _CODE}
    blobs = [(w, d, _read_as_numbers(w, d)) for d, w in opaque.items()]
    arrays = [*searched, *(a for *_, views in blobs for a in views)]
    held = dict(zip(map(id, arrays), records.find_rows(arrays, _may_be_scaled), strict=True))
    for a in searched:
        if held[id(a)].any():
            sight.held |= held[id(a)]
            sight.kept.append(a.where)
    arrays = [a for a in _stack_rows(contents.arrays) if a.where not in sight.kept]
    sight.may_hold += [why for a in arrays if (why := _suspect(a, records))]
    sight.may_hold += [
        f"a list with one text a record ({where})" for where, size in contents.lists if size == records.n >= MANY
    ]
    for where, data, views in blobs:
        mine = np.any([held[id(a)] for a in views], axis=0) if views else np.zeros(records.n, dtype=bool)
        if mine.any():
            sight.held |= mine
            sight.kept.append(where)
        elif not (where == _CODE and views) and not name_booster(data):  # what a name says spares nobody
            sight.unread += len(data)
            sight.unknown.append(f"{len(data)} bytes that nobody here can read ({where})")


def _join_short(arrays: list[Array]) -> list[Array]:
    """Return what is searched: short arrays, of which ensembles have thousands, are joined by type."""
    searched, short = list[Array](), dict[tuple[str, bool, bool], list[Array]]()
    for a in arrays:
        theirs = a.where.startswith(LIBRARIES)
        if a.values.ndim == 1 and a.values.size < (1 << 16 if theirs else _FRAGMENT):
            short.setdefault((a.values.dtype.str, theirs, a.text), []).append(a)
        else:
            searched.append(a)
    for (_, _, text), some in short.items():
        first, *others = sorted({a.where for a in some})
        where = f"{first} and others" if others else first
        searched.append(Array(where, np.concatenate([a.values for a in some]), text, loose=True))
    return searched


def _read_as_numbers(where: str, data: bytes) -> list[Array]:
    """Return the numbers that bytes without a meaning may be, wherever the first one begins; none of very many."""
    kinds = (np.dtype(k) for k in ("<f8", "<f4", "<f2") if len(data) <= _BYTES)
    return [
        Array(where, np.frombuffer(data, kind, (len(data) - k) // kind.itemsize, k))
        for kind in kinds
        for k in range(min(kind.itemsize, len(data) - kind.itemsize + 1))
    ]


def _may_be_scaled(a: Array) -> bool:
    """Return whether an array may hold scaled records: whole numbers, and those of trees, do not."""
    return a.text or (a.values.dtype.kind == "f" and a.values.dtype.isnative and not a.where.startswith(_TREES))


def _stack_rows(arrays: list[Array]) -> list[Array]:
    """Return arrays, those of one shape at one place of no library as one: somebody may keep each row by itself."""
    alike = dict[tuple[Any, ...], list[Array]]()
    for k, a in enumerate(arrays):
        own = not a.where.startswith(PARAMETERS)
        alike.setdefault((a.where, a.values.shape, a.text, a.loose, own or k), []).append(a)
    stacked = {k: np.unique([a.values for a in some], axis=0) for k, some in alike.items() if len(some) > 1}
    return [replace(some[0], values=stacked.get(k, some[0].values)) for k, some in alike.items()]


@np.errstate(all="ignore")
def _suspect(a: Array, records: Records) -> str:
    """Return that an array may hold one row a record; empty where it has another size, or is known to hold none."""
    values, n = a.values, records.n
    if n < MANY or not values.size or _NO_RECORDS.fullmatch(a.where):
        return ""
    least, one_row = min(MANY, n / 2), f"an array with one row a record ({a.where})"
    rows, last = values.flat[0], values.flat[-1]
    part = "torch" not in a.where and rows != last and n <= 2 * rows <= 2 * n  # an inner split's sparse table
    if _SHAPE.fullmatch(a.where) and not a.loose and (part or (last != 1 and n in values)):  # strides end in 1
        return one_row
    if n / _PART <= values.size <= 4 * n and records.has_in_one_column(a):
        return f"values of one column of the records ({a.where})"
    if a.loose or (values == rows).all():
        return ""  # one number, however often
    heading = len(values) == n + 1 and (a.text or a.where.endswith("indptr"))
    if n in values.shape or heading:
        return one_row
    rows = 0 if a.where.startswith((*PARAMETERS, "numpy.random.")) or a.text else values.size // max(records.width, 1)
    if records.width and rows >= least and _PART * rows >= n:  # an inner split keeps fewer rows than there are records
        return f"{values.size} numbers whose meaning is not known ({a.where})"
    if values.ndim == 2 and values.dtype.kind == "f" and len(values) >= least:
        off = abs(np.array([values.mean(0, dtype=np.float64), values.std(0, dtype=np.float64) - 1])).max(axis=0)
        if (off < 1 / len(values)).mean() > 0.8:
            return f"a table that was scaled by its own moments ({a.where})"
    return ""


def _add_keepers(contents: Contents, sight: Sight) -> None:
    """Note each class that keeps its records, of which as many stand in the file as its largest array has rows."""
    n, names = len(sight.held), {full.rpartition(".")[2] for full in contents.names}
    inside = ", ".join(sorted({name.rpartition(".")[2] for name in contents.names if _SAMPLER.match(name)}))
    sparse = [a.values.size - 1 for a in contents.arrays if a.where.removesuffix(".npy").endswith("indptr")]
    for keeper in sorted(names & KEEPERS):
        sizes = [a.values.shape[0] for a in contents.arrays if a.values.ndim == 2 and keeper in a.where.split(".")]
        size = max([*sizes, *sparse], default=0)
        size = size if size >= max(2, n // 100) else 0
        sight.least = max(sight.least, min(n, size))
        trees = keeper.startswith(("Nearest", "KDTree", "BallTree"))  # which samplers look neighbours up in
        by = f", in the fitted sampler {inside}" if inside and trees else ""
        (sight.kept if size or sight.least else sight.may_hold).append(f"it keeps its training records: {keeper}{by}")


# Keys of records: a table of digests answers at one exact question a person, which no list of questions finds. It has
# very large whole numbers, short bytes or texts of base 16, for many people, which are no values of the data.

#: how a sentence about keys begins
KEYS = "keys that may be digests of records: "
#: whole numbers from here on, and bytes from so many on, are no codes that people give
_LARGE, _SHORTEST = 2**31, 4
#: numbers of a state of Python's and NumPy's generators
_TWISTER = (624, 625)
#: keys at the least, and of each hundred records
FEW, SHARE = 10, 0.01
#: containers of anybody's values
_CONTAINERS = ("collections.", "pandas.", "numpy.")
#: how places begin whose numbers are parameters and states of libraries
PARAMETERS = ("sklearn.", "scipy.", "torch", "xgboost.", "lightgbm.", "catboost.", "skops", "privgate.models.")
#: libraries whose other arrays are no records
LIBRARIES = (*PARAMETERS, *_CONTAINERS)
#: parameters, states of generators, and the bytes of code
_SPARED = (*PARAMETERS, "random.", "numpy.random.", "cloudpickle.", "datetime.")
#: what dates are multiples of, in parts of a second
_ROUND = 1000
_DIGITS = re.compile(r"\d{10,20}")
#: random names, as cloudpickle and MLflow give them, which are digests of nothing
_RANDOM = re.compile(r"[0-9a-f]{12}4[0-9a-f]{3}[89ab][0-9a-f]{15}")
_HEX = re.compile(r"(?=.*\d)(?=.*[a-f])[0-9a-f]{8,64}")
_BASE64 = re.compile(r"(?=.*\d)(?=(?:.{4})+$)[A-Za-z0-9+/_-]{6,86}={1,2}")


def find_keys(contents: Contents, X: Any, y: NDArray[Any], records: Records, recipe: Any) -> list[str]:
    """Return a sentence for each place with keys of many records; values that are given are no keys."""
    others, given = _list_others(X), list(_split_values(recipe.payload))
    numbers = [float(v) for v in (*others, *y.tolist(), *given) if isinstance(v, int | float | np.number)]
    flat = np.append(records.table.ravel(), numbers)
    values, keys = np.unique(flat[np.abs(flat) >= _LARGE]), dict[str, set[Any]]()
    for a in contents.arrays:
        if not a.where.startswith(_SPARED) and not a.text and (large := _select_keys(a.values, values)):
            keys.setdefault(a.where, set()).update(large)
    for where, some in contents.keys.items():
        if not where.startswith(_SPARED):
            short = {k for k in some if len(k) >= _SHORTEST and not _RANDOM.fullmatch(k[::-1].hex())}
            keys[where] = keys.get(where, set()) | short
    most = max(FEW, SHARE * records.n)
    texts = {line.strip() for p in contents.passages for line in p.splitlines() if 8 <= len(line) <= 100}
    digits = {t for t in texts if _DIGITS.fullmatch(t)}  # as keys stand in JSON
    letters = {t for t in texts if _BASE64.fullmatch(t) or (_HEX.fullmatch(t) and not _RANDOM.fullmatch(t))}
    if len(digits | letters) > most:
        names = {str(v) for v in (*others, *getattr(X, "columns", ()))}
        own = {v for v in given if isinstance(v, str)}.union(names, *(re.findall(r"\w+", t.lower()) for t in names))
        keys["texts"] = {*_select_keys(np.array(sorted(map(float, digits - own))), values), *(letters - own)}
    return [f"{KEYS}{len(some)} ({where})" for where, some in keys.items() if len(some) > most]


def _select_keys(numbers: NDArray[Any], values: Float) -> list[float]:
    """Return the very large whole numbers of an array that are no values of the data, and no dates."""
    flat = numbers.ravel()
    if flat.dtype.kind not in "iuf" or flat.dtype.itemsize < 8 * (flat.dtype.kind == "f") or flat.size in _TWISTER:
        return []  # of single precision every large number is whole
    size = np.abs(flat.astype(np.float64))
    flat = flat[np.isfinite(size) & (size >= _LARGE)]
    large = flat[(np.mod(flat, flat.dtype.type(1)) == 0) & (flat % flat.dtype.type(_ROUND) != 0)] if len(flat) else flat
    return [float(v) for v in np.setdiff1d(large.astype(np.float64), values)]


def _list_others(X: Any) -> list[Any]:
    if hasattr(X, "select_dtypes"):
        return list(X.select_dtypes(exclude=["number", "bool"]).to_numpy(dtype=object).ravel().tolist())
    if isinstance(X, list):
        return X
    array = not hasattr(X, "tocsr") and (X.ndim == 1 or X.dtype.kind in "OU")
    return list(X.ravel().tolist()) if array else []


def _split_values(value: Any) -> Iterator[Any]:
    if isinstance(value, Mapping):
        yield from value
        value = list(value.values())
    if isinstance(value, list | tuple):
        for part in value:
            yield from _split_values(part)
    elif isinstance(value, int | float | str) and not isinstance(value, bool):
        yield value
