"""Training functions as people write them."""

from typing import Any

import numpy as np


def pipeline(X: Any, y: Any, *, seed: int, C: float = 1.0) -> Any:
    """README's first example: imputing, encoding, scaling and logistic regression in one function."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    from kinds.catalogue import columns

    return make_pipeline(columns(), LogisticRegression(C=C, max_iter=1000, random_state=seed)).fit(X, y)


def weighted(X: Any, y: Any, *, seed: int) -> Any:
    """Weights by class, given to fit."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.utils.class_weight import compute_sample_weight

    return LogisticRegression(max_iter=1000).fit(X, y, sample_weight=compute_sample_weight("balanced", y))


def tuned(X: Any, y: Any, *, seed: int) -> Any:
    """A grid search as training function."""
    from sklearn.linear_model import LogisticRegression
    from sklearn.model_selection import GridSearchCV

    return GridSearchCV(LogisticRegression(max_iter=1000), {"C": [0.01, 0.1, 1.0]}, cv=3).fit(X, y).best_estimator_


def xgboost_native(X: Any, y: Any, *, seed: int) -> Any:
    """xgb.train with early stopping on an inner split."""
    import xgboost as xgb

    order = np.random.default_rng(seed).permutation(len(y))
    held, used = order[: len(y) // 5], order[len(y) // 5 :]
    inner = {"objective": "binary:logistic", "seed": seed, "nthread": 1, "max_depth": 4}
    sets = [xgb.DMatrix(np.asarray(X)[r], np.asarray(y)[r]) for r in (used, held)]
    return xgb.train(inner, sets[0], 100, evals=[(sets[1], "held")], early_stopping_rounds=5, verbose_eval=False)


def xgboost_answers(model: Any, X: Any) -> Any:
    """Probability of the second label."""
    import xgboost as xgb

    return model.predict(xgb.DMatrix(np.asarray(X)))


def lightgbm_native(X: Any, y: Any, *, seed: int) -> Any:
    """lgb.train."""
    import lightgbm as lgb

    inner = {"objective": "binary", "seed": seed, "num_threads": 1, "verbose": -1, "deterministic": True}
    return lgb.train(inner, lgb.Dataset(np.asarray(X), np.asarray(y)), 50)


def lightgbm_answers(model: Any, X: Any) -> Any:
    """Probability of the second label."""
    return model.predict(np.asarray(X))


def network(X: Any, y: Any, *, seed: int, epochs: int = 20) -> Any:
    """A hand-written loop over a small module."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    X, y = torch.as_tensor(np.asarray(X), dtype=torch.float32), torch.as_tensor(np.asarray(y))
    model = nn.Sequential(nn.Linear(X.shape[1], 32), nn.ReLU(), nn.Linear(32, int(y.max()) + 1))
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def convolutions(X: Any, y: Any, *, seed: int, epochs: int = 10) -> Any:
    """A small CNN on 8 x 8 images."""
    import torch
    from torch import nn

    torch.manual_seed(seed)
    X, y = torch.as_tensor(np.asarray(X), dtype=torch.float32), torch.as_tensor(np.asarray(y))
    model = nn.Sequential(
        nn.Unflatten(1, (1, 8, 8)), nn.Conv2d(1, 8, 3), nn.ReLU(), nn.MaxPool2d(2), nn.Flatten(), nn.Linear(72, 10)
    )
    optimizer = torch.optim.Adam(model.parameters(), lr=1e-2)
    for _ in range(epochs):
        for rows in torch.randperm(len(X)).split(64):
            optimizer.zero_grad()
            nn.functional.cross_entropy(model(X[rows]), y[rows]).backward()
            optimizer.step()
    return model.eval()


def network_answers(model: Any, X: Any) -> Any:
    """Probabilities of a torch module."""
    import torch

    with torch.no_grad():
        return torch.softmax(model(torch.as_tensor(np.asarray(X), dtype=torch.float32)), dim=1).double().numpy()


def topics(X: Any, y: Any, *, seed: int) -> Any:
    """Topics, then logistic regression on them."""
    from sklearn.decomposition import LatentDirichletAllocation
    from sklearn.feature_extraction.text import CountVectorizer
    from sklearn.linear_model import LogisticRegression
    from sklearn.pipeline import make_pipeline

    parts = (CountVectorizer(), LatentDirichletAllocation(5, max_iter=5, random_state=seed), LogisticRegression())
    return make_pipeline(*parts).fit(X, y)


def skorch_net(X: Any, y: Any, *, seed: int) -> Any:
    """A skorch classifier."""
    import torch
    from skorch import NeuralNetClassifier
    from torch import nn

    torch.manual_seed(seed)
    X, y = np.asarray(X, dtype=np.float32), np.asarray(y, dtype=np.int64)
    made = nn.Sequential(nn.Linear(X.shape[1], 16), nn.ReLU(), nn.Linear(16, int(y.max()) + 1), nn.Softmax(dim=1))
    return NeuralNetClassifier(made, max_epochs=10, lr=0.1, train_split=None, verbose=0).fit(X, y)


def skorch_answers(model: Any, X: Any) -> Any:
    """Probabilities of the skorch classifier."""
    return model.predict_proba(np.asarray(X, dtype=np.float32))


def priced(X: Any, y: Any, *, seed: int) -> Any:
    """A regressor in a function: nothing but the targets says that they are numbers."""
    from sklearn.linear_model import Ridge

    return Ridge().fit(X, y)


def unseeded(X: Any, y: Any) -> Any:
    """No seed argument: refused in a sentence."""
    from sklearn.linear_model import LogisticRegression

    return LogisticRegression().fit(X, y)
