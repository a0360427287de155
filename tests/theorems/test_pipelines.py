"""A pipeline is seen through where its first steps learn nothing, and only there; whole refits of it decide."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    StandardScaler,
)

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.check.prepare import facts
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import take
from privgate.theorems import catalogue, pipelines
from privgate.theorems.closed_form import RefitRequest
from privgate.theorems.newton import LOGISTIC
from privgate.theorems.pipelines import seen

KINDS = ["a", "b", "c"]
DOMAIN = Domain.read({"x": (-3, 3), "z": (0, 10, None), "kind": [*KINDS, None], "more": (0, 1)})
EXACT = LogisticRegression(solver="newton-cholesky", tol=1e-10)


def as_a_function(X, y, *, seed):
    return KNeighborsClassifier().fit(X, y)


def frame(n=36, seed=0):
    rng = np.random.default_rng(seed)
    kind = rng.choice(np.array([*KINDS, np.nan], dtype=object), n)
    z = np.where(rng.random(n) < 0.1, np.nan, rng.random(n) * 10)
    made = pd.DataFrame({"x": rng.normal(size=n).clip(-3, 3), "z": z, "kind": kind, "more": rng.random(n)})
    return made, (made["x"] + (made["kind"] == "a") + rng.normal(size=n) > 0.3).to_numpy().astype(int)


def fixed(last=EXACT, domain=DOMAIN):
    steps = make_column_transformer((FixedOneHot(domain), ["kind"]), (FixedScaler(domain), ["x", "z", "more"]))
    return make_pipeline(steps, last)


def subject_of(estimator, X, y, **more):
    return Subject.local(Recipe(estimator), TrainingData(X, y, **more))


def refits(subject):
    """Log-probabilities of every record with and without itself by the whole pipeline: the definition."""
    X, y, answers = subject.data.X, subject.data.y, []
    for rows in subject.data.units:
        keep = np.setdiff1d(np.arange(len(y)), rows)
        with warnings.catch_warnings(), np.errstate(divide="ignore"):
            warnings.simplefilter("ignore")
            model = clone(subject.recipe.training).fit(take(X, keep), y[keep])
            answers.append(np.log(model.predict_proba(take(X, rows))))
    return np.concatenate(answers)


NUMBERS = ["x", "more"]
CODES = OrdinalEncoder(categories=[[*KINDS, np.nan]], encoded_missing_value=3)
UNION = FeatureUnion([("s", FixedScaler(DOMAIN)), ("p", "passthrough")])
CONSTANT = SimpleImputer(strategy="constant", fill_value=-1, keep_empty_features=True)
FIXED = {
    "one-hot and scaler": fixed(),
    "k-nearest behind them": fixed(KNeighborsClassifier(3)),
    "gaussian": fixed(GaussianNB(var_smoothing=0.1)),
    "their own categories": make_pipeline(
        make_column_transformer(
            (OneHotEncoder(categories=[[*KINDS, np.nan]]), ["kind"]),
            ("passthrough", NUMBERS),
        ),
        EXACT,
    ),
    "codes for naive Bayes": make_pipeline(make_column_transformer((CODES, ["kind"])), CategoricalNB(min_categories=4)),
    "a union": make_pipeline(ColumnTransformer([("n", UNION, NUMBERS)]), BernoulliNB()),
    "imputed by a constant": make_pipeline(make_column_transformer((CONSTANT, ["z"])), EXACT),
}


def check_closed_form(subject):
    """The closed form of logistic regression behind first steps answers as refits of the whole pipeline."""
    inner = seen(subject).subject
    answers, rest = LOGISTIC.answers(RefitRequest(inner, np.arange(len(inner.data.units)), (None,), None))
    assert not LOGISTIC.refusal(inner)
    assert not len(rest)
    np.testing.assert_allclose(answers.log_without[0], refits(subject), rtol=0, atol=2e-6)


@pytest.mark.quick(1)
@pytest.mark.parametrize(("name", "grouped"), [*((name, False) for name in FIXED), ("one-hot and scaler", True)])
def test_the_last_step_on_transformed_records_equals_the_whole_pipeline_without_anybody(name, grouped):
    subject = subject_of(FIXED[name], *frame(), groups=np.arange(36) // 2 if grouped else None)
    assert seen(subject).problem == ""
    np.testing.assert_allclose(refits(seen(subject).subject), refits(subject), rtol=0, atol=1e-9)
    if isinstance(FIXED[name][-1], LogisticRegression):
        check_closed_form(subject)


RARE = OneHotEncoder(categories=[[*KINDS, np.nan]], min_frequency=5)
LEARNT = {
    "StandardScaler": StandardScaler(),
    "MinMaxScaler": MinMaxScaler(),
    "OneHotEncoder": make_column_transformer((OneHotEncoder(), ["kind"])),
    "SimpleImputer": make_column_transformer((SimpleImputer(), ["z"])),
    "rare categories": make_column_transformer((RARE, ["kind"])),
    "Normalizer": Normalizer(),
    "(StandardScaler)": ColumnTransformer([("a", "drop", ["kind"])], remainder=StandardScaler()),
}


@pytest.mark.parametrize("name", LEARNT)
def test_steps_that_learn_are_never_treated_as_fixed_and_are_named(name):
    X, y = frame()
    X = X[NUMBERS] if name.endswith(("Scaler", "Normalizer")) else X
    subject = subject_of(make_pipeline(LEARNT[name], EXACT), X, y)
    assert seen(subject).subject is subject
    assert f"depend{'' if name == 'Normalizer' else 's'} on the data" in seen(subject).problem
    assert name in seen(subject).problem
    assert seen(subject).problem in catalogue.reasons(catalogue.applicable(subject)[1])


class Shifty(FixedScaler):
    """Somebody else's class."""


