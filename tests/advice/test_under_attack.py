"""A search under a policy on attacks, and under one on differential privacy, from a refusal to an approval."""

from importlib.util import find_spec

import numpy as np
import pytest

from privgate import Budget, Policy, Recipe, Subject, TrainingData, evaluate
from privgate.advice.change import changed
from privgate.advice.search import Search

RNG = np.random.default_rng(11)
#: 900 people outside: those nearly equal to a member do not count, and 800 must remain
PEOPLE = 900


def table():
    X = RNG.normal(size=(2 * PEOPLE, 4))
    y = (X[:, 0] + RNG.normal(size=2 * PEOPLE) > 0).astype(int)
    return TrainingData(X[:PEOPLE], y[:PEOPLE], candidates=(X[PEOPLE:], y[PEOPLE:]))


def found(search):
    """Return the advice, whose best candidate a check of its own approves."""
    advice = search.advice()
    assert advice.points[0].outcome in ("failed", "inconclusive")
    assert advice.best, [p.why for p in advice.points]
    best = advice.best[0]
    verdict = evaluate(search.policy, changed(search.subject, best.change), fleet=search.fleet, limits=search.limits)
    assert verdict.outcome.releases
    return advice, best


@pytest.mark.slow
def test_a_tree_that_memorises_is_found_a_form_that_attacks_fail_on(fleet):
    from sklearn.tree import DecisionTreeClassifier

    subject = Subject.local(Recipe(DecisionTreeClassifier(), seed=0), table())
    search = Search(Policy.load("attacks-1"), subject, fleet, Budget(), halvings=1, seconds=1200)
    advice, best = found(search)
    assert advice.points[0].outcome == "failed"
    assert not best.change.games
    assert sum(bool(p.confirmed) for p in advice.points) <= 3
    # whoever memorises labels tells them by the label alone: coarser answers defeat no attack
    coarse = [p for p in advice.points if p.change.kind == "release"]
    assert coarse
    assert not any(p.passes for p in coarse)


@pytest.mark.slow
@pytest.mark.skipif(
    any(find_spec(m) is None for m in ("torch", "opacus", "dp_accounting")), reason="the extra dp is not installed"
)
def test_a_linear_model_is_trained_privately_where_the_policy_wants_a_guarantee(fleet):
    from sklearn.linear_model import LogisticRegression

    subject = Subject.local(Recipe(LogisticRegression(), seed=0), table())
    search = Search(Policy.load("dp-trained"), subject, fleet, Budget(shadow_models=32), halvings=1, seconds=1200)
    _, best = found(search)
    assert best.change.kind == "private"
    assert "epsilon 8" in best.change.says
    assert best.useful > 0.6
