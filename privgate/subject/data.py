"""Training data: records, labels, who they belong to, and people who were not in it."""

import copy
import importlib
import json
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.documents import LARGE, strict_json
from privgate.errors import SubjectError
from privgate.subject.domain import Domain

Index = NDArray[np.int64]


def _is_frame(X: Any) -> bool:
    return type(X).__module__.startswith("pandas") and hasattr(X, "iloc")


def _steps_of_time(X: Any) -> str:
    """Return what of a frame is a regular series of times, each once; empty if nothing is."""
    if not _is_frame(X) or len(X) < 3:
        return ""
    import pandas as pd

    named = [("the index of X", X.index), *((f"column {c!r} of X", X[c]) for c in X.columns)]
    for name, values in named:
        if getattr(values.dtype, "kind", "") != "M":
            continue
        times = pd.DatetimeIndex(values)
        if times.is_unique and not times.hasnans and pd.infer_freq(times.sort_values()) is not None:
            return name
    return ""


def _is_sparse(X: Any) -> bool:
    return hasattr(X, "tocsr") and hasattr(X, "nnz")


def length(X: Any) -> int:
    """Return the number of records of an array, DataFrame, sparse matrix or list."""
    return int(X.shape[0]) if hasattr(X, "shape") else len(X)


def take(X: Any, rows: Index) -> Any:
    """Return the given rows of any container, in the given order."""
    if _is_frame(X):
        return X.iloc[rows]
    if hasattr(X, "shape"):
        return X[rows]
    return [X[int(i)] for i in rows]


def stack(X: Any, other: Any) -> Any:
    """Return the records of both containers, one after the other; both are of one kind."""
    if _is_frame(X):
        import pandas as pd

        return pd.concat([X, other], ignore_index=True)
    if _is_sparse(X):
        import scipy.sparse as sp

        return sp.vstack([X, other], format="csr")
    if hasattr(X, "shape"):
        return np.concatenate([np.asarray(X), np.asarray(other)])
    return [*X, *other]


def save(X: Any, stem: Path) -> str:
    """Write a container next to ``stem`` without pickle and return the file's name.

    Raises
    ------
    SubjectError
        The container cannot be written without pickle: object arrays, lists of anything but text.
    """
    if _is_frame(X):
        path = stem.with_suffix(".parquet")
        X.reset_index(drop=True).to_parquet(path)
    elif _is_sparse(X):
        import scipy.sparse as sp

        path = stem.with_suffix(".npz")
        sp.save_npz(path, X.tocsr())
    elif hasattr(X, "shape"):
        array = np.asarray(X)
        if array.dtype == object:
            raise SubjectError("an object array cannot be stored without pickle; pass numbers, text or a DataFrame")
        path = stem.with_suffix(".npy")
        np.save(path, array, allow_pickle=False)
    elif all(isinstance(v, str) for v in X):
        path = stem.with_suffix(".json")
        path.write_text(json.dumps(list(X)), encoding="utf-8")
    else:
        raise SubjectError("a list of records must hold text; pass an array or a DataFrame for anything else")
    return path.name


def load(path: Path, *, mmap: bool = False) -> Any:
    """Read what ``save`` wrote; arrays stay on disk with ``mmap``."""
    if path.suffix == ".parquet":
        import pandas as pd

        return pd.read_parquet(path)
    if path.suffix == ".npz":
        import scipy.sparse as sp

        return sp.load_npz(path)
    if path.suffix == ".json":
        return json.loads(path.read_text(encoding="utf-8"))
    return np.load(path, mmap_mode="r" if mmap else None, allow_pickle=False)


def content_digest(X: Any) -> str:
    """Return the digest of all values of a container, dtypes and column names included."""
    if _is_frame(X):
        columns = [(str(c), str(X[c].dtype), [None if v is None else str(v) for v in X[c].tolist()]) for c in X.columns]
        return digest.of_json(columns)
    if _is_sparse(X):
        csr = X.tocsr()
        return digest.of_json([list(csr.shape), *(digest.of_array(a) for a in (csr.indptr, csr.indices, csr.data))])
    if hasattr(X, "shape"):
        return digest.of_array(np.asarray(X))
    return digest.of_json([str(v) for v in X])


def _plain(values: Any) -> NDArray[Any]:
    """Return an array without objects: text stays text, everything else must be numbers."""
    array = np.asarray(values)
    if array.dtype == object:
        array = np.array([str(v) for v in array])
    return array


