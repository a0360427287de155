"""Random pipelines, ensembles, releases and regressors, refitted by hand: what no limit of theirs may lie below.

``python tests/referee/random_subjects.py 5000`` judges so many people and prints the table. Questions are raw: what the
library answers of records, mixtures, ends of the domain, missing, infinite, huge and unknown values, and empty texts.
"""

import sys
import warnings
from collections import Counter
from functools import cache
from pathlib import Path
from tempfile import TemporaryDirectory

import numpy as np
import pandas as pd
from sklearn.base import clone
from sklearn.compose import ColumnTransformer
from sklearn.ensemble import ExtraTreesClassifier, HistGradientBoostingClassifier, RandomForestClassifier
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LinearRegression, LogisticRegression, Ridge
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB, MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, Normalizer, OneHotEncoder, OrdinalEncoder, PolynomialFeatures
from sklearn.tree import DecisionTreeClassifier

from privgate import Domain, Fleet, Policy, Recipe, Release, Subject, TrainingData
from privgate.check.gate import evaluate
from privgate.controls.odd_questions import make_odd_questions as odd
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import length, stack, take

WORDS = ["red", "green", "blue", "cold", "warm", "small", "large", "old", "new", "sad"]
POLICY = """
schema: privgate/policy/v1
name: random
version: "1"
rules:
  - {metric: %s, max: 1}
"""
#: what rounding of this comparison itself may add to a change, nats or deviations
ROUNDING = 1e-9


def logistic(rng):
    return LogisticRegression(C=float(rng.choice([0.01, 0.1, 1.0])), solver="newton-cholesky", tol=1e-9)


def tree_like(rng):
    seed = int(rng.integers(100))
    return [
        RandomForestClassifier(int(rng.integers(2, 5)), max_depth=2, random_state=seed),
        ExtraTreesClassifier(3, max_depth=2, random_state=seed),
        DecisionTreeClassifier(max_depth=2, random_state=seed),
        HistGradientBoostingClassifier(max_iter=3, max_leaf_nodes=3, min_samples_leaf=5, random_state=seed),
    ][int(rng.integers(4))]


def numbers(rng, n):
    """A table of numbers, with or without a domain, and a model of it."""
    d = int(rng.integers(1, 4))
    X = rng.normal(size=(n, d)) * float(rng.choice([1.0, 30.0]))
    domain = Domain(box=tuple((float(a) - 1, float(b) + 1) for a, b in zip(X.min(0), X.max(0), strict=True)))
    step = [FunctionTransformer(np.log1p), FunctionTransformer(np.arctan), PolynomialFeatures(2), Normalizer(),
            FunctionTransformer(np.sqrt)][int(rng.integers(5))]  # fmt: skip
    if isinstance(step, FunctionTransformer) and step.func in (np.log1p, np.sqrt):
        X = np.abs(X)
    last = [GaussianNB(var_smoothing=0.1), logistic(rng), tree_like(rng), BernoulliNB(),
            make_pipeline(step, logistic(rng)),
            make_pipeline(step, tree_like(rng)),
            make_pipeline(FixedScaler(domain), logistic(rng))]  # fmt: skip
    return X, (domain if rng.random() < 0.6 else None), last[int(rng.integers(len(last)))]


def codes(rng, n):
    """Whole numbers that name categories."""
    V = rng.integers(2, 4, int(rng.integers(1, 4)))
    X = np.column_stack([rng.integers(0, v, n) for v in V])
    domain = Domain(categories=tuple(V.tolist())) if rng.random() < 0.6 else None
    last = [CategoricalNB(min_categories=V.tolist()), MultinomialNB(), BernoulliNB(), tree_like(rng)]
    return X, domain, last[int(rng.integers(len(last)))]


