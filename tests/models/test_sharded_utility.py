"""What shards cost in accuracy, and what they take from an attack: means of five seeds on whole data sets."""

import numpy as np
import pandas as pd
import pytest
from lightgbm import LGBMClassifier
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier
from sklearn.neural_network import MLPClassifier

from privgate.models import Sharded
from privgate.statistics.roc import auc

pytestmark = [pytest.mark.slow, pytest.mark.timeout(3600)]
SEEDS = 5


def adult(find):
    """Adult as published: its own training and test set, categories as codes."""
    frame = pd.read_csv(find("adult.csv.gz"))
    y, inside = (frame.income == ">50K").to_numpy().astype(int), (frame.split == "train").to_numpy()
    columns = [c for c in frame if c not in ("income", "split", "education")]
    text = [c for c in columns if not pd.api.types.is_numeric_dtype(frame[c])]
    X = np.column_stack([pd.Categorical(frame[c].fillna("?")).codes if c in text else frame[c] for c in columns])
    X = X.astype(float)
    return X[inside], y[inside], X[~inside], y[~inside]


def sharded(base, k, seed, *, dtp=1.0, labels=(0, 1)):
    return Sharded(base, shards=k, dtp=dtp, classes=labels, key=f"key {seed}", random_state=seed)


def error_of(values):
    return np.std(values, ddof=1) / np.sqrt(len(values))


def test_boosting_on_all_of_adult(shared_data):
    X, y, asked, truth = adult(shared_data)
    loss = {10: [], 20: []}
    for seed in range(SEEDS):
        base = LGBMClassifier(n_jobs=1, verbose=-1, random_state=seed, subsample=0.9, subsample_freq=1)
        plain = base.fit(X, y).score(asked, truth)
        for k, dtp in ((10, 1.0), (20, 0.5)):
            made = sharded(base, k, seed, dtp=dtp)
            assert made.bound(1) <= dtp
            loss[k].append(plain - made.fit(X, y).score(asked, truth))
    told = {k: f"{np.mean(v):.4f} ± {error_of(v):.4f}" for k, v in loss.items()}
    print(f"Adult, LightGBM {plain:.4f}, less with k = 10 (DTP 1) {told[10]}, k = 20 (.5) {told[20]}")
    assert np.mean(loss[10]) <= 0.005 + error_of(loss[10])
    assert np.mean(loss[20]) <= 0.014 + error_of(loss[20])


def test_a_forest_in_shards_tells_attacks_little(shared_data):
    X, y, out, others = adult(shared_data)
    found = {"plain": [], "sharded": []}
    for seed in range(SEEDS):
        rng = np.random.default_rng(seed)
        rows, outside = rng.permutation(len(y))[:4000], rng.permutation(len(others))[:4000]
        base = RandomForestClassifier(100, random_state=seed)
        asked, labels = np.vstack([X[rows], out[outside]]), np.concatenate([y[rows], others[outside]])
        members = np.arange(len(labels)) < 4000
        for name, model in (("plain", base), ("sharded", sharded(base, 10, seed))):
            p = model.fit(X[rows], y[rows]).predict_proba(asked)
            found[name].append(auc(p[np.arange(len(labels)), labels], members))
    told = {k: f"{np.mean(v):.3f} ± {error_of(v):.3f}" for k, v in found.items()}
    print(f"Adult, forest on 4,000, attack by loss: AUC {told['plain']}, in ten shards {told['sharded']}")
    assert np.mean(found["sharded"]) <= 0.53
    assert np.mean(found["plain"]) > 0.6


def test_a_network_on_digits():
    X, y = load_digits(return_X_y=True)
    loss = []
    for seed in range(SEEDS):
        order = np.random.default_rng(seed).permutation(len(y))
        train, test = order[:1297], order[1297:]
        base = MLPClassifier((64,), alpha=1e-2, max_iter=200, batch_size=64, random_state=seed)
        models = base, sharded(base, 4, seed, labels=range(10))
        plain, less = (m.fit(X[train] / 16, y[train]).score(X[test] / 16, y[test]) for m in models)
        loss.append(plain - less)
    print(f"digits, network {plain:.4f}, less with k = 4: {np.mean(loss):.4f} ± {error_of(loss):.4f}")
    assert np.mean(loss) <= 0.02 + error_of(loss)
