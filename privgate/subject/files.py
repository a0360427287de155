"""Training data that stay in the file they come from: recorded is where it lies, how it is read, and a digest."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any
from urllib.parse import urlparse

from privgate.errors import SubjectError

#: what of pandas' readers may be recorded: how text becomes values, nothing that runs or names another place
_CSV = frozenset(
    (
        *("sep", "header", "names", "usecols", "dtype", "na_values", "keep_default_na", "na_filter", "decimal"),
        *("thousands", "encoding", "quotechar", "skiprows", "nrows", "index_col", "comment", "skipinitialspace"),
        *("parse_dates", "true_values", "false_values", "compression"),
    )
)
_OPTIONS = {"csv": _CSV, "parquet": frozenset({"columns"})}


def format_of(uri: str, stated: str | None = None) -> str:
    """Return "csv" or "parquet".

    Raises
    ------
    SubjectError
        Another kind of file, which a loader of one's own reads.
    """
    path = Path(urlparse(uri).path or uri)
    found = stated or {".csv": "csv", ".gz": "csv", ".tsv": "csv", ".parquet": "parquet", ".pq": "parquet"}.get(
        path.suffix.lower(), ""
    )
    if found not in _OPTIONS or (path / "_delta_log").is_dir():
        raise SubjectError(
            f"{uri!r} is neither CSV nor Parquet; give format='csv' or 'parquet', or read it (SQL, Delta, anything "
            "else) in a function of your own: TrainingData.from_loader('package.module:function')"
        )
    return found


def read(uri: str, form: str, options: Mapping[str, Any]) -> Any:
    """Return the frame that a file holds.

    Raises
    ------
    SubjectError
        An option is not one that can be recorded, or the file cannot be read.
    """
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
        raise SubjectError(f"{uri!r} cannot be read as {form}: {str(exc).partition(chr(10))[0][:200]}") from exc


def split(frame: Any, columns: Mapping[str, Any]) -> tuple[Any, Any, Any, Any]:
    """Return X, y, ids and groups of a frame; ``columns`` names target, ids, groups and what to drop."""
    named = [columns["target"], *(columns[k] for k in ("ids", "groups") if columns.get(k) is not None)]
    named += list(columns.get("drop", ()))
    if absent := [c for c in named if c not in frame.columns]:
        raise SubjectError(f"there is no column {absent[0]!r} in the data; known: {', '.join(map(str, frame.columns))}")
    ids, groups = (None if columns.get(k) is None else frame[columns[k]] for k in ("ids", "groups"))
    # a person's name is no feature
    return frame.drop(columns=named).reset_index(drop=True), frame[columns["target"]], ids, groups


def absolute(uri: str | Path) -> str:
    """Return a URI that means the same from every folder.

    Raises
    ------
    SubjectError
        It holds a password, which would be recorded.
    """
    text = str(uri)
    if "://" in text:
        if urlparse(text).password:
            raise SubjectError("the address of the data holds a password, which would be recorded; use a loader")
        return text
    return str(Path(text).resolve())