def test_a_subclass_is_somebody_else_s_and_a_lie_about_a_step_is_found_out(monkeypatch):
    X, y = frame()
    for strange in (Shifty({"x": (-3, 3)}), FunctionTransformer(np.log1p, inverse_func=len)):
        own = subject_of(make_pipeline(strange, EXACT), X[["x"]], y)
        assert seen(own).subject is own
    monkeypatch.setitem(pipelines.LEARNS, "StandardScaler", ())
    liar = subject_of(make_pipeline(StandardScaler(), EXACT), X[["x"]], y)
    assert seen(liar).subject is liar
    assert "differently" in seen(liar).problem


def test_a_theorem_speaks_about_every_query_whatever_it_holds():
    X, y = frame()
    subject = subject_of(fixed(), X, y)
    limits, by, _ = catalogue.bound(subject, np.arange(36), None)
    assert set(by) == {"newton"}
    assert np.isfinite(limits.upper).all()
    assert "whatever is asked, the first steps map it into fixed ranges" in limits.assumptions
    assert not any("refuses" in said for said in limits.assumptions)
    rng = np.random.default_rng(5)
    asked = frame(300, seed=9)[0]
    asked.loc[:100, "x"] = rng.normal(size=101) * 1e6
    asked.loc[:50, "kind"] = "nobody declared this"
    asked.loc[50:90, "more"] = rng.choice([-5.0, 7.0], 41)
    full = np.log(clone(fixed()).fit(X, y).predict_proba(asked))
    for k in range(0, 36, 5):
        keep = np.arange(36) != k
        change = np.abs(np.log(clone(fixed()).fit(X[keep], y[keep]).predict_proba(asked)) - full).max()
        assert change <= limits.upper[k] + 1e-9


def test_what_passes_through_undeclared_has_no_theorem_and_the_reason_names_it():
    X, y = frame()
    through = make_pipeline(make_column_transformer((FixedOneHot(DOMAIN), ["kind"]), ("passthrough", ["x"])), EXACT)
    without = subject_of(through, X, y)
    (why,) = catalogue.reasons(catalogue.applicable(without)[1])
    assert "'x'" in why
    assert "domain=" in why
    assert catalogue.applicable(subject_of(through, X, y, domain=DOMAIN))[0]
    outside = X.assign(x=np.where(np.arange(36) == 3, 9.0, X["x"]))
    (why,) = catalogue.reasons(catalogue.applicable(subject_of(through, outside, y, domain=DOMAIN))[1])
    assert "outside the declared domain" in why


def test_parts_that_are_weighed_have_a_closed_form_and_no_theorem():
    parts = [("a", FixedScaler(DOMAIN), NUMBERS)]
    subject = subject_of(make_pipeline(ColumnTransformer(parts, transformer_weights={"a": 9.0}), EXACT), *frame())
    assert any("weighs" in why for why in catalogue.reasons(catalogue.applicable(subject)[1]))
    check_closed_form(subject)


RANGES = {
    "ordinal": OrdinalEncoder(
        categories=[list(range(-9, 10))] * 3, handle_unknown="use_encoded_value", unknown_value=-7
    ),
    "imputed": SimpleImputer(strategy="constant", fill_value=11.0, keep_empty_features=True),
    "selected": ColumnTransformer([("s", "passthrough", [2, 0])], remainder="passthrough"),
}


@pytest.mark.parametrize("name", RANGES)
def test_an_image_holds_what_the_step_makes_of_every_corner_and_of_random_queries(name):
    rng = np.random.default_rng(1)
    low, high = np.array([-2.0, 0.5, -1.0]), np.array([1.0, 3.0, -0.25])
    X = np.round(low + (high - low) * rng.random((400, 3)), 3)
    X[:8] = np.array(np.meshgrid(*zip(low, high, strict=True))).reshape(3, -1).T
    y = np.arange(400) % 2
    subject = subject_of(make_pipeline(RANGES[name], EXACT), X, y, domain=list(zip(low, high, strict=True)))
    inner = seen(subject).subject
    sides = np.array(inner.data.domain.box)
    assert (sides[:, 0] <= inner.data.X).all()
    assert (sides[:, 1] >= inner.data.X).all()
    for kind in (np.float16, np.float32):  # asked in another precision, a step answers in it
        with np.errstate(all="ignore"):
            made = np.asarray(clone(RANGES[name]).fit(X).transform(X.astype(kind)), dtype=np.float64)
        assert ((sides[:, 0] <= made) & (sides[:, 1] >= made)).all()


def test_columns_may_be_named_by_a_selector():
    steps = ColumnTransformer([("n", FixedScaler(DOMAIN), make_column_selector(dtype_include=np.number))])
    behind = seen(subject_of(make_pipeline(steps, EXACT), *frame()))
    assert (behind.problem, behind.steps) == ("", ("FixedScaler",))


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (Recipe(KNeighborsClassifier()), "KNeighborsClassifier; `privgate explain --list --all`"),
        (Recipe(make_pipeline(FixedScaler({"x": (-3, 3), "more": (0, 1)}), KNeighborsClassifier())), "KNeighborsClass"),
        (Recipe(as_a_function), "the recipe is a function"),
        (Recipe(EXACT, predict=refits), "something else than predict_proba"),
        (Recipe(EXACT), "domain=Domain(box="),
        (Recipe(make_pipeline(StandardScaler(), EXACT)), "FixedScaler(domain)"),
    ],
)
def test_why_no_theorem_can_speak_is_told_before_anything_is_trained(recipe, said):
    X, y = frame()
    known = facts(Subject.local(recipe, TrainingData(X[NUMBERS], y, one_record_each=True)))
    assert not known["certificates"]
    assert said in known["why_no_certificate"][0]
