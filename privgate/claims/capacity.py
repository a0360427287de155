"""How many people may be deleted before the model is trained again: without a prior (Sekhari et al.) or with (Thudi).

Sekhari et al. bound how far the model is from one trained without the people, whatever records were drawn. Thudi et
al. bound how likely none of the people was ever used; that needs a training set which is drawn from a pool.
"""

import math
from bisect import bisect_right
from collections.abc import Iterable
from typing import NamedTuple

from privgate.claims.bounds import check, check_delta, check_epsilon, check_prior
from privgate.claims.guarantee_basis import GuaranteeBasis, find_basis, make_bound
from privgate.errors import MeasurementError
from privgate.evidence import BehindClaim, Measurement, Request
from privgate.kernel.sample import upper_limit
from privgate.run.run import Run

#: values of ρ in the table that ``privgate dp bounds --deletions`` prints
RHOS = (0.5, 0.8, 0.9, 0.95, 0.99)
#: with δ > 0: probability, over the training's randomness, with which Thudi's statement may not hold
FAILURE = 0.001
#: δ at which the guarantee is tried for the largest capacity
DELTAS = tuple(10.0 ** (-k / 4) for k in range(16, 49))
#: largest ε, in nats, for which e^ε is a float; a larger one covers nobody
LARGEST_EPSILON = 700.0
#: probability that the limit on the drawing probability is too low
DRAWING_ERROR = 0.001


class Capacity(NamedTuple):
    """A number of people, perhaps infinite, the (ε, δ) from which it follows, and the probability that it is wrong."""

    people: float
    epsilon: float
    delta: float = 0.0
    failure: float = 0.0


def group_capacity(epsilon: float, delta: float, *, most_epsilon: float, most_delta: float) -> Capacity:
    """Return how many people may leave while the model stays (ε*, δ*)-close to one trained without them.

    ``epsilon`` and ``delta`` guarantee one person, added or removed; ``most_epsilon`` and ``most_delta`` are ε* and δ*.
    Sekhari et al. (2021); docs/mathematics.md, section 7.3a.

    >>> [group_capacity(e, d, most_epsilon=4.0, most_delta=1e4 * d).people for e, d in ((1.0, 0.0), (0.5, 1e-9))]
    [4, 8]
    """
    check_epsilon(epsilon), check_delta(delta), check_epsilon(most_epsilon), check_delta(most_delta)
    people = most_epsilon / epsilon if epsilon else math.inf
    if delta:  # m people have delta (e^(m epsilon) - 1) / (e^epsilon - 1)
        growth = most_delta / delta
        people = min(people, math.log1p(growth * math.expm1(epsilon)) / epsilon if epsilon else growth)
    people *= 1 + 1e-12  # rounding must not turn a whole number into the one below
    return Capacity(people if math.isinf(people) else math.floor(people), epsilon, delta)


def deletion_capacity(epsilon: float, prior: float, rho: float, *, delta: float = 0.0) -> Capacity:
    """Return how many people may ask for deletion while, with probability ``rho`` = ρ, none of them was used.

    Records enter independently, each with a probability of at most ``prior`` = p; ``epsilon`` is for add/remove. The
    number is ``floor(ln(1/ρ) / ln(1 + e^ε' p/(1-p)))`` with ε' = ε for δ = 0. With δ > 0 no statement holds for every
    model; ``FAILURE`` is the probability of a model for which it may not, and ``e^ε' = e^ε + m δ/(ρ · FAILURE)``. Thudi
    et al. (2022), Corollary 2, and docs/mathematics.md, section 7.3, which corrects their proof.

    >>> deletion_capacity(1.0, 0.001, 0.9).people, deletion_capacity(1.0, 0.001, 0.5).people
    (38, 255)
    """
    check_epsilon(epsilon), check_delta(delta)
    what = "rho, the probability of not having been used, must lie strictly between 0 and 1"
    odds, budget = check_prior(prior) / (1 - prior), -math.log(check(rho, what, holds=0 < rho < 1))

    def cost(m: int) -> float:
        growth = math.exp(epsilon) + m * delta / (rho * FAILURE)  # e^ε'
        # a value computed as exactly the budget must not fail by rounding in the last place
        return m * math.log1p(growth * odds) * (1 - 1e-13)

    most = 1
    while cost(most) <= budget:
        most *= 2
    return Capacity(bisect_right(range(most), budget, key=cost) - 1, epsilon, delta, FAILURE if delta else 0.0)


def count_deletions(run: Run, request: Request) -> Measurement:
    """Return how many people may be deleted: by Thudi et al. where the rule states a prior, else by Sekhari et al."""
    basis = find_basis(run)
    guarantees = _list_guarantees(basis)
    if request.option("prior") is None:
        goal = {f"most_{name}": float(request.option(name)) for name in ("epsilon", "delta")}
        capacity = _choose_largest(group_capacity(e, d, **goal) for e, d in guarantees)
        words = [
            "to a model trained without them: epsilon {most_epsilon:g} at delta {most_delta:g}".format(**goal),
            "who asks to be deleted does not depend on the model",
            f"epsilon {capacity.epsilon:.4g} at delta {capacity.delta:.3g} for one person, added or removed",
        ]
    else:
        rho, prior = float(request.option("rho")), float(request.option("prior"))
        _check_drawing(basis, run.subject.data.n, prior)
        capacity = _choose_largest(deletion_capacity(e, prior, rho, delta=d) for e, d in guarantees)
        probability = f"each with probability at most {prior:g}, as the policy states"
        words = [
            f"people enter the training set independently, {probability}",
            "the size of the training set is not published",
            "who asks to be deleted depends neither on membership nor on the model",
            f"epsilon {capacity.epsilon:.4g} at delta {capacity.delta:.3g}, add/remove",
        ]
        if capacity.failure:
            models = f"models of total probability {capacity.failure:g}"
            words.append(f"except for {models}: with delta above 0 no statement holds for all")
    behind = BehindClaim(epsilon=capacity.epsilon, failure=capacity.failure)
    return make_bound(request, float(capacity.people), "people", words, behind)


def _choose_largest(capacities: Iterable[Capacity]) -> Capacity:
    return max(capacities, key=lambda c: c.people, default=Capacity(0, math.inf))


def _list_guarantees(basis: GuaranteeBasis) -> list[tuple[float, float]]:
    """Return add/remove (ε, δ) that all hold for the model; an empty list means that no finite ε holds."""
    guarantees, problem = [], ""
    for delta in (0.0,) if basis.pure else DELTAS:
        try:
            guarantees.append(basis.guarantee(delta, "add_remove"))
        except MeasurementError as exc:
            problem = str(exc)
    if problem and not guarantees:
        raise MeasurementError(f'{problem}; declare Claim(adjacency="add_remove"), one person more or less')
    return [(g.epsilon, g.delta) for g in guarantees if g.epsilon <= LARGEST_EPSILON]


def _check_drawing(basis: GuaranteeBasis, records: int, prior: float) -> None:
    """Raise unless two reruns drew training sets of their own, with a probability of at most ``prior`` per person."""
    sizes = basis.observation.populations
    if len(set(sizes)) < 2:
        raise MeasurementError(
            "the recipe was not seen to draw its training set: whoever is in the data is used, whatever prior the "
            "policy states; state epsilon and delta instead of rho and prior"
        )
    limit = upper_limit(sum(sizes), records * len(sizes), alpha=DRAWING_ERROR)
    if not limit <= prior:
        raise MeasurementError(
            f"the recipe drew up to {max(sizes):,} of {records:,} records, which is a probability of up to "
            f"{limit:.3g}; the policy states at most {prior:g}"
        )
