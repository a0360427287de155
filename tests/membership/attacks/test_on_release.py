"""Attacks on what one query returns: every attack runs on every form of release, and hears nothing beyond it."""

from dataclasses import replace

import numpy as np
import pytest

from privgate.membership import attacks
from privgate.membership.attacks.on_release import OnRelease
from privgate.statistics.roc import auc
from privgate.subject.release import Release
from privgate.subject.released import released

FORMS = [Release("rounded", step=0.1), Release("binned"), Release("top_k", k=1), Release("label"),
         Release(temperature=5.0)]  # fmt: skip


def rng(k=0):
    return np.random.default_rng(k)


@pytest.mark.quick
@pytest.mark.parametrize("release", FORMS, ids=lambda r: f"{r.form}-{r.temperature:g}")
@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda a: a.name)
def test_every_attack_finds_the_planted_leak_in_what_is_released(attack, release, leaking):
    scores = OnRelease(attack, release).scores(leaking.without_truth(), rng())

    assert np.isfinite(scores).all()
    # members are classified rightly and others mostly wrongly, which even a label shows; yeom_loss tosses a coin
    assert auc(scores, leaking.members) > 0.65


@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda a: a.name)
def test_an_attack_hears_nothing_that_is_not_released(attack, leaking):
    release = Release("label")
    names = replace(leaking, target=released(leaking.target, release), shadow=released(leaking.shadow, release))

    assert (OnRelease(attack, release).scores(leaking, rng(3)) == attack.scores(names, rng(3))).all()


def test_models_that_were_not_trained_are_not_taken_for_answers():
    log_p = np.log(np.full((2, 3, 2), 0.5))
    log_p[1] = np.nan
    shown = OnRelease(attacks.BY_NAME["lira_online"], Release("label")).shown(log_p)

    assert np.isnan(shown[1]).all()
    assert shown[0].tolist() == [[0.0, -np.inf]] * 3


def test_it_is_named_for_what_it_saw():
    seen = OnRelease(attacks.BY_NAME["rmia"], Release("binned"))

    assert seen.name == "rmia on the release"
    assert seen.title.endswith("on what is released")
    assert "declared release" in seen.threat_model
