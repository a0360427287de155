"""What an engine is: an accelerated training function, re-checked against the real one in every run."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, Protocol

import numpy as np

from privgate.arrays import Float, Index
from privgate.families.designs import ODD, odd, unit_rows
from privgate.families.retrained import Retrained, Seeds
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: nats that a re-check allows; closed forms agree to 1e-9, and no limit of a policy is stated more finely
TOLERANCE = 1e-6


@dataclass(frozen=True, slots=True)
class Cost:
    """What a piece of work will take, before it starts.

    Parameters
    ----------
    fits : int
        Calls of the user's training function; 0 for a closed form.
    cpu_seconds : float
        Estimate over all cores.
    memory_bytes : int
        Estimate of the peak.
    """

    fits: int
    cpu_seconds: float
    memory_bytes: int = 0


class Declined(Exception):  # noqa: N818  not an error: the next engine is asked
    """Raised by ``answers`` where only the work itself shows that the recipe is not covered; says why."""


class Asker(Protocol):
    """Whoever wants the models that a re-check trains asked more: certificates, about their own bounds."""

    def ask(self, subject: Subject, made: Retrained, chosen: Index) -> tuple[Subject, list[Index]]:
        """Return the subject, questions among its candidates, and the pool rows to ask about each chosen unit."""
        ...

    def told(self, unit: int, change: Float) -> None:
        """Take note of the largest label change, nats, at each question about a unit; infinite if training fails."""
        ...


Mode = Literal["all", "max", "screen"]
#: (the last engine, what is left for it, what the others answered) -> answers, and units that nobody needs any more
Refitting = Callable[["Engine", "Asked", Sequence[Retrained]], tuple[Retrained, Index]]
#: if none of so many drawn at random contradicts, fewer than 5 % of all do, with 95 % confidence (0.95^59 < 0.05)
DRAWN = 59


@dataclass(frozen=True, eq=False)
class Asked:
    """What models are asked for; an engine leaves alone what it does not know of it.

    Parameters
    ----------
    units : int64 array of shape (U,)
        Positions in ``subject.data.units``, each once.
    seeds : tuple
        Paired seeds; training without randomness is answered for the first one only.
    fleet : Fleet
        Runs and remembers calls of the training function; closed forms do not use it.
    queries : (row_unit, row_query), optional
        As in ``Retrained``; each unit's own records if absent. ``row_query`` names pool rows.
    changes : bool
        Whether the models with and without each unit are wanted in ``Retrained.changes``.
    mode : {"all", "max", "screen"}
        Every unit closely; only those that could hold the maximum closely, where an engine can (the others carry an
        error that excludes them); or, where only refits are left, a shadow ranking whose top tenth is retrained (the
        others get status ``screened`` and never approve).
    limits : tuple of float
        The policy's limits on units, nats; empty where nobody is judged. Who is nearest to them is refitted too.
    drawn : int
        How many people of an engine that only ranks are drawn at random and refitted.
    first : int64 array
        Units that an earlier look drew at random: they are the first of these.
    engines : tuple of Engine, optional
        The catalogue if absent; the last one must hand on nothing.
    asker : Asker, optional
        Puts further questions to the models that re-checks train.
    refitting : callable, optional
        Asks the last engine instead, and may leave units over; not used by mode "screen", which ranks.
    rehearsed : bool
        Nobody is judged by the answers: fast engines are not re-checked.
    """

    subject: Subject
    units: Index
    seeds: Seeds
    fleet: Fleet
    queries: tuple[Index, Index] | None = None
    changes: bool = False
    mode: Mode = "all"
    limits: tuple[float, ...] = ()
    drawn: int = DRAWN
    first: Index = field(default_factory=lambda: np.zeros(0, dtype=np.int64))
    engines: "tuple[Engine, ...] | None" = None
    asker: Asker | None = None
    refitting: Refitting | None = None
    rehearsed: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "units", np.asarray(self.units, dtype=np.int64))

    @cached_property
    def rows(self) -> tuple[Index, Index]:
        """The rows, (row_unit, row_query), asked about."""
        return unit_rows(self.subject, self.units) if self.queries is None else self.queries


class Engine(ABC):
    """Answers what the model would have been without a unit. Stateless; one instance in the catalogue.

    Attributes
    ----------
    name : str
        Catalogue key.
    version : int
        Enters every digest: raise it whenever a number could change.
    modes : tuple of str
        What it does with ``Asked.mode`` beyond the usual.
    tolerance : float
        Nats that the re-check allows beyond each unit's own error bound.
    hands_on : str
        Why units are handed on, beside those of several records where ``single_records`` is set.
    trains : bool
        Whether each unit costs a training: then work may end with the first broken rule, as it does for refits.
    complements : bool
        Whether the model releases 1 - p as the first of two probabilities.
    tasks : tuple of str
        What kinds of models it answers for.
    real : bool
        Whether its models are trained by the recipe itself, as calls of the fleet: a re-check would compare these with
        themselves.
    certain : bool
        Whether its errors are the kernel's, or its models were trained for real; all others only rank people.
    """

    name: str
    version: int = 1
    modes: tuple[str, ...] = ()
    tolerance: float = TOLERANCE
    hands_on: str = "it could not answer them"
    single_records: bool = False
    trains: bool = False
    complements: bool = False
    tasks: tuple[str, ...] = ("classification",)
    certain: bool = False
    real: bool = False

    def refusal(self, subject: Subject) -> str:
        """Return why it does not answer for the subject: another task than its own, or what ``supports`` says."""
        if subject.task not in self.tasks:
            return f"it answers for {' and '.join(self.tasks)}, and the recipe is a {subject.task}"
        try:
            return self.supports(subject)
        except ODD as exc:
            return odd(exc)

    @abstractmethod
    def supports(self, subject: Subject) -> str:
        """Return why this engine does not cover the recipe and data; empty if it does."""

    @abstractmethod
    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return what ``answers`` would take."""

    @abstractmethod
    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return what it can answer of, and the units that it hands on (ties, leverage near 1, …); the last one none.

        Raises
        ------
        Declined
            Only the work itself shows that the recipe or data are not covered.
        """

    def declines(self, subject: Subject) -> str:
        """Return beforehand why ``answers`` will raise ``Declined``; the subject must be supported."""
        del subject
        return ""

    def notes(self, subject: Subject) -> Mapping[str, Any]:
        """Return JSON values for the report."""
        del subject
        return {}