def frame(rng, n):
    """Numbers that may be missing beside categories."""
    X = pd.DataFrame({"age": rng.uniform(18, 90, n), "work": rng.choice(["a", "b", "c"], n)})
    X.loc[rng.random(n) < 0.2, "age"] = np.nan
    age, work = {"age": (0, 120, None)}, {"work": ["a", "b", "c"]}
    number = [FixedScaler(age), SimpleImputer(strategy="constant", fill_value=40.0)][int(rng.integers(2))]
    named = [FixedOneHot(work), OneHotEncoder(categories=[["a", "b", "c"]], handle_unknown="ignore"),
             OrdinalEncoder(categories=[["a", "b", "c"]], handle_unknown="use_encoded_value",
                            unknown_value=float(rng.choice([-1.0, np.nan])))][int(rng.integers(3))]  # fmt: skip
    first = ColumnTransformer([("n", number, ["age"]), ("c", named, ["work"])])
    last = [logistic(rng), tree_like(rng)][int(rng.integers(2))]
    return X, (Domain.read({**age, **work}) if rng.random() < 0.6 else None), make_pipeline(first, last)


def texts(rng, n):
    """Short texts."""
    X = [" ".join(rng.choice(WORDS, int(rng.integers(1, 6)))) for _ in range(n)]
    first = [HashingVectorizer(n_features=8, alternate_sign=False), CountVectorizer(vocabulary=WORDS, binary=True)]
    last = [logistic(rng), MultinomialNB()][int(rng.integers(2))]
    return X, None, make_pipeline(first[int(rng.integers(2))], last)


def regression(rng, n):
    """A table of numbers whose targets are numbers."""
    X = rng.normal(size=(n, int(rng.integers(1, 4))))
    domain = Domain(box=((-6.0, 6.0),) * X.shape[1])
    return X, domain, [Ridge(float(rng.choice([0.1, 10.0]))), LinearRegression()][int(rng.integers(2))]


