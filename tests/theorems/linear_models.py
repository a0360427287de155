"""Random pipelines with a linear last step, models with and without a person, and questions that would find a lie."""

import warnings

import numpy as np
import pandas as pd
from sklearn import linear_model as lm
from sklearn.base import clone
from sklearn.compose import make_column_transformer
from sklearn.cross_decomposition import PLSRegression
from sklearn.discriminant_analysis import LinearDiscriminantAnalysis
from sklearn.impute import SimpleImputer
from sklearn.naive_bayes import ComplementNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import (
    MaxAbsScaler,
    MinMaxScaler,
    OneHotEncoder,
    OrdinalEncoder,
    RobustScaler,
    StandardScaler,
)
from sklearn.svm import LinearSVR

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.kernel import limits
from privgate.theorems import affine_scores, two_models

TWO = (
    lm.LogisticRegression(C=3.0),
    lm.LogisticRegression(solver="saga", max_iter=20, random_state=0),
    lm.LogisticRegression(solver="liblinear", C=10.0, random_state=0),
    lm.SGDClassifier(loss="log_loss", max_iter=5, random_state=0),
    LinearDiscriminantAnalysis(solver="lsqr", shrinkage=0.3),
)
SEVERAL = (*TWO[:2], *TWO[3:])
NUMBERS = (lm.Ridge(), lm.LinearRegression(), lm.ElasticNet(alpha=0.1), PLSRegression(2), LinearSVR(random_state=0),
           lm.HuberRegressor(), lm.SGDRegressor(random_state=0), lm.BayesianRidge())  # fmt: skip
COUNTS = (MultinomialNB(alpha=0.5), ComplementNB(), ComplementNB(norm=True))
SCALERS = (StandardScaler, RobustScaler, MaxAbsScaler, MinMaxScaler)


def fit(estimator, X, y):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        return clone(estimator).fit(X, y)


def subject_of(rng):
    """A random subject whose models are read."""
    n, kind = int(rng.integers(16, 40)), rng.integers(5)
    K = 2 if kind == 0 else 3
    y = np.concatenate([np.repeat(np.arange(K), 4), rng.integers(0, K, n - 4 * K)])
    if kind == 2:
        y = y + rng.normal(size=n)
    if kind == 4:
        X = rng.poisson(2.0, (n, 4)).astype(float)
        return _subject(COUNTS[rng.integers(3)], X, y, Domain(box=[(0.0, 9.0)] * 4))
    last = (TWO, SEVERAL, NUMBERS, TWO if K == 2 else SEVERAL)[kind]
    last = last[rng.integers(len(last))]
    scale = 10.0 ** rng.integers(-3, 4, 3)
    X = rng.normal(size=(n, 3)) * scale + rng.choice([0.0, 1e3]) * scale + 0.4 * scale * y[:, None]
    wide = rng.choice([0.0, 1.0])
    box = [(float(a - wide * s), float(b + wide * s)) for a, b, s in zip(X.min(0), X.max(0), scale, strict=True)]
    scaler = SCALERS[rng.integers(4)]()
    if kind != 3:
        return _subject(make_pipeline(scaler, last), X, y, Domain(box=box), "regression" if kind == 2 else None)
    frame = pd.DataFrame(X, columns=list("abc")).assign(k=rng.choice(["u", "v", "w"], n), m=rng.choice([1, 2, 3], n))
    frame.loc[rng.integers(0, n, 3), "b"] = np.nan
    encoder = [OneHotEncoder(handle_unknown="ignore"), OneHotEncoder(drop="first", handle_unknown="ignore"),
               OrdinalEncoder(handle_unknown="use_encoded_value", unknown_value=-1)]  # fmt: skip
    first = make_column_transformer(
        (make_pipeline(SimpleImputer(add_indicator=bool(rng.integers(2))), scaler), ["a", "b", "c"]),
        (encoder[rng.integers(3)], ["k", "m"]),
    )
    ends = {name: (*box[j], None) if name == "b" else box[j] for j, name in enumerate("abc")}
    domain = Domain.read({**ends, "k": ["u", "v", "w", "x"], "m": [1, 2, 3, 4]})
    return _subject(make_pipeline(first, last), frame, y, domain)


def _subject(estimator, X, y, domain, task=None):
    return Subject.local(Recipe(estimator, task=task), TrainingData(X, y, domain=domain, one_record_each=True))


def limits_of(subject, model, others):
    """The kernel's limits (low, high) of models without somebody."""
    domain, X = subject.accepted.payload(), subject.data.X
    (head, body), *rest = (affine_scores.read(m, domain, X) for m in (model, *others))
    settings = {"release": affine_scores.RELEASES[int(head[1])], "features": int(head[3]), "single": False}
    return limits(two_models.pose(subject, (body, np.stack([b for _, b in rest])), settings))


def questions(rng, subject, count):
    """Accepted questions: random ones, corners, and mixtures of the two."""
    X = subject.data.X
    columns = two_models.list_columns(subject)
    values = []
    for choices, ranged in columns:
        drawn = [choices[i] for i in rng.integers(0, len(choices), count)]
        if ranged:
            inside = rng.uniform(*choices[:2], count)
            drawn = [v if rng.random() < 0.6 else float(u) for v, u in zip(drawn, inside, strict=True)]
        values.append(drawn)
    if not hasattr(X, "columns"):
        return np.array(values).T
    return pd.DataFrame({n: pd.Series(v, dtype=None if c[1] else object)
                         for n, v, c in zip(X.columns, values, columns, strict=True)})  # fmt: skip


def answers(model, X, task):
    if task == "regression":
        return np.asarray(model.predict(X)).reshape(len(X), -1)
    with np.errstate(divide="ignore"):
        return np.log(model.predict_proba(X))


def search_change(rng, subject, model, other, count=300, rounds=4):
    """The largest change at questions, near the worst of which others are tried."""
    most, X = 0.0, questions(rng, subject, count)
    for _ in range(rounds):
        one, two = (answers(m, X, subject.task) for m in (model, other))
        with np.errstate(invalid="ignore"):
            change = np.where(one == two, 0.0, np.abs(one - two)).max(axis=1)
        most = max(most, float(change.max()))
        best, X = X[change.argmax() :][:1], questions(rng, subject, count)
        keep = rng.random((len(X), X.shape[1])) < 0.7
        if isinstance(X, np.ndarray):
            X = np.where(keep, best, X)
            continue
        for j, name in enumerate(X.columns):
            X.loc[keep[:, j], name] = best.iloc[0, j]
    return most
