"""Measurements about differential privacy: the guarantee recomputed from what a rerun did, and what follows from it."""

import math
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import numpy as np

from privgate.claim import Claim
from privgate.dp import accountant, bounds
from privgate.dp.accountant import Guarantee, Mechanism
from privgate.dp.table import bounds_table
from privgate.dp.tradeoff import EpsilonDelta, Tradeoff
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import Measurement, Precondition, Request
from privgate.measure.bench import Bench
from privgate.retrain.observation import Observation

#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)
#: what sampling must be for the recomputed ε to be the mechanism's own and not only a bound on it
EXACT = ("poisson", "")


@dataclass(frozen=True)
class Standing:
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
                seen.noise_multiplier, seen.sample_rate, seen.steps, seen.sampling, adjacency, seen.records
            )
        if claim.noise_multiplier is None or claim.sample_rate is None or claim.steps is None:
            return None
        return Mechanism(
            claim.noise_multiplier, claim.sample_rate, claim.steps, claim.sampling or "unknown", adjacency, self.records
        )

    def guarantee(self, delta: float, adjacency: str | None = None) -> Guarantee:
        """Return the guarantee at ``delta`` for one unit of the data, converted to groups where people have several."""
        wanted = adjacency or str(self.claim.adjacency)
        if self.group == 1:
            return self._for_records(delta, wanted)
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
            epsilon, own = bounds.effective_guarantee(epsilon, own, adjacency="add_remove", inclusion="fixed_size")
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
            return accountant.pure_composition(list(self.observation.spends))
        if self.claim.epsilon is None or self.claim.delta is None:
            raise MeasurementError("the claim states no epsilon, and its parameters are not those of noised steps")
        return self.claim.epsilon, self.claim.delta


def standing(bench: Bench, request: Request) -> Standing:
    """Return what the guarantee rests on, observing the recipe once for all requests of a run.

    Raises
    ------
    MeasurementError
        There is no claim, or it cannot be observed and the policy does not accept declared ones.
    """
    stated = bench.subject.recipe.payload["dp"]
    if stated is None:
        raise MeasurementError(
            "the recipe states no differential-privacy claim; train with differential privacy and pass "
            "Recipe(..., dp=Claim(...))"
        )
    claim = Claim.from_payload(stated)
    groups = [len(rows) for rows in bench.subject.data.units]
    group = max(groups) if claim.unit == "record" else 1
    seen = observed(bench, claim)
    if not seen.problem:
        return Standing(claim, seen, group, bench.subject.data.n)
    if not request.option("accept_declared_claims"):
        raise MeasurementError(
            f"the claim could not be observed: {seen.problem}; it is only declared, which counts only where the policy "
            "says accept_declared_claims: true"
        )
    note(
        bench,
        Precondition(
            "dp_declared_only",
            "warned",
            f"the differential-privacy guarantee is DECLARED ONLY: {seen.problem}; the policy accepts that as it is",
        ),
    )
    return Standing(claim, None, group, bench.subject.data.n)


def observed(bench: Bench, claim: Claim) -> Observation:
    """Return what a rerun was seen to do, once a run, and say in the preconditions what contradicts the claim."""
    if "dp_observation" in bench.detail:
        return Observation.from_payload(bench.detail["dp_observation"])
    from privgate.retrain.observe import observe

    bench.fleet.activity = "observing the differential privacy of a rerun"
    seen = observe(bench.subject, bench.fleet.limits)
    bench.fleet.calls += seen.runs
    bench.detail["dp_observation"] = seen.payload()
    bench.detail["dp_claim"] = claim.payload()
    for precondition in contradictions(claim, seen, bench.subject.data.n):
        note(bench, precondition)
    return seen


