"""The one shape that every closed form and every refit returns."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index

Seeds = tuple[int | None, ...]


class Status(StrEnum):
    """How far one person's model can be trusted."""

    EXACT = "exact"  # equal to the user's training function up to rounding
    CONVERGED = "converged"  # within ``error`` of the exact minimiser, by a theorem
    # infinite leakage, named: training without the person raised, hung, or needed too much
    FAILED = "failed"
    # infinite leakage: the model without the person has no value there (its class vanishes, 0/0)
    UNDEFINED = "undefined"


#: whose answers are those of the training function itself
REFIT = "refit"
#: columns of a ``Retrained`` by their first axes: (U,), and (S, R)
_UNITS, _ANSWERS = ("units", "error", "status", "engine"), ("log_with", "log_without")


@dataclass(frozen=True, eq=False)
class Retrained:
    """Models with and without each person, evaluated at queries.

    A row is one (person, query) pair, so that people may have several records. S seeds, R rows, K classes, U people.
    """

    #: shape (U,): positions in ``TrainingData.units``, each once
    units: Index
    #: ``log_with[s]`` and ``log_without[s]`` used the same seed. One entry for training without randomness
    seeds: Seeds
    #: shape (R,): position in ``units`` that each row belongs to, ascending; and a row of the pool, the query
    row_unit: Index
    row_query: Index
    #: shape (S, R, K): natural log-probabilities; ``-inf`` is a probability of 0. NaN is refused, but of people without
    #: a model
    log_with: Float
    log_without: Float
    #: shape (U,): limit of the absolute error of every log-probability of the person; 0 where exact, ``nan`` where
    #: unknown
    error: Float
    #: how far to trust each person's model, whose answers they are, and why a model is missing or was handed on
    status: NDArray[Any]
    engine: NDArray[Any]
    reason: Mapping[int, str] = field(default_factory=dict)
    #: name -> array: what theorems need beside probabilities, first axes (S, U)
    changes: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        good = ~self.lost[self.row_unit]
        wrong = np.isnan(self.log_with[:, good]) | np.isnan(self.log_without[:, good])
        if wrong.any():
            bad = self.units[np.unique(self.row_unit[good][wrong.any(axis=(0, 2))])][:5].tolist()
            raise FloatingPointError(f"NaN log-probabilities for people {bad}: an engine failure, not a zero")

    @classmethod
    def of(  # noqa: PLR0917  the columns, in the order of the fields
        cls,
        engine: str | NDArray[Any],
        units: Index,
        seeds: Seeds,
        rows: tuple[Index, Index],
        log_with: Float,
        log_without: Float,
        *,
        status: Status | NDArray[Any] = Status.EXACT,
        error: float | Float = 0.0,
        undefined: Mapping[int, str] | None = None,
        reason: Mapping[int, str] | None = None,
    ) -> Self:
        """Return answers; what is one value stands for everybody, ``undefined`` says who has no model, and why."""
        U, gone = len(units), undefined or {}
        each, errors = np.full(U, status, dtype=object), np.full(U, error, dtype=np.float64)
        each[list(gone)] = Status.UNDEFINED
        units, engines = np.asarray(units, dtype=np.int64), np.full(U, engine, dtype=object)
        reasons = {**(reason or {}), **gone}
        return cls(units, seeds, rows[0], rows[1], log_with, log_without, errors, each, engines, reasons)

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Who has no model without them, shape (U,): their change has no limit."""
        return np.asarray((self.status == Status.FAILED) | (self.status == Status.UNDEFINED), dtype=bool)

    @classmethod
    def concatenate(cls, parts: "Sequence[Retrained]") -> "Retrained":
        """Return all people of all parts, ascending; parts share seeds and classes, and nobody."""
        offsets = np.cumsum([0, *(len(p.units) for p in parts)]).tolist()
        shared = set(parts[0].changes).intersection(*(p.changes for p in parts[1:]))
        joined: dict[str, Any] = {n: np.concatenate([getattr(p, n) for p in parts]) for n in (*_UNITS, "row_query")}
        joined |= {n: np.concatenate([getattr(p, n) for p in parts], axis=1) for n in _ANSWERS}
        joined["row_unit"] = np.concatenate([p.row_unit + k for p, k in zip(parts, offsets, strict=False)])
        joined["reason"] = {k + at: why for p, k in zip(parts, offsets, strict=False) for at, why in p.reason.items()}
        joined["changes"] = {n: np.concatenate([p.changes[n] for p in parts], axis=1) for n in shared}
        return replace(parts[0], **joined).take(np.argsort(joined["units"], kind="stable"))

    def select(self, keep: NDArray[np.bool_]) -> Self:
        """Return the people where ``keep`` (shape (U,)) is true."""
        return self.take(np.flatnonzero(keep))

    def take(self, order: Index) -> Self:
        """Return some people, positions in ``units``, in this order."""
        place = np.full(len(self.units), -1, dtype=np.int64)
        place[order] = np.arange(len(order))
        rows = np.argsort(place[self.row_unit], kind="stable")
        rows = rows[place[self.row_unit[rows]] >= 0]
        taken: dict[str, Any] = {n: getattr(self, n)[order] for n in _UNITS}
        taken |= {n: getattr(self, n)[:, rows] for n in _ANSWERS}
        return replace(
            self,
            **taken,
            row_unit=place[self.row_unit[rows]],
            row_query=self.row_query[rows],
            reason={int(place[k]): why for k, why in self.reason.items() if place[k] >= 0},
            changes={n: values[:, order] for n, values in self.changes.items()},
        )
