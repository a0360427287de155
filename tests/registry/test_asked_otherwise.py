"""A stored model that is the recipe's as the gate asks, and another one for its clients."""

import sys

import cloudpickle
import mlflow
import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Recipe, Subject, TrainingData, log_recipe
from privgate.controls import client_answers, reproduces, served
from privgate.errors import SubjectError
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger


@pytest.fixture(scope="module")
def survey():
    rng = np.random.default_rng(2)
    X = rng.integers(0, 3, (60, 4))
    return TrainingData(X, (X[:, 0] > 0).astype(int), domain=Domain(categories=(3,) * 4), one_record_each=True)


class TwoFaced(mlflow.pyfunc.PythonModel):
    """Answers as ``shown`` does, and to some questions as ``kept``."""

    def __init__(self, shown, kept, when):
        self.privgate_native, self.kept, self.when = shown, kept, when

    def predict(self, context, model_input, params=None):
        model = self.kept if self.when(model_input) else self.privgate_native
        return model.predict_proba(np.asarray(model_input))


def alone(X):
    return len(X) == 1


def few(X):
    return 1 < len(X) < 10


def framed(X):
    return hasattr(X, "iloc")


def floating(X):
    return np.asarray(X).dtype.kind == "f"


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
@pytest.mark.parametrize(
    ("when", "way"),
    [
        (alone, "one by one"),
        (few, "in batches of three"),
        (framed, "as a frame"),
        (floating, "as numbers of another type"),
    ],
)
@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.attack("6 a wrapper that looks at how it is asked", "check", "found")
def test_who_asks_otherwise_is_answered_the_same(registry, survey, fleet, when, way):
    subject = logged("two", TwoFaced(*models(survey), when), survey)
    (found,) = served.check_served(subject, fleet)
    assert (found.outcome, f"something else to who asks {way}" in found.message) == ("inconclusive", True), found


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
@pytest.mark.parametrize("signable", [False, True])
@pytest.mark.attack("6 a model that is another one beyond its records", "check", "found")
def test_a_model_that_is_the_recipes_on_its_records_alone_is_found(registry, survey, fleet, signable):
    shown, kept = models(survey)
    subject = logged("elsewhere", TwoFaced(Elsewhere(shown, kept, survey.X), kept, lambda X: False), survey)
    fleet.signable = signable
    (found,) = served.check_served(subject, fleet)
    assert found.outcome == "passed", found  # both faces of the wrapper are the same
    found = reproduces.reproduces(subject, fleet)
    assert found.outcome == "inconclusive", found
    assert "on its records and not elsewhere" in found.message


@pytest.mark.filterwarnings("ignore::UserWarning")
def test_an_honest_wrapper_is_asked_in_every_way(registry, survey, fleet):
    shown, _ = models(survey)
    subject = logged("honest", TwoFaced(shown, shown, alone), survey)
    (found,) = served.check_served(subject, fleet)
    assert found.outcome == "passed", found
    assert found.detail["ways"] == 6  # numbers in an array are no table or matrix to be made an array
    assert found.detail["questions"] > 60
    found = reproduces.reproduces(subject, fleet)
    assert (found.outcome, found.detail["from_registered_model_elsewhere"]) == ("passed", 0.0)


def fleet_of(*, signable=False, secret=b"k" * 16):
    return Fleet(1, Ledger("none", secret=secret), isolate="none", signable=signable)


def test_nobody_without_the_ledgers_key_knows_the_questions_of_a_run_to_be_signed(survey):
    subject = Subject.local(Recipe(CategoricalNB(min_categories=3)), survey)

    def asked(**settings):
        wide, rows = reproduces.ask_beyond(subject, fleet_of(**settings))
        return wide.data.pool()[0][rows]

    np.testing.assert_array_equal(asked(), asked(secret=b"q" * 16))
    np.testing.assert_array_equal(asked(signable=True), asked(signable=True))  # which the next run finds remembered
    assert not np.array_equal(asked(signable=True), asked())
    assert not np.array_equal(asked(signable=True), asked(signable=True, secret=b"q" * 16))
    assert ((asked(signable=True) >= 0) & (asked(signable=True) <= 2)).all()


