"""Laws that hold for every attack of the catalogue."""

from dataclasses import replace

import numpy as np
import pytest

from privgate.errors import MeasurementError
from privgate.membership import NAMES, attacks, numbers
from privgate.membership.attacks.self_test import blind_tolerance, plant, self_test
from privgate.statistics.roc import auc

EVERY = pytest.mark.parametrize("attack", attacks.ALL, ids=lambda a: a.name)
ON_NUMBERS = pytest.mark.parametrize("attack", numbers.ALL, ids=lambda a: a.name)


def rng(k=0):
    return np.random.default_rng(k)


def test_a_policy_knows_every_attack_by_name_and_no_other():
    assert sorted(NAMES) == sorted({*attacks.BY_NAME, *numbers.BY_NAME})


@EVERY
def test_finds_a_planted_leak_whoever_was_a_member_and_guesses_where_nothing_leaks(attack, leaking, blind):
    scores = attack.scores(leaking.without_truth(), rng(3))

    assert scores.shape == leaking.labels.shape
    assert np.isfinite(scores).all()
    assert auc(scores, leaking.members) > 0.95
    assert (attack.scores(replace(leaking, members=~leaking.members), rng(3)) == scores).all()
    # 5 standard errors of a Mann-Whitney statistic with 200 records a side
    assert abs(auc(attack.scores(blind.without_truth(), rng()), blind.members) - 0.5) < blind_tolerance(200, 200)


def draws(attack, signals):
    """Whether it draws anything: random batches see another order where records are permuted."""
    generator = rng()
    before = generator.bit_generator.state
    attack.fit(signals.without_truth(), generator)
    return generator.bit_generator.state != before


@EVERY
def test_records_permuted_together_keep_their_scores_or_are_found_as_well(attack, leaking):
    order = rng(5).permutation(len(leaking.labels))
    names, pairs = ("target", "labels", "features"), ("shadow", "shadow_members")
    moved = {n: getattr(leaking, n)[order] for n in names} | {n: getattr(leaking, n)[:, order] for n in pairs}
    scores = attack.scores(replace(leaking, **moved), rng())

    if draws(attack, leaking):
        assert auc(scores, leaking.members[order]) > 0.95
    else:
        assert scores == pytest.approx(attack.scores(leaking, rng())[order], abs=1e-9)


def test_most_attacks_draw_nothing(leaking):
    assert {a.name for a in attacks.ALL if draws(a, leaking)} >= {"shokri", "quantile", "yeom_loss"}
    assert not draws(attacks.BY_NAME["lira_online"], leaking)


@pytest.mark.quick(8)
@EVERY
def test_what_was_learned_once_scores_any_target(attack, leaking):
    scorer = attack.fit(leaking.without_truth(), rng(2))

    assert (scorer(leaking.target) == attack.scores(leaking.without_truth(), rng(2))).all()
    assert np.isfinite(scorer(leaking.shadow[0])).all()


@EVERY
def test_zero_probabilities_give_finite_scores(attack, leaking):
    given = {n: getattr(leaking, n) for n in ("target", "shadow")}
    sure = {n: np.where(p == p.max(axis=-1, keepdims=True), 0.0, -np.inf) for n, p in given.items()}

    assert np.isfinite(attack.scores(replace(leaking, **sure), rng())).all()


@EVERY
def test_failed_shadow_models_are_left_out_and_without_any_there_is_no_number(attack, leaking):
    shadow, keep = leaking.shadow.copy(), np.delete(np.arange(len(leaking.shadow)), [1, 9])  # a complementary pair
    shadow[[1, 9]] = np.nan
    none = replace(leaking, shadow=shadow[:0], shadow_members=leaking.shadow_members[:0])

    if attack.planted_shadows > 2:  # others take a second each
        fewer = replace(leaking, shadow=shadow[keep], shadow_members=leaking.shadow_members[keep])
        assert (attack.scores(replace(leaking, shadow=shadow), rng()) == attack.scores(fewer, rng())).all()
    if attack.min_shadows:
        for broken in (none, replace(leaking, shadow=np.full_like(shadow, np.nan))):
            with pytest.raises(MeasurementError, match="shadow models failed"):
                attack.scores(broken, rng())
    else:
        assert np.isfinite(attack.scores(none, rng())).all()


@pytest.mark.parametrize("attack", [*attacks.ALL, *numbers.ALL], ids=lambda a: a.name)
def test_passes_its_self_test_and_says_where_it_is_from_and_what_it_sees(attack):
    result = self_test(attack)

    assert not result.problem
    assert result.planted >= 0.9 or not attack.per_record
    assert abs(result.blind - 0.5) <= result.tolerance
    assert all([attack.title, attack.source, attack.threat_model])
    assert "Left out:" in type(attack).__doc__ or attack.task == "regression"


@ON_NUMBERS
def test_on_numbers_a_unit_changes_nothing(attack):
    signals = plant(rng(3), leak=True, form="numbers")
    names = ("target", "shadow", "training_loss")
    scaled = replace(signals, members=None, **{n: 1000 * getattr(signals, n) for n in names})
    scores, again = (attack.scores(s, rng()) for s in (signals.without_truth(), scaled))

    assert np.argsort(scores).tolist() == np.argsort(again).tolist()
    assert ((scores > 0) == (again > 0)).all()
