"""What the papers say of their own attacks: theorems, and definitions by naive loops."""

from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import entropy, norm

from privgate.membership.attacks import BY_NAME
from privgate.statistics.roc import Decisions


def test_bounded_loss_advantage_is_the_generalisation_gap(leaking):
    # Yeom et al. (2020), Theorem 2: advantage = R_gen / B, here with loss 1 - p and B = 1
    inside = leaking.members
    loss = 1 - np.exp(leaking.target[np.arange(400), leaking.labels])
    fired = np.mean([BY_NAME["yeom_loss"].scores(leaking, np.random.default_rng(k)) > 0 for k in range(400)], axis=0)

    advantage = fired[inside].mean() - fired[~inside].mean()
    # 400 repetitions of 200 coins a side: standard error below 0.5 / sqrt(80000) * sqrt(2)
    assert advantage == pytest.approx(loss[~inside].mean() - loss[inside].mean(), abs=4 * 0.0025)


def test_label_gap_advantage_is_the_accuracy_gap(leaking):
    right = leaking.target.argmax(axis=1) == leaking.labels
    fired = BY_NAME["label_gap"].scores(leaking, np.random.default_rng(0)) > 0.5

    d = Decisions.from_flags(fired, leaking.members)
    assert d.advantage == pytest.approx(right[leaking.members].mean() - right[~leaking.members].mean())


def test_a_loss_equal_to_the_training_loss_counts_as_a_members(leaking):
    attack = BY_NAME["yeom_threshold"]
    own = leaking.target[np.arange(400), leaking.labels]
    at = replace(leaking, training_loss=float(-own[17]))

    assert attack.scores(at, np.random.default_rng(0))[17] > attack.cut


@pytest.mark.parametrize("ratio", [1.2, 1.5, 2.0, 5.0, 10.0])
def test_theorem_3_accuses_below_the_error_where_both_normal_densities_are_equal(leaking, ratio):
    inside, outside = 0.09, 0.09 * ratio  # errors of members and of others
    error = np.where(leaking.shadow_members, inside, outside)
    own = np.arange(3) == leaking.labels[:, None]
    shadow = np.log(np.where(own, 1 - error[..., None], error[..., None] / 2))
    score = BY_NAME["yeom_threshold_known"].fit(replace(leaking, shadow=shadow), np.random.default_rng(0))
    at = outside * np.sqrt(2 * np.log(ratio) / (ratio**2 - 1))

    def told(error):
        return score(np.log(np.where(own, 1 - error, error / 2)))

    assert norm.pdf(at, 0, inside) == pytest.approx(norm.pdf(at, 0, outside))
    assert told(at) == pytest.approx(np.zeros(len(own)), abs=1e-9)
    assert (told(0.99 * at) > 0).all()
    assert (told(1.01 * at) < 0).all()


def test_distance_is_the_difference_of_two_divergences(leaking):
    got = BY_NAME["long_distance"].scores(leaking, np.random.default_rng(0))
    q = np.exp(leaking.target)
    for i in range(0, 400, 17):
        p = np.exp(leaking.shadow[:, i])
        inside = leaking.shadow_members[:, i]
        p_in, p_out = p[inside].mean(axis=0), p[~inside].mean(axis=0)
        assert got[i] == pytest.approx(entropy(q[i], p_out) - entropy(q[i], p_in), abs=1e-9)


def test_frequency_counts_models_in_the_same_bin(leaking):
    got = BY_NAME["long_frequency"].scores(leaking, np.random.default_rng(0))
    for i in range(0, 400, 41):
        want = 0.0
        for k in range(3):
            same = [
                int(np.exp(leaking.shadow[n, i, k]) * 100) == int(np.exp(leaking.target[i, k]) * 100) for n in range(16)
            ]
            inside = leaking.shadow_members[:, i]
            o_in = sum(s for s, m in zip(same, inside, strict=True) if m)
            o_out = sum(s for s, m in zip(same, inside, strict=True) if not m)
            want += np.log((o_in + 0.5) / (inside.sum() + 1)) - np.log((o_out + 0.5) / ((~inside).sum() + 1))
        assert got[i] == pytest.approx(want)


def test_a_class_too_small_for_an_attack_model_of_its_own_is_scored(leaking):
    labels = leaking.labels.copy()
    labels[0] = 2
    labels[labels == 2] = 1
    labels[5] = 2  # one record
    scores = BY_NAME["shokri"].scores(replace(leaking, labels=labels), np.random.default_rng(0))

    assert np.isfinite(scores).all()
