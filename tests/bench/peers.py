"""Attacks on a forest as others run them, `python peers.py NAME DATA.npz`: the AUC is the last line, as JSON.

The first half of the data are members. `by_hand` needs numpy and scikit-learn; `alone` is our own attack without the
gate; `sacroml` and `art` need the libraries of that name, in an environment of their own.
"""

import json
import sys
import tempfile

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


def alone(X, y, members):
    """As many shadow models and one attack of privgate, trained in a sandbox by one worker."""
    from privgate import Fleet, Recipe, Subject, TrainingData
    from privgate.membership.attacks import BY_NAME, Signals
    from privgate.run.refit import train_on_subsets

    data = TrainingData(X[members], y[members], candidates=(X[~members], y[~members]), one_record_each=True)
    subject, inside = Subject.local(Recipe(make_forest(), seed=SEED), data), draw_halves(len(y))
    with Fleet(jobs=1, ledger="none") as fleet:
        target = train_on_subsets(subject, members[None], (SEED,), fleet).log_p[0]
        shadow = train_on_subsets(subject, inside, tuple(range(SHADOWS)), fleet).log_p
    signals = Signals(target, y, shadow, inside)
    return BY_NAME["lira_online"].fit(signals, np.random.default_rng(0))(target)


def sacroml(X, y, members):
    """LiRA of SACRO-ML, online, with as many shadow models."""
    from sacroml.attacks.likelihood_attack import LIRAAttack
    from sacroml.attacks.target import Target

    split = {"X_train": X[members], "y_train": y[members], "X_test": X[~members], "y_test": y[~members]}
    target = Target(model=make_forest().fit(X[members], y[members]), dataset_name="people", **split)
    with tempfile.TemporaryDirectory() as folder:
        attack = LIRAAttack(folder, write_report=False, n_shadow_models=SHADOWS, mode="online-carlini")
        attack.attack(target)
    return attack.attack_metrics[0]["AUC"]


def art(X, y, members):
    """The Adversarial Robustness Toolbox's black-box attack by a forest: it knows half of the members."""
    from art.attacks.inference.membership_inference import MembershipInferenceBlackBox
    from art.estimators.classification import SklearnClassifier

    model = SklearnClassifier(make_forest().fit(X[members], y[members]))
    known = np.random.default_rng(0).permutation(len(y)) < len(y) // 2
    attack = MembershipInferenceBlackBox(model, attack_model_type="rf")
    attack.fit(X[known & members], y[known & members], X[known & ~members], y[known & ~members])
    score = attack.infer(X[~known], y[~known], probabilities=True)
    return roc_auc_score(members[~known], np.asarray(score)[:, -1])


if __name__ == "__main__":
    with np.load(sys.argv[2]) as stored:
        X, y = stored["X"], stored["y"]
    members = np.arange(len(y)) < len(y) // 2
    result = {f.__name__: f for f in (by_hand, alone, sacroml, art)}[sys.argv[1]](X, y, members)
    print(json.dumps({"auc": result if np.ndim(result) == 0 else roc_auc_score(members, result)}))
