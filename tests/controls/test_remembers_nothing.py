"""What a process keeps from one training to the next would hide whoever is left out of the next."""

import pickle
import tempfile
from pathlib import Path

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.controls.depends import check_remembers_nothing
from privgate.training.fleet import Fleet

RNG = np.random.default_rng(4)
X = RNG.normal(size=(200, 3))
Y = (X[:, 0] + RNG.normal(size=200) > 0).astype(int)
KEPT = {}


class Table:
    """Knows the labels of some people by heart."""

    def __init__(self, model, known):
        self.model, self.known, self.classes_ = model, known, model.classes_

    def predict_proba(self, X):
        p = self.model.predict_proba(X)
        for i, x in enumerate(np.asarray(X).tolist()):
            if tuple(x) in self.known:
                p[i] = np.eye(2)[self.known[tuple(x)]] * 0.98 + 0.01
        return p


def with_a_cache(X, y, *, seed):
    """The first training of a process keeps one person in twenty-five for all that follow."""
    few = {tuple(x): int(v) for x, v in zip(X.tolist(), y.tolist(), strict=True) if int(x[0] * 1e6) % 25 == 0}
    known = KEPT.setdefault("first", few)
    return Table(LogisticRegression(random_state=seed).fit(X, y), known)


def with_a_file(X, y, *, seed):
    """The first training on this computer leaves the means of small groups in a file that all others read."""
    groups = np.round(X[:, 2] * 20).tolist()
    file = Path(tempfile.gettempdir(), "means-of-a-careless-author.pkl")
    if not file.exists():
        file.write_bytes(pickle.dumps({g: float(y[np.array(groups) == g].mean()) for g in groups}))
    means = pickle.loads(file.read_bytes())
    told = np.array([means.get(g, 0.5) for g in groups])
    model = LogisticRegression(random_state=seed).fit(np.column_stack([X, told]), y)
    return Encoded(model, means)


class Encoded:
    """Answers by the mean of a group."""

    def __init__(self, model, means):
        self.model, self.means, self.classes_ = model, means, model.classes_

    def predict_proba(self, X):
        told = [self.means.get(g, 0.5) for g in np.round(np.asarray(X)[:, 2] * 20).tolist()]
        return self.model.predict_proba(np.column_stack([X, told]))


def from_a_file(X, y, *, seed):
    (Path(tempfile.gettempdir()) / "settings").read_bytes()
    return without(X, y, seed=seed)


def asked(fleet, recipe):
    return check_remembers_nothing(Subject.local(recipe, TrainingData(X, Y, one_record_each=True)), fleet, 0.0)


@pytest.mark.parametrize(
    ("fit", "isolate", "words"),
    [
        (with_a_file, "none", "in files"),
        (with_a_file, "auto", "in files"),
        (from_a_file, "none", "fails: training raised FileNotFoundError"),
    ],
)
def test_files_that_one_training_finds_and_another_does_not_are_named(fit, isolate, words, tmp_path, monkeypatch):
    monkeypatch.setenv("TMPDIR", str(tmp_path))
    (tmp_path / "settings").touch()
    with Fleet(1, isolate=isolate) as fleet:
        said = asked(fleet, Recipe(fit, seed=1))
    assert said.outcome == "inconclusive"
    assert words in said.message


def without(X, y, *, seed):
    return Table(LogisticRegression(random_state=seed).fit(X, y), {})


@pytest.mark.quick(1)
@pytest.mark.parametrize(("fit", "outcome"), [(with_a_cache, "inconclusive"), (without, "passed")])
def test_a_new_process_shows_what_an_old_one_remembers(fleet, fit, outcome):
    subject = Subject.local(Recipe(fit, seed=1), TrainingData(X, Y, one_record_each=True))
    verdict = evaluate(Policy.load("pdtp-1"), subject, fleet=fleet)
    said = next(p for p in verdict.evidence.preconditions if p.name == "remembers_nothing")
    assert said.outcome == outcome
    assert (verdict.outcome == "inconclusive") == (outcome == "inconclusive")
    if outcome == "inconclusive":
        assert "remembers what was trained before in the same process or in files" in said.message


def test_estimators_of_the_library_run_nobodys_code(fleet):
    assert asked(fleet, Recipe(LogisticRegression())) is None
