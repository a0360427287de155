"""How many people may be erased before the model is trained again: Sekhari et al. without a prior, Thudi et al. with.

Two statements are about two different things. Sekhari et al. compare the model with one that was trained without the
people: no word about who was drawn is needed. Thudi et al. say how likely the people were never used at all: that
needs a training set which is drawn from a pool.
"""

import math
from dataclasses import dataclass

from privgate.claims.bounds import check_delta, check_epsilon, check_prior, largest_epsilon
from privgate.claims.standing import GuaranteeBasis, findings, standing
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import BehindClaim, DeletionRow, Measurement, Request
from privgate.kernel.sample import upper_limit
from privgate.run.run import Run

#: ρ of the officer's table
RHOS = (0.5, 0.8, 0.9, 0.95, 0.99)
#: with δ > 0: probability, over the training's randomness, with which Thudi's statement may not hold
FAILURE = 0.001
#: points of the guarantee's curve at which a capacity is looked for
DELTAS = tuple(10.0 ** (-k / 4) for k in range(16, 49))
#: e^ε beyond this is no number, and covers nobody
LARGEST = 700.0
#: chance that a training set is called smaller than it is drawn
RARE = 0.001


@dataclass(frozen=True, slots=True)
class Capacity:
    """A number of deletion requests, perhaps infinite, the (ε, δ) it rests on, and how likely it may not hold."""

    people: float
    epsilon: float
    delta: float = 0.0
    failure: float = 0.0


def group_capacity(epsilon: float, delta: float, *, most_epsilon: float, most_delta: float) -> Capacity:
    """Return how many people may leave while the model stays (ε*, δ*)-close to one trained without them.

    ``epsilon`` (nats) and ``delta`` are the add/remove guarantee for one person, ``most_epsilon`` and ``most_delta`` ε*
    and δ*. Sekhari et al. (2021); docs/mathematics.md, section 7.3a.

    Examples
    --------
    >>> group_capacity(1.0, 0.0, most_epsilon=4.0, most_delta=0.0).people
    4
    >>> group_capacity(0.5, 1e-9, most_epsilon=4.0, most_delta=1e-5).people
    8
    """
    check_epsilon(epsilon), check_delta(delta), check_epsilon(most_epsilon), check_delta(most_delta)
    people = most_epsilon / epsilon if epsilon else math.inf
    if delta:  # m people have delta (e^(m epsilon) - 1) / (e^epsilon - 1)
        grown = most_delta / delta
        people = min(people, math.log1p(grown * math.expm1(epsilon)) / epsilon if epsilon else grown)
    people *= 1 + 1e-12
    return Capacity(people if math.isinf(people) else math.floor(people), epsilon, delta)


def deletion_capacity(epsilon: float, prior: float, rho: float, *, delta: float = 0.0) -> Capacity:
    """Return how many people may be deleted while none was used with probability ``rho``, independent inclusion.

    ``m = floor(ln(1/ρ) / ln(1 + e^ε' p/(1-p)))``; ε' = ε for δ = 0.

    Parameters
    ----------
    epsilon : float
        Add/remove ε, nats.
    prior : float in (0, 1)
        Largest inclusion probability among the people.
    rho : float in (0, 1)
    delta : float
        With δ > 0 no statement holds for every model; ``FAILURE`` is the probability of a model for which it may not.

    Notes
    -----
    For δ > 0 let B be the models at which some posterior odds exceed e^ε' times the prior odds. Each of the m factors
    has Pr[B | record out, the earlier ones out] ≤ e^-ε' δ/(1 - e^(ε-ε')); conditioning on the later ones being out
    divides by at most (1-p)^m ≥ ρ. The sum stays below ``FAILURE`` for ``e^ε' = e^ε + m δ/(ρ · FAILURE)``.

    Thudi et al. (2022), Corollary 2, proof corrected by the chain rule: given the model, records are not independent.

    Examples
    --------
    >>> deletion_capacity(1.0, 0.001, 0.9).people, deletion_capacity(1.0, 0.001, 0.5).people
    (38, 255)
    """
    check_epsilon(epsilon), check_delta(delta)
    odds, budget = check_prior(prior) / (1 - prior), -math.log(_checked_rho(rho))

    def cost(m: int) -> float:
        extra = m * delta / (rho * FAILURE)
        # a value computed as exactly the budget must not fail by rounding in the last place
        return m * math.log1p((math.exp(epsilon) + extra) * odds) * (1 - 1e-13)

    low, high = 0, 1
    while cost(high) <= budget:
        low, high = high, 2 * high
    while high - low > 1:
        middle = (low + high) // 2
        low, high = (middle, high) if cost(middle) <= budget else (low, middle)
    return Capacity(low, epsilon, delta, FAILURE if delta else 0.0)