def contradictions(claim: Claim, seen: Observation, records: int) -> Iterator[Precondition]:
    """Yield what is wrong or doubtful about a claim, given what was observed."""
    for doubt in claim.doubts(records):
        yield Precondition("dp_doubt", "warned", f"the differential-privacy claim is weaker than it reads: {doubt}")
    for hazard in seen.hazards:
        yield Precondition("dp_hazard", "failed", f"{hazard}; the guarantee does not hold")
    if seen.problem:
        return
    stated = claimed_epsilon(claim, records)
    if seen.library == "opacus" and seen.sample_rate < 1 and seen.sampling != "poisson":
        words = "shuffled" if seen.sampling == "shuffled" else "drawn in a way that could not be recognized"
        outcome = "failed" if claim.sampling == "poisson" else "warned"
        yield Precondition(
            "dp_sampling",
            outcome,
            f"batches were {words}, but the claim is accounted as {claim.sampling or 'unstated'} sampling: "
            "amplification by sampling is proved for Poisson batches, not for these",
        )
    try:
        found = Standing(claim, seen, 1, records).guarantee(claim.delta or 0.0) if _countable(claim, seen) else None
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


def _countable(claim: Claim, seen: Observation) -> bool:
    return seen.library != "opacus" or bool(claim.delta) or bool(seen.broken)


def claimed_epsilon(claim: Claim, records: int) -> float:
    """Return the claim's ε, from its parameters where it states none."""
    if claim.epsilon is not None:
        return claim.epsilon
    return Standing(claim, None, 1, records).guarantee(float(claim.delta or 0.0)).epsilon


def note(bench: Bench, precondition: Precondition) -> None:
    """Add a precondition once."""
    if precondition not in bench.preconditions:
        bench.preconditions.append(precondition)


def measure(bench: Bench, request: Request) -> Measurement:
    """Return ``dp_epsilon`` or ``dp_attack_accuracy_bound``."""
    rests = standing(bench, request)
    if request.metric == "dp_epsilon":
        return _epsilon(bench, rests, request)
    return _accuracy(bench, rests, request)


def _epsilon(bench: Bench, rests: Standing, request: Request) -> Measurement:
    delta = float(request.option("delta"))
    found = rests.guarantee(delta, request.option("adjacency"))
    seen = rests.observation
    exact = seen is None or seen.library != "opacus" or seen.sample_rate == 1 or seen.sampling in EXACT
    # without a theorem for the sampling, ε is only known not to exceed this
    low = found.epsilon if exact or math.isinf(found.epsilon) else 0.0
    _tell(bench, rests, found)
    _fill_table(bench, found, str(request.option("adjacency") or rests.claim.adjacency))
    return Measurement(
        request,
        value=found.epsilon,
        low=low,
        high=found.epsilon,
        unit="nats",
        kind="bound",
        assumptions=found.assumptions,
        detail={**_rests(rests), "rdp_epsilon": found.rdp_epsilon, "accountant": found.accountant},
    )


def _accuracy(bench: Bench, rests: Standing, request: Request) -> Measurement:
    prior = float(request.option("prior"))
    words, value = _best_accuracy(rests, prior)
    _fill_table(bench, rests.guarantee(report_delta(rests)), str(rests.claim.adjacency), prior)
    return Measurement(
        request,
        value=value,
        low=value,
        high=value,
        unit="fraction",
        kind="bound",
        assumptions=(f"the adversary's prior probability of membership is {prior:g}", *words),
        detail=_rests(rests),
    )


def _best_accuracy(rests: Standing, prior: float) -> tuple[tuple[str, ...], float]:
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


def report_delta(rests: Standing) -> float:
    """Return the δ at which a guarantee is quoted: the claim's own, or 0 for pure ones."""
    if rests.pure:
        return 0.0
    if rests.observation is not None and rests.observation.library == "diffprivlib":
        return accountant.pure_composition(list(rests.observation.spends))[1]
    return float(rests.claim.delta or 1e-5)


def told(bench: Bench, name: str, value: str) -> None:
    """Add one line to the report's facts about differential privacy; the same name says the newest."""
    facts: list[dict[str, str]] = bench.detail.setdefault("dp_facts", [])
    facts[:] = [f for f in facts if f["name"] != name] + [{"name": name, "value": value}]


