"""The one shape that every closed form and every refit returns."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index

Seeds = tuple[int | None, ...]


class Status(StrEnum):
    """How far one unit's retrained model can be trusted."""

    EXACT = "exact"
    """Equal to the user's training function up to rounding."""
    CONVERGED = "converged"
    """Within ``error`` of the exact minimiser, by a certificate."""
    FAILED = "failed"
    """Training without the person raised, hung, or needed too much: infinite leakage, named."""
    UNDEFINED = "undefined"
    """The model without the person has no value there (its class vanishes, 0/0): infinite leakage."""


#: whose answers are those of the training function itself
REFIT = "refit"


@dataclass(frozen=True, eq=False)
class Retrained:
    """Models with and without each unit, evaluated at queries.

    A row is one (unit, query) pair, so that units may be groups with several records and several queries. S seeds, R
    rows, K classes, U units.

    Parameters
    ----------
    units : int64 array of shape (U,)
        Positions in ``TrainingData.units``, each once.
    seeds : tuple of (int or None), length S
        Paired: ``log_with[s]`` and ``log_without[s]`` used the same seed. One entry for training without randomness.
    row_unit : int64 array of shape (R,)
        Which entry of ``units`` (a position 0 .. U-1, not a unit number) each row belongs to; ascending.
    row_query : int64 array of shape (R,)
        Which query: a row of the pool (training records, then candidates) or of the ``queries`` handed to the engine.
    log_with, log_without : float64 array of shape (S, R, K)
        Natural log-probabilities; ``-inf`` is a probability of 0. NaN is refused here, except in rows of failed units.
    error : float64 array of shape (U,)
        Bound on the absolute error of every log-probability of the unit; 0 where exact, ``nan`` where unknown.
    status : object array of shape (U,) of Status
    engine : object array of shape (U,) of str
    reason : mapping unit position -> sentence
        Why a unit failed, is undefined, or was handed on.
    changes : mapping name -> array
        What certificates need beside probabilities, first axes (S, U): the models with and without the unit.
    """

    units: Index
    seeds: Seeds
    row_unit: Index
    row_query: Index
    log_with: Float
    log_without: Float
    error: Float
    status: NDArray[Any]
    engine: NDArray[Any]
    reason: Mapping[int, str] = field(default_factory=dict)
    changes: Mapping[str, NDArray[Any]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        rows, units = len(self.row_unit), len(self.units)
        expected = (len(self.seeds), rows)
        for name in ("log_with", "log_without"):
            if getattr(self, name).shape[:2] != expected:
                raise ValueError(f"{name} has shape {getattr(self, name).shape}, expected {expected} + classes")
        if len(self.row_query) != rows or any(len(getattr(self, n)) != units for n in ("error", "status", "engine")):
            raise ValueError("columns of a Retrained do not fit together")
        good = ~self.lost[self.row_unit] if units else np.zeros(0, dtype=bool)
        if np.isnan(self.log_with[:, good]).any() or np.isnan(self.log_without[:, good]).any():
            bad = self.units[np.unique(self.row_unit[good][np.isnan(self.log_without[:, good]).any(axis=(0, 2))])]
            raise FloatingPointError(
                f"NaN log-probabilities for people {bad[:5].tolist()}: an engine failure, not a zero"
            )

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
        changes: Mapping[str, NDArray[Any]] | None = None,
    ) -> Self:
        """Return an engine's answer; what is one value stands for every unit, ``undefined`` says why units are."""
        U, gone = len(units), dict(undefined or {})
        each = np.full(U, status, dtype=object)
        each[list(gone)] = Status.UNDEFINED
        return cls(
            units=np.asarray(units, dtype=np.int64),
            seeds=seeds,
            row_unit=rows[0],
            row_query=rows[1],
            log_with=log_with,
            log_without=log_without,
            error=np.full(U, error, dtype=np.float64),
            status=each,
            engine=np.full(U, engine, dtype=object),
            reason={**(reason or {}), **gone},
            changes=changes or {},
        )

    @property
    def lost(self) -> NDArray[np.bool_]:
        """Which units have no model without them, shape (U,): their change has no limit."""
        return np.asarray((self.status == Status.FAILED) | (self.status == Status.UNDEFINED), dtype=bool)

    @classmethod
    def concatenate(cls, parts: "list[Retrained]") -> "Retrained":
        """Return all units of all parts, in ascending unit order; parts share seeds and classes, and no unit."""
        offset = np.cumsum([0, *(len(p.units) for p in parts)])
        units = np.concatenate([p.units for p in parts])
        order = np.argsort(units, kind="stable")
        place = np.empty_like(order)
        place[order] = np.arange(len(order))
        row_unit = place[np.concatenate([p.row_unit + o for p, o in zip(parts, offset, strict=False)])]
        rows = np.argsort(row_unit, kind="stable")
        shared = set(parts[0].changes).intersection(*(p.changes for p in parts[1:]))
        return cls(
            units=units[order],
            seeds=parts[0].seeds,
            row_unit=row_unit[rows].astype(np.int64),
            row_query=np.concatenate([p.row_query for p in parts])[rows],
            log_with=np.concatenate([p.log_with for p in parts], axis=1)[:, rows],
            log_without=np.concatenate([p.log_without for p in parts], axis=1)[:, rows],
            error=np.concatenate([p.error for p in parts])[order],
            status=np.concatenate([p.status for p in parts])[order],
            engine=np.concatenate([p.engine for p in parts])[order],
            reason={int(place[k + o]): v for p, o in zip(parts, offset, strict=False) for k, v in p.reason.items()},
            changes={n: np.concatenate([p.changes[n] for p in parts], axis=1)[:, order] for n in shared},
        )

    def select(self, keep: NDArray[np.bool_]) -> Self:
        """Return the units where ``keep`` (shape (U,)) is true."""
        rows = keep[self.row_unit]
        place = np.cumsum(keep) - 1
        return type(self)(
            units=self.units[keep],
            seeds=self.seeds,
            row_unit=place[self.row_unit[rows]].astype(np.int64),
            row_query=self.row_query[rows],
            log_with=self.log_with[:, rows],
            log_without=self.log_without[:, rows],
            error=self.error[keep],
            status=self.status[keep],
            engine=self.engine[keep],
            reason={int(place[k]): v for k, v in self.reason.items() if keep[k]},
            changes={n: a[:, keep] for n, a in self.changes.items()},
        )
