"""How many people may be deleted before the model is trained again (Sekhari et al., 2021).

The model stays as close to one trained without them as the guarantee for so many people says, whoever was drawn.
"""

import math

from privgate.claims.bounds import check_delta, check_epsilon
from privgate.claims.guarantee_basis import GuaranteeBasis, find_basis, make_bound
from privgate.errors import MeasurementError
from privgate.evidence import BehindClaim, Measurement, Request
from privgate.run.run import Run

#: δ at which the guarantee is tried for the largest capacity
DELTAS = tuple(10.0 ** (-k / 4) for k in range(16, 49))
#: largest ε, in nats, for which e^ε is a float; a larger one covers nobody
LARGEST_EPSILON = 700.0


def group_capacity(epsilon: float, delta: float, *, most_epsilon: float, most_delta: float) -> float:
    """Return how many people may leave while the model stays (ε*, δ*)-close to one trained without them.

    ``epsilon`` and ``delta`` guarantee one person, added or removed; ``most_epsilon`` and ``most_delta`` are ε* and δ*.
    Infinite where one person shows nothing; docs/mathematics.md, section 7.3a.

    >>> group_capacity(1.0, 0.0, most_epsilon=4.0, most_delta=0.0)
    4
    >>> group_capacity(0.5, 1e-9, most_epsilon=4.0, most_delta=1e-5)
    8
    """
    check_epsilon(epsilon), check_delta(delta), check_epsilon(most_epsilon), check_delta(most_delta)
    people = most_epsilon / epsilon if epsilon else math.inf
    if delta:  # m people have delta (e^(m epsilon) - 1) / (e^epsilon - 1)
        growth = most_delta / delta
        people = min(people, math.log1p(growth * math.expm1(epsilon)) / epsilon if epsilon else growth)
    people *= 1 + 1e-12  # rounding must not turn a whole number into the one below
    return people if math.isinf(people) else math.floor(people)


def count_deletions(run: Run, request: Request) -> Measurement:
    """Return how many people may be deleted at the ε* and δ* that the rule states."""
    basis = find_basis(run, request)
    most_epsilon, most_delta = float(request.option("epsilon")), float(request.option("delta"))
    capacities = [
        (group_capacity(e, d, most_epsilon=most_epsilon, most_delta=most_delta), e, d)
        for e, d in _list_guarantees(basis)
    ]
    people, epsilon, delta = max(capacities, key=lambda c: c[0], default=(0, math.inf, 0.0))
    words = (
        f"to a model trained without them: epsilon {most_epsilon:g} at delta {most_delta:g}",
        "who asks to be deleted does not depend on the model",
        f"epsilon {epsilon:.4g} at delta {delta:.3g} for one person, added or removed",
    )
    behind = BehindClaim(declared_only=basis.observation is None, epsilon=epsilon, failure=0.0)
    return make_bound(request, float(people), "people", words, behind)


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
