"""Attack measurements: known answers, doubt against release, and bad input."""

import json
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from privgate.check import questions
from privgate.errors import MeasurementError
from privgate.evidence import MembershipPart, Request, SelfTest
from privgate.membership import attacks
from privgate.membership import board as boards
from privgate.membership.attacks.yeom import LabelGap
from privgate.run import pool as pools
from privgate.run.run import Budget, Run
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject
from privgate.training import ledger
from privgate.training.ledger import Ledger
from tests.in_process import InProcess

TREE = DecisionTreeClassifier()


def people(n=240, m=240, d=25, noise=1.5, seed=0, **data):
    rng = np.random.default_rng(seed)
    X = (rng.random((n + m, d)) < 0.4).astype(np.int8)
    y = (X[:, :4].sum(axis=1) + noise * rng.random(n + m) > 2.2).astype(int)
    return TrainingData(X[:n], y[:n], **{"candidates": (X[n:], y[n:]), "one_record_each": "groups" not in data, **data})


def start(estimator=TREE, data=None, models=16, release=None, predict=None, **fleet):
    recipe = Recipe(estimator, seed=3, predict=predict)
    subject = Subject.local(recipe, data or people(), release=release)
    return Run(subject, InProcess(**fleet), Budget(shadow_models=models), seeds=(3,))


def measure(run, metric="attack_accuracy", **options):
    asked = {"attack": "lira_online", "scope": "model", "confidence": 0.95, **options}
    return questions.measure(run, Request.build(metric, **asked))


@pytest.fixture(scope="module")
def overfitted():
    """A full-grown tree on noisy labels: it knows its members by heart."""
    return start()


def test_the_best_of_all_attacks_finds_an_overfitted_model_and_the_report_shows_each(overfitted):
    got = measure(overfitted, attack="any")
    part = overfitted.notes["membership"]

    assert 0.5 < got.low <= got.value <= got.high
    assert got.kind == "confidence"
    assert got.behind.searched == 2 * len(attacks.ALL)
    assert got.where.split(",")[0] in attacks.BY_NAME
    assert {a.name for a in part.attacks} == set(attacks.BY_NAME)
    for attack in part.attacks:
        assert attack.self_test.problem == ""
        figures = attack.figures
        assert 0 <= figures.auc <= 1
        assert len(figures.roc) <= 200
        assert figures.accuracy.low <= figures.accuracy.value <= figures.accuracy.high
        # 240 candidates cannot resolve a thousandth
        assert (figures.tpr_at_fpr[-1].fpr, figures.tpr_at_fpr[-1].value) == (0.001, None)
    told = json.loads(json.dumps(part.payload(), allow_nan=False))
    assert MembershipPart.model_validate(told).payload() == told


@pytest.mark.parametrize("scope", ["model", "class", "group"])
def test_every_metric_is_its_own_figure_in_every_scope_and_says_where_it_is_worst(scope):
    run = start(data=people(sensitive=(9,)), models=32)
    accuracy = measure(run, "attack_accuracy", scope=scope)
    tpr = measure(run, "attack_tpr", scope=scope, at_fpr=0.5)

    assert accuracy.low <= accuracy.value <= accuracy.high
    # half the outsiders may be accused: a tree that knows its members by heart gives most of them away
    assert tpr.value > accuracy.value
    assert tpr.low != accuracy.low
    advantage = measure(run, "attack_advantage", scope=scope)
    assert [advantage.value, advantage.low] == pytest.approx([2 * v - 1 for v in (accuracy.value, accuracy.low)])
    assert accuracy.where.startswith("lira_online")
    assert {"class": "label", "group": "9 = "}.get(scope, "") in accuracy.where


class Silent(LabelGap):
    """Answers nothing useful: its self-test must refuse it."""

    def scores(self, signals, rng):
        return np.zeros(len(signals.labels))


