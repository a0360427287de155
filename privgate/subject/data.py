"""Training data: records, labels, who they belong to, and people who were not in it."""

import copy
import importlib
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.documents import LARGE, strict_json
from privgate.errors import SubjectError
from privgate.subject import containers, files, labels
from privgate.subject.containers import Index, content_digest, length, stack, take
from privgate.subject.domain import Domain
from privgate.subject.storing import load, save

__all__ = ["Index", "TrainingData", "content_digest", "length", "load", "save", "stack", "take"]


#: a date, as text
_DATE = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?"


def _windows(X: Any) -> bool:
    """Whether each record is the one before it, moved on by one column: windows over one series."""
    array = X if isinstance(X, np.ndarray) else None
    if array is None and containers.is_frame(X) and all(getattr(d, "kind", "O") in "iuf" for d in X.dtypes):
        array = X.to_numpy()
    if array is None or array.ndim != 2 or array.dtype.kind not in "iuf" or array.shape[1] < 2 or len(array) < 10:
        return False
    many = len(np.unique(array[:, 0])) > len(array) // 2  # not codes and flags, which repeat by themselves
    one = len(array) - 1
    moved = [(array[1:, :-1] == array[:-1, 1:]), (array[1:, 1:] == array[:-1, :-1])]
    return bool(many and max(int(m.all(axis=1).sum()) for m in moved) > 0.9 * one)


