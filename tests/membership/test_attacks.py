"""Attack measurements: known answers, doubt against release, and bad input."""

import json

import numpy as np
import pytest
from sklearn.dummy import DummyClassifier
from sklearn.naive_bayes import BernoulliNB
from sklearn.tree import DecisionTreeClassifier

from privgate.check import gate, questions
from privgate.errors import MeasurementError
from privgate.evidence import Measurement, MembershipPart, Request
from privgate.membership import attack_measures, attacks, per_record, rotated
from privgate.membership import board as attacked
from privgate.membership import board as boards
from privgate.membership.attacks.label_gap import LabelGap
from privgate.run import pool
from privgate.run import pool as pools
from privgate.run.run import Budget, Run
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject
from privgate.theorems.retrained import Status
from tests.in_process import InProcess


def made(n=240, m=240, d=25, noise=1.5, seed=0, **data):
    rng = np.random.default_rng(seed)
    X = (rng.random((n + m, d)) < 0.4).astype(np.int8)
    y = (X[:, :4].sum(axis=1) + noise * rng.random(n + m) > 2.2).astype(int)
    return TrainingData(X[:n], y[:n], **{"candidates": (X[n:], y[n:]), "one_record_each": "groups" not in data, **data})


def bench(estimator=None, data=None, models=16, **fleet):
    recipe = Recipe(estimator or DecisionTreeClassifier(), seed=3)
    return Run(Subject.local(recipe, data or made()), InProcess(**fleet), Budget(shadow_models=models), seeds=(3,))


def ask(metric="attack_accuracy", **options):
    return Request.of(metric, **{"attack": "lira_online", "scope": "model", "confidence": 0.95, **options})


@pytest.fixture(scope="module")
def overfitted():
    """A full-grown tree on noisy labels: it knows its members by heart."""
    return bench()


@pytest.fixture(scope="module")
def blind():
    """A model that answers with the class shares whatever it is asked."""
    return bench(DummyClassifier(strategy="prior"))


def test_the_best_of_all_attacks_finds_an_overfitted_model(overfitted):
    got = questions.measure(overfitted, ask(attack="any"))

    assert got.low > 0.5
    assert got.low <= got.value <= got.high
    assert got.kind == "confidence"
    assert got.behind.searched == 2 * len(attacks.ALL)
    assert got.where.split(",")[0] in attacks.BY_NAME


@pytest.mark.quick(1)
@pytest.mark.parametrize("attack", ["any", *attacks.BY_NAME])
def test_a_model_that_knows_nobody_is_not_blocked(blind, attack):
    got = questions.measure(blind, ask(attack=attack))

    assert got.low <= 0.5
    assert got.high < 0.75


@pytest.mark.parametrize("scope", ["class", "group", "record"])
def test_scopes_name_where_it_is_worst(scope):
    b = bench(data=made(sensitive=(9,)))
    got = questions.measure(b, ask(scope=scope))

    assert got.low <= got.value <= got.high
    assert got.where.startswith("lira_online")
    if scope == "class":
        assert "label" in got.where
    if scope == "group":
        assert "9 = " in got.where
    if scope == "record":
        assert 230 <= got.n <= 240  # a member with a twin is no trial
        assert any("random halves" in a for a in got.assumptions)


def test_advantage_is_twice_the_accuracy_less_one(overfitted):
    accuracy = questions.measure(overfitted, ask())
    advantage = questions.measure(overfitted, ask("attack_advantage"))

    for name in ("value", "low", "high"):
        assert getattr(advantage, name) == pytest.approx(2 * getattr(accuracy, name) - 1)


def test_a_rate_that_the_candidates_cannot_resolve_is_refused(overfitted):
    with pytest.raises(MeasurementError, match="give at least 368 candidates"):
        questions.measure(overfitted, ask("attack_tpr", at_fpr=0.01))
    assert questions.measure(overfitted, ask("attack_tpr", at_fpr=0.1)).high <= 1
    with pytest.raises(MeasurementError, match="single records"):
        questions.measure(overfitted, ask("attack_tpr", at_fpr=0.1, scope="record"))


def test_the_report_gets_every_attack_with_its_threat_model(overfitted):
    questions.measure(overfitted, ask(attack="any"))
    part = attack_measures.part(overfitted)

    assert {a.name for a in part.attacks} == set(attacks.BY_NAME)
    for attack in part.attacks:
        assert attack.threat_model
        assert attack.source
        assert attack.self_test.problem == ""
        figures = attack.figures
        assert 0 <= figures.auc <= 1
        assert len(figures.roc) <= 200
        assert figures.accuracy.low <= figures.accuracy.value <= figures.accuracy.high
        assert {c.name for c in figures.classes} <= {"label 0", "label 1"}
        assert figures.tpr_at_fpr[-1].fpr == 0.001
        assert figures.tpr_at_fpr[-1].value is None  # 240 candidates cannot resolve it
    told = json.loads(json.dumps(part.payload(), allow_nan=False))
    assert MembershipPart.model_validate(told).payload() == told


