"""A pipeline is seen through where its first steps learn nothing, and only there; whole refits of it decide."""

import warnings
from dataclasses import replace

import numpy as np
import pandas as pd
import pytest
from sklearn.base import clone
from sklearn.compose import ColumnTransformer, make_column_selector, make_column_transformer
from sklearn.feature_extraction.text import HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import FeatureUnion, make_pipeline
from sklearn.preprocessing import (
    Binarizer,
    FunctionTransformer,
    MinMaxScaler,
    Normalizer,
    OneHotEncoder,
    OrdinalEncoder,
    PolynomialFeatures,
    StandardScaler,
)

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.check.prepare import facts
from privgate.families import bound, catalogue, certificates
from privgate.families.answering import answer
from privgate.families.bound import Witness
from privgate.families.certificate import Certificate
from privgate.families.engine import Asked
from privgate.families.pipelines.behind import CertificateBehind
from privgate.families.pipelines.seen_through import lifted, seen
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import take

KINDS = ["a", "b", "c"]
DOMAIN = Domain.of({"x": (-3, 3), "z": (0, 10, None), "kind": [*KINDS, None], "more": (0, 1)})
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
    X, y, found = subject.data.X, subject.data.y, []
    for rows in subject.data.units:
        keep = np.setdiff1d(np.arange(len(y)), rows)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            model = clone(subject.recipe.training).fit(take(X, keep), y[keep])
            found.append(np.log(model.predict_proba(take(X, rows))))
    return np.concatenate(found)


NUMBERS = ["x", "more"]
FIXED = {
    "one-hot and scaler": fixed(),
    "k-nearest behind them": fixed(KNeighborsClassifier(3)),
    "gaussian": fixed(GaussianNB(var_smoothing=0.1)),
    "their own categories": make_pipeline(
        make_column_transformer(
            (OneHotEncoder(categories=[[*KINDS, np.nan]]), ["kind"]),
            (make_pipeline(FunctionTransformer(np.arctan), PolynomialFeatures(2)), NUMBERS),
        ),
        EXACT,
    ),
    "codes for naive Bayes": make_pipeline(
        make_column_transformer((OrdinalEncoder(categories=[[*KINDS, np.nan]], encoded_missing_value=3), ["kind"])),
        CategoricalNB(min_categories=4),
    ),
    "a union, binarized": make_pipeline(
        ColumnTransformer([("n", FeatureUnion([("b", Binarizer()), ("p", "passthrough")]), NUMBERS)]), BernoulliNB()
    ),
    "imputed by a constant": make_pipeline(
        make_column_transformer((SimpleImputer(strategy="constant", fill_value=-1, keep_empty_features=True), ["z"])),
        Normalizer(),
        EXACT,
    ),
}


@pytest.mark.quick(1)
@pytest.mark.parametrize(("name", "grouped"), [*((name, False) for name in FIXED), ("one-hot and scaler", True)])
def test_engines_behind_fixed_steps_equal_refits_of_the_whole_pipeline(name, grouped, fleet):
    X, y = frame()
    groups = np.arange(36) // 2 if grouped else None
    subject = subject_of(FIXED[name], X, y, groups=groups)
    assert seen(subject).problem == ""

    got = answer(Asked(subject, np.arange(len(subject.data.units)), (None,), fleet))

    assert [c.outcome for c in got.rechecks] == ["passed"]
    assert set(got.retrained.engine) - {"refit"}
    with np.errstate(divide="ignore"):
        np.testing.assert_allclose(got.retrained.log_without[0], refits(subject), rtol=0, atol=2e-6)
    assert catalogue.first(subject)[0].cost(subject, np.arange(2), (None,)).fits == 0


LEARNT = {
    "StandardScaler": make_pipeline(StandardScaler(), EXACT),
    "MinMaxScaler": make_pipeline(MinMaxScaler(), EXACT),
    "OneHotEncoder": make_pipeline(make_column_transformer((OneHotEncoder(), ["kind"])), EXACT),
    "SimpleImputer": make_pipeline(make_column_transformer((SimpleImputer(), ["z"])), EXACT),
    "min_frequency": make_pipeline(
        make_column_transformer((OneHotEncoder(categories=[[*KINDS, np.nan]], min_frequency=5), ["kind"])), EXACT
    ),
    "remainder": make_pipeline(ColumnTransformer([("a", "drop", ["kind"])], remainder=StandardScaler()), EXACT),
    "of which nothing is known": make_pipeline(FunctionTransformer(np.log1p, inverse_func=len), EXACT),
}


