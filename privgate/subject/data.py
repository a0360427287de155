"""Training data: records, labels, the person of each record, and candidates whom training does not use.

``save`` writes the records to files; a file or a loader function may hold them instead.
"""

import copy
import importlib
import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Index
from privgate.documents import LARGE, strict_json
from privgate.errors import SubjectError
from privgate.subject import containers
from privgate.subject import storing as files
from privgate.subject.containers import content_digest, length, stack, take
from privgate.subject.domain import Domain

#: sets a field of the frozen dataclass
_set = object.__setattr__


class PersonRows(Sequence[Index]):
    """The row numbers of each person, in two arrays: a million small arrays would take more memory than most data.

    ``order`` of shape (n,) holds all rows, sorted by person; person k has ``order[bounds[k] : bounds[k + 1]]``, with
    ``bounds`` of shape (U + 1,).
    """

    def __init__(self, order: Index, bounds: Index) -> None:
        self.order, self.bounds = order, bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def first(self) -> Index:
        """The first row of each person, shape (U,)."""
        return self.order[self.bounds[:-1]]

    @property
    def owner(self) -> Index:
        """The person of each row, shape (n,)."""
        owners = np.empty(len(self.order), dtype=np.int64)
        owners[self.order] = np.repeat(np.arange(len(self)), np.diff(self.bounds))
        return owners

    def __getitem__(self, k: Any) -> Any:
        if not 0 <= k < len(self):
            raise IndexError("there is no such person")
        return self.order[self.bounds[k] : self.bounds[k + 1]]


