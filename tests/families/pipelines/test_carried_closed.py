"""Closed forms behind steps that learn equal refits of the whole pipeline, whatever the design; nobody is fixed."""

import warnings

import numpy as np
import pandas as pd
import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.decomposition import PCA
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from privgate import Recipe, Subject, TrainingData
from privgate.families import answer
from privgate.families.pipelines import carried_closed
from privgate.subject.containers import take

NUMBERS = ["age", "pay", "far"]
LASTS = {
    "bayes": (GaussianNB(), carried_closed.BAYES),
    "bayes, much smoothed": (GaussianNB(var_smoothing=0.1, priors=[0.3, 0.7]), carried_closed.BAYES),
    "discriminant": (LinearDiscriminantAnalysis(), carried_closed.LDA),
    "neighbours": (KNeighborsClassifier(3), carried_closed.NEIGHBOURS),
}


def frame(seed, n, missing):
    rng = np.random.default_rng(seed)
    made = pd.DataFrame(
        {
            "age": rng.integers(20, 60, n).astype(float) + rng.normal(size=n),
            "pay": np.where(rng.random(n) < missing, np.nan, rng.lognormal(size=n)),
            "far": rng.normal(size=n) * 4 - 900,
            "work": rng.choice(np.array(["a", "b", "c"], dtype=object), n, p=[0.5, 0.3, 0.2]),
        }
    )
    made.loc[3, "work"] = "nobody else's"
    made.loc[5, "pay"] = 500.0
    return made, (made["age"] + 10 * rng.normal(size=n) > 42).to_numpy().astype(int)


def pipeline(last, strategy, words):
    first = StandardScaler() if strategy is None else make_pipeline(SimpleImputer(strategy=strategy), StandardScaler())
    parts = [(first, NUMBERS)] + ([(OneHotEncoder(handle_unknown="ignore"), ["work"])] if words else [])
    return make_pipeline(make_column_transformer(*parts, sparse_threshold=0), last)


def refitted(subject, unit, rows):
    X, y = subject.data.X, subject.data.y
    keep = np.setdiff1d(np.arange(len(y)), subject.data.units[unit])
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore")
        model = clone(subject.recipe.training).fit(take(X, keep), y[keep])
        asked = take(X, rows)
        own = getattr(model, "predict_log_proba", None)
        return np.log(model.predict_proba(asked)) if own is None else own(asked)


def gap(ours, theirs):
    return np.abs(np.maximum(ours, -700) - np.maximum(theirs, -700)).max()


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", LASTS)
@settings(max_examples=5, deadline=None, phases=(Phase.explicit, Phase.reuse, Phase.generate))
@given(
    seed=st.integers(0, 10**6),
    n=st.integers(24, 48),
    strategy=st.sampled_from([None, "mean", "median", "constant"]),
    words=st.booleans(),
    several=st.booleans(),
)
def test_equals_refits_of_the_whole_pipeline(name, seed, n, strategy, words, several):
    last, engine = LASTS[name]
    X, y = frame(seed, n, 0.0 if strategy is None else 0.2)
    if np.bincount(y, minlength=2).min() < 6:
        y[:6], y[6:12] = 0, 1
    groups = np.arange(n) // 2 if several else None
    # one-hot columns add up to 1: of the discriminants only a shrunken one would take them
    words = words and name != "discriminant"
    subject = Subject.local(Recipe(pipeline(last, strategy, words)), TrainingData(X, y, groups=groups))
    assert engine.supports(subject) == ""
    units = np.arange(len(subject.data.units))

    made, handed_on = engine.leave_out(subject, units, (None,), None)

    for k, unit in enumerate(made.units):
        at = np.flatnonzero(made.row_unit == k)
        expected = refitted(subject, int(unit), made.row_query[at])
        assert gap(made.log_without[0, at], expected) <= 1e-7, (unit, seed)
    alone, largest = (next(u for u in units if record in subject.data.units[u]) for record in (3, 5))
    assert words <= (alone in handed_on)
    if strategy is None:  # without the largest value the scale falls to less than a half
        assert set(handed_on.tolist()) <= ({alone, largest} if words else {largest})


@pytest.mark.parametrize("name", ["bayes", "neighbours"])
def test_the_chain_asks_them_and_refits_those_without_whom_a_category_vanishes(name, fleet):
    X, y = frame(1, 40, 0.2)
    subject = Subject.local(Recipe(pipeline(LASTS[name][0], "mean", words=True)), TrainingData(X, y))
    got = answer(subject, np.arange(40), (None,), fleet)

    assert set(got.retrained.engine) == {LASTS[name][1].name, "refit"}
    assert got.retrained.engine[3] == "refit"
    assert [c.outcome for c in got.rechecks] == ["passed"]


def test_steps_treated_as_fixed_would_be_seen(fleet, monkeypatch):
    X, y = frame(2, 40, 0.0)
    subject = Subject.local(Recipe(pipeline(LASTS["bayes, much smoothed"][0], None, words=False)), TrainingData(X, y))
    inner, moves, owner = carried_closed.BAYES.opened(subject)
    still = type(moves)(moves.Z, moves.raw, np.ones_like(moves.a), 0 * moves.b, 0 * moves.g, moves.M, moves.otherwise)
    monkeypatch.setattr(carried_closed.CarriedBayes, "opened", lambda *_: (inner, still, owner))

    assert [c.outcome for c in answer(subject, np.arange(40), (None,), fleet).rechecks] == ["warned"]


def test_what_is_not_carried_is_left_to_refits():
    X, y = frame(3, 40, 0.0)
    subject = Subject.local(Recipe(make_pipeline(PCA(2), GaussianNB())), TrainingData(X[NUMBERS], y))
    assert "PCA" in carried_closed.BAYES.supports(subject)
    alone = Subject.local(Recipe(GaussianNB()), TrainingData(X[NUMBERS], y))
    assert "no pipeline" in carried_closed.BAYES.supports(alone)
    weighted = Subject.local(
        Recipe(make_pipeline(StandardScaler(), KNeighborsClassifier(weights="distance"))), TrainingData(X[NUMBERS], y)
    )
    assert "weighted" in carried_closed.NEIGHBOURS.supports(weighted)
