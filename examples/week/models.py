"""Sixteen models of ordinary sizes, each as its team would write and log it.

Parameters are the library's but for those named. Records are people of UCI Adult (Becker and Kohavi 1996, CC BY 4.0),
drawn texts or drawn numbers.
"""

import os
from collections.abc import Callable
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pandas as pd
from numpy.typing import NDArray

from privgate import Claim, Recipe, Release, TrainingData

#: the whole of Adult as adult.csv.gz, which is not part of this repository
FOLDER = Path(os.environ.get("PRIVGATE_DATA", "../shared/data"))
NUMBERS = ["age", "education_num", "capital_gain", "capital_loss", "hours_per_week"]
WORDS = ["workclass", "education", "marital_status", "occupation", "relationship", "race", "sex", "native_country"]


@dataclass(frozen=True)
class Model:
    """One of the week.

    Parameters
    ----------
    estimator : callable
        Makes the unfitted estimator, or is a training function ``(X, y, *, seed)``.
    data : callable
        Returns the data, people outside included.
    logged : {"privgate", "lightgbm", "xgboost"}
        What logs it: ``privgate.log_model``, or the library's own ``log_model`` and then ``log_recipe``.
    floor : bool
        No answer is served below 1 %, and nobody gets the file.
    claim : Claim, optional
        Of private training.
    refits : int
        People left out by hand; of 100, nobody tells 1 % from 5.
    """

    estimator: Callable[..., Any]
    data: Callable[[], TrainingData]
    logged: Literal["privgate", "lightgbm", "xgboost"] = "privgate"
    floor: bool = False
    claim: Claim | None = None
    refits: int = 100

    def recipe(self) -> Recipe:
        """Return how it is trained."""
        if self.claim:  # noise that follows from a recorded seed is none
            return Recipe(self.estimator, seed=None, dp=self.claim)
        return Recipe(self.estimator(), seed=7)

    @property
    def policy(self) -> str:
        """By which policy: without a recorded seed ``release-1`` leaves each of 300 people out at 75 pairs of seeds."""
        return "dp-trained" if self.claim else "release-1"

    def release(self) -> Release:
        """Return what is served."""
        return Release(floor=self.floor)


@cache
def _adult() -> pd.DataFrame:
    table = pd.read_csv(FOLDER / "adult.csv.gz", na_values=["?"])
    return table.sample(frac=1.0, random_state=0).reset_index(drop=True)


def split_people(X: Any, y: NDArray[Any], people: int, outside: int) -> TrainingData:
    """Return the first rows as people who were trained on, and the next as people outside."""
    cut = (lambda a, b: X.iloc[a:b].reset_index(drop=True)) if hasattr(X, "iloc") else (lambda a, b: X[a:b])
    end = people + outside
    return TrainingData(cut(0, people), y[:people], candidates=(cut(people, end), y[people:end]), one_record_each=True)


def read_columns(people: int, outside: int = 1500) -> TrainingData:
    """Return a frame of numbers and words."""
    X = _adult()[NUMBERS + WORDS].fillna(dict.fromkeys(WORDS, "unknown"))
    return split_people(X, _adult()["income"].to_numpy(), people, outside)


def read_numbers(people: int, outside: int = 1500) -> TrainingData:
    """Return the numeric columns."""
    return split_people(_adult()[NUMBERS].astype(float), _adult()["income"].to_numpy(), people, outside)


def read_codes(people: int, outside: int = 1500) -> TrainingData:
    """Return all columns as numbers, words by their place in the alphabet, and the label as 0 or 1."""
    codes = {name: pd.Categorical(_adult()[name].fillna("unknown")).codes.astype(float) for name in WORDS}
    y = (_adult()["income"] == ">50K").to_numpy().astype(np.int64)
    return split_people(_adult()[NUMBERS].astype(float).assign(**codes), y, people, outside)


def write_texts(people: int = 6000, outside: int = 1500) -> TrainingData:
    """Return texts of 40 words each, most of which are rare, and their topic."""
    draw, count = np.random.default_rng(7), people + outside
    words = np.array([f"word{k}" for k in range(20_000)])
    rank, y = 1.0 / np.arange(1, len(words) + 1), draw.integers(0, 2, count)
    chances = [rank * np.where(np.arange(len(words)) % 2 == topic, 1.25, 1.0) for topic in (0, 1)]
    texts = [" ".join(words[draw.choice(len(words), 40, p=chances[k] / chances[k].sum())]) for k in y]
    return split_people(np.array(texts, dtype=object), y, people, outside)


