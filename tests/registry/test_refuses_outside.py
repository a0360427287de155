"""A declared domain is enforced by the served model, or no theorem about it counts."""

from collections import deque
from types import SimpleNamespace

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.base import BaseEstimator, ClassifierMixin
from sklearn.compose import ColumnTransformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import CategoricalNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer

from privgate import Domain, Recipe, Release, Subject, TrainingData, log_model, log_recipe
from privgate.controls.served import ask_outside, check_domain
from privgate.models import FixedScaler
from privgate.subject.accepted_questions import AcceptedQuestions, QuestionRefusedError, Refusing
from privgate.theorems import catalogue

RNG = np.random.default_rng(3)
NUMBERS = RNG.uniform(-1, 1, (120, 3))
LABELS = (NUMBERS[:, 0] + RNG.normal(0, 0.5, 120) > 0).astype(int)
CODES = RNG.integers(0, 3, (120, 3))
COUNTS = RNG.poisson(1.0, (120, 4)).astype(np.float64)
FRAME = pd.DataFrame({"age": RNG.uniform(18, 90, 120), "years": RNG.integers(0, 40, 120)})
LOGISTIC = LogisticRegression(C=0.01, solver="newton-cholesky", tol=1e-8)
#: recipe, records, domain, an accepted question, questions outside
CASES = {
    "box": (LOGISTIC, NUMBERS, Domain(box=((-1, 1),) * 3), [[0, 0, 1]], [[0, 0, 1.1]]),
    "categories": (CategoricalNB(min_categories=3), CODES, Domain(categories=(3, 3, 3)), [[0, 1, 2]], [[0, 1, 1.5]]),
    "counts": (MultinomialNB(), COUNTS, Domain(box=((0, 9),) * 4), [[1.0, 2, 0, 0]], [[-1.0, 2, 0, 0]]),
    "columns": (
        make_pipeline(FixedScaler({"age": (0, 120), "years": (0, 80)}), LOGISTIC),
        FRAME,
        Domain.read({"age": (0, 120), "years": (0, 80)}),
        pd.DataFrame({"age": [30.0], "years": [2]}),
        pd.DataFrame({"age": [130.0], "years": [2]}),
    ),
}


def data_of(X, domain):
    return TrainingData(X, LABELS, domain=domain, one_record_each=True)


@pytest.fixture(params=CASES)
def case(request):
    recipe, X, domain, inside, beyond = CASES[request.param]
    as_asked = [x if hasattr(x, "iloc") else np.array(x, dtype=np.float64) for x in (inside, beyond)]
    return Recipe(recipe, seed=1), data_of(X, domain), *as_asked


@pytest.mark.quick(1)
def test_what_is_logged_refuses_what_its_domain_rules_out_wherever_it_is_opened(registry, case, fleet):
    recipe, data, inside, beyond = case
    info = log_model(recipe, data, registered_model_name="m", store="artifacts")
    served, native = mlflow.pyfunc.load_model(info.model_uri), mlflow.sklearn.load_model(info.model_uri)
    own = recipe.train(data.X, data.y, seed=1)
    if data.X is CODES:
        inside = inside.astype(int)
    np.testing.assert_allclose(native.predict_proba(inside), own.predict_proba(inside))
    assert served.predict(inside).shape == (1, 2)
    for way in (served.predict, native.predict, native.predict_proba):
        with pytest.raises(Exception, match=r"lies outside of what this model is declared|schema"):
            way(beyond)
    assert list(native.classes_) == list(own.classes_)  # all else is the model's
    assert native.get_params().keys() == own.get_params().keys()
    subject = check_domain(Subject.load("models:/m/1"), fleet)
    assert not subject.beyond
    assert subject.detail["preconditions"][-1].outcome == "passed"
    assert catalogue.applicable(subject)[0]


@pytest.mark.quick(1)
def test_theorems_are_silent_about_a_domain_that_the_served_model_does_not_enforce(by_mlflow, case, fleet):
    recipe, data, _, _ = case
    model = recipe.train(data.X, data.y, seed=1)
    info = by_mlflow(model, "own", pyfunc_predict_fn="predict_proba", serialization_format="cloudpickle")
    log_recipe(info, recipe, data, store="artifacts")
    before = Subject.load("models:/own/1")
    after = check_domain(before, fleet)
    assert "answers questions outside of the declared domain" in after.beyond
    assert after.accepted is None
    with_ = {c.name for c in catalogue.applicable(before)[0]}
    without = {c.name for c in catalogue.applicable(after)[0]}
    # but for first steps that map whatever is asked into fixed ranges, and for codes that the library itself refuses
    assert with_
    assert without == (with_ if hasattr(data.X, "iloc") or data.X is CODES else set())


def test_people_outside_of_the_domain_are_no_reason_to_refuse_them(registry, fleet):
    """Whoever lies outside must be answered for the check; the domain is then not enforced, and the check says so."""
    data = data_of(NUMBERS * 2, Domain(box=((-1, 1),) * 3))
    info = log_model(Recipe(LOGISTIC, seed=1), data, store="artifacts")
    assert mlflow.pyfunc.load_model(info.model_uri).predict(np.full((1, 3), 1.5)).shape == (1, 2)
    subject = Subject.local(Recipe(LOGISTIC, seed=1), data_of(NUMBERS, Domain(box=((-1, 1),) * 3)))
    assert check_domain(subject, fleet) is subject  # a local one is served by nobody
    assert subject.accepted is subject.data.domain


