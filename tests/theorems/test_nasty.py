"""The law of limits: no real change of real models above ``upper``, no stated lower limit above a real change."""

import numpy as np
import pytest
from nasty import NAMES, make_nasty

from privgate.theorems import catalogue
from privgate.theorems.theorem import Units

#: nats; what summing changes of log-probabilities in another order does
ROUNDING = 1e-9
#: units of a subject that are trained again: the largest bounds and random ones
TRAINED = 8


def compare(name, seed):
    """Return how many people were compared, and whether nobody was limited."""
    rng = np.random.default_rng([seed, sum(name.encode())])
    instance, theorem = make_nasty(name, rng), catalogue.THEOREMS[name]
    subject = instance.subject
    if theorem.refusal(subject):
        return 0, True
    found, domain = theorem.certify(Units(subject, np.arange(len(subject.data.units)), None)), subject.data.domain
    order = np.argsort(-np.where(np.isinf(found.upper), -1.0, found.upper), kind="stable")
    some = np.unique(np.concatenate([order[: TRAINED // 2], rng.permutation(len(order))[: TRAINED // 2]]))
    for u in some[np.isfinite(found.upper[some])]:
        real = instance.changes([u])[0]
        if domain is not None and domain.box is not None and name != "bernoulli_nb":
            real = max(real, instance.climb(u, rng))
        assert real <= found.upper[u] + ROUNDING, (name, seed, u)
        assert not instance.complete or found.lower[u] <= real + ROUNDING, (name, seed, u)
    return len(some), not np.isfinite(found.upper).any()


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", NAMES)
def test_no_real_change_is_above_a_limit_on_nasty_subjects(name):
    assert sum(compare(name, seed)[0] for seed in range(12)) > 20


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", NAMES)
def test_five_hundred_nasty_subjects_of_each_family(name):
    results = [compare(name, seed) for seed in range(1000, 1650)]
    units, spoke = sum(n for n, _ in results), sum(not refused for _, refused in results)
    print(f"{name}: {len(results)} nasty subjects, {spoke} bounded, {units} units, no violation")
    assert units >= 1500