def draw_prices(people: int = 8000, outside: int = 1500) -> TrainingData:
    """Return eight numbers, and a number to predict from them."""
    draw, count = np.random.default_rng(8), people + outside
    X = draw.normal(size=(count, 8)).clip(-4, 4)
    return split_people(X, X @ np.arange(8) + np.sin(3 * X[:, 0]) + draw.normal(size=count), people, outside)


def _behind_columns(model: Any) -> Any:
    from sklearn.compose import ColumnTransformer
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = OneHotEncoder(handle_unknown="ignore")
    return make_pipeline(ColumnTransformer([("numbers", StandardScaler(), NUMBERS), ("words", words, WORDS)]), model)


def _make(name: str, **params: Any) -> Any:
    """Return an estimator by its full name, imported when it is needed."""
    from importlib import import_module

    home, _, kind = name.rpartition(".")
    return getattr(import_module(home), kind)(**params)


def _sklearn(name: str, **params: Any) -> Callable[[], Any]:
    return lambda: _make(f"sklearn.{name}", **params)


def _columns(name: str, **params: Any) -> Callable[[], Any]:
    return lambda: _behind_columns(_make(f"sklearn.{name}", **params))


def _text(min_df: int = 1, C: float = 1.0) -> Any:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return make_pipeline(TfidfVectorizer(min_df=min_df), LogisticRegression(C=C))


def _behind_scaler(kind: str) -> Any:
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler

    return make_pipeline(StandardScaler(), _make(f"sklearn.linear_model.{kind}"))


class Scores:
    """A linear network of torch and the labels that it knows."""

    def __init__(self, network: Any, classes: NDArray[Any]) -> None:
        self.network, self.classes_ = network, classes

    def predict_proba(self, X: Any) -> NDArray[np.float64]:
        """Return probabilities, shape (n, C)."""
        import torch

        with torch.no_grad():
            return np.asarray(torch.softmax(self.network(scale_codes(X)), dim=1).double().numpy())


def scale_codes(X: Any) -> Any:
    """Return the numeric columns between 0 and 1 by public constants, and a constant, of length 1 at most."""
    import torch

    numbers = np.asarray(X)[:, : len(NUMBERS)] / np.array([80.0, 16.0, 1e5, 4e3, 99.0])
    return torch.from_numpy((numbers.clip(0, 1) / np.sqrt(len(NUMBERS))).astype(np.float32))


def train_privately(X: Any, y: NDArray[Any], *, seed: int) -> Scores:
    """Train a linear network by Opacus: noise 3.0 on clipped gradients, 5 % of the records a step, 5 passes."""
    import warnings

    import torch
    from opacus import PrivacyEngine
    from torch.utils.data import DataLoader, TensorDataset

    del seed  # noise that follows from a seed is none
    warnings.filterwarnings("ignore")
    classes, codes = np.unique(y, return_inverse=True)
    data, network = TensorDataset(scale_codes(X), torch.from_numpy(codes)), torch.nn.Linear(len(NUMBERS), len(classes))
    torch.nn.init.zeros_(network.weight)
    torch.nn.init.zeros_(network.bias)
    private, optimizer, loader = PrivacyEngine().make_private(
        module=network,
        optimizer=torch.optim.SGD(network.parameters(), lr=2.0),
        data_loader=DataLoader(data, batch_size=round(0.05 * len(data))),
        noise_multiplier=3.0,
        max_grad_norm=1.0,
    )
    for _ in range(5):
        for features, labels in loader:
            optimizer.zero_grad()
            torch.nn.functional.cross_entropy(private(features), labels).backward()
            optimizer.step()
    optimizer.zero_grad()  # gradients of single records would be saved, without noise
    return Scores(network, classes)


CLAIM = Claim(mechanism="dp-sgd", adjacency="replace_one", epsilon=2.0, delta=1e-5, noise_multiplier=3.0,
              sample_rate=0.05, steps=100, max_grad_norm=1.0, sampling="poisson",
              accountant="PLD (privgate)")  # fmt: skip
