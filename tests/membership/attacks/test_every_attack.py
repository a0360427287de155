"""Laws that hold for every attack of the catalogue."""

from dataclasses import replace

import numpy as np
import pytest

from privgate.errors import MeasurementError
from privgate.membership import NAMES, attacks, numbers
from privgate.membership.attacks.self_test import blind_tolerance, self_test
from privgate.statistics.roc import auc

EVERY = pytest.mark.parametrize("attack", attacks.ALL, ids=lambda a: a.name)


def test_a_policy_knows_every_attack_by_name_and_no_other():
    assert set(NAMES) == {*attacks.BY_NAME, *numbers.BY_NAME}
    assert len(NAMES) == len(set(NAMES))


def rng(k=0):
    return np.random.default_rng(k)


@EVERY
def test_gives_one_finite_score_a_record(attack, leaking):
    scores = attack.scores(leaking.without_truth(), rng())

    assert scores.shape == leaking.labels.shape
    assert np.isfinite(scores).all()


@EVERY
def test_finds_a_planted_leak(attack, leaking):
    assert auc(attack.scores(leaking.without_truth(), rng()), leaking.members) > 0.95


@EVERY
def test_guesses_at_random_when_nothing_leaks(attack, blind):
    # 5 standard errors of a Mann-Whitney statistic with 200 records a side
    assert abs(auc(attack.scores(blind.without_truth(), rng()), blind.members) - 0.5) < blind_tolerance(200, 200)


@pytest.mark.quick(8)
@EVERY
def test_same_randomness_same_scores(attack, leaking):
    one, other = (attack.scores(leaking.without_truth(), rng(3)) for _ in range(2))

    assert (one == other).all()


@EVERY
def test_never_reads_who_was_a_member(attack, leaking):
    wrong = replace(leaking, members=~leaking.members)

    assert (attack.scores(wrong, rng(3)) == attack.scores(leaking.without_truth(), rng(3))).all()


def draws(attack, signals):
    """Whether it draws anything: random batches see another order where records are permuted."""
    generator = rng()
    before = generator.bit_generator.state
    attack.fit(signals.without_truth(), generator)
    return generator.bit_generator.state != before


@EVERY
def test_records_permuted_together_keep_their_scores_or_are_found_as_well(attack, leaking):
    order = rng(5).permutation(len(leaking.labels))
    moved = replace(
        leaking,
        target=leaking.target[order],
        labels=leaking.labels[order],
        shadow=leaking.shadow[:, order],
        shadow_members=leaking.shadow_members[:, order],
        features=leaking.features[order],
    )
    scores = attack.scores(moved, rng())

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
    certain = np.where(leaking.target == leaking.target.max(axis=-1, keepdims=True), 0.0, -np.inf)
    shadow = np.where(leaking.shadow == leaking.shadow.max(axis=-1, keepdims=True), 0.0, -np.inf)

    assert np.isfinite(attack.scores(replace(leaking, target=certain, shadow=shadow), rng())).all()


@EVERY
def test_without_shadow_models_it_runs_only_if_it_says_so(attack, leaking):
    none = replace(leaking, shadow=leaking.shadow[:0], shadow_members=leaking.shadow_members[:0])

    if attack.min_shadows:
        with pytest.raises(MeasurementError, match="shadow"):
            attack.scores(none, rng())
    else:
        assert np.isfinite(attack.scores(none, rng())).all()


@pytest.mark.quick(8)
@EVERY
def test_failed_shadow_models_are_left_out(attack, leaking):
    shadow = leaking.shadow.copy()
    shadow[[1, 9]] = np.nan  # a complementary pair
    scores = attack.scores(replace(leaking, shadow=shadow), rng())
    keep = np.delete(np.arange(len(shadow)), [1, 9])
    fewer = replace(leaking, shadow=leaking.shadow[keep], shadow_members=leaking.shadow_members[keep])

    assert np.isfinite(scores).all()
    assert (scores == attack.scores(fewer, rng())).all()


@EVERY
def test_all_shadow_models_failed_is_no_number(attack, leaking):
    failed = replace(leaking, shadow=np.full_like(leaking.shadow, np.nan))

    if attack.min_shadows:
        with pytest.raises(MeasurementError, match="failed"):
            attack.scores(failed, rng())


@EVERY
def test_passes_its_self_test(attack):
    result = self_test(attack)

    assert not result.problem
    assert result.planted >= 0.9
    assert abs(result.blind - 0.5) <= result.tolerance


@EVERY
def test_it_says_what_it_sees_where_it_is_from_and_what_is_left_out(attack):
    assert "Left out:" in type(attack).__doc__
    assert attack.title
    assert attack.source
    assert attack.threat_model
