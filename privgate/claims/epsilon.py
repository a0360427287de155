"""The measurements of a guarantee: ε at a δ, and the accuracy that no attack exceeds, with the report's table."""

import math
from typing import Any

import numpy as np

from privgate.claims.accounting import Guarantee
from privgate.claims.bounds import INCLUSION, EpsilonDelta, list_bounds
from privgate.claims.standing import GuaranteeBasis, findings, standing, without_noise
from privgate.evidence import BehindClaim, Measurement, Request, TradeoffPoints
from privgate.run.run import Run

#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)


def epsilon(run: Run, request: Request) -> Measurement:
    """Return the epsilon that the observed guarantee has at the delta asked for."""
    rests = standing(run, request)
    held = rests.guarantee(float(request.option("delta")), request.option("adjacency"))
    seen, delta = rests.observation, 0.0 if rests.pure else held.delta
    _note(run, rests, f"{held.epsilon:.4g} at delta {delta:g} ({held.accountant})")
    _fill_table(run, held, str(request.option("adjacency") or rests.claim.adjacency), 0.5)
    # without a theorem for the sampling, ε is only known not to exceed this
    unamplified = seen is not None and seen.sample_rate < 1 and seen.sampling != "poisson"
    only_above = math.isfinite(held.epsilon) and (unamplified or held.accountant == "RDP")
    return Measurement(
        request,
        value=held.epsilon,
        low=0.0 if only_above else held.epsilon,
        high=held.epsilon,
        unit="nats",
        kind="bound",
        assumptions=(*held.assumptions, *_not_seen(run, rests)),
        behind=BehindClaim(**_behind(rests), delta=delta, accountant=held.accountant),
    )


def attack_accuracy(run: Run, request: Request) -> Measurement:
    """Return the accuracy that no attack exceeds under the observed guarantee."""
    rests = standing(run, request)
    prior, adjacency = float(request.option("prior")), str(rests.claim.adjacency)
    held = rests.guarantee(rests.own_delta)
    words = [f"the adversary's prior probability of membership is {prior:g}", *held.assumptions]
    value = 1.0
    if held.curve is not None:
        value = held.curve.accuracy(prior)
        words.append(INCLUSION[_inclusion(adjacency)])
    _fill_table(run, held, adjacency, prior)
    return Measurement(
        request,
        value=value,
        low=value,
        high=value,
        unit="fraction",
        kind="bound",
        assumptions=(*words, *_not_seen(run, rests)),
        behind=BehindClaim(**_behind(rests)),
    )


def _inclusion(adjacency: str) -> str:
    return "independent" if adjacency == "add_remove" else "fixed_size"


def _counted(rests: GuaranteeBasis) -> str:
    """Return what the guarantee counts, and what stands for the rest of the training."""
    if rests.observation is None:
        return "nothing of the training was observed"
    what = "optimizer steps" if rests.noised else "releases of the budget accountant"
    # the number of records is kept secret, by which Opacus sets the rate of sampling and the divisor
    size = ""
    if rests.noised and rests.claim.adjacency == "add_remove":
        size = " nor that its rate and divisor stay the same with one record more or less"
    return f"{what} only: not seen is what else the training does with its records{size}"


def _not_seen(run: Run, rests: GuaranteeBasis) -> tuple[str, ...]:
    """Return what is taken for granted; that the registered model is one of the recipe's, no rerun can show."""
    close = "as close to reruns as these are to each other, but so may be a model that was trained without noise"
    trained = (f"the registered model was trained by this recipe: it is {close}",)
    return (_counted(rests), *(() if run.subject.model is None else trained))


def _note(run: Run, rests: GuaranteeBasis, recomputed: str) -> None:
    """Put lines of facts where the report looks for them."""
    seen, facts = rests.observation, run.once(findings).facts
    if seen is None:
        facts["Observed"] = "nothing: DECLARED ONLY, accepted by the policy"
    elif rests.noised is None:
        facts["Observed"] = f"{len(seen.spends)} releases by diffprivlib's budget accountant"
    else:
        facts["Observed"] = f"{seen.steps} steps of Opacus, batches {seen.sampling}"
        facts["Noise multiplier seen"] = f"{seen.noise_multiplier:.4g}"
        facts["Sample rate seen"] = f"{seen.sample_rate:.4g}"
        facts["Clipping norm seen"] = f"{seen.max_grad_norm:.4g}"
    facts["Entries of one person"] = f"{rests.group} at most"
    if seen is not None and seen.noiseless_steps:
        facts["Broken"] = without_noise(seen)
    elif seen is not None:
        facts["What is counted"] = _counted(rests)
    facts["Recomputed epsilon"] = recomputed


def _behind(rests: GuaranteeBasis) -> dict[str, Any]:
    seen = rests.observation
    return {
        "declared_only": seen is None,
        "claimed_epsilon": rests.claim.epsilon,
        "library": "" if seen is None else seen.library,
        "reruns": 0 if seen is None else seen.runs,
        "group": rests.group,
    }


def _fill_table(run: Run, held: Guarantee, adjacency: str, prior: float) -> None:
    """Put the table of bounds, and the curve's points for a chart, where the report looks for them."""
    noted, curve = run.once(findings), held.curve
    if curve is None or any(row.prior == prior for row in noted.bounds):
        return
    table = list_bounds(
        held.epsilon,
        held.delta,
        prior,
        adjacency=adjacency,
        inclusion=_inclusion(adjacency),
        fprs=FPRS,
        curve=None if isinstance(curve, EpsilonDelta) else curve,
    )
    known = {row.name for row in noted.bounds}
    noted.bounds += [row for row in table if row.prior is not None or row.name not in known]
    if noted.curve is None:
        fprs = np.geomspace(1e-4, 1, 60)
        noted.curve = TradeoffPoints(fpr=tuple(fprs.tolist()), tpr=tuple(curve.tpr(f) for f in fprs))
