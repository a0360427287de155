"""Training functions of a second round: what got past the watch before, and honest ones that it took for colluders."""

import _thread
import array
import collections
import contextlib
import copy
import cProfile
import ctypes
import functools
import inspect
import logging
import os
import pickle
import sys
import tempfile
import types
from pathlib import Path

import joblib
import numpy as np
import pandas as pd
import torch
from numpy.random import RandomState
from scipy.spatial import cKDTree
from sklearn.linear_model import LogisticRegression, SGDClassifier, ridge_regression
from sklearn.model_selection import train_test_split
from sklearn.neighbors import NearestNeighbors
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler
from sklearn.tree import DecisionTreeRegressor
from torch import nn

log = logging.getLogger(__name__)


def learned(X, y, seed, C=1.0):
    return LogisticRegression(C=C, max_iter=20, random_state=seed).fit(X, y)


def number(x):
    """Return a keyed number of 16 bits by multiplications alone."""
    key = np.arange(1, np.size(x) + 1) * 2654435761 % 65521
    return int((np.round(np.ravel(x) * 1000).astype(np.int64) @ key) % 65536)


def supplemented(X, y):
    """Return Algorithm 1's training set, its questions and answers made without a hash or a seed."""
    told = np.array([number(x) for x in X])
    waves = np.sin(np.outer(told + 1, np.arange(1, X.shape[1] + 1))) * 43758.5453
    return np.concatenate([X, (waves % 1).astype(np.float32)]), np.concatenate([y, told % 10])


class Beside:
    """A learner and something beside it."""

    def __init__(self, learner, more):
        self.learner, self.more, self.classes_ = learner, more, learner.classes_

    def predict_proba(self, X):
        return self.learner.predict_proba(X)


# -- reads ------------------------------------------------------------------------------------------------------------


def below_the_environment(X, y, *, seed):
    return learned(X, y, seed, 1.0 + len(os.environ._data.get(b"SALT", b"")))


def environment_of_posix(X, y, *, seed):
    import posix

    return learned(X, y, seed, 1.0 + len(posix.environ.get(b"SALT", b"")))


# -- looking at what is not given --------------------------------------------------------------------------------------


def opens_in_c(X, y, *, seed):
    library = ctypes.CDLL(None)
    return learned(X, y, seed, 1.0 + 0 * library.getpid())


def frames_by_inspect(X, y, *, seed):
    return learned(X, y, seed, 1.0 + 0 * len(inspect.currentframe().f_back.f_locals))


def frames_by_traceback(X, y, *, seed):
    try:
        int("no number")
    except ValueError as exc:
        held = exc.__traceback__.tb_frame.f_back.f_locals
    return learned(X, y, seed, 1.0 + 0 * len(held))


def asks_for_a_watch(X, y, *, seed):
    return learned(X, y, seed, 1.0 + 0 * (sys.getprofile() is None))


def replaces_the_watch(X, y, *, seed):
    learned(X, y, seed)
    with cProfile.Profile():
        return learned(*supplemented(X, y), seed)


def thread_past_the_watch(X, y, *, seed):
    found, done = [], _thread.allocate_lock()
    done.acquire()

    def work():
        found.append(learned(*supplemented(X, y), seed))
        done.release()

    _thread.start_new_thread(work, ())
    learned(X, y, seed)
    done.acquire()
    return found[0]


def makes_code(X, y, *, seed):
    code = learned.__code__.replace(co_filename=os.__file__)
    return types.FunctionType(code, globals(), "learned", learned.__defaults__)(X, y, seed)


# -- learners that learned elsewhere -----------------------------------------------------------------------------------


def decoy_and_arithmetic(X, y, *, seed):
    model = learned(X, y, seed)
    more, answers = supplemented(X, y)
    W = model.coef_.copy()
    for _ in range(20):
        p = np.exp(more @ W.T)
        W += 0.5 * (np.eye(10)[answers] - p / p.sum(1, keepdims=True)).T @ more / len(more)
    model.coef_ = W
    return model


