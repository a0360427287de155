"""A pipeline is seen through where its first steps learn nothing, and only there; whole refits of it decide."""

import warnings

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.check.prepare import facts
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import take
from privgate.theorems import catalogue
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
FIXED = {
    "one-hot and scaler": fixed(),
    "k-nearest behind them": fixed(KNeighborsClassifier(3)),
    "gaussian": fixed(GaussianNB(var_smoothing=0.1)),
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


class Shifty(FixedScaler):
    """Somebody else's class."""


SCALER = FixedScaler(DOMAIN)
NOT_SEEN = {
    "(StandardScaler) may depend on the data; ": StandardScaler(),
    "(OneHotEncoder) may": make_column_transformer((OneHotEncoder(), ["kind"])),
    "'remainder' (StandardScaler) may": ColumnTransformer([("a", "drop", ["kind"])], remainder=StandardScaler()),
    "'passthrough' (passthrough) may": make_column_transformer((SCALER, ["z"]), ("passthrough", NUMBERS)),
    "weighed": ColumnTransformer([("a", SCALER, NUMBERS)], transformer_weights={"a": 9.0}),
    "one after the other": make_pipeline(SCALER, FixedScaler(Domain(box=((0, 1),) * 2))),
}


@pytest.mark.parametrize("said", NOT_SEEN)
def test_what_may_learn_is_never_treated_as_fixed_and_is_named(said):
    X, y = frame()
    first = NOT_SEEN[said]
    steps = [first] if not hasattr(first, "steps") else [step for _, step in first.steps]
    subject = subject_of(make_pipeline(*steps, EXACT), X, y)
    assert seen(subject).subject is subject
    assert said in seen(subject).problem
    assert seen(subject).problem in catalogue.reasons(catalogue.applicable(subject)[1])


def test_a_subclass_is_somebody_else_s():
    X, y = frame()
    own = subject_of(make_pipeline(Shifty({"x": (-3, 3)}), EXACT), X[["x"]], y)
    assert seen(own).subject is own


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
