"""Attacks: CPU nanoseconds a trial, next to fitting the same statistics for every model anew."""

import time

import numpy as np
import pytest

from privgate.membership.attacks import BY_NAME, lira
from privgate.membership.attacks.observed import own_logit, resolution
from tests.bench.results_table import note

pytestmark = pytest.mark.bench
MODELS, RECORDS, CLASSES = 256, 10_000, 10


@pytest.fixture(scope="module")
def models():
    rng = np.random.default_rng(0)
    labels = rng.integers(0, CLASSES, RECORDS)
    half = [rng.permutation(RECORDS) < RECORDS // 2 for _ in range(MODELS // 2)]
    inside = np.stack([side for h in half for side in (h, ~h)])
    logits = rng.normal(size=(MODELS, RECORDS, CLASSES)).astype(np.float32).astype(np.float64)
    logits[:, np.arange(RECORDS), labels] += 1.5 + inside
    logits -= np.log(np.exp(logits).sum(axis=2, keepdims=True))
    return logits, inside, labels


def test_scoring_two_and_a_half_million_trials(models, monkeypatch):
    log_p, inside, labels = models
    name, step = "lira_online", resolution(log_p, labels)
    monkeypatch.setattr(lira, "resolution", lambda *_: step)  # one number, read off all models or off all others
    start = time.process_time()
    seen = np.stack([own_logit(p, labels, step=step) for p in log_p])
    read = time.process_time() - start
    start = time.process_time()
    scores = lira.ratios_in_turn(seen[:, None], inside)[:, 0]
    scored = time.process_time() - start
    attack = BY_NAME[name]
    start = time.process_time()
    some = [0, 100, 255]
    for i in some:
        rest = np.setdiff1d(np.arange(MODELS), [i, i ^ 1])
        from privgate.membership.attacks import Signals

        alone = attack.scores(Signals(log_p[i], labels, log_p[rest], inside[rest]), np.random.default_rng(0))
        assert scores[i] == pytest.approx(alone, abs=1e-6)
    naive = (time.process_time() - start) / len(some) * MODELS
    trials = MODELS * RECORDS
    note(
        bench="attack_scoring", attack=name, trials=trials, ns_a_trial=scored / trials * 1e9,
        ns_a_trial_reading_probabilities=read / trials * 1e9, naive_seconds=naive, ratio=naive / (read + scored),
    )  # fmt: skip


@pytest.fixture(scope="module")
def location(shared_data):
    from papers import datasets

    return datasets.location(shared_data("location30.npz").parent).sample(2000, np.random.default_rng(0))


def test_two_hundred_thousand_networks_against_shared_ones(location):
    from papers import shared

    seen = shared.networks_cost(location)
    note(bench="shared_shadows", kind="network", data=location.name, records=2000, alone=seen.alone, shared=seen.shared,
         ratio=seen.ratio, models=64, wanted=2000, reached=seen.ratio >= 2000)  # fmt: skip
