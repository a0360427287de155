"""Logistic regression against its own real refits: no bound below a real change, no error that is not one."""

import collections

import numpy as np
import pytest
from nasty_logistic import subject_of, truth

from privgate.statistics.leakage import largest_change
from privgate.theorems import catalogue
from privgate.theorems.closed_form import Asked, Declined
from privgate.theorems.logistic import LOGISTIC as ENGINE

NAMES = ("newton",)


def verify(seed, count, most=1000):
    """Check bounds and errors of at most ``most`` people of one subject; count them and what is refused."""
    subject = subject_of(np.random.default_rng(seed))
    everyone, real = np.arange(len(subject.data.units)), None
    some = np.sort(np.random.default_rng(seed).permutation(everyone)[:most])
    made, solver = answered(subject, everyone), subject.recipe.training.solver
    for name in NAMES:
        certificate = catalogue.THEOREMS[name]
        if said := certificate.applies(subject):
            if name == "newton":
                count["refused: " + said.removeprefix("does not apply, because ")[:50]] += 1
                count[f"refused {solver}"] += 1
            continue
        if certificate.needs_retrained and (made is None or len(made.units) < len(everyone)):
            continue
        real = truth(subject, some) if real is None else real
        found = certificate.bound(subject, everyone, made if certificate.needs_retrained else None)
        upper, lower, sure = found.upper[some], found.lower[some], np.isfinite(real.change)
        assert (upper >= real.change).all(), (seed, name)
        assert (lower[sure] <= np.maximum(real.ceiling, real.change)[sure] + 1e-12).all(), (seed, name)
        count[name] += len(some)
        count[f"infinite {name}"] += int((np.isinf(upper) & sure).sum())
        count[f"accepted {solver}"] += name == "newton"
    if made is not None:
        real = truth(subject, some) if real is None else real
        beyond = excess(made, some, real.own)
        assert (beyond <= 1e-8).all(), (seed, float(beyond.max()))
        count["engine"] += len(beyond)
        count["handed on"] += len(everyone) - len(made.units)


def excess(made, some, own):
    """By how much the change at people's own records is off, beyond the stated error, where it has its digits."""
    pdtp, whole = np.zeros(len(made.units)), made.status != "undefined"
    np.maximum.at(pdtp, made.row_unit, largest_change(made.log_with[0], made.log_without[0]))
    first = np.minimum(made.log_with[0], made.log_without[0]).min(axis=1)
    np.logical_and.at(whole, made.row_unit, first > -18)  # 1 - p keeps them; the chain refits the others
    place = {int(u): k for k, u in enumerate(made.units)}
    chosen = [(place[int(u)], k) for k, u in enumerate(some) if int(u) in place and whole[place[int(u)]]]
    return np.array([abs(pdtp[i] - own[k]) - made.error[i] for i, k in chosen])


def answered(subject, units):
    if ENGINE.supports(subject):
        return None
    try:
        return ENGINE.answers(Asked(subject, units, (None,), None))[0]
    except Declined:
        return None


@pytest.mark.slow
def test_no_violation_on_nasty_subjects():
    count = collections.Counter()
    for seed in range(30):
        verify(seed, count, most=4)
    assert count["newton"] > 30
    assert count["engine"] > 30


@pytest.mark.slow
@pytest.mark.timeout(3000)
def test_no_violation_on_five_hundred_nasty_subjects():
    count = collections.Counter()
    for seed in range(1000, 1500):
        verify(seed, count)
    print(dict(sorted(count.items())))
    assert count["newton"] > 2000
    assert count["engine"] > 2000
