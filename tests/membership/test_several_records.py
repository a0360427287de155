"""Members with several records beside candidates with one: a mean over records tells its person by its spread alone."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB

from privgate import Budget, Policy, Recipe, Subject, TrainingData
from privgate.check.prepare import prepare
from privgate.membership import attack_measures
from privgate.membership import board as boards
from privgate.membership.limits import Figure
from tests.in_process import InProcess

pytestmark = pytest.mark.usefixtures("light_attacks")
PEOPLE = 600
RNG = np.random.default_rng(5)


def records(count, rare):
    X = RNG.normal(size=(count, 2))
    return X, (X[:, 0] + RNG.normal(size=count) > rare).astype(int)


def judged(each, recipe, label="", rare=0.0):
    """Return the largest lower limit of all attacks and adversaries: as it is judged, and of means over records."""
    people, others = records(PEOPLE * each, rare), records(PEOPLE, rare)
    data = TrainingData(*people, groups=np.repeat(np.arange(PEOPLE), each), candidates=others)
    subject = Subject.local(Recipe(recipe, seed=1), data)
    run = prepare(Policy.load("attacks-1"), subject, fleet=InProcess(), limits=Budget(shadow_models=8))
    board, request = run.compute(boards.make_board), next(iter(run.attacked))
    made = [a for a in board.wanted("any") if not a.problem]
    who = boards.cells(board, "class" if label else "model", None)[label]
    assert len(made) > 5
    assert all((a.alone is None) == (each == 1) for a in made)

    def limits(attempt):
        levels = {"low_alpha": 0.05 / (2 * len(made)), "high_alpha": 0.05}
        return attack_measures.limit_figure(board, attempt, who, request, Figure.ACCURACY, **levels)

    together = [g for a in made for g in limits(replace(a, alone=None))]
    shown = [g for a in made for g in limits(a)]
    assert all(a.low <= a.value <= a.high and a.high >= b.high for a, b in zip(shown, together, strict=True))
    return max(g.low for g in shown), max(g.low for g in together)


def leaks(X, y, *, seed):
    from sklearn.neighbors import KNeighborsClassifier

    return KNeighborsClassifier(1).fit(X, y)


def test_no_harmless_model_is_refused_because_people_have_several_records():
    shown, together = judged(8, GaussianNB())
    assert shown <= 0.5 < 0.55 < together


def test_people_with_several_labels_tell_no_members_of_one_class():
    assert judged(8, GaussianNB(), "label 1", 1.2)[0] <= 0.5


def test_a_model_that_tells_every_record_is_refused_all_the_same():
    assert judged(8, leaks)[0] > 0.6


def test_who_has_one_record_is_judged_as_before():
    shown, together = judged(1, GaussianNB())
    assert shown == together
