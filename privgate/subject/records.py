"""Records in memory: what was trained on, labels, whose they are, and people who were not in it."""

import copy
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Index
from privgate.errors import SubjectError
from privgate.subject import containers
from privgate.subject.containers import content_digest, length, stack, take
from privgate.subject.domain import Domain


class Units(Sequence[Index]):
    """Rows of each unit, without an object each: a million of them would take more memory than most data.

    ``order`` of shape (n,) holds all rows, those of a unit side by side; ``bounds`` of shape (U + 1,) where each begins
    in it, and the end.
    """

    def __init__(self, order: Index, bounds: Index) -> None:
        self.order, self.bounds = order, bounds

    def __len__(self) -> int:
        return len(self.bounds) - 1

    @property
    def first(self) -> Index:
        """The first row of each unit, shape (U,)."""
        return self.order[self.bounds[:-1]]

    @property
    def owner(self) -> Index:
        """The unit of each row, shape (n,)."""
        made = np.empty(len(self.order), dtype=np.int64)
        made[self.order] = np.repeat(np.arange(len(self)), np.diff(self.bounds))
        return made

    def __getitem__(self, k: Any) -> Any:
        if isinstance(k, slice):
            return [self[j] for j in range(*k.indices(len(self)))]
        if not -len(self) <= k < len(self):
            raise IndexError("there is no such person")
        k %= len(self)
        return self.order[self.bounds[k] : self.bounds[k + 1]]


