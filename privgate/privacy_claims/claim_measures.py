"""Measurements about differential privacy: the guarantee recomputed from what a rerun did, and what follows from it."""

import math
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from privgate.errors import MeasurementError
from privgate.evidence import (
    AttackFigures,
    AttackResult,
    AuditRuns,
    BehindClaim,
    ClaimFact,
    ClaimsPart,
    DeletionRow,
    Estimate,
    GuaranteeBound,
    Measurement,
    Observation,
    Precondition,
    Request,
    TradeoffPoint,
    TradeoffPoints,
)
from privgate.privacy_claims import accountant
from privgate.privacy_claims.accountant import Guarantee
from privgate.privacy_claims.guarantee_table import bounds_table
from privgate.privacy_claims.standing import GuaranteeBasis, contradictions
from privgate.privacy_claims.tradeoff import EpsilonDelta, Tradeoff
from privgate.run.run import Noted, Run
from privgate.subject.claim import Claim

# What the third question found out beside its numbers: facts, bounds, curve, audit, deletion tables.


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


def all_told(run: Run) -> Told:
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


#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)
#: what sampling must be for the recomputed ε to be the mechanism's own and not only a bound on it
EXACT = ("poisson", "")


def standing(run: Run, request: Request) -> GuaranteeBasis:
    """Return what the guarantee rests on, observing the recipe once for all requests of a run.

    Raises
    ------
    MeasurementError
        There is no claim, or it cannot be observed and the policy does not accept declared ones.
    """
    stated = run.subject.recipe.payload["dp"]
    if stated is None:
        raise MeasurementError(
            "the recipe states no differential-privacy claim; train with differential privacy and pass "
            "Recipe(..., dp=Claim(...))"
        )
    claim = Claim.from_payload(stated)
    groups = [len(rows) for rows in run.subject.data.units]
    group = max(groups) if claim.unit == "record" else 1
    seen = run.once(observed)
    run.once(contradicted)
    if not seen.problem:
        group = seen.rows or group  # counted in what batches are drawn from, whatever the claim speaks of
        return GuaranteeBasis(claim, seen, group, run.subject.data.n)
    if not request.option("accept_declared_claims"):
        raise MeasurementError(
            f"the claim could not be observed: {seen.problem}; it is only declared, which counts only where the policy "
            "says accept_declared_claims: true"
        )
    run.once(declared_only)
    return GuaranteeBasis(claim, None, group, run.subject.data.n)


def observed(run: Run) -> Observation:
    """Return what a rerun was seen to do."""
    from privgate.privacy_claims.observe import remembered

    run.fleet.activity = "observing the differential privacy of a rerun"
    return remembered(run.subject, run.fleet)


def contradicted(run: Run) -> Noted:
    """Return what of that contradicts the claim."""
    claim = Claim.from_payload(run.subject.recipe.payload["dp"])
    return Noted(tuple(contradictions(claim, run.once(observed), run.subject.data.n)))


def declared_only(run: Run) -> Noted:
    """Return that the policy accepts a claim which nobody could observe."""
    why = run.once(observed).problem
    text = f"the differential-privacy guarantee is DECLARED ONLY: {why}; the policy accepts that as it is"
    return Noted((Precondition("dp_declared_only", "warned", text),))


def part(run: Run, attacks: Iterable[AttackResult] = ()) -> ClaimsPart | None:
    """Return what the third question found out beside its numbers, what attacks achieved beside it; None if unasked."""
    if not run.made(all_told) and not run.made(observed):
        return None
    told = run.once(all_told)
    tried = tuple(attacks)
    return ClaimsPart(
        observation=run.once(observed) if run.made(observed) else None,
        facts=tuple(ClaimFact(name=name, value=value) for name, value in told.facts.items()),
        bounds=tuple(confronted(row, tried) for row in told.bounds),
        curve=told.curve,
        points=tuple(told.points),
        audit=told.audit,
        deletion=told.deletion,
        deletion_by_prior=told.deletion_by_prior,
    )


def epsilon(run: Run, request: Request) -> Measurement:
    """Return the epsilon that the observed guarantee has at the delta asked for."""
    rests = standing(run, request)
    delta = float(request.option("delta"))
    found = rests.guarantee(delta, request.option("adjacency"))
    seen = rests.observation
    exact = seen is None or seen.library != "opacus" or seen.sample_rate == 1 or seen.sampling in EXACT
    # without a theorem for the sampling, ε is only known not to exceed this
    low = found.epsilon if (exact and "RDP" not in found.accountant) or math.isinf(found.epsilon) else 0.0
    _tell(run, rests, found)
    _fill_table(run, found, str(request.option("adjacency") or rests.claim.adjacency))
    return Measurement(
        request,
        value=found.epsilon,
        low=low,
        high=found.epsilon,
        unit="nats",
        kind="bound",
        assumptions=(*found.assumptions, counted(rests), *origin(run)),
        behind=BehindClaim(**_rests(rests), delta=held_delta(rests, found), accountant=found.accountant),
    )


def held_delta(rests: GuaranteeBasis, found: Guarantee) -> float:
    """Return the δ that the guarantee really has: 0 for pure ones, at whatever δ they were asked."""
    return 0.0 if rests.pure else found.delta