@pytest.mark.parametrize("name", LEARNT)
def test_steps_that_learn_are_never_treated_as_fixed_and_are_named(name):
    X, y = frame()
    subject = subject_of(LEARNT[name], X if name not in ("StandardScaler", "MinMaxScaler") else X[NUMBERS], y)
    found = seen(subject)
    assert found.subject is subject
    if name.startswith("of which"):
        return  # no class of the library alone: nothing is known of the recipe
    assert "depends on the data" in found.problem
    assert name in found.problem or name in ("min_frequency", "remainder")
    assert found.problem in bound.reasons(bound.applicable(subject)[1])


class Shifty(FixedScaler):
    """Somebody else's class."""


def test_a_subclass_is_somebody_else_s_and_a_lie_about_a_step_is_found_out(monkeypatch):
    X, y = frame()
    own = subject_of(make_pipeline(Shifty({"x": (-3, 3)}), EXACT), X[["x"]], y)
    assert seen(own).subject is own
    from privgate.families.pipelines import steps

    monkeypatch.setitem(steps.FIXED, "StandardScaler", lambda step: "")
    liar = subject_of(make_pipeline(StandardScaler(), EXACT), X[["x"]], y)
    assert seen(liar).subject is liar
    assert "differently" in seen(liar).problem


def test_a_theorem_speaks_about_every_query_whatever_it_holds(fleet):
    X, y = frame()
    subject = subject_of(fixed(), X, y)
    witness = Witness(tuple(bound.applicable(subject)[0]))
    assert {c.name for c in witness.certificates} == {"newton"}
    units = np.arange(36)
    got = answer(Asked(subject, units, (None,), fleet, changes=True, asker=witness))
    found = bound.bound(subject, units, got.retrained, witness=witness)[0]
    upper = found.upper
    assert np.isfinite(upper).all()
    assert "whatever is asked, the first steps map it into fixed ranges" in found.assumptions
    assert not any("refuses" in said for said in found.assumptions)
    assert witness.questions

    rng = np.random.default_rng(5)
    asked = frame(300, seed=9)[0]
    asked.loc[:100, "x"] = rng.normal(size=101) * 1e6
    asked.loc[:50, "kind"] = "nobody declared this"
    asked.loc[50:90, "more"] = rng.choice([-5.0, 7.0], 41)
    full = np.log(clone(fixed()).fit(X, y).predict_proba(asked))
    for k in range(0, 36, 5):
        keep = np.arange(36) != k
        change = np.abs(np.log(clone(fixed()).fit(X[keep], y[keep]).predict_proba(asked)) - full).max()
        assert change <= upper[k] + 1e-9


def test_the_bound_is_the_bare_model_s_on_the_transformed_table(fleet):
    X, y = frame()
    piped = subject_of(fixed(), X, y)
    inner = seen(piped).subject
    bare = subject_of(EXACT, inner.data.X, y, domain=inner.data.domain)
    uppers = []
    for subject in (piped, bare):
        got = answer(Asked(subject, np.arange(36), (None,), fleet, changes=True))
        uppers.append(bound.bound(subject, np.arange(36), got.retrained)[0].upper)
    np.testing.assert_array_equal(*uppers)


def test_what_passes_through_undeclared_has_no_theorem_and_the_reason_names_it():
    X, y = frame()
    through = make_pipeline(make_column_transformer((FixedOneHot(DOMAIN), ["kind"]), ("passthrough", ["x"])), EXACT)
    without = subject_of(through, X, y)
    (why,) = bound.reasons(bound.applicable(without)[1])
    assert "'x'" in why
    assert "domain=" in why
    assert bound.applicable(subject_of(through, X, y, domain=DOMAIN))[0]
    outside = X.assign(x=np.where(np.arange(36) == 3, 9.0, X["x"]))
    (why,) = bound.reasons(bound.applicable(subject_of(through, outside, y, domain=DOMAIN))[1])
    assert "outside the declared domain" in why


def test_a_declared_range_that_a_step_makes_infinite_is_not_called_undeclared():
    X = pd.DataFrame({"age": np.arange(1.0, 21.0)})
    behind = make_pipeline(FunctionTransformer(np.log), LogisticRegression())
    data = TrainingData(X, np.arange(20) % 2, domain={"age": (0, 30)}, one_record_each=True)
    (why,) = facts(Subject.local(Recipe(behind, seed=0), data))["why_no_certificate"]
    assert why.startswith("'age' may be infinite where it reaches the last step")


def test_parts_that_are_weighed_have_an_engine_and_no_theorem(fleet):
    X, y = frame()
    parts = [("a", FixedScaler(DOMAIN), NUMBERS)]
    subject = subject_of(make_pipeline(ColumnTransformer(parts, transformer_weights={"a": 9.0}), EXACT), X, y)
    assert any("weighs" in why for why in bound.reasons(bound.applicable(subject)[1]))
    got = answer(Asked(subject, np.arange(36), (None,), fleet))
    assert set(got.retrained.engine) == {"logistic"}
    np.testing.assert_allclose(got.retrained.log_without[0], refits(subject), rtol=0, atol=2e-6)


