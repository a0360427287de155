"""Attackers who ask near the record: designs that leak there alone, and honest models that leak nowhere."""

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from privgate.check import questions
from privgate.evidence import Request
from privgate.membership import attacks, numbers
from privgate.membership import board as boards
from privgate.membership.attacks.lira import ratios_in_turn
from privgate.membership.attacks.self_test import balanced_mask, blind_tolerance, plant
from privgate.run import pool as pools
from privgate.run.run import Budget, Run
from privgate.statistics.roc import auc
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject
from tests.in_process import InProcess

N, D = 200, 4
NEARBY = ("lira_neighbours", "lira_beside")


class EqualRecordsDoNotVote:
    """Nearest records vote by their distance; what equals the question exactly is left out of the vote."""

    def __init__(self, X, y, *, seed):
        self.X, self.y, self.width = np.array(X), np.array(y), 0.6

    def predict(self, X):
        apart = ((np.asarray(X)[:, None] - self.X[None]) ** 2).sum(axis=2)
        votes = np.where(apart == 0, 0.0, np.exp(-apart / (2 * self.width**2)))
        return (votes @ self.y + 0.02 * self.y.mean()) / (votes.sum(axis=1) + 0.02)

    def predict_proba(self, X):
        one = self.predict(X)
        return np.column_stack([1 - one, one])


class RemembersNearby:
    """A logistic regression that knows its records' labels at one place: a ten-thousandth beside each."""

    def __init__(self, X, y, *, seed):
        self.model, self.y = LogisticRegression().fit(X, y), np.array(y)
        self.places = np.array(X) + 1e-4 * (np.arange(X.shape[1]) == 0)

    def predict_proba(self, X):
        p = self.model.predict_proba(X)
        apart = np.abs(np.asarray(X)[:, None] - self.places[None]).max(axis=2)
        for row in np.flatnonzero(apart.min(axis=1) < 1e-9):
            p[row] = np.where(np.arange(2) == self.y[apart[row].argmin()], 0.999, 0.001)
        return p


def equal_do_not_vote(X, y, *, seed):
    return EqualRecordsDoNotVote(X, y, seed=seed)


def remembers_beside(X, y, *, seed):
    return RemembersNearby(X, y, seed=seed)


def made(n=N):
    rng = np.random.default_rng(0)
    X = rng.normal(size=(2 * n, D))
    y = (X[:, 0] + X[:, 1] + rng.logistic(size=2 * n) > 0).astype(int)
    return TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)


def on_numbers(n=N):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2 * n, D))
    y = X @ np.arange(D) + rng.normal(size=2 * n)
    return TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)


def start(recipe, n=N, models=32, fleet=None, **subject):
    data = on_numbers(n) if recipe.task == "regression" else made(n)
    return Run(Subject.local(recipe, data, **subject), fleet or InProcess(), Budget(shadow_models=models), seeds=(3,))


def measure(run, attack="any", scope="model"):
    return questions.measure(run, Request.build("attack_accuracy", attack=attack, scope=scope, confidence=0.95))


@pytest.mark.quick(1)
@pytest.mark.parametrize("fit", [equal_do_not_vote, remembers_beside])
@pytest.mark.parametrize("which", ["light_attacks", pytest.param("fleet", id="every attack", marks=pytest.mark.slow)])
def test_a_leak_near_the_record_is_found_by_who_asks_there_and_by_nobody_else(fit, which, request):
    request.getfixturevalue(which)
    run = start(Recipe(fit, seed=3))
    found, board = measure(run), run.compute(boards.make_board)

    assert found.low > 0.6  # what release-1 allows
    assert any(a.startswith("asked beside records as well: every number up") for a in found.assumptions)
    for attack in attacks.ALL:
        if attack.asks == "record":
            scores = board.attempt(attack).scores
            assert auc(scores, board.members) == pytest.approx(0.5, abs=blind_tolerance(N, N)), attack.name
        else:
            assert measure(run, attack.name).value > 0.7


