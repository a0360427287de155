"""A claim of differential privacy against what a rerun was seen to do."""

import math
from collections.abc import Iterator

from privgate.errors import MeasurementError
from privgate.evidence import Observation, Precondition
from privgate.privacy_claims import accountant
from privgate.privacy_claims.standing import GuaranteeBasis
from privgate.subject.claim import Claim


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
        if claim.adjacency == "add_remove" and seen.library == "opacus" and not seen.broken:
            yield Precondition(
                "dp_claim", "inconclusive", f"no epsilon holds where one record is added or removed: {exc}"
            )
            return
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
            if _times(claim, seen) > 1:
                message += f": one {claim.unit} has {_times(claim, seen)} entries in what batches are drawn from"
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
