"""Networks without each unit: equal to training again without it, whatever the optimizer, and coupled."""

import json

import numpy as np
import pytest

from privgate.families.answering import answer
from privgate.families.engine import Asked
from privgate.families.networks.torch_nets import ENGINE
from privgate.models.record_keyed import batches, n_batches, record_keys
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.torch_recipe import TorchTraining
from tests.in_process import InProcess

pytest.importorskip("torch")

FLEET = InProcess()


def sample(n=33, d=5, K=3, seed=0):
    rng = np.random.default_rng(seed)
    X = rng.integers(0, 3, (n, d)).astype(np.float32)
    y = rng.integers(0, K, n)
    y[:K] = np.arange(K)
    X[10], y[10] = X[9], y[9]
    X[11], y[11] = X[9], y[9]  # three copies: leaving any of them out is the same
    return X, y


def subject_of(recipe, X, y, **kwargs):
    return Subject.local(Recipe(recipe), TrainingData(X, y, **kwargs))


RECIPES = {
    "sgd": {},
    "two layers": {"hidden": (8, 6), "activation": "relu"},
    "momentum": {"momentum": 0.9, "weight_decay": 0.05},
    "adam": {"optimizer": "adam", "lr": 0.01, "weight_decay": 0.01},
    "dropout": {"dropout": 0.4, "hidden": (8, 6)},
    "single records": {"batch_size": 1, "momentum": 0.5, "epochs": 2},
    "single records, adam": {"batch_size": 1, "optimizer": "adam", "epochs": 2},
    "one batch": {"batch_size": 1000},
}


@pytest.mark.quick(2)
@pytest.mark.parametrize(
    ("settings", "grouped"),
    [(settings, False) for settings in RECIPES.values()] + [(RECIPES["momentum"], True), (RECIPES["dropout"], True)],
    ids=[*RECIPES, "momentum, people", "dropout, people"],
)
def test_equals_training_again_without_the_unit(settings, grouped):
    X, y = sample(n=24)
    groups = np.random.default_rng(1).integers(0, 12, len(y)) if grouped else None
    recipe = {"hidden": (8,), "lr": 0.1, "batch_size": 4, "epochs": 4, **settings}
    subject = subject_of(TorchTraining(**recipe), X, y, groups=groups)

    made, handed_on = ENGINE.answers(Asked(subject, np.arange(len(subject.data.units)), (7, 8), FLEET))

    assert len(handed_on) == 0
    assert made.log_without.shape[0] == 2
    for s, seed in enumerate((7, 8)):
        for k, rows in enumerate(subject.data.units):
            if made.status[k] == "undefined":
                assert not set(y) <= set(np.delete(y, rows))
                continue
            model = TorchTraining(**recipe, random_state=seed).fit(np.delete(X, rows, axis=0), np.delete(y, rows))
            expected = np.log(model.predict_proba(X[rows]))
            assert np.abs(made.log_without[s, made.row_unit == k] - expected).max() < 1e-5


def test_leaving_a_record_out_changes_no_other_record_s_batches():
    X, y = sample(60)
    _, keys = record_keys(X, y)
    _, without = record_keys(np.delete(X, 20, axis=0), np.delete(y, 20))
    names = np.delete(np.arange(60), 20)

    for epoch in range(5):
        full = [set(b) - {20} for b in batches(keys, 3, epoch, 7)]
        rest = [set(names[b]) for b in batches(without, 3, epoch, 7)]
        assert full == rest


def test_equal_records_have_keys_of_their_own_but_one_content():
    X, y = sample()

    content, keys = record_keys(X, y)

    assert len(np.unique(keys)) == len(keys)
    assert len({*content[9:12]}) == 1


def test_every_record_is_in_exactly_one_batch_and_batches_differ_by_epoch_and_seed():
    X, y = sample(200)
    _, keys = record_keys(X, y)
    count = n_batches(200, 32)

    drawn = [batches(keys, seed, epoch, count) for seed in (0, 1) for epoch in (0, 1)]

    assert all(sorted(np.concatenate(d)) == list(range(200)) for d in drawn)
    assert len({tuple(map(tuple, d)) for d in drawn}) == 4
    assert np.std([len(b) for b in drawn[0]]) < 20