_FOREST = "ensemble.RandomForestClassifier"


def _boosting(name: str, **params: Any) -> Callable[[], Any]:
    return lambda: _make(name, n_jobs=1, **params)


#: name -> model; the guard's table knows them by how their names start
WEEK: dict[str, Model] = {
    "exact-columns-logistic": Model(
        _columns("linear_model.LogisticRegression", max_iter=1000), lambda: read_columns(12000)
    ),
    "exact-columns-sgd": Model(_columns("linear_model.SGDClassifier", loss="log_loss"), lambda: read_columns(12000)),
    "exact-bayes": Model(_sklearn("naive_bayes.GaussianNB"), lambda: read_numbers(10000)),
    "exact-forest": Model(_sklearn(_FOREST, n_estimators=100), lambda: read_codes(8000)),
    "exact-forest-leaf5": Model(_sklearn(_FOREST, n_estimators=100, min_samples_leaf=5), lambda: read_codes(8000)),
    "floored-forest-leaf5": Model(
        _sklearn(_FOREST, n_estimators=100, min_samples_leaf=5), lambda: read_codes(8000), floor=True
    ),
    "exact-histogram-boosting": Model(
        _sklearn("ensemble.HistGradientBoostingClassifier"), lambda: read_codes(10000), refits=600
    ),
    "exact-lightgbm": Model(
        _boosting("lightgbm.LGBMClassifier", verbose=-1), lambda: read_codes(10000), logged="lightgbm", refits=600
    ),
    "exact-xgboost": Model(_boosting("xgboost.XGBClassifier"), lambda: read_codes(20000), logged="xgboost", refits=600),
    "floored-xgboost-small": Model(
        _boosting("xgboost.XGBClassifier", max_depth=3, n_estimators=50),
        lambda: read_codes(10000),
        floor=True,
        refits=600,
    ),
    "exact-perceptron": Model(
        _columns("neural_network.MLPClassifier", hidden_layer_sizes=(32,), early_stopping=True),
        lambda: read_columns(5000),
    ),
    "exact-neighbours": Model(_sklearn("neighbors.KNeighborsClassifier", n_neighbors=50), lambda: read_numbers(5000)),
    "private": Model(train_privately, lambda: read_codes(5000), claim=CLAIM),
    "exact-text": Model(_text, write_texts),
    "price-ridge": Model(lambda: _behind_scaler("Ridge"), draw_prices),
    "price-boosting": Model(_sklearn("ensemble.GradientBoostingRegressor"), draw_prices),
}
#: what to change first of those that are not approved; measured where it is named
CHANGED: dict[str, Model] = {
    "exact-changed-forest": Model(_sklearn(_FOREST, n_estimators=100, min_samples_leaf=50), lambda: read_codes(8000)),
    "exact-changed-histogram-boosting": Model(
        _sklearn("ensemble.HistGradientBoostingClassifier", max_depth=3, l2_regularization=100.0),
        lambda: read_codes(10000),
        refits=600,
    ),
    "exact-changed-lightgbm": Model(
        _boosting("lightgbm.LGBMClassifier", verbose=-1, max_depth=3, reg_lambda=100.0),
        lambda: read_codes(10000),
        logged="lightgbm",
        refits=600,
    ),
    "exact-changed-xgboost": Model(
        _boosting("xgboost.XGBClassifier", max_depth=3, reg_lambda=100.0),
        lambda: read_codes(20000),
        logged="xgboost",
        refits=600,
    ),
    "exact-changed-perceptron": Model(
        _columns("neural_network.MLPClassifier", hidden_layer_sizes=(32,), early_stopping=True, alpha=3.0),
        lambda: read_columns(5000),
    ),
    "exact-changed-neighbours": Model(lambda: _behind_scaler("LogisticRegression"), lambda: read_numbers(5000)),
    "exact-changed-text": Model(lambda: _text(min_df=200, C=0.1), write_texts),
    "price-changed-boosting": Model(
        _sklearn(
            "ensemble.HistGradientBoostingRegressor", max_depth=1, max_iter=300, max_bins=32, l2_regularization=100.0
        ),
        draw_prices,
    ),
}
