"""The bench: everything measured about one subject in one run, each thing once."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any, Literal, get_args

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.errors import UsageError
from privgate.evidence import Precondition
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Retrained, Shadows
from privgate.subject import Subject

if TYPE_CHECKING:
    from privgate.certificates.witness import Witness
    from privgate.measure.attacked import Attacked
    from privgate.measure.pool import Pool

Index = NDArray[np.int64]
#: how closely leave-one-out answers; see ``measure.modes``
Mode = Literal["all", "max", "screen"]
Precision = Literal["full", "mixed"]


@dataclass(frozen=True, slots=True)
class Limits:
    """What the operator allows a run to cost; cutting it cuts what can be claimed, and the report says so.

    Parameters
    ----------
    max_retrains : int, optional
        Calls of the training function for leave-one-out; units are then drawn at random, before looking.
    budget_seconds : float, optional
        The same as wall time; turned into a number of retrains from a timed sample.
    shadow_models : int
        Models on random subsets, shared by every attack.
    seeds : int, optional
        Paired seeds for training with randomness; chosen from the controls if absent. An upper limit, and with it an
        approval, needs 75.
    mode : {"all", "max", "screen"}
        Every person closely; only those who could hold the largest value, where an engine can; or a ranking by shadow
        models of which the top tenth is retrained, which never approves.

    precision : {"full", "mixed"}
        Networks only: whether differences between models may be multiplied in bfloat16, at a larger stated error.

    Raises
    ------
    UsageError
        The mode or precision is not known, or a ranking of everybody is asked for together with a sample.
    """

    max_retrains: int | None = None
    budget_seconds: float | None = None
    shadow_models: int = 64
    seeds: int | None = None
    mode: Mode = "all"
    precision: Precision = "full"

    def __post_init__(self) -> None:
        for name, known in (("mode", get_args(Mode)), ("precision", get_args(Precision))):
            if getattr(self, name) not in known:
                raise UsageError(f"no {name} {getattr(self, name)!r}; it is one of {', '.join(known)}")
        if self.mode == "screen" and not (self.max_retrains is None and self.budget_seconds is None):
            raise UsageError("mode screen ranks everybody, a budget draws a sample; give --mode screen or the budget")


@dataclass
class Bench:
    """What the measurements of one run share; lazily filled, nothing twice.

    Parameters
    ----------
    subject : Subject
    fleet : Fleet
        Runs and remembers training.
    limits : Limits
    seeds : tuple of (int or None)
        Paired seeds for leave-one-out; set by the controls before anything is measured.
    more_seeds : tuple of (int or None)
        Paired seeds to go on with for an upper limit, where the first ones have not decided; empty if there are none.
    refuting : float
        A limit that blocks as soon as one unit is surely above it, nats; infinity if no rule sets one.
    thresholds : tuple of float
        Limits of the policy's rules on units, in nats: engines and certificates look closer near them.
    asked : frozenset of str
        Metrics that the policy asks for: what nobody asks for is not searched for.
    suites : mapping
        Great Expectations suites that came with the policy, as JSON text by ``file@sha256:<digest>``.
    detail : dict
        JSON values collected for the report: plan, re-checks, certificates, attacks, curves.
    preconditions : list of Precondition
        What measuring itself found out and must reach the verdict, for example a re-check that disqualified an engine.
    witness : Witness, optional
        What re-trained models answered where certificates say that they differ most; set with ``retrained``.
    """

    subject: Subject
    fleet: Fleet
    limits: Limits = field(default_factory=Limits)
    seeds: tuple[int | None, ...] = (None,)
    more_seeds: tuple[int | None, ...] = ()
    refuting: float = float("inf")
    thresholds: tuple[float, ...] = ()
    asked: frozenset[str] = frozenset()
    suites: Mapping[str, str] = field(default_factory=dict)
    detail: dict[str, Any] = field(default_factory=dict)
    preconditions: list[Precondition] = field(default_factory=list)
    witness: "Witness | None" = None

    def generator(self, purpose: str) -> np.random.Generator:
        """Return randomness that is fixed before anything is looked at: derived from the subject and a purpose."""
        key = digest.of_json([self.subject.training_digest, purpose])
        return np.random.default_rng(int(key.removeprefix("sha256:")[:16], 16))

    @property
    def n_units(self) -> int:
        """Units there are."""
        return len(self.subject.data.units)

    @cached_property
    def mode(self) -> Mode:
        """How closely leave-one-out answers: as the operator wants it where an engine can, otherwise everybody."""
        from privgate.measure import modes

        return modes.used(self)

    @cached_property
    def units(self) -> Index:
        """Units to be measured: all, or what the budget allows, drawn at random before looking."""
        from privgate.measure import leave_one_out

        return leave_one_out.chosen_units(self)

    @cached_property
    def retrained(self) -> Retrained:
        """Models with and without each measured unit, re-checked against the training function."""
        from privgate.measure import leave_one_out

        return leave_one_out.retrained(self)

    @cached_property
    def records(self) -> Mapping[str, NDArray[Any]]:
        """The per-unit table, columns of ``evidence.COLUMNS`` and more."""
        from privgate.measure import leave_one_out

        return leave_one_out.table(self)

    @cached_property
    def shadows(self) -> Shadows:
        """Models on balanced random subsets of the pool, shared by every attack."""
        from privgate.measure import shadows

        return shadows.train(self)

    @cached_property
    def attack_pool(self) -> "Pool":
        """Who may be a trial of an attack: training records and the candidates that are fit for it."""
        from privgate.measure import pool

        return pool.of(self.subject.data)

    @cached_property
    def attacked(self) -> "Attacked":
        """What every attack scored against the subject's model, self-tested."""
        from privgate.measure import attacked

        return attacked.run(self)

    @cached_property
    def attack_targets(self) -> Shadows:
        """Target models on independent random halves, disjoint from the shadow models, for single records."""
        from privgate.measure import targets

        return targets.train(self)
