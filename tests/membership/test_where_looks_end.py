"""Where the looks at an attack end: what other rules, waivers, budgets and failures make of it."""

import numpy as np
import pytest
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, Subject, TrainingData
from privgate.check import beforehand, gate
from privgate.check.prepare import attacked, prepare
from privgate.errors import MeasurementError, PolicyError
from privgate.evidence import BehindMembership
from privgate.evidence.verdict import Outcome
from privgate.membership import attack_measures
from privgate.membership import board as boards
from privgate.membership.attack_measures import join_looks
from privgate.membership.attacks.quantile import Quantile
from privgate.membership.board import Attempt
from privgate.membership.limits import Figure
from privgate.report import page_one
from privgate.report.document import document
from privgate.report.schema import read
from privgate.run.run import Budget, Run
from privgate.statistics.roc import APPROVING
from tests.in_process import InProcess
from tests.membership.test_looks import ACCURACY, DATA, POLICY, X, Y, growing, look_in_turn, signal_for, simulated

ONE = "  - metric: attack_accuracy\n    attack: lira_online\n"
STRICT = ONE + "    id: strict\n    level: 0.05\n    max: 0.6\n"
LOOSE = ONE + "    id: loose\n    max: 0.8\n"
FEW = TrainingData(X[:300], Y[:300], candidates=(X[300:600], Y[300:600]), one_record_each=True)


@pytest.mark.quick
@pytest.mark.parametrize("rules", [STRICT + LOOSE, LOOSE + STRICT], ids=["level first", "level last"])
@pytest.mark.parametrize("budget", [12, 72])
def test_a_rule_without_a_level_is_judged_by_all_shadow_models_of_the_budget(load_policy, rules, budget):
    policy, leaks = load_policy("rules:\n" + rules), Subject.local(Recipe(DecisionTreeClassifier(), seed=2), FEW)
    run = prepare(policy, leaks, fleet=InProcess(), limits=Budget(shadow_models=budget))

    found = {r.name: attack_measures.accuracy(run, r.request()) for r in policy.rules}
    assert [BehindMembership.read(m.behind).shadow_models for m in found.values()] == [budget, budget]
    strict = next(r for r in policy.rules if r.name == "strict")
    assert strict.judge(found["strict"]).outcome is Outcome.FAILED  # four would have refused it


WAIVER = f"""waivers:
  - rule: attack_accuracy
    model: m
    version: "sha256:{"0" * 64}"
    ceiling: 0.75
    reason: r
    requester: a@x.org
    approver: b@x.org
    granted: 2026-11-20
    expires: 2026-12-20
"""


def test_looks_go_on_until_the_ceiling_of_a_waiver_is_decided(load_policy, monkeypatch):
    policy = load_policy(f"rules:\n  - metric: attack_accuracy\n    level: 0.05\n    max: 0.6\n{WAIVER}")
    within, stopped = [], []
    for k in range(10):
        rng = np.random.default_rng([k, 7])
        monkeypatch.setattr(attack_measures.boards, "grow_boards", lambda _, rng=rng: growing(signal_for(0.66), rng))
        looks = look_in_turn(attacked(policy))[ACCURACY]
        assert policy.rules[0].judge(join_looks(looks)).outcome is Outcome.FAILED
        within.append(policy.rules[0].with_limit(0.75).judge(join_looks(looks)).outcome is Outcome.PASSED)
        stopped.append(looks[-1].models)
    assert sum(within) >= 9
    assert min(stopped) == 32

    refused, _, stopped = simulated(monkeypatch, ACCURACY, signal_for(0.9), 10, policy)
    assert refused == 10
    assert stopped.max() <= 8  # beyond the ceiling as well: nothing is open


CHILD = "extends: attacks-1\nrules:\n  - metric: attack_accuracy\n    {}\n"


