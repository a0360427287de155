"""The file is looked at first: its bytes are searched for records of the training data, and nothing of it is run.

A record is found where its values stand side by side, in any order of rows and columns, as they are, rounded to fewer
bits, or scaled column by column. Values that many records share show nothing: a row counts only where its values
together are rarer than one in a million.
"""

import json
import pickle
import re
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.artifact import file_bytes, record_keys
from privgate.artifact.file_bytes import BOOSTERS
from privgate.artifact.file_parts import TEXTS, Found, Read, booster
from privgate.artifact.record_space import MANY, RecordSpace
from privgate.subject.containers import take

#: units in the last place that arithmetic may have cost, and that six printed digits cost of single precision
CARRIED, PRINTED = 8, 64
#: seconds of processor time in which records are searched for in other forms; more for each 10^7 bytes of records, and
#: each 10^9 of the file
SECONDS = 2.0
#: vectors beside that records are scaled by
_SCALES = 6
#: bytes without a meaning whose numbers are all looked up
_BYTES = 1 << 22
#: numbers of a short array of nobody's library: a record, a column of few
_FRAGMENT = 4096
#: how short arrays that are looked at together are named
_OTHERS = " and others"
#: places among which records that were found in short arrays together are looked for again
_MANY_PLACES = 64
#: classes that make records of others inside a pipeline, and keep what they made them of
_SAMPLER = re.compile(r"imblearn\.(over_sampling|under_sampling|combine)\b")
#: letters of a text that is somebody's own
_LONG = 20
#: classes that keep the records that they were fitted to, because they answer from them
KEEPERS = frozenset(
    (
        "KNeighborsClassifier", "KNeighborsRegressor", "RadiusNeighborsClassifier", "RadiusNeighborsRegressor",
        "NearestNeighbors", "KNeighborsTransformer", "RadiusNeighborsTransformer", "LocalOutlierFactor",
        "KernelDensity", "SVC", "NuSVC", "SVR", "NuSVR", "OneClassSVM", "GaussianProcessClassifier",
        "GaussianProcessRegressor", "KernelRidge", "KernelPCA", "LabelPropagation", "LabelSpreading", "KNNImputer",
        "Nystroem", "Isomap", "DBSCAN", "TabPFNClassifier", "TabPFNRegressor", "SmoothedNeighbors", "KDTree",
        "KDTree64", "BallTree", "BallTree64", "IndexFlatL2", "IndexFlatIP", "IndexIVFFlat", "IndexHNSWFlat",
    )
)  # fmt: skip
#: libraries whose other arrays are parameters
_PARAMETERS = (
    "sklearn.",
    "scipy.",
    "numpy.",
    "pandas.",
    "torch",
    "collections.",
    *BOOSTERS,
    "skops",
    "privgate.models.",
)


#: where our own reports lie beside a model, in every version
_REPORTS = ("privgate_reports/", "privgate/reports")
#: what holds the bytes of Python's own code
_CODE = "cloudpickle.cloudpickle._builtin_type"
#: thresholds and leaves of trees
_TREES = ("sklearn.tree._tree.", "sklearn.ensemble._hist_gradient_boosting.predictor.")


def look(opened: Any) -> dict[str, Any]:
    """Return what the stored files hold of the training records, as JSON; in a worker, before any model is opened.

    Parameters
    ----------
    opened : training.payload.Opened
    """
    started = time.perf_counter()
    everybody = np.arange(opened.n, dtype=np.int64)
    X, folder = take(opened.X, everybody), opened.root / "stored-folder"
    if folder.is_dir():
        seen, judged = file_bytes.read(files(folder)), "file"
    else:
        model = opened.recipe.train(X, np.asarray(opened.y[: opened.n]).copy(), seed=opened.recipe.seed)
        seen, judged = file_bytes.of_bytes(_bytes_of(model), "model"), "model"
    least, kept, unknown = compared(seen, X)
    unknown = record_keys.found(seen, X, (Records.of(X).table, opened.y), opened.recipe, _PARAMETERS) + unknown
    spent = round(time.perf_counter() - started, 3)
    return {"judged": judged, "n": opened.n, "least": least, "kept": kept, "unknown": unknown[:20], "seconds": spent}


