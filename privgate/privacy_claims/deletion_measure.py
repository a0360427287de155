"""The measurement ``deletion_capacity``: how many people may be erased before the model is trained again."""

import math

from privgate.errors import MeasurementError
from privgate.evidence import BehindClaim, DeletionRow, Measurement, Request
from privgate.privacy_claims.accountant import Capacity, deletion_capacity
from privgate.privacy_claims.claim_measures import all_told as told
from privgate.privacy_claims.claim_measures import standing
from privgate.privacy_claims.standing import GuaranteeBasis
from privgate.run.run import Run

#: ρ and inclusion probabilities of the officer's table
RHOS = (0.5, 0.8, 0.9, 0.95, 0.99)
PRIORS = (0.001, 0.01, 0.1, 0.5)  # shares of members that an adversary may assume
#: with δ > 0: probability, over the training's randomness, with which the statement may not hold
FAILURE = 0.001
DELTAS = tuple(10.0**-k for k in range(5, 13))
#: e^ε beyond this is no number, and covers nobody
LARGEST = 700.0


def measure(run: Run, request: Request) -> Measurement:
    """Return the number of people; larger is better, and ``low`` is what counts."""
    rests = standing(run, request)
    if rests.claim.adjacency != "add_remove":
        raise MeasurementError(
            "deletion capacity needs an add/remove guarantee; replacing a record says nothing about removing one, "
            "and the size of the pool behind a fixed-size training set is not part of the recipe"
        )
    rho, prior = float(request.option("rho")), float(request.option("prior"))
    held = guarantees(rests)
    found = largest(held, rho, prior)
    noted = run.once(told)
    noted.deletion = tuple(_row(largest(held, r, prior)) for r in sorted({*RHOS, rho}))
    noted.deletion_by_prior = tuple(
        _row(largest(held, r, p)) for p in sorted({*PRIORS, prior}) for r in sorted({*RHOS, rho})
    )
    noted.fact("Deletion requests", found.sentence)
    words = [
        f"people enter the training set independently, each with probability at most {prior:g}",
        "the size of the training set is not published",
        "who asks to be deleted depends neither on membership nor on the model",
        f"epsilon {found.epsilon:.4g} at delta {found.delta:g}, add/remove",
    ]
    if found.failure:
        words.append(
            f"except for models of total probability {found.failure:g}: with delta above 0 no statement holds for all"
        )
    return Measurement(
        request,
        value=float(found.records),
        low=float(found.records),
        high=float(found.records),
        unit="people",
        kind="bound",
        assumptions=tuple(words),
        behind=BehindClaim(
            declared_only=rests.observation is None,
            sentence=found.sentence,
            epsilon=found.epsilon,
            failure=found.failure,
        ),
    )


def _row(found: Capacity) -> DeletionRow:
    return DeletionRow(
        rho=found.rho, prior=found.prior, capacity=found.records, failure=found.failure, sentence=found.sentence
    )


def guarantees(rests: GuaranteeBasis) -> list[tuple[float, float]]:
    """Return (ε, δ) pairs that all hold for the one mechanism; finite ones only."""
    found = []
    for delta in (0.0,) if rests.pure else DELTAS:
        try:
            held = rests.guarantee(delta)
        except MeasurementError:
            continue
        if held.epsilon <= LARGEST:
            found.append((held.epsilon, held.delta))
    return found


def largest(held: list[tuple[float, float]], rho: float, prior: float) -> Capacity:
    """Return the best capacity of several guarantees of the same mechanism; none covers nobody."""
    found = [deletion_capacity(e, prior, rho, delta=d, failure=FAILURE) for e, d in held]
    return max(found, key=lambda c: c.records, default=Capacity(0, rho, prior, math.inf))