def test_a_policy_that_extends_another_may_lower_its_level_alone(load_policy):
    tight = load_policy(CHILD.format("level: 0.01\n    confidence: 0.99"))

    assert tight.rules[0].request().option("level") == 0.01
    for keys, why in (
        ("level: 0.1\n    confidence: 0.9", "may only be lowered: the parent has 0.05"),
        ("level: null", "is another question: the parent has 0.05"),
    ):
        with pytest.raises(PolicyError, match=why):
            load_policy(CHILD.format(keys), "child")
    one = "rules:\n  - metric: attack_accuracy\n    max: 0.6\n"
    load_policy(one, "one")
    with pytest.raises(PolicyError, match="is another question: the parent has None"):
        load_policy("extends: one.yaml\nrules:\n  - metric: attack_accuracy\n    level: 0.05\n", "child")


@pytest.mark.parametrize("budget", [32, 50])
def test_an_engine_that_makes_fewer_than_the_last_look_wants_can_approve(load_policy, budget):
    """All at once are looked at in parts, as trainings are: without the part before nothing shows what 64 would add."""
    policy, subject = load_policy("rules:\n" + STRICT), Subject.local(Recipe(GaussianNB(), seed=2), FEW)
    run = prepare(policy, subject, fleet=InProcess(), limits=Budget(shadow_models=budget))
    found = attack_measures.accuracy(run, policy.rules[0].request())

    assert not run.cannot_conclude
    assert BehindMembership.read(found.behind).shadow_models == 32
    assert found.high < 1
    assert "looks at 4, 8, 16, 32 shadow models" in found.assumptions[-1]


def test_a_budget_with_too_few_shadow_models_is_named_before_anything_is_trained():
    fleet, subject = InProcess(), Subject.local(Recipe(GaussianNB(), seed=2), DATA)
    run = prepare(POLICY, subject, fleet=fleet, limits=Budget(shadow_models=31))

    said = "an approval at a level wants 32 shadow models"
    assert run.cannot_conclude == tuple(f"{r.name}: {said}" for r in POLICY.rules)
    assert not fleet.calls


def fails_elsewhere(X, y, *, seed):
    if not np.array_equal(X, FEW.X):
        raise ValueError("no")
    return DecisionTreeClassifier(max_depth=2, random_state=0).fit(X, y)


def test_where_most_shadow_models_of_a_step_fail_it_is_not_tried_again():
    fleet = InProcess()
    run = prepare(POLICY, Subject.local(Recipe(fails_elsewhere, seed=3), FEW), fleet=fleet, limits=Budget())
    for rule in POLICY.rules:
        with pytest.raises(MeasurementError, match="4 of 4 shadow models could not be trained: ValueError: no"):
            attack_measures.measure_figure(run, rule.request(), Figure(rule.about.figure))

    assert len([f for f in fleet.asked if f.members is not None]) == 4


def test_what_one_other_seed_does_not_show_others_do():
    """Models are compared though the first one was alike."""
    stump = Subject.local(Recipe(DecisionTreeClassifier(max_depth=1), seed=2), FEW)
    run = beforehand.choose_seeds(prepare(POLICY, stump, fleet=InProcess(), limits=Budget()))
    assert not run.seed_control.dependent
    _, found = beforehand.compare_seeds(run, {})
    assert [(p.name, p.outcome, p.detail["coins"]) for p in found] == [("coins", "passed", 19)]


def leaks_at_a_seed(X, y, *, seed):
    """A tree that remembers; without a seed a model that does not."""
    return (GaussianNB() if seed is None else DecisionTreeClassifier(max_features=1, random_state=seed)).fit(X, y)


@pytest.mark.parametrize("recipe", [DecisionTreeClassifier(max_features=1), leaks_at_a_seed])
def test_a_model_that_attacks_refuse_is_compared_with_no_other_seed(load_policy, recipe):
    policy = load_policy(f"rules:\n{STRICT}  - metric: pdtp\n    max: 1.0\n")
    leaks = Subject.local(Recipe(recipe, seed=2), FEW)
    verdict = gate.evaluate(policy, leaks, fleet=(fleet := InProcess()))
    reached = [(p.name, p.outcome) for p in verdict.evidence.preconditions]
    assert verdict.outcome is Outcome.FAILED
    assert ("reached", "inconclusive") in reached
    assert not {"coins", "depends_on_data"} & {name for name, _ in reached}
    assert fleet.calls <= 10  # all trainings of the check
    said = page_one.reason(read(document(verdict, hash_key=b"k" * 16)))
    assert said == "Do not release. “Attack accuracy” is beyond its limit."


