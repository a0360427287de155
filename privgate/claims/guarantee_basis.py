"""What the guarantee of one model rests on (a claim or an observed rerun), and how a rerun contradicts the claim."""

import math
from collections.abc import Iterable, Iterator
from contextlib import suppress
from dataclasses import dataclass, field, replace
from typing import Any

from privgate.claims import accounting, bounds
from privgate.claims.accounting import NEIGHBORS, Guarantee, Mechanism
from privgate.claims.bounds import INCLUSION, EpsilonDelta, list_bounds
from privgate.claims.watch import ERRORS
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import BehindClaim, ClaimsPart, Measurement, Observation, Precondition, Request
from privgate.run.run import Noted, Run
from privgate.subject.claim import Claim

#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)
#: how records enter a training set whose guarantee is for such neighbors
DRAWN = {"add_remove": "independent", "replace_one": "fixed_size"}


@dataclass(frozen=True)
class GuaranteeBasis:
    """What a guarantee rests on: a rerun at which a library was observed, else what the claim itself states.

    ``group`` is the largest number of entries that one person has; the guarantee is converted to that many.
    """

    claim: Claim
    observation: Observation = field(default_factory=Observation)
    group: int = 1

    @property
    def opacus(self) -> bool:
        """Whether Opacus was seen to add the noise."""
        return self.observation.library == "opacus"

    @property
    def pure(self) -> bool:
        """Whether the guarantee holds at δ = 0."""
        return not self.opacus and self.claim.delta == 0 and self.claim.epsilon is not None

    @property
    def own_delta(self) -> float:
        """The δ at which the guarantee is quoted if no rule states one."""
        if self.pure:
            return 0.0
        if self.observation.library and not self.opacus:
            return accounting.add_releases(self.observation.spends)[1]
        return float(self.claim.delta or 1e-5)

    def mechanism(self, adjacency: str) -> Mechanism | None:
        """Return the noised steps, observed or, where no library was, claimed; None for diffprivlib's releases."""
        seen, claim = self.observation, self.claim
        if self.opacus:
            sampling = (seen.sample_rate, seen.steps, seen.sampling)
            return Mechanism(seen.noise_multiplier, *sampling, adjacency, passes=seen.passes)
        noise, rate, steps = claim.noise_multiplier, claim.sample_rate, claim.steps
        if seen.library or noise is None or rate is None or steps is None:
            return None
        return Mechanism(noise, rate, steps, claim.sampling or "unknown", adjacency)

    def guarantee(self, delta: float, adjacency: str | None = None) -> Guarantee:
        """Return the guarantee at ``delta`` for all records of one person; ``MeasurementError``: no theorem has it."""
        adjacency = adjacency or str(self.claim.adjacency)
        if self.observation.noiseless_steps:
            return Guarantee(math.inf, delta, None, "none", (describe_missing_noise(self.observation),))
        if self.group == 1:
            return self._guarantee_for_record(delta, adjacency)
        with suppress(MeasurementError, UsageError):
            if delta > 0 and (mechanism := self.mechanism(adjacency)) is not None:
                exact = accounting.recompute(replace(mechanism, copies=self.group), delta)
                counted = f"for the {self.group} records that one person has at most, each drawn on its own"
                return replace(exact, assumptions=(*exact.assumptions, counted))
        return self._convert_to_group(delta, adjacency)

    def _convert_to_group(self, delta: float, adjacency: str) -> Guarantee:
        """Return the least ε of a group whose δ stays within ``delta``, over guarantees for one record at smaller δ."""
        converted: list[tuple[float, Guarantee]] = []
        for exponent in range(13):
            single = self._guarantee_for_record(delta * 10.0**-exponent, adjacency)
            epsilon, group_delta = accounting.convert_to_group(single.epsilon, single.delta, self.group)
            if group_delta <= delta:
                converted.append((epsilon, single))
        if not converted:
            raise MeasurementError(
                f"a person has up to {self.group} records here, and the guarantee for one record gives none for so many"
            )
        epsilon, single = min(converted, key=lambda pair: pair[0])
        words = f"converted from one record to the {self.group} that one person has at most"
        curve = EpsilonDelta(epsilon, delta) if math.isfinite(epsilon) else None
        return Guarantee(epsilon, delta, curve, single.accountant, (*single.assumptions, words))

    def _guarantee_for_record(self, delta: float, adjacency: str) -> Guarantee:
        try:
            if (mechanism := self.mechanism(adjacency)) is not None:
                return accounting.recompute(mechanism, delta)
        except UsageError as exc:  # the numbers are the author's or the training's, not those of a caller
            raise MeasurementError(f"the guarantee cannot be recomputed: {exc}") from exc
        if self.observation.library:
            epsilon, own_delta = accounting.add_releases(self.observation.spends)
        elif self.claim.epsilon is None or self.claim.delta is None:
            raise MeasurementError("the claim states no epsilon, and its parameters are not those of noised steps")
        else:
            epsilon, own_delta = self.claim.epsilon, self.claim.delta
        if adjacency != self.claim.adjacency:
            if adjacency == "add_remove":
                raise MeasurementError(
                    "the guarantee compares data sets with one record replaced; it says nothing about one more or less"
                )
            fixed_size = {"adjacency": "add_remove", "inclusion": "fixed_size"}
            epsilon, own_delta = bounds.convert_to_inclusion(epsilon, own_delta, **fixed_size)
        if own_delta > delta:
            raise MeasurementError(
                f"the guarantee holds at delta {own_delta:g} only, and nothing follows from it at the smaller {delta:g}"
            )
        source = "budget accountant" if self.observation.library else "declared"
        return Guarantee(epsilon, own_delta, EpsilonDelta(epsilon, own_delta), source, (NEIGHBORS[adjacency],))