def epsilon_for_capacity(people: int, rho: float, prior: float, *, delta: float = 0.0) -> float:
    """Return the largest ε at which ``people`` deletions are covered at ``rho``; inverse of ``deletion_capacity``.

    ``UsageError``: even ε = 0 does not cover them; then fewer of the pool must be used (a smaller ``prior``).
    """
    if people < 1:
        raise UsageError(f"the number of deletion requests must be at least 1, not {people}")
    odds, budget = check_prior(prior) / (1 - prior), -math.log(_checked_rho(rho))
    growth = math.expm1(budget / people) / odds - people * check_delta(delta) / (rho * FAILURE)
    return largest_epsilon(growth, f"{people} deletions at rho {rho:g} with inclusion probability {prior:g}")


def _checked_rho(rho: float) -> float:
    if not 0 < rho < 1:
        raise UsageError(f"rho, the probability of not having been used, must lie strictly between 0 and 1, not {rho}")
    return rho


def measure(run: Run, request: Request) -> Measurement:
    """Return the number of people; larger is better, and ``low`` is what counts."""
    rests = standing(run, request)
    held = _points(rests)
    if request.option("prior") is None:
        near, delta = float(request.option("epsilon")), float(request.option("delta"))
        most = _most([group_capacity(e, d, most_epsilon=near, most_delta=delta) for e, d in held])
        words = [
            f"to a model trained without them: epsilon {near:g} at delta {delta:g}",
            "who asks to be deleted does not depend on the model",
            f"epsilon {most.epsilon:.4g} at delta {most.delta:.3g} for one person, added or removed",
        ]
    else:
        rho, prior = float(request.option("rho")), float(request.option("prior"))
        _check_drawn(rests, prior)
        table = {r: _most([deletion_capacity(e, prior, r, delta=d) for e, d in held]) for r in sorted({*RHOS, rho})}
        run.once(findings).deletion = tuple(
            DeletionRow(rho=r, prior=prior, capacity=c.people, failure=c.failure) for r, c in table.items()
        )
        most = table[rho]
        likely = f"each with probability at most {prior:g}, as the policy states"
        words = [
            f"people enter the training set independently, {likely}",
            "the size of the training set is not published",
            "who asks to be deleted depends neither on membership nor on the model",
            f"epsilon {most.epsilon:.4g} at delta {most.delta:.3g}, add/remove",
        ]
        if most.failure:
            total = f"except for models of total probability {most.failure:g}"
            words.append(f"{total}: with delta above 0 no statement holds for all")
    people = float(most.people)
    return Measurement(
        request,
        value=people,
        low=people,
        high=people,
        unit="people",
        kind="bound",
        assumptions=tuple(words),
        behind=BehindClaim(declared_only=rests.observation is None, epsilon=most.epsilon, failure=most.failure),
    )


def _most(capacities: list[Capacity]) -> Capacity:
    return max(capacities, key=lambda c: c.people, default=Capacity(0, math.inf))


def _points(rests: GuaranteeBasis) -> list[tuple[float, float]]:
    """Return add/remove (ε, δ) that all hold for the one mechanism, finite ones only; none where there is no noise."""
    held, problem = [], ""
    for delta in (0.0,) if rests.pure else DELTAS:
        try:
            held.append(rests.guarantee(delta, "add_remove"))
        except MeasurementError as exc:
            problem = str(exc)
    if problem and not held:
        raise MeasurementError(f'{problem}; declare Claim(adjacency="add_remove"), one person more or less')
    return [(g.epsilon, g.delta) for g in held if g.epsilon <= LARGEST]


def _check_drawn(rests: GuaranteeBasis, prior: float) -> None:
    """Raise unless reruns drew their training sets anew, each person with at most this probability."""
    sizes = () if rests.observation is None else rests.observation.populations
    if len(set(sizes)) < 2:
        raise MeasurementError(
            "the recipe was not seen to draw its training set: whoever is in the data is used, whatever prior the "
            "policy states; state epsilon and delta instead of rho and prior"
        )
    most = upper_limit(sum(sizes), rests.records * len(sizes), alpha=RARE)
    if not most <= prior:
        raise MeasurementError(
            f"the recipe drew up to {max(sizes):,} of {rests.records:,} records, which is a probability of up to "
            f"{most:.3g}; the policy states at most {prior:g}"
        )