def in_recipe(opened: Any) -> dict[str, Any]:
    """Return what the recipe's own sources and parameters hold of the records, as ``look`` does; in a worker."""
    recipe, seen = opened.recipe, Read()
    parts = {**recipe.snapshot, "parameters": json.dumps(dict(recipe.payload), default=str).encode()}
    for name, content in parts.items():
        found = file_bytes.of_bytes(content, name)
        seen.arrays += found.arrays
        seen.texts |= found.texts
        seen.opaque += found.opaque
    least, kept, _ = compared(seen, take(opened.X, np.arange(opened.n, dtype=np.int64)))
    return {"judged": "model", "n": opened.n, "least": least, "kept": kept, "unknown": [], "seconds": 0.0}


def files(folder: Path) -> list[tuple[str, Path]]:
    """Return the files of a stored model; links lead nowhere, and our own reports are none of it."""
    found = sorted(p for p in folder.rglob("*") if p.is_file() and not p.is_symlink())
    named = [(p.relative_to(folder).as_posix(), p) for p in found]
    return [(n, p) for n, p in named if not n.startswith(_REPORTS)]


def _bytes_of(model: Any) -> bytes:
    try:
        return pickle.dumps(model)
    except Exception:  # noqa: BLE001  what plain pickling does not take
        import cloudpickle

        return bytes(cloudpickle.dumps(model))


def compared(seen: Read, X: Any) -> tuple[int, list[str], list[str]]:
    """Return how many records were found for certain, where, and a sentence for each part that may hold some.

    Parameters
    ----------
    seen : Read
    X : container of n records
    """
    records = Records.of(X)
    n, found, kept, unknown = records.n, np.zeros(records.n, dtype=bool), list[str](), list(seen.unknown)
    searched, together = _together(seen.arrays)
    quiet = [joined for joined, _ in together]
    blobs = [(w, d, _views(w, d)) for d, w in {d: w for w, d in reversed(seen.opaque)}.items()]  # each once
    asked = [*searched, *quiet, *(a for *_, views in blobs for a in views)]
    vectors = [a.values.astype(np.float64) for a in seen.arrays if _scales(a)]
    held = dict(zip(map(id, asked), records.rows_in(asked, vectors), strict=True))
    for a, parts in (*((a, [a]) for a in searched), *together):
        if held[id(a)].any():
            found |= held[id(a)]
            kept += _places(records, a, parts, vectors)
    places = {*kept, *(joined.where for joined in quiet if held[id(joined)].any())}
    odd = [a for a in (*seen.arrays, *quiet) if a.where not in places]
    unknown += [why for a in odd if (why := _strange(a, n, records.width))]
    written = records.texts_in(seen)
    if written.any():
        found |= written
        kept.append("texts of the training data")
    for where, data, views in blobs:
        mine = np.any([held[id(a)] for a in views], axis=0) if views else records.rows_in_bytes(data)
        if mine.any():
            found |= mine
            kept.append(where)
        elif where != _CODE and not booster(data):  # what a name says spares nobody
            unknown.append(f"{len(data)} bytes that nobody here can read ({where})")
    if records.cut:
        unknown.append("forms of the records were not all searched for, because time was over or scales too many")
    least = int(found.sum())
    inside = ", ".join(sorted({name.rpartition(".")[2] for name in seen.names if _SAMPLER.match(name)}))
    for keeper, size in _keepers(seen, n):
        least = max(least, min(n, size))
        trees = keeper.startswith(("Nearest", "KDTree", "BallTree"))  # which samplers look neighbours up in
        by = f", in the fitted sampler {inside}" if inside and trees else ""
        (kept if size or least else unknown).append(f"it keeps its training records: {keeper}{by}")
    return least, list(dict.fromkeys(kept))[:20], list(dict.fromkeys(unknown))


