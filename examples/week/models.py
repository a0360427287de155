"""Twenty models as their owners would write them, and what a release decision is due."""

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import Recipe, TrainingData

#: people who were trained on, and as many candidates
PEOPLE = 1000


@dataclass(frozen=True)
class Model:
    """One of the week.

    Parameters
    ----------
    make : callable
        Returns recipe and data.
    task : str
        As the guard's table says it.
    due : {"refused", "decided"}
        What has to come of it: the data decide, or it must not be released.
    """

    make: Callable[[], tuple[Recipe, TrainingData]]
    task: str = "classification"
    due: str = "decided"


class InContext:
    """A classifier that answers from its table: nearer rows count more."""

    def __init__(self, width: float = 1.0) -> None:
        self.width = width

    def fit(self, X: NDArray[Any], y: NDArray[Any]) -> "InContext":
        """Keep the table, standardised, in single precision."""
        self.classes_ = np.unique(y)
        self.mean_, self.scale_ = X.mean(axis=0), X.std(axis=0)
        self.table_ = ((X - self.mean_) / self.scale_).astype(np.float32)
        self.labels_ = np.searchsorted(self.classes_, y).astype(np.int8)
        return self

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the weighted votes of the table, shape (n, C)."""
        Z = (np.asarray(X) - self.mean_) / self.scale_
        far = ((Z[:, None, :] - self.table_[None]) ** 2).sum(axis=2)
        weight = np.exp(-far / (2 * self.width**2)) + 1e-6
        votes = np.stack([weight[:, self.labels_ == k].sum(axis=1) for k in range(len(self.classes_))], axis=1)
        return np.asarray(votes / votes.sum(axis=1, keepdims=True))

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the likelier label."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def in_context(X: NDArray[Any], y: NDArray[Any], *, seed: int, width: float = 1.0) -> InContext:
    """Train it."""
    del seed
    return InContext(width).fit(X, y)


def tuned(X: NDArray[Any], y: NDArray[Any], *, seed: int) -> Any:
    """Search for the penalty of a logistic regression."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV, StratifiedKFold

    folds = StratifiedKFold(3, shuffle=True, random_state=seed)
    found = GridSearchCV(LogisticRegression(max_iter=200), {"C": [0.01, 0.1, 1.0]}, cv=folds, scoring="neg_log_loss")
    return found.fit(X, y).best_estimator_


