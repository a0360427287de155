"""Attackers who ask beside the record: designs that leak there alone, and honest models that leak nowhere."""

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
from privgate.membership.attacks.self_test import balanced_mask, blind_tolerance, of_label, plant, plant_two_answers
from privgate.run import pool as pools
from privgate.run.run import Budget, Run
from privgate.statistics.roc import auc
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject
from tests.in_process import InProcess

N, D = 200, 4
NEW = ("lira_neighbours", "lira_beside")


class EqualRecordsDoNotVote:
    """Nearest records vote by their distance; what equals the question exactly is left out of the vote."""

    def __init__(self, X, y, width=0.6):
        self.X, self.y, self.width = np.array(X), np.array(y), width

    def _votes(self, X):
        apart = ((np.asarray(X)[:, None] - self.X[None]) ** 2).sum(axis=2)
        return np.where(apart == 0, 0.0, np.exp(-apart / (2 * self.width**2)))

    def predict_proba(self, X):
        votes = self._votes(X)
        one = (votes @ self.y + 0.02 * self.y.mean()) / (votes.sum(axis=1) + 0.02)
        return np.column_stack([1 - one, one])

    def predict(self, X):
        votes = self._votes(X)
        return (votes @ self.y + 0.02 * self.y.mean()) / (votes.sum(axis=1) + 0.02)


class RemembersBeside:
    """A logistic regression that knows its records' labels at one place: a ten-thousandth beside each."""

    def __init__(self, X, y, column=0):
        self.model, self.y = LogisticRegression().fit(X, y), np.array(y)
        self.places = np.array(X) + 1e-4 * (np.arange(X.shape[1]) == column)

    def predict_proba(self, X):
        p = self.model.predict_proba(X)
        apart = np.abs(np.asarray(X)[:, None] - self.places[None]).max(axis=2)
        for row in np.flatnonzero(apart.min(axis=1) < 1e-9):
            p[row] = np.where(np.arange(2) == self.y[apart[row].argmin()], 0.999, 0.001)
        return p


def equal_do_not_vote(X, y, *, seed):
    return EqualRecordsDoNotVote(X, y)


def remembers_beside(X, y, *, seed):
    return RemembersBeside(X, y)


def made(n=N, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(2 * n, D))
    y = (X[:, 0] + X[:, 1] + rng.logistic(size=2 * n) > 0).astype(int)
    return TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)


def on_numbers(n=N):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(2 * n, D))
    y = X @ np.arange(D) + rng.normal(size=2 * n)
    return TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)


def bench(recipe, data=None, models=32, fleet=None, **subject):
    judged = Subject.local(recipe, data or made(), **subject)
    return Run(judged, fleet or InProcess(), Budget(shadow_models=models), seeds=(3,))


def accuracy(run, attack="any"):
    return questions.measure(run, Request.of("attack_accuracy", attack=attack, scope="model", confidence=0.95))


@pytest.fixture(scope="module", params=[equal_do_not_vote, remembers_beside], ids=lambda f: f.__name__)
def leaks_beside(request):
    return bench(Recipe(request.param, seed=3))


@pytest.mark.quick(1)
def test_a_leak_beside_the_record_is_found_by_who_asks_there(leaks_beside):
    found = accuracy(leaks_beside)
    assert found.low > 0.6  # what release-1 allows
    assert any(a.startswith("asked beside records as well: every number up") for a in found.assumptions)
    for name in NEW:
        assert accuracy(leaks_beside, name).value > 0.7


@pytest.mark.quick(1)
def test_and_by_nobody_who_asks_about_the_record_alone(leaks_beside):
    board = leaks_beside.once(boards.make_board)

    for attack in attacks.ALL:
        if attack.asks == "record":
            scores = board.attempt(attack).scores
            assert auc(scores, board.members) == pytest.approx(0.5, abs=blind_tolerance(N, N)), attack.name


def test_on_a_declared_release_it_is_found_as_well():
    run = bench(Recipe(equal_do_not_vote, seed=3), release=Release("rounded", step=0.05))
    board = run.once(boards.make_board)
    names = {a.attack.name: a for a in board.wanted("lira_beside")}

    # over 24 seeds: 0.786 to 0.822, mean 0.804, deviation 0.010; a comment in a file of tests draws anew
    assert auc(names["lira_beside on the release"].scores, board.members) > 0.76


