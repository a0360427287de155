"""Limits from two fitted models: no question of the domain moves an answer farther, whatever trained them."""

from types import SimpleNamespace

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer, make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression, SGDClassifier
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, PolynomialFeatures, RobustScaler, StandardScaler

from privgate import Domain, Policy, Recipe, Release, Subject, TrainingData
from privgate.check import gate
from privgate.kernel import Case, Refused, limits
from privgate.run.run import Budget
from privgate.theorems import affine_scores, two_models
from privgate.training.fleet import Fleet
from tests.theorems import linear_models as models

LAST = LogisticRegression(C=3.0)


def check_seed(seed):
    rng = np.random.default_rng(seed)
    subject = models.subject_of(rng)
    assert two_models.refusal(subject) == ""
    people = rng.choice(subject.data.n, 3, replace=False)
    model, others, limit = compare(subject, people)
    unit = subject.scale[1] if subject.task == "regression" else 1.0
    for low, high, other in zip(limit.low, limit.high, others, strict=True):
        assert low <= high
        assert models.search_change(rng, subject, model, other, 200, 3) / unit <= high * (1 + 1e-12) + 1e-15
    # few steps of SGD's leave scores so large that an answer is exactly 0
    assert np.isfinite(limit.high).all() or "SGDClassifier" in repr(subject.recipe.library_estimator)


def compare(subject, people):
    """The model of everybody, those without each person, and the limits of them."""
    X, y, estimator = subject.data.X, subject.data.y, subject.recipe.estimator_of("sklearn.")
    keep = [np.arange(len(y)) != person for person in people]
    model, others = models.fit(estimator, X, y), [models.fit(estimator, X[k], y[k]) for k in keep]
    return model, others, models.limits_of(subject, model, others)


@pytest.mark.parametrize("seed", range(12))
def test_no_question_moves_an_answer_beyond_the_limit(seed):
    check_seed(seed)


@pytest.mark.slow
@pytest.mark.parametrize("block", range(100))
def test_ten_thousand_pairs_stay_within_their_limits(block):
    for seed in range(34 * block, 34 * (block + 1)):
        check_seed(1000 + seed)


# Ten ways of reading a model otherwise than the library computes it: each limit was below what two models answered.


def frame(n=30, seed=0):
    rng = np.random.default_rng(seed)
    X = pd.DataFrame({"a": rng.normal(size=n), "b": rng.normal(size=n), "k": rng.choice(["abc", "abcd", "x"], n)})
    return X, (X["a"] + rng.normal(size=n) > 0).astype(int).to_numpy()


AB = ["a", "b"]
A = Domain.read({"a": (-4, 4)})
DOMAIN = Domain.read({"a": (-4, 4), "b": (-4, 4), "k": ["abc", "abcd", "x"]})
FIRST = make_column_transformer((StandardScaler(), AB), (OneHotEncoder(), ["k"]))


def subject_of(estimator, X, y, domain, release=None):
    return Subject.local(Recipe(estimator), TrainingData(X, y, domain=domain, one_record_each=True), release=release)


def limit_without(person, subject):
    """The largest change that was seen, and the limit."""
    model, (other,), limit = compare(subject, [person])
    change = models.search_change(np.random.default_rng(1), subject, model, other)
    assert change <= limit.high[0] * (1 + 1e-12)
    return change, limit.high[0]


def read(estimator, X, y, domain):
    return affine_scores.read(models.fit(estimator, X, y), domain.payload(), X)


@pytest.mark.parametrize(
    ("estimator", "said"),
    [
        (
            make_pipeline(ColumnTransformer([("s", StandardScaler(), AB)], transformer_weights={"s": 3.0}), LAST),
            "weights",
        ),
        (make_pipeline(ColumnTransformer([("s", StandardScaler(copy=False), AB)]), LAST), "copy=False"),
        (make_pipeline(ColumnTransformer([("s", MinMaxScaler(clip=True), AB)]), LAST), "clip"),
        (make_pipeline(FIRST, PolynomialFeatures(), LAST), "PolynomialFeatures"),
        (make_pipeline(FIRST, CalibratedClassifierCV(LAST)), "CalibratedClassifierCV"),
        (make_pipeline(FIRST, SGDClassifier(loss="modified_huber")), "modified_huber"),
        (make_pipeline(FIRST, GaussianNB()), "GaussianNB"),
    ],
)
def test_what_is_not_known_to_be_a_sum_over_columns_is_refused_by_name(estimator, said):
    assert said in two_models.refusal(subject_of(estimator, *frame(), DOMAIN))