def test_null_runs_alarm_at_most_as_often_as_stated(overfitted, blind):
    for b in (overfitted, blind):
        questions.measure(b, ask(attack="any"))
        assert attack_measures.part(b).null_runs.low <= 0.05


@pytest.mark.slow
def test_a_recipe_measured_twice_gives_the_same_numbers():
    one, other = (questions.measure(bench(), ask(attack="any")) for _ in range(2))

    assert one == other
    assert Measurement.from_payload(one.payload()) == one


class Silent(LabelGap):
    """Answers nothing useful: its self-test must refuse it."""

    def scores(self, signals, rng):
        return np.zeros(len(signals.labels))


def test_an_attack_that_fails_its_self_test_leaves_no_upper_limit(monkeypatch):
    monkeypatch.setattr(attacks, "BY_NAME", {"label_gap": Silent(), "lira_online": attacks.BY_NAME["lira_online"]})
    monkeypatch.setattr(attacks, "ALL", tuple(attacks.BY_NAME.values()))
    attacked.tested.cache_clear()
    b = bench()
    try:
        got = questions.measure(b, ask(attack="any"))
        with pytest.raises(MeasurementError, match="self-test"):
            questions.measure(b, ask(attack="label_gap"))
    finally:
        attacked.tested.cache_clear()

    assert got.high == 1.0
    assert "misses a planted leak" in got.behind.did_not_run["label_gap"]
    assert any("label_gap" in a for a in got.assumptions)


def test_an_unknown_attack_and_an_unknown_scope_are_named(overfitted):
    with pytest.raises(MeasurementError, match="no attack on this kind of model is called 'magic'"):
        questions.measure(overfitted, ask(attack="magic"))
    with pytest.raises(MeasurementError, match="unknown scope 'city'"):
        questions.measure(overfitted, ask(scope="city"))
    with pytest.raises(MeasurementError, match="sensitive"):
        questions.measure(overfitted, ask(scope="group"))


@pytest.mark.parametrize("metric", ["attack_auc", "ATTACK_TPR", ""])
def test_a_figure_that_no_attack_has_is_never_answered_with_another(overfitted, metric):
    with pytest.raises(KeyError):
        questions.measure(overfitted, ask(metric, at_fpr=0.1))


@pytest.mark.parametrize("scope", ["model", "class", "group", "record"])
def test_every_metric_is_its_own_figure_in_every_scope(scope):
    b = bench(data=made(sensitive=(9,)), models=32)
    accuracy, advantage, tpr = (
        questions.measure(b, ask(m, scope=scope, **({"at_fpr": 0.5} if m == "attack_tpr" else {})))
        for m in ("attack_accuracy", "attack_advantage", "attack_tpr")
    )

    assert (advantage.value, advantage.low, advantage.high) == pytest.approx(
        tuple(2 * v - 1 for v in (accuracy.value, accuracy.low, accuracy.high))
    )
    # half the outsiders may be accused: a tree that knows its members by heart gives most of them away
    assert tpr.value > (0.5 if scope == "record" else accuracy.value)
    assert tpr.low != accuracy.low


def test_without_candidates_nothing_is_measured():
    for metric in ("attack_accuracy", "generalization_gap"):
        with pytest.raises(MeasurementError, match="candidates"):
            questions.measure(bench(data=made(candidates=None)), ask(metric))


def test_too_few_people_are_refused():
    with pytest.raises(MeasurementError, match="too few"):
        questions.measure(bench(data=made(n=19)), ask())
    with pytest.raises(MeasurementError, match="too few"):
        questions.measure(bench(data=made(m=19)), ask())


