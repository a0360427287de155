"""Attacks are tried on as many members as candidates, of very many on a random part: nobody chose them, and it is said.

Shadow models are trained on all other members, so that they are as large as the model under attack.
"""

import numpy as np
import pytest
from sklearn.tree import DecisionTreeClassifier

from privgate import Policy, report
from privgate.check import prepare as preparing
from privgate.check import questions
from privgate.check.gate import evaluate
from privgate.check.prepare import prepare
from privgate.evidence import Request
from privgate.membership import board as boards
from privgate.policy.rules.rule_base import Audit
from privgate.report import page_one
from privgate.report.schema import read
from privgate.run import pool as pools
from privgate.run.run import TRIALS, Budget, Run
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from tests.in_process import InProcess
from tests.report.small_counts import sentence

N, OUTSIDE, MOST = 240, 200, 60
ACCURACY = Request.build("attack_accuracy", attack="any", scope="model", confidence=0.95)


def people(seed=0, groups=None, outside=OUTSIDE):
    rng = np.random.default_rng(seed)
    X = rng.normal(size=(N + outside, 4))
    y = (rng.random(len(X)) < 0.5).astype(int)
    return TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), groups=groups, one_record_each=groups is None)


def attacked(data=None, fleet=None, trials=MOST):
    judged = Subject.local(Recipe(DecisionTreeClassifier(random_state=0)), data or people())
    limits = Budget(shadow_models=16)
    return Run(judged, fleet or InProcess(), limits, seeds=(None,), trials=trials)


@pytest.mark.parametrize(("trials", "most"), [(MOST, MOST), (N, OUTSIDE)])
def test_shadow_models_are_as_large_as_the_model_and_see_half_of_the_trials(trials, most):
    run = attacked(trials=trials)
    pool, masks = run.compute(pools.of_attacks), pools._draw_subsets(run)

    assert [int((pool.trial & side).sum()) for side in (pool.members, ~pool.members)] == [most, most]
    others = pool.members & ~pool.trial
    assert masks[:, others].all()
    assert not masks[:, ~pool.members & ~pool.trial].any()
    assert (masks.sum(axis=1) == N).all()
    assert (masks[::2, pool.trial] != masks[1::2, pool.trial]).all()
    assert all(np.isin(np.flatnonzero(others), f.members).all() for f in run.fleet.asked if f.members is not None)


def test_so_many_people_of_either_side_are_trials():
    data = people(outside=N)
    run, whole = attacked(data), attacked(data, trials=N)
    pool, everybody = run.compute(pools.of_run), whole.compute(pools.of_run)

    assert [int((pool.trial & side).sum()) for side in (pool.members, ~pool.members)] == [MOST, MOST]
    assert not (pool.trial & ~everybody.trial).any()
    assert everybody.fit is None
    assert pool.fit == (MOST, N, N)
    assert run.compute(pools.train).log_p.shape[1] == 2 * MOST
    some, all_ = run.compute(boards.make_board), whole.compute(boards.make_board)  # a part answers as among all
    place = np.searchsorted(all_.rows, some.rows)
    for name in ("target", "labels", "members", "features"):
        assert (getattr(all_.signals, name)[place] == getattr(some.signals, name)).all()


@pytest.mark.usefixtures("light_attacks")
def test_a_model_that_gives_its_people_away_is_seen_on_a_part_and_the_part_is_said():
    found = questions.measure(attacked(), ACCURACY)

    assert found.low > 0.5
    assert found.n == 2 * MOST
    said = f"trials are drawn at random, at most {MOST} of either side: of {N} members and {OUTSIDE} candidates"
    assert said in found.assumptions
    assert all(
        "drawn at random" not in a
        for a in questions.measure(attacked(people(outside=N), trials=N), ACCURACY).assumptions
    )


@pytest.mark.parametrize("alike", [0, 1, 8])
def test_how_many_people_have_a_double_cannot_be_counted_from_whom_trials_are_drawn(alike):
    data = people()
    X, y = data.X.copy(), data.y.copy()
    X[1 : 1 + alike], y[1 : 1 + alike] = X[0], y[0]
    said = attacked(TrainingData(X, y, candidates=data.candidates, one_record_each=True)).compute(pools.of_run).drawn

    few = N - alike - 1 if alike else N
    assert (f"{few} members" in said) == (not alike)
    assert sentence(said, [N, OUTSIDE, N + OUTSIDE]) == said


def test_whole_people_are_drawn_with_all_of_their_records():
    run = attacked(people(groups=np.repeat(np.arange(N // 2), 2)))
    pool = run.compute(pools.of_run)
    unit, records = np.unique(pool.person[pool.trial & pool.members], return_counts=True)

    assert len(unit) == MOST
    assert set(records) == {2}


@pytest.mark.parametrize(("scope", "rare"), [("group", "0 = 1.0"), ("class", "label 2")])
def test_a_rare_class_or_group_of_whom_nobody_was_drawn_stays_open(scope, rare):
    data = people()
    X, y = (np.concatenate([data.X, data.candidates[0]]), np.concatenate([data.y, data.candidates[1]]))
    few = np.arange(2)
    X[:, 0], X[few, 0], y[few] = 0.0, 1.0, 2
    run = attacked(
        TrainingData(X[:N], y[:N], candidates=(X[N:], y[N:]), sensitive=(0,), one_record_each=True), trials=20
    )
    board = run.compute(boards.make_board)
    assert not board.members[np.isin(board.rows[board.first], few)].any()

    cells = boards.cells(board, scope, None)
    found = questions.measure(run, Request.build("attack_accuracy", attack="label_gap", scope=scope, confidence=0.95))

    assert list(cells) == list(
        boards.cells(attacked(run.subject.data, trials=N).compute(boards.make_board), scope, None)
    )
    assert not (cells[rare] & board.members).any()
    assert found.high == 1


@pytest.mark.usefixtures("light_attacks")
def test_no_page_says_that_all_were_tried_where_a_part_was_drawn(monkeypatch):
    policy, said = Policy.load("attacks-1"), []
    rule = policy.rules[0].model_copy(update={"level": None})
    policy = policy.model_copy(update={"rules": (rule,), "audit": Audit()})
    for most in (MOST, N):
        monkeypatch.setattr(preparing, "TRIALS", most)
        verdict = evaluate(policy, attacked().subject, fleet=InProcess(), limits=Budget(shadow_models=16))
        document = read(report.document(verdict, hash_key=b"k" * 32))
        said.append(next(t.text for t in page_one.tiles(document) if t.question == "membership"))

    assert f"tried on {MOST} members, {MOST} others, drawn at random" in said[0]
    assert f"tried on {OUTSIDE} members, {OUTSIDE} others, drawn at random" in said[1]


def test_who_is_a_trial_follows_from_the_secret_of_the_ledger_alone_and_stays():
    def draw(secret):
        fleet = InProcess()
        fleet.signable, fleet.drawn = True, lambda subject, purpose: np.random.default_rng([secret, len(purpose)])
        return attacked(fleet=fleet).compute(pools.of_run).trial

    assert (draw(1) == draw(1)).all()
    assert (draw(1) != draw(2)).any()


@pytest.mark.parametrize(("wanted", "trials"), [(200, TRIALS), (TRIALS + 5, TRIALS + 5)])
def test_a_policy_that_wants_more_candidates_has_them_all_tried(wanted, trials):
    policy = Policy.load("attacks-1")
    policy = policy.model_copy(update={"audit": policy.audit.model_copy(update={"min_candidates": wanted})})
    run = attacked()

    assert prepare(policy, run.subject, fleet=run.fleet, limits=Budget()).trials == trials
