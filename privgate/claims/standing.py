"""What the guarantee of one subject rests on (claimed, observed, audited), and the five ways a rerun contradicts it."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace

from privgate.claims import accounting, bounds
from privgate.claims.accounting import NEIGHBORS, Guarantee, Mechanism
from privgate.claims.bounds import EpsilonDelta
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
    """What the guarantee of one subject rests on; without an observation, a claim that the policy lets count.

    ``group`` is the largest number of entries of one person, to which the guarantee is converted; ``records`` the
    training size.
    """

    claim: Claim
    observation: Observation | None
    group: int = 1
    records: int = 0

    @property
    def noised(self) -> Observation | None:
        """The observation, where it is of steps that Opacus noised."""
        return self.observation if self.observation is not None and self.observation.library == "opacus" else None

    @property
    def pure(self) -> bool:
        """Whether ε holds at δ = 0."""
        return self.noised is None and self.claim.delta == 0 and self.claim.epsilon is not None

    @property
    def own_delta(self) -> float:
        """The δ at which the guarantee is quoted: the claim's own, or 0 for pure ones."""
        if self.pure or self.observation is None or self.noised:
            return 0.0 if self.pure else float(self.claim.delta or 1e-5)
        return accounting.add_releases(self.observation.spends)[1]

    def mechanism(self, adjacency: str) -> Mechanism | None:
        """Return the noised steps, as observed or else as claimed; None where there are none."""
        if seen := self.noised:
            drawn = (seen.sample_rate, seen.steps, seen.sampling)
            return Mechanism(seen.noise_multiplier, *drawn, adjacency, seen.records, passes=seen.passes)
        noise, rate, steps = self.claim.noise_multiplier, self.claim.sample_rate, self.claim.steps
        if self.observation is not None or noise is None or rate is None or steps is None:
            return None
        return Mechanism(noise, rate, steps, self.claim.sampling or "unknown", adjacency, self.records)

    def guarantee(self, delta: float, adjacency: str | None = None) -> Guarantee:
        """Return the guarantee at ``delta`` for all records of one person; raises where no theorem gives one."""
        wanted = adjacency or str(self.claim.adjacency)
        if self.observation is not None and self.observation.noiseless_steps:
            return Guarantee(math.inf, delta, None, "none", (without_noise(self.observation),))
        if self.group == 1:
            return self._for_records(delta, wanted)
        with suppress(MeasurementError, UsageError):
            if delta > 0 and (mechanism := self.mechanism(wanted)) is not None:
                exact = accounting.recompute(replace(mechanism, copies=self.group), delta)
                counted = f"for the {self.group} records that one person has at most, each drawn on its own"
                return replace(exact, assumptions=(*exact.assumptions, counted))
        # k records cost k ε at a larger δ: look for the record δ at which the group's is small enough
        singles = [self._for_records(delta * 10.0**-shrink, wanted) for shrink in range(13)]
        groups = [(*accounting.convert_to_group(one.epsilon, one.delta, self.group), one) for one in singles]
        held = [(epsilon, one) for epsilon, converted, one in groups if converted <= delta]
        if not held:
            raise MeasurementError(
                f"a person has up to {self.group} records here, and the guarantee for one record gives none for so many"
            )
        epsilon, single = min(held, key=lambda pair: pair[0])
        words = (*single.assumptions, f"converted from one record to the {self.group} that one person has at most")
        curve = EpsilonDelta(epsilon, delta) if math.isfinite(epsilon) else None
        return Guarantee(epsilon, delta, curve, single.accountant, words)

    def _for_records(self, delta: float, adjacency: str) -> Guarantee:
        try:
            if (mechanism := self.mechanism(adjacency)) is not None:
                return accounting.recompute(mechanism, delta)
        except UsageError as exc:  # numbers that describe no mechanism: here a finding, not a wrong call
            raise MeasurementError(f"the guarantee cannot be recomputed: {exc}") from exc
        if self.observation is not None:
            epsilon, own = accounting.add_releases(self.observation.spends)
        elif self.claim.epsilon is None or self.claim.delta is None:
            raise MeasurementError("the claim states no epsilon, and its parameters are not those of noised steps")
        else:
            epsilon, own = self.claim.epsilon, self.claim.delta
        if adjacency != self.claim.adjacency:
            if adjacency == "add_remove":
                raise MeasurementError(
                    "the guarantee compares data sets with one record replaced; it says nothing about one more or less"
                )
            epsilon, own = bounds.convert_to_inclusion(epsilon, own, adjacency="add_remove", inclusion="fixed_size")
        if own > delta:
            raise MeasurementError(
                f"the guarantee holds at delta {own:g} only, and nothing follows from it at the smaller {delta:g}"
            )
        source = "budget accountant" if self.observation is not None else "declared"
        return Guarantee(epsilon, own, EpsilonDelta(epsilon, own), source, (NEIGHBORS[adjacency],))


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
    found = [*_contradicted(claim, seen)]
    worth = _worth(claim, seen, records)
    if worth is not None and (worth.outcome == "failed" or not any(p.outcome == "failed" for p in found)):
        found.append(worth)
    yield from found
    for doubt in claim.doubts(records):
        yield Precondition("dp_doubt", "warned", f"the differential-privacy claim is weaker than it reads: {doubt}")


def _contradicted(claim: Claim, seen: Observation) -> Iterator[Precondition]:
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
    poisson, rate = seen.sampling == "poisson", claim.sample_rate
    if not seen.sample_rate < 1 and seen.sampling != "unknown":
        return
    if poisson and (rate is None or seen.sample_rate <= rate * 1.01):
        return
    words = "shuffled" if seen.sampling == "shuffled" else "not seen to be drawn in secret by Opacus' own sampler"
    if poisson:
        words = f"drawn at the rate {seen.sample_rate:.4g}, not {rate:.4g}"
    text = (
        f"batches were {words}, but the claim is accounted as {claim.sampling or 'unstated'} sampling: amplification "
        "by sampling is proved for Poisson batches at their rate"
    )
    yield Precondition("dp_sampling", "failed" if claim.sampling == "poisson" and not poisson else "warned", text)


