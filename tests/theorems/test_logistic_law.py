"""Logistic regression against its own real refits: no bound below a real change, no error that is not one."""

import collections

import numpy as np
import pytest
from nasty_logistic import subject_of, truth

from privgate.statistics.leakage import largest_change
from privgate.theorems.closed_form import Declined, RefitRequest
from privgate.theorems.newton import LOGISTIC, NEWTON
from privgate.theorems.theorem import Units


def verify(seed, count, most):
    """Check bounds and errors of at most ``most`` people of one subject; count them and what is refused."""
    subject = subject_of(np.random.default_rng(seed))
    everyone = np.arange(len(subject.data.units))
    some = np.sort(np.random.default_rng(seed).permutation(everyone)[:most])
    refused, answers, solver = NEWTON.refusal(subject), answer(subject, everyone), subject.recipe.training.solver
    count[f"{'refused' if refused else 'accepted'} {solver}"] += 1
    if refused and answers is None:
        return
    real = truth(subject, some)
    if not refused:
        limits = NEWTON.certify(Units(subject, everyone, None))
        upper, lower, sure = limits.upper[some], limits.lower[some], np.isfinite(real.change)
        assert (upper >= real.change).all(), seed
        assert (lower[sure] <= np.maximum(real.ceiling, real.change)[sure] + 1e-12).all(), seed
        count["newton"] += len(some)
        count["infinite newton"] += int((np.isinf(upper) & sure).sum())
    if answers is not None:
        beyond = excess(answers, some, real.own)
        assert (beyond <= 1e-8).all(), (seed, float(beyond.max()))
        count["engine"] += len(beyond)
        count["handed on"] += len(everyone) - len(answers.units)


def answer(subject, units):
    try:
        return None if LOGISTIC.supports(subject) else LOGISTIC.answers(RefitRequest(subject, units, (None,), None))[0]
    except Declined:
        return None


def excess(answers, some, own):
    """By how much the change at people's own records is off, beyond the stated error, where it has its digits."""
    change, whole = np.zeros(len(answers.units)), answers.status != "undefined"
    np.maximum.at(change, answers.row_unit, largest_change(answers.log_with[0], answers.log_without[0]))
    first = np.minimum(answers.log_with[0], answers.log_without[0]).min(axis=1)
    np.logical_and.at(whole, answers.row_unit, first > -18)  # 1 - p keeps them; the chain refits the others
    known = np.isin(some, answers.units[whole])
    at = np.searchsorted(answers.units, some[known])
    return np.abs(change[at] - own[known]) - answers.error[at]


@pytest.mark.slow
@pytest.mark.timeout(3000)
@pytest.mark.parametrize(("seeds", "most", "least"), [(range(30), 4, 30), (range(1000, 1500), 1000, 2000)])
def test_no_violation_on_nasty_subjects(seeds, most, least):
    count = collections.Counter()
    for seed in seeds:
        verify(seed, count, most)
    print(dict(sorted(count.items())))
    assert count["newton"] > least
    assert count["engine"] > least
