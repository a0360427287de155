"""Estimators as JSON: what goes in comes out, and what has no name is refused."""

import json
from types import SimpleNamespace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.ensemble import RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier
from sklearn.gaussian_process.kernels import RBF, WhiteKernel
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import StratifiedKFold
from sklearn.naive_bayes import CategoricalNB, GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, OneHotEncoder, StandardScaler

from privgate import Subject, TrainingData
from privgate.errors import SubjectError
from privgate.subject import estimators, sources, tasks
from privgate.subject.recipe import Recipe
from privgate.theorems import catalogue
from privgate.theorems.pipelines import seen


def resolve(reference):
    return sources.resolve(reference, None)


def through_json(value):
    return estimators.decode(json.loads(json.dumps(estimators.encode(value), allow_nan=False)), resolve)


ESTIMATORS = [
    CategoricalNB(alpha=5.0, min_categories=[3, 4]),
    make_pipeline(StandardScaler(), LogisticRegression(C=0.5)),
    ColumnTransformer([("c", OneHotEncoder(dtype=np.float32), slice(0, 2))], remainder="passthrough"),
    CalibratedClassifierCV(GaussianNB(), cv=StratifiedKFold(3, shuffle=True, random_state=1)),
    GaussianProcessClassifier(1.0 * RBF() + WhiteKernel()),
    RandomForestClassifier(class_weight={0: 1.0, 1: 2.0}, max_features=None),
]


@pytest.mark.parametrize("estimator", ESTIMATORS, ids=lambda e: type(e).__name__)
def test_an_estimator_comes_back_the_same(estimator):
    assert estimators.encode(through_json(estimator)) == estimators.encode(estimator)
    assert repr(through_json(estimator)) == repr(estimator)


@given(
    st.recursive(
        st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
        lambda v: st.lists(v) | st.tuples(v, v) | st.dictionaries(st.text() | st.integers(), v),
        max_leaves=12,
    )
)
def test_any_nest_of_plain_values_comes_back_the_same(value):
    assert through_json(value) == value


def test_dtypes_and_sets_come_back():
    assert through_json(np.dtype("float32")) == np.dtype("float32")
    assert through_json({1, 2}) == {1, 2}


def nested(X, y, *, seed):
    return None


def test_what_has_no_name_or_form_is_refused():
    def other(X, y, *, seed):
        return None

    other.__qualname__ = "nested"
    for value, words in (
        (FunctionTransformer(lambda X: X), "top level of a module"),
        (other, "find again"),
        (object(), "cannot be recorded"),
    ):
        with pytest.raises(SubjectError, match=words):
            estimators.encode(value)


def test_the_seed_reaches_every_nested_random_state():
    pipeline = make_pipeline(StandardScaler(), RandomForestClassifier())
    assert estimators.set_seed(pipeline, 5).get_params()["randomforestclassifier__random_state"] == 5
    params = {"random_state": 0}
    own = SimpleNamespace(get_params=lambda deep: params, set_params=params.update)  # which returns nothing
    assert estimators.set_seed(own, 5) is own
    assert params == {"random_state": 5}


def recorded(estimator, predict=None, root=None):
    payload = {"schema": "privgate/recipe/v1", "kind": "estimator", "estimator": estimator, "params": {}}
    return Recipe.read({**payload, "seed": None, "predict": predict, "dp": None}, root)


RELEASE = "privgate.linear_scores:softmax_scores"


def asked_here(recipe):
    """Ask everything that makes a recorded estimator in the process that checks."""
    return recipe.library_estimator, recipe.estimator_of("sklearn.")


@pytest.mark.parametrize("about", ["", "sklearn.linear_model:RidgeClassifier"])
@pytest.mark.parametrize(
    ("name", "parameter"),
    [("sklearn.datasets._base:os.mkdir", "path"), ("sklearn.datasets:get_data_home", "data_home")],
)
def test_a_recorded_recipe_calls_nothing_in_this_process_by_a_librarys_name(tmp_path, name, parameter, about):
    made = tmp_path / "made"
    evil = {"!": "estimator", "class": name, "params": {parameter: str(made)}}
    outer = {"!": "estimator", "class": about, "params": {"random_state": evil}} if about else evil
    for predict in (None, RELEASE):
        assert asked_here(recorded(outer, predict)) == (None, None)
    assert not made.exists()


@pytest.mark.parametrize("inner", [False, True])
def test_no_folder_of_a_recipe_is_opened_in_the_process_that_checks(tmp_path, inner):
    """A pipeline's ``memory`` is a folder of pickles: whoever fills it would run code outside any box."""
    X = np.random.default_rng(0).normal(size=(40, 2))
    first = make_pipeline(StandardScaler(), memory=str(tmp_path)) if inner else StandardScaler()
    pipeline = make_pipeline(first, LogisticRegression(), memory=None if inner else str(tmp_path))
    recipe = recorded(estimators.encode(pipeline))
    subject = Subject.local(recipe, TrainingData(X, (X[:, 0] > 0).astype(int)))
    assert recipe.library_estimator is None
    assert seen(subject).steps == ()
    assert all(e.supports(subject) for e in catalogue.CLOSED_FORMS)
    assert list(tmp_path.iterdir()) == []


def test_no_record_is_taken_for_the_name_of_a_file_in_the_process_that_checks():
    for reader in (CountVectorizer(input="filename"), HashingVectorizer(input="file")):
        made = make_column_transformer((reader, "text"))
        assert recorded(estimators.encode(make_pipeline(made, LogisticRegression()))).library_estimator is None


def test_a_recipes_own_files_are_not_imported_here_under_a_librarys_name(tmp_path):
    about = "sklearn.linear_model:RidgeClassifier"
    made, place = tmp_path / "made", tmp_path / "src" / (about.partition(":")[0].replace(".", "/") + ".py")
    place.parent.mkdir(parents=True)
    for folder in (place.parent, *place.parent.relative_to(tmp_path / "src").parents[:-1]):
        (tmp_path / "src" / folder / "__init__.py").write_text("")
    place.write_text(f"import os; os.mkdir({str(made)!r})")
    for predict in (None, RELEASE):
        recipe = recorded({"!": "estimator", "class": about, "params": {}}, predict, tmp_path / "src")
        assert asked_here(recipe) == (None, None)
    assert not made.exists()


@pytest.mark.parametrize("about", estimators._READ)
def test_what_is_read_without_the_library_is_what_the_library_has(about):
    own = resolve(about)()
    assert own.get_params().keys() == estimators._READ[about]
    again = recorded(estimators.encode(own)).library_estimator
    assert hasattr(own, "predict_proba")
    assert not isinstance(again, type(own))
    assert vars(again) == vars(own)
    assert tasks.of_estimator(again) == tasks.of_estimator(own)


@pytest.mark.parametrize(
    "spec",
    [
        {"!": "estimator"},
        {"!": "estimator", "class": "sklearn.naive_bayes:GaussianNB", "params": {"nope": 1}},
        {"!": "estimator", "class": "sklearn.naive_bayes:GaussianNB", "params": {"priors": {"!": "slice", "value": 3}}},
    ],
)
def test_a_recorded_estimator_that_cannot_be_made_is_one_sentence(spec):
    with pytest.raises(SubjectError, match="the recipe's estimator cannot be made"):
        _ = recorded(spec).library_estimator
