"""Writing containers to files and reading back what was written; and data that stay in the file they come from."""

import json
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

import numpy as np

from privgate.errors import SubjectError
from privgate.subject.containers import cell, content_digest, is_frame, is_pandas, is_sparse, laid_out, order_of

# A frame is a Parquet file. What Parquet does not keep is written beside the values: None, NaN and ``pandas.NA`` in
# columns of objects, numbers among text there, categories without a record, names that are numbers, and memory order.

_KEY = b"privgate"
#: kinds of cells in columns of objects; what a cell is beside its text
_KINDS = ("text", "none", "nan", "NA", "int", "float", "bool")


def save(X: Any, stem: Path) -> str:
    """Write a container next to ``stem`` without pickle, if it can be, and return the file's name."""
    if is_frame(X):
        path = _save_frame(X, stem, {})
    elif is_pandas(X):
        path = _save_frame(X.to_frame(name=0), stem, {"series": X.name if isinstance(X.name, str | int) else None})
    elif is_sparse(X):
        import scipy.sparse as sp

        path = stem.with_suffix(".npz")
        sp.save_npz(path, X if X.format == "csc" else X.tocsr())
    elif hasattr(X, "shape") and X.dtype != object:
        path = stem.with_suffix(".npy")
        np.save(path, np.asarray(X), allow_pickle=False)
    elif hasattr(X, "shape"):
        if X.ndim > 2:
            raise SubjectError("an array of objects of three axes cannot be stored without pickle; pass numbers")
        import pandas as pd

        path = _save_frame(pd.DataFrame(X, dtype=object), stem, {"array": X.ndim})
    elif (other := next((i for i, v in enumerate(X) if not isinstance(v, str)), None)) is None:
        path = stem.with_suffix(".json")
        path.write_text(json.dumps(list(X)), encoding="utf-8")
    else:
        raise SubjectError(f"a list of records holds text, and record {other} does not; pass an array or a DataFrame")
    return path.name


def load(path: Path, *, mmap: bool = False) -> Any:
    """Read what ``save`` wrote; arrays stay on disk with ``mmap``."""
    if path.suffix == ".parquet":
        return _load_frame(path)
    if path.suffix == ".npz":
        import scipy.sparse as sp

        return sp.load_npz(path)
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)


def difference(given: Any, stored: Any) -> str:
    """Return what storing changed, naming the column; empty if nothing: what the learner sees is the same."""
    if content_digest(given) == content_digest(stored):
        return ""
    for name in given.columns if is_frame(given) and is_frame(stored) else ():
        if content_digest(given[[name]]) != content_digest(stored[[name]]):
            return f"column {name!r} holds other values, or values of another type, when it is read back"
    return "its values are others when they are read back"


def _save_frame(X: Any, stem: Path, note: dict[str, Any]) -> Path:
    import pandas as pd
    import pyarrow as pa
    import pyarrow.parquet as pq

    plain, extra, categories = dict[str, Any](), dict[str, Any](), dict[str, Any]()
    try:
        for k, (name, dtype) in enumerate(X.dtypes.items()):
            column, at = X.iloc[:, k].reset_index(drop=True), str(k)
            if str(dtype) == "category":
                extra[at] = pa.array(column.cat.codes.to_numpy().astype(np.int32))
                known, ordered = column.cat.categories, bool(column.cat.ordered)
                if not all(isinstance(v, str | int | float | bool) for v in known.tolist()):
                    raise SubjectError(f"column {name!r} has categories of neither text nor numbers; make text of them")
                categories[at] = {"values": known.tolist(), "dtype": str(known.dtype), "ordered": ordered}
            elif str(dtype) == "object":
                texts, kinds = _cells_of(column, name)
                extra[at], extra[f"{at}.kind"] = pa.array(texts, pa.large_string()), pa.array(kinds, pa.int8())
            else:
                plain[at] = column
        table = pa.Table.from_pandas(pd.DataFrame(plain), preserve_index=False)
    except (pa.ArrowException, TypeError, ValueError) as exc:  # what is no Unicode, too; text of records is not told
        raise SubjectError(f"the frame cannot be stored as Parquet: its types are {[*map(str, X.dtypes)]}") from exc
    note |= {
        "columns": [c if isinstance(c, str) else int(c) for c in X.columns],
        "dtypes": [str(d) for d in X.dtypes],
        "categories": categories,
        "rows": len(X),
        "order": order_of(X),
    }
    metadata = {**(table.schema.metadata or {}), _KEY: json.dumps(note)}
    path = stem.with_suffix(".parquet")
    pq.write_table(pa.table({**{at: table[at] for at in plain}, **extra}).replace_schema_metadata(metadata), path)
    return path


def _cells_of(column: Any, name: Any) -> tuple[list[Any], list[int]]:
    cells = [["text", c] if isinstance(c, str) else c or ["none"] for c in map(cell, column.tolist())]
    if (odd := next((row for row, (kind, *_) in enumerate(cells) if kind not in _KINDS), None)) is not None:
        what = f"column {name!r} holds a {type(column.iloc[odd]).__name__} among objects (record {odd})"
        raise SubjectError(f"{what}, which needs pickle; give the column a type (pandas.to_datetime, astype)")
    return [rest[0] if rest else None for _, *rest in cells], [_KINDS.index(kind) for kind, *_ in cells]


