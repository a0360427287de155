"""Designs that bound a person on every data set: attained by extreme cases, never exceeded by random ones."""

import numpy as np
import pytest

from privgate.kernel import Case, Refused, limits


def high(settings, held):
    return limits(Case("construction", "any", settings, {"held": np.asarray(held, dtype=np.int64)})).high


@pytest.mark.parametrize("members", [1, 4, 10])
@pytest.mark.parametrize("labels", [2, 3, 5])
@pytest.mark.parametrize("clip", [0.5, 2.3, 5.0, 40.0])
def test_no_pooled_scores_change_by_more_and_some_change_by_as_much(members, labels, clip):
    rng, worst = np.random.default_rng(members * labels), np.zeros(members)
    told = {"design": "log_pool", "clip": clip, "members": members, "labels": labels}
    limit = high(told, range(1, members + 1))

    def draw(size):
        return rng.uniform(-clip, 0, (2_000, size, labels)) * rng.integers(0, 2, (2_000, size, labels))

    for held in range(1, members + 1):
        z = draw(members)
        other = np.concatenate([draw(held), z[:, held:]], axis=1)
        z[0], other[0] = 0.0, 0.0  # the extreme case
        z[0, :, 0], other[0, held:, 0], other[0, :held, 1:] = -clip, -clip, -clip
        logs = [a.mean(axis=1) - np.logaddexp.reduce(a.mean(axis=1), axis=1, keepdims=True) for a in (z, other)]
        worst[held - 1] = np.abs(logs[0] - logs[1]).max()
    assert (worst <= limit).all()
    assert (limit - worst < 1e-6).all()
    assert (np.diff(limit) >= 0).all()
    assert high(told, [members + 5]) == limit[-1:]


@pytest.mark.parametrize("alpha", [1e-3, 0.5, 2.0])
def test_no_votes_change_a_share_by_more(alpha):
    rng = np.random.default_rng(1)
    for _ in range(300):
        members, labels = int(rng.integers(1, 8)), int(rng.integers(2, 4))
        votes = rng.dirichlet(np.full(labels, 0.2), members)
        held = int(rng.integers(1, members + 1))
        other = np.concatenate([rng.dirichlet(np.full(labels, 0.2), held), votes[held:]])
        shares = [(v.sum(axis=0) + alpha) / (members + labels * alpha) for v in (votes, other)]
        assert np.abs(np.log(shares[0] / shares[1])).max() <= high({"design": "shares", "alpha": alpha}, [held])[0]
    assert high({"design": "shares", "alpha": alpha, "most": 3}, [9]) == high({"design": "shares", "alpha": alpha}, [3])


def test_what_is_no_design_is_refused():
    for settings, held in (
        ({"design": "magic"}, [1]),
        ({"design": "shares", "alpha": 0.0}, [1]),
        ({"design": "shares", "alpha": 1e-9}, [1]),
        ({"design": "shares", "alpha": float("nan")}, [1]),
        ({"design": "shares", "alpha": 1.0}, [-1]),
        ({"design": "log_pool", "clip": 1.0, "members": 0, "labels": 2}, [1]),
        ({"design": "log_pool", "clip": 1e9, "members": 4, "labels": 2}, [1]),
        ({"design": "log_pool", "clip": 1.0, "members": 4}, [1]),
        ({"design": "ball", "C": 1.0, "radius": 2.0, "stop": 0.0}, [1]),
    ):
        with pytest.raises(Refused):
            high(settings, held)