def _steps_of_time(X: Any) -> str:
    """Return what of a frame is a regular series of times, each once; empty if nothing is."""
    if not containers.is_frame(X) or len(X) < 3:
        return ""
    import pandas as pd

    named = [("the index of X", X.index), *((f"column {c!r} of X", X[c]) for c in X.columns)]
    for name, values in named:
        if getattr(values.dtype, "kind", "") != "M":
            written = values.dtype == object or str(values.dtype).startswith(("str", "string"))
            if not written or not all(isinstance(v, str) and re.fullmatch(_DATE, v) for v in values):
                continue
        times = pd.DatetimeIndex(pd.to_datetime(values, errors="coerce"))
        if times.is_unique and not times.hasnans and pd.infer_freq(times.sort_values()) is not None:
            return name
    return ""


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
    #: where the data lie and how they are read, as JSON; set by ``from_file`` and ``from_dataset``
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    #: whether ``y`` are numbers to predict, not labels; the recipe says so, see ``as_targets``
    numbers: bool = field(default=False, repr=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", containers.checked(self.X))
        n = length(self.X)
        self._check_shape()
        y = labels.plain(self.y, "y")
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
                array = labels.plain(value, name)
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
            if not (isinstance(self.candidates, tuple | list) and len(self.candidates) == 2):
                raise SubjectError("candidates: pass the pair (X, y) of people who were not trained on")
            X, y_out = self.candidates
            y_out = labels.plain(y_out, "candidates: y")
            if length(X) != len(y_out):
                raise SubjectError(f"candidates: X has {length(X)} records but y has {len(y_out)}")
            ours, theirs = containers.alike(self.X, containers.checked(X))
            object.__setattr__(self, "X", ours)
            object.__setattr__(self, "candidates", (theirs, labels.like(y_out, y)))

    def _check_shape(self) -> None:
        """Refuse what has no one answer about one person: series in time, several labels a record."""
        if self.groups is None and (where := _steps_of_time(self.X)):
            raise SubjectError(
                f"{where} runs through time in equal steps, so that records are moments and no people; name what is "
                "left out together: groups=(the person or the block of time that each record belongs to)"
            )
        if self.groups is None and _windows(self.X):
            raise SubjectError(
                "each row of X is the one before it moved on by one column, so that records are windows over one "
                "series and no people; name what is left out together: groups=(the block of time of each record)"
            )
        try:
            shape = np.shape(self.y)
        except ValueError as exc:  # lists of unequal length
            raise SubjectError(labels.SEVERAL.format(what="y")) from exc
        if len(shape) == 2 and shape[1] > 1:
            raise SubjectError(
                f"y has {shape[1]} columns: several labels or numbers a record are not judged together; log one model "
                "a column, each with its own y, and check each"
            )

    def _check_features(self) -> None:
        """Refuse a domain that speaks about other features than the data has."""
        if self.domain is not None and (why := self.domain.misfit(self.X)):
            raise SubjectError(why)
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
        if containers.is_sparse(self.X) or not hasattr(self.X, "shape") or len(self.X.shape) != 2:
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

    @cached_property
    def order(self) -> str:
        """Memory order of the records, "C" or "F", where it is another than usual: that of a frame is column by column.

        No value depends on it, and what a learner makes of them may.
        """
        order = containers.order_of(self.X)
        return order if order != ("F" if containers.is_frame(self.X) else "C") else ""

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
        index = {"schema": "privgate/data/v2", "files": names, **self.declared(), "digest": self.digest}
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

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        target: str | int,
        ids: str | int | None = None,
        groups: str | int | None = None,
        drop: Sequence[str | int] = (),
        candidates: str | Path | None = None,
        domain: Any = None,
        sensitive: Sequence[str | int] = (),
        file_format: str | None = None,
        **options: Any,
    ) -> Self:
        """Return data that stay in their file: a reference and a digest are logged, nothing is uploaded.

        Parameters
        ----------
        path : str or Path
            CSV or Parquet that the gate will find there too: a mounted folder, a URI that pandas reads, a file that
            DVC keeps.
        target : column
            The labels.
        ids, groups : column, optional
            Names of records, and whose they are; neither is a feature.
        drop : sequence of columns
            What else is no feature.
        candidates : str or Path, optional
            A file of the same form with people who are not in the training data.
        domain, sensitive
            As in ``TrainingData``.
        file_format : str, optional
            "csv" or "parquet" where the name does not say it.
        options
            How pandas reads the file: ``sep``, ``dtype``, ``na_values``, … for CSV, ``columns`` for Parquet.
        """
        columns = {"target": target, "ids": ids, "groups": groups, "drop": list(drop)}
        uri = files.absolute(path)
        form = files.format_of(uri, file_format)
        X, y, id_values, group_values = files.split(files.read(uri, form, options), columns)
        pair, other = None, None if candidates is None else files.absolute(candidates)
        if other is not None:
            people = files.read(other, form, options)
            unused = [c for c in (ids, groups, *drop) if c in people.columns]
            pair = files.split(people, {"target": target, "drop": unused})[:2]
        made = cls(X, y, ids=id_values, groups=group_values, candidates=pair, domain=domain, sensitive=tuple(sensitive))
        source = {"uri": uri, "format": form, "columns": columns, "candidates": other, "options": options}
        try:
            recorded = json.loads(json.dumps({**source, **made.declared()}, allow_nan=False))
        except (TypeError, ValueError) as exc:
            raise SubjectError(f"how the file is read cannot be recorded: {exc}; use plain text and numbers") from exc
        object.__setattr__(made, "source", recorded)
        return made

    def declared(self) -> dict[str, Any]:
        """Return what is said about the data and is not in them, as JSON."""
        domain = None if self.domain is None else self.domain.payload()
        return {"domain": domain, "sensitive": list(self.sensitive)}

    @classmethod
    def from_source(cls, source: Mapping[str, Any]) -> Self:
        """Return the data that a recorded ``source`` names, read again."""
        columns, domain = dict(source["columns"]), source["domain"]
        return cls.from_file(
            str(source["uri"]),
            **columns,
            candidates=source["candidates"],
            domain=None if domain is None else Domain.from_payload(domain),
            sensitive=tuple(source["sensitive"]),
            file_format=str(source["format"]),
            **dict(source["options"]),
        )

    @classmethod
    def from_dataset(cls, dataset: Any, **about: Any) -> Self:
        """Return the data of an ``mlflow.data`` dataset; they stay in its source if that is a file that says the same.

        Parameters
        ----------
        dataset : mlflow.data.pandas_dataset.PandasDataset or NumpyDataset
            With ``targets``.
        about
            As in ``from_file`` for frames (``ids``, ``groups``, ``drop``, …), as in ``TrainingData`` for arrays.
        """
        if getattr(dataset, "targets", None) is None:
            raise SubjectError("the dataset names no targets; make it with targets=")
        if not hasattr(dataset, "df"):
            return cls(dataset.features, dataset.targets, **about)
        named: dict[str, Any] = {k: about.pop(k) for k in ("ids", "groups", "drop") if k in about}
        columns: dict[str, Any] = {"target": dataset.targets, **named}
        uri = getattr(dataset.source, "uri", None)
        if uri is not None:
            try:
                read = cls.from_file(uri, **columns, **about)
            except SubjectError:
                read = None
            X, y, _, _ = files.split(dataset.df, columns)
            if read is not None and cls(X, y).digest == cls(read.X, read.y).digest:
                return read
        about.pop("file_format", None)
        X, y, ids, groups = files.split(dataset.df, columns)
        return cls(X, y, ids=ids, groups=groups, **about)

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
