"""Steps that learn are carried without each unit exactly: everything is compared with refits of the whole pipeline."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.decomposition import PCA
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MaxAbsScaler, MinMaxScaler, OneHotEncoder, OrdinalEncoder, StandardScaler

from privgate import Recipe, Subject, TrainingData
from privgate.families import answer
from privgate.families.pipelines import carried, carry
from privgate.families.pipelines.carried_logistic import ENGINE, view
from privgate.subject.containers import take

EXACT = LogisticRegression(solver="newton-cholesky", tol=1e-11)
NUMBERS = ["age", "pay", "far"]


def frame(n=32, seed=0):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": rng.integers(20, 60, n).astype(float),
            "pay": np.where(rng.random(n) < 0.2, np.nan, rng.lognormal(size=n)),
            "far": rng.normal(size=n) * 4 - 9,
            "work": rng.choice(np.array(["a", "b", "c", np.nan], dtype=object), n, p=[0.5, 0.3, 0.15, 0.05]),
        }
    )
    made.loc[3, "work"] = "nobody else's"
    made.loc[5, "pay"] = 500.0
    return made, (made["age"] + 20 * (made["work"] == "a") + 10 * rng.normal(size=n) > 45).to_numpy().astype(int)


def encoded(**how):
    return make_pipeline(
        SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="infrequent_if_exist", **how)
    )


def of(numbers, words=None, last=EXACT):
    parts = [(numbers, NUMBERS)] + ([] if words is None else [(words, ["work"])])
    return make_pipeline(make_column_transformer(*parts), last)


def scaled(strategy, scaler=None, **how):
    return make_pipeline(SimpleImputer(strategy=strategy, **how), scaler or StandardScaler())


PIPELINES = {
    "mean": of(scaled("mean"), encoded()),
    "median": of(scaled("median"), encoded(min_frequency=3)),
    "most frequent": of(scaled("most_frequent"), encoded(min_frequency=0.1)),
    "constant": of(scaled("constant", fill_value=-3.0), encoded(drop="first")),
    "min and max": of(scaled("constant", MinMaxScaler(), fill_value=-3.0)),
    "largest": of(scaled("constant", MaxAbsScaler(), fill_value=0.0, keep_empty_features=True)),
    "spread alone": of(scaled("median", StandardScaler(with_mean=False))),
    "mean alone": of(scaled("mean", StandardScaler(with_std=False)), encoded()),
    "no scaler": of(SimpleImputer(), OneHotEncoder(handle_unknown="ignore", sparse_output=False)),
    "codes": of(
        scaled("mean"), OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1, encoded_missing_value=-2)
    ),
    "balanced": of(scaled("mean"), encoded(), clone(EXACT).set_params(class_weight="balanced")),
    "class weights": of(scaled("median"), last=clone(EXACT).set_params(class_weight={0: 0.2, 1: 7.0})),
    "unpenalised no more": of(scaled("mean"), encoded(), LogisticRegression(C=100.0, solver="newton-cg", tol=1e-9)),
}


def subject_of(estimator, X, y, **more):
    return Subject.local(Recipe(estimator), TrainingData(X, y, **more))


def refit(subject, unit, rows):
    """Log-probabilities at pool rows without a unit, by the whole pipeline; None where it raises."""
    X, y, pool = subject.data.X, subject.data.y, subject.data.pool()[0]
    keep = np.setdiff1d(np.arange(len(y)), subject.data.units[unit])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = clone(subject.recipe.training).fit(take(X, keep), y[keep])
            return model.predict_log_proba(take(pool, rows))
        except ValueError:
            return None


def worst(subject, made):
    """Largest difference to refits beyond what the engine says it may be off by."""
    found = 0.0
    for k, unit in enumerate(made.units):
        at = np.flatnonzero(made.row_unit == k)
        expected = refit(subject, int(unit), made.row_query[at])
        assert expected is not None
        found = max(found, float(np.abs(expected - made.log_without[0, at]).max()) - float(made.error[k]))
    return found


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", PIPELINES)
def test_equals_refits_of_the_whole_pipeline(name, fleet):
    X, y = frame()
    outside = X.iloc[:6].assign(pay=[np.nan, 1.0, 2.0, np.nan, 9.0, 3.0]), y[:6]
    subject = subject_of(PIPELINES[name], X, y, candidates=outside)
    assert ENGINE.supports(subject) == ""
    units = np.arange(32)
    asked = np.repeat(units, 3), np.column_stack([units, 32 + units % 6, units[::-1]]).ravel()

    made, handed_on = ENGINE.leave_out(subject, units, (None,), fleet, queries=asked)

    assert worst(subject, made) <= 1e-8
    assert np.median(made.error) < 1e-4
    assert len(handed_on) <= (12 if name in ("min and max", "largest", "codes") else 6)
    assert name in ("min and max", "largest", "spread alone", "class weights") or 3 in handed_on


@pytest.mark.quick(2)
@pytest.mark.parametrize("weight", ["balanced", {0: 3.0, 1: 0.5}])
@pytest.mark.parametrize("grouped", [False, True])
def test_class_weights_without_any_first_step(weight, grouped, fleet):
    rng = np.random.default_rng(1)
    X = rng.normal(size=(60, 3))
    y = np.where(rng.random(60) < 0.1, 1, 0)
    y[:3] = 1
    estimator = clone(EXACT).set_params(class_weight=weight)
    subject = subject_of(estimator, X, y, groups=np.arange(60) // 2 if grouped else None)
    got = answer(subject, np.arange(len(subject.data.units)), (None,), fleet)
    assert set(got.retrained.engine) == {"logistic_carried"}
    assert [c.outcome for c in got.rechecks] == ["passed"]
    assert worst(subject, got.retrained) <= 1e-8


@pytest.mark.quick(1)
@pytest.mark.parametrize("name", ["mean", "median", "most frequent"])
def test_people_with_several_records_and_three_classes(name, fleet):
    X, y = frame(50, seed=4)
    y = y + (X["far"] > -9).to_numpy()
    subject = subject_of(PIPELINES[name], X, y, groups=np.arange(50) % 20)
    made, handed_on = ENGINE.leave_out(subject, np.arange(20), (None,), fleet)
    assert worst(subject, made) <= 1e-8
    assert len(handed_on) < 10


@settings(max_examples=25, deadline=None)
@given(
    st.lists(st.one_of(st.none(), st.integers(-3, 3), st.floats(-1e3, 1e3)), min_size=6, max_size=14),
    st.sampled_from(["mean", "median", "most_frequent"]),
    st.integers(1, 4),
)
def test_what_is_carried_is_what_the_library_learns(values, strategy, people):
    column = np.array([np.nan if v is None else float(v) for v in values])[:, None]
    column = np.column_stack([column, np.arange(len(column)) % 5 + 1.0])
    if np.isfinite(column[:, 0]).sum() < 2:
        return
    groups = np.arange(len(column)) // people
    members = [np.flatnonzero(groups == k) for k in np.unique(groups)]
    steps = make_pipeline(SimpleImputer(strategy=strategy), StandardScaler())
    fitted = clone(steps).fit(column)
    try:
        found = carry.carry(fitted, carried.given(column, len(members)), carried.Who(len(column), members))
    except carried.NotCarried:  # a feature that is constant but for rounding
        return
    for u, rows in enumerate(members):
        keep = np.setdiff1d(np.arange(len(column)), rows)
        if found.otherwise[u] or not np.isfinite(column[keep, 0]).any():
            continue
        theirs = clone(steps).fit(column[keep]).transform(column)
        ours = found.a[u] * found.Z + found.b[u] + found.g[u] * found.M
        np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-6)


def test_the_chain_rechecks_it_and_refits_the_rest(fleet):
    X, y = frame()
    got = answer(subject_of(PIPELINES["mean"], X, y), np.arange(32), (None,), fleet)
    assert [c.outcome for c in got.rechecks] == ["passed"]
    assert set(got.retrained.engine) == {"logistic_carried", "refit"}
    assert got.rechecks[0].detail["notes"]["learns_otherwise"] == int((got.retrained.engine == "refit").sum())


REFUSED = {
    "lbfgs": (of(scaled("mean"), last=LogisticRegression()), "may stop before its gradient"),
    "clip": (of(scaled("constant", MinMaxScaler(clip=True))), "clips"),
    "weighed": (
        make_pipeline(
            ColumnTransformer([("a", StandardScaler(), ["age", "far"])], transformer_weights={"a": 9.0}), EXACT
        ),
        "weighed",
    ),
    "twice": (of(scaled("mean", make_pipeline(StandardScaler(), MinMaxScaler()))), "learns"),
    "indicator": (of(scaled("mean", add_indicator=True)), "adds columns"),
    "max_categories": (of(scaled("mean"), encoded(max_categories=2)), "max_categories"),
    "no intercept": (
        of(scaled("mean"), last=clone(EXACT).set_params(fit_intercept=False)),
        "set fit_intercept=True",
    ),
    "last": (of(scaled("mean"), last=OrdinalEncoder()), "no pipeline that ends in"),
}


@pytest.mark.parametrize("name", REFUSED)
def test_what_is_not_carried_is_refused_in_a_sentence(name):
    estimator, said = REFUSED[name]
    X, y = frame()
    subject = subject_of(estimator, X, y)
    assert said in (ENGINE.supports(subject) or ENGINE.declines(subject))


def test_a_record_that_is_the_spread_of_a_feature_is_refitted(fleet):
    X, y = frame()
    X["age"] = 30.0
    X.loc[7, "age"] = 90.0
    subject = subject_of(PIPELINES["mean"], X, y)
    assert view(subject).carried.otherwise[7]
    made, handed_on = ENGINE.leave_out(subject, np.arange(32), (None,), fleet)
    assert 7 in handed_on
    assert worst(subject, made) <= 1e-8


def test_a_column_in_which_everybody_has_a_value_of_their_own_takes_no_table_of_people_times_values():
    n = 20_000
    column = np.arange(n).astype(str).astype(object)[:, None]
    members = list(np.arange(n)[:, None])
    fitted = OneHotEncoder(handle_unknown="ignore", min_frequency=0.5).fit(column)
    found = carry.carry(fitted, carried.given(column, n), carried.Who(n, members))
    assert found.otherwise.all()


def test_frequencies_that_are_shares_move_for_everybody():
    column = np.array(["a"] * 3 + ["b"] * 7, dtype=object)[:, None]
    fitted = OneHotEncoder(handle_unknown="infrequent_if_exist", min_frequency=0.31).fit(column)
    found = carry.carry(fitted, carried.given(column, 10), carried.Who(10, list(np.arange(10)[:, None])))

    def rare(encoder):
        return set(() if encoder.infrequent_categories_[0] is None else encoder.infrequent_categories_[0])

    theirs = [rare(clone(fitted).fit(np.delete(column, k, axis=0))) != rare(fitted) for k in range(10)]
    np.testing.assert_array_equal(found.otherwise, theirs)
    assert 0 < found.otherwise.sum() < 10


def test_a_step_that_is_not_carried_is_not_fitted_to_find_out(monkeypatch):
    def never(*_, **__):
        raise AssertionError("fitted where it is checked")

    monkeypatch.setattr(PCA, "fit", never)
    monkeypatch.setattr(PCA, "fit_transform", never)
    X, y = frame()
    for first in (PCA(), make_column_transformer((make_pipeline(StandardScaler(), PCA()), NUMBERS))):
        assert view(subject_of(make_pipeline(first, EXACT), X[NUMBERS], y)) == "what PCA learns is not carried along"
