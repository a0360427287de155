"""Copies with noise and windows over a series are found by distance, whatever else stands in a row."""

import numpy as np
import pandas as pd
import pytest
from sklearn import datasets

from privgate import TrainingData
from privgate.run import close_people
from privgate.run.data_checks import near_duplicates, several_records, who

RNG = np.random.default_rng(0)


def data(X, **about):
    return TrainingData(X, np.arange(len(X)) % 2, **about)


def jittered(people=150, copies=5, width=4, by=0.02):
    base = RNG.normal(size=(people, width))
    return np.repeat(base, copies, axis=0) + by * RNG.normal(size=(people * copies, width))


def panel(meters=40, length=30, lags=12):
    """Weekday and lags of a series of each meter."""
    rows, whose = [], []
    for m in range(meters):
        series = RNG.normal() + np.cumsum(RNG.normal(size=length + lags))
        rows += [[w % 7, *series[w : w + lags]] for w in range(length)]
        whose += [m] * length
    return np.array(rows), np.array(whose)


@pytest.mark.parametrize(("width", "by"), [(2, 0.005), (4, 0.0001), (4, 0.05), (10, 0.1), (10, 0.2)])
def test_jittered_copies_are_no_people(width, by):
    found = near_duplicates(data(jittered(width=width, by=by)))

    assert found.outcome == "inconclusive"
    assert "closer to another person's record than people do" in found.message


def test_copies_of_a_few_are_a_warning_and_so_are_copies_of_named_people():
    X = RNG.normal(size=(400, 4))
    some = near_duplicates(data(np.concatenate([X, X[:40] + 0.01 * RNG.normal(size=(40, 4))])))
    named = near_duplicates(data(jittered(), groups=np.arange(750)))

    assert some.outcome == named.outcome == "warned"


def test_copies_that_are_named_as_one_person_are_none():
    assert near_duplicates(data(jittered(), groups=np.repeat(np.arange(150), 5))).outcome == "passed"


PEOPLE = {
    "normal": RNG.normal(size=(500, 3)),
    "wide": RNG.normal(size=(900, 30)),
    "skewed": RNG.lognormal(sigma=1.5, size=(700, 5)),
    "in clusters": np.concatenate([RNG.normal(c, 0.05, size=(60, 4)) for c in RNG.normal(size=(10, 1, 4))]),
    "of two densities": np.concatenate([RNG.normal(0, 0.001, size=(300, 3)), RNG.normal(5, 1, size=(300, 3))]),
    "on a curve": np.column_stack([np.linspace(0, 1, 500), np.linspace(0, 1, 500) ** 2]) + 1e-4,
    "codes": RNG.integers(0, 9, size=(500, 4)).astype(float),
    **{n: getattr(datasets, f"load_{n}")().data for n in ("breast_cancer", "wine", "iris", "diabetes", "digits")},
}


def blocks(value, share, shape):
    """People of whom some have the same value in every column, as where a block of questions was not asked."""
    made = RNG.normal(size=shape)
    made[: int(share * len(made))] = value
    return made


PEOPLE |= {
    "of whom a third is missing": blocks(np.nan, 0.3, (1000, 6)),
    "of whom a third is zero": blocks(0.0, 0.3, (500, 8)),
}


@pytest.mark.parametrize("name", PEOPLE)
def test_people_are_no_copies_and_no_windows(name):
    assert close_people.copied(data(PEOPLE[name])) == 0
    assert close_people.windows(data(PEOPLE[name])) == 0


def test_windows_are_seen_as_part_of_a_row_wherever_their_columns_are():
    X, whose = panel()
    shuffled = pd.DataFrame(X[:, RNG.permutation(X.shape[1])]).assign(kind="a")
    strided = np.array([[w % 7, *s[[w, w + 7, w + 14]]] for s in RNG.normal(size=(40, 60)) for w in range(30)])

    for given in (X, shuffled, strided):
        found = several_records(data(given))
        assert found.outcome == "inconclusive"
        assert "windows over one series" in found.message
    assert several_records(data(X, groups=whose)).outcome == "passed"


@pytest.mark.parametrize("copies", [2, 10, 12, 20])
def test_as_many_copies_as_augmentation_makes_are_seen(copies):
    assert near_duplicates(data(jittered(60, copies))).outcome == "inconclusive"


def test_columns_that_share_numbers_by_rounding_or_by_ranks_are_no_windows():
    ranks = np.argsort(RNG.normal(size=(400, 4)), axis=0) / 400
    shares = np.round(RNG.random(size=(1500, 4)), 3)
    readings = np.round(RNG.normal(100, 40, size=(300, 6)))

    many = np.argsort(RNG.normal(size=(300, 20)), axis=0)
    for given in (ranks, shares, readings, many):
        assert several_records(data(given.astype(float))).outcome == "passed"


def test_whose_the_records_are_is_asked_for_and_not_assumed():
    X = RNG.normal(size=(30, 2))

    assert who(data(X)).outcome == "warned"
    assert who(data(X, ids=np.arange(30))).outcome == "passed"
    assert who(data(X, groups=np.arange(30) // 2)).outcome == "passed"
