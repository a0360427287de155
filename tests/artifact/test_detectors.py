"""Every detector on real fitted models: one that carries records, and one beside it that carries none."""

import functools
import pickle

import numpy as np
import pandas as pd
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import (
    BaggingClassifier,
    ExtraTreesClassifier,
    GradientBoostingClassifier,
    HistGradientBoostingClassifier,
    RandomForestClassifier,
    VotingClassifier,
)
from sklearn.feature_extraction.text import CountVectorizer, HashingVectorizer
from sklearn.gaussian_process import GaussianProcessClassifier, GaussianProcessRegressor
from sklearn.kernel_ridge import KernelRidge
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import BernoulliNB, CategoricalNB, GaussianNB
from sklearn.neighbors import KNeighborsClassifier, KNeighborsRegressor
from sklearn.neural_network import MLPClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import MinMaxScaler, OneHotEncoder, QuantileTransformer, StandardScaler
from sklearn.svm import SVC, LinearSVC
from sklearn.tree import DecisionTreeClassifier, DecisionTreeRegressor

from privgate.artifact.examine import found
from privgate.artifact.keepers import KINDS
from privgate.models import KeyedForest

N = 120


@pytest.fixture(scope="module")
def data():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:N, :8], y[:N]


def judged(model, X, y):
    made = model.fit(X, y)
    return found(made, made, X, np.asarray(y))


def kinds(said):
    return {c["kind"] for c in said["carried"] if c["least"] or c["most"]}


TREE = functools.partial(DecisionTreeClassifier, random_state=0)
CARRIES = {
    "neighbours": (KNeighborsClassifier(), "stored_records", N),
    "neighbours of numbers": (KNeighborsRegressor(), "stored_records", N),
    "neighbours behind a scaler": (make_pipeline(StandardScaler(), KNeighborsClassifier()), "exact_rows", N),
    "neighbours in a vote": (
        VotingClassifier([("a", KNeighborsClassifier()), ("b", LogisticRegression())], voting="soft"),
        "stored_records",
        N,
    ),
    "process": (GaussianProcessRegressor(), "stored_records", N),
    "process of labels": (GaussianProcessClassifier(), "stored_records", N),
    "kernel ridge": (KernelRidge(), "stored_records", N),
    "support vectors": (SVC(), "stored_records", None),
    "calibration": (CalibratedClassifierCV(GaussianNB(), method="isotonic", cv=3), "calibration_points", None),
    "quantiles": (make_pipeline(QuantileTransformer(n_quantiles=N), Ridge()), "calibration_points", N),
    "tree": (TREE(), "single_leaf", None),
    "tree behind a scaler": (make_pipeline(StandardScaler(), TREE()), "single_leaf", None),
    "tree of numbers": (DecisionTreeRegressor(random_state=0), "single_leaf", None),
    "forest": (RandomForestClassifier(10, random_state=0), "single_leaf", None),
    "bagged trees": (BaggingClassifier(TREE(), 5, random_state=0), "single_leaf", None),
    "boosted trees": (GradientBoostingClassifier(n_estimators=5), "single_leaf", None),
    "boosted bins": (HistGradientBoostingClassifier(max_iter=5, min_samples_leaf=1), "single_leaf", None),
    "keyed forest": (KeyedForest(10), "single_leaf", None),
    "out of bag": (RandomForestClassifier(20, random_state=0, min_samples_leaf=20, oob_score=True), "per_record", N),
    "whole records in ten trees": (ExtraTreesClassifier(10, min_samples_leaf=20), "reconstruction", None),
    "ends of a scale": (make_pipeline(MinMaxScaler(), LogisticRegression()), "extremes", None),
}
CARRIES_NOTHING = [
    LogisticRegression(max_iter=50),
    make_pipeline(StandardScaler(), LogisticRegression()),
    LinearSVC(),
    GaussianNB(),
    TREE(min_samples_leaf=20),
    RandomForestClassifier(20, min_samples_leaf=20, random_state=0),
    GradientBoostingClassifier(n_estimators=5, min_samples_leaf=20),
    HistGradientBoostingClassifier(max_iter=5),
    KeyedForest(10, min_samples_leaf=20),
    CalibratedClassifierCV(GaussianNB(), method="sigmoid", cv=3),
    make_pipeline(QuantileTransformer(n_quantiles=10), LogisticRegression()),
    MLPClassifier((5,), max_iter=20),
]


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("name", CARRIES)
def test_a_model_that_carries_records_is_found(name, data):
    model, kind, count = CARRIES[name]
    said = judged(model, *data)

    assert kind in kinds(said)
    assert kind in KINDS
    assert not said["unknown"]
    assert said["most"] > 0
    if kind != "reconstruction":
        assert said["least"] >= (count or 1)
    assert 0 <= said["least"] <= said["most"] <= said["n"] == N


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("model", CARRIES_NOTHING, ids=lambda m: type(m).__name__)
def test_a_model_that_carries_none_is_not_accused(model, data):
    said = judged(model, *data)

    assert (said["least"], said["most"], said["unknown"]) == (0, 0, [])
    assert not kinds(said)