def test_candidates_who_are_members_are_removed_and_counted():
    data = made()
    X, y = data.candidates
    more = TrainingData(
        data.X,
        data.y,
        candidates=(
            np.concatenate([X, data.X[:30], X[:10], X[:1]]),
            np.concatenate([y, data.y[:30], y[:10], [7]]),
        ),
        one_record_each=True,
    )
    clean = pool.of(data)
    p = pool.of(more)

    repeats = len(X) - len(np.unique(np.column_stack([X, y]), axis=0))
    own = {tuple(r) for r in np.column_stack([data.X, data.y]).tolist()}
    chance = sum(tuple(r) in own for r in np.column_stack([X, y]).tolist())
    doubled, near = p.removed.pop("members_with_a_double"), p.removed.pop("nearly_in_training")
    assert near <= 4  # 25 flags: hardly anybody has a twin by chance
    assert p.removed == {"also_in_training": 30 + chance, "repeated": 10 + repeats, "unknown_label": 1}
    assert doubled >= 30
    assert p.eligible[: len(clean.labels)].tolist() == clean.eligible.tolist()
    assert not p.eligible[len(clean.labels) :].any()
    got = questions.measure(bench(data=more), ask())
    assert got.behind.removed_candidates["also_in_training"] == 30 + chance
    # whoever names the members at greatest risk as candidates must not gain by it
    assert p.hidden >= 30 / 240
    assert clean.hidden == 0.0
    before = questions.measure(bench(data=data), ask())
    assert got.high > before.high or got.high > 0.9
    assert any("count as found" in a for a in got.assumptions)
    assert questions.measure(bench(data=more, models=8), ask(scope="record")).high == 1.0


def test_records_that_others_share_are_no_trials_on_either_side():
    # thinning the candidates alone would leave rare records there and common ones among members: a false leak
    data = made(d=7)
    p = pool.of(data)
    X, y = data.pool()
    rows = np.column_stack([X, y])
    _, inverse, count = np.unique(rows, axis=0, return_inverse=True, return_counts=True)

    assert (p.trial == (count[inverse] == 1)).all()
    assert p.eligible[:240].all()  # shadow models are trained on all members


def test_doubles_of_one_person_are_that_persons_business():
    data = made(n=120, m=120, groups=[f"p{i // 2}" for i in range(120)])
    X = data.X.copy()
    y = data.y.copy()
    X[1::2], y[1::2] = X[::2], y[::2]
    p = pool.of(TrainingData(X, y, candidates=data.candidates, groups=data.groups))

    assert p.trial[:120].sum() >= 100


def test_a_pool_of_members_only_is_refused():
    data = made()
    with pytest.raises(MeasurementError, match="too few"):
        questions.measure(
            bench(data=TrainingData(data.X, data.y, candidates=(data.X, data.y), one_record_each=True)), ask()
        )


def test_one_class_only_is_refused():
    data = made()
    one = TrainingData(
        data.X,
        np.zeros(240, dtype=int),
        candidates=(data.candidates[0], np.zeros(240, dtype=int)),
        one_record_each=True,
    )
    with pytest.raises(MeasurementError, match="one class only"):
        questions.measure(bench(DecisionTreeClassifier(), data=one), ask())


def test_a_few_failed_shadow_models_are_survived_and_many_are_not():
    some = bench(fail=range(3, 6))
    assert questions.measure(some, ask()).high < 1
    assert (some.once(pool.train).status == Status.FAILED).sum() == 3

    with pytest.raises(MeasurementError, match="12 of 16 shadow models could not be trained: killed by the test"):
        questions.measure(bench(fail=range(2, 14)), ask())


def label(model, X):
    """Release labels only."""
    return np.eye(2)[model.predict(X)]


@pytest.mark.slow
def test_a_model_that_gives_labels_only_is_attacked_all_the_same():
    recipe = Recipe(DecisionTreeClassifier(), seed=3, predict=label)
    b = Run(Subject.local(recipe, made()), InProcess(), Budget(shadow_models=16), seeds=(3,))

    assert questions.measure(b, ask(attack="label_gap")).low > 0.5
    assert questions.measure(b, ask(attack="any")).low > 0.5


def test_a_declared_release_is_attacked_beside_exact_probabilities():
    subject = Subject.local(Recipe(DecisionTreeClassifier(max_depth=6), seed=3), made(), release=Release("label"))
    b = Run(subject, InProcess(), Budget(shadow_models=16), seeds=(3,))
    got = questions.measure(b, ask())
    figures = {a.name: a.figures for a in attack_measures.part(b).attacks}
    alone = questions.measure(bench(DecisionTreeClassifier(max_depth=6)), ask())

    assert set(figures) == {"lira_online", "lira_online on the release"}
    assert figures["lira_online on the release"].auc != figures["lira_online"].auc
    assert got.behind.searched == 2 * alone.behind.searched == 4
    assert any("declared release" in a for a in got.assumptions)
    assert got.high >= alone.high  # never instead: what exact probabilities tell still counts
    per_record = questions.measure(b, ask(scope="record"))
    exact = questions.measure(bench(DecisionTreeClassifier(max_depth=6)), ask(scope="record"))
    # members and candidates that are nearly equal are no trials
    assert per_record.behind.searched == 2 * exact.behind.searched
    assert 230 < exact.behind.searched <= 240
    assert per_record.high >= exact.high


