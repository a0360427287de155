"""``--plan``: trainings are counted as they are made, engines by their own first steps."""

import importlib.metadata
import re
import time
from dataclasses import replace

import numpy as np
import pytest
from privgate.check.costs import costs
from sklearn.ensemble import RandomForestClassifier
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.neighbors import KNeighborsClassifier

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check import check_plan
from privgate.check import costs as beside
from privgate.check.prepare import prepare
from privgate.run.needs import Need
from privgate.run.run import Budget
from privgate.subject.libraries import providing
from privgate.training.fleet import Fleet
from privgate.verdict import Outcome
from tests.in_process import InProcess

N = 40
RNG = np.random.default_rng(4)
X = RNG.normal(size=(N, 2))
Y = (X[:, 0] + RNG.logistic(size=N) > 0).astype(int)


def fitted(X, y, *, seed):
    """Logistic regression that only refits cover."""
    del seed
    return LogisticRegression().fit(X, y)


def planned_and_made(recipe):
    """Return what the plan says, the number of trainings in it, and how many the check made in the end."""
    subject, policy = Subject.local(recipe, TrainingData(X, Y, one_record_each=True)), Policy.load("pdtp-1")
    with Fleet(jobs=1, ledger="none") as own:
        said = costs(policy, subject, fleet=own, limits=Budget()).said
        glanced = own.calls
        assert evaluate(policy, subject, fleet=own).approved
        (total,) = (int(m[1]) for line in said if (m := re.match(r"in all: about (\d+) trainings", line)))
        return said, total, own.calls, glanced


def test_refits_are_counted_exactly(monkeypatch):
    said, total, made, glanced = planned_and_made(Recipe(fitted, seed=1))

    assert total == made
    assert glanced <= 7  # two seeds, one of them twice, an order of the records, and three that are timed
    assert any(line.startswith("pdtp-1 could approve this model: up to 45 trainings") for line in said)


def test_a_fast_engine_is_counted_with_its_re_check():
    said, total, made, _ = planned_and_made(Recipe(GaussianNB(var_smoothing=0.1), seed=1))

    assert abs(total - made) <= 3
    could = {line.partition(" could approve")[0] for line in said if " could approve" in line}
    assert could == {"pdtp-1", "share-1"}  # no domain, no candidates, no claim


_SEEN = []


def imports_first(X, y, *, seed):
    """Train quickly, but for the first time in a process."""
    if not _SEEN:
        time.sleep(1.0)
        _SEEN.append(seed)
    return fitted(X, y, seed=seed)


def test_a_first_training_is_no_measure_of_the_others_and_starting_counts_once():
    subject, policy = (
        Subject.local(Recipe(imports_first, seed=1), TrainingData(X, Y, one_record_each=True)),
        Policy.load("pdtp-1"),
    )
    with Fleet(jobs=1, ledger="none") as own:
        run = prepare(policy, subject, fleet=own, limits=Budget())
        paces = beside.timed(run)
        found = costs(policy, subject, fleet=own, limits=Budget())
        first = beside.begun(run, policy, paces)
        attacked = beside.begun(replace(run, asked=run.asked | {Need.SHADOWS}), policy, paces)

    assert paces.start >= 1.0
    assert 0 < paces.each < 0.5
    assert paces.start <= first.seconds < paces.start + 3  # no stored model to open, no attack
    assert not first.ends
    assert attacked.seconds > first.seconds + 3
    assert found.seconds < 0.5 * found.trainings + beside.START


class Starting(InProcess):
    """A worker that takes a second to start."""

    def fits(self, subject, fits, *, label="retraining"):
        if not self.calls:
            time.sleep(1.0)
        return super().fits(subject, fits, label=label)


@pytest.mark.quick(1)
@pytest.mark.parametrize("estimator", [LogisticRegression(), LogisticRegression(solver="liblinear"), GaussianNB()])
def test_starting_a_worker_is_no_part_of_a_training_whether_seeds_are_compared_or_not(estimator):
    subject = Subject.local(Recipe(estimator, seed=1), TrainingData(X, Y, one_record_each=True))
    paces = beside.timed(prepare(Policy.load("pdtp-1"), subject, fleet=Starting(), limits=Budget()))

    assert paces.start >= 0.9
    assert 0 < paces.each < 0.3


@pytest.mark.parametrize(("common", "each", "total"), [(0.01, 1e-4, 50_000), (0.05, 0.0, 300), (0.0, 0.01, 8)])
def test_a_straight_line_is_followed_from_a_few_people(monkeypatch, common, each, total):
    clock = [0.0]
    monkeypatch.setattr(check_plan.time, "process_time", lambda: clock[0])

    def work(units):
        clock[0] += common + each * len(units)

    seconds, tried = check_plan._extrapolated(work, np.arange(total), np.inf)
    assert seconds == pytest.approx(common + each * total)
    assert tried <= total
    assert clock[0] < 2.0


def test_where_a_few_people_already_take_long_what_is_stated_holds(monkeypatch):
    clock = [0.0]
    monkeypatch.setattr(check_plan.time, "process_time", lambda: clock[0])

    def work(units):
        clock[0] += 2.0 + 0.001 * len(units)

    assert check_plan._extrapolated(work, np.arange(10_000), 12.0)[0] == 12.0
    assert check_plan._extrapolated(work, np.arange(10_000), 1.0)[0] >= 2.0


