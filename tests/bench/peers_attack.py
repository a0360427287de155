"""Run by the peers' own interpreter: attack one forest on one split, print one JSON line an attack.

With the word "lira" it runs sacroml's LiRA and nothing else, with "refits" the same attack by hand: whole processes to
be timed beside ours.
"""

import json
import logging
import os
import sys
import tempfile
import time
import warnings

import numpy as np
from sklearn.datasets import load_breast_cancer
from sklearn.ensemble import RandomForestClassifier
from sklearn.model_selection import train_test_split


def split():
    """The split that every tool sees: members, non-members, their labels, and the model."""
    X, y = load_breast_cancer(return_X_y=True)
    inside, outside, y_in, y_out = train_test_split(X, y, test_size=0.3, random_state=0)
    return inside, outside, y_in, y_out, RandomForestClassifier(100, random_state=0).fit(inside, y_in)


def figures(found):
    """Collect what a peer's nested report calls its figures."""
    out = {}
    for key, value in found.items():
        if isinstance(value, dict):
            out |= figures(value)
        elif key in ("AUC", "ACC", "Advantage", "TPR@0.01", "TPR@0.001"):
            out[key.lower()] = round(float(value), 4)
    return out


def sacroml(inside, outside, y_in, y_out, model):
    from sacroml.attacks.likelihood_attack import LIRAAttack
    from sacroml.attacks.qmia_attack import QMIAAttack
    from sacroml.attacks.target import Target

    target = Target(
        model=model, dataset_name="breast cancer", X_train=inside, y_train=y_in, X_test=outside, y_test=y_out,
        X_train_orig=inside, y_train_orig=y_in, X_test_orig=outside, y_test_orig=y_out,
    )  # fmt: skip
    for i in range(inside.shape[1]):
        target.add_feature(f"f{i}", [i], "float")
    common = {"output_dir": tempfile.mkdtemp(), "write_report": False}
    for name, attack in (
        ("LiRA offline, 64 shadow models", LIRAAttack(n_shadow_models=64, mode="offline", **common)),
        ("LiRA online, 64 shadow models", LIRAAttack(n_shadow_models=64, mode="online-carlini", **common)),
        ("quantile regression", QMIAAttack(**common)),
    ):
        started = time.process_time()
        found = attack.attack(target)
        yield {"tool": "sacroml", "attack": name, "seconds": round(time.process_time() - started, 2), **figures(found)}


def refits(inside, outside, y_in, y_out, model):
    """LiRA offline (Carlini et al. 2022, section IV-D) by 64 refits on random halves, without any tool."""
    from scipy.stats import norm

    X, y, rng = np.concatenate([inside, outside]), np.concatenate([y_in, y_out]), np.random.default_rng(0)

    def confidence(fitted):
        p = np.clip(fitted.predict_proba(X)[np.arange(len(X)), y], 1e-6, 1 - 1e-6)
        return np.log(p / (1 - p))

    kept = rng.random((64, len(X))) < 0.5
    made = [RandomForestClassifier(100, random_state=k).fit(X[rows], y[rows]) for k, rows in enumerate(kept)]
    without = np.where(kept, np.nan, [confidence(one) for one in made])
    scores = norm.cdf(confidence(model), np.nanmean(without, axis=0), np.nanstd(without, axis=0) + 1e-6)
    yield {"tool": "refits", "attack": "LiRA offline, 64 shadow models", "mean": round(float(scores.mean()), 4)}


def art(inside, outside, y_in, y_out, model):
    from art.attacks.inference import membership_inference as mi
    from art.estimators.classification.scikitlearn import SklearnClassifier

    wrapped = SklearnClassifier(model)
    half_in, half_out = len(inside) // 2, len(outside) // 2
    for name, attack in (
        ("label-only gap", mi.MembershipInferenceBlackBoxRuleBased(wrapped)),
        ("black box, forest", mi.MembershipInferenceBlackBox(wrapped, attack_model_type="rf")),
        ("black box, gradient boosting", mi.MembershipInferenceBlackBox(wrapped, attack_model_type="gb")),
    ):
        started = time.process_time()
        if hasattr(attack, "fit"):
            attack.fit(inside[:half_in], y_in[:half_in], outside[:half_out], y_out[:half_out])
        fired_in = np.ravel(attack.infer(inside[half_in:], y_in[half_in:]))
        fired_out = np.ravel(attack.infer(outside[half_out:], y_out[half_out:]))
        advantage = float(fired_in.mean() - fired_out.mean())
        yield {"tool": "ART", "attack": name, "seconds": round(time.process_time() - started, 2),
               "advantage": round(advantage, 4), "acc": round((1 + advantage) / 2, 4)}  # fmt: skip


def art_pdtp(inside, outside, y_in, y_out, model):
    """ART's PDTP of forty people next to the truth: the same refits, the answers as they are."""
    del outside, y_out, model
    from art.estimators.classification.scikitlearn import SklearnClassifier
    from art.metrics import PDTP
    from sklearn.naive_bayes import GaussianNB

    people = np.arange(40)
    whole, other = (SklearnClassifier(GaussianNB().fit(inside, y_in)) for _ in range(2))
    started = time.process_time()
    found, _, _ = PDTP(whole, other, inside, y_in, indexes=people, num_iter=1)
    seconds = time.process_time() - started
    with np.errstate(divide="ignore", invalid="ignore"):
        log_p = np.log(GaussianNB().fit(inside, y_in).predict_proba(inside))
        changes = []
        for row in people:
            kept = np.delete(np.arange(len(inside)), row)
            moved = np.abs(np.log(GaussianNB().fit(inside[kept], y_in[kept]).predict_proba(inside)) - log_p)
            changes.append(np.nanmax(moved))
    off = np.abs(np.log(np.asarray(found)) - changes)
    yield {"tool": "ART", "attack": "PDTP, 40 people, over all records", "seconds": round(seconds, 2),
           "largest error, nats": round(float(off.max()), 3), "median error, nats": round(float(np.median(off)), 3),
           "infinite in truth": int(np.isinf(changes).sum())}  # fmt: skip


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    logging.disable(logging.CRITICAL)
    os.chdir(tempfile.mkdtemp())
    data = split()
    alone = {"lira": (sacroml,), "refits": (refits,)}.get(" ".join(sys.argv[1:]))
    for tool in alone or (sacroml, art, art_pdtp):
        try:
            for row in tool(*data):
                print("ROW " + json.dumps(row), flush=True)
                if alone:
                    break
        except Exception as exc:  # noqa: BLE001  a peer that breaks is a row of the table, not the end of it
            print("ROW " + json.dumps({"tool": tool.__name__, "problem": f"{type(exc).__name__}: {exc}"}), flush=True)
    sys.exit(0)
