"""``--plan``: trainings are those that each rule says it makes, added up, and a check makes no more."""

import importlib.metadata

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check import beforehand
from privgate.check import plan as planning
from privgate.check.plan import costs
from privgate.check.prepare import prepare
from privgate.evidence.verdict import Outcome
from privgate.influence.riskiest import FOLDS
from privgate.run.run import Budget
from privgate.subject.sources import providing
from privgate.training.fleet import Fleet

N = 40
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, 2))
Y = (X[:, 0] + RNG.logistic(size=N) > 0).astype(int)
MANY, GUESSED = RNG.normal(size=(400, 3)), RNG.integers(0, 2, 400)
ATTACKED = TrainingData(MANY[:200], GUESSED[:200], candidates=(MANY[200:], GUESSED[200:]), one_record_each=True)


def fitted(X, y, *, seed):
    """Logistic regression that only refits cover."""
    del seed
    return LogisticRegression().fit(X, y)


@pytest.mark.parametrize(
    ("recipe", "policy", "spare"),
    [
        (Recipe(fitted, seed=1), "pdtp-1", 2),  # each of two in a process of its own, where own code trains
        (Recipe(GaussianNB(var_smoothing=0.1), seed=1), "pdtp-1", 2),
        (Recipe(GaussianNB(var_smoothing=0.1), seed=1), "share-1", 2),
        (Recipe(LogisticRegression(solver="newton-cholesky", tol=1e-8), seed=1), "pdtp-1", 5),
    ],
)
def test_what_is_planned_is_what_a_check_makes_that_is_not_refused(recipe, policy, spare):
    subject = Subject.local(recipe, TrainingData(X, Y, one_record_each=True))
    with Fleet(1, "none", isolate="none") as own:
        planned = costs(Policy.load(policy), subject, fleet=own, limits=Budget())
        assert own.calls <= 25  # a few are timed, and remembered
        assert evaluate(policy, subject, fleet=own).outcome.releases
        assert planned.trainings - N / 4 <= own.calls <= planned.trainings + spare
    assert planned.seconds > 0
    assert any(f"{policy} could approve this model: at most" in line for line in planned.said)
    assert f"in all: at most {planned.trainings} trainings" in "\n".join(planned.said)


def test_rules_are_added_up_and_what_two_of_them_ask_for_is_trained_once(load_policy):
    one = "  - {id: one, metric: pdtp, max: 1.0}\n"
    other = "  - {id: other, metric: pdtp, max: 2.0}\n"
    attack = "  - {metric: attack_accuracy, max: 0.7}\n"
    subject, made = Subject.local(Recipe(GaussianNB(), seed=1), ATTACKED), {}
    with Fleet(1, "none", isolate="none") as own:
        for rules in (one, one + other, attack, one + attack):
            policy = load_policy(f"rules:\n{rules}")
            run = prepare(policy, subject, fleet=own, limits=Budget())
            made[rules], said = planning.make(run, policy, each=2.0)
        assert own.calls == 0
    assert made[attack].retrains == 64
    assert made[one].retrains == made[one + other].retrains == 200 + FOLDS
    assert made[one + attack].retrains == made[one].retrains + 64
    assert made[one + attack].seconds == 2.0 * made[one + attack].retrains
    assert "shadow models on random halves of the pool: at most 64 trainings (rules: attack_accuracy)" in said


def test_where_a_plan_says_that_a_check_ends_it_ends():
    ends = {}
    data = TrainingData(MANY[:40], GUESSED[:40], one_record_each=True)
    for model in (RandomForestClassifier(3), KNeighborsClassifier()):
        subject = Subject.local(Recipe(model, seed=None if "Forest" in type(model).__name__ else 1), data)
        policy = "pdtp-1" if "Forest" in type(model).__name__ else "release-1"
        with Fleet(1, "none", isolate="none") as own:
            planned = costs(Policy.load(policy), subject, fleet=own, limits=Budget())
            before = own.calls
            assert evaluate(policy, subject, fleet=own).outcome is not Outcome.PASSED
            assert own.calls == before == planned.trainings <= 2
        ends[policy] = planned.ends

    assert "leaves random_state open; give Recipe(seed=…)" in ends["pdtp-1"]
    assert "40 records of the training data" in ends["release-1"]


def test_a_stronger_rule_costs_what_it_says_and_controls_are_counted_beside():
    subject = Subject.local(Recipe(GaussianNB(), seed=1), ATTACKED)
    with Fleet(1, "none", isolate="none") as own:
        planned = costs(Policy.load("attacks-1"), subject, fleet=own, limits=Budget(shadow_models=40, full=True))
        run = beforehand.choose_seeds(
            prepare(Policy.load("attacks-1"), subject, fleet=own, limits=Budget()), glance=True
        )
        assert planned.trainings == 40 + beforehand.count_trainings(run)
    assert any("shadow models on random halves of the pool: at most 40 trainings" in line for line in planned.said)


def test_who_provides_a_module_is_found_without_asking_for_every_file():
    provided = importlib.metadata.packages_distributions()
    for module in ("sklearn", "numpy", "yaml", "pandas", "click"):
        assert set(providing((module,))) == set(provided[module])
    assert providing(()) == providing(("no_such_module",)) == providing(("__pycache__", "a.*")) == []