#: domain, and a guard that looks at less than the whole of it: (name, records, domain, what it lets through)
BOX = {"box": [[-1.0, 1.0]] * 3}
HALF_GUARDS = {
    "the first row": (NUMBERS, BOX, lambda T: (np.abs(T[0]) <= 1).all()),
    "one odd column": (NUMBERS, BOX, lambda T: (np.abs(T) > 1).sum() != 1),
}


def asked_about(X, stated, answers):
    stored = SimpleNamespace(answering=lambda questions: [answers(q) for q in questions])
    return ask_outside(SimpleNamespace(domain=stated, X=X, n=len(X), stored=stored))


@pytest.mark.parametrize("name", HALF_GUARDS)
def test_a_guard_that_looks_at_less_than_the_domain_is_seen(name):
    X, stated, lets = HALF_GUARDS[name]
    assert asked_about(X, stated, lambda q: q.dtype.kind == "f" and bool(lets(q)))["answered"] > 0


def test_who_answers_nothing_at_all_enforces_nothing():
    told = asked_about(NUMBERS, {"box": [[-1.0, 1.0]] * 3}, lambda q: False)
    assert "did not answer about a record inside" in told["problem"]


def test_values_that_are_missing_in_any_way_are_read():
    frame = pd.DataFrame({"a": pd.array([1, None, 2], dtype="Int64"), "b": [0.5, np.nan, None]})
    stated = Domain.read({"a": (0, 2, None), "b": (0, 1, None)}).payload()
    assert AcceptedQuestions(stated).holds(frame).all()
    narrow = Domain.read({"a": (0, 2), "b": (0, 1, None)}).payload()
    assert AcceptedQuestions(narrow).holds(frame).tolist() == [True, False, True]


def test_columns_in_another_order_are_no_accepted_question():
    stated = Domain.read({0: (0, 1), 1: (0, 100)}).payload()
    assert not AcceptedQuestions(stated).holds(pd.DataFrame({1: [90.0], 0: [0.5]})).any()
    fitted = LogisticRegression().fit(pd.DataFrame({"a": NUMBERS[:, 0], "b": NUMBERS[:, 1]}), LABELS)
    model = Refusing(fitted, {"box": [[-1.0, 1.0]] * 2, "names": ["a", "b"]})
    for odd in (deque([[9.0, 0.0]]), [[9.0, 0.0]], np.array([[np.nan, 0.0]])):
        with pytest.raises(QuestionRefusedError):
            model.predict_proba(odd)
    with pytest.raises(QuestionRefusedError):
        model.predict_proba(X=pd.DataFrame({"b": [0.1], "a": [0.2]}))


class Handing(ClassifierMixin, BaseEstimator):
    """Answers by the methods of the model inside of it."""

    def fit(self, X, y):
        self.inner_ = LogisticRegression().fit(X, y)
        return self

    def __getattr__(self, name):
        if name == "inner_":
            raise AttributeError(name)
        return getattr(self.inner_, name)


def test_methods_that_are_a_part_of_the_models_refuse_too():
    model = Refusing(Handing().fit(NUMBERS, LABELS), {"box": [[-1.0, 1.0]] * 3})
    assert model.predict_proba(NUMBERS).shape == (120, 2)
    for way in (model.predict_proba, model.predict, model.decision_function):
        with pytest.raises(QuestionRefusedError):
            way(NUMBERS + 9)


def test_what_is_no_number_or_too_large_for_one_is_no_accepted_question():
    box = AcceptedQuestions({"box": [[-1.0, 1.0]] * 2})
    for odd in ([[0.5 + 9j, 0]], [["1970-01-01", "1970-01-01"]], [[10**400, 0]], [["0.5", 0]]):
        kind = "M8[ns]" if "1970-01-01" in odd[0] else None if 0.5 + 9j in odd[0] else object
        assert not box.holds(np.array(odd, dtype=kind)).any()
    named = Domain.read({"a": (0, 1)})
    assert not named.holds(pd.DataFrame({"a": [10**400, 0.5 + 9j, pd.Timestamp(0)]}, dtype=object)).any()


def by_place(X):
    return np.asarray(X)[:, :2]


@pytest.mark.quick(3)
@pytest.mark.parametrize("release", [Release(), Release(floor=0.01)], ids=["sklearn", "generic"])
@pytest.mark.parametrize("domain", [Domain(box=((-1, 1), (0, 100))), Domain.read({"a": (-1, 1), "b": (0, 100)})])
@pytest.mark.parametrize("first", ["by name", "by place"])
def test_a_frame_of_other_columns_is_refused_however_the_model_reads_it(registry, release, domain, first):
    """The ranges hold by name, or by place, and the first step reads the columns the other way."""
    frame = pd.DataFrame({"a": NUMBERS[:, 0], "b": NUMBERS[:, 1] * 50 + 50})
    named = ColumnTransformer([("numbers", "passthrough", ["a", "b"])])
    model = make_pipeline(named if first == "by name" else FunctionTransformer(by_place), LogisticRegression())
    info = log_model(
        Recipe(model, seed=1),
        TrainingData(frame, LABELS, domain=domain, one_record_each=True),
        release=release,
        store="artifacts",
    )
    ways = [mlflow.pyfunc.load_model(info.model_uri).predict]
    if release.exact:
        ways = [mlflow.sklearn.load_model(info.model_uri).predict_proba]  # no schema puts columns in order there
    odd = [pd.DataFrame({"b": [0.5], "a": [90.0]}), pd.DataFrame({"b": [90.0], "a": [0.5]}), frame[["a", "b", "a"]]]
    for X in (*odd, frame.assign(z=0.0)[["z", "a", "b"]]):
        for way in ways:
            with pytest.raises(Exception, match="lies outside of what this model is declared"):
                way(X)
    assert all(len(way(frame)) == len(frame) for way in ways)
