"""The law of bounds: no real change of real models above ``upper``, no stated lower bound above a real change."""

import numpy as np
import pytest
from nasty import NASTY, ascent, change, fitted

from privgate.theorems import catalogue

#: nats; what summing changes of log-probabilities in another order does
ROUNDING = 1e-9
#: units of a subject that are trained again: the largest bounds and random ones
TRAINED = 8


def violations(name, seed):
    """Return (units compared, sentence about a violation or empty, whether it was refused)."""
    rng = np.random.default_rng([seed, sum(name.encode())])
    instance = NASTY[name](rng)
    subject, certificate = instance.subject, catalogue.THEOREMS[name]
    if certificate.applies(subject):
        return 0, "", True
    found = certificate.bound(subject, np.arange(len(subject.data.units)), None)
    everyone = np.arange(subject.data.n)
    full = fitted(subject, everyone)
    order = np.argsort(-np.where(np.isinf(found.upper), -1.0, found.upper), kind="stable")
    some = np.unique(np.concatenate([order[: TRAINED // 2], rng.permutation(len(order))[: TRAINED // 2]]))
    refused = not np.isfinite(found.upper).any()
    for u in some:
        if np.isinf(found.upper[u]):
            continue
        left = np.setdiff1d(everyone, subject.data.units[u])
        without = fitted(subject, left)
        real = change(full, without, instance.queries, subject).max()
        if subject.data.domain is not None and subject.data.domain.box is not None and name != "bernoulli_nb":
            real = max(real, ascent(full, without, instance.queries, subject.data.domain, subject, rng))
        if not real <= found.upper[u] + ROUNDING:
            return len(some), f"{name} seed {seed} unit {u}: real {real!r} above upper {found.upper[u]!r}", refused
        if instance.complete and not found.lower[u] <= real + ROUNDING:
            return len(some), f"{name} seed {seed} unit {u}: lower {found.lower[u]!r} above real {real!r}", refused
    return len(some), "", refused


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", sorted(NASTY))
def test_no_real_change_is_above_a_bound_on_nasty_subjects(name):
    results = [violations(name, seed) for seed in range(12)]
    assert not [said for _, said, _ in results if said]
    assert sum(n for n, _, _ in results) > 20


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize("name", sorted(NASTY))
def test_five_hundred_nasty_subjects_of_each_family(name):
    results = [violations(name, seed) for seed in range(1000, 1650)]
    bad = [said for _, said, _ in results if said]
    spoke = sum(not refused for _, _, refused in results)
    units = sum(n for n, _, _ in results)
    print(f"{name}: {len(results)} nasty subjects, {spoke} bounded, {units} units, {len(bad)} violations")
    assert not bad
    assert len(results) >= 500
    assert units >= 1500
