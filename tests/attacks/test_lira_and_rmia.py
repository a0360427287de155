"""LiRA and RMIA against re-derivations from their papers, record by record, with nothing shared."""

import math
from dataclasses import replace

import numpy as np
import pytest
from scipy.stats import norm

from privgate.attacks import BY_NAME
from privgate.attacks.observed import own_logit

SOME = range(0, 400, 13)


@pytest.fixture(scope="module")
def signals(leaking):
    """40 shadow models: a variance of its own for every record."""
    rng = np.random.default_rng(0)
    shadow = np.concatenate([leaking.shadow] * 3)[:40] + rng.normal(0, 0.3, (40, 400, 3))
    shadow -= np.log(np.exp(shadow).sum(axis=-1, keepdims=True))
    members = np.concatenate([leaking.shadow_members] * 3)[:40]
    return replace(leaking, shadow=shadow, shadow_members=members, members=None)


def confidence(log_p, label):
    """Carlini et al. (2022), equation (5), by exact sums."""
    p = [math.exp(v) for v in log_p]
    return math.log(p[label]) - math.log(math.fsum(v for k, v in enumerate(p) if k != label))


def sides(signals, i):
    figures = [confidence(signals.shadow[n, i], signals.labels[i]) for n in range(len(signals.shadow))]
    inside = [f for f, m in zip(figures, signals.shadow_members[:, i], strict=True) if m]
    outside = [f for f, m in zip(figures, signals.shadow_members[:, i], strict=True) if not m]
    return inside, outside


def test_online_lira_equals_its_definition(signals):
    got = BY_NAME["lira_online"].scores(signals, np.random.default_rng(0))

    for i in SOME:
        inside, outside = sides(signals, i)
        seen = confidence(signals.target[i], signals.labels[i])
        want = norm.logpdf(seen, np.mean(inside), np.std(inside)) - norm.logpdf(seen, np.mean(outside), np.std(outside))
        assert got[i] == pytest.approx(want, abs=1e-6)


def test_offline_lira_orders_as_its_definition(signals):
    got = BY_NAME["lira_offline"].scores(signals, np.random.default_rng(0))

    for i in SOME:
        _, outside = sides(signals, i)
        seen = confidence(signals.target[i], signals.labels[i])
        want = 1 - norm.sf(seen, np.mean(outside), np.std(outside))  # equation (4): 1 - P(Z > confidence)
        assert norm.cdf(got[i]) == pytest.approx(want, abs=1e-6)


def test_few_models_share_one_variance(leaking):
    got = BY_NAME["lira_online"].scores(leaking.without_truth(), np.random.default_rng(0))
    per_record = [sides(leaking, i) for i in range(400)]
    var_in = np.mean([np.var(a) for a, _ in per_record])
    var_out = np.mean([np.var(b) for _, b in per_record])

    for i in SOME:
        inside, outside = per_record[i]
        seen = confidence(leaking.target[i], leaking.labels[i])
        want = norm.logpdf(seen, np.mean(inside), var_in**0.5) - norm.logpdf(seen, np.mean(outside), var_out**0.5)
        assert got[i] == pytest.approx(want, abs=1e-6)


def test_rmia_equals_its_definition(signals):
    got = BY_NAME["rmia"].scores(signals, np.random.default_rng(0))

    def ratio(i):
        label = signals.labels[i]
        p = np.exp(signals.shadow[:, i, label])
        inside = signals.shadow_members[:, i]
        return math.exp(signals.target[i, label]) / (0.5 * (p[inside].mean() + p[~inside].mean()))

    ratios = [ratio(i) for i in range(400)]
    for i in SOME:
        want = np.mean([ratios[i] / z >= 2.0 for z in ratios])
        assert got[i] == pytest.approx(want, abs=1e-6)


def test_a_logit_keeps_digits_where_the_probability_rounds_to_one():
    tiny = np.array([1e-10, 1e-18, 1e-25])
    log_p = np.stack([np.log1p(-tiny), np.log(tiny * 0.75), np.log(tiny * 0.25)], axis=-1)

    assert own_logit(log_p, np.zeros(3, dtype=int)) == pytest.approx(-np.log(tiny), rel=1e-9)
    assert own_logit(log_p, np.ones(3, dtype=int)) == pytest.approx(np.log(tiny * 0.75), rel=1e-9)


@pytest.mark.parametrize("name", ["lira_online", "rmia"])
@pytest.mark.parametrize("count", [16, 40])
def test_every_model_in_turn_equals_leaving_its_pair_out(signals, leaking, name, count):
    attack = BY_NAME[name]
    used = leaking.without_truth() if count == 16 else signals
    # twins side by side
    one = [i for i in range(len(used.shadow)) if used.shadow_members[i, 0]]
    twin = [
        next(j for j in range(len(used.shadow)) if (used.shadow_members[j] ^ used.shadow_members[i]).all()) for i in one
    ]
    order = np.ravel(list(zip(one, twin, strict=True)))[:count]
    log_p, inside = used.shadow[order], used.shadow_members[order]

    got = attack.each_in_turn(log_p, inside, used.labels)

    for i in (0, 7, len(order) - 1):
        rest = np.setdiff1d(np.arange(len(order)), [i, i ^ 1])
        alone = replace(used, target=log_p[i], shadow=log_p[rest], shadow_members=inside[rest])
        assert got[i] == pytest.approx(attack.scores(alone, np.random.default_rng(0)), abs=1e-6)