@dataclass(frozen=True, eq=False)
class TrainingData:
    """All data that the training function gets, and the person of each record.

    Parameters
    ----------
    X : array of any rank, DataFrame, scipy sparse matrix, or list of text
        One record a row.
    y : array of shape (n,)
        Labels or targets.
    ids : sequence of str, optional
        Names of records. They never enter a report, only keyed hashes of them.
    groups : sequence, optional
        Which person each record belongs to.
    one_record_each : bool
        Each record is a person of its own. Policies may ask for this or ``groups``: nothing guesses it.
    candidates : (X, y) or (X, y, people), optional
        Records of similar people whom training does not use; attack rules need them. ``people`` names persons as
        ``groups`` does. Records of members are dropped; several records of one person are one trial.
    domain : Domain, mapping or sequence, optional
        Questions that the endpoint accepts, also in a form of ``Domain.read``; inferred, and marked so, if absent.
    sensitive : tuple of str or int, optional
        Columns whose values form the groups of group-wise rules.
    """

    X: Any
    y: Any
    ids: Any = None
    groups: Any = None
    one_record_each: bool = False
    candidates: Any = None
    domain: Domain | None = None
    sensitive: tuple[str | int, ...] = ()
    loader: str | None = field(default=None, repr=False)
    #: address and read options of the data, as JSON; set by ``from_file``
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    #: whether ``y`` holds numbers to predict, not labels: the recipe's task decides, see ``as_targets``
    predicts_numbers: bool = field(default=False, repr=False, init=False)
    #: name of the user who declared the person of each record, by ``declare_people``
    declared_by: str = field(default="", repr=False, init=False)

    def __post_init__(self) -> None:
        _set(self, "X", containers.checked(self.X))
        n = length(self.X)
        if n < 2:
            raise SubjectError(f"training data has {n} records; leaving one out needs at least 2")
        for name in ("y", "ids", "groups"):
            if (value := getattr(self, name)) is not None or name == "y":
                array = containers.plain(value, name)
                if array.shape != (n,):
                    raise SubjectError(f"{name} has shape {array.shape} but there are {n} records; pass one a record")
                _set(self, name, array)
        if self.y.dtype.kind == "f" and not np.isfinite(self.y).all():
            raise SubjectError("y holds NaN or infinity; remove or fill those records")
        if self.domain is not None:
            try:
                _set(self, "domain", Domain.read(self.domain))
            except (TypeError, ValueError) as exc:
                raise SubjectError(f"the declared domain cannot be used: {exc}") from exc
            if why := self.domain.misfit(self.X):
                raise SubjectError(why)
        if self.one_record_each and self.groups is not None:
            raise SubjectError("groups and one_record_each contradict each other; declare one of them")
        if self.ids is not None and len(np.unique(self.ids)) != n:
            raise SubjectError("ids are not unique; use groups for people with several records")
        if self.candidates is not None:
            self._set_candidates()

    def _set_candidates(self) -> None:
        if not (isinstance(self.candidates, tuple | list) and len(self.candidates) in (2, 3)):
            raise SubjectError("candidates: pass (X, y) or (X, y, people) of people who were not trained on")
        X, y_out, *names = self.candidates
        y_out = containers.plain(y_out, "candidates: y")
        if length(X) != len(y_out):
            raise SubjectError(f"candidates: X has {length(X)} records but y has {len(y_out)}")
        X = containers.align_candidates(self.X, containers.checked(X))
        y_out = containers.cast_like(y_out, self.y, "y")
        if names:
            people = containers.plain(names[0], "candidates: people")
            if people.shape != y_out.shape:
                raise SubjectError(f"candidates: people has shape {people.shape} but y has {y_out.shape}")
            if self.groups is None:
                raise SubjectError("candidates: people are named as groups= names members; pass groups= too")
            people = containers.cast_like(people, self.groups, "groups=")
            others = np.flatnonzero(~np.isin(people.astype(str), self.groups.astype(str)))  # no members
            X, y_out, names = take(X, others), y_out[others], [people[others]]
        _set(self, "candidates", (X, y_out, *names))

    @property
    def n(self) -> int:
        """Number of training records."""
        return length(self.X)

    @cached_property
    def units(self) -> PersonRows:
        """The rows of each person, people in order of first appearance; without groups each record is a person."""
        if self.groups is None:
            return PersonRows(np.arange(self.n, dtype=np.int64), np.arange(self.n + 1, dtype=np.int64))
        _, first, inverse = np.unique(self.groups, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[inverse]
        order = np.argsort(rank, kind="stable").astype(np.int64)
        return PersonRows(order, np.concatenate([[0], np.cumsum(np.bincount(rank))]).astype(np.int64))

    @property
    def people_declared(self) -> str:
        """The declared relation of records to people: "groups", "one record each", or "" if undeclared."""
        return "groups" if self.groups is not None else "one record each" if self.one_record_each else ""

    def declare_people(self, declared: str, by: str = "", groups: Any = None) -> Self:
        """Return a copy that declares the person of each record; its digest stays.

        ``declared`` is "one record each", "groups", or "groups <column>" with ``groups`` of shape (n,). ``by`` names
        the user who declares.
        """
        other = copy.copy(self)
        for known in ("units", "person_names"):
            other.__dict__.pop(known, None)
        _set(other, "declared_by", by)
        if groups is not None:
            other.__dict__["digest"] = self.digest
            _set(other, "groups", containers.plain(groups, "groups"))
        _set(other, "one_record_each", declared == "one record each" and other.groups is None)
        return other

    @cached_property
    def candidate_people(self) -> Index:
        """The number of each candidate record's person, from 0, int64 array of shape (m,)."""
        if self.candidates is None or len(self.candidates) == 2:
            return np.arange(self.pool_size - self.n, dtype=np.int64)
        return np.unique(self.candidates[2], return_inverse=True)[1].astype(np.int64)

    @cached_property
    def person_names(self) -> NDArray[Any]:
        """Name of each person as text: its group, else its record id, else its row number."""
        names = next((v for v in (self.groups, self.ids) if v is not None), np.arange(self.n))
        return np.array([str(names[i]) for i in self.units.first])

    @cached_property
    def effective_domain(self) -> Domain | None:
        """The declared domain, else one inferred from finite numeric columns, else None."""
        if self.domain is not None or containers.is_sparse(self.X) or len(getattr(self.X, "shape", ())) != 2:
            return self.domain
        array = np.asarray(self.X)
        if array.dtype.kind not in "biuf" or not np.isfinite(array.astype(np.float64)).all():
            return None
        return Domain.infer(array)

    @cached_property
    def digest(self) -> str:
        """Full sha256 over every value, label, id, group, candidate and the declared domain."""
        parts: dict[str, Any] = {k: self.declarations()[k] for k in ("domain", "sensitive")}
        for name, value in (("y", self.y), ("ids", self.ids), ("groups", self.groups)):
            parts[name] = None if value is None else digest.of_array(value)
        if self.candidates is not None:
            parts["candidates"] = [content_digest(self.candidates[0]), digest.of_array(self.candidates[1])]
        return digest.of_json({"X": content_digest(self.X), **parts})

    @cached_property
    def order(self) -> str:
        """Memory order of the records, "C" or "F", if unusual, else "": a frame usually has "F", an array "C"."""
        order = containers.order_of(self.X)
        return order if order != ("F" if containers.is_frame(self.X) else "C") else ""

    def as_targets(self) -> Self:
        """Return a copy whose ``y`` counts as numbers to predict, not as labels; its digest stays."""
        other = copy.copy(self)
        other.__dict__["predicts_numbers"] = True
        return other

    def declarations(self) -> dict[str, Any]:
        """Return domain, sensitive columns and ``one_record_each`` as JSON."""
        domain = None if self.domain is None else self.domain.payload()
        each = {"one_record_each": True} if self.one_record_each else {}
        return {"domain": domain, "sensitive": list(self.sensitive), **each}

    def pool(self) -> tuple[Any, NDArray[Any]]:
        """Return training records followed by candidates, as (X, y): the rows that training tasks name."""
        return self.X if self.candidates is None else stack(self.X, self.candidates[0]), self.pool_labels

    @property
    def pool_labels(self) -> NDArray[Any]:
        """Labels of the pool."""
        return self.y if self.candidates is None else np.concatenate([self.y, self.candidates[1]])

    @property
    def pool_size(self) -> int:
        """Number of rows of the pool."""
        return self.n + (0 if self.candidates is None else len(self.candidates[1]))

    def at(self, rows: Index) -> Any:
        """Return the records at these row numbers of the pool, in their order, without a copy of the whole pool."""
        if self.candidates is None or not len(rows) or rows.max() < self.n:
            return take(self.X, rows)
        order = np.argsort(rows >= self.n, kind="stable")
        inside = int((rows < self.n).sum())
        both = stack(take(self.X, rows[order[:inside]]), take(self.candidates[0], rows[order[inside:]] - self.n))
        return take(both, np.argsort(order, kind="stable"))

    @cached_property
    def classes(self) -> NDArray[Any]:
        """The sorted distinct labels."""
        return np.unique(self.y)

    def save(self, folder: Path) -> dict[str, str]:
        """Write the data below ``folder`` without pickle; return ``file name -> sha256``."""
        folder.mkdir(parents=True, exist_ok=True)
        own = {name: getattr(self, name) for name in ("X", "y", "ids", "groups")}
        names: dict[str, Any] = {k: None if v is None else files.save(v, folder / k) for k, v in own.items()}
        if self.candidates is not None:
            parts = zip(("X", "y", "people"), self.candidates, strict=False)
            names["candidates"] = [files.save(v, folder / f"candidates_{k}") for k, v in parts]
        index = {"schema": "privgate/data/v2", "files": names, **self.declarations(), "digest": self.digest}
        (folder / "data.json").write_text(json.dumps(index, indent=1), encoding="utf-8")
        return digest.of_files(folder)

    @classmethod
    def load(cls, folder: Path, *, mmap: bool = False) -> Self:
        """Return the data that ``save`` wrote below ``folder``; the caller compares ``digest``."""
        index = strict_json.read(folder / "data.json", LARGE)
        names = dict(index["files"])
        pair = names.pop("candidates", None)
        held: dict[str, Any] = {k: files.load(folder / v, mmap=mmap) for k, v in names.items() if v is not None}
        if pair is not None:
            held["candidates"] = tuple(files.load(folder / name, mmap=mmap) for name in pair)
        return cls(**held, **_read_about(index))

    def read_column(self, column: str) -> Any:
        """Return a column of the records, or of the file that they were read from; ``SubjectError``: there is none."""
        if column in getattr(self.X, "columns", ()):
            return self.X[column]
        if self.source is not None:
            frame = files.read(str(self.source["uri"]), str(self.source["format"]), dict(self.source["options"]))
            if column in frame.columns:
                return frame[column]
        raise SubjectError(f"the data have no column {column!r}; name another, or log with TrainingData(groups=…)")

    @classmethod
    def from_loader(cls, reference: str, **options: Any) -> Self:
        """Return the data that a function returns; the registry stores its name, options and digest, not the records.

        ``reference`` is ``"package.module:function"``; the function takes ``options`` and returns a ``TrainingData``.
        """
        module, _, name = reference.partition(":")
        try:
            function = getattr(importlib.import_module(module), name)
        except (ImportError, AttributeError, ValueError) as exc:
            why = f"loader {reference!r} cannot be imported: {exc}; name it as 'pkg.module:function'"
            raise SubjectError(why) from exc
        data = function(**options)
        if not isinstance(data, TrainingData):
            raise SubjectError(f"loader {reference!r} returned {type(data).__name__}, not TrainingData")
        _set(data, "loader", json.dumps({"reference": reference, "options": options}))
        return data  # type: ignore[return-value]  # a loader may return a subclass

    @classmethod
    def from_file(
        cls,
        path: str | Path,
        *,
        target: str | int,
        ids: str | int | None = None,
        groups: str | int | None = None,
        one_record_each: bool = False,
        drop: Sequence[str | int] = (),
        candidates: str | Path | None = None,
        domain: Any = None,
        sensitive: Sequence[str | int] = (),
        file_format: str | None = None,
        **options: Any,
    ) -> Self:
        """Return the data of a file; the registry stores its address and digest, not the records.

        Parameters
        ----------
        path, candidates : str or Path
            CSV or Parquet at an address that the gate can read, too: a mounted folder, a URI that pandas reads, a
            file under DVC. Candidates are in a file of the same form.
        target, ids, groups, drop : columns
            Labels, names of records and of their people, and further columns that are no features.
        one_record_each, domain, sensitive
            As in ``TrainingData``.
        file_format : str, optional
            "csv" or "parquet", if the file name has another ending.
        options
            Arguments of the pandas reader: ``sep``, ``dtype``, ``na_values``, … for CSV, ``columns`` for Parquet.
        """
        columns = {"target": target, "ids": ids, "groups": groups, "drop": list(drop)}
        uri = files.absolute(path)
        form = files.format_of(uri, file_format)
        X, y, id_values, group_values = files.split(files.read(uri, form, options), columns)
        outside, other = None, None if candidates is None else files.absolute(candidates)
        if other is not None:
            people = files.read(other, form, options)
            unused = [c for c in (ids, *drop) if c in people.columns]
            named = groups if groups in people.columns else None
            X_out, y_out, _, names = files.split(people, {"target": target, "groups": named, "drop": unused})
            outside = (X_out, y_out, *([] if names is None else [names]))
        about = {"one_record_each": one_record_each, "domain": domain, "sensitive": tuple(sensitive)}
        data = cls(X, y, ids=id_values, groups=group_values, candidates=outside, **about)
        source = {"uri": uri, "format": form, "columns": columns, "candidates": other, "options": options}
        try:
            recorded = json.loads(json.dumps({**source, **data.declarations()}, allow_nan=False))
        except (TypeError, ValueError) as exc:
            raise SubjectError(f"how the file is read cannot be recorded: {exc}; use plain text and numbers") from exc
        _set(data, "source", recorded)
        return data

    @classmethod
    def from_source(cls, source: Mapping[str, Any]) -> Self:
        """Return the data of ``from_file``, read again from a recorded ``source``."""
        about = {**source["columns"], **_read_about(source), **source["options"], "candidates": source["candidates"]}
        return cls.from_file(str(source["uri"]), file_format=str(source["format"]), **about)


def _read_about(index: Mapping[str, Any]) -> dict[str, Any]:
    try:
        domain = None if index["domain"] is None else Domain.from_payload(index["domain"])
    except ValueError as exc:
        raise SubjectError(f"{exc}, and log the model again") from exc
    each = bool(index.get("one_record_each"))
    return {"domain": domain, "sensitive": tuple(index["sensitive"]), "one_record_each": each}
