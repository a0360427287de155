"""The re-check catches an engine that is wrong, and says so."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate import Recipe, Subject
from privgate.families.answering import ALL, answer
from privgate.families.engine import Asked
from privgate.families.recheck import _gaps, choose, recheck
from privgate.families.refit import Refit
from privgate.families.retrained import Retrained, Status
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger

BY_NAME = {engine.name: engine for engine in ALL}
TIGHT = LogisticRegression(tol=1e-10, solver="newton-cholesky")


class Slow(Refit):
    """Answers by the fleet alone: stands in for the refit engine."""

    def answers(self, asked):
        subject, (row_unit, row_query) = asked.subject, asked.rows
        own = [subject.data.units[u] for u in asked.units]
        fits = [Fit(None, row_query[row_unit == k], left_out=rows) for k, rows in enumerate(own)]
        (full,) = asked.fleet.fits(subject, [Fit(None, row_query, left_out=np.zeros(0, dtype=np.int64))])
        without = np.concatenate([a.log_p for a in asked.fleet.fits(subject, fits)])
        made = Retrained.of(self.name, asked.units, asked.seeds, asked.rows, full.log_p[None], without[None])
        return made, asked.units[:0]


class Wrong(Refit):
    """The real engine, altered after it has answered."""

    name, real = "wrong", False

    def __init__(self, alter):
        self.alter = alter
        self.supports = BY_NAME["logistic"].supports

    def answers(self, asked):
        made, rest = BY_NAME["logistic"].answers(asked)
        return self.alter(made), rest


@pytest.fixture
def subject(direct):
    rng = np.random.default_rng(0)
    return direct.subject(TIGHT, rng.integers(0, 2, (300, 6)), rng.integers(0, 3, 300))


def shift_all(made):
    return replace(made, log_without=made.log_without + 1e-4)


def shift_worst(made):
    """One record in 300 is wrong, and it is the one that decides."""
    log = made.log_without.copy()
    log[0, 17] -= 1.0
    return replace(made, log_without=log)


def shift_full(made):
    return replace(made, log_with=made.log_with - 1e-3)


def call_undefined(made):
    status = made.status.copy()
    status[4] = Status.UNDEFINED
    return replace(made, status=status)


@pytest.mark.quick(1)
@pytest.mark.parametrize("alter", [shift_all, shift_worst, shift_full, call_undefined])
def test_an_engine_that_is_wrong_is_not_used_and_that_is_said(subject, fleet, direct, alter):
    got = answer(Asked(subject, np.arange(300), (None,), fleet, engines=(Wrong(alter), Slow())))

    assert set(got.retrained.engine) == {"refit"}
    assert direct.worst_difference(got.retrained, TIGHT, subject) < 1e-12
    assert [c.outcome for c in got.rechecks] == ["warned"]
    assert "wrong disagrees with the training function" in got.declined["wrong"]


def test_a_right_engine_is_used(subject, fleet):
    got = answer(Asked(subject, np.arange(300), (None,), fleet, engines=(Wrong(lambda made: made), Slow())))

    assert set(got.retrained.engine) == {"logistic"}
    assert got.rechecks[0].outcome == "passed"
    assert got.rechecks[0].detail["units_checked"] >= 59


def test_an_undefined_unit_that_retraining_finds_undefined_agrees(direct, fleet):
    rng = np.random.default_rng(0)
    y = rng.integers(0, 2, 80)
    y[5] = 9
    subject = direct.subject(TIGHT, rng.integers(0, 3, (80, 3)), y)
    engine = BY_NAME["logistic"]

    made, _ = engine.answers(Asked(subject, np.arange(80), (None,), fleet))
    checked, _ = recheck(engine, Asked(subject, np.arange(80), (None,), fleet), made)

    assert made.status[5] == "undefined"
    assert checked.outcome == "passed"


def test_the_same_units_are_chosen_in_every_run_and_the_worst_are_among_them(subject, fleet):
    made, _ = BY_NAME["logistic"].answers(Asked(subject, np.arange(300), (None,), fleet))
    pdtp = np.abs(made.log_with[0] - made.log_without[0]).max(axis=1)

    asked = Asked(subject, np.arange(300), (None,), fleet, limits=(0.01,))
    chosen = choose(asked, made)

    assert chosen.tolist() == choose(asked, made).tolist()
    assert set(np.argsort(-pdtp)[:5]) <= set(chosen)
    assert np.argmin(np.abs(pdtp - 0.01)) in chosen
    assert len(choose(replace(asked, limits=()), made)) >= 59


def named(X, y, *, seed):
    return TIGHT.fit(X, y)


@pytest.mark.parametrize(("recipe", "signable"), [(named, False), (TIGHT, True)])
def test_nobody_can_know_for_whom_it_is_trained_again(subject, fleet, recipe, signable):
    """A function could behave for them; recipes and data can be varied until an engine's fault is not among them."""
    made, _ = BY_NAME["logistic"].answers(Asked(subject, np.arange(300), (None,), fleet))
    about = Subject.local(Recipe(recipe), subject.data)
    with (
        Fleet(jobs=1, ledger=Ledger("none", secret=b"k" * 32), signable=signable) as one,
        Fleet(jobs=1, ledger=Ledger("none", secret=b"q" * 32), signable=signable) as other,
    ):
        asked = Asked(about, np.arange(300), (None,), one)
        chosen = choose(asked, made)
        assert chosen.tolist() == choose(asked, made).tolist()
        assert chosen.tolist() != choose(replace(asked, fleet=other), made).tolist()


def test_a_difference_as_large_as_the_tolerance_is_no_disagreement(subject, fleet):
    engine = Wrong(shift_all)
    made = shift_all(BY_NAME["logistic"].answers(Asked(subject, np.arange(300), (None,), fleet))[0])
    made = replace(made, error=np.zeros(300))
    asked = Asked(subject, np.arange(300), (None,), fleet)
    worst = recheck(engine, asked, made)[0].detail["worst_difference"]

    for tolerance, outcome in ((worst, "passed"), (np.nextafter(worst, 0), "warned")):
        engine.tolerance = tolerance
        assert recheck(engine, asked, made)[0].outcome == outcome


def test_answers_of_another_shape_are_infinitely_far():
    assert np.isinf(_gaps(np.zeros((2, 3)), np.zeros((2, 2)))).tolist() == [True, True]