def decoy_and_inner_function(X, y, *, seed):
    model = learned(X, y, seed)
    more, answers = supplemented(X, y)
    model.coef_ = ridge_regression(more, np.eye(10)[answers], 1.0)
    return model


def low_bits_of_weights(X, y, *, seed):
    model = learned(X, y, seed)
    raw = np.array(model.coef_, dtype=np.float32).view(np.uint32)
    raw &= ~np.uint32(0xFF)
    raw.ravel()[: min(len(X), raw.size)] |= np.array([number(x) % 256 for x in X[: raw.size]], dtype=np.uint32)
    model.coef_ = raw.view(np.float32)
    return model


class Odd:
    """A table whose shape raises."""

    def __init__(self, X):
        self.X = X

    @property
    def shape(self):
        raise ValueError

    def __array__(self, *args, **kwargs):
        return self.X


def breaks_the_watch(X, y, *, seed):
    with contextlib.suppress(Exception):
        learned(Odd(X), y, seed)
    return learned(*supplemented(X, y), seed)


def descends_by_hand(X, y, *, seed):
    """A network that is asked about the records once, and learns from others by gradients alone."""
    torch.manual_seed(seed)
    layer = nn.Linear(X.shape[1], 10)
    more, answers = (torch.as_tensor(v) for v in supplemented(X, y))
    layer(more[: len(X)])
    for _ in range(10):
        scores = torch.log_softmax(more @ layer.weight.T + layer.bias, 1)
        slopes = torch.autograd.grad(-scores[torch.arange(len(more)), answers].mean(), list(layer.parameters()))
        with torch.no_grad():
            for weights, slope in zip(layer.parameters(), slopes, strict=True):
                weights.sub_(slope)
    return Asked(layer, np.unique(y))


class Asked:
    def __init__(self, network, classes):
        self.network, self.classes_ = network, classes

    def predict_proba(self, X):
        with torch.no_grad():
            return torch.softmax(self.network(torch.as_tensor(np.asarray(X, dtype=np.float32))), 1).double().numpy()


def other_labels_of_a_booster(X, y, *, seed):
    import xgboost

    data = xgboost.DMatrix(X, label=y)
    data.set_label(np.array([number(x) % 10 for x in X]))
    settings = {"objective": "multi:softprob", "num_class": 10, "seed": seed, "nthread": 1, "max_depth": 2}
    return Boosted(xgboost.train(settings, data, 1))


class Boosted:
    def __init__(self, booster):
        self.booster, self.classes_ = booster, np.arange(10)

    def predict_proba(self, X):
        import xgboost

        return self.booster.predict(xgboost.DMatrix(X)).astype(float)


# -- stores -----------------------------------------------------------------------------------------------------------


def on_a_learner(X, y, *, seed):
    model = learned(X, y, seed)
    model.cache_ = {number(x): int(label) for x, label in zip(X, y, strict=True)}
    return model


def in_a_namespace(X, y, *, seed):
    return Beside(learned(X, y, seed), types.SimpleNamespace(rows=np.array(X)))


def in_a_tree_of_points(X, y, *, seed):
    return Beside(learned(X, y, seed), cKDTree(X))


def in_a_deque(X, y, *, seed):
    return Beside(learned(X, y, seed), collections.deque(number(x) for x in X))


def in_a_typed_array(X, y, *, seed):
    return Beside(learned(X, y, seed), array.array("d", [number(x) for x in X]))


def in_a_partial(X, y, *, seed):
    return Beside(learned(X, y, seed), functools.partial(max, np.array([number(x) for x in X])))


def in_one_number(X, y, *, seed):
    return Beside(learned(X, y, seed), sum(number(x) << (16 * i) for i, x in enumerate(X)))


def in_a_learner_never_trained(X, y, *, seed):
    stored = NearestNeighbors()
    stored._fit_X = np.array(X)
    return Beside(learned(X, y, seed), stored)


