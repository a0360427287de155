"""Measurements about differential privacy: the guarantee recomputed from what a rerun did, and what follows from it."""

import math
from typing import Any

import numpy as np

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Observation, Precondition, Request
from privgate.privacy_claims import accountant
from privgate.privacy_claims.accountant import Guarantee
from privgate.privacy_claims.contradictions import contradictions
from privgate.privacy_claims.standing import Standing
from privgate.privacy_claims.table import bounds_table
from privgate.privacy_claims.tradeoff import EpsilonDelta, Tradeoff
from privgate.run.run import Bench
from privgate.subject.claim import Claim

#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)
#: what sampling must be for the recomputed ε to be the mechanism's own and not only a bound on it
EXACT = ("poisson", "")


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
        group = seen.rows or group  # counted in what batches are drawn from, whatever the claim speaks of
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
    """Return what a rerun was seen to do, and say in the preconditions what contradicts the claim."""
    if "dp_observation" in bench.detail:
        return Observation.from_payload(bench.detail["dp_observation"])
    from privgate.privacy_claims.observe import remembered

    bench.fleet.activity = "observing the differential privacy of a rerun"
    seen = remembered(bench.subject, bench.fleet)
    bench.detail["dp_observation"] = seen.payload()
    bench.detail["dp_claim"] = claim.payload()
    for precondition in contradictions(claim, seen, bench.subject.data.n):
        note(bench, precondition)
    return seen


def note(bench: Bench, precondition: Precondition) -> None:
    """Add a precondition once."""
    if precondition not in bench.preconditions:
        bench.preconditions.append(precondition)


def epsilon(bench: Bench, request: Request) -> Measurement:
    """Return the epsilon that the observed guarantee has at the delta asked for."""
    rests = standing(bench, request)
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
        assumptions=(*found.assumptions, counted(rests), *origin(bench)),
        detail={
            **_rests(rests),
            "delta": held_delta(rests, found),
            "rdp_epsilon": found.rdp_epsilon,
            "accountant": found.accountant,
        },
    )


def held_delta(rests: Standing, found: Guarantee) -> float:
    """Return the δ that the guarantee really has: 0 for pure ones, at whatever δ they were asked."""
    return 0.0 if rests.pure else found.delta


def attack_accuracy(bench: Bench, request: Request) -> Measurement:
    """Return the accuracy that no attack exceeds under the observed guarantee."""
    rests = standing(bench, request)
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
        assumptions=(
            f"the adversary's prior probability of membership is {prior:g}",
            *words,
            counted(rests),
            *origin(bench),
        ),
        detail=_rests(rests),
    )


def counted(rests: Standing) -> str:
    """Return what the guarantee counts, and what stands for the rest of the training."""
    seen = rests.observation
    if seen is None:
        return "nothing of the training was observed"
    if seen.replays:
        return (
            f"training reaches the records through its noised steps alone: {seen.replays} reruns on other records, "
            "with the same noised gradients, returned the same object; this finds mistakes and is no proof"
        )
    what = "optimizer steps" if seen.library == "opacus" else "releases of the budget accountant"
    return f"{what} only: what else the training does with its records was not compared"


def origin(bench: Bench) -> tuple[str, ...]:
    """Return that the registered model is taken for one of the recipe's, which no rerun can show; empty without one."""
    if bench.subject.model is None:
        return ()
    told = "as close to reruns as these are to each other, but so may be a model that was trained without noise"
    return (f"the registered model was trained by this recipe: it is {told}",)


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
        told(bench, "Entries of one person", f"{seen.rows} at most" if seen.rows else "not counted")
    if seen is not None and not seen.broken:
        told(bench, "What is counted", counted(rests))
    if seen is not None and seen.broken:
        told(bench, "Broken", seen.broken)
    told(bench, "Recomputed epsilon", f"{found.epsilon:.4g} at delta {held_delta(rests, found):g} ({found.accountant})")
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
        "replays": 0 if seen is None else seen.replays,
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