def test_hashed_text_has_an_engine_and_a_theorem(fleet):
    rng = np.random.default_rng(0)
    words = np.array(["aa", "bb", "cc", "dd", "ee"])
    texts = [" ".join(rng.choice(words, rng.integers(1, 9))) for _ in range(40)]
    y = np.array([int("aa" in t) for t in texts])
    y[:4] = 1 - y[:4]
    hashed = HashingVectorizer(n_features=16, alternate_sign=False, norm=None)
    subject = subject_of(make_pipeline(hashed, EXACT), texts, y)
    got = answer(Asked(subject, np.arange(40), (None,), fleet))
    assert set(got.retrained.engine) == {"logistic"}
    np.testing.assert_allclose(got.retrained.log_without[0], refits(subject), rtol=0, atol=2e-6)
    hashed = HashingVectorizer(n_features=16, alternate_sign=False)
    assert bound.applicable(subject_of(make_pipeline(hashed, EXACT), texts, y))[0]


RANGES = {
    "polynomial": PolynomialFeatures(3),
    "risen": FunctionTransformer(np.expm1),
    "normalized": Normalizer("l1"),
    "binarized": Binarizer(threshold=0.5),
    "ordinal": OrdinalEncoder(
        categories=[list(range(-9, 10))] * 3, handle_unknown="use_encoded_value", unknown_value=-7
    ),
    "imputed": SimpleImputer(strategy="constant", fill_value=11.0, keep_empty_features=True),
    "selected": ColumnTransformer([("s", PolynomialFeatures(2), [2, 0])], remainder="passthrough"),
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
            made = np.asarray(seen(subject).first.transform(X.astype(kind)), dtype=np.float64)
        assert ((sides[:, 0] <= made) & (sides[:, 1] >= made)).all()
    if name in ("polynomial", "risen", "selected"):  # and no wider than half precision rounds, three times at most
        np.testing.assert_allclose(sides[:, 1].max(), inner.data.X.max(), rtol=3.1 * 2.0**-10)


def test_columns_may_be_named_by_a_selector():
    X, y = frame()
    steps = ColumnTransformer(
        [("n", FixedScaler(DOMAIN), make_column_selector(dtype_include=np.number))], remainder="drop"
    )
    found = seen(subject_of(make_pipeline(steps, EXACT), X, y))
    assert found.problem == ""
    assert found.steps == ("FixedScaler",)


def test_features_are_undone_into_records_that_have_them():
    X, y = frame()
    first = seen(subject_of(fixed(), X, y)).first
    rng = np.random.default_rng(0)
    rows = np.zeros((30, 8))  # four kinds, x, z, whether z is missing, more
    rows[np.arange(30), rng.integers(0, 4, 30)] = 1.0
    rows[:5, :4] = 0.0
    rows[:, 4:] = rng.random((30, 4))
    rows[:, 6] = rng.random(30) < 0.3
    rows[rows[:, 6] == 1, 5] = 0.0
    made = lifted(first, rows, X, rng.integers(0, 36, 30))
    assert list(made.dtypes) == list(X.dtypes)
    np.testing.assert_allclose(first.transform(made), rows, atol=1e-12)
    assert DOMAIN.holds(made)[5:].all()
    assert not DOMAIN.holds(made)[:5].any()


class Halved(Certificate):
    """A theorem whose bounds are half of what they should be."""

    name, source, needs_retrained = "newton", "nowhere", False

    def unfit(self, subject):
        return certificates.ALL["newton"].unfit(subject)

    def certify(self, about):
        found = certificates.ALL["newton"].certify(about)
        return replace(found, upper=found.upper / 2)


def test_a_wrong_bound_about_a_pipeline_is_seen_by_real_pipelines(fleet):
    X, y = frame()
    subject, units = subject_of(fixed(), X, y), np.arange(36)
    wrong, right = CertificateBehind(Halved()), CertificateBehind(certificates.ALL["newton"])
    witness = Witness((right,))
    got = answer(Asked(subject, units, (None,), fleet, asker=witness))
    for certificate, objects in ((wrong, True), (right, False)):
        upper = certificate.bound(subject, units, got.retrained).upper
        assert bool(witness.objects(certificate, units, upper)) is objects


@pytest.mark.parametrize(
    ("recipe", "said"),
    [
        (Recipe(KNeighborsClassifier()), "KNeighborsClassifier; `privgate list --all`"),
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
    (why,) = known["why_no_certificate"]
    assert said in why