def _places(records: "Records", joined: Found, parts: list[Found], vectors: list[Float]) -> list[str]:
    """Return where the records lie that were found in short arrays together; their common name if in none alone."""
    named = dict[str, list[Found]]()
    for a in parts:
        named.setdefault(a.where, []).append(a)
    if not 1 < len(named) <= _MANY_PLACES:
        return [joined.where]
    alone = [Found(w, np.concatenate([a.values for a in some]), joined.text) for w, some in named.items()]
    held = records.rows_in(alone, vectors)
    return [a.where for a, rows in zip(alone, held, strict=True) if rows.any()] or [joined.where]


def _together(arrays: list[Found]) -> tuple[list[Found], list[tuple[Found, list[Found]]]]:
    """Return the arrays that are searched one by one, and short ones joined: each type of number, parameters or not.

    Ensembles have thousands of these, and somebody may have kept each record by itself.
    """
    alone, short = list[Found](), dict[tuple[str, bool, bool], list[Found]]()
    for a in arrays:
        theirs = a.where.startswith(_PARAMETERS)
        small = a.values.ndim == 1 and a.values.size < (1 << 16 if theirs else _FRAGMENT)
        short.setdefault((a.values.dtype.str, theirs, a.text), []).append(a) if small else alone.append(a)
    return alone, [(Found(_of_all(s), np.concatenate([a.values for a in s]), k[2]), s) for k, s in short.items()]