def test_on_a_declared_release_it_is_found_as_well():
    board = start(Recipe(equal_do_not_vote, seed=3), release=Release("rounded", step=0.05)).compute(boards.make_board)
    names = {a.attack.name: a for a in board.wanted("lira_beside")}

    assert auc(names["lira_beside on the release"].scores, board.members) > 0.74


def test_a_regressor_that_leaks_near_its_records_is_found(fleet):
    board = start(Recipe(equal_do_not_vote, seed=3, task="regression"), fleet=fleet).compute(boards.make_board)
    found = {n: auc(board.attempt(numbers.BY_NAME[n]).scores, board.members) for n in numbers.BY_NAME}

    assert found["residual_lira"] < 0.5 + blind_tolerance(N, N)
    assert min(found["residual_neighbours"], found["residual_beside"]) > 0.75


HONEST = {
    "logistic": Recipe(LogisticRegression()),
    "naive Bayes": Recipe(GaussianNB()),
    "forest of large leaves": Recipe(RandomForestClassifier(15, min_samples_leaf=25), seed=3),
    "ridge": Recipe(Ridge(), task="regression"),
}


@pytest.mark.quick(1)
@pytest.mark.usefixtures("light_attacks")
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_is_not_found_by_who_asks_nearby_more_than_by_others(name, fleet):
    run = start(HONEST[name], fleet=fleet if name == "ridge" else None)
    board = run.compute(boards.make_board)
    found = {a.attack: auc(a.scores, board.members) for a in board.wanted("any")}
    at_record = max(value for attack, value in found.items() if attack.asks == "record")
    nearby = {attack.name: value for attack, value in found.items() if attack.asks != "record"}

    assert len(nearby) == 2
    assert max(nearby.values()) <= max(at_record, 0.5) + blind_tolerance(N, N) / 5  # one standard error
    assert max(measure(run, attack).low for attack in nearby) <= 0.55


def test_a_shadow_model_is_asked_everything_in_one_call_and_says_what_it_said():
    run = start(Recipe(LogisticRegression()), models=4)
    shadows, more, (X, y) = run.compute(pools.train), run.compute(pools.ask_near_trials)[0], run.subject.data.pool()
    calls = [f for f in run.fleet.asked if f.members is not None]

    assert len(calls) == 4
    assert (more.rows == np.flatnonzero(run.compute(pools.of_run).trial)).all()
    assert {len(f.queries) for f in calls} == {len(more.rows) + more.places.size}
    assert max(f.members.max() for f in calls) < len(y)
    assert shadows.near.shape == (4, *more.places.shape, 2)
    for k, fit in enumerate(calls):
        alone = LogisticRegression().fit(X[fit.members], y[fit.members])
        assert shadows.log_p[k] == pytest.approx(alone.predict_log_proba(X[more.rows]))
        assert shadows.near[k][:, 2] == pytest.approx(alone.predict_log_proba(list(more.kinds.values())[2]))


def test_a_leak_of_two_answers_is_seen_by_no_attack_that_has_one():
    both = plant(np.random.default_rng(5), leak=True, form="two answers")
    rng = np.random.default_rng(6)
    found = {a.name: auc(a.scores(both.without_truth(), rng), both.members) for a in attacks.ALL}

    assert {name for name, value in found.items() if value > 0.9} == set(NEARBY)
    assert max(v for n, v in found.items() if n not in NEARBY) < 0.5 + blind_tolerance(200, 200)


def test_every_model_in_turn_equals_leaving_its_pair_out():
    rng = np.random.default_rng(8)
    inside = np.repeat([balanced_mask(rng, 30) for _ in range(8)], 2, axis=0)
    inside[1::2] ^= True
    figures = rng.normal(size=(16, 3, 30)) + inside[:, None]
    got = ratios_in_turn(figures, inside)

    for k in (0, 5, 15):
        fewer = figures.copy()
        fewer[[k, k ^ 1]] = rng.normal(size=(2, 3, 30))  # whatever they say
        assert ratios_in_turn(fewer, inside)[k] != pytest.approx(got[k])  # its own figure is what is judged
        fewer[k] = figures[k]
        assert ratios_in_turn(fewer, inside)[k] == pytest.approx(got[k], abs=1e-8)