def test_an_attack_that_fails_its_self_test_leaves_no_upper_limit(monkeypatch):
    monkeypatch.setattr(attacks, "BY_NAME", {"label_gap": Silent(), "lira_online": attacks.BY_NAME["lira_online"]})
    monkeypatch.setattr(attacks, "ALL", tuple(attacks.BY_NAME.values()))
    boards._TESTED.clear()
    run = start()
    try:
        got = measure(run, attack="any")
        with pytest.raises(MeasurementError, match="self-test"):
            measure(run, attack="label_gap")
    finally:
        boards._TESTED.clear()

    assert got.high == 1.0
    assert "misses a planted leak" in got.behind.did_not_run["label_gap"]
    assert any("label_gap" in a for a in got.assumptions)


@pytest.mark.parametrize(
    ("options", "why"),
    [
        ({"attack": "magic"}, "no attack on this kind of model is called 'magic'"),
        ({"scope": "group"}, "sensitive"),
        ({"metric": "attack_tpr", "at_fpr": 0.01}, "give at least 368 candidates"),
    ],
)
def test_what_cannot_be_measured_is_named(overfitted, options, why):
    with pytest.raises(MeasurementError, match=why):
        measure(overfitted, **options)


@pytest.mark.parametrize("metric", ["attack_auc", "ATTACK_TPR", ""])
def test_a_figure_that_no_attack_has_is_never_answered_with_another(overfitted, metric):
    with pytest.raises(KeyError):
        measure(overfitted, metric, at_fpr=0.1)


DATA = people()
ONE_CLASS = replace(DATA, y=np.zeros(240, int), candidates=(DATA.candidates[0], np.zeros(240, int)))


@pytest.mark.parametrize(
    ("data", "why"),
    [
        (people(candidates=None), "candidates"),
        (people(n=19), "too few"),
        (people(m=19), "too few"),
        (ONE_CLASS, "one class only"),
    ],
    ids=["no candidates", "few members", "few candidates", "one class"],
)
def test_people_whom_nothing_can_be_measured_on_are_refused(data, why):
    with pytest.raises(MeasurementError, match=why):
        measure(start(data=data))


def test_candidates_who_are_members_are_charged():
    X, y = DATA.candidates
    rows = np.concatenate([X, DATA.X[:30], X[:1]]), np.concatenate([y, DATA.y[:30], [7]])
    more = TrainingData(DATA.X, DATA.y, candidates=rows, one_record_each=True)
    clean, p = pools.build_pool(DATA), pools.built(more)

    assert (p.removed["unknown_label"], clean.copies) == (1, 0)
    # whoever names the members at greatest risk as candidates must not gain by it
    assert p.copies >= 30 / len(rows[1])
    for copied in (more, replace(DATA, candidates=(DATA.X, DATA.y))):
        with pytest.raises(MeasurementError, match="give other candidates"):
            measure(start(data=copied))
    # fewer are charged
    pools._BUILT[DATA] = replace(clean, copies=0.04)
    charged = measure(start(data=DATA))
    pools._BUILT[DATA] = clean
    assert charged.high > measure(start(data=DATA)).high
    assert any("people stored once more" in a for a in charged.assumptions)


def test_everybody_is_a_trial_and_equal_rows_dropped_on_one_side_are_refused():
    # thinning the candidates alone would leave rare records there and common ones among members: a false leak
    common = people(d=7)
    p = pools.build_pool(common)
    assert p.trial.all()
    assert (p.holders > 1).mean() > 0.1
    first = np.unique(np.column_stack([common.X, common.y]), axis=0, return_index=True)[1]
    with pytest.raises(MeasurementError, match="with its doubles"):
        pools.build_pool(replace(common, X=common.X[first], y=common.y[first]))


def test_a_few_failed_shadow_models_are_survived_and_many_are_not():
    some = start(fail=range(3, 6))
    assert measure(some).high < 1
    assert len(some.compute(pools.train).reason) == 3

    with pytest.raises(MeasurementError, match="12 of 16 shadow models could not be trained: killed by the test"):
        measure(start(fail=range(2, 14)))