class Rounded(StandardScaler):
    def transform(self, X):
        return super().transform(X).round()


def test_a_subclass_and_a_replaced_method_are_refused():
    X, y = frame()
    assert affine_scores.refuse_step(Rounded()).startswith("its first step ")
    fitted = make_pipeline(StandardScaler(), LAST).fit(X[["a"]], y)
    fitted[0].transform = lambda X: np.zeros((len(X), 1))
    assert affine_scores.refuse_step(fitted[0])


def test_what_a_fitted_step_makes_of_its_columns_is_looked_at():
    X, y = frame()
    model = make_pipeline(make_column_transformer((RobustScaler(), AB)), LAST)
    with pytest.raises(affine_scores.Unread, match="another order"):
        affine_scores.read(model.fit(X, y), DOMAIN.payload(), X[["b", "a", "k"]])
    half = X.astype({"a": "float16", "b": "float16"})
    with pytest.raises(affine_scores.Unread, match="precision"):
        affine_scores.read(model.fit(half, y), DOMAIN.payload(), half)
    with pytest.raises(affine_scores.Unread, match="encoder"):
        read(make_pipeline(OneHotEncoder(handle_unknown="ignore"), LAST), X[["a"]].round(), y, A)
    with pytest.raises(affine_scores.Unread, match="stands for a missing"):
        read(make_pipeline(SimpleImputer(missing_values=0), LAST), X[["a"]], y, A)


def test_whole_numbers_are_asked_between_them_and_texts_beyond_their_length():
    X, y = frame()
    whole = np.rint(X[AB].to_numpy()).astype(np.int64)
    limit_without(3, subject_of(make_pipeline(StandardScaler(), LAST), whole, y, Domain(box=[(-0.9, 0.9)] * 2)))
    asked = affine_scores.make_questions([(["abcd"], False)], np.zeros((1, 1), dtype=int), np.array([["ab"]]))
    assert asked[0, 0] == "abcd"
    limit_without(3, subject_of(make_pipeline(FIRST, LAST), X.assign(k=pd.Categorical(X["k"])), y, DOMAIN))


def test_a_value_that_only_one_model_answers_is_without_limit():
    X, y = frame()
    X.loc[5, "k"] = "only"
    domain = Domain.read({"a": (-4, 4), "b": (-4, 4), "k": ["abc", "abcd", "x", "only"]})
    subject = subject_of(make_pipeline(FIRST, LAST), X, y, domain)
    assert np.isinf(compare(subject, [5])[-1].high).all()
    assert limit_without(4, subject)[1] < np.inf


def test_missing_is_a_choice_of_its_own_and_an_end_without_limit_none():
    X, y = frame()
    most, wide = np.finfo(np.float64).max, make_pipeline(StandardScaler(), LAST)
    subject = subject_of(wide, X[AB], y, Domain(box=[(-most, most)] * 2))
    assert np.isinf(compare(subject, [3])[-1].high).all()
    X.loc[2, "a"] = np.nan
    first = make_column_transformer((make_pipeline(StandardScaler(), SimpleImputer(add_indicator=True)), AB))
    domain = Domain.read({"a": (-4, 4, None), "b": (-4, 4), "k": ["abc", "abcd", "x"]})
    assert limit_without(2, subject_of(make_pipeline(first, LAST), X, y, domain))[1] > 0


def test_a_model_that_lacks_what_is_read_loses_no_answers():
    X, y = frame()
    model = models.fit(make_pipeline(StandardScaler(), LAST), X[["a"]], y)
    del model[-1].coef_
    opened = SimpleNamespace(recipe=Recipe(LAST), classes=np.arange(2), domain={"box": [[-1, 1]]}, X=X[["a"]])
    said = affine_scores.table(opened, model, 40).ravel()[1:]
    assert "".join(map(chr, said[np.isfinite(said)].astype(int))) == "reading it raised AttributeError"