def claimed_epsilon(claim: Claim) -> float:
    """Return the ε that the claim states, else the one that its parameters give."""
    if claim.epsilon is not None:
        return claim.epsilon
    return GuaranteeBasis(claim).guarantee(float(claim.delta or 0.0)).epsilon


# What a rerun contradicts: the five contradictions of docs/measuring.md, and warnings of the library itself.


def describe_missing_noise(seen: Observation) -> str:
    """Return a sentence that says how many steps got no noise."""
    what = "updates of the model" if seen.library == "opacus" else "releases"
    return (
        f"{seen.noiseless_steps} of {seen.steps} {what} got no noise, or noise from a seed that anybody can try; seed "
        "nothing in the training, and load weights that were trained on public data from a file"
    )


def list_contradictions(claim: Claim, seen: Observation, records: int) -> Iterator[Precondition]:
    """Yield what the observation contradicts, the worst first, or that ε is confirmed; then doubts of the claim."""
    contradictions = list(_list_training_contradictions(claim, seen))
    yield from contradictions
    epsilon = _judge_claimed_epsilon(claim, seen)
    if epsilon is not None and (epsilon.outcome == "failed" or all(p.outcome != "failed" for p in contradictions)):
        yield epsilon
    for doubt in claim.doubts(records):
        yield Precondition("dp_doubt", "warned", f"the differential-privacy claim is weaker than it reads: {doubt}")


def _list_training_contradictions(claim: Claim, seen: Observation) -> Iterator[Precondition]:
    if seen.noiseless_steps:
        yield Precondition("dp_noise", "failed", f"the claim does not hold: {describe_missing_noise(seen)}")
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
    if batches := _describe_unclaimed_batches(claim, seen):
        text = (
            f"batches were {batches}, but the claim is accounted as {claim.sampling or 'unstated'} sampling: "
            "amplification by sampling is proved for Poisson batches at their rate"
        )
        refuted = claim.sampling == "poisson" and seen.sampling != "poisson"
        yield Precondition("dp_sampling", "failed" if refuted else "warned", text)


def _describe_unclaimed_batches(claim: Claim, seen: Observation) -> str:
    """Return how batches were drawn; empty if the claim's sampling covers it, or if every record was in every batch."""
    if not seen.sample_rate < 1 and seen.sampling != "unknown":
        return ""
    if seen.sampling == "poisson":
        too_large = claim.sample_rate is not None and not seen.sample_rate <= claim.sample_rate * 1.01
        return f"drawn at the rate {seen.sample_rate:.4g}, not {claim.sample_rate:.4g}" if too_large else ""
    return "shuffled" if seen.sampling == "shuffled" else "not seen to be drawn in secret by Opacus' own sampler"


