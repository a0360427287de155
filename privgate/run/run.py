"""The run: everything measured about one subject in one run, each thing once."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, TypeVar

import numpy as np

from privgate import digest
from privgate.evidence import Measurement, Precondition, Request, SeedControl
from privgate.run.needs import Need
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

T = TypeVar("T")
#: people of either side on whom attacks are tried at most: their accuracy is then known to half a per cent
TRIALS = 20_000


@dataclass(frozen=True, slots=True)
class Budget:
    """What the operator allows a run to cost; cutting it cuts what can be claimed, and the report says so.

    Parameters
    ----------
    max_retrains : int, optional
        Calls of the training function for leave-one-out. People are then drawn at random, before looking.
    budget_seconds : float, optional
        The same as wall time; turned into a number of retrains from a timed sample.
    shadow_models : int
        Models on random subsets, shared by every attack.
    seeds : int, optional
        At least how many other seeds the released answers are compared with, where training draws. Of a recipe without
        a seed, the runs with and without each person. Chosen by the controls if absent.
    full : bool
        Go on where the verdict is decided: everybody is trained without, though an enforced rule is broken already.
    file_withheld : bool
        The operator states that nobody who may ask the model can get its file: rules about it warn at worst. A guard
        accepts such a verdict only if its own table says the same.
    """

    max_retrains: int | None = None
    budget_seconds: float | None = None
    shadow_models: int = 64
    seeds: int | None = None
    full: bool = False
    file_withheld: bool = False


@dataclass(frozen=True, eq=False)
class Noted:
    """What measuring itself found out and must reach the verdict, such as a closed form that refits contradict."""

    preconditions: tuple[Precondition, ...] = ()


@dataclass(frozen=True, eq=False)
class Run:
    """What the measurements of one run share: what was asked, what the controls found, and what was made, once each.

    A step returns what it saw, and ``compute`` keeps it. What a control sees makes another run, which shares what was
    made.
    """

    subject: Subject
    #: runs and remembers training
    fleet: Fleet
    limits: Budget = field(default_factory=Budget)
    #: the registered model's own for leave-one-out; runs with and without, where the recipe records none
    seeds: tuple[int | None, ...] = (None,)
    #: the rules on people that block for certain once the function says of a measurement that they are broken
    breaks: Mapping[Request, tuple[str, Callable[[Measurement], bool]]] = field(default_factory=dict)
    #: limits of the policy's rules on people, nats: closed forms and theorems look closer near them
    thresholds: tuple[float, ...] = ()
    #: (limit, share of people who may be above it) of each enforced rule on people; 0 where nobody may
    people: tuple[tuple[float, float], ...] = ()
    #: share of the people who may be above the limits on them; None where everybody has to be left out
    share: float | None = None
    #: whether limits on people are all that rules ask of leave-one-out: a theorem that keeps them all is enough
    by_theorem: bool = False
    #: people of either side on whom attacks are tried, at most; of more, a random part
    trials: int = TRIALS
    #: what the metrics of the policy need: what nobody asks for is not searched for
    needs: frozenset[Need] = frozenset()
    #: what the policy can never conclude for this model, known before anything is trained
    cannot_conclude: tuple[str, ...] = ()
    #: how far the registered model is from the recipe's, by the control: on records, and at any question asked; nats
    registered_apart: tuple[float, float] = (0.0, 0.0)
    #: change of a probability by relabelling, a record, by the control; 0 where it did not run
    moved_by_record: float = 0.0
    #: what the controls say about seeds; None before they ran
    seed_control: SeedControl | None = None
    #: who asked for the check; empty if nobody says
    nonce: str = ""
    #: whether people are asked about beside their own records as well: a rule of the policy wants it
    near_questions: bool = False
    #: theorems about data and recipe alone that bound every answer of this model
    theorems: tuple[str, ...] = ()
    #: what rules on attacks ask that name a level, and whether a measurement settles them: "broken", "settled" or "".
    #: Shadow models grow until one that can block is broken, or none is open
    attacked: Mapping[Request, tuple[str, Callable[[Measurement], str]]] = field(default_factory=dict)
    #: whether a rule on attacks names no level: then all shadow models are trained before the first look
    at_once: bool = False
    #: whether people refuse already, so that attacks take no further look
    refused: bool = False
    #: what the report shows of a question beside its numbers, by its field of ``Evidence``
    notes: dict[str, Any] = field(default_factory=dict)
    _kept: dict[Callable[["Run"], Any], Any] = field(default_factory=dict, repr=False)

    def generator(self, purpose: str) -> np.random.Generator:
        """Return randomness that is fixed before anything is looked at: derived from the subject and a purpose."""
        key = digest.of_json([self.subject.training_digest, purpose])
        return digest.generator(key)

    @property
    def n_units(self) -> int:
        """People there are."""
        return len(self.subject.data.units)

    @property
    def at_seed(self) -> bool:
        """Whether training draws, and is judged at the seed that the recipe records; False before controls looked."""
        return self.seed_control is not None and self.seed_control.dependent and self.subject.recipe.seed is not None

    @property
    def averaged(self) -> bool:
        """Whether training draws and records no seed, so that figures are means over runs of their own."""
        return self.seed_control is not None and self.seed_control.dependent and self.subject.recipe.seed is None

    def attack_breaks(self, measured: Mapping[Request, Measurement]) -> bool:
        """Return whether a rule on attacks is broken for certain by what was measured: nothing takes that back."""
        return any(self.attacked[r][1](m) == "broken" for r, m in measured.items() if r in self.attacked)

    def keep(self, make: Callable[["Run"], Any], value: Any) -> None:
        """Keep what was made in steps, in the place of what fewer steps had made."""
        self._kept[make] = value

    def compute(self, make: Callable[["Run"], T]) -> T:
        """Return ``make(self)``: made when first asked for, kept for the rest of the run."""
        if make not in self._kept:
            self._kept[make] = make(self)
        kept: T = self._kept[make]
        return kept

    @property
    def preconditions(self) -> tuple[Precondition, ...]:
        """What was found out so far by what was made and is ``Noted``, each once."""
        noted = (p for value in self._kept.values() if isinstance(value, Noted) for p in value.preconditions)
        conditions: list[Precondition] = []
        conditions.extend(p for p in noted if p not in conditions)
        return tuple(conditions)

    def has_computed(self, make: Callable[["Run"], Any]) -> bool:
        """Return whether ``compute(make)`` was asked for in this run."""
        return make in self._kept