def test_people_with_several_records_are_one_trial_and_stay_together():
    data = made(groups=[f"p{i // 3}" for i in range(240)])
    b = bench(data=data)
    got = questions.measure(b, ask())

    assert got.behind.members == 80
    masks = b.once(pool.train).masks[:, :240].reshape(16, 80, 3)
    assert (masks.all(axis=2) | ~masks.any(axis=2)).all()


def test_subsets_are_balanced_complementary_pairs():
    b = bench(models=10)
    masks = b.once(pool.train).masks

    assert (masks.sum(axis=0)[b.once(pools.of_run).eligible] == 5).all()
    assert (masks[::2] ^ masks[1::2])[:, b.once(pools.of_run).eligible].all()
    assert abs(masks.sum(axis=1) - b.once(pools.of_run).eligible.sum() / 2).max() <= 0.5


def test_targets_of_single_records_are_drawn_apart_from_the_shadows():
    b = bench(models=10)
    masks = per_record.draw_halves(b.once(pools.of_run), 400, np.random.default_rng(0))
    b_in = masks[:, b.once(pools.of_run).eligible].mean(axis=0)

    # 400 independent coins: 5 standard errors
    assert abs(b_in - 0.5).max() < 5 * 0.5 / 20
    assert not any((masks == m).all(axis=1).any() for m in b.once(pool.train).masks)
    assert b.once(per_record.train_targets).masks.shape == b.once(pool.train).masks.shape


def test_rotated_targets_find_the_records_that_are_remembered(overfitted):
    board = overfitted.once(boards.make_board)
    attack = attacks.BY_NAME["lira_online"]
    scores = rotated.rotate(attack, board.signals.without_truth(), np.random.default_rng(0))
    accuracy = rotated.accuracy_per_record(attack, scores, board.signals.shadow_members)

    assert scores.shape == board.signals.shadow_members.shape
    assert accuracy.mean() > 0.6
    assert rotated.correlation(accuracy, accuracy)["pearson"] == pytest.approx(1)
    assert rotated.correlation(accuracy, np.ones_like(accuracy))["pearson"] is None


def test_accuracy_is_set_against_pdtp_once_both_are_measured():
    data = made(n=60, m=60)
    b = bench(DecisionTreeClassifier(max_depth=5), data=data)
    questions.measure(b, ask())
    assert gate.against_pdtp(b) is None
    questions.measure(b, Request.of("pdtp"))

    found = gate.against_pdtp(b)
    assert -1 <= found.pearson <= 1
    assert "point estimates" in found.kind
    assert found.targets == 16


def test_small_groups_count_but_are_not_named():
    rng = np.random.default_rng(0)
    X = (rng.random((480, 25)) < 0.4).astype(np.int8)
    X[:, 9] = 0
    X[:4, 9] = 1  # four people, all of them members
    y = (X[:, :4].sum(axis=1) + rng.random(480) > 2.2).astype(int)
    b = bench(data=TrainingData(X[:240], y[:240], candidates=(X[240:], y[240:]), sensitive=(9,), one_record_each=True))
    got = questions.measure(b, ask(scope="group"))

    assert got.high > 0.9  # nothing is known about four people, and that is not a pass
    assert got.behind.cells_too_small_to_show == 1
    assert "9 = 1" not in str(attack_measures.part(b).attacks)


def test_the_gap_is_the_difference_of_mean_losses(overfitted):
    zero_one = questions.measure(overfitted, Request.of("generalization_gap", loss="zero_one", confidence=0.95))
    board = overfitted.once(boards.make_board)
    wrong = board.signals.target.argmax(axis=1) != board.signals.labels
    inside, outside = board.members, ~board.members

    assert zero_one.value == pytest.approx(wrong[outside].mean() - wrong[inside].mean())
    assert zero_one.low < zero_one.value < zero_one.high
    worst = questions.measure(
        overfitted, Request.of("generalization_gap", loss="zero_one", scope="class", confidence=0.95)
    )
    assert worst.value >= zero_one.value - 1e-12
    assert worst.where.startswith("label")


def test_an_infinite_loss_is_an_infinite_gap_and_finite_ones_have_limits(overfitted):
    request = Request.of("generalization_gap", loss="cross_entropy", confidence=0.95)

    assert questions.measure(overfitted, request).low == np.inf  # a full-grown tree is certain, and wrong
    smooth = questions.measure(bench(BernoulliNB(), data=made()), request)
    assert smooth.low < smooth.value < smooth.high < np.inf
    assert any("normal" in a for a in smooth.assumptions)
