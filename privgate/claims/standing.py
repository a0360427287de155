"""What the guarantee of one subject rests on (claimed, observed, audited), and the five ways a rerun contradicts it."""

import dataclasses
import math
from collections.abc import Iterable, Iterator
from dataclasses import dataclass, field

from privgate.claims import accounting, bounds
from privgate.claims.accounting import NEIGHBORS, Guarantee, Mechanism
from privgate.claims.tradeoff import EpsilonDelta
from privgate.claims.watch import ERRORS
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import (
    AttackFigures,
    AttackResult,
    AuditRuns,
    ClaimFact,
    ClaimsPart,
    DeletionRow,
    Estimate,
    GuaranteeBound,
    Observation,
    Precondition,
    Request,
    TradeoffPoint,
    TradeoffPoints,
)
from privgate.run.run import Noted, Run
from privgate.subject.claim import Claim


@dataclass(frozen=True)
class GuaranteeBasis:
    """What the guarantee of one subject rests on.

    Parameters
    ----------
    claim : Claim
    observation : Observation or None
        None where the policy lets a claim count that nobody observed.
    group : int
        Largest number of entries of one person that the guarantee is converted to.
    records : int
        Training size.
    """

    claim: Claim
    observation: Observation | None
    group: int = 1
    records: int = 0

    @property
    def pure(self) -> bool:
        """Whether ε holds at δ = 0."""
        if self.observation is not None and self.observation.library == "opacus":
            return False
        return self.claim.delta == 0 and self.claim.epsilon is not None

    def mechanism(self, adjacency: str) -> Mechanism | None:
        """Return the noised steps, as observed or else as claimed; None where there are none."""
        seen, claim = self.observation, self.claim
        if seen is not None:
            if seen.library != "opacus":
                return None
            drawn = (seen.sample_rate, seen.steps, seen.sampling)
            return Mechanism(seen.noise_multiplier, *drawn, adjacency, seen.records, passes=seen.passes)
        if claim.noise_multiplier is None or claim.sample_rate is None or claim.steps is None:
            return None
        drawn = (claim.sample_rate, claim.steps, claim.sampling or "unknown")
        return Mechanism(claim.noise_multiplier, *drawn, adjacency, self.records)

    def guarantee(self, delta: float, adjacency: str | None = None) -> Guarantee:
        """Return the guarantee at ``delta`` for one person, whose records are a group where there are several.

        Raises
        ------
        MeasurementError
            No theorem gives one.
        """
        wanted = adjacency or str(self.claim.adjacency)
        if self.observation is not None and self.observation.noiseless_steps:
            return Guarantee(math.inf, delta, None, "none", assumptions=(without_noise(self.observation),))
        if self.group == 1:
            return self._for_records(delta, wanted)
        exact = self._for_all_records(delta, wanted)
        if exact is not None:
            return exact
        # k records cost k ε at a larger δ: look for the record δ at which the group's is small enough
        found = []
        for shrink in range(13):
            single = self._for_records(delta * 10.0**-shrink, wanted)
            epsilon, converted = accounting.for_groups(single.epsilon, single.delta, self.group)
            if converted <= delta:
                found.append((epsilon, single))
        if not found:
            raise MeasurementError(
                f"a person has up to {self.group} records here, and the guarantee for one record gives none for so many"
            )
        epsilon, single = min(found, key=lambda pair: pair[0])
        words = (*single.assumptions, f"converted from one record to the {self.group} that one person has at most")
        curve = EpsilonDelta(epsilon, delta) if math.isfinite(epsilon) else None
        return Guarantee(epsilon, delta, curve, single.accountant, assumptions=words)

    def _for_all_records(self, delta: float, adjacency: str) -> Guarantee | None:
        """Return the guarantee for all records of one person, accounted for together; None where no theorem does."""
        if delta <= 0 or (mechanism := self.mechanism(adjacency)) is None:
            return None
        try:
            found = accounting.recompute(dataclasses.replace(mechanism, copies=self.group), delta)
        except (MeasurementError, UsageError):
            return None
        words = (*found.assumptions, f"for the {self.group} records that one person has at most, each drawn on its own")
        return dataclasses.replace(found, assumptions=words)

    def _for_records(self, delta: float, adjacency: str) -> Guarantee:
        try:
            if (mechanism := self.mechanism(adjacency)) is not None:
                return accounting.recompute(mechanism, delta)
        except UsageError as exc:  # numbers that describe no mechanism: here a finding, not a wrong call
            raise MeasurementError(f"the guarantee cannot be recomputed: {exc}") from exc
        epsilon, own = self._stated()
        if adjacency != self.claim.adjacency:
            if adjacency == "add_remove":
                raise MeasurementError(
                    "the guarantee compares data sets with one record replaced; it says nothing about one more or less"
                )
            epsilon, own = bounds.effective_guarantee(epsilon, own, adjacency="add_remove", inclusion="fixed_size")
        if own > delta:
            raise MeasurementError(
                f"the guarantee holds at delta {own:g} only, and nothing follows from it at the smaller {delta:g}"
            )
        source = "budget accountant" if self.observation is not None else "declared"
        return Guarantee(epsilon, own, EpsilonDelta(epsilon, own), source, assumptions=(NEIGHBORS[adjacency],))

    def _stated(self) -> tuple[float, float]:
        """Return (ε, δ) that a budget accountant recorded, or that the claim states."""
        if self.observation is not None:
            return accounting.pure_composition(list(self.observation.spends))
        if self.claim.epsilon is None or self.claim.delta is None:
            raise MeasurementError("the claim states no epsilon, and its parameters are not those of noised steps")
        return self.claim.epsilon, self.claim.delta


