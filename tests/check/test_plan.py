"""``--plan``: trainings are those that each rule says it makes, added up, and a check makes no more."""

import importlib.metadata
import re

import numpy as np
import pytest
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

import privgate
from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check import beforehand
from privgate.check import plan as planning
from privgate.check.plan import costs
from privgate.check.prepare import prepare
from privgate.controls.seeds import COMPARED
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


def untrainable(X, y, *, seed):
    raise RuntimeError("no warehouse")


@pytest.mark.parametrize(
    ("recipe", "policy"),
    [
        (Recipe(fitted, seed=1), "pdtp-1"),
        (Recipe(GaussianNB(var_smoothing=0.1), seed=1), "pdtp-1"),
        (Recipe(GaussianNB(var_smoothing=0.1), seed=1), "share-1"),
        (Recipe(LogisticRegression(solver="newton-cholesky", tol=1e-8), seed=1), "pdtp-1"),
    ],
)
def test_a_plan_trains_once_and_names_what_a_check_makes_that_is_not_refused(recipe, policy):
    subject = Subject.local(recipe, TrainingData(X, Y, one_record_each=True))
    with Fleet(1, "none", isolate="none") as own:
        planned = costs(Policy.load(policy), subject, fleet=own, limits=Budget())
        assert own.calls == 1
        assert evaluate(policy, subject, fleet=own).outcome.releases
        drawn = 0 if recipe.is_estimator else COMPARED  # whether a function reads its seed, only trainings show
        assert planned.trainings / 1.3 - drawn <= own.calls <= 1.3 * planned.trainings
        assert own.calls <= planned.most + 2  # each of two in a process of its own, where own code trains
    assert planned.seconds > 0
    said = "\n".join(planned.said)
    assert policy in said.partition("policies that could approve this model: ")[2]
    assert f"in all: {planned.trainings} trainings if the first looks approve, at most {planned.most}" in said


POLICY = Policy.load("release-1")


@pytest.mark.parametrize(("depth", "limit"), [(None, 0.6), (2, 0.8)], ids=["refused", "not refused"])
def test_a_plan_names_both_ways_of_a_forest(depth, limit, load_policy):
    people = "  - {metric: pdtp, aggregate: share_above, threshold: 1.0, max: 0.05}\n"
    policy = load_policy(f"rules:\n{people}  - {{metric: attack_accuracy, level: 0.05, max: {limit}}}\n")
    forest = Recipe(RandomForestClassifier(10, max_depth=depth, min_samples_leaf=1 if depth is None else 60), seed=1)
    subject = Subject.local(forest, ATTACKED)
    with Fleet(1, "none", isolate="none") as own:
        planned = costs(policy, subject, fleet=own, limits=Budget())
        assert own.calls == 1
        verdict = evaluate(policy, subject, fleet=own)
    assert (verdict.outcome is Outcome.FAILED) == (depth is None)
    expected = planned.early if depth is None else planned.trainings
    assert expected / 1.3 <= own.calls <= 1.3 * expected
    assert f"if attacks refuse at their first look: {planned.early} trainings" in "\n".join(planned.said)


def test_rules_are_added_up_and_what_two_of_them_ask_for_is_trained_once(load_policy):
    one = "  - {id: one, metric: pdtp, max: 1.0}\n"
    other = "  - {id: other, metric: pdtp, max: 2.0}\n"
    attack = "  - {metric: attack_accuracy, max: 0.7}\n"
    subject, made = Subject.local(Recipe(GaussianNB(), seed=1), ATTACKED), {}
    with Fleet(1, "none", isolate="none") as own:
        for rules in (one, one + other, attack, one + attack):
            policy = load_policy(f"rules:\n{rules}")
            run = prepare(policy, subject, fleet=own, limits=Budget())
            made[rules], first, said = planning.make(run, policy)
        assert own.calls == 0
    assert made[attack].retrains == 64
    assert made[one].retrains == made[one + other].retrains == 200 + FOLDS
    assert made[one + attack].retrains == made[one].retrains + 64
    assert "shadow models on random halves of the trials: at most 64 trainings (rules: attack_accuracy)" in said
    assert first == made[one + attack].retrains


