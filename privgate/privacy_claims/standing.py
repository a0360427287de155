"""What the guarantee of one subject rests on, the ε that follows, and what a rerun contradicts."""

import dataclasses
import math
from collections.abc import Iterator
from dataclasses import dataclass

from privgate.errors import MeasurementError, UsageError
from privgate.evidence import Observation, Precondition
from privgate.privacy_claims import accountant, tradeoff
from privgate.privacy_claims.accountant import Guarantee, Mechanism
from privgate.privacy_claims.tradeoff import EpsilonDelta
from privgate.subject.claim import Claim

# What the guarantee of one subject rests on, and the ε that follows at any δ.


@dataclass(frozen=True)
class GuaranteeBasis:
    """What the guarantee of one subject rests on.

    Parameters
    ----------
    claim : Claim
    observation : Observation or None
        None where the policy lets a claim count that nobody observed.
    group : int
        Largest number of records of one person that the guarantee is converted to.
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
            return Mechanism(
                seen.noise_multiplier,
                seen.sample_rate,
                seen.steps,
                seen.sampling,
                adjacency,
                seen.records,
                passes=seen.passes,
                scales=seen.scales if adjacency == "add_remove" else (),
            )
        if claim.noise_multiplier is None or claim.sample_rate is None or claim.steps is None:
            return None
        return Mechanism(
            claim.noise_multiplier, claim.sample_rate, claim.steps, claim.sampling or "unknown", adjacency, self.records
        )

    def guarantee(self, delta: float, adjacency: str | None = None) -> Guarantee:
        """Return the guarantee at ``delta`` for one unit of the data, converted to groups where people have several.

        Raises
        ------
        MeasurementError
            No theorem gives one; by Opacus none is given between data of other sizes.
        """
        wanted = adjacency or str(self.claim.adjacency)
        seen = self.observation
        if wanted == "add_remove" and seen is not None and seen.by_number and not seen.broken:
            raise MeasurementError(
                f"{seen.by_number}; whoever joins or leaves may show beside the noise; declare that number public with "
                'Claim(adjacency="replace_one")'
            )
        if self.group == 1:
            return self._for_records(delta, wanted)
        exact = self._for_all_records(delta, wanted)
        if exact is not None:
            return exact
        # k records cost k ε at a larger δ: look for the record δ at which the group's is small enough
        found = []
        for shrink in (0, *range(1, 13)):
            single = self._for_records(delta * 10.0**-shrink, wanted)
            epsilon, converted = accountant.for_groups(single.epsilon, single.delta, self.group)
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
        if delta <= 0 or (self.observation is not None and self.observation.broken):
            return None
        mechanism = self.mechanism(adjacency)
        if mechanism is None or mechanism.scales:
            return None
        try:
            found = accountant.recompute(dataclasses.replace(mechanism, copies=self.group), delta)
        except (MeasurementError, UsageError):
            return None
        words = (*found.assumptions, f"for the {self.group} records that one person has at most, each drawn on its own")
        return dataclasses.replace(found, assumptions=words)

    def _for_records(self, delta: float, adjacency: str) -> Guarantee:
        broken = "" if self.observation is None else self.observation.broken
        if broken:
            return Guarantee(math.inf, delta, None, "none", assumptions=(broken,))
        try:
            mechanism = self.mechanism(adjacency)
            if mechanism is not None:
                return accountant.recompute(mechanism, delta)
        except UsageError as exc:  # numbers that describe no mechanism: here a finding, not a wrong call
            raise MeasurementError(f"the guarantee cannot be recomputed: {exc}") from exc
        epsilon, own = self._stated()
        if own > delta:
            raise MeasurementError(
                f"the guarantee holds at delta {own:g} only, and nothing follows from it at the smaller {delta:g}"
            )
        words = {
            "add_remove": "neighbors differ in one record added or removed",
            "replace_one": "neighbors differ in one record replaced by another",
        }
        if adjacency == self.claim.adjacency:
            pass
        elif adjacency == "replace_one":
            epsilon, own = tradeoff.effective_guarantee(epsilon, own, adjacency="add_remove", inclusion="fixed_size")
            if own > delta:
                raise MeasurementError(f"replacing a record is two steps, whose delta {own:g} is above {delta:g}")
        else:
            raise MeasurementError(
                "the guarantee compares data sets with one record replaced; it says nothing about one added or removed"
            )
        source = "budget accountant" if self.observation is not None else "declared"
        return Guarantee(epsilon, own, EpsilonDelta(epsilon, own), source, assumptions=(words[adjacency],))

    def _stated(self) -> tuple[float, float]:
        """Return (ε, δ) that a budget accountant recorded, or that the claim states."""
        if self.observation is not None:
            epsilon, delta = accountant.pure_composition(list(self.observation.spends))
            return max(epsilon, self.observation.entered), delta
        if self.claim.epsilon is None or self.claim.delta is None:
            raise MeasurementError("the claim states no epsilon, and its parameters are not those of noised steps")
        return self.claim.epsilon, self.claim.delta


# A claim of differential privacy against what a rerun was seen to do.


def contradictions(claim: Claim, seen: Observation, records: int) -> Iterator[Precondition]:
    """Yield what is wrong or doubtful about a claim, given what was observed."""
    for doubt in claim.doubts(records):
        yield Precondition("dp_doubt", "warned", f"the differential-privacy claim is weaker than it reads: {doubt}")
    for hazard in seen.hazards:
        yield Precondition("dp_hazard", "failed", f"{hazard}; the guarantee does not hold")
    yield from _leftovers(seen)
    if seen.problem:
        yield from _own_parameters(claim, records)
        return
    yield from _other_parameters(claim, seen)
    stated = claimed_epsilon(claim, records)
    if seen.library == "opacus" and seen.sample_rate < 1 and seen.sampling != "poisson":
        other = "drawn from a guessable seed, drawn and left out, or not recognized"
        words = "shuffled" if seen.sampling == "shuffled" else other
        outcome = "failed" if claim.sampling == "poisson" else "warned"
        yield Precondition(
            "dp_sampling",
            outcome,
            f"batches were {words}, but the claim is accounted as {claim.sampling or 'unstated'} sampling: "
            "amplification by sampling is proved for Poisson batches, not for these",
        )
    try:
        found = (
            GuaranteeBasis(claim, seen, _times(claim, seen), records).guarantee(claim.delta or 0.0)
            if _countable(claim, seen)
            else None
        )
    except MeasurementError as exc:
        text = f"the claim of epsilon {stated:.4g} at delta {claim.delta:g} is not what was observed: {exc}"
        yield Precondition("dp_claim", "failed", text)
        return
    if found is None:
        yield Precondition(
            "dp_claim", "failed", "the claim is pure (delta 0), but Gaussian noise was observed, which never is"
        )
    elif accountant.understates(stated, found.epsilon):
        if math.isinf(found.epsilon):
            why = seen.broken or "no finite epsilon follows from what was observed"
            message = f"the recipe claims epsilon {stated:.4g}, but the mechanism gives none: {why}"
        else:
            message = f"the recipe claims epsilon {stated:.4g}, but the mechanism gives {found.epsilon:.4g}"
            message += _more(claim, seen)
        yield Precondition(
            "dp_claim", "failed", message, {"claimed": stated, "recomputed": found.epsilon, "delta": claim.delta}
        )
    else:
        yield Precondition(
            "dp_claim",
            "passed",
            f"the recipe claims epsilon {stated:.4g} at delta {claim.delta:g}; recomputed from {seen.runs} observed "
            f"reruns: {found.epsilon:.4g}",
            {"claimed": stated, "recomputed": found.epsilon, "delta": claim.delta},
        )


def _more(claim: Claim, seen: Observation) -> str:
    """Return why the mechanism gives more than its steps or its budget, in words."""
    if seen.entered:
        return ": what one person changes enters mechanisms that spend as much together"
    times = _times(claim, seen)
    scale = ": the scale of the noise follows how many records there are" if seen.scales else ""
    return f": one {claim.unit} has {times} entries in what batches are drawn from" * (times > 1) + scale


def _times(claim: Claim, seen: Observation) -> int:
    """Return how often the unit that a claim speaks of is in what batches are drawn from."""
    return max(1, seen.copies if claim.unit == "record" else seen.rows)


def _leftovers(seen: Observation) -> Iterator[Precondition]:
    """Yield that gradients of single records hang on a network, whoever gets its file gets them."""
    if not seen.leftovers:
        return
    stored = seen.leftovers == "stored"
    text = (
        f"the network that {'is registered' if stored else 'training returns'} carries gradients of single records, "
        "without noise; call optimizer.zero_grad() after the last step, before it is saved"
    )
    yield Precondition("dp_leftovers", "failed" if stored else "warned", text)


def _own_parameters(claim: Claim, records: int) -> Iterator[Precondition]:
    """Yield the contradiction between a claim's ε and its own parameters, where nothing could be observed."""
    rests = GuaranteeBasis(claim, None, 1, records)
    if claim.epsilon is None or not claim.delta or rests.mechanism(str(claim.adjacency)) is None:
        return
    found = rests.guarantee(claim.delta).epsilon
    if accountant.understates(claim.epsilon, found):
        text = f"the recipe claims epsilon {claim.epsilon:.4g}, but its own parameters give {found:.4g}"
        yield Precondition("dp_claim", "failed", text, {"claimed": claim.epsilon, "recomputed": found})


def _other_parameters(claim: Claim, seen: Observation) -> Iterator[Precondition]:
    """Yield where the rerun used less protective parameters than the claim names; ε itself is judged apart."""
    if seen.library != "opacus":
        return
    worse = []
    for name, word, sign in (
        ("noise_multiplier", "noise multiplier", -1),
        ("sample_rate", "sample rate", 1),
        ("steps", "steps", 1),
        ("max_grad_norm", "clipping norm", 1),
    ):
        stated, was = getattr(claim, name), getattr(seen, name)
        if stated is not None and sign * (was - stated) > 0.01 * abs(stated):
            worse.append(f"{word} {was:.4g} instead of {stated:.4g}")
    if worse:
        text = f"the rerun used other parameters than the claim names: {', '.join(worse)}"
        yield Precondition("dp_parameters", "warned", text)


def _countable(claim: Claim, seen: Observation) -> bool:
    return seen.library != "opacus" or bool(claim.delta) or bool(seen.broken)


def claimed_epsilon(claim: Claim, records: int) -> float:
    """Return the claim's ε, from its parameters where it states none."""
    if claim.epsilon is not None:
        return claim.epsilon
    return GuaranteeBasis(claim, None, 1, records).guarantee(float(claim.delta or 0.0)).epsilon