def drawn(rng):
    """A random subject."""
    n, kind = int(rng.integers(24, 60)), [numbers, codes, frame, texts, regression][int(rng.integers(5))]
    X, domain, model = kind(rng, n)
    y = rng.integers(0, 2 if rng.random() < 0.7 else 3, n)
    if kind is regression:
        y = X @ rng.normal(size=X.shape[1]) + rng.normal(size=n)
    else:
        y[:6] = [0, 1, 0, 1, 0, 1]
    groups = rng.integers(0, n // 2, n) if rng.random() < 0.2 else None
    release = Release() if kind is regression or rng.random() < 0.8 else Release("rounded", step=0.1)
    recipe = Recipe(model, seed=1)
    return kind.__name__, Subject.local(
        recipe, TrainingData(X, y, domain=domain, groups=groups, one_record_each=groups is None), release=release
    )


def questions(subject, rng):
    """Raw questions that the library answers, and the domain accepts."""
    X, domain = subject.data.X, subject.data.domain
    made, model = take(X, np.arange(subject.data.n)), fitted(subject, np.ones(subject.data.n, dtype=bool))
    if isinstance(X, np.ndarray):
        mixed = np.column_stack([rng.choice(column, 100) for column in X.T])
        made = np.concatenate([made, mixed])
        if domain is not None and domain.box is not None:
            low, high = np.array(domain.box).T
            ends = np.where(rng.random((60, len(low))) < 0.5, low, high)
            inner = low + (high - low) * rng.random((200, len(low)))
            made = np.concatenate([made, ends, inner])
    held = made if domain is None else take(made, np.flatnonzero(domain.holds(made)))
    more = [question for _ in range(3) for _, question in odd({}, X, rng)]
    for question in more:
        if domain is not None and not domain.holds(question).all():
            continue
        try:
            answered = np.isfinite(answers(subject, model, question)).all()
        except Exception:  # noqa: BLE001  what the library refuses, it does not answer
            continue
        if answered:
            held = stack(held, question)
    return held, model


def fitted(subject, keep):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        model = clone(subject.recipe.training)
        names = [k for k in model.get_params() if k == "random_state" or k.endswith("__random_state")]
        model.set_params(**dict.fromkeys(names, 1))
        return model.fit(take(subject.data.X, np.flatnonzero(keep)), subject.data.y[keep])


def answers(subject, model, X):
    """Log-probabilities, or numbers in deviations of the targets, of shape (n, K)."""
    with warnings.catch_warnings(), np.errstate(divide="ignore"):
        warnings.simplefilter("ignore")
        if subject.task == "regression":
            return model.predict(X)[:, None] / subject.scale[1]
        return np.log(model.predict_proba(X))


def truth(subject, rng):
    """The largest change of each person, by training again; infinite where only one of the models answers."""
    asked, whole = questions(subject, rng)
    before = answers(subject, whole, asked)
    found = []
    for rows in subject.data.units:
        keep = np.ones(subject.data.n, dtype=bool)
        keep[rows] = False
        if subject.task != "regression" and len(set(subject.data.y[keep])) < len(set(subject.data.y)):
            found.append(np.inf)
            continue
        try:
            after = answers(subject, fitted(subject, keep), asked)
        except Exception:  # noqa: BLE001  ditto
            found.append(np.inf)
            continue
        with np.errstate(invalid="ignore"):
            found.append(float(np.nanmax(np.abs(before - after))))
    return np.array(found), length(asked)


@cache
def policy_of(metric):
    with TemporaryDirectory() as folder:
        path = Path(folder, "policy.yaml")
        path.write_text(POLICY % (metric + (", over: domain" if metric == "sensitivity" else "")))
        return Policy.load(path)


def judged(people, seed=0, fleet=None):
    """Judge random subjects until so many people were; return rows (kind, subjects, people, bounded, asked), above."""
    rng, told, above, done, number = np.random.default_rng(seed), Counter(), [], 0, 0
    while done < people:
        number += 1
        kind, subject = drawn(np.random.default_rng([seed, number]))
        metric = "sensitivity" if subject.task == "regression" else "dtp"
        verdict = evaluate(policy_of(metric), subject, fleet=fleet)
        records = verdict.evidence.records
        found = records.get("dtp_upper") if metric == "dtp" else records.get("moved_upper")
        told[kind, "subjects"] += 1
        done += len(subject.data.units)
        told[kind, "people"] += len(subject.data.units)
        if found is None or not np.isfinite(found).any():
            continue
        place = {name: k for k, name in enumerate(subject.data.person_names.tolist())}
        upper = np.full(len(place), np.inf)  # a check ends where somebody breaks the limit, and says nothing of others
        upper[[place[name] for name in np.asarray(records["unit"]).tolist()]] = found
        if metric == "sensitivity":  # told in residual deviations
            upper = upper * verdict.evidence.influence.sensitivity.residual_outside / subject.scale[1]
        change, asked = truth(subject, rng)
        bounded = np.isfinite(upper)
        told[kind, "bounded"] += int(bounded.sum())
        told[kind, "questions"] += asked
        worse = change > upper * (1 + 1e-9) + ROUNDING
        above += [(number, kind, repr(subject.recipe.training), float(change[k]), float(upper[k]))
                  for k in np.flatnonzero(bounded & worse)]  # fmt: skip
    return told, above


def main(people, seed):
    with Fleet(jobs=1, ledger="none") as fleet:
        told, above = judged(people, seed, fleet)
    kinds = sorted({kind for kind, _ in told})
    print("kind, subjects, people, people with an upper limit, questions")
    for kind in kinds:
        print(kind, *(told[kind, k] for k in ("subjects", "people", "bounded", "questions")), sep=", ")
    print(f"{len(above)} people above their limit")
    for row in above[:20]:
        print(*row)
    return len(above)


if __name__ == "__main__":
    sys.exit(bool(main(int(sys.argv[1]), int(sys.argv[2]) if len(sys.argv) > 2 else 0)))