def test_records_of_one_record_leaves_are_those_that_a_hand_counts(data):
    X, y = data
    tree = TREE().fit(X, y)
    leaves, counts = np.unique(tree.apply(X), return_counts=True)

    assert judged(TREE(), X, y)["least"] == int((counts == 1).sum())
    assert len(leaves) > (counts == 1).sum()


def test_leaves_of_a_bag_are_of_its_own_records(data):
    X, y = data
    forest = RandomForestClassifier(3, random_state=1).fit(X, y)
    alone = set()
    for tree, bag in zip(forest.estimators_, forest.estimators_samples_, strict=True):
        reached = tree.apply(X[np.unique(bag)])
        leaf, counts = np.unique(reached, return_counts=True)
        alone |= set(np.unique(bag)[np.isin(reached, leaf[counts == 1])])

    assert found(forest, forest, X, y)["least"] == len(alone)


def test_support_vectors_are_counted_once(data):
    X, y = data
    model = make_pipeline(StandardScaler(), SVC())
    said = judged(model, X, y)

    assert said["least"] == said["most"] == len(model[-1].support_)


def test_small_leaves_are_told_of_and_not_counted(data):
    said = judged(TREE(min_samples_leaf=2), *data)
    (small,) = (c for c in said["carried"] if c["kind"] == "small_leaf")

    assert said["most"] == 0
    assert small["beside"] > 0


def test_boosters_of_other_libraries(data):
    lightgbm, xgboost = pytest.importorskip("lightgbm"), pytest.importorskip("xgboost")
    X, y = data
    loose = {"min_child_samples": 1, "min_sum_hessian_in_leaf": 0, "verbose": -1, "n_estimators": 3}
    single = judged(lightgbm.LGBMRegressor(**loose), X, X[:, 0])
    trees = xgboost.XGBRegressor(n_estimators=3, max_depth=8).fit(X, X[:, 0])
    reached = trees.apply(X).reshape(N, -1)
    alone = {i for column in reached.T for i in range(N) if (column == column[i]).sum() == 1}

    assert "single_leaf" in kinds(single)
    assert not kinds(judged(lightgbm.LGBMClassifier(n_estimators=3, verbose=-1), X, y))
    assert found(trees, trees, X, X[:, 0])["least"] == len(alone) > 0
    assert not kinds(judged(xgboost.XGBRegressor(n_estimators=3, max_depth=2, min_child_weight=10), X, X[:, 0]))


NAMES = [f"person{chr(97 + i % 26)}{chr(97 + i // 26)}" for i in range(60)]


def test_words_that_one_document_has():
    texts = [f"good {name}" if i % 2 else "bad film bad" for i, name in enumerate(NAMES)]
    y = np.arange(60) % 2

    assert judged(make_pipeline(CountVectorizer(), LogisticRegression()), texts, y)["least"] == 30
    assert judged(make_pipeline(CountVectorizer(min_df=5), LogisticRegression()), texts, y)["most"] == 0
    assert judged(make_pipeline(HashingVectorizer(n_features=16), LogisticRegression()), texts, y)["most"] == 0


def columns(min_frequency=None):
    one_hot = OneHotEncoder(handle_unknown="ignore", min_frequency=min_frequency)
    return make_pipeline(ColumnTransformer([("c", one_hot, ["town"])], remainder="passthrough"), LogisticRegression())


def test_categories_that_one_record_has():
    frame = pd.DataFrame({"town": ["Ulm", "Bonn"] * 28 + NAMES[:4], "age": np.arange(60.0) % 7})
    y = np.arange(60) % 2

    assert judged(columns(), frame, y)["least"] == 4
    assert judged(columns(), frame.assign(town=["Ulm", "Bonn"] * 30), y)["most"] == 0


def test_codes_of_people_are_categories_too():
    frame = pd.DataFrame({"town": np.arange(60) + 1000, "age": np.arange(60.0) % 7})

    assert judged(columns(), frame, np.arange(60) % 2)["least"] == 60