def claimed_epsilon(claim: Claim, records: int) -> float:
    """Return the claim's ε, from its parameters where it states none."""
    if claim.epsilon is not None:
        return claim.epsilon
    return GuaranteeBasis(claim, None, 1, records).guarantee(float(claim.delta or 0.0)).epsilon


# What a rerun contradicts: five sentences, of which all that hold are told, the worst first.


def without_noise(seen: Observation) -> str:
    """Return how many steps got no noise, in words."""
    what = "updates of the model" if seen.library == "opacus" else "releases"
    return (
        f"{seen.noiseless_steps} of {seen.steps} {what} got no noise, or noise from a seed that anybody can try; seed "
        "nothing in the training, and load weights that were trained on public data from a file"
    )


def contradictions(claim: Claim, seen: Observation, records: int) -> Iterator[Precondition]:
    """Yield what a rerun contradicts of a claim, the worst first, and then what only weakens it."""
    found = [*_contradicted(claim, seen, records)] if seen.library else [*_own_parameters(claim, records)]
    yield from found
    if not seen.problem and not any(p.outcome == "failed" for p in found):
        yield _kept(claim, seen, records)
    for doubt in claim.doubts(records):
        yield Precondition("dp_doubt", "warned", f"the differential-privacy claim is weaker than it reads: {doubt}")


def _contradicted(claim: Claim, seen: Observation, records: int) -> Iterator[Precondition]:
    if seen.noiseless_steps:
        yield Precondition("dp_noise", "failed", f"the claim does not hold: {without_noise(seen)}")
    for hazard in seen.hazards:
        yield Precondition("dp_hazard", "failed", f"{hazard}; the guarantee does not hold")
    if seen.leftovers:
        stored = seen.leftovers == "stored"
        text = (
            f"the network that {'is registered' if stored else 'training returns'} carries gradients of single "
            "records, without noise; call optimizer.zero_grad() after the last step, before it is saved"
        )
        yield Precondition("dp_leftovers", "failed" if stored else "warned", text)
    if seen.noise_share < 1 - ERRORS * seen.noise_error:
        text = (
            f"the noise is smaller than stated: its deviation is {seen.noise_share:.3g} of the {seen.noise_stated:.4g} "
            f"clipping norms that the optimizer states, {(1 - seen.noise_share) / seen.noise_error:.0f} standard "
            "errors less"
        )
        yield Precondition("dp_smaller_noise", "failed", text)
    if (seen.library == "opacus" and seen.sample_rate < 1) or seen.sampling == "unknown":
        yield from _other_sampling(claim, seen)
    yield from _understated(claim, seen, records)


def _other_sampling(claim: Claim, seen: Observation) -> Iterator[Precondition]:
    """Yield that batches were not Poisson at the stated rate."""
    rate = claim.sample_rate
    if seen.sampling == "poisson" and (rate is None or seen.sample_rate <= rate * 1.01):
        return
    if seen.sampling == "poisson":
        words = f"drawn at the rate {seen.sample_rate:.4g}, not {rate:.4g}"
    else:
        words = "shuffled" if seen.sampling == "shuffled" else "not seen to be drawn in secret by Opacus' own sampler"
    outcome = "failed" if claim.sampling == "poisson" and seen.sampling != "poisson" else "warned"
    yield Precondition(
        "dp_sampling",
        outcome,
        f"batches were {words}, but the claim is accounted as {claim.sampling or 'unstated'} sampling: amplification "
        "by sampling is proved for Poisson batches at their rate",
    )


def _understated(claim: Claim, seen: Observation, records: int) -> Iterator[Precondition]:
    """Yield that the claim's ε is below what the observed events cost."""
    stated = claimed_epsilon(claim, records)
    if seen.library == "opacus" and not claim.delta:
        yield Precondition(
            "dp_claim", "failed", "the claim is pure (delta 0), but Gaussian noise was observed, which never is"
        )
        return
    times = copies_of(seen)
    try:
        found = GuaranteeBasis(claim, seen, times, records).guarantee(claim.delta or 0.0).epsilon
    except MeasurementError as exc:
        text = f"the claim of epsilon {stated:.4g} at delta {claim.delta:g} is not what was observed: {exc}"
        yield Precondition("dp_claim", "failed", text)
        return
    if accounting.understates(stated, found):
        cost = f"costs {found:.4g}" if math.isfinite(found) else "gives none"
        several = f": one {claim.unit} has {times} entries in what batches are drawn from" if times > 1 else ""
        yield Precondition(
            "dp_claim",
            "failed",
            f"the recipe claims epsilon {stated:.4g}, but what was observed {cost}{several}",
            {"claimed": stated, "recomputed": found, "delta": claim.delta},
        )