def _load_frame(path: Path) -> Any:
    import pandas as pd
    import pyarrow.parquet as pq

    table = pq.read_table(path)
    note = json.loads((table.schema.metadata or {}).get(_KEY, b"null"))
    if note is None:  # written by pandas alone: an earlier version of ours, or by hand
        return table.to_pandas()
    extra = [n for n in table.column_names if n in note["categories"] or f"{n}.kind" in table.column_names]
    kinds = [n for n in table.column_names if n.endswith(".kind")]
    plain = table.drop_columns([*extra, *kinds]).to_pandas()
    held: dict[str, Any] = {}
    for k, (name, dtype) in enumerate(zip(note["columns"], note["dtypes"], strict=True)):
        at = str(k)
        if at in note["categories"]:
            about = note["categories"][at]
            known = pd.CategoricalDtype(pd.Index(about["values"], dtype=about["dtype"]), ordered=about["ordered"])
            held[at] = pd.Series(pd.Categorical.from_codes(table[at].to_numpy(), dtype=known))
        elif at in extra:
            held[at] = pd.Series(_objects(table[at], table[f"{at}.kind"]), dtype=object)
        else:  # Parquet has no seconds, and gives them back as milliseconds
            held[at] = plain[at].astype(dtype) if dtype.startswith("datetime64[s") else plain[at]
        if str(held[at].dtype) != dtype:
            raise SubjectError(f"column {name!r} was stored as {dtype} and is read as {held[at].dtype}; make it that")
    X = pd.DataFrame(held, index=pd.RangeIndex(note["rows"]))
    if "array" in note:
        values = X.to_numpy(dtype=object)
        return values[:, 0] if note["array"] == 1 else np.ascontiguousarray(values)
    if "series" in note:
        return X["0"].rename(note["series"])
    X.columns = pd.Index(note["columns"])
    return laid_out(X, note["order"])


def _objects(texts: Any, kinds: Any) -> Any:
    import pandas as pd

    objects = np.empty(len(texts), dtype=object)
    objects[:] = texts.to_pylist()
    kind = kinds.to_numpy()
    for k, make in ((4, int), (5, float.fromhex), (6, "True".__eq__)):
        for row in np.flatnonzero(kind == k):
            objects[row] = make(objects[row])
    objects[kind == 1], objects[kind == 2], objects[kind == 3] = None, np.nan, pd.NA
    return objects


#: what of pandas' readers may be recorded: how text becomes values, nothing that runs or names another place
_CSV = frozenset(
    (
        *("sep", "header", "names", "usecols", "dtype", "na_values", "keep_default_na", "na_filter", "decimal"),
        *("thousands", "encoding", "quotechar", "skiprows", "nrows", "index_col", "comment", "skipinitialspace"),
        *("parse_dates", "true_values", "false_values", "compression"),
    )
)
_ENDINGS = {".csv": "csv", ".gz": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}
_OPTIONS = {"csv": _CSV, "parquet": frozenset({"columns"})}


def format_of(uri: str, stated: str | None = None) -> str:
    """Return "csv" or "parquet"; any other kind of file a loader of one's own reads."""
    path = Path(urlparse(uri).path or uri)
    form = stated or _ENDINGS.get(path.suffix.lower(), "")
    if form not in _OPTIONS or (path / "_delta_log").is_dir():
        raise SubjectError(f"{uri!r} is neither CSV nor Parquet; give file_format=, or use TrainingData.from_loader")
    return form


def read(uri: str, form: str, options: Mapping[str, Any]) -> Any:
    """Return the frame that a file holds, read with options that can be recorded."""
    import pandas as pd

    if wrong := sorted(set(options) - _OPTIONS[form]):
        raise SubjectError(f"option {wrong[0]!r} of reading {form} is not recorded; use a loader of your own")
    local = Path(uri.removeprefix("file://"))
    if "://" not in uri.removeprefix("file://") and not (local.is_file() or local.is_dir()):
        pull = f"; run: dvc pull {local}" if Path(f"{local}.dvc").exists() else "; the training data must lie there"
        raise SubjectError(f"{str(local)!r} is no file{pull}")
    try:
        return pd.read_csv(uri, **dict(options)) if form == "csv" else pd.read_parquet(uri, **dict(options))
    except (OSError, ValueError, TypeError, ImportError, LookupError, ArithmeticError, RuntimeError) as exc:
        said = re.split("['\"]", str(exc).partition("\n")[0])[0]  # what a reader quotes stands in a record
        raise SubjectError(f"{uri!r} cannot be read as {form}: {said[:200] or type(exc).__name__}") from exc


def split(frame: Any, columns: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return X, y, ids and groups of a frame; ``columns`` names target, ids, groups and what to drop."""
    whose = [columns.get(k) for k in ("ids", "groups")]
    named = [columns["target"], *(c for c in whose if c is not None), *columns.get("drop", ())]
    if absent := [c for c in named if c not in frame.columns]:
        raise SubjectError(f"there is no column {absent[0]!r} in the data; known: {', '.join(map(str, frame.columns))}")
    ids, groups = (None if c is None else frame[c] for c in whose)
    # a person's name is no feature
    return frame.drop(columns=named).reset_index(drop=True), frame[columns["target"]], ids, groups


def absolute(uri: str | Path) -> str:
    """Return a URI that means the same from every folder; one with a password, which would be recorded, is refused."""
    if "://" not in (text := str(uri)):
        return str(Path(text).resolve())
    if urlparse(text).password:
        raise SubjectError("the address of the data holds a password, which would be recorded; use a loader")
    return text