def test_counts_of_one():
    X = np.zeros((60, 3), dtype=int)
    X[:30, 0] = 1
    X[7, 2] = 1
    y = np.arange(60) % 2

    assert judged(CategoricalNB(), X, y)["least"] == 1
    assert judged(BernoulliNB(), X, y)["least"] >= 1
    X[:40, 2] = 1
    assert judged(CategoricalNB(), X, y)["most"] == 0


def test_a_scale_of_few_records():
    X = np.random.default_rng(0).normal(size=(60, 2))
    X[3:, 1] = np.nan  # three people have told their second number
    one = StandardScaler().fit(X)
    said = found(one, one, X, np.arange(60) % 2)

    assert "few" in kinds(said)
    assert said["least"] == 3
    full = StandardScaler().fit(np.nan_to_num(X))
    assert found(full, full, np.nan_to_num(X), np.arange(60) % 2)["most"] == 0


def test_rows_of_an_embedding():
    torch = pytest.importorskip("torch")
    X = np.column_stack([np.arange(60), np.arange(60) % 4])

    class Net(torch.nn.Module):
        def __init__(self, rows):
            super().__init__()
            self.table, self.out = torch.nn.Embedding(rows, 2), torch.nn.Linear(2, 2)

    own, shared = Net(60), Net(4)
    assert found(own, own, X, np.arange(60) % 2)["least"] == 60
    assert found(shared, shared, X[:, 1:], np.arange(60) % 2)["most"] == 0
    nobody_knows = Net(500)
    said = found(nobody_knows, nobody_knows, X, np.arange(60) % 2)
    assert (said["least"], said["most"]) == (0, 60)


class Caching(LogisticRegression):
    """Keeps something of what it was fitted to, under a name that nobody knows."""

    def __init__(self, keep="rows"):
        super().__init__()
        self.keep = keep

    def fit(self, X, y):
        kept = {
            "rows": X[10:20].copy,
            "single": functools.partial(X[:5].astype, np.float32),
            "transposed": lambda: np.ascontiguousarray(X.T),
            "beside others": lambda: np.column_stack([X, y]),
            "flat": X[:4].ravel,
            "lists": functools.partial(dict, deep=[(X[:3].tolist(), None)]),
            "targets": functools.partial(y.astype, float),
            "closure": functools.partial(functools.partial, np.add, X[:2].copy()),
            "frame": lambda: pd.DataFrame(X[:6]),
            "records": lambda: pd.DataFrame(X[:6]).to_records(index=False),
            "something of each": functools.partial(np.sin, X[:, 0]),
            "nothing": lambda: np.zeros(3),
        }
        self.secret = kept[self.keep]()
        return super().fit(X, y)


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(
    ("keep", "least", "most"),
    [
        ("rows", 10, 10), ("single", 5, 5), ("transposed", N, N), ("beside others", N, N), ("flat", 4, 4),
        ("lists", 3, 3), ("targets", N, N), ("closure", 2, 2), ("frame", 6, 6), ("records", 6, 6),
        ("something of each", 0, N), ("nothing", 0, 0),
    ],
)  # fmt: skip
def test_whatever_holds_rows_is_found(keep, least, most, data):
    said = judged(Caching(keep), *data)

    assert (said["least"], said["most"]) == (least, most), said


class Locked:
    """Cannot be pickled."""

    def __reduce__(self):
        raise TypeError("no")


@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize("hidden", [Locked(), b"x" * 500, pickle.dumps(np.arange(100.0))])
def test_what_cannot_be_walked_may_hold_everybody(hidden, data):
    X, y = data
    model = LogisticRegression().fit(X, y)
    model.hidden_ = hidden
    said = found(model, model, X, y)

    assert len(said["unknown"]) == 1
    assert said["most"] == N


@pytest.mark.filterwarnings("ignore")
def test_files_that_hold_more_than_their_model_are_found_or_unknown(data, tmp_path):
    X, y = data
    model = LogisticRegression().fit(X, y)
    path = tmp_path / "model.pkl"
    stored = pickle.dumps(model)

    def carried(content):
        path.write_bytes(content)
        return found(model, model, X, y, made_of=(("model.pkl", path),))

    assert carried(stored)["most"] == 0
    behind = carried(stored + b"123" + X[:3].tobytes())
    assert (behind["least"], behind["carried"][0]["kind"]) == (3, "exact_rows")
    assert "the files hold" in carried(stored + bytes(10**6))["unknown"][0]