def test_where_a_plan_says_that_a_check_ends_it_ends():
    ends = {}
    data = TrainingData(MANY[:40], GUESSED[:40], one_record_each=True)
    for name, model in (("untrainable", Recipe(untrainable, seed=1)), ("file", Recipe(KNeighborsClassifier(), seed=1))):
        subject = Subject.local(model, data)
        with Fleet(1, "none", isolate="none") as own:
            planned = costs(POLICY, subject, fleet=own, limits=Budget(full=True))
            before = own.calls
            assert evaluate(POLICY, subject, fleet=own, limits=Budget(full=True)).outcome is not Outcome.PASSED
            assert own.calls == before == planned.trainings <= 1
        ends[name] = planned.ends

    assert "no warehouse" in ends["untrainable"] or "training raised RuntimeError" in ends["untrainable"]
    assert "40 records of the training data" in ends["file"]


def test_a_stronger_rule_costs_what_it_says_and_controls_are_counted_beside():
    subject = Subject.local(Recipe(GaussianNB(), seed=1), ATTACKED)
    with Fleet(1, "none", isolate="none") as own:
        planned = costs(Policy.load("attacks-1"), subject, fleet=own, limits=Budget(shadow_models=40, full=True))
        run = beforehand.foresee_seeds(prepare(Policy.load("attacks-1"), subject, fleet=own, limits=Budget()))
        assert planned.most == 40 + beforehand.count_trainings(run)
    said = "shadow models on random halves of the trials: 32 trainings, at most 40"
    assert any(said in line for line in planned.said)


def test_a_plan_says_what_each_rule_on_attacks_resolves(load_policy):
    policy = load_policy("rules:\n  - {metric: attack_accuracy, level: 0.05, max: 0.65}\n")
    few = TrainingData(MANY[:40], GUESSED[:40], candidates=(MANY[200:240], GUESSED[200:240]), one_record_each=True)
    told = {}
    for name, data in (("few", few), ("many", ATTACKED)):
        with Fleet(1, "none", isolate="none") as own:
            subject = Subject.local(Recipe(GaussianNB(), seed=1), data)
            said = costs(policy, subject, fleet=own, limits=Budget()).said
        told[name] = next(line for line in said if line.startswith("attack_accuracy: an attack that guesses"))
    assert re.search(r"65 % is allowed: give more candidates, \d00 or more instead of 40$", told["few"])
    assert told["many"].endswith("65 % is allowed")


@pytest.mark.parametrize(("outside", "said"), [(200, "needs 800 candidates, and 200 are usable"), (0, "")])
def test_whoever_logs_a_model_is_told_before_training_what_its_candidates_can_show(tmp_path, capsys, outside, said):
    more = {"candidates": (MANY[200 : 200 + outside], GUESSED[200 : 200 + outside])} if outside else {}
    data = TrainingData(MANY[:200], GUESSED[:200], one_record_each=True, **more)
    with pytest.raises(Exception, match="no warehouse"):
        privgate.log_model(Recipe(untrainable, seed=1), data, store=tmp_path)
    err = capsys.readouterr().err
    assert said in err
    assert ("privgate: " in err) is bool(outside)


@pytest.mark.parametrize("floor", [None, True])
def test_a_check_says_it_too_where_there_are_enough(load_policy, floor):
    told, release = [], privgate.Release(floor=floor)
    policy = load_policy("rules:\n  - {metric: attack_accuracy, level: 0.05, max: 0.65}\n")
    with Fleet(1, "none", isolate="none") as own:
        subject = Subject.local(Recipe(untrainable, seed=1), ATTACKED, release=release)
        evaluate(policy, subject, fleet=own, announce=told.append)
    assert any("state --file-not-downloadable" in said for said in told) is bool(floor)
    assert told[-2] == "200 of 200 candidates are usable"
    assert told[-1].endswith("65 % is allowed")


def test_who_provides_a_module_is_found_without_asking_for_every_file():
    provided = importlib.metadata.packages_distributions()
    for module in ("sklearn", "numpy", "yaml", "pandas", "click"):
        assert set(providing((module,))) == set(provided[module])
    assert providing(()) == providing(("no_such_module",)) == providing(("__pycache__", "a.*")) == []


def test_a_policy_that_cannot_refuse_so_many_people_is_no_alternative(write_policy, monkeypatch):
    rule = "rules:\n  - {metric: deletion_capacity, min: 1, epsilon: 1.0, delta: 0.1}\n"
    monkeypatch.setattr(planning, "shipped", lambda: [str(write_policy(rule)), "pdtp-1"])
    subject = Subject.local(Recipe(GaussianNB(), seed=1), TrainingData(X, Y, one_record_each=True))
    with Fleet(1, "none", isolate="none") as own:
        said = costs(Policy.load("pdtp-1"), subject, fleet=own, limits=Budget()).said
    assert said[-1] == "policies that could approve this model: pdtp-1"