def test_people_who_refuse_spare_further_looks_at_attacks(load_policy):
    attack = "  - {metric: attack_accuracy, level: 0.05, max: 0.8}\n"
    policy = load_policy(f"rules:\n{attack}  - {{metric: pdtp, max: 1.0, aggregate: max}}\n")
    rng = np.random.default_rng(4)
    X, y = rng.normal(size=(200, 1)), rng.integers(0, 2, 200)
    data = TrainingData(X[:100], y[:100], candidates=(X[100:], y[100:]), one_record_each=True)
    remembers = Subject.local(Recipe(DecisionTreeClassifier(max_leaf_nodes=30), seed=2), data)
    verdict = gate.evaluate(policy, remembers, fleet=(fleet := InProcess()))
    assert [f.outcome for f in verdict.findings if f.rule in ("attack_accuracy", "pdtp")] == [
        Outcome.INCONCLUSIVE,
        Outcome.FAILED,
    ]
    assert any(p.name == "reached" and "more shadow models" in p.message for p in verdict.evidence.preconditions)
    assert fleet.calls <= 25  # 80 with all looks


HEAVY = {"long_untargeted", "shokri", "quantile"}


def grow(people, budget):
    """Return boards at each look for a shallow tree."""
    rng = np.random.default_rng(2)
    X, y = rng.normal(size=(2 * people, 3)), rng.integers(0, 2, size=2 * people)
    data = TrainingData(X[:people], y[:people], candidates=(X[people:], y[people:]), one_record_each=True)
    subject = Subject.local(Recipe(DecisionTreeClassifier(max_depth=2), seed=3), data)
    run = Run(subject, InProcess(), Budget(shadow_models=budget), seeds=(3,), attacked={ACCURACY: ("", lambda _: "")})
    return boards.grow_boards(run)


def test_attacks_that_train_are_asked_where_a_look_can_approve_and_not_again_for_nothing(monkeypatch):
    looks = []
    monkeypatch.setattr(Quantile, "rows", 32 * 300)
    for board in grow(150, 64):
        before = dict(board.attempts)
        looks.append((len(board.signals.shadow), {a.attack.name: a for a in board.wanted("any")}, before, board))
    for models, asked, _, board in looks:
        everybody = {a.name for a in board.catalogue}
        assert {a.name for a in board.catalogue if a.trains} == HEAVY
        assert asked.keys() == (everybody if models in APPROVING else everybody - HEAVY)
    *_, (_, asked, _, board), (_, last, before, _) = looks
    full = {a.name for a in board.catalogue if 0 < a.rows <= board.signals.shadow_members.size}
    assert full == {"quantile"}  # 32 models x 300 people: the other two are not full
    assert before == {"quantile": asked["quantile"]} == {"quantile": last["quantile"]}
    assert all(last[name] is not asked[name] for name in asked.keys() - full)
    assert looks[0][3].wanted("shokri")[0].attack.name == "shokri"  # which a rule names

    monkeypatch.setattr(boards, "_attempt", lambda board, attack: Attempt(attack, np.zeros(0), 0.0, 0.0, None))
    monkeypatch.setattr(Quantile, "rows", 1)
    for board in grow(150, 16):  # no approval rests on what was learned from a few shadow models
        assert not board.attempts
        board.wanted("quantile")


@pytest.mark.quick(1)
@pytest.mark.parametrize("budget", [8, 9, 20])
def test_where_a_budget_ends_before_an_approval_all_attacks_are_asked_at_its_end(budget):
    *before, last = grow(100, budget)

    assert {len(b.later) for b in before} == {len(HEAVY)}
    assert last.later == ()
    for board, left in ((before[0], True), (last, False)):
        look = attack_measures.look_once(board, ACCURACY, Figure.ACCURACY, low_alpha=0.05, high_alpha=0.05)
        assert any("left to later looks" in a for a in look.shown.assumptions) == left