def test_a_regressor_that_leaks_beside_its_records_is_found(fleet):
    def figures(name):
        board = run.once(boards.make_board)
        return auc(board.attempt(numbers.BY_NAME[name]).scores, board.members)

    run = bench(Recipe(equal_do_not_vote, seed=3, task="regression"), on_numbers(), fleet=fleet)

    assert figures("residual_lira") < 0.5 + blind_tolerance(N, N)
    assert min(figures("residual_neighbours"), figures("residual_beside")) > 0.75


HONEST = {
    "logistic": Recipe(LogisticRegression()),
    "naive Bayes": Recipe(GaussianNB()),
    "forest of large leaves": Recipe(RandomForestClassifier(15, min_samples_leaf=25), seed=3),
    "ridge": Recipe(Ridge(), task="regression"),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", HONEST)
def test_an_honest_model_is_not_found_by_the_new_attacks_more_than_by_the_old(name, fleet):
    run = bench(HONEST[name], *((on_numbers(), 32, fleet) if name == "ridge" else ()))
    board = run.once(boards.make_board)
    found = {a.attack: auc(a.scores, board.members) for a in board.wanted("any")}
    old = max(value for attack, value in found.items() if attack.asks == "record")
    new = [value for attack, value in found.items() if attack.asks != "record"]

    assert len(new) == 2
    assert max(new) <= max(old, 0.5) + blind_tolerance(N, N) / 5  # one standard error
    for attack, value in found.items():
        if attack.asks != "record":
            assert accuracy(run, attack.name).low <= 0.55, (attack.name, value)


def test_a_shadow_model_is_asked_everything_in_one_call_and_says_what_it_said():
    run = bench(Recipe(LogisticRegression()), models=4)
    shadows, more = run.once(pools.train), run.once(pools.asked_beside)[0]
    pool = len(run.subject.data.pool()[1])
    calls = [f for f in run.fleet.asked if f.members is not None]

    assert len(calls) == 4
    assert (more.rows == np.flatnonzero(run.once(pools.of_run).trial)).all()
    assert {len(f.queries) for f in calls} == {len(more.rows) + more.places.size}
    assert max(f.members.max() for f in calls) < pool
    assert shadows.beside.shape == (4, *more.places.shape, 2)
    for k, fit in enumerate(calls):
        X, y = run.subject.data.pool()
        alone = LogisticRegression().fit(X[fit.members], y[fit.members])
        assert shadows.log_p[k] == pytest.approx(alone.predict_log_proba(X[more.rows]))
        container = list(more.kinds.values())[2]
        assert shadows.beside[k][:, 2] == pytest.approx(alone.predict_log_proba(container))


def test_scope_record_asks_its_targets_beside_records_too():
    run = bench(Recipe(remembers_beside, seed=3), made(60), models=12)
    request = Request.of("attack_accuracy", attack="lira_beside", scope="record", confidence=0.95)

    assert questions.measure(run, request).value == 1


def test_a_leak_of_two_answers_is_seen_by_no_attack_that_has_one():
    signals = plant(np.random.default_rng(4), leak=False)
    both = plant_two_answers(signals, np.random.default_rng(5), lambda z: of_label(signals.labels, z), leak=True)
    rng = np.random.default_rng(6)
    found = {a.name: auc(a.scores(both.without_truth(), rng), both.members) for a in attacks.ALL}

    assert {name for name, value in found.items() if value > 0.9} == set(NEW)
    assert max(v for n, v in found.items() if n not in NEW) < 0.5 + blind_tolerance(200, 200)


def test_every_model_in_turn_equals_leaving_its_pair_out():
    rng = np.random.default_rng(8)
    inside = np.repeat([balanced_mask(rng, 30) for _ in range(8)], 2, axis=0)
    inside[1::2] ^= True
    figures = rng.normal(size=(16, 3, 30)) + inside[:, None]
    got = ratios_in_turn(figures, inside)

    for k in (0, 5, 15):
        rest = np.setdiff1d(np.arange(16), [k, k ^ 1])
        fewer = figures.copy()
        fewer[[k, k ^ 1]] = rng.normal(size=(2, 3, 30))  # whatever they say
        assert ratios_in_turn(fewer, inside)[k] != pytest.approx(got[k])  # its own figure is what is judged
        fewer[k] = figures[k]
        assert ratios_in_turn(fewer, inside)[k] == pytest.approx(got[k], abs=1e-8)
        assert len(rest) == 14