def test_a_declared_release_is_attacked_beside_exact_probabilities():
    tree = DecisionTreeClassifier(max_depth=6)
    run = start(tree, release=Release("label"))
    got, alone = measure(run), measure(start(tree))

    assert got.behind.searched == 2 * alone.behind.searched
    assert got.high >= alone.high  # never instead: what exact probabilities tell still counts
    figures = {a.name: a.figures for a in run.notes["membership"].attacks}
    assert set(figures) == {"lira_online", "lira_online on the release"}
    assert figures["lira_online on the release"].auc != figures["lira_online"].auc
    assert any("declared release" in a for a in got.assumptions)


def test_people_with_several_records_are_one_trial_and_stay_together():
    run = start(data=people(groups=[f"p{i // 3}" for i in range(240)]))

    assert measure(run).behind.members == 80
    masks = run.compute(pools.train).masks[:, :240].reshape(16, 80, 3)
    assert (masks.all(axis=2) | ~masks.any(axis=2)).all()


def test_shadow_models_are_balanced_pairs():
    run = start(models=10)
    masks, pool = run.compute(pools.train).masks, run.compute(pools.of_run)

    assert (pool.trial == pool.eligible).all()
    assert (masks.sum(axis=0) == 5).all()
    assert (masks[::2] ^ masks[1::2]).all()
    assert abs(masks.sum(axis=1) - pool.trial.sum() / 2).max() <= 0.5


def test_small_groups_count_but_are_not_named():
    rng = np.random.default_rng(0)
    X = (rng.random((480, 25)) < 0.4).astype(np.int8)
    X[:, 9] = np.arange(480) < 4  # four people, all of them members
    y = (X[:, :4].sum(axis=1) + rng.random(480) > 2.2).astype(int)
    data = TrainingData(X[:240], y[:240], candidates=(X[240:], y[240:]), sensitive=(9,), one_record_each=True)
    run = start(data=data)
    got = measure(run, scope="group")

    assert got.high > 0.9  # nothing is known about four people, and that is not a pass
    assert got.behind.cells_too_small_to_show == 1
    assert "9 = 1" not in str(run.notes["membership"].attacks)


def test_the_gap_is_the_difference_of_error_rates(overfitted):
    gap = questions.measure(overfitted, Request.build("generalization_gap", confidence=0.95))
    board = overfitted.compute(boards.make_board)
    wrong = board.signals.target.argmax(axis=1) != board.signals.labels

    assert gap.value == pytest.approx(wrong[~board.members].mean() - wrong[board.members].mean())
    assert gap.low < gap.value < gap.high < 1


def test_a_self_test_that_passed_is_remembered_while_source_and_libraries_stay_and_its_seal_fits(tmp_path, monkeypatch):
    made = []
    monkeypatch.setattr(boards, "tested", lambda name, compute: made.append(name) or SelfTest(0.99, 0.5, 0.1))
    fleet = SimpleNamespace(signable=True, ledger=Ledger(tmp_path, secret=b"k" * 16))
    first = boards.recall_test(fleet, "label_gap")
    again = boards.recall_test(fleet, "label_gap")
    assert (made, first.planted, again.planted) == (["label_gap"], 0.99, 0.99)

    (kept,) = (tmp_path / "self-tests").iterdir()
    kept.write_bytes(kept.read_bytes().replace(b"0.99", b"1.00"))  # by who can write, and has no key
    assert boards.recall_test(fleet, "label_gap").planted == 0.99
    assert len(made) == 2
    boards.recall_test(SimpleNamespace(signable=True, ledger=Ledger(tmp_path, secret=b"l" * 16)), "label_gap")
    assert len(made) == 3
    monkeypatch.setattr(ledger, "digest_package", lambda: b"another source")
    boards.recall_test(fleet, "label_gap")
    assert len(made) == 4
    boards.recall_test(SimpleNamespace(signable=False, ledger=fleet.ledger), "label_gap")
    assert len(made) == 5

    # one that failed is made again
    failed = SelfTest(0.5, 0.5, 0.1, "label_gap misses a planted leak")
    monkeypatch.setattr(boards, "tested", lambda name, compute: made.append(name) or failed)
    assert all(boards.recall_test(fleet, "rmia").problem for _ in range(2))
    assert len(made) == 7
