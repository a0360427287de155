"""LiRA on a forest by hand, `python peers.py DATA.npz`: the AUC is the last line, as JSON.

The first half of the data are members. It needs numpy and scikit-learn alone.
"""

import json
import sys

import numpy as np
from sklearn.ensemble import RandomForestClassifier
from sklearn.metrics import roc_auc_score

SHADOWS, SEED = 64, 7


def make_forest(seed=SEED):
    return RandomForestClassifier(100, random_state=seed)


def draw_halves(n):
    """Return which records each shadow model is trained on, shape (N, n): in pairs, so that all are in half of them."""
    rng = np.random.default_rng(0)
    halves = [rng.permutation(n) < n // 2 for _ in range(SHADOWS // 2)]
    return np.stack([side for half in halves for side in (half, ~half)])


def by_hand(X, y, members):
    """Carlini et al. (2022), Algorithm 1, as it is written down."""
    from scipy.stats import norm

    def logit(model):
        p = np.clip(model.predict_proba(X)[np.arange(len(y)), y], 0.005, 0.995)
        return np.log(p / (1 - p))

    target = logit(make_forest().fit(X[members], y[members]))
    inside = draw_halves(len(y))
    shadow = np.stack([logit(make_forest(i).fit(X[half], y[half])) for i, half in enumerate(inside)])
    log_density = []
    for side in (inside, ~inside):
        chosen = np.where(side, shadow, np.nan)
        log_density.append(norm.logpdf(target, np.nanmean(chosen, axis=0), np.nanstd(chosen, axis=0) + 0.01))
    return log_density[0] - log_density[1]


if __name__ == "__main__":
    with np.load(sys.argv[1]) as stored:
        X, y = stored["X"], stored["y"]
    members = np.arange(len(y)) < len(y) // 2
    print(json.dumps({"auc": roc_auc_score(members, by_hand(X, y, members))}))
