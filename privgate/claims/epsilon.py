"""The measurements of a guarantee: ε at a δ, and the accuracy that no attack exceeds, with the report's table."""

import math
from dataclasses import replace

from privgate.claims.accounting import Guarantee
from privgate.claims.bounds import INCLUSION, EpsilonDelta, list_bounds
from privgate.claims.guarantee_basis import GuaranteeBasis, find_basis, list_noted_bounds, make_bound
from privgate.evidence import BehindClaim, Measurement, Request
from privgate.run.run import Run

#: false-positive rates of the report's table
FPRS = (0.001, 0.01, 0.1)


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
        words.append(INCLUSION[_infer_inclusion(adjacency)])
    _note_bounds(run, guarantee, adjacency, prior)
    words += _list_unseen(run, basis)
    return make_bound(request, accuracy, "fraction", words, _describe_basis(basis))


def _infer_inclusion(adjacency: str) -> str:
    return "independent" if adjacency == "add_remove" else "fixed_size"


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
    noted, curve = run.compute(list_noted_bounds), guarantee.curve
    if curve is None or any(row.prior == prior for row in noted):
        return
    own_curve = None if isinstance(curve, EpsilonDelta) else curve
    inclusion = _infer_inclusion(adjacency)
    epsilon, delta = guarantee.epsilon, guarantee.delta
    rows = list_bounds(epsilon, delta, prior, adjacency=adjacency, inclusion=inclusion, fprs=FPRS, curve=own_curve)
    names = {row.name for row in noted}  # bounds for any prior are already there at a second prior
    noted += [row for row in rows if row.prior is not None or row.name not in names]
