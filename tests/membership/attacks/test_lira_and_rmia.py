"""LiRA and RMIA against re-derivations from their papers, record by record, with nothing shared."""

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.stats import norm

from privgate.membership.attacks import BY_NAME, lira, observed, rmia
from privgate.membership.attacks.observed import FLOOR, own_logit, resolution
from privgate.membership.attacks.self_test import plant
from privgate.statistics.roc import auc

SOME = range(0, 400, 13)


@pytest.fixture(scope="module")
def signals(leaking):
    """40 shadow models: a variance of its own for every record."""
    rng = np.random.default_rng(0)
    shadow = np.concatenate([leaking.shadow] * 3)[:40] + rng.normal(0, 0.3, (40, 400, 3))
    shadow -= np.log(np.exp(shadow).sum(axis=-1, keepdims=True))
    members = np.concatenate([leaking.shadow_members] * 3)[:40]
    return replace(leaking, shadow=shadow, shadow_members=members, members=None)


def step_of(signals):
    """The 2 % quantile of what is left of an answer to the nearer end, by sorting all of them."""
    nearest = []
    for n in range(len(signals.shadow)):
        for i, label in enumerate(signals.labels):
            p = math.exp(signals.shadow[n, i, label])
            nearest.append(min(p, math.fsum(math.exp(v) for k, v in enumerate(signals.shadow[n, i]) if k != label)))
    return sorted(nearest)[int(0.02 * len(nearest))]


def confidence(log_p, label, step):
    """Carlini et al. (2022), equation (5), by exact sums, with ``step`` added to both sides."""
    p = [math.exp(v) for v in log_p]
    return math.log(p[label] + step) - math.log(math.fsum(v for k, v in enumerate(p) if k != label) + step)


def sides(signals, i, step):
    figures = [confidence(signals.shadow[n, i], signals.labels[i], step) for n in range(len(signals.shadow))]
    inside = [f for f, m in zip(figures, signals.shadow_members[:, i], strict=True) if m]
    outside = [f for f, m in zip(figures, signals.shadow_members[:, i], strict=True) if not m]
    return inside, outside


def spread(figures, pooled):
    """Their own variance, as if eight more models had the variance of all records."""
    return ((len(figures) * np.var(figures) + 8 * pooled) / (len(figures) + 8)) ** 0.5


@pytest.mark.parametrize("models", [16, 40])
def test_lira_equals_its_definition(signals, leaking, models):
    used = leaking.without_truth() if models == 16 else signals
    online, offline = (BY_NAME[f"lira_{k}"].scores(used, np.random.default_rng(0)) for k in ("online", "offline"))
    step = step_of(used)
    every = [sides(used, i, step) for i in range(400)]
    pooled = [np.concatenate([(np.array(e[k]) - np.mean(e[k])) ** 2 for e in every]).mean() for k in (0, 1)]

    for i in SOME:
        inside, outside = every[i]
        seen = confidence(used.target[i], used.labels[i], step)
        within, without = spread(inside, pooled[0]), spread(outside, pooled[1])
        want = norm.logpdf(seen, np.mean(inside), within) - norm.logpdf(seen, np.mean(outside), without)
        assert online[i] == pytest.approx(want, abs=1e-6)
        # equation (4): 1 - P(Z > confidence)
        assert norm.cdf(offline[i]) == pytest.approx(1 - norm.sf(seen, np.mean(outside), without), abs=1e-6)


def votes(rng, shape, trees=100):
    """Shares of votes of a forest, many of them exactly 0 or 1."""
    p = rng.binomial(trees, rng.beta(0.2, 0.2, shape)) / trees
    return np.log(np.stack([p, 1 - p], axis=-1))


@np.errstate(divide="ignore")
def test_the_step_is_what_the_answers_show():
    rng, labels = np.random.default_rng(0), np.zeros(500, dtype=int)
    for trees in (2, 3, 10, 100, 1000):
        assert 0.999 < resolution(votes(rng, (8, 500), trees), labels) * trees < 4
    names = np.log(np.eye(2)[rng.integers(0, 2, (8, 500))])
    assert resolution(names, labels) == 0.01  # two answers only: any step keeps them apart
    forest = np.exp(votes(rng, (8, 500)))
    for floor in (1e-15, 1e-9, 1e-5):  # a floor under the answers is no finer resolution
        floored = np.log(np.clip(forest, floor, 1 - floor))
        assert resolution(floored, labels) == pytest.approx(0.01, rel=0.01)
    assert resolution(np.log(np.full((4, 9, 2), 0.5)), labels[:9]) > 0


