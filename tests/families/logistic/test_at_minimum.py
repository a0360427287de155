"""Logistic regression at its minimum, behind first steps that learn: next to refits of the whole pipeline."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import KBinsDiscretizer, MinMaxScaler, OneHotEncoder, StandardScaler

from privgate import Policy, evaluate
from privgate.families import catalogue
from privgate.families.answering import answer
from privgate.families.engine import Asked, Declined
from privgate.families.logistic import at_minimum
from privgate.families.pipelines.learned_steps import Followed
from privgate.families.retrained import Shown
from privgate.kernel.sample import exceeding_limit
from privgate.statistics.leakage import largest_change
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

ENGINE = at_minimum.ENGINE
EXACT = LogisticRegression(solver="newton-cholesky", tol=1e-12, max_iter=1000)


def table(rng, n, K=2):
    """Numbers with gaps, a constant, words with gaps, and a word that one person alone has."""
    X = pd.DataFrame({
        "a": rng.normal(5, 2, n), "b": rng.exponential(3, n), "same": 1.5,
        "word": rng.choice(["x", "y", "z"], n, p=[0.6, 0.3, 0.1]).astype(object),
        "kind": rng.choice(["k", "l"], n, p=[0.8, 0.2]),
    })  # fmt: skip
    X.loc[0, "kind"] = "nobody else"
    y = (rng.gumbel(size=(n, K)) + np.outer(X["a"] - 5, np.arange(K)) * 0.5).argmax(axis=1)
    y[:K] = np.arange(K)
    X.loc[rng.random(n) < 0.2, "b"] = np.nan
    X.loc[rng.random(n) < 0.1, "word"] = np.nan
    return X, y


def columns(*, fill="mean", unknown="ignore", drop=None, **scaled):
    words = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown=unknown, drop=drop))
    numbers = make_pipeline(SimpleImputer(strategy=fill), StandardScaler(**scaled))
    kinds = make_column_selector(dtype_include=object), make_column_selector(dtype_include="number")
    return ColumnTransformer([("words", words, ["word", "kind"]), ("numbers", numbers, kinds[1])])


def subject_of(estimator, X, y, **kwargs):
    return Subject.local(Recipe(estimator, seed=0), TrainingData(X, y, **kwargs))


def without(subject, unit, rows):
    """What a refit says at rows of the pool; None where it raises."""
    keep = np.setdiff1d(np.arange(subject.data.n), subject.data.units[unit])
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        try:
            model = clone(subject.recipe.library_estimator).fit(subject.data.X.iloc[keep], subject.data.y[keep])
            return model.predict_log_proba(subject.data.pool()[0].iloc[rows])
        except ValueError:
            return None


def differences(subject, made, some):
    """How far the engine is from refits without some of its units."""
    found = []
    for k in some:
        rows = np.flatnonzero(made.row_unit == k)
        real = without(subject, int(made.units[k]), made.row_query[rows])
        found.append(np.inf if real is None else float(np.abs(real - made.log_without[0, rows]).max()))
    return np.array(found)


def chosen(made, rng, few=10):
    change = largest_change(made.log_with[0], made.log_without[0])
    worst = made.row_unit[np.argsort(-change)[:3]]
    return np.unique([*worst, *rng.choice(len(made.units), min(few, len(made.units)), replace=False)])


@settings(max_examples=4, deadline=None, phases=[Phase.generate])
@given(
    st.integers(0, 2**32), st.sampled_from([2, 3]), st.sampled_from(["mean", "median", "constant", "most_frequent"]),
    st.sampled_from([("ignore", None), ("error", None), ("ignore", "first"), ("ignore", "if_binary")]),
    st.sampled_from([None, {0: 1.0, 1: 3.0}, "balanced"]), st.sampled_from([0.1, 1.0]),
    st.sampled_from([{}, {"with_mean": False}, {"with_std": False}]), st.booleans(),
)  # fmt: skip
def test_equals_refits_of_the_whole_pipeline(seed, K, fill, words, weight, C, scaled, grouped):
    rng = np.random.default_rng(seed)
    X, y = table(rng, 90, K)
    weight = weight | {2: 0.5} if isinstance(weight, dict) and K == 3 else weight
    last = clone(EXACT).set_params(C=C, class_weight=weight)
    steps = columns(fill=fill, unknown=words[0], drop=words[1], **scaled)
    outside = table(rng, 5, K)
    outside[0].loc[0, "kind"] = "k"
    groups = rng.integers(0, 60, 90) if grouped else None
    subject = subject_of(make_pipeline(steps, last), X, y, candidates=outside, groups=groups)
    units = np.arange(len(subject.data.units))

    assert ENGINE.supports(subject) == ""
    made, handed_on = ENGINE.answers(Asked(subject, units, (0,), None))

    assert sorted([*made.units, *handed_on]) == units.tolist()
    assert (differences(subject, made, chosen(made, rng)) < 1e-6).all()
    first = int(np.flatnonzero([0 in rows for rows in subject.data.units])[0])
    if words[0] == "error" or words[1] is not None:  # who alone holds a word is refitted
        assert first in handed_on or made.status[0] == "undefined"
    assert len(made.units) >= 20


def test_one_step_and_further_ones_are_near_the_minimum(monkeypatch):
    rng = np.random.default_rng(0)
    X, y = table(rng, 250)
    subject = subject_of(make_pipeline(columns(), EXACT), X, y)
    monkeypatch.setattr(at_minimum, "_ALONE", 0.0)
    monkeypatch.setattr(at_minimum, "WORST", 0)

    further, _ = ENGINE.answers(Asked(subject, np.arange(250), (0,), None))
    monkeypatch.setattr(at_minimum, "_STEPS", 0.0)
    once, _ = ENGINE.answers(Asked(subject, np.arange(250), (0,), None))

    some = chosen(once, rng, 15)
    change = largest_change(once.log_with[0], once.log_without[0])[some]
    assert (differences(subject, further, some) < 0.01 * change + 1e-5).all()
    assert (differences(subject, once, some) < 0.1 * change + 1e-5).all()
    assert differences(subject, further, some).sum() < differences(subject, once, some).sum() / 3


def test_questions_beside_the_person_are_answered_on_the_changed_features():
    rng = np.random.default_rng(1)
    X, y = table(rng, 80)
    subject = subject_of(make_pipeline(columns(fill="median"), EXACT), X, y, candidates=table(rng, 20))
    units, queries = np.array([0, 7, 30]), (np.repeat([0, 1, 2], 5), rng.integers(0, 100, 15))

    made, left = ENGINE.answers(Asked(subject, units, (0,), None, queries=queries))

    assert len(left) == 0
    assert (differences(subject, made, range(3)) < 1e-6).all()


REFUSED = [
    (make_pipeline(KBinsDiscretizer(), EXACT), "learns in another way"),
    (make_pipeline(MinMaxScaler(), EXACT), "learns in another way"),
    (make_pipeline(FeatureUnion([("s", StandardScaler())]), EXACT), "learns in another way"),
    (make_pipeline(SimpleImputer(add_indicator=True), EXACT), "marks what is missing"),
    (make_pipeline(SimpleImputer(missing_values=0), EXACT), "marks what is missing"),
    (make_pipeline(OneHotEncoder(min_frequency=3), EXACT), "rare categories"),
    (make_pipeline(ColumnTransformer([("s", StandardScaler(), [0])], transformer_weights={"s": 2}), EXACT), "learns"),
    (make_pipeline(StandardScaler(), clone(EXACT).set_params(fit_intercept=False)), "without an intercept"),
    (make_pipeline(StandardScaler(), LogisticRegression(solver="saga")), "saga"),
    (make_pipeline(StandardScaler(), LogisticRegression(l1_ratio=0.5, solver="saga")), "not L2"),
    (make_pipeline(StandardScaler(), LogisticRegression(C=np.inf)), "no penalty"),
    (EXACT, "the engine logistic covers it"),
]


@pytest.mark.parametrize(("estimator", "why"), REFUSED)
def test_what_is_not_followed_goes_to_refits(estimator, why):
    rng = np.random.default_rng(0)
    subject = subject_of(estimator, rng.normal(size=(60, 3)), rng.integers(0, 2, 60))
    assert why in ENGINE.supports(subject)
    assert catalogue.first(subject)[0].name == ("logistic" if estimator is EXACT else "refit")


def test_a_rounded_release_hangs_on_where_training_stops():
    rng = np.random.default_rng(0)
    subject = subject_of(make_pipeline(StandardScaler(), EXACT), rng.normal(size=(60, 3)), rng.integers(0, 2, 60))
    assert ENGINE.supports(subject) == ""
    assert "stops" in ENGINE.supports(replace(subject, release=Release("rounded")))


@pytest.mark.quick(1)
@pytest.mark.parametrize("broken", ["_median", "_scaled", "_held"])
def test_steps_that_are_followed_wrongly_are_seen_and_refitted(monkeypatch, fleet, broken):
    rng = np.random.default_rng(0)
    X, y = table(rng, 60)
    subject = subject_of(make_pipeline(columns(fill="median"), EXACT), X.assign(word="x"), y)
    right = getattr(Followed, broken)
    off = {"_median": lambda self, x, known, old: right(self, x, known, old) + 0.01 * np.arange(60),
           "_scaled": lambda self, *a: right(self, *a)._replace(a=np.full(60, 1.01)),
           "_held": lambda self, step, made: self.unsure.__setitem__(0, False)}  # fmt: skip
    monkeypatch.setattr(Followed, broken, off[broken])
    if broken == "_held":  # nothing is known of the encoder: its columns stay where they are gone
        monkeypatch.setattr(Followed, "_alone", lambda self, held: np.zeros(60, dtype=bool))
        subject = subject_of(make_pipeline(columns(unknown="error"), EXACT), X.assign(word="x"), y)
        made, _ = ENGINE.answers(Asked(subject, np.arange(60), (0,), None))
        assert 0 in made.units
        found = answer(Asked(subject, np.arange(60), (0,), fleet))
        assert set(found.retrained.engine) == {"refit"}
        return

    assert "another way" in ENGINE.declines(subject)
    with pytest.raises(Declined):
        ENGINE.answers(Asked(subject, np.arange(60), (0,), None))
    assert set(answer(Asked(subject, np.arange(60), (0,), fleet)).retrained.engine) == {"refit"}


def test_where_lbfgs_stops_is_measured_and_added(fleet):
    rng = np.random.default_rng(3)
    X, y = table(rng, 260)
    subject = subject_of(make_pipeline(columns(), LogisticRegression(tol=1e-3)), X, y)

    found = answer(Asked(subject, np.arange(260), (0,), fleet))

    made, checked = found.retrained, found.rechecks[0]
    ranked, drawn = made.shown == Shown.RANKED, made.shown == Shown.DRAWN
    assert drawn.sum() == 149
    assert ranked.sum() > 90
    error = np.unique(made.error[ranked])
    assert len(error) == 1
    alone, _ = ENGINE.answers(Asked(subject, made.units, (0,), None))
    gaps = np.abs(alone.log_without[0] - made.log_without[0]).max(axis=1)  # real models stand in for those drawn
    assert error[0] == pytest.approx(gaps[drawn].max(), abs=1e-9)
    assert error[0] > 1e-3
    assert f"training lies within {error[0]:.2g} nats" in checked.message
    assert "149 of them were drawn at random: for all but 1.2 % of people (95 % sure)" in checked.message  # 3 of 260
    assert (made.error[~ranked] == 0).all()
    every = differences(subject, alone, np.flatnonzero(ranked))
    assert (every > error[0]).sum() <= exceeding_limit(0, 149, 260, alpha=0.05)


def test_a_solver_that_stops_far_from_the_minimum_is_refitted(fleet):
    rng = np.random.default_rng(3)
    X, y = table(rng, 60)
    subject = subject_of(make_pipeline(columns(), LogisticRegression(tol=0.5)), X, y)

    found = answer(Asked(subject, np.arange(60), (0,), fleet))

    assert [c.outcome for c in found.rechecks] == ["warned"]
    assert set(found.retrained.engine) == {"refit"}


def test_the_worst_are_looked_at_first_and_where_they_break_a_rule_nobody_else_is(fleet):
    rng = np.random.default_rng(3)
    X, y = table(rng, 400)
    subject = subject_of(make_pipeline(columns(), LogisticRegression()), X, y)
    asked = Asked(subject, np.arange(400), (0,), fleet, limits=(0.01,), breaks=lambda made: "pdtp")

    found = answer(asked)

    assert fleet.calls <= 11
    assert (found.retrained.shown == Shown.DRAWN).sum() == 0
    assert np.isnan(found.retrained.error[found.retrained.shown == Shown.RANKED]).all()
    assert "nobody else was trained without" in found.rechecks[0].message


def test_a_rule_about_a_sample_of_people_refits_these_and_nobody_beside_them():
    """The engine's own sample would come on top of the rule's, and answers about everybody would be for nobody."""
    rng = np.random.default_rng(3)
    X = rng.normal(size=(420, 3))
    recipe = Recipe(make_pipeline(StandardScaler(), LogisticRegression(C=0.1)))
    subject = Subject.local(recipe, TrainingData(X, np.arange(420) % 2))

    assert catalogue.first(subject)[0].name == "logistic_minimum"
    with Fleet(jobs=1, ledger="none") as fleet:
        verdict = evaluate(Policy.load("share-1"), subject, fleet=fleet)
    shares = {s.engine: s.asked for s in verdict.evidence.influence.engines}
    assert shares == {"refit": 299}
