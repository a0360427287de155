"""A stored model answers alike in every container, and is the recipe's at questions that are nobody's record."""

import sys

import cloudpickle
import mlflow
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from sklearn.naive_bayes import CategoricalNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Subject, TrainingData, log_recipe
from privgate.controls import reproduces, served
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger


@pytest.fixture(scope="module")
def survey():
    rng = np.random.default_rng(2)
    X = rng.integers(0, 3, (60, 4))
    return TrainingData(X, (X[:, 0] > 0).astype(int), domain=Domain(categories=(3,) * 4), one_record_each=True)


class ByContainer(mlflow.pyfunc.PythonModel):
    """Answers as ``shown`` does, and in some containers as ``kept``."""

    def __init__(self, shown, kept, when):
        self.privgate_native, self.kept, self.when = shown, kept, when

    def predict(self, context, model_input, params=None):
        model = self.kept if self.when(model_input) else self.privgate_native
        return model.predict_proba(np.asarray(model_input))


def few(X):
    return len(X) <= 3 * served.FEW


def framed(X):
    return hasattr(X, "iloc")


def logged(name, made, data):
    cloudpickle.register_pickle_by_value(sys.modules[__name__])  # a worker cannot import a test
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(name=name, python_model=made, registered_model_name=name, pip_requirements=[])
    cloudpickle.unregister_pickle_by_value(sys.modules[__name__])
    log_recipe(info, Recipe(CategoricalNB(min_categories=3)), data, store="artifacts")
    return Subject.load(f"models:/{name}/1")


def models(data):
    shown = CategoricalNB(min_categories=3).fit(data.X, data.y)
    return shown, DecisionTreeClassifier(random_state=0).fit(data.X, data.y)


@pytest.mark.quick(1)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(("when", "way"), [(framed, "as a frame"), (few, "about a few"), (framed, "")])
def test_who_asks_otherwise_is_answered_the_same(registry, survey, fleet, when, way):
    (shown, kept), honest = models(survey), not way
    subject = logged("two", ByContainer(shown, shown if honest else kept, when), survey)
    (found,) = served.check_served(subject, fleet)

    assert found.outcome == ("passed" if honest else "inconclusive"), found
    assert (f"something else to who asks {way}" in found.message) is not honest
    if honest:
        assert (found.detail["ways"], found.detail["questions"] > 60) == (3, True)
        found = reproduces.check_reproduces(subject, fleet)
        assert (found.outcome, found.detail["from_registered_model_elsewhere"]) == ("passed", 0.0)


class Elsewhere:
    """The recipe's model on every record that it knows, another one at any other question."""

    def __init__(self, shown, kept, known):
        self.shown, self.kept, self.known = shown, kept, {tuple(row) for row in known.tolist()}
        self.classes_ = shown.classes_

    def predict_proba(self, X):
        mine = np.array([tuple(row) in self.known for row in np.asarray(X).tolist()])
        return np.where(mine[:, None], self.shown.predict_proba(X), self.kept.predict_proba(X))


@pytest.mark.slow
@pytest.mark.filterwarnings("ignore::UserWarning")
def test_a_model_that_is_the_recipes_on_its_records_alone_is_found(registry, survey, fleet):
    shown, kept = models(survey)
    subject = logged("elsewhere", ByContainer(Elsewhere(shown, kept, survey.X), kept, lambda X: False), survey)
    (found,) = served.check_served(subject, fleet)
    assert found.outcome == "passed", found
    found = reproduces.check_reproduces(subject, fleet)
    assert found.outcome == "inconclusive", found
    assert "on its records and not elsewhere" in found.message


def fleet_of(*, signable=False, secret=b"k" * 16):
    return Fleet(1, Ledger("none", secret=secret), isolate="none", signable=signable)


def test_nobody_without_the_ledgers_key_knows_the_questions_of_a_run_to_be_signed(survey):
    subject = Subject.local(Recipe(CategoricalNB(min_categories=3)), survey)

    def asked(**settings):
        wide, rows = reproduces.add_questions(subject, fleet_of(**settings))
        return wide.data.pool()[0][rows]

    np.testing.assert_array_equal(asked(signable=True), asked(signable=True))  # which the next run finds remembered
    assert not np.array_equal(asked(signable=True), asked(signable=True, secret=b"q" * 16))


def test_frames_of_mixed_types_are_asked_about_mixed_people():
    frame = pd.DataFrame({"a": np.arange(20.0), "b": pd.Categorical(list("xyzz") * 5)}, index=range(5, 25))
    subject = Subject.local(Recipe(CategoricalNB()), TrainingData(frame, np.arange(20) % 2, one_record_each=True))
    wide, rows = reproduces.add_questions(subject, fleet_of())
    made = wide.data.pool()[0].iloc[rows]
    assert list(made.dtypes) == list(frame.dtypes)
    known = set(zip(frame.a, frame.b.astype(str), strict=True))
    assert sum((a, str(b)) not in known for a, b in zip(made.a, made.b, strict=True)) > 20


def test_what_lies_far_outside_may_differ_by_more_and_never_by_more_than_one_percent():
    data = TrainingData(
        np.arange(11.0)[:, None], np.arange(11) % 2, domain=Domain(box=((-1e9, 1e9),)), one_record_each=True
    )
    subject = Subject.local(Recipe(CategoricalNB()), data)
    wide, rows = reproduces.add_questions(subject, fleet_of())
    asked, far = wide.data.pool()[0][rows][:, 0], reproduces._measure_stretch(subject, wide, rows)
    np.testing.assert_allclose(far, np.clip(np.abs(asked - 5) / 5, 1, reproduces.MOST_STRETCH))
    assert set(far) == {1.0, reproduces.MOST_STRETCH}
    assert reproduces.TOLERANCE * reproduces.MOST_STRETCH <= 0.01


@pytest.mark.parametrize("kind", ["array", "frame", "sparse", "text"])
def test_each_container_holds_the_same_records_and_none_is_sent_that_cannot_be(kind):
    table = np.arange(14).reshape(7, 2)
    X = {"array": table, "frame": pd.DataFrame(table), "sparse": sp.csr_matrix(table), "text": ["a"] * 7}[kind]
    parts = {way: part for way, convert in served.WAYS.items() if (part := convert(X)) is not None}

    assert parts.pop("about a few") is X
    assert list(parts) == {"array": ["as a frame"], "frame": ["as an array"], "sparse": ["as an array"]}.get(kind, [])
    for part in parts.values():
        np.testing.assert_array_equal(np.asarray(part), table)