@dataclass(frozen=True, eq=False)
class Records:
    """Records and whose they are; ``TrainingData`` says what each field means."""

    X: Any
    y: Any
    ids: Any = None
    groups: Any = None
    one_record_each: bool = False
    candidates: Any = None
    domain: Domain | None = None
    sensitive: tuple[str | int, ...] = ()
    loader: str | None = field(default=None, repr=False)
    #: where the data lie and how they are read, as JSON; set by ``from_file`` and ``from_dataset``
    source: Mapping[str, Any] | None = field(default=None, repr=False)
    #: whether ``y`` are numbers to predict, not labels; the recipe says so, see ``as_targets``
    numbers: bool = field(default=False, repr=False, init=False)
    #: who declared whose the records are, as ``declare_people`` was told
    declared_by: str = field(default="", repr=False, init=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "X", containers.checked(self.X))
        n = length(self.X)
        try:
            shape = np.shape(self.y)
        except ValueError as exc:  # lists of unequal length
            raise SubjectError(containers.SEVERAL.format(what="y")) from exc
        if len(shape) == 2 and shape[1] > 1:
            raise SubjectError(
                f"y has {shape[1]} columns: several labels or numbers a record are not judged together; log one model "
                "a column, each with its own y, and check each"
            )
        y = containers.plain(self.y, "y")
        object.__setattr__(self, "y", y)
        if y.ndim != 1 or len(y) != n:
            raise SubjectError(f"X has {n} records but y has shape {y.shape}; pass one label a record")
        if n < 2:
            raise SubjectError(f"training data has {n} records; leaving one out needs at least 2")
        if y.dtype.kind == "f" and not np.isfinite(y).all():
            raise SubjectError("y holds NaN or infinity; remove or fill those records")
        for name, value in (("ids", self.ids), ("groups", self.groups)):
            if value is not None:
                array = containers.plain(value, name)
                if array.shape != (n,):
                    raise SubjectError(f"{name} has shape {array.shape} but there are {n} records")
                object.__setattr__(self, name, array)
        self._set_domain()
        if self.one_record_each and self.groups is not None:
            raise SubjectError("groups and one_record_each contradict each other; declare one of them")
        if self.ids is not None and len(np.unique(self.ids)) != n:
            raise SubjectError("ids are not unique; use groups for people with several records")
        self._set_candidates()

    def _set_domain(self) -> None:
        """Read the declared domain, in whichever form it was given, and refuse one of other features."""
        if self.domain is None:
            return
        try:
            domain = Domain.read(self.domain)
        except (TypeError, ValueError) as exc:
            raise SubjectError(f"the declared domain cannot be used: {exc}") from exc
        if why := domain.misfit(self.X):
            raise SubjectError(why)
        shape: tuple[int, ...] = getattr(self.X, "shape", ())
        for name in ("categories", "box"):
            sides = getattr(domain, name)
            if sides is not None and len(shape) == 2 and len(sides) != shape[1]:
                raise SubjectError(f"the domain declares {len(sides)} features ({name}) but X has {shape[1]} columns")
        object.__setattr__(self, "domain", domain)

    def _set_candidates(self) -> None:
        """Bring candidates into the containers of the training data."""
        if self.candidates is None:
            return
        if not (isinstance(self.candidates, tuple | list) and len(self.candidates) in (2, 3)):
            raise SubjectError("candidates: pass (X, y) or (X, y, people) of people who were not trained on")
        X, y_out, *names = self.candidates
        y_out = containers.plain(y_out, "candidates: y")
        if length(X) != len(y_out):
            raise SubjectError(f"candidates: X has {length(X)} records but y has {len(y_out)}")
        ours, theirs = containers.alike(self.X, containers.checked(X))
        y_out = containers.like(y_out, self.y)
        object.__setattr__(self, "X", ours)
        if names:
            people = containers.plain(names[0], "candidates: people")
            if people.shape != y_out.shape:
                raise SubjectError(f"candidates: people has shape {people.shape} but y has {y_out.shape}")
            if self.groups is None:
                raise SubjectError("candidates: people are named as groups= names members; pass groups= too")
            people = containers.like(people, self.groups, "names of people", "groups=")
            others = np.flatnonzero(~np.isin(people.astype(str), self.groups.astype(str)))  # who is no member
            theirs, y_out, names = take(theirs, others), y_out[others], [people[others]]
        object.__setattr__(self, "candidates", (theirs, y_out, *names))

    @property
    def n(self) -> int:
        """Number of training records."""
        return length(self.X)

    @cached_property
    def units(self) -> Units:
        """Rows of each unit, in the order in which units first appear; a record is a unit of one."""
        if self.groups is None:
            return Units(np.arange(self.n, dtype=np.int64), np.arange(self.n + 1, dtype=np.int64))
        _, first, inverse = np.unique(self.groups, return_index=True, return_inverse=True)
        rank = np.argsort(np.argsort(first))[inverse]
        order = np.argsort(rank, kind="stable").astype(np.int64)
        return Units(order, np.concatenate([[0], np.cumsum(np.bincount(rank))]).astype(np.int64))

    @property
    def people_declared(self) -> str:
        """What was declared about whose the records are; empty where nobody did."""
        if self.groups is not None:
            return "groups"
        return "one record each" if self.one_record_each else ""

    def declare_people(self, declared: str, by: str = "", groups: Any = None) -> Self:
        """Return the same data with whose the records are declared beside them: their digest stays.

        Declared is "one record each", "groups" of the data themselves, or "groups <column>" with the person of each
        record, shape (n,).
        """
        made = copy.copy(self)
        made.__dict__.pop("units", None)
        made.__dict__.pop("unit_names", None)
        object.__setattr__(made, "declared_by", by)
        if groups is not None:
            made.__dict__["digest"] = self.digest
            object.__setattr__(made, "groups", containers.plain(groups, "groups"))
        object.__setattr__(made, "one_record_each", declared == "one record each" and made.groups is None)
        return made

    @cached_property
    def candidate_people(self) -> Index:
        """The person of each candidate record, int64 array of shape (m,), counted from 0."""
        if self.candidates is None:
            return np.zeros(0, dtype=np.int64)
        if len(self.candidates) == 2:
            return np.arange(len(self.candidates[1]), dtype=np.int64)
        return np.unique(self.candidates[2], return_inverse=True)[1].astype(np.int64)

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
        for name, value in (("ids", self.ids), ("groups", self.groups)):
            parts[name] = None if value is None else digest.of_array(value)
        if self.candidates is not None:
            parts["candidates"] = [content_digest(self.candidates[0]), digest.of_array(self.candidates[1])]
        domain = None if self.domain is None else self.domain.payload()
        return digest.of_json({**parts, "domain": domain, "sensitive": list(self.sensitive)})

    @cached_property
    def order(self) -> str:
        """Memory order of the records, "C" or "F", where it is another than usual: that of a frame is column by column.

        No value depends on it, and what a learner makes of them may.
        """
        order = containers.order_of(self.X)
        return order if order != ("F" if containers.is_frame(self.X) else "C") else ""

    def as_targets(self) -> Self:
        """Return the same data, whose ``y`` are numbers to predict; digests stay."""
        made = copy.copy(self)
        object.__setattr__(made, "numbers", True)
        return made

    def declared(self) -> dict[str, Any]:
        """Return what is said about the data and is not in them, as JSON."""
        domain = None if self.domain is None else self.domain.payload()
        said = {"one_record_each": True} if self.one_record_each else {}
        return {"domain": domain, "sensitive": list(self.sensitive), **said}

    def pool(self) -> tuple[Any, NDArray[Any]]:
        """Return training records followed by candidates, as (X, y): the rows that training tasks name."""
        if self.candidates is None:
            return self.X, self.y
        return stack(self.X, self.candidates[0]), self.pool_labels

    @property
    def pool_labels(self) -> NDArray[Any]:
        """Labels of the pool."""
        return self.y if self.candidates is None else np.concatenate([self.y, self.candidates[1]])

    @property
    def pool_size(self) -> int:
        """Number of rows of the pool."""
        return self.n + (0 if self.candidates is None else len(self.candidates[1]))

    def at(self, rows: Index) -> Any:
        """Return the records of pool rows, in their order, without a copy of the whole pool."""
        if self.candidates is None or not len(rows) or rows.max() < self.n:
            return take(self.X, rows)
        order = np.argsort(rows >= self.n, kind="stable")
        inside = int((rows < self.n).sum())
        both = stack(take(self.X, rows[order[:inside]]), take(self.candidates[0], rows[order[inside:]] - self.n))
        return take(both, np.argsort(order, kind="stable"))

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