@given(st.floats(0, 1), st.floats(0, 1), st.floats(1e-30, 0.5))
def test_no_step_reverses_two_answers(p, q, step):
    with np.errstate(divide="ignore"):
        one, other = own_logit(np.log([[[p, 1 - p]], [[q, 1 - q]]]), np.zeros(1, dtype=int), step=step)[:, 0]

    assert np.isfinite([one, other]).all()
    assert (one - other) * (p - q) >= -1e-12


def test_the_published_formula_is_blind_on_votes_and_ours_is_not(monkeypatch):
    found = {}
    for name in ("lira_online", "lira_offline"):
        for published in (False, True):
            with monkeypatch.context() as m:
                if published:  # logits up to +-ln 1e30, one variance for all records
                    m.setattr(lira, "resolution", lambda *_: FLOOR)
                    m.setattr(observed, "POOLED_WEIGHT", 1e9)
                got = []
                for k in range(4):
                    s = plant(np.random.default_rng(k), leak=True, form="votes")
                    got.append(auc(BY_NAME[name].scores(s.without_truth(), None), s.members))
                found[name, published] = np.mean(got)

    assert found["lira_online", False] > found["lira_online", True] + 0.1
    assert found["lira_offline", False] > found["lira_offline", True] + 0.02


@pytest.mark.parametrize("name", ["rmia", "rmia_offline"])
def test_rmia_equals_its_definition(signals, name):
    got = BY_NAME[name].scores(signals, np.random.default_rng(0))
    own = np.exp(signals.shadow[:, np.arange(400), signals.labels])
    inside, outside = (
        np.array([own[side[:, i], i].mean() for i in range(400)])
        for side in (signals.shadow_members, ~signals.shadow_members)
    )
    if name == "rmia_offline":
        a = np.linalg.lstsq((1 - outside)[:, None], 1 - inside, rcond=None)[0][0]
        inside = a * outside + 1 - a
    ratio = np.exp(signals.target[np.arange(400), signals.labels]) / (0.5 * (inside + outside))

    for i in SOME:
        assert got[i] == pytest.approx(np.mean([ratio[i] / z >= 2.0 for z in ratio]), abs=1e-6)


@pytest.mark.parametrize("name", ["lira_offline", "rmia_offline"])
def test_offline_attacks_never_see_models_that_held_the_record(signals, name, monkeypatch):
    i = 5
    shadow = signals.shadow.copy()
    shadow[signals.shadow_members[:, i], i] = np.log([0.98, 0.01, 0.01])
    # two numbers, one for all records, may come from the record's own models
    monkeypatch.setattr(lira, "resolution", lambda *_: 1e-3)
    monkeypatch.setattr(rmia, "slope", lambda *_: 0.5)
    one, other = (
        BY_NAME[name].scores(s, np.random.default_rng(0))[i] for s in (signals, replace(signals, shadow=shadow))
    )

    assert one == pytest.approx(other, abs=1e-9)


def test_a_logit_keeps_digits_where_the_probability_rounds_to_one():
    tiny = np.array([1e-10, 1e-18, 1e-25])
    log_p = np.stack([np.log1p(-tiny), np.log(tiny * 0.75), np.log(tiny * 0.25)], axis=-1)

    assert own_logit(log_p, np.zeros(3, dtype=int), step=1e-300) == pytest.approx(-np.log(tiny), rel=1e-9)
    assert own_logit(log_p, np.ones(3, dtype=int), step=1e-300) == pytest.approx(np.log(tiny * 0.75), rel=1e-9)


def test_every_model_in_turn_equals_leaving_its_pair_out(leaking, monkeypatch):
    attack = BY_NAME["lira_online"]
    monkeypatch.setattr(lira, "resolution", lambda *_: 1e-3)  # read off all models together, or off the others
    order = np.arange(16).reshape(2, 8).T.ravel()  # twins side by side
    log_p, inside = leaking.shadow[order], leaking.shadow_members[order]
    figures = np.stack([own_logit(p, leaking.labels, step=1e-3) for p in log_p])
    got = lira.ratios_in_turn(figures[:, None], inside)[:, 0]

    for i in (0, 7, 15):
        rest = np.setdiff1d(np.arange(16), [i, i ^ 1])
        alone = replace(leaking, target=log_p[i], shadow=log_p[rest], shadow_members=inside[rest], members=None)
        assert got[i] == pytest.approx(attack.scores(alone, np.random.default_rng(0)), abs=1e-6)