def test_answers_that_are_not_those_of_the_coefficients_are_noticed(monkeypatch):
    (X, y), last = frame(), affine_scores.read_last_step
    model = models.fit(make_pipeline(StandardScaler(), LAST), X[AB], y)
    said = model.predict_proba
    model.predict_proba = lambda X: 0.9 * said(X) + 0.05
    monkeypatch.setattr(affine_scores, "read_last_step", lambda model: (model[:-1], last(model[-1])[1]))
    with pytest.raises(affine_scores.Unread, match="coefficients"):
        affine_scores.read(model, Domain(box=[(-1, 1)] * 2).payload(), X[AB])


# The gate.


@pytest.fixture(scope="module")
def fleet():
    with Fleet(jobs=2, ledger="none") as made:
        yield made


def verdict_of(fleet, estimator, *, release=None, policy="dtp-1", limits=None, d=5):
    from sklearn.datasets import load_breast_cancer

    X, y = load_breast_cancer(return_X_y=True)
    rows = np.random.default_rng(0).permutation(len(y))[:60]
    X, y = X[rows, :d], y[rows]
    domain = Domain(box=[(float(a), float(b)) for a, b in zip(X.min(0), X.max(0), strict=True)])
    subject = subject_of(make_pipeline(StandardScaler(), estimator), X, y, domain, release)
    verdict = gate.evaluate(Policy.load(policy), subject, fleet=fleet, limits=limits)
    return verdict, next(f for f in verdict.findings if f.rule == "dtp")


@pytest.mark.quick(1)
@pytest.mark.parametrize("solver", ["saga", "lbfgs", "liblinear"])
def test_a_learnt_scaler_and_any_solver_are_approved_with_one_training_a_person(fleet, solver):
    before = fleet.calls
    verdict, found = verdict_of(fleet, LogisticRegression(C=0.1, solver=solver, max_iter=50, random_state=0))
    assert verdict.outcome == "passed"
    assert found.low <= found.high <= 1
    assert fleet.calls - before < 60 + 40


def test_a_sample_limits_the_share_of_people_over_all_questions(fleet, write_policy):
    rule = "{metric: dtp, aggregate: share_above, threshold: 1, sample: 30, max: 0.1, reason: a share}"
    path = write_policy(f"data: {{people_declared: true}}\nrules:\n  - {rule}\n")
    _, found = verdict_of(fleet, LogisticRegression(C=0.1), policy=str(path))
    assert found.outcome == "passed"
    assert 0 < found.high <= 0.1


def test_a_floor_alone_decides_where_nobody_gets_the_file(fleet):
    steep = LogisticRegression(C=1e4, max_iter=300)
    exact, without = verdict_of(fleet, steep)
    assert without.high == np.inf
    assert any("Release(floor=0.01)" in c.because for c in exact.evidence.influence.certificates if c.name == "linear")
    found = verdict_of(fleet, steep, release=Release(floor=True))[1]
    assert found.high == np.inf
    alone, found = verdict_of(fleet, steep, release=Release(floor=0.01), limits=Budget(file_withheld=True, full=True))
    assert 1 < found.low <= found.high <= -np.log(0.01) + 1e-12
    assert alone.evidence.subject["release"]["alone"]


def test_cases_that_are_none_are_refused():
    table = np.zeros((3, 3, 1))
    arrays = {"column": np.zeros(2, np.int64), "ranges": np.ones(1, np.int64), "with": table, "without": table[None]}
    settings = {"release": "sigmoid", "features": 1, "single": False}
    assert limits(Case("linear", "any", settings, arrays)).high[0] < 1e-12
    for wrong in ({"column": np.ones(2, np.int64)}, {"ranges": np.ones(2, np.int64)}, {"with": table[:2]},
                  {"floor": np.array([0.3, 0.3])}, {"column": np.zeros(1, np.int64)}):  # fmt: skip
        with pytest.raises(Refused):
            limits(Case("linear", "any", settings, {**arrays, **wrong}))
    for wrong in ({"release": "ovr"}, {"features": 0}, {"length": -1.0}, {"deviation": 0.0}):
        with pytest.raises(Refused):
            limits(Case("linear", "any", {**settings, **wrong}, arrays))
