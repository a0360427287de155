"""Every knob is a parameter of its learner that moves, and a change touches nothing but the recipe."""

import importlib

import pytest

from privgate import Recipe
from privgate.advice.knobs import KNOBS, find_changes

LIBRARIES = {"LGBM": "lightgbm", "XGBC": "xgboost", "XGBR": "xgboost"}


def learner(name):
    from sklearn.utils import all_estimators

    known = dict(all_estimators())
    if name in known:
        return known[name]
    return getattr(pytest.importorskip(LIBRARIES[name[:4]], reason="an extra"), name)


@pytest.mark.parametrize("name", sorted(KNOBS))
def test_every_knob_moves_from_the_default_of_its_learner_from_weak_to_strong(name):
    made = learner(name)()
    for parameter, direction, values in KNOBS[name]:
        default = made.get_params()[parameter]
        assert 1 < len(values) <= 6
        assert list(values) == sorted(values, reverse=direction == "lower")
        if default is not None and (default > 0 or direction == "higher"):  # else it is unset
            assert (values[-1] < default) if direction == "lower" else (values[-1] > default)
        for value in values if hasattr(made, "_parameter_constraints") else ():  # scikit-learn's say what they take
            made.set_params(**{parameter: value})._validate_params()


def train(X, y, *, seed, C=1.0, other=3):
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression(C=C).fit(X, y)


def logistic(**params):
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return Recipe(make_pipeline(StandardScaler(), LogisticRegression(**params)), seed=0)


def values_of(recipe):
    return [[c.after for c in changes] for changes in find_changes(recipe.payload)]


@pytest.mark.parametrize(
    ("params", "first"),
    [
        ({"C": 0.03}, {"C": 0.01, "solver": "newton-cholesky", "tol": 1e-8}),  # a theorem wants its minimum
        ({"C": 0.03, "solver": "newton-cholesky", "tol": 1e-8}, {"C": 0.01}),
        ({"C": 1e-4}, None),  # at its end
        ({"C": float("nan")}, None),
        ({"C": True}, None),
    ],
)
def test_only_stronger_values_than_the_present_one_are_tried(params, first):
    changes = values_of(logistic(**params))
    assert changes == [] if first is None else changes[0][0] == first


def test_rare_words_go_first_and_no_minimum_is_sought_over_thousands_of_words():
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    words, penalty = values_of(Recipe(make_pipeline(TfidfVectorizer(), LogisticRegression()), seed=0))
    assert (words[0], penalty[0]) == ({"min_df": 5}, {"C": 0.3})
    share = Recipe(make_pipeline(TfidfVectorizer(min_df=0.05), LogisticRegression()), seed=0)
    assert [values[0] for values in values_of(share)] == [{"C": 0.3}]


def test_a_change_is_made_inside_a_pipeline_and_its_diff_says_it():
    recipe = logistic(C=2.0, solver="newton-cholesky", tol=1e-8)
    [[change, *_]] = find_changes(recipe.payload)

    assert change.applied(recipe).training.steps[1][1].C == 0.3
    assert recipe.training.steps[1][1].C == 2.0
    assert change.diff == ["- LogisticRegression: C = 2.0", "+ LogisticRegression: C = 0.3"]
    assert change.says == "LogisticRegression C 2.0 becomes 0.3"


def test_parameters_of_a_function_are_turned_by_their_name():
    recipe = Recipe(train, {"C": 1.0, "other": 3}, seed=0)
    [[change, *_]] = find_changes(recipe.payload)

    assert change.applied(recipe).params == {"C": 0.3, "other": 3}
    assert change.diff == ["- train: C = 1.0", "+ train: C = 0.3"]
    assert values_of(Recipe(train, {"other": 3}, seed=0)) == []


def test_a_recorded_recipe_is_changed_without_importing_what_it_names():
    live = logistic(C=2.0, tol=1e-8, solver="newton-cholesky")
    text = {**live.payload, "estimator": {**live.payload["estimator"], "class": "nowhere:Pipeline"}}
    recorded = Recipe.read(text, None)
    [[change, *_]] = find_changes(recorded.payload)

    assert "'C': 0.3" in str(change.applied(recorded).payload)
    assert "'C': 2.0" in str(recorded.payload)
    with pytest.raises(ImportError):
        importlib.import_module("nowhere")