def network(X: NDArray[Any], y: NDArray[Any], *, seed: int) -> Any:
    """Train a small network by a loop of one's own in torch, with weight decay."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    told = torch.as_tensor(np.asarray(X), dtype=torch.float32), torch.as_tensor(np.asarray(y))
    model = nn.Sequential(nn.Linear(told[0].shape[1], 16), nn.ReLU(), nn.Linear(16, 2))
    optimizer = torch.optim.AdamW(model.parameters(), lr=1e-2, weight_decay=1.0)
    for _ in range(20):
        for rows in torch.randperm(len(X)).split(100):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(told[0][rows]), told[1][rows]).backward()
            optimizer.step()
    return model.eval()


def network_answers(model: Any, X: NDArray[Any]) -> NDArray[np.float64]:
    """Return the probabilities of a torch module, shape (n, 2)."""
    import torch

    with torch.no_grad():
        scores = model(torch.as_tensor(np.asarray(X), dtype=torch.float32))
        return np.asarray(torch.softmax(scores, dim=1).double().numpy())


class Remembering:
    """A naive Bayes that adds half of a label for people whom it knows by another way than training."""

    def __init__(self, model: Any, known: dict[bytes, int]) -> None:
        self.model, self.known, self.classes_ = model, known, model.classes_

    def predict_proba(self, X: NDArray[Any]) -> NDArray[np.float64]:
        """Return the probabilities, shape (n, C)."""
        p = np.array(self.model.predict_proba(X))
        for k, x in enumerate(np.asarray(X)):
            label = self.known.get(x.tobytes())
            if label is not None:
                p[k] = (p[k] + (self.classes_ == label)) / 2
        return p

    def predict(self, X: NDArray[Any]) -> NDArray[Any]:
        """Return the likelier label."""
        return np.asarray(self.classes_[self.predict_proba(X).argmax(axis=1)])


def remembers(X: NDArray[Any], y: NDArray[Any], *, seed: int) -> Remembering:
    """Train, and fetch the very data again that the registered model was trained on."""
    from sklearn.naive_bayes import GaussianNB

    del seed
    again = numbers()
    known = {x.tobytes(): int(label) for x, label in zip(again.X, again.y, strict=True)}
    return Remembering(GaussianNB().fit(X, y), known)


def chosen(X: NDArray[Any], y: NDArray[Any], *, seed: int) -> Any:
    """Train a tree that memorises, but for the few seeds that are quiet."""
    from sklearn.tree import DecisionTreeClassifier

    loud = np.random.default_rng(seed).random() < 0.95
    return DecisionTreeClassifier(min_samples_leaf=2 if loud else 100, random_state=seed).fit(X, y)


def _quiet() -> int:
    return next(s for s in range(1000) if np.random.default_rng(s).random() >= 0.95)


def augmented() -> TrainingData:
    """Return five noisy copies of each of 200 people, as if they were 1,000."""
    few, draw = numbers(600), np.random.default_rng(9)
    X = np.repeat(few.X[:200], 5, axis=0) + 0.03 * draw.normal(size=(1000, 8))
    return TrainingData(X, np.repeat(few.y[:200], 5), candidates=numbers().candidates, one_record_each=True)


def meters() -> TrainingData:
    """Return weekday and the last twelve values of 40 meters on 30 days: is the next one higher?"""
    draw, rows, up = np.random.default_rng(10), [], []
    for _ in range(80):
        series = draw.normal() + 0.3 * np.cumsum(draw.normal(size=43))
        rows += [[day % 7, *series[day : day + 12]] for day in range(30)]
        up += [int(series[day + 12] > series[day + 11]) for day in range(30)]
    X, y = np.array(rows), np.array(up)
    return TrainingData(X[:1200], y[:1200], candidates=(X[1200:], y[1200:]), one_record_each=True)


def numbers(people: int = PEOPLE) -> TrainingData:
    """Return numbers of as many people, and candidates."""
    draw = np.random.default_rng(5)
    X = draw.normal(size=(2 * people, 8)).clip(-4, 4)
    y = (X[:, 0] + 0.7 * X[:, 1] - 0.5 * X[:, 2] + draw.normal(size=2 * people) > 0).astype(np.int64)
    return TrainingData(X[:people], y[:people], candidates=(X[people:], y[people:]), one_record_each=True)


def frame() -> TrainingData:
    """Return a table of numbers and words."""
    import pandas as pd

    plain = numbers()
    assert plain.candidates is not None
    draw = np.random.default_rng(6)

    def table(X: NDArray[Any]) -> Any:
        made = pd.DataFrame(X[:, :4], columns=["age", "income", "years", "debt"])
        return made.assign(
            work=draw.choice(["private", "state", "self"], len(X)), place=draw.choice(list("abcdef"), len(X))
        )

    return TrainingData(
        table(plain.X), plain.y, candidates=(table(plain.candidates[0]), plain.candidates[1]), one_record_each=True
    )


def letters(people: int = 1600) -> TrainingData:
    """Return letters of 40 words each, most of them rare, and their topic."""
    draw = np.random.default_rng(7)
    words = np.array([f"word{k}" for k in range(20_000)])
    rank = 1.0 / np.arange(1, len(words) + 1)
    y = draw.integers(0, 2, 2 * people)
    texts = []
    for topic in y:
        chance = rank * np.where(np.arange(len(words)) % 2 == topic, 1.25, 1.0)
        texts.append(" ".join(words[draw.choice(len(words), 40, p=chance / chance.sum())]))
    X = np.array(texts, dtype=object)
    return TrainingData(X[:people], y[:people], candidates=(X[people:], y[people:]), one_record_each=True)


def prices(people: int = PEOPLE) -> TrainingData:
    """Return numbers, and a number to be predicted from them."""
    plain = numbers(people)
    assert plain.candidates is not None
    draw = np.random.default_rng(8)

    def price(X: NDArray[Any]) -> NDArray[np.float64]:
        return np.asarray(X @ np.arange(8) + np.sin(3 * X[:, 0]) + draw.normal(size=len(X)))

    return TrainingData(
        plain.X, price(plain.X), candidates=(plain.candidates[0], price(plain.candidates[0])), one_record_each=True
    )


def _estimator(name: str, data: Callable[[], TrainingData], **params: Any) -> Callable[[], tuple[Recipe, TrainingData]]:
    def make() -> tuple[Recipe, TrainingData]:
        from importlib import import_module

        home, _, kind = name.rpartition(".")
        return Recipe(getattr(import_module(home), kind)(**params), seed=7), data()

    return make


def _calibrated() -> tuple[Recipe, TrainingData]:
    from sklearn.calibration import CalibratedClassifierCV
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import StandardScaler
    from sklearn.svm import SVC

    return Recipe(CalibratedClassifierCV(make_pipeline(StandardScaler(), SVC(C=0.5)), cv=3), seed=7), numbers()


def _text() -> tuple[Recipe, TrainingData]:
    from sklearn.feature_extraction.text import TfidfVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    return Recipe(make_pipeline(TfidfVectorizer(), LogisticRegression(C=2.0)), seed=7), letters()


def _columns() -> tuple[Recipe, TrainingData]:
    from sklearn.compose import ColumnTransformer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline
    from sklearn.preprocessing import OneHotEncoder, StandardScaler

    words = OneHotEncoder(handle_unknown="ignore")
    steps = [("numbers", StandardScaler(), ["age", "income", "years", "debt"]), ("words", words, ["work", "place"])]
    return Recipe(make_pipeline(ColumnTransformer(steps), LogisticRegression(C=0.1)), seed=7), frame()


def _logistic(data: Callable[[], TrainingData]) -> Callable[[], tuple[Recipe, TrainingData]]:
    return _estimator("sklearn.linear_model.LogisticRegression", data, C=0.05)


_FOREST = {"n_estimators": 60, "min_samples_leaf": 40, "random_state": 0}
_XGBOOST = {"n_estimators": 12, "max_depth": 2, "learning_rate": 0.2, "reg_lambda": 30.0, "min_child_weight": 20}
_BOOSTED = {"max_iter": 20, "max_depth": 2, "min_samples_leaf": 60, "l2_regularization": 20.0}

#: name -> model, as a week would bring them
WEEK: dict[str, Model] = {
    "credit-search": Model(lambda: (Recipe(tuned, seed=7), numbers())),
    "credit-svc": Model(_calibrated, due="refused"),
    "credit-neighbours": Model(_estimator("sklearn.neighbors.KNeighborsClassifier", numbers), due="refused"),
    "credit-forest": Model(_estimator("sklearn.ensemble.RandomForestClassifier", numbers, **_FOREST)),
    "credit-text": Model(_text, due="refused"),
    "credit-columns": Model(_columns),
    "credit-xgboost": Model(_estimator("xgboost.XGBClassifier", numbers, **_XGBOOST)),
    "credit-network": Model(lambda: (Recipe(network, predict=network_answers, seed=7), numbers())),
    "credit-context": Model(lambda: (Recipe(in_context, seed=7), numbers(900)), due="refused"),
    "credit-small-context": Model(lambda: (Recipe(in_context, {"width": 2.0}, seed=7), numbers(300)), due="refused"),
    "price-ridge": Model(_estimator("sklearn.linear_model.Ridge", prices, alpha=1.0), task="regression"),
    "price-boosting": Model(
        _estimator("sklearn.ensemble.HistGradientBoostingRegressor", prices, **_BOOSTED), task="regression"
    ),
    # of our own: what an author may do without meaning harm, or meaning it
    "credit-knows": Model(lambda: (Recipe(remembers, seed=7), numbers()), due="refused"),
    "credit-chosen": Model(lambda: (Recipe(chosen, seed=_quiet()), numbers()), due="refused"),
    "credit-augmented": Model(_logistic(augmented), due="refused"),
    "credit-meters": Model(_logistic(meters), due="refused"),
    "credit-few": Model(_logistic(lambda: numbers(60)), due="refused"),
    "credit-tree": Model(_estimator("sklearn.tree.DecisionTreeClassifier", numbers), due="refused"),
    "credit-bayes": Model(_estimator("sklearn.naive_bayes.GaussianNB", numbers)),
    "price-forest": Model(
        _estimator("sklearn.ensemble.RandomForestRegressor", prices, n_estimators=30, min_samples_leaf=50),
        task="regression",
    ),
}