def _views(where: str, data: bytes) -> list[Found]:
    """Return the numbers that bytes without a meaning may be, wherever the first one begins; none of very many."""
    kinds = (np.dtype(k) for k in ("<f8", "<f4", "<f2", ">f8", ">f4") if len(data) <= _BYTES)
    return [
        Found(where, np.frombuffer(data, kind, (len(data) - k) // kind.itemsize, k))
        for kind in kinds
        for k in range(min(kind.itemsize, len(data) - kind.itemsize + 1))
    ]


def _may_be_scaled(a: Found) -> bool:
    """Return whether an array may hold scaled records: whole numbers, and those of trees, do not."""
    return a.text or (a.values.dtype.kind == "f" and a.values.dtype.isnative and not a.where.startswith(_TREES))


def _of_all(some: list[Found]) -> str:
    names = sorted({a.where for a in some})
    return names[0] if len(names) == 1 else names[0] + _OTHERS


def _scales(a: Found) -> bool:
    """Return whether an array may be what columns were shifted or divided by."""
    theirs = a.where.startswith("sklearn.preprocessing") or not a.where.startswith(_PARAMETERS)
    return theirs and a.values.ndim == 1 and 2 <= a.values.size < 10_000


def _keepers(seen: Read, n: int) -> Iterator[tuple[str, int]]:
    """Yield each class that keeps its records, and how many rows its largest array has; 0 where it has none."""
    for name in sorted({full.rpartition(".")[2] for full in seen.names} & KEEPERS):
        sizes = [a.values.shape[0] for a in seen.arrays if a.values.ndim == 2 and name in a.where.split(".")]
        sparse = [a.values.size - 1 for a in seen.arrays if a.where.removesuffix(".npy").endswith("indptr")]
        size = max([*sizes, *sparse], default=0)
        yield name, size if size >= max(2, n // 100) else 0


def _strange(a: Found, n: int, width: int) -> str:
    """Return that an array may hold records: it has an entry each, or is a table of nobody's library; empty if not."""
    shape = a.values.shape
    if not a.values.size or (a.values == a.values.flat[0]).all():
        return ""  # one number, however often
    mine = a.where.startswith(_PARAMETERS)
    joined = (mine or a.text) and a.where.endswith(_OTHERS)  # of many trees or files, whose sizes meet n by chance
    if n >= MANY and n in shape and not joined and not (a.text and TEXTS in a.where):
        return f"an array with one entry a record ({a.where})"
    # whole numbers of a text are ids and sizes; as records they would have been found
    odd = int((np.mod(a.values[np.isfinite(a.values)], 1) != 0).sum()) if a.text else a.values.size
    rows = odd // max(width, 1)
    if not mine and width and rows >= MANY and 20 * rows >= n and a.values.size > MANY * width:
        return f"{a.values.size} numbers whose meaning is not known ({a.where})"
    return ""


class Records:
    """Training records, as numbers and as texts, to be found again.

    Parameters
    ----------
    table : float64 array of shape (n, d)
        Columns of numbers; d is 0 where there are none.
    texts : list of str
        One a record, where records are texts; empty otherwise.
    """

    def __init__(self, table: Float, texts: list[str]) -> None:
        self.table, self.texts = table, texts
        self.n, self.width = len(texts) if texts else len(table), table.shape[1]
        # of 80 MB of records all forms take 7 s
        self._until, self.cut = time.process_time() + SECONDS * (1 + table.nbytes / 1e7), False

    @classmethod
    def of(cls, X: Any) -> "Records":
        """Return the records of a container."""
        if isinstance(X, list):
            texts = [v if isinstance(v, str) else " ".join(map(str, v)) for v in X]
            return cls(np.zeros((len(X), 0)), texts)
        if hasattr(X, "tocsr"):
            return cls(_first_values(X.tocsr()), [])
        if hasattr(X, "select_dtypes"):
            made = X.select_dtypes(["number", "bool"]).to_numpy(dtype=np.float64, na_value=np.nan)
            return cls(made, [])
        table = np.asarray(X)
        if table.dtype.kind not in "biuf":
            return cls(np.zeros((len(table), 0)), [])
        return cls(table.reshape(len(table), -1).astype(np.float64), [])

    @property
    def late(self) -> bool:
        """Whether no time is left for other forms than the records as they are; asked where more would be."""
        self.cut |= time.process_time() > self._until
        return self.cut

    def rows_in(self, arrays: list[Found], vectors: list[Float]) -> list[Bool]:
        """Return which records each array holds, bool of shape (n,): as they are first, then in other forms."""
        held, alike = [np.zeros(self.n, dtype=bool) for _ in arrays], dict[tuple[Any, int], list[int]]()
        for k, a in enumerate(arrays):
            if 2 <= self.width <= a.values.size and self.n >= 2:
                alike.setdefault((np.dtype(np.float32) if a.text else a.values.dtype, a.text), []).append(k)
        forms = {key: self._forms(*key, vectors) for key in alike}
        self._until += SECONDS * sum(a.values.nbytes for a in arrays) / 1e9
        for key, some in alike.items():
            space, _ = next(forms[key])
            for k in some:
                held[k] = self._rows(arrays[k], space)
        for key, some in alike.items():
            left = [k for k in some if not held[k].any() and _may_be_scaled(arrays[k])]
            for space, beside in forms[key] if left else ():
                for k in left:
                    if not held[k].any() and not self.late:
                        held[k] = self._rows(arrays[k], space, beside=beside)
            for k in left:
                if not held[k].any() and not self.late:
                    held[k] = self._fitted(arrays[k])
        return held

    def _rows(self, a: Found, space: RecordSpace, *, beside: bool = False) -> Bool:
        """Return which records an array holds in one form; in forms that are scaled by numbers beside, in tables."""
        for table in _tables(a.values, self.width):
            if (not beside or len(table) >= 2) and (mine := space.held(table)).any():
                return mine
        found = np.zeros(self.n, dtype=bool)
        for k, some in enumerate(() if beside else space.windows(a.values.ravel())):
            if k and self.late:
                break
            found |= space.held(some, straight=True)
        return found

    def _forms(self, dtype: Any, text: int, vectors: list[Float]) -> Iterator[tuple[RecordSpace, bool]]:
        """Yield the records as they may have been written: as they are, scaled by themselves or by numbers beside."""
        yield RecordSpace(self.table, dtype, ulps=PRINTED * text), False
        fit = {v.tobytes(): v for v in vectors if v.size == self.width and np.isfinite(v).all()}
        self.cut |= len(fit) > _SCALES
        for k, table in enumerate(_scaled(self.table, list(fit.values())[:_SCALES])):
            if self.late:
                return
            yield RecordSpace(table, dtype, ulps=PRINTED if text else CARRIED), k >= 4

    def _fitted(self, a: Found) -> Bool:
        """Return which records an array holds whose columns in order are straight lines of theirs."""
        for table in _tables(a.values, self.width):
            if table.shape == self.table.shape and (made := _fitted(table, self.table)) is not None:
                return RecordSpace(made, np.float32, ulps=PRINTED).held(table)
        return np.zeros(self.n, dtype=bool)

    def texts_in(self, seen: Read) -> Bool:
        """Return which texts stand in a file word for word, bool of shape (n,)."""
        found = np.zeros(self.n, dtype=bool)
        own = [k for k, t in enumerate(self.texts) if len(t) >= _LONG]
        blobs = [data for _, data in seen.opaque if len(data) < file_bytes.LARGEST >> 4]
        for k in own:
            found[k] = self.texts[k] in seen.texts
        for k in own[:: max(1, len(own) // 40)]:
            found[k] |= any(self.texts[k].encode() in data for data in blobs)
        return found

    def rows_in_bytes(self, data: bytes) -> Bool:
        """Return which of a few records stand in very many bytes that no format explains, bool of shape (n,)."""
        found = np.zeros(self.n, dtype=bool)
        for k in range(0, self.n, max(1, self.n // 16)):
            for kind in ("<f8", "<f4", "<f2", ">f8", ">f4"):
                row = self.table[k].astype(kind)
                needle = row.tobytes()
                if len(needle) >= 8 and len(set(row.tolist())) > 2 and needle in data:
                    found[k] = True
        return found


def _scaled(table: Float, scales: list[Float]) -> Iterator[Float]:
    """Yield the records scaled in four ways as the usual scalers do, then by numbers that stand beside."""
    with np.errstate(all="ignore"):
        spread, low, high = np.nanstd(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0)
        yield (table - np.nanmean(table, axis=0)) / np.where(spread > 0, spread, 1)
        yield (table - low) / np.where(high > low, high - low, 1)
        quarter, half, three = np.nanpercentile(table, [25, 50, 75], axis=0)
        yield (table - half) / np.where(three > quarter, three - quarter, 1)
        yield table / np.where(spread > 0, spread, 1)
        for one in scales:
            yield table - one
            yield table / one
            for other in (v for v in scales if v is not one):
                yield (table - one) / other
                yield table * one + other


def _fitted(table: NDArray[Any], records: Float) -> Float | None:
    """Return the records in the table's own scale, where each column in order is a straight line of the records'."""
    made = np.empty_like(records)
    for j in range(records.shape[1]):
        x, z = np.sort(records[:, j]), np.sort(table[:, j].astype(np.float64))
        if not (np.isfinite(x).all() and np.isfinite(z).all()) or x[0] == x[-1]:
            return None
        for down in (False, True):
            line = np.polyfit(x, z[::-1] if down else z, 1)
            off = np.abs(np.polyval(line, x) - (z[::-1] if down else z)).max()
            if off <= 1e-3 * max(z[-1] - z[0], 1e-300):
                break
        else:
            return None
        made[:, j] = np.polyval(line, records[:, j])
    return made


def _tables(values: NDArray[Any], width: int) -> Iterator[NDArray[Any]]:
    """Yield an array's rows as they may be meant: as they are, turned, or one number after another."""
    flat = values.ravel()
    if values.ndim >= 2:
        whole = values.reshape(len(values), -1)
        if whole.shape[1] >= 2:
            yield whole
        if len(whole) >= 2 and (len(whole) <= 4 * width or len(whole) == 1):
            yield whole.T
    if values.ndim != 2 or width not in values.shape:
        size = len(flat) // width * width
        if size >= 2 * width:
            yield flat[:size].reshape(width, -1).T


def _first_values(X: Any) -> Float:
    """Return the first values of each row of a sparse table, shape (n, 8); rows with fewer hold NaN."""
    made = np.full((X.shape[0], 8), np.nan)
    for k in range(8):
        has = X.indptr[:-1] + k < X.indptr[1:]
        made[has, k] = X.data[X.indptr[:-1][has] + k]
    return made