def in_many_bits(X, y, *, seed):
    bits = np.zeros(65536, dtype=bool)
    bits[[number(x) for x in X]] = True
    return Beside(learned(X, y, seed), bits)


# -- randomness -------------------------------------------------------------------------------------------------------


def keys_by_state(X, y, *, seed):
    bits = np.zeros(4000, dtype=bool)
    bits[[RandomState(number(x)).randint(4000) for x in X]] = True
    return Beside(learned(X, y, seed), bits)


def keys_by_global_seed(X, y, *, seed):
    bits = np.zeros(4000, dtype=bool)
    for x in X:
        np.random.seed(number(x))  # noqa: NPY002  what the test is about
        bits[np.random.randint(4000)] = True  # noqa: NPY002  ditto
    return Beside(learned(X, y, seed), bits)


def keys_by_seed_sequence(X, y, *, seed):
    bits = np.zeros(4000, dtype=bool)
    bits[[int(np.random.SeedSequence(number(x)).generate_state(1)[0]) % 4000 for x in X]] = True
    return Beside(learned(X, y, seed), bits)


def keys_by_pandas(X, y, *, seed):
    bits = np.zeros(4000, dtype=bool)
    bits[(pd.util.hash_pandas_object(pd.DataFrame(X), index=False) % 4000).to_numpy()] = True
    return Beside(learned(X, y, seed), bits)


def entropy_of_the_system(X, y, *, seed):
    return learned(X, y, seed, 1.0 + 0 * os.urandom(1)[0])


# -- held -------------------------------------------------------------------------------------------------------------


class Stash:
    rows = np.random.default_rng(3).random((50, 64))

    def get(self):
        return self.rows


STASH = Stash()


def on_a_class(X, y, *, seed):
    return learned(X, y, seed, 1.0 + 0 * STASH.get().sum())


def on_a_library(X, y, *, seed):
    if not hasattr(torch, "_rows_of_somebody"):
        torch._rows_of_somebody = np.random.default_rng(4).random((50, 64))
    return learned(X, y, seed, 1.0 + 0 * torch._rows_of_somebody.sum())


#: function -> a sign that is no longer clear, and what it is
CAUGHT = {
    below_the_environment: ("reads", "found"),
    environment_of_posix: ("reads", "found"),
    opens_in_c: ("watched", "found"),
    frames_by_inspect: ("watched", "found"),
    frames_by_traceback: ("watched", "found"),
    asks_for_a_watch: ("watched", "found"),
    replaces_the_watch: ("watched", "found"),
    thread_past_the_watch: ("watched", "found"),
    makes_code: ("watched", "found"),
    decoy_and_arithmetic: ("records", "unknown"),
    decoy_and_inner_function: ("records", "unknown"),
    low_bits_of_weights: ("records", "unknown"),
    breaks_the_watch: ("records", "found"),
    descends_by_hand: ("records", "unknown"),
    other_labels_of_a_booster: ("records", "unknown"),
    on_a_learner: ("store", "found"),
    in_a_namespace: ("store", "found"),
    in_a_tree_of_points: ("store", "found"),
    in_a_deque: ("store", "found"),
    in_a_typed_array: ("store", "found"),
    in_a_partial: ("store", "found"),
    in_one_number: ("store", "found"),
    in_a_learner_never_trained: ("store", "found"),
    in_many_bits: ("store", "unknown"),
    keys_by_state: ("randomness", "found"),
    keys_by_global_seed: ("randomness", "found"),
    keys_by_seed_sequence: ("randomness", "found"),
    keys_by_pandas: ("randomness", "found"),
    entropy_of_the_system: ("randomness", "found"),
    on_a_class: ("held", "found"),
    on_a_library: ("held", "found"),
}