def _judge_claimed_epsilon(claim: Claim, seen: Observation) -> Precondition | None:
    """Return how the claimed ε compares with the observed one, else with that of the claim's own parameters."""
    delta, copies = claim.delta or 0.0, count_copies(seen)
    basis = GuaranteeBasis(claim, seen, copies)
    if not seen.library and (claim.epsilon is None or not delta or basis.mechanism(str(claim.adjacency)) is None):
        return None
    if basis.opacus and not delta:
        text = "the claim is pure (delta 0), but Gaussian noise was observed, which never is"
        return Precondition("dp_claim", "failed", text)
    claimed = claimed_epsilon(claim)
    try:
        recomputed = basis.guarantee(delta).epsilon
    except MeasurementError as exc:
        if not seen.library:
            raise
        text = f"the claim of epsilon {claimed:.4g} at delta {claim.delta:g} is not what was observed: {exc}"
        return Precondition("dp_claim", "failed", text)
    sentence, detail = f"the recipe claims epsilon {claimed:.4g}", {"claimed": claimed, "recomputed": recomputed}
    if not accounting.understates(claimed, recomputed):
        text = f"{sentence} at delta {claim.delta:g}; recomputed from an observed rerun: {recomputed:.4g}"
        return None if seen.problem else Precondition("dp_claim", "passed", text, {**detail, "delta": delta})
    if not seen.library:
        text = f"{sentence}, but its own parameters give {recomputed:.4g}"
        return Precondition("dp_claim", "failed", text, detail)
    cost = f"costs {recomputed:.4g}" if math.isfinite(recomputed) else "gives none"
    several = f": one {claim.unit} has {copies} entries in what batches are drawn from" if copies > 1 else ""
    text = f"{sentence}, but what was observed {cost}{several}"
    return Precondition("dp_claim", "failed", text, {**detail, "delta": delta})


def count_copies(seen: Observation) -> int:
    """Return how many entries a record has, at least, in the data from which batches are drawn."""
    return max(1, math.ceil(max(seen.populations, default=0) / max(1, seen.records)))


# What the measurements of one run share: the observed rerun, its basis, and notes for the report.


def find_basis(run: Run) -> GuaranteeBasis:
    """Return what the guarantee rests on; the first call in a run observes the recipe and notes contradictions.

    ``MeasurementError``: there is no claim, or it could not be observed.
    """
    claim = run.subject.recipe.dp
    if claim is None:
        raise MeasurementError("the recipe states no differential-privacy claim")
    seen = run.compute(observe_rerun)
    run.compute(note_contradictions)
    if seen.problem:
        raise MeasurementError(f"the claim could not be observed: {seen.problem}; that it is declared counts nowhere")
    group, people = max(map(len, run.subject.data.units)), len(run.subject.data.units)
    # that batches draw people and not records is seen, or not so
    group = 1 if claim.unit != "record" and 0 < max(seen.populations, default=0) <= people else group
    return GuaranteeBasis(claim, seen, group * count_copies(seen))


def observe_rerun(run: Run) -> Observation:
    """Return what a watched rerun of the recipe did; from the ledger, if it was watched before."""
    from privgate.claims.observe import read_or_observe

    run.fleet.activity = "observing the differential privacy of a rerun"
    return read_or_observe(run.subject, run.fleet)


def note_contradictions(run: Run) -> Noted:
    """Return the contradictions between the claim and the observed rerun, for the verdict."""
    claim, seen = run.subject.recipe.dp, run.compute(observe_rerun)
    note_claim(run, observation=seen)
    return Noted(tuple(list_contradictions(claim, seen, run.subject.data.n)) if claim else ())