def _worth(claim: Claim, seen: Observation, records: int) -> Precondition | None:
    """Return whether the claim's ε is below what was observed, or what its own parameters say where nothing was."""
    delta, times = claim.delta or 0.0, copies_of(seen)
    rests = GuaranteeBasis(claim, seen if seen.library else None, times, records)
    if not seen.library and (claim.epsilon is None or not delta or rests.mechanism(str(claim.adjacency)) is None):
        return None
    if rests.noised and not delta:
        text = "the claim is pure (delta 0), but Gaussian noise was observed, which never is"
        return Precondition("dp_claim", "failed", text)
    stated = claimed_epsilon(claim, records)
    try:
        found = rests.guarantee(delta).epsilon
    except MeasurementError as exc:
        if not seen.library:
            raise
        text = f"the claim of epsilon {stated:.4g} at delta {claim.delta:g} is not what was observed: {exc}"
        return Precondition("dp_claim", "failed", text)
    claims, detail = f"the recipe claims epsilon {stated:.4g}", {"claimed": stated, "recomputed": found, "delta": delta}
    if not accounting.understates(stated, found):
        text = f"{claims} at delta {claim.delta:g}; recomputed from an observed rerun: {found:.4g}"
        return None if seen.problem else Precondition("dp_claim", "passed", text, detail)
    if not seen.library:
        text = f"{claims}, but its own parameters give {found:.4g}"
        return Precondition("dp_claim", "failed", text, {"claimed": stated, "recomputed": found})
    cost = f"costs {found:.4g}" if math.isfinite(found) else "gives none"
    several = f": one {claim.unit} has {times} entries in what batches are drawn from" if times > 1 else ""
    return Precondition("dp_claim", "failed", f"{claims}, but what was observed {cost}{several}", detail)


def copies_of(seen: Observation) -> int:
    """Return how many entries a record has in what batches are drawn from, at least."""
    return max(1, math.ceil(max(seen.populations, default=0) / max(1, seen.records)))


# What of one run it rests on, and what is noted beside the numbers.


def standing(run: Run, request: Request) -> GuaranteeBasis:
    """Return what the guarantee rests on, observing the recipe once for all requests of a run.

    ``MeasurementError``: there is no claim, or it cannot be observed and the policy does not accept declared ones.
    """
    claim = run.subject.recipe.dp
    if claim is None:
        raise MeasurementError(
            "the recipe states no differential-privacy claim; train with differential privacy and pass "
            "Recipe(..., dp=Claim(...))"
        )
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
    claim = run.subject.recipe.dp
    return Noted(tuple(contradictions(claim, run.once(observed), run.subject.data.n)) if claim else ())


def declared_only(run: Run) -> Noted:
    """Return that the policy accepts a claim which nobody could observe."""
    why = run.once(observed).problem
    text = f"the differential-privacy guarantee is DECLARED ONLY: {why}; the policy accepts that as it is"
    return Noted((Precondition("dp_declared_only", "warned", text),))


@dataclass
class Findings:
    """What was noted about the guarantee in one run."""

    facts: dict[str, str] = field(default_factory=dict)
    bounds: list[GuaranteeBound] = field(default_factory=list)
    curve: TradeoffPoints | None = None
    points: list[TradeoffPoint] = field(default_factory=list)
    audit: AuditRuns | None = None
    deletion: tuple[DeletionRow, ...] = ()


def findings(_run: Run) -> Findings:
    """Return where a run's facts about its guarantee are noted."""
    return Findings()


def part(run: Run, attacks: Iterable[AttackResult] = ()) -> ClaimsPart | None:
    """Return what the third question found beside its numbers, and what attacks achieved; None if unasked.

    Attacks count over the records of one model; a bound holds for one record over many trainings. Exceeding it makes
    the claim doubtful, and only an audit decides.
    """
    if not run.made(findings) and not run.made(observed):
        return None
    noted = run.once(findings)
    figures = [a.figures for a in attacks if a.figures is not None and a.scope == "model"]
    return ClaimsPart(
        observation=run.once(observed) if run.made(observed) else None,
        facts=tuple(ClaimFact(name=name, value=value) for name, value in noted.facts.items()),
        bounds=tuple(row.model_copy(update={"measured": _most_of(row, figures)}) for row in noted.bounds),
        curve=noted.curve,
        points=tuple(noted.points),
        audit=noted.audit,
        deletion=noted.deletion,
    )


def _most_of(bound: GuaranteeBound, figures: list[AttackFigures]) -> Estimate | None:
    """Return the most that attacks achieved of what is bounded; None for earlier bounds on the same quantities."""
    achieved: list[Estimate] = []
    if bound.name in ("accuracy", "accuracy, exact curve") and bound.prior == 0.5:
        achieved = [f.accuracy for f in figures]
    elif bound.name.startswith("advantage"):
        achieved = [Estimate(value=f.advantage) for f in figures]
    elif bound.name.startswith("TPR at FPR"):
        rates = [r for f in figures for r in f.tpr_at_fpr if r.fpr == bound.fpr]
        achieved = [Estimate(value=r.value, low=r.low, high=r.high, problem=r.problem) for r in rates]
    known = [f for f in achieved if f.value is not None and not math.isnan(f.value)]
    return max(known, key=lambda f: f.value or 0.0, default=None)
