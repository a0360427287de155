"""Attacks on what one query returns: every attack runs on every form of release, and hears nothing beyond it."""

from dataclasses import replace

import numpy as np
import pytest

from privgate.membership import attacks
from privgate.membership.attacks.observed import OnRelease
from privgate.statistics.roc import auc
from privgate.subject.release import Release, released

FORMS = [Release("rounded", step=0.1), Release("binned"), Release("top_k", k=1), Release("label"),
         Release(temperature=5.0)]  # fmt: skip


@pytest.mark.quick
@pytest.mark.parametrize("release", FORMS, ids=lambda r: f"{r.form}-{r.temperature:g}")
@pytest.mark.parametrize("attack", attacks.ALL, ids=lambda a: a.name)
def test_every_attack_finds_the_planted_leak_in_what_is_released_and_hears_nothing_else(attack, release, leaking):
    seen = OnRelease(attack, release)
    scores = seen.scores(leaking.without_truth(), np.random.default_rng(3))
    names = replace(leaking, target=released(leaking.target, release), shadow=released(leaking.shadow, release))

    assert np.isfinite(scores).all()
    # members are classified rightly and others mostly wrongly, which even a label shows; yeom_loss tosses a coin
    assert auc(scores, leaking.members) > 0.65
    assert (scores == attack.scores(names, np.random.default_rng(3))).all()
    assert (seen.name, seen.title) == (f"{attack.name} on the release", f"{attack.title}, on what is released")
    assert "declared release" in seen.threat_model


def test_models_that_were_not_trained_are_not_taken_for_answers():
    log_p = np.log(np.full((2, 3, 2), 0.5))
    log_p[1] = np.nan
    shown = OnRelease(attacks.BY_NAME["lira_online"], Release("label")).shown(log_p)

    assert np.isnan(shown[1]).all()
    assert shown[0].tolist() == [[0.0, -np.inf]] * 3