def make_bound(
    request: Request, value: float, unit_name: str, words: Iterable[str], behind: BehindClaim
) -> Measurement:
    """Return a bound that follows from the guarantee as a measurement; ``words`` are its assumptions."""
    return Measurement(request, value, value, value, unit_name, kind="bound", assumptions=tuple(words), behind=behind)


def note_claim(run: Run, **facts: Any) -> None:
    """Note for the report what is known of the claim now; without ``facts``, that it was looked at."""
    run.notes["claims"] = run.notes.get("claims", ClaimsPart()).model_copy(update=facts)


# The measurements: ε at a δ, and the accuracy that no attack exceeds, with the report's table.


def measure_epsilon(run: Run, request: Request) -> Measurement:
    """Return ε of the observed guarantee at the δ that the rule states."""
    basis = find_basis(run)
    guarantee = basis.guarantee(float(request.option("delta")), request.option("adjacency"))
    seen, delta = basis.observation, 0.0 if basis.pure else guarantee.delta
    _note_bounds(run, guarantee, str(request.option("adjacency") or basis.claim.adjacency), 0.5)
    behind = _describe_basis(basis).model_copy(update={"delta": delta, "accountant": guarantee.accountant})
    words = (*guarantee.assumptions, *_list_unseen(run, basis))
    bound = make_bound(request, guarantee.epsilon, "nats", words, behind)
    # where no theorem covers the sampling, ε is an upper limit: the true one may be 0
    unamplified = seen.sample_rate < 1 and seen.sampling != "poisson"
    return replace(bound, low=0.0) if unamplified and math.isfinite(guarantee.epsilon) else bound


def measure_attack_accuracy(run: Run, request: Request) -> Measurement:
    """Return the accuracy that no attack exceeds under the observed guarantee."""
    basis = find_basis(run)
    prior, adjacency = float(request.option("prior")), str(basis.claim.adjacency)
    guarantee = basis.guarantee(basis.own_delta)
    words = [f"the adversary's prior probability of membership is {prior:g}", *guarantee.assumptions]
    accuracy = 1.0
    if guarantee.curve is not None:
        accuracy = guarantee.curve.accuracy(prior)
        words.append(INCLUSION[DRAWN[adjacency]])
    _note_bounds(run, guarantee, adjacency, prior)
    words += _list_unseen(run, basis)
    return make_bound(request, accuracy, "fraction", words, _describe_basis(basis))


def _list_unseen(run: Run, basis: GuaranteeBasis) -> tuple[str, ...]:
    """Return what of the training the guarantee counts, and what it takes for granted of the rest."""
    counted = "optimizer steps" if basis.opacus else "releases of the budget accountant"
    # Opacus computes rate and divisor from the number of records, which an add/remove guarantee must not reveal
    follows = basis.opacus and basis.claim.adjacency == "add_remove"
    size = " nor that its rate and divisor stay the same with one record more or less" if follows else ""
    scope = f"{counted} only: not seen is what else the training does with its records{size}"
    if run.subject.model is None:
        return (scope,)
    close = "as close to reruns as these are to each other, but so may be a model that was trained without noise"
    return (scope, f"the registered model was trained by this recipe: it is {close}")


def _describe_basis(basis: GuaranteeBasis) -> BehindClaim:
    # all fields are given, because documents leave out those that are not
    claimed, library = basis.claim.epsilon, basis.observation.library
    return BehindClaim(claimed_epsilon=claimed, library=library, group=basis.group)


def _note_bounds(run: Run, guarantee: Guarantee, adjacency: str, prior: float) -> None:
    noted, curve = run.notes["claims"].bounds, guarantee.curve
    if curve is None or any(row.prior == prior for row in noted):
        return
    own_curve = None if isinstance(curve, EpsilonDelta) else curve
    inclusion = DRAWN[adjacency]
    epsilon, delta = guarantee.epsilon, guarantee.delta
    rows = list_bounds(epsilon, delta, prior, adjacency=adjacency, inclusion=inclusion, fprs=FPRS, curve=own_curve)
    names = {row.name for row in noted}  # bounds for any prior are already there at a second prior
    note_claim(run, bounds=(*noted, *(row for row in rows if row.prior is not None or row.name not in names)))