def _kept(claim: Claim, seen: Observation, records: int) -> Precondition:
    stated = claimed_epsilon(claim, records)
    found = GuaranteeBasis(claim, seen, copies_of(seen), records).guarantee(claim.delta or 0.0).epsilon
    return Precondition(
        "dp_claim",
        "passed",
        f"the recipe claims epsilon {stated:.4g} at delta {claim.delta:g}; recomputed from an observed rerun: "
        f"{found:.4g}",
        {"claimed": stated, "recomputed": found, "delta": claim.delta},
    )


def copies_of(seen: Observation) -> int:
    """Return how many entries a record has in what batches are drawn from, at least."""
    return max(1, math.ceil(max(seen.populations, default=0) / max(1, seen.records)))


def _own_parameters(claim: Claim, records: int) -> Iterator[Precondition]:
    """Yield the contradiction between a claim's ε and its own parameters, where nothing could be observed."""
    rests = GuaranteeBasis(claim, None, 1, records)
    if claim.epsilon is None or not claim.delta or rests.mechanism(str(claim.adjacency)) is None:
        return
    found = rests.guarantee(claim.delta).epsilon
    if accounting.understates(claim.epsilon, found):
        text = f"the recipe claims epsilon {claim.epsilon:.4g}, but its own parameters give {found:.4g}"
        yield Precondition("dp_claim", "failed", text, {"claimed": claim.epsilon, "recomputed": found})


# What of one run it rests on, and what is noted beside the numbers.


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
    seen = run.once(observed)
    run.once(contradicted)
    group = max(len(rows) for rows in run.subject.data.units) if claim.unit == "record" else 1
    if not seen.problem:
        return GuaranteeBasis(claim, seen, group * copies_of(seen), run.subject.data.n)
    if not request.option("accept_declared_claims"):
        raise MeasurementError(
            f"the claim could not be observed: {seen.problem}; it is only declared, which counts only where the policy "
            "says accept_declared_claims: true"
        )
    run.once(declared_only)
    return GuaranteeBasis(claim, None, group, run.subject.data.n)


def observed(run: Run) -> Observation:
    """Return what a rerun was seen to do."""
    from privgate.claims.observe import read_or_observe

    run.fleet.activity = "observing the differential privacy of a rerun"
    return read_or_observe(run.subject, run.fleet)


def contradicted(run: Run) -> Noted:
    """Return what of that contradicts the claim."""
    claim = Claim.from_payload(run.subject.recipe.payload["dp"])
    return Noted(tuple(contradictions(claim, run.once(observed), run.subject.data.n)))


def declared_only(run: Run) -> Noted:
    """Return that the policy accepts a claim which nobody could observe."""
    why = run.once(observed).problem
    text = f"the differential-privacy guarantee is DECLARED ONLY: {why}; the policy accepts that as it is"
    return Noted((Precondition("dp_declared_only", "warned", text),))


@dataclass
class Findings:
    """What was noted about the guarantee in one run; facts by name, the newest last."""

    facts: dict[str, str] = field(default_factory=dict)
    bounds: list[GuaranteeBound] = field(default_factory=list)
    curve: TradeoffPoints | None = None
    points: list[TradeoffPoint] = field(default_factory=list)
    audit: AuditRuns | None = None
    deletion: tuple[DeletionRow, ...] = ()

    def note(self, name: str, value: str) -> None:
        """Note one line; the same name says the newest."""
        self.facts.pop(name, None)
        self.facts[name] = value


def findings(run: Run) -> Findings:
    """Return where a run's facts about its guarantee are noted."""
    del run
    return Findings()


def part(run: Run, attacks: Iterable[AttackResult] = ()) -> ClaimsPart | None:
    """Return what the third question found beside its numbers, and what attacks achieved; None if unasked."""
    if not run.made(findings) and not run.made(observed):
        return None
    noted, tried = run.once(findings), tuple(attacks)
    return ClaimsPart(
        observation=run.once(observed) if run.made(observed) else None,
        facts=tuple(ClaimFact(name=name, value=value) for name, value in noted.facts.items()),
        bounds=tuple(_confront(row, tried) for row in noted.bounds),
        curve=noted.curve,
        points=tuple(noted.points),
        audit=noted.audit,
        deletion=noted.deletion,
    )


def _confront(bound: GuaranteeBound, attacks: Iterable[AttackResult]) -> GuaranteeBound:
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