def test_a_sample_that_may_grow_is_said():
    many, labels = np.tile(X, (8, 1)) + RNG.normal(size=(8 * N, 2)), np.tile(Y, 8)
    subject = Subject.local(
        Recipe(RandomForestClassifier(1, max_depth=1), seed=1), TrainingData(many, labels, one_record_each=True)
    )
    with Fleet(jobs=1, ledger="none") as fleet:
        said = costs(Policy.load("share-1"), subject, fleet=fleet, limits=Budget()).said

    assert any("limit open: 320 people in all, once; that takes about 21 trainings more" in line for line in said), said


def test_who_provides_a_module_is_found_without_asking_for_every_file():
    provided = importlib.metadata.packages_distributions()
    for module in ("sklearn", "numpy", "yaml", "pandas", "click"):
        assert set(providing((module,))) == set(provided[module])
    assert providing(()) == providing(("no_such_module",)) == providing(("__pycache__", "a.*")) == []


def test_a_package_whose_list_of_names_is_empty_or_odd_is_found_by_its_files(tmp_path, monkeypatch):
    for name, tops in (("empty", "\n"), ("spaced", "spaced \r\n")):
        place = tmp_path / f"{name}-1.0.dist-info"
        place.mkdir()
        (place / "METADATA").write_text(f"Metadata-Version: 2.1\nName: {name}\nVersion: 1.0\n")
        (place / "top_level.txt").write_text(tops)
        (place / "RECORD").write_text(f"{name}/__init__.py,,\n")
    monkeypatch.syspath_prepend(str(tmp_path))

    assert (providing(("empty",)), providing(("spaced",))) == (["empty"], ["spaced"])


@pytest.mark.slow
def test_a_forest_s_trainings_are_counted_those_at_other_seeds_among_them():
    many, labels = RNG.normal(size=(70, 2)), np.tile([0, 1], 35)
    subject = Subject.local(Recipe(RandomForestClassifier(5), seed=1), TrainingData(many, labels, one_record_each=True))
    with Fleet(jobs=1, ledger="none") as own:
        planned = costs(Policy.load("pdtp-1"), subject, fleet=own, limits=Budget(full=True))
        verdict = evaluate(Policy.load("pdtp-1"), subject, fleet=own, limits=Budget(full=True))
        made = own.calls

    assert verdict.evidence.influence.engines[0].engine == "refit"
    followed = next(line for line in planned.said if "trainings at other seeds" in line)
    most = int(re.search(r"up to (\d+) trainings", followed)[1])
    assert planned.trainings / 2 < made < 2 * planned.trainings + most


MANY = RNG.normal(size=(1200, 3))
GUESSED = RNG.integers(0, 2, 1200)


@pytest.mark.parametrize("full", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_where_attacks_break_a_rule_nobody_is_left_out_and_the_plan_knows_it(full):
    """A forest that knows labels drawn at random: attacked by four shadow models, which a plan trains as well."""
    data = TrainingData(MANY[:300], GUESSED[:300], candidates=(MANY[300:], GUESSED[300:]), one_record_each=True)
    subject = Subject.local(Recipe(RandomForestClassifier(5, bootstrap=False), seed=1), data)
    with Fleet(jobs=1, ledger="none") as own:
        planned = costs(Policy.load("release-1"), subject, fleet=own, limits=Budget(full=full))
    said = list[str]()
    with Fleet(jobs=1, ledger="none") as own:
        verdict = evaluate(Policy.load("release-1"), subject, fleet=own, limits=Budget(full=full), announce=said.append)
        made = own.calls

    found = {f.metric: f for f in verdict.findings}
    assert verdict.outcome is found["attack_accuracy"].outcome is Outcome.FAILED
    assert any("shadow models already refuse by a rule" in line for line in planned.said)
    assert not any("release-1 could approve" in line for line in planned.said)
    if full:
        assert found["pdtp"].outcome is Outcome.FAILED
    else:
        assert "--full measures it all the same" in found["pdtp"].message
        assert found["pdtp"].outcome is Outcome.INCONCLUSIVE
        assert planned.trainings / 2 <= made <= 2 * planned.trainings
        assert any("attacks come first" in line for line in said)


def test_a_plan_says_where_a_check_ends_before_anybody_is_left_out():
    policy = Policy.load("release-1")
    data = TrainingData(MANY[:40], GUESSED[:40], candidates=(MANY[40:], GUESSED[40:]), one_record_each=True)
    ends = {}
    for model in (RandomForestClassifier(3), KNeighborsClassifier()):
        subject = Subject.local(Recipe(model, seed=None if "Forest" in type(model).__name__ else 1), data)
        with Fleet(jobs=1, ledger="none") as own:
            found = costs(policy, subject, fleet=own, limits=Budget())
            glanced = own.calls
            assert evaluate(policy, subject, fleet=own).outcome is not Outcome.PASSED
            assert own.calls - glanced <= found.trainings <= 2
        ends[type(model).__name__] = found.ends

    assert "leaves random_state open; give Recipe(seed=…)" in ends["RandomForestClassifier"]
    assert "40 records of the training data" in ends["KNeighborsClassifier"]


def test_what_is_found_of_the_data_is_said_before_anything_is_trained():
    data = TrainingData(np.concatenate([X, X[:20]]), np.concatenate([Y, Y[:20]]), one_record_each=True)
    subject, said = Subject.local(Recipe(GaussianNB(), seed=1), data), list[tuple[str, int]]()
    with Fleet(jobs=1, ledger="none") as own:
        planned = costs(Policy.load("pdtp-1"), subject, fleet=own, limits=Budget()).said
    with Fleet(jobs=1, ledger="none") as own:
        evaluate(Policy.load("pdtp-1"), subject, fleet=own, announce=lambda text: said.append((text, own.calls)))

    assert [calls for text, calls in said if "name the person in 'groups'" in text] == [0]
    assert any("name the person in 'groups'" in line for line in planned)
