"""Records that are moments and no people: a series in time, or windows over one, of which nobody can be left out."""

import copy
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Self, overload

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.arrays import Index
from privgate.errors import SubjectError
from privgate.subject import containers
from privgate.subject.containers import content_digest, length, stack, take
from privgate.subject.domain import Domain

#: a date, as text
_DATE = r"\d{4}-\d\d-\d\d([ T]\d\d:\d\d(:\d\d)?)?"


def refusal(X: Any) -> str:
    """Return why no record of ``X`` is a person, and what to name instead; empty if they may be people."""
    if where := _steps_of_time(X):
        return (
            f"{where} runs through time in equal steps, so that records are moments and no people; name what is "
            "left out together: groups=(the person or the block of time that each record belongs to)"
        )
    if _windows(X):
        return (
            "each row of X is the one before it moved on by one column, so that records are windows over one "
            "series and no people; name what is left out together: groups=(the block of time of each record)"
        )
    return ""


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


# Records in memory: what was trained on, labels, whom they belong to, and people who were not in it.


class Units(Sequence[Index]):
    """Rows of each unit, without an object each: a million of them would take more memory than most data.

    Parameters
    ----------
    order : int64 array of shape (n,)
        All rows, those of a unit side by side.
    bounds : int64 array of shape (U + 1,)
        Where each unit begins in ``order``, and the end.
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

    @overload
    def __getitem__(self, k: int) -> Index: ...
    @overload
    def __getitem__(self, k: slice) -> Sequence[Index]: ...
    def __getitem__(self, k: int | slice) -> Index | Sequence[Index]:
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
        y = containers.plain(self.y, "y")
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
                array = containers.plain(value, name)
                if array.shape != (n,):
                    raise SubjectError(f"{name} has shape {array.shape} but there are {n} records")
                object.__setattr__(self, name, array)
        self._set_domain()
        if self.ids is not None and len(np.unique(self.ids)) != n:
            raise SubjectError("ids are not unique; use groups for people with several records")
        self._set_candidates()

    def _set_domain(self) -> None:
        """Read the declared domain, in whichever form it was given, and refuse one of other features."""
        if self.domain is None:
            return
        try:
            domain = Domain.of(self.domain)
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
        if not (isinstance(self.candidates, tuple | list) and len(self.candidates) == 2):
            raise SubjectError("candidates: pass the pair (X, y) of people who were not trained on")
        X, y_out = self.candidates
        y_out = containers.plain(y_out, "candidates: y")
        if length(X) != len(y_out):
            raise SubjectError(f"candidates: X has {length(X)} records but y has {len(y_out)}")
        ours, theirs = containers.alike(self.X, containers.checked(X))
        object.__setattr__(self, "X", ours)
        object.__setattr__(self, "candidates", (theirs, containers.like(y_out, self.y)))

    def _check_shape(self) -> None:
        """Refuse what has no one answer about one person: series in time, several labels a record."""
        if self.groups is None and (why := refusal(self.X)):
            raise SubjectError(why)
        try:
            shape = np.shape(self.y)
        except ValueError as exc:  # lists of unequal length
            raise SubjectError(containers.SEVERAL.format(what="y")) from exc
        if len(shape) == 2 and shape[1] > 1:
            raise SubjectError(
                f"y has {shape[1]} columns: several labels or numbers a record are not judged together; log one model "
                "a column, each with its own y, and check each"
            )

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

    def declared(self) -> dict[str, Any]:
        """Return what is said about the data and is not in them, as JSON."""
        domain = None if self.domain is None else self.domain.payload()
        return {"domain": domain, "sensitive": list(self.sensitive)}

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