def attack_accuracy(run: Run, request: Request) -> Measurement:
    """Return the accuracy that no attack exceeds under the observed guarantee."""
    rests = standing(run, request)
    prior = float(request.option("prior"))
    words, value = _best_accuracy(rests, prior)
    _fill_table(run, rests.guarantee(report_delta(rests)), str(rests.claim.adjacency), prior)
    return Measurement(
        request,
        value=value,
        low=value,
        high=value,
        unit="fraction",
        kind="bound",
        assumptions=(
            f"the adversary's prior probability of membership is {prior:g}",
            *words,
            counted(rests),
            *origin(run),
        ),
        behind=BehindClaim(**_rests(rests)),
    )


def counted(rests: GuaranteeBasis) -> str:
    """Return what the guarantee counts, and what stands for the rest of the training."""
    seen = rests.observation
    if seen is None:
        return "nothing of the training was observed"
    if seen.replays and seen.library == "diffprivlib":
        return (
            f"training reaches the records through its mechanisms alone: {seen.replays} reruns with one person other, "
            "their outputs held fixed, returned the same object; this finds mistakes and is no proof"
        )
    if seen.replays:
        return (
            f"training reaches the records through its noised steps alone: {seen.replays} reruns on other records, "
            "with the same noised gradients, returned the same object; this finds mistakes and is no proof"
        )
    what = "optimizer steps" if seen.library == "opacus" else "releases of the budget accountant"
    return f"{what} only: what else the training does with its records was not compared"


def origin(run: Run) -> tuple[str, ...]:
    """Return that the registered model is taken for one of the recipe's, which no rerun can show; empty without one."""
    if run.subject.model is None:
        return ()
    told = "as close to reruns as these are to each other, but so may be a model that was trained without noise"
    return (f"the registered model was trained by this recipe: it is {told}",)


def _best_accuracy(rests: GuaranteeBasis, prior: float) -> tuple[tuple[str, ...], float]:
    """Return (assumptions, the largest accuracy of any adversary)."""
    found = rests.guarantee(report_delta(rests))
    curve = found.curve
    if curve is None:
        return found.assumptions, 1.0
    inclusion = "independent" if rests.claim.adjacency == "add_remove" else "fixed_size"
    words = {
        "independent": "records enter the training set independently, and its size is not published",
        "fixed_size": "the training set is a random set of known size",
    }
    return (*found.assumptions, words[inclusion]), curve.accuracy(prior)


def report_delta(rests: GuaranteeBasis) -> float:
    """Return the δ at which a guarantee is quoted: the claim's own, or 0 for pure ones."""
    if rests.pure:
        return 0.0
    if rests.observation is not None and rests.observation.library == "diffprivlib":
        return accountant.pure_composition(list(rests.observation.spends))[1]
    return float(rests.claim.delta or 1e-5)


def _tell(run: Run, rests: GuaranteeBasis, found: Guarantee) -> None:
    seen, told = rests.observation, run.once(all_told)
    if seen is None:
        told.fact("Observed", "nothing: DECLARED ONLY, accepted by the policy")
    elif seen.library == "diffprivlib":
        told.fact("Observed", f"{len(seen.spends)} releases by diffprivlib's budget accountant, {seen.runs} reruns")
    else:
        told.fact("Observed", f"{seen.steps} steps of Opacus in each of {seen.runs} reruns, batches {seen.sampling}")
        told.fact("Noise multiplier seen", f"{seen.noise_multiplier:.4g}")
        told.fact("Sample rate seen", f"{seen.sample_rate:.4g}")
        told.fact("Clipping norm seen", f"{seen.max_grad_norm:.4g}")
        told.fact("Entries of one person", f"{seen.rows} at most" if seen.rows else "not counted")
    if seen is not None and not seen.broken:
        told.fact("What is counted", counted(rests))
    if seen is not None and seen.broken:
        told.fact("Broken", seen.broken)
    told.fact("Recomputed epsilon", f"{found.epsilon:.4g} at delta {held_delta(rests, found):g} ({found.accountant})")


def _rests(rests: GuaranteeBasis) -> dict[str, Any]:
    seen = rests.observation
    return {
        "declared_only": seen is None,
        "claimed_epsilon": rests.claim.epsilon,
        "library": "" if seen is None else seen.library,
        "reruns": 0 if seen is None else seen.runs,
        "replays": 0 if seen is None else seen.replays,
        "group": rests.group,
    }


def _fill_table(run: Run, found: Guarantee, adjacency: str, prior: float = 0.5) -> None:
    """Put the table of bounds, and the curve's points for a chart, where the report looks for them."""
    told = run.once(all_told)
    if found.curve is None or any(row.prior == prior for row in told.bounds):
        return
    inclusion = "independent" if adjacency == "add_remove" else "fixed_size"
    own: Tradeoff | None = None if isinstance(found.curve, EpsilonDelta) else found.curve
    table = bounds_table(
        found.epsilon, found.delta, prior, adjacency=adjacency, inclusion=inclusion, fprs=FPRS, curve=own
    )
    known = {row.name for row in told.bounds}
    told.bounds += [GuaranteeBound(**row) for row in table if row["prior"] is not None or row["name"] not in known]
    if told.curve is None:
        fprs = np.geomspace(1e-4, 1, 60)
        told.curve = TradeoffPoints(fpr=tuple(fprs.tolist()), tpr=tuple(found.curve.tpr(f) for f in fprs))