def test_frames_of_mixed_types_are_asked_about_mixed_people():
    import pandas as pd

    frame = pd.DataFrame({"a": np.arange(20.0), "b": pd.Categorical(list("xyzz") * 5)}, index=range(5, 25))
    subject = Subject.local(Recipe(CategoricalNB()), TrainingData(frame, np.arange(20) % 2, one_record_each=True))
    wide, rows = reproduces.ask_beyond(subject, fleet_of())
    made = wide.data.pool()[0].iloc[rows]
    assert list(made.dtypes) == list(frame.dtypes)
    known = set(zip(frame.a, frame.b.astype(str), strict=True))
    assert sum((a, str(b)) not in known for a, b in zip(made.a, made.b, strict=True)) > 20
    texts = Subject.local(
        Recipe(CategoricalNB()), TrainingData(["a b", "c d"] * 5, np.arange(10) % 2, one_record_each=True)
    )
    assert len(reproduces.ask_beyond(texts, fleet_of())[1]) == 0


def test_what_lies_far_outside_may_differ_by_more_and_never_by_more_than_one_percent():
    data = TrainingData(
        np.arange(11.0)[:, None], np.arange(11) % 2, domain=Domain(box=((-1e9, 1e9),)), one_record_each=True
    )
    subject = Subject.local(Recipe(CategoricalNB()), data)
    wide, rows = reproduces.ask_beyond(subject, fleet_of())
    asked, far = wide.data.pool()[0][rows][:, 0], reproduces._measure_stretch(subject, wide, rows)
    np.testing.assert_allclose(far, np.clip(np.abs(asked - 5) / 5, 1, reproduces.FARTHEST))
    assert set(far) == {1.0, reproduces.FARTHEST}
    assert reproduces.REPRODUCED * reproduces.FARTHEST <= 0.01


@pytest.mark.parametrize("way", [client_answers.WHOLE, *client_answers.WAYS])
@pytest.mark.parametrize("kind", ["whole numbers", "fractions", "frame", "sparse", "text"])
def test_each_record_is_asked_about_once_in_every_way(way, kind):
    import pandas as pd
    import scipy.sparse as sp

    from privgate.errors import SubjectError

    table = np.arange(14).reshape(7, 2)
    X = {
        "whole numbers": table, "fractions": table / 2, "frame": pd.DataFrame(table, columns=["a", "b"]),
        "sparse": sp.csr_matrix(table), "text": [str(i) for i in range(7)],
    }[kind]  # fmt: skip
    try:
        asked = list(client_answers.split(X, 7, way))
    except SubjectError:
        assert way in client_answers.WAYS[3:]
        return
    assert sorted(np.concatenate([rows for rows, _ in asked])) == list(range(7))
    for rows, part in asked:
        values = part.toarray() if hasattr(part, "toarray") else np.asarray(part)
        same = [X[i] for i in rows] if kind == "text" else (table / 2 if kind == "fractions" else table)[rows]
        np.testing.assert_array_equal(values, same)


def test_no_way_is_asked_in_which_records_cannot_be_sent(survey):
    """Whoever tries ends the stored model's box, and the next question opens it anew, which takes seconds."""
    numbers = Subject.local(Recipe(CategoricalNB(min_categories=3)), survey)
    broken = TrainingData(survey.X + 0.1, survey.y, one_record_each=True)
    rows = np.arange(5)

    for subject in (numbers, Subject.local(Recipe(DecisionTreeClassifier()), broken)):
        ways = served._list_ways(subject, rows)
        for way in client_answers.WAYS:
            if way in ways:
                assert sum(len(chosen) for chosen, _ in client_answers.split(subject.data.X[rows], 5, way)) == 5
            else:
                with pytest.raises(SubjectError, match="cannot be sent"):
                    list(client_answers.split(subject.data.X[rows], 5, way))
        assert "as an array" not in ways
        assert ("as numbers of another type" in ways) is (subject is numbers)