def scale_of(y: NDArray[Any]) -> tuple[float, float]:
    """Return mean and standard deviation of targets; 1 for the deviation where all are the same."""
    values = np.asarray(y, dtype=np.float64)
    with np.errstate(over="ignore", invalid="ignore"):
        mean, deviation = float(values.mean()), float(values.std())
    if not np.isfinite([mean, deviation]).all():
        raise SubjectError("the targets are too large for their deviation to be a number; use another unit")
    return mean, deviation if deviation > 0 else 1.0


@dataclass(frozen=True, eq=False)
class TrainingData:
    """Everything the training function saw, and who it belongs to.

    Parameters
    ----------
    X : array of any rank, DataFrame, scipy sparse matrix, or list of text
        One record a row.
    y : array of shape (n,)
        Labels or targets.
    ids : sequence of str, optional
        Names of records; ``0 .. n-1`` if absent. They never enter a report, only keyed hashes of them.
    groups : sequence, optional
        Which person each record belongs to; a unit is then a person. A record is a unit of one if absent.
    candidates : (X, y), optional
        Non-members from the same population; attack rules need them.
    domain : Domain, mapping or sequence, optional
        What the endpoint accepts, also in the short forms of ``Domain.of``; inferred, and marked so, if absent.
    sensitive : tuple of str or int, optional
        Columns whose values form the groups of group-wise rules.
    """

    X: Any
    y: Any
    ids: Any = None
    groups: Any = None
    candidates: Any = None
    domain: Domain | None = None
    sensitive: tuple[str | int, ...] = ()
    loader: str | None = field(default=None, repr=False)
    #: whether ``y`` are numbers to predict, not labels; the recipe says so, see ``as_targets``
    numbers: bool = field(default=False, repr=False, init=False)

    def __post_init__(self) -> None:
        n = length(self.X)
        self._check_shape()
        y = _plain(self.y)
        object.__setattr__(self, "y", y)
        if y.ndim != 1 or len(y) != n:
            raise SubjectError(f"X has {n} records but y has shape {y.shape}; pass one label a record")
        if n < 2:
            raise SubjectError(f"training data has {n} records; leaving one out needs at least 2")
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise SubjectError("y holds NaN or infinity; remove or fill those records")
        for name in ("ids", "groups"):
            value = getattr(self, name)
            if value is not None:
                array = _plain(value)
                if array.shape != (n,):
                    raise SubjectError(f"{name} has shape {array.shape} but there are {n} records")
                object.__setattr__(self, name, array)
        if self.domain is not None:
            try:
                object.__setattr__(self, "domain", Domain.of(self.domain))
            except (TypeError, ValueError) as exc:
                raise SubjectError(f"the declared domain cannot be used: {exc}") from exc
            self._check_features()
        if self.ids is not None and len(np.unique(self.ids)) != n:
            raise SubjectError("ids are not unique; use groups for people with several records")
        if self.candidates is not None:
            X, y_out = self.candidates
            y_out = _plain(y_out)
            if length(X) != len(y_out):
                raise SubjectError(f"candidates: X has {length(X)} records but y has {len(y_out)}")
            object.__setattr__(self, "candidates", (X, y_out))

    def _check_shape(self) -> None:
        """Refuse what has no one answer about one person: series in time, several labels a record."""
        if self.groups is None and (where := _steps_of_time(self.X)):
            raise SubjectError(
                f"{where} runs through time in equal steps, so that records are moments and no people; name what is "
                "left out together: groups=(the person or the block of time that each record belongs to)"
            )
        shape = np.shape(self.y)
        if len(shape) == 2 and shape[1] > 1:
            raise SubjectError(
                f"y has {shape[1]} columns: several labels or numbers a record are not judged together; log one model "
                "a column, each with its own y, and check each"
            )

    def _check_features(self) -> None:
        """Refuse a domain that speaks about another number of features than the data has."""
        shape: tuple[int, ...] = getattr(self.X, "shape", ())
        for name in ("categories", "box"):
            sides = getattr(self.domain, name)
            if sides is not None and len(shape) == 2 and len(sides) != shape[1]:
                raise SubjectError(f"the domain declares {len(sides)} features ({name}) but X has {shape[1]} columns")

    @property
    def n(self) -> int:
        """Number of training records."""
        return length(self.X)

    @cached_property
    def units(self) -> tuple[Index, ...]:
        """Rows of each unit, in the order in which units first appear; a record is a unit of one."""
        if self.groups is None:
            return tuple(np.arange(self.n, dtype=np.int64)[:, None])
        _, first, inverse = np.unique(self.groups, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[inverse]
        order = np.argsort(rank, kind="stable").astype(np.int64)
        return tuple(np.split(order, np.cumsum(np.bincount(rank))[:-1]))

    @cached_property
    def unit_names(self) -> NDArray[Any]:
        """Name of each unit as text: its group, else its record id, else its row number."""
        source = self.groups if self.groups is not None else self.ids
        if source is None:
            return np.arange(self.n).astype(str)
        return np.array([str(source[rows[0]]) for rows in self.units])

    @cached_property
    def effective_domain(self) -> Domain | None:
        """The declared domain, or one inferred from numeric columns, or None where neither is possible."""
        if self.domain is not None:
            return self.domain
        if _is_sparse(self.X) or not hasattr(self.X, "shape") or len(self.X.shape) != 2:
            return None
        array = np.asarray(self.X)
        if array.dtype.kind not in "biuf" or not np.isfinite(array.astype(np.float64)).all():
            return None
        return Domain.infer(array)

    @cached_property
    def digest(self) -> str:
        """Full sha256 over every value, label, id, group, candidate and the declared domain."""
        parts: dict[str, Any] = {"X": content_digest(self.X), "y": digest.of_array(self.y)}
        for name in ("ids", "groups"):
            value = getattr(self, name)
            parts[name] = None if value is None else digest.of_array(value)
        if self.candidates is not None:
            parts["candidates"] = [content_digest(self.candidates[0]), digest.of_array(self.candidates[1])]
        parts["domain"] = None if self.domain is None else self.domain.payload()
        parts["sensitive"] = list(self.sensitive)
        return digest.of_json(parts)

    def as_targets(self) -> Self:
        """Return the same data, whose ``y`` are numbers to predict; digests stay."""
        if self.numbers:
            return self
        made = copy.copy(self)
        object.__setattr__(made, "numbers", True)
        return made

    def pool(self) -> tuple[Any, NDArray[Any]]:
        """Return training records followed by candidates, as (X, y): the rows that training tasks name."""
        if self.candidates is None:
            return self.X, self.y
        return stack(self.X, self.candidates[0]), np.concatenate([self.y, self.candidates[1]])

    def save(self, folder: Path) -> dict[str, str]:
        """Write everything below ``folder`` without pickle; return ``file name -> sha256``."""
        folder.mkdir(parents=True, exist_ok=True)
        names: dict[str, Any] = {"X": save(self.X, folder / "X"), "y": save(self.y, folder / "y")}
        for name in ("ids", "groups"):
            value = getattr(self, name)
            names[name] = None if value is None else save(value, folder / name)
        if self.candidates is not None:
            names["candidates"] = [
                save(v, folder / f"candidates_{k}") for k, v in zip("Xy", self.candidates, strict=True)
            ]
        index = {
            "schema": "privgate/data/v1",
            "files": names,
            "domain": None if self.domain is None else self.domain.payload(),
            "sensitive": list(self.sensitive),
            "digest": self.digest,
        }
        (folder / "data.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
        return digest.of_files(folder)

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = False) -> Self:
        """Read what ``save`` wrote; nothing is verified here, see ``digest``."""
        index = strict_json.read(folder / "data.json", LARGE)
        files = index["files"]

        def read(name: str | None) -> Any:
            return None if name is None else load(folder / name, mmap=mmap)

        pair = files.get("candidates")
        return cls(
            read(files["X"]),
            read(files["y"]),
            ids=read(files["ids"]),
            groups=read(files["groups"]),
            candidates=None if pair is None else (read(pair[0]), read(pair[1])),
            domain=None if index["domain"] is None else Domain.from_payload(index["domain"]),
            sensitive=tuple(index["sensitive"]),
        )

    @classmethod
    def from_loader(cls, reference: str, **options: Any) -> Self:
        """Return data that stays where it is: ``pkg:fn`` is called here, and only the digest is stored.

        Parameters
        ----------
        reference : str
            ``"package.module:function"``; the function takes ``options`` and returns a ``TrainingData``.
        """
        module, _, name = reference.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as exc:
            raise SubjectError(
                f"loader {reference!r} cannot be imported: {exc}; name it as 'pkg.module:function'"
            ) from exc
        made = function(**options)
        if not isinstance(made, TrainingData):
            raise SubjectError(f"loader {reference!r} returned {type(made).__name__}, not TrainingData")
        object.__setattr__(made, "loader", json.dumps({"reference": reference, "options": options}))
        return made  # type: ignore[return-value]  # a loader may return a subclass

    @cached_property
    def _coded(self) -> tuple[NDArray[Any], Index]:
        classes, codes = np.unique(self.y, return_inverse=True)
        return classes, codes.astype(np.int64)

    def classes(self) -> NDArray[Any]:
        """Return the sorted distinct labels."""
        return self._coded[0]

    @property
    def label_codes(self) -> Index:
        """Position of each record's label in ``classes``, int64 array of shape (n,)."""
        return self._coded[1]
