"""What the third question found out beside its numbers: facts, bounds, curve, audit, deletion tables."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field

from privgate.evidence import (
    AttackFigures,
    AttackResult,
    AuditRuns,
    DeletionRow,
    Estimate,
    GuaranteeBound,
    TradeoffPoint,
    TradeoffPoints,
)
from privgate.run.run import Run


@dataclass
class Told:
    """What was noted about the guarantee in one run.

    Parameters
    ----------
    facts : dict name -> text
        The newest last.
    bounds : list of GuaranteeBound
        Those of each prior once.
    curve : TradeoffPoints or None
    points : list of TradeoffPoint
    audit : AuditRuns or None
    deletion, deletion_by_prior : tuple of DeletionRow
    """

    facts: dict[str, str] = field(default_factory=dict)
    bounds: list[GuaranteeBound] = field(default_factory=list)
    curve: TradeoffPoints | None = None
    points: list[TradeoffPoint] = field(default_factory=list)
    audit: AuditRuns | None = None
    deletion: tuple[DeletionRow, ...] = ()
    deletion_by_prior: tuple[DeletionRow, ...] = ()

    def fact(self, name: str, value: str) -> None:
        """Note one line; the same name says the newest."""
        self.facts.pop(name, None)
        self.facts[name] = value


def told(run: Run) -> Told:
    """Return where a run's facts about its guarantee are noted."""
    del run
    return Told()


def confronted(bound: GuaranteeBound, attacks: Iterable[AttackResult]) -> GuaranteeBound:
    """Return a bound beside the most that attacks achieved of what it bounds.

    Attacks count over the records of one model; a bound holds for one record over many trainings. Exceeding it makes
    the claim doubtful, and only an audit decides.
    """
    found = [_achieved(a.figures, bound) for a in attacks if a.figures is not None and a.scope == "model"]
    known = [f for f in found if f is not None and f.value is not None and not math.isnan(f.value)]
    return bound.model_copy(update={"measured": max(known, key=lambda f: f.value or 0.0, default=None)})


def _achieved(attack: AttackFigures, bound: GuaranteeBound) -> Estimate | None:
    """Return an attack's figure of the kind that is bounded."""
    if "20" in bound.name and "et al." in bound.name:
        return None  # earlier bounds on the same quantities
    if bound.name.startswith("accuracy") and bound.prior == 0.5 and "pool" not in bound.name:
        return attack.accuracy
    if bound.name.startswith("advantage"):
        return Estimate(value=attack.advantage)
    if bound.name.startswith("TPR at FPR"):
        rate = next((r for r in attack.tpr_at_fpr if r.fpr == bound.fpr), None)
        return None if rate is None else Estimate(value=rate.value, low=rate.low, high=rate.high, problem=rate.problem)
    return None
