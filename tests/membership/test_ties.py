"""Equal records of several people: a tie is no evidence, and whoever is known by a record is found all the same.

The simulations of docs/mathematics.md, section 9.5: 1,500 people a side, of whom a share coincides with somebody.
"""

from types import SimpleNamespace

import numpy as np
import pytest

from privgate.kernel.sample import lower_limit
from privgate.membership.attack_measures import look_once
from privgate.membership.attacks.attack_base import Signals
from privgate.membership.board import Attempt
from privgate.membership.limits import Figure
from privgate.run.coincidences import Coincidences, keep_common
from privgate.statistics.roc import best_threshold
from tests.membership.test_looks import ACCURACY, TPR, Simulated

SIDE = 1500
MEMBERS = np.arange(2 * SIDE) < SIDE
SHARES = (0.0, 0.3, 0.6, 0.9)


def draw_records(share, rng):
    """Return a record of each person: common ones by Zipf's law, else one's own; and how common each is."""
    weight = 1 / np.arange(1, 601)
    common = rng.choice(600, 2 * SIDE, p=weight / weight.sum())
    own = rng.random(2 * SIDE) >= share
    return np.where(own, 1000 + np.arange(2 * SIDE), common), np.where(own, -8.0, np.log(weight[common] / 7))


def harmless(holders, inside):
    """Return what a model's answer says beside how common a record is: nothing."""
    return np.zeros(2 * SIDE)


def knows_who_is_alone(holders, inside):
    return 2.5 * ((holders == 1) & MEMBERS)


def knows_whose_record_is_there_twice(holders, inside):
    return 4.0 * ((inside > 1) & MEMBERS)


def judge(share, leak, rng):
    """Return whether the rules of release-1 refuse, and whether they approve."""
    records, commonness = draw_records(share, rng)
    if leak is knows_whose_record_is_there_twice:  # 30 % of the members stand there twice
        records[: int(0.15 * SIDE)] = records[int(0.15 * SIDE) : 2 * int(0.15 * SIDE)]
    _, holders = Coincidences.count(records, np.arange(2 * SIDE), SIDE)
    inside = np.bincount(records[:SIDE], minlength=records.max() + 1)[records]
    people, known = np.arange(2 * SIDE), rng.random(2 * SIDE) < 0.5
    attempts = []
    for name in ("one", "two"):
        scores = 0.3 * commonness + leak(holders, inside) + rng.normal(size=2 * SIDE)
        learned = best_threshold(scores[known], MEMBERS[known])
        attempts.append(Attempt(SimpleNamespace(name=name), scores, 0.0, learned, None))
    pool = SimpleNamespace(copies=0.0, removed={}, fit=None, holders=holders, members=MEMBERS)
    run = SimpleNamespace(
        generator=lambda _: rng, compute=lambda _: (SimpleNamespace(sentence=""),),
        subject=SimpleNamespace(release=SimpleNamespace(noise=None, exact=True, alone=False)),
    )  # fmt: skip
    empty = np.zeros((2 * SIDE, 1))
    signals = Signals(empty, people * 0, np.zeros((64, 2 * SIDE, 1)), np.zeros((64, 2 * SIDE), bool))
    board = Simulated(signals, pool, people, MEMBERS, people, known, run)
    board.made = attempts
    refused, approved = False, True
    for request, figure, limit in ((ACCURACY, Figure.ACCURACY, 0.6), (TPR, Figure.MEMBERS_FOUND, 0.1)):
        seen = look_once(board, request, figure, low_alpha=0.05, high_alpha=0.05)
        refused, approved = refused or seen.shown.low > limit, approved and seen.high <= limit
    return refused, approved


def count(share, leak, runs):
    """Return how many runs refuse and how many approve."""
    return np.sum([judge(share, leak, np.random.default_rng([k, int(100 * share)])) for k in range(runs)], axis=0)


@pytest.mark.parametrize("runs", [12, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", SHARES)
def test_ties_refuse_nobody_and_hide_no_leak(share, runs):
    refused, approved = count(share, harmless, runs)
    assert lower_limit(int(refused), runs, alpha=0.01) <= 0.05
    assert approved >= 0.85 * runs
    for leak in (knows_who_is_alone, knows_whose_record_is_there_twice):
        refused, approved = count(share, leak, runs)
        assert lower_limit(int(approved), runs, alpha=0.01) <= 0.05, leak
        assert refused >= (0.6 if share == 0.9 else 0.95) * runs


def test_a_weak_leak_of_the_few_who_are_alone_takes_the_approval():
    """Limits over everybody allow it in half of the runs."""
    _, approved = count(0.9, lambda holders, inside: knows_who_is_alone(holders, inside) / 3, 20)
    assert approved <= 2


@pytest.mark.parametrize("runs", [100, pytest.param(1000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("share", SHARES)
def test_copies_alarm_and_honest_pools_do_not(share, runs):
    alarms, copied = 0, 0
    for k in range(runs):
        rng = np.random.default_rng([k, int(100 * share), 5])
        records = draw_records(share, rng)[0]
        held, _ = Coincidences.count(records, np.arange(2 * SIDE), SIDE)
        assert not held.deduplicated
        alarms += held.count_copies(rng) > 0
        records[SIDE : SIDE + 300] = records[:300]
        charge = Coincidences.count(records, np.arange(2 * SIDE), SIDE)[0].count_copies(rng)
        copied += charge >= 300 * (1 - share) / 2
    assert lower_limit(alarms, runs, alpha=0.01) <= 0.01
    assert copied >= (0.05 if share == 0.9 else 0.9) * runs


@pytest.mark.parametrize(("inside", "outside"), [(10, 10), (10, 1)])
def test_what_couples_share_in_many_records_is_one_coincidence(inside, outside):
    """People of one kind share records: members ten each, and candidates as many, or one."""
    alarms, copied, runs = 0, 0, 50
    for k in range(runs):
        rng = np.random.default_rng([k, 8])
        person = np.repeat(np.arange(600), np.where(np.arange(600) < 300, inside, outside))
        kind = rng.integers(0, 20000, 600)
        records = kind[person] * 10 + np.concatenate([np.arange(10)] * 300 + [rng.permutation(10)[:outside]] * 300)
        for n_copied in (0, 30):
            records[np.flatnonzero(person >= 300)[: n_copied * outside]] = records[: n_copied * outside]
            held, _ = Coincidences.count(records, person, 300)
            assert not (held.deduplicated and held.merged.deduplicated)
            charge = min(way.count_copies(rng) for way in (held, held.merged))
            alarms, copied = alarms + (not n_copied and charge > 0), copied + (charge >= n_copied > 0)
    assert lower_limit(alarms, runs, alpha=0.01) <= 0.01
    assert copied >= 0.9 * runs


def test_labels_that_members_lack_are_left_out_on_both_sides():
    rng = np.random.default_rng(2)
    weight = 1 / np.arange(1, 501)
    labels = rng.choice(500, 3000, p=weight / weight.sum())
    kept = keep_common(labels, 1500, 1500)
    only_outside = np.setdiff1d(labels[1500:], labels[:1500])
    assert len(only_outside) > 0
    assert not kept[only_outside].any()
    assert 1500 < kept[labels].sum() < 2500
