"""Numbers that a model's own classes keep: however they are written, the file does not count as carrying nothing."""

import base64
import collections
import functools
import types

import numpy as np
import pandas as pd
import pytest
import torch
from sklearn.datasets import load_breast_cancer
from sklearn.frozen import FrozenEstimator
from sklearn.linear_model import LogisticRegression
from sklearn.mixture import GaussianMixture
from sklearn.neighbors import KNeighborsClassifier
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, KBinsDiscretizer, SplineTransformer

from privgate.artifact import walk
from privgate.artifact.examine import found
from privgate.artifact.walk import Held

N, KEPT = 120, 90


@pytest.fixture(scope="module")
def data():
    X, y = load_breast_cancer(return_X_y=True)
    return X[:N, :8], y[:N]


class Own:
    def __init__(self, kept):
        self.kept = kept

    def predict(self, X):
        return np.zeros(len(X))


def _module(rows):
    made = torch.nn.Linear(8, 2)
    made.register_buffer("rows_of_somebody", torch.as_tensor(rows))
    return made


def _closure(rows):
    return lambda X: X @ rows.T


def _attribute(rows):
    made = LogisticRegression()
    made.rows_of_somebody = rows
    return made


def _order(rows):
    return rows[:, np.random.default_rng(0).permutation(8)]


#: how rows may be kept so that no number of theirs is where it was
WAYS = {
    "scaled": lambda X: Own(X * 3.7 + 1),
    "standardized": lambda X: Own((X - X.mean(0)) / X.std(0)),
    "logarithms": lambda X: Own(np.log1p(X)),
    "other order of columns": lambda X: Own(_order(X)),
    "single precision, other order": lambda X: Own(_order(X.astype(np.float32))),
    "rounded": lambda X: Own(np.round(X, 1)),
    "whole numbers": lambda X: Own((X * 1000).astype(np.int64)),
    "some columns": lambda X: Own(X[:, :6]),
    "among others": lambda X: Own(np.hstack([np.ones((KEPT, 6)), X, np.ones((KEPT, 6))])),
    "bits": lambda X: Own(np.ascontiguousarray(X).view(np.uint64) ^ 12345),
    "complex": lambda X: Own(X[:, :4] + 1j * X[:, 4:]),
    "times": lambda X: Own((X * 1e6).astype("timedelta64[us]")),
    "one number": lambda X: Own(int.from_bytes(X.tobytes(), "big")),
    "base 64": lambda X: Own(base64.b64encode(X.tobytes()).decode()),
    "text": lambda X: Own("\n".join(",".join(map(repr, row)) for row in X.tolist())),
    "words": lambda X: Own(X.astype(str)),
    "frame of objects": lambda X: Own(pd.DataFrame(X).astype(object)),
    "namespace": lambda X: Own(types.SimpleNamespace(rows=list(X * 2))),
    "deque": lambda X: Own(collections.deque((X * 2).tolist())),
    "mapping": lambda X: Own({i: tuple(row) for i, row in enumerate((X * 2).tolist())}),
    "partial": lambda X: Own(functools.partial(np.dot, X * 2)),
    "closure": lambda X: Own(_closure(X * 2)),
    "function of a step": lambda X: make_pipeline(FunctionTransformer(_closure(X * 2)), LogisticRegression()),
    "buffer": lambda X: _module(X * 2),
    "buffer in half precision": lambda X: _module(X.astype(np.float16)),
    "attribute of a learner": lambda X: _attribute(X * 2),
}


@pytest.mark.parametrize("way", WAYS)
def test_rows_of_an_own_class_are_never_nothing(way, data):
    X, y = data
    model = WAYS[way](X[np.random.default_rng(1).permutation(N)[:KEPT]])
    said = found(model, model, X, y)

    assert said["most"] >= KEPT
    assert any("whose meaning nobody here knows" in text for text in said["unknown"]) or said["least"] >= KEPT


@pytest.mark.parametrize(
    "model",
    [
        Own({"weights": np.ones((8, 2)), "mean": np.zeros(8), "scale": np.ones(8), "threshold": 0.5}),
        Own([LogisticRegression(), "a remark", 3]),
        torch.nn.Sequential(torch.nn.Linear(8, 64), torch.nn.BatchNorm1d(64), torch.nn.Linear(64, 64)),
    ],
    ids=["weights and scales", "parts", "network"],
)
def test_weights_and_scales_are_no_records(model, data):
    X, y = data
    said = found(model, model, X, y)

    assert (said["least"], said["most"], said["unknown"]) == (0, 0, [])


def test_rows_but_for_their_last_digits_are_records(data):
    X, y = data
    mixture = GaussianMixture(n_components=40, random_state=0)
    mixture.fit(X)
    alone = sum(np.isclose(X, mean, rtol=1e-9).all(axis=1).any() for mean in mixture.means_)

    assert found(mixture, mixture, X, y)["least"] >= max(1, alone // 2)
    half = Own(X[:KEPT].astype(np.float16))
    assert found(half, half, X, y)["least"] > KEPT // 2


@pytest.mark.parametrize(
    "step",
    [
        KBinsDiscretizer(3, strategy="uniform", encode="ordinal"),
        KBinsDiscretizer(5, strategy="quantile", encode="ordinal", quantile_method="averaged_inverted_cdf"),
        SplineTransformer(4),
    ],
    ids=["equal bins", "quantiles", "splines"],
)
def test_edges_of_bins_and_knots_are_of_single_records(step, data):
    X, y = data
    model = make_pipeline(step, LogisticRegression(max_iter=200)).fit(X, y)
    (kind,) = found(model, model, X, y)["carried"]
    ends = [(column == end(column)) for column in X.T for end in (np.min, np.max)]

    assert kind["kind"] == "calibration_points"
    assert kind["least"] >= len({int(np.flatnonzero(e)[0]) for e in ends if e.sum() == 1})


def test_a_frozen_learner_is_looked_into(data):
    X, y = data
    model = FrozenEstimator(KNeighborsClassifier().fit(X, y))

    assert found(model, model, X, y)["least"] == N


def test_numbers_go_on_behind_texts_gaps_and_truths(tmp_path):
    frame = pd.DataFrame({"a": [1.25, np.nan, 3.5], "where": ["12 Long Road", "7", "x"], "b": [0.5, 4.75, 9.0]})
    frame["c"] = [True, False, True]
    (tmp_path / "input_example.json").write_text(
        '{"columns": ["a", "where", "b", "c"], "data": [[1.25, "12 Long Road", 0.5, true], [null, "7", 4.75, false]]}'
    )
    held = Held()
    walk.read(tmp_path / "input_example.json", "input_example.json", held)
    runs = [array.rows(3) for _, array in held.arrays]
    wanted = frame[["a", "b", "c"]].to_numpy(dtype=np.float64)[:2]

    assert all(any(any(np.array_equal(row, w, equal_nan=True) for row in r) for r in runs) for w in wanted)
