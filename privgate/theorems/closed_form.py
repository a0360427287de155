"""What closed forms and refits return, and what a closed form is: answers without training, which refits check."""

from abc import ABC, abstractmethod
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field, replace
from enum import StrEnum
from functools import cached_property
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.subject.subject import Subject
from privgate.theorems.hypotheses import look_at, unit_rows

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
    def from_columns(  # noqa: PLR0917  the columns, in the order of the fields
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


#: nats by which a refit may differ; closed forms agree to 1e-9, and no limit of a policy is stated more finely
TOLERANCE = 1e-6


class Declined(Exception):  # noqa: N818  not an error: people are refitted instead
    """Only the work itself shows that recipe or data are not covered; says why."""


@dataclass(frozen=True, eq=False)
class RefitRequest:
    """What models without people, positions ``units`` in ``subject.data.units``, each once, are asked for.

    ``seeds`` are paired; without randomness the first one counts. ``fleet`` trains where there is no closed form.
    ``queries`` are ``(row_unit, row_query)`` as in ``Retrained``; each person's own records if absent.
    """

    subject: Subject
    units: Index
    seeds: Seeds
    fleet: Any
    queries: tuple[Index, Index] | None = None

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", np.asarray(self.units, dtype=np.int64))

    @cached_property
    def rows(self) -> tuple[Index, Index]:
        """The rows, (row_unit, row_query), asked about."""
        return unit_rows(self.subject, self.units) if self.queries is None else self.queries


class Engine(ABC):
    """Answers what the model would have been without a person. Stateless; one instance in the catalogue.

    Refits may differ by ``TOLERANCE`` beyond each person's own error. ``hands_on`` says why people are left to refits.
    Where it ``complements``, 1 - p is released as the first of two. ``certain``: its errors are the kernel's.
    """

    name: str
    hands_on: str = "it could not answer them"
    complements: bool = False
    task: str = "classification"
    certain: bool = False

    def refusal(self, subject: Subject) -> str:
        """Return why a subject is not answered for: another task than the closed form's, or what ``supports`` says."""
        if subject.task != self.task:
            return f"it answers for {self.task}, and the recipe is a {subject.task}"
        return look_at(subject, self.supports)

    @abstractmethod
    def supports(self, subject: Subject) -> str:
        """Return why the closed form does not cover recipe and data; empty if it does."""

    @abstractmethod
    def answers(self, request: RefitRequest) -> tuple[Retrained, Index]:
        """Return the answers, log-probabilities or numbers, and the people (U',) left to refits; or ``Declined``."""

    def declines(self, subject: Subject) -> str:
        """Return beforehand why ``answers`` will raise ``Declined``; the subject must be supported."""
        del subject
        return ""


# Of two classes scikit-learn computes the second probability and releases the first as 1 - p, which near 0 carries a
# rounding of up to 1e-16. A closed form knows ln q better, but what is released counts: a rounding that matters little
# is charged to the person's error (docs/mathematics.md, section 16), and where it matters the person is refitted.

#: twice how far 1 - p may be from q: p is off by at most two units in the last place below 1, and 1 - p itself is exact
ROUNDING = 2.0**-51
#: nats of rounding that are charged to the error; beyond, the training function is asked
CHARGED = 1e-3
WHY = "the probability of their first class, released as 1 - p, has no digits left"


def as_released(answers: Retrained) -> tuple[Retrained, Index]:
    """Return exact answers, rounding among their errors, and the people whose first probability is too rounded."""
    if answers.log_with.shape[-1] != 2 or not len(answers.units):
        return answers, answers.units[:0]
    first = np.minimum(answers.log_with[..., 0], answers.log_without[..., 0]).min(axis=0)
    margin = np.nan_to_num(answers.error, nan=0.0)[answers.row_unit]
    charge, live = np.zeros(len(answers.units)), np.isin(answers.status, (Status.EXACT, Status.CONVERGED))
    np.maximum.at(charge, answers.row_unit, ROUNDING * np.exp(np.minimum(margin - first, 99.0)))
    unsure = live & (charge > CHARGED)
    error = answers.error + np.where(live & ~unsure, charge, 0.0)
    return replace(answers, error=error).select(~unsure), answers.units[unsure]