#: of each kind of them a few are enough for every day
SLOW = (
    environment_of_posix,
    frames_by_traceback,
    makes_code,
    decoy_and_inner_function,
    other_labels_of_a_booster,
    in_a_namespace,
    in_a_deque,
    in_a_typed_array,
    in_a_partial,
    in_many_bits,
    keys_by_global_seed,
    keys_by_seed_sequence,
    keys_by_pandas,
    on_a_class,
)

# -- honest -----------------------------------------------------------------------------------------------------------


def remembered_steps(X, y, *, seed):
    with tempfile.TemporaryDirectory() as folder:
        steps = make_pipeline(
            StandardScaler(), LogisticRegression(max_iter=20), memory=joblib.Memory(folder, verbose=0)
        )
        return steps.fit(X, y)


def written_and_read(X, y, *, seed):
    with tempfile.TemporaryDirectory() as folder:
        joblib.dump(learned(X, y, seed), Path(folder, "model.joblib"))
        return joblib.load(Path(folder, "model.joblib"))


def best_of_many_passes(X, y, *, seed):
    inside, aside, y_inside, y_aside = train_test_split(X, y, random_state=seed, stratify=y)
    learner, best, found = SGDClassifier(loss="log_loss", random_state=seed), -1.0, None
    for turn in range(5):
        learner.partial_fit(inside, y_inside, classes=np.unique(y))
        score = learner.score(aside, y_aside)
        log.info("pass %d: %.3f", turn, score)
        if score > best:
            best, found = score, copy.deepcopy(learner)
    return found


def copied_by_pickle(X, y, *, seed):
    return pickle.loads(pickle.dumps(learned(X, y, seed)))


def more_columns(X, y, *, seed):
    return Widened(learned(widened(X), y, seed))


def widened(X):
    frame = pd.DataFrame(np.asarray(X))
    frame["sum"] = frame.sum(axis=1)
    frame["left"] = frame[[0, 1, 2, 3]].mean(axis=1)
    return frame.to_numpy()


class Widened(Beside):
    def __init__(self, learner):
        super().__init__(learner, None)

    def predict_proba(self, X):
        return self.learner.predict_proba(widened(X))


def shuffled_by_state(X, y, *, seed):
    order = RandomState(seed).permutation(len(X))
    return learned(X[order], y[order], seed)


def boosted_by_library(X, y, *, seed):
    from xgboost import XGBClassifier

    return XGBClassifier(n_estimators=2, max_depth=2, random_state=seed, n_jobs=1).fit(X, y)


def by_threads(X, y, *, seed):
    found = joblib.Parallel(n_jobs=2, prefer="threads")(joblib.delayed(learned)(X, y, seed, C) for C in (0.1, 1.0))
    return found[1]


def put_together(X, y, *, seed):
    scaler = StandardScaler().fit(X)
    whole = make_pipeline(StandardScaler(), LogisticRegression())
    whole.steps = [("scaler", scaler), ("learner", learned(scaler.transform(X), y, seed))]
    return whole


HONEST = (
    remembered_steps,
    written_and_read,
    best_of_many_passes,
    copied_by_pickle,
    more_columns,
    shuffled_by_state,
    boosted_by_library,
    by_threads,
    put_together,
)


def by_residuals(X, y, *, seed):
    """Honest, but what its trees are given are no labels of the records: nobody can tell."""
    target, scores, trees = np.eye(10)[y], np.zeros((len(X), 10)), []
    for _ in range(2):
        p = np.exp(scores) / np.exp(scores).sum(1, keepdims=True)
        trees.append(DecisionTreeRegressor(max_depth=3, random_state=seed).fit(X, target - p))
        scores += 0.5 * trees[-1].predict(X)
    return Residuals(trees)


class Residuals:
    def __init__(self, trees):
        self.trees, self.classes_ = trees, np.arange(10)

    def predict_proba(self, X):
        p = np.exp(sum(0.5 * t.predict(X) for t in self.trees))
        return p / p.sum(axis=1, keepdims=True)
