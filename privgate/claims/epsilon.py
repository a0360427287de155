"""The measurements of a guarantee: ε at a δ, and the accuracy that no attack exceeds, with the report's table."""

import math
from typing import Any

import numpy as np

from privgate.claims import accounting
from privgate.claims.accounting import Guarantee
from privgate.claims.standing import GuaranteeBasis, findings, standing, without_noise
from privgate.claims.tradeoff import EpsilonDelta, Tradeoff, bounds_table
from privgate.evidence import BehindClaim, GuaranteeBound, Measurement, Request, TradeoffPoints
from privgate.run.run import Run

#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)
#: what sampling must be for the recomputed ε to be the mechanism's own and not only a bound on it
EXACT = ("poisson", "")


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
    what = "optimizer steps" if seen.library == "opacus" else "releases of the budget accountant"
    size = " nor that its rate and divisor stay the same with one record more or less" * _follows_size(rests)
    return f"{what} only: not seen is what else the training does with its records{size}"


def _follows_size(rests: GuaranteeBasis) -> bool:
    """Whether the number of records is kept secret, by which Opacus sets the rate of sampling and the divisor."""
    seen = rests.observation
    return seen is not None and seen.library == "opacus" and rests.claim.adjacency == "add_remove"


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
        return accounting.pure_composition(list(rests.observation.spends))[1]
    return float(rests.claim.delta or 1e-5)


def _tell(run: Run, rests: GuaranteeBasis, found: Guarantee) -> None:
    seen, noted = rests.observation, run.once(findings)
    if seen is None:
        noted.note("Observed", "nothing: DECLARED ONLY, accepted by the policy")
    elif seen.library == "diffprivlib":
        noted.note("Observed", f"{len(seen.spends)} releases by diffprivlib's budget accountant")
    else:
        noted.note("Observed", f"{seen.steps} steps of Opacus, batches {seen.sampling}")
        noted.note("Noise multiplier seen", f"{seen.noise_multiplier:.4g}")
        noted.note("Sample rate seen", f"{seen.sample_rate:.4g}")
        noted.note("Clipping norm seen", f"{seen.max_grad_norm:.4g}")
    noted.note("Entries of one person", f"{rests.group} at most")
    if seen is not None and seen.noiseless_steps:
        noted.note("Broken", without_noise(seen))
    elif seen is not None:
        noted.note("What is counted", counted(rests))
    noted.note("Recomputed epsilon", f"{found.epsilon:.4g} at delta {held_delta(rests, found):g} ({found.accountant})")


def _rests(rests: GuaranteeBasis) -> dict[str, Any]:
    seen = rests.observation
    return {
        "declared_only": seen is None,
        "claimed_epsilon": rests.claim.epsilon,
        "library": "" if seen is None else seen.library,
        "reruns": 0 if seen is None else seen.runs,
        "group": rests.group,
    }


def _fill_table(run: Run, found: Guarantee, adjacency: str, prior: float = 0.5) -> None:
    """Put the table of bounds, and the curve's points for a chart, where the report looks for them."""
    noted = run.once(findings)
    if found.curve is None or any(row.prior == prior for row in noted.bounds):
        return
    inclusion = "independent" if adjacency == "add_remove" else "fixed_size"
    own: Tradeoff | None = None if isinstance(found.curve, EpsilonDelta) else found.curve
    table = bounds_table(
        found.epsilon, found.delta, prior, adjacency=adjacency, inclusion=inclusion, fprs=FPRS, curve=own
    )
    known = {row.name for row in noted.bounds}
    noted.bounds += [GuaranteeBound(**row) for row in table if row["prior"] is not None or row["name"] not in known]
    if noted.curve is None:
        fprs = np.geomspace(1e-4, 1, 60)
        noted.curve = TradeoffPoints(fpr=tuple(fprs.tolist()), tpr=tuple(found.curve.tpr(f) for f in fprs))