def _tell(bench: Bench, rests: Standing, found: Guarantee) -> None:
    seen = rests.observation
    if seen is None:
        told(bench, "Observed", "nothing: DECLARED ONLY, accepted by the policy")
    elif seen.library == "diffprivlib":
        told(bench, "Observed", f"{len(seen.spends)} releases by diffprivlib's budget accountant, {seen.runs} reruns")
    else:
        told(bench, "Observed", f"{seen.steps} steps of Opacus in each of {seen.runs} reruns, batches {seen.sampling}")
        told(bench, "Noise multiplier seen", f"{seen.noise_multiplier:.4g}")
        told(bench, "Sample rate seen", f"{seen.sample_rate:.4g}")
        told(bench, "Clipping norm seen", f"{seen.max_grad_norm:.4g}")
    if seen is not None and seen.broken:
        told(bench, "Broken", seen.broken)
    told(bench, "Recomputed epsilon", f"{found.epsilon:.4g} at delta {found.delta:g} ({found.accountant})")
    if not math.isnan(found.rdp_epsilon):
        told(bench, "The same by RDP", f"{found.rdp_epsilon:.4g}")


def confront(detail: dict[str, Any]) -> None:
    """Put what attacks achieved beside the bounds that they should stay under, once everything is measured.

    Attacks count over the records of one model; a bound holds for one record over many trainings. Exceeding it makes
    the claim doubtful, and only an audit decides.
    """
    ran = [a for a in detail.get("attacks", ()) if not a.get("problem") and a.get("scope") == "model"]
    for row in detail.get("dp", ()):
        found = [_achieved(a, row) for a in ran]
        row["measured"] = max((f for f in found if not math.isnan(_figure(f))), key=_figure, default=None)


def _achieved(attack: dict[str, Any], row: dict[str, Any]) -> Any:
    """Return an attack's figure of the kind that a row bounds, or None."""
    name = str(row["name"])
    if "20" in name and "et al." in name:
        return None  # earlier bounds on the same quantities
    if name.startswith("accuracy") and row["prior"] == 0.5 and "pool" not in name:
        return attack.get("accuracy")
    if name.startswith("advantage"):
        return attack.get("advantage")
    if name.startswith("TPR at FPR"):
        return (attack.get("tpr_at_fpr") or {}).get(f"{row['fpr']:g}")
    return None


def _figure(value: Any) -> float:
    figure = value.get("value") if isinstance(value, dict) else value
    return math.nan if figure is None else float(figure)


def _rests(rests: Standing) -> dict[str, Any]:
    seen = rests.observation
    return {
        "declared_only": seen is None,
        "claimed_epsilon": rests.claim.epsilon,
        "library": "" if seen is None else seen.library,
        "reruns": 0 if seen is None else seen.runs,
        "group": rests.group,
    }


def _fill_table(bench: Bench, found: Guarantee, adjacency: str, prior: float = 0.5) -> None:
    """Put the table of bounds, and the curve's points for a chart, where the report looks for them."""
    rows: list[dict[str, Any]] = bench.detail.setdefault("dp", [])
    if found.curve is None or any(row["prior"] == prior for row in rows):
        return
    inclusion = "independent" if adjacency == "add_remove" else "fixed_size"
    own: Tradeoff | None = None if isinstance(found.curve, EpsilonDelta) else found.curve
    table = bounds_table(
        found.epsilon, found.delta, prior, adjacency=adjacency, inclusion=inclusion, fprs=FPRS, curve=own
    )
    rows += [row for row in table if row["prior"] is not None or not any(r["name"] == row["name"] for r in rows)]
    fprs = np.geomspace(1e-4, 1, 60)
    bench.detail.setdefault("dp_curve", {"fpr": fprs.tolist(), "tpr": [found.curve.tpr(f) for f in fprs]})
