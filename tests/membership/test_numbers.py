"""Attacks on regressors: known answers, Theorems 2 and 3 against closed form and simulation, and blind where due."""

import math

import numpy as np
import pytest
from sklearn.tree import DecisionTreeRegressor

from privgate import Budget, Laplace, Policy, Recipe, Release, Subject, TrainingData, evaluate
from privgate.membership import numbers
from privgate.membership.attacks.attack_base import Signals
from privgate.statistics.roc import Decisions
from privgate.training.fleet import Fleet


def theorem_3(r):
    """Return the advantage of Adversary 2 who knows both errors, for normal ones with r = sigma_D / sigma_S."""
    root = math.sqrt(math.log(r) / (r * r - 1))
    return math.erf(r * root) - math.erf(root)


def normal_errors(r, rng, n=40_000):
    """Return signals of n members and n others with normal errors, and two shadow models to learn both errors from."""
    members = np.arange(2 * n) < n
    deviation = np.where(members, 1.0, r)
    inside = np.stack([members, ~members])
    shadow = rng.normal(size=inside.shape) * np.where(inside, 1.0, r)
    target, nobody = rng.normal(size=2 * n) * deviation, np.zeros(2 * n, dtype=np.int64)
    return Signals(target[:, None], nobody, shadow[..., None], inside, members, training_loss=1.0)


@pytest.mark.parametrize("r", [1.05, 1.5, 2.0, 10.0])
def test_theorem_3_within_monte_carlo_limits(r):
    signals = normal_errors(r, np.random.default_rng(int(100 * r)))
    expected = {
        "error_densities": theorem_3(r),
        "error_threshold": math.erf(1 / math.sqrt(2)) - math.erf(1 / (math.sqrt(2) * r)),
    }
    for name, due in expected.items():
        scores = numbers.BY_NAME[name].scores(signals.without_truth(), np.random.default_rng(0))
        found = Decisions.from_flags(scores > 0, signals.members).advantage
        assert found == pytest.approx(due, abs=5 * math.sqrt(0.5 / 40_000))  # five standard errors of TPR - FPR


def test_the_published_values_of_theorem_3():
    assert [round(theorem_3(r), 4) for r in (1.5, 2.0, 10.0)] == [0.1936, 0.3227, 0.7982]
    assert theorem_3(1.001) / 0.001 == pytest.approx(0.484, abs=1e-3)


def test_theorem_2_is_the_gap_of_the_bounded_loss():
    signals = normal_errors(2.0, np.random.default_rng(5))
    scores = numbers.BY_NAME["squared_loss"].scores(signals.without_truth(), np.random.default_rng(1))
    bound = (signals.shadow**2).max()
    loss = np.minimum(signals.target[:, 0] ** 2 / bound, 1.0)
    gap = loss[~signals.members].mean() - loss[signals.members].mean()

    assert Decisions.from_flags(scores > 0, signals.members).advantage == pytest.approx(
        gap, abs=5 * math.sqrt(0.5 / 40_000)
    )


POLICY = """
schema: privgate/policy/v1
name: attacked
version: "1"
rules:
  - {metric: attack_accuracy, max: 0.9}
  - {id: by_label, metric: attack_accuracy, max: 0.9, scope: class, mode: warn}
"""


def judge(tmp_path, estimator, release=None, attack=""):
    (tmp_path / "p.yaml").write_text(POLICY.replace("max: 0.9}", f"max: 0.9{attack}}}", 1))
    rng = np.random.default_rng(0)
    X = rng.normal(size=(160, 3))
    y = X[:, 0] + rng.normal(size=160)
    data = TrainingData(X[:80], y[:80], candidates=(X[80:], y[80:]), one_record_each=True)
    subject = Subject.local(Recipe(estimator, seed=0), data, release=release)
    with Fleet(jobs=1, ledger="none") as fleet:
        verdict = evaluate(Policy.load(tmp_path / "p.yaml"), subject, fleet=fleet, limits=Budget(shadow_models=16))
    return verdict, {f.rule: f for f in verdict.findings}


@pytest.mark.parametrize("noise", [None, Laplace(1e9)], ids=["exact", "drowned in noise"])
def test_a_tree_that_knows_its_members_is_found_unless_noise_drowns_it(tmp_path, noise):
    verdict, findings = judge(tmp_path, DecisionTreeRegressor(), Release(noise=noise))

    found = {a.name: a.figures.auc for a in verdict.evidence.membership.attacks}
    assert set(found) == set(numbers.BY_NAME)
    if noise is None:
        assert min(found[n] for n in ("residual_lira", "error_densities", "error_threshold")) > 0.9
        assert findings["attack_accuracy"].low > 0.75
    else:
        assert max(found.values()) < 0.65
    assert "a regressor has no labels" in findings["by_label"].message


def test_an_attack_on_probabilities_is_no_attack_on_numbers(tmp_path):
    _, findings = judge(tmp_path, DecisionTreeRegressor(max_depth=2), attack=", attack: lira_online")

    assert findings["attack_accuracy"].outcome == "inconclusive"
    assert "no attack on this kind of model" in findings["attack_accuracy"].message