def test_other_queries_and_one_seed_of_subsets_agree_with_direct_training():
    X, y = sample(40)
    recipe = {"hidden": (6,), "batch_size": 8, "epochs": 3, "lr": 0.1}
    outside = sample(30, seed=5)
    subject = subject_of(TorchTraining(**recipe), X, y, candidates=outside)
    masks = np.random.default_rng(0).random((5, 70)) < 0.5
    pool, labels = subject.data.pool()
    queries = np.repeat(np.arange(3), 70), np.tile(np.arange(70), 3)

    made, _ = ENGINE.answers(Asked(subject, np.array([5, 10, 20]), (1,), FLEET, queries=queries))
    shadows = ENGINE.subsets(subject, masks, (4,), FLEET)

    for k, u in enumerate((5, 10, 20)):
        model = TorchTraining(**recipe, random_state=1).fit(np.delete(X, u, axis=0), np.delete(y, u))
        assert np.abs(made.log_without[0, made.row_unit == k] - np.log(model.predict_proba(pool))).max() < 1e-5
    for k, mask in enumerate(masks):
        model = TorchTraining(**recipe, random_state=4).fit(pool[mask], labels[mask])
        assert np.abs(shadows.log_p[k] - np.log(model.predict_proba(pool))).max() < 1e-5
    assert ENGINE.subsets(subject, masks, (1, 2, 3, 4, 5), FLEET) is None


def test_the_recipe_survives_json_and_the_chain_rechecks_it(fleet):
    X, y = sample(70)
    written = json.loads(json.dumps(Recipe(TorchTraining(hidden=[8], batch_size=8, epochs=3), seed=2).payload))
    subject = Subject.local(Recipe.read(written, None), TrainingData(X, y))

    got = answer(Asked(subject, np.arange(70), (2,), fleet))

    assert set(got.retrained.engine) == {"torch_nets"}
    assert got.rechecks[0].outcome == "passed"
    assert got.rechecks[0].detail["worst_difference"] < 1e-5


def test_shuffled_batches_would_drown_the_record():
    """The reason for keyed batches: with a new order the measured change is mostly the order's."""
    X, y = sample(80, seed=3)
    recipe = {"hidden": (8,), "batch_size": 8, "epochs": 10, "lr": 0.1}
    full = np.log(TorchTraining(**recipe, random_state=0).fit(X, y).predict_proba(X))
    coupled = np.log(TorchTraining(**recipe, random_state=0).fit(X[:-1], y[:-1]).predict_proba(X))
    reordered = X + np.float32(1e-6) * np.random.default_rng(0).normal(size=X.shape).astype(np.float32)
    other_order = np.log(TorchTraining(**recipe, random_state=0).fit(reordered, y).predict_proba(X))

    assert np.abs(coupled - full)[:-1].mean() < np.abs(other_order - full)[:-1].mean()


def test_a_class_of_one_is_undefined():
    X, y = sample()
    y[4] = 9
    made, _ = ENGINE.answers(Asked(subject_of(TorchTraining(epochs=1), X, y), np.arange(33), (1,), FLEET))

    assert made.status[4] == "undefined"
    assert np.isneginf(made.log_without[0, 4]).all()


MIXED = {"hidden": (16,), "lr": 0.1, "batch_size": 8, "epochs": 5}


def wide(n=64, d=40, K=3):
    rng = np.random.default_rng(4)
    y = rng.integers(0, K, n)
    X = (rng.random((n, d)) < 0.3 + 0.3 * (np.arange(d) % K == y[:, None])).astype(np.float32)
    X[10], y[10] = X[9], y[9]
    return X, y


def test_a_gpu_answers_as_the_processor_does():
    import torch

    if not torch.cuda.is_available():
        pytest.skip("torch finds no GPU here")
    X, y = wide()
    there, here = (
        ENGINE.answers(Asked(subject_of(TorchTraining(**MIXED, device=d), X, y), np.arange(64), (7,), FLEET))[0]
        for d in ("cuda", "cpu")
    )
    again = TorchTraining(**MIXED, device="cuda", random_state=7).fit(np.delete(X, 5, axis=0), np.delete(y, 5))

    apart = 1e-4
    assert np.abs(there.log_without - here.log_without).max() < apart
    assert np.abs(np.log(again.predict_proba(X[5:6])) - there.log_without[0, 5]).max() < apart


def test_a_gpu_that_is_not_there_is_said_in_one_sentence(monkeypatch):
    import torch

    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    X, y = sample()
    asked = TorchTraining(device="cuda", epochs=1)

    with pytest.raises(ValueError, match="asks for device cuda, but torch finds no GPU on this machine; set device"):
        asked.fit(X, y)
    assert ENGINE.supports(subject_of(asked, X, y)) == "torch finds no GPU on this machine"
    assert ENGINE.supports(subject_of(TorchTraining(device="auto", epochs=1), X, y)) == ""
    with pytest.raises(ValueError, match="device is 'cpu'"):
        TorchTraining(device="tpu").fit(X, y)


@pytest.mark.parametrize("wrong", [{"optimizer": "lion"}, {"dropout": 1.0}, {"lr": 0.0}, {"batch_size": 0}])
def test_parameters_that_mean_nothing_are_refused(wrong):
    X, y = sample()

    with pytest.raises(ValueError, match=r"optimizer|dropout|batch_size"):
        TorchTraining(**wrong).fit(X, y)
    with pytest.raises(ValueError, match="no parameter"):
        TorchTraining().set_params(depth=3)
