"""Forgetting people in a sharded model: the next version is the one that training without them gives."""

import json
import pickle
from dataclasses import replace

import mlflow
import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.base import clone
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier

from privgate import Recipe, TrainingData, log_model
from privgate.cli import cli
from privgate.errors import DigestMismatchError, UsageError
from privgate.forgetting import forget_members
from privgate.influence.risky_removal import without
from privgate.models import Sharded
from privgate.registry import load_subject

MODEL = Sharded(DecisionTreeClassifier(max_depth=4), shards=5, classes=[0, 1], ids=0)


def people(n=60, seed=0):
    """Two records a person for the first ten, and a person's number as the first column."""
    rng = np.random.default_rng(seed)
    who = np.concatenate([np.arange(n), np.arange(10)])
    X = np.column_stack([who, rng.normal(size=(len(who), 3))])
    return TrainingData(X, (X[:, 1] > 0).astype(int), groups=np.array([f"p{w}" for w in who]))


@pytest.fixture
def credit(registry):
    log_model(Recipe(MODEL, seed=3), people(), registered_model_name="credit", store="artifacts")
    return registry


def invoked(*words):
    return CliRunner().invoke(cli, words, catch_exceptions=True)


def test_the_next_version_is_what_training_without_them_gives_and_all_else_is_what_it_was(credit, tmp_path):
    shard = MODEL.shard_of(people().X)
    gone = [3, 41]

    ran = invoked("forget", "models:/credit/1", "--ids", "p3,p41", "--out", str(tmp_path / "proof.json"))

    assert ran.exit_code == 0, ran.output
    old, new = load_subject("models:/credit/1"), load_subject("models:/credit/2")
    left = without(people(), np.flatnonzero(np.isin(people().unit_names, ["p3", "p41"])))
    assert new.data.unit_names.tolist() == left.unit_names.tolist()
    fresh = Recipe(MODEL, seed=3).train(left.X, left.y, seed=3)
    asked = np.random.default_rng(1).normal(size=(50, 4))
    stored = new.model.load()
    assert (stored.predict_proba(asked) == fresh.predict_proba(asked)).all()
    concerned = sorted({int(shard[g]) for g in gone})
    for m in range(5):
        same = pickle.dumps(stored.members_[m]) == pickle.dumps(old.model.load().members_[m])
        assert same == (m not in concerned)
    proof = json.loads((tmp_path / "proof.json").read_text())
    assert proof["members"] == concerned
    assert (proof["people"], proof["records"]) == (2, 3)
    assert [m for m in range(5) if proof["before"][m] != proof["after"][m]] == concerned
    assert "p3" not in json.dumps(proof)
    assert proof["bound_of_all_versions"] == pytest.approx(1.0, abs=1e-6)
    assert "1 registered versions were trained on some of them (1)" in ran.output
    assert f"members {', '.join(map(str, concerned))} of 5 were trained again" in ran.output
    assert "38 deletion requests" in ran.output


def test_whose_record_is_public_too_cannot_be_forgotten_by_training_one_member(registry):
    """Every member is trained on the public records and knows them still; a proof would say that it does not."""
    data = people()
    model = clone(MODEL).set_params(public=(data.X[[7, 8]][:, 1:], data.y[[7, 8]]))
    log_model(Recipe(model, seed=3), data, registered_model_name="credit", store="artifacts")
    with pytest.raises(UsageError, match="1 to 2 of their 2 records are among the public records"):
        forget_members.forget("models:/credit/1", ["p7"])


@pytest.mark.slow
def test_versions_that_were_told_stay_told_and_their_bounds_add_up(credit):
    assert invoked("forget", "models:/credit/1", "--ids", "p3").exit_code == 0
    plain = replace(people(), y=people().y)
    log_model(Recipe(GaussianNB()), plain, registered_model_name="credit", store="artifacts")
    mlflow.MlflowClient().set_registered_model_alias("credit", "production", "2")

    seen = forget_members.versions("credit", ["p3", "p5"])

    assert [s.people for s in seen] == [2, 1, 2]
    assert seen[1].aliases == ("production",)
    assert seen[1].bounds[0] == 0.0
    assert forget_members.together(seen[:2]) == pytest.approx(2.0, abs=1e-6)
    assert forget_members.together(seen) == np.inf
    with pytest.raises(UsageError, match="name nobody"):  # nobody there is called so any more
        forget_members.forget("models:/credit/2", ["p3"])


def test_a_version_whose_data_cannot_be_read_counts_as_having_seen_everybody(credit, monkeypatch):
    def unreadable(uri, **_):
        raise DigestMismatchError(f"{uri} was changed")

    monkeypatch.setattr(forget_members.registry, "load_subject", unreadable)

    (seen,) = forget_members.versions("credit", ["p3", "stranger"])

    assert seen.people == 2
    assert "changed" in seen.problem


def test_a_model_that_is_not_sharded_is_refused_in_one_sentence(registry):
    log_model(Recipe(GaussianNB()), people(), registered_model_name="plain", store="artifacts")

    ran = invoked("forget", "models:/plain/1", "--ids", "p3")

    assert isinstance(ran.exception, UsageError)  # main() makes exit code 2 of it
    said = str(ran.exception) + ran.output
    assert "GaussianNB, not privgate.models.Sharded" in said
    assert "train it again on data without these people" in said
    assert len(mlflow.MlflowClient().search_model_versions("name='plain'")) == 1


@pytest.mark.parametrize(
    ("ids", "why"), [(["p3", "nobody"], "name nobody"), ([f"p{k}" for k in range(60)], "nobody would be left")]
)
def test_who_is_not_there_and_everybody_at_once_are_refused(credit, ids, why):
    with pytest.raises(UsageError, match=why):
        forget_members.forget("models:/credit/1", ids)


def test_a_learner_that_gives_another_member_each_time_registers_nothing(credit, monkeypatch):
    made = iter(range(1000))
    monkeypatch.setattr(forget_members, "_digest", lambda member: str(next(made)))

    with pytest.raises(UsageError, match="same member twice"):
        forget_members.forget("models:/credit/1", ["p3"])

    assert len(mlflow.MlflowClient().search_model_versions("name='credit'")) == 1


def test_what_was_interrupted_registers_nothing_and_the_same_command_goes_through(credit, monkeypatch):
    whole, calls = forget_members._retrained, []

    def cut(*given):
        calls.append(given)
        if len(calls) == 2:
            raise KeyboardInterrupt
        return whole(*given)

    monkeypatch.setattr(forget_members, "_retrained", cut)
    with pytest.raises(KeyboardInterrupt):
        forget_members.forget("models:/credit/1", ["p3"])
    assert len(mlflow.MlflowClient().search_model_versions("name='credit'")) == 1

    assert forget_members.forget("models:/credit/1", ["p3"])[0].uri == "models:/credit/2"


@pytest.mark.slow
def test_a_shard_of_which_nobody_is_left_answers_nothing_as_in_training_without_them(credit):
    X = people().X
    shard = MODEL.shard_of(X)
    gone = [f"p{w}" for w in np.unique(X[shard == 2, 0]).astype(int)]

    done, _ = forget_members.forget("models:/credit/1", gone)

    left = without(people(), np.flatnonzero(np.isin(people().unit_names, gone)))
    stored = load_subject(done.uri).model.load()
    asked = np.random.default_rng(1).normal(size=(50, 4))
    assert done.members == (2,)
    assert done.trained_on == 0
    assert stored.members_[2] is None
    assert (
        stored.predict_proba(asked) == Recipe(MODEL, seed=3).train(left.X, left.y, seed=3).predict_proba(asked)
    ).all()


def test_a_stored_model_that_put_people_elsewhere_than_its_recipe_is_refused(registry):
    """Who is where would follow from the file, what is trained again from the recipe: a member would keep somebody."""
    other = clone(MODEL).set_params(key="another")
    log_model(
        Recipe(MODEL, seed=3),
        people(),
        registered_model_name="credit",
        store="artifacts",
        trained=lambda data: Recipe(other, seed=3).train(data.X, data.y, seed=3),
    )

    with pytest.raises(DigestMismatchError, match="other shards than its recipe"):
        forget_members.forget("models:/credit/1", ["p3"])


def test_what_is_stored_and_is_not_what_was_proven_is_named():
    done = forget_members.Forgotten("models:/x/2", 1, 1, (1,), 5, 9, 0.1, ("a", "b", "c"), ("a", "n", "c"))
    forget_members._compare(done, ("a", "n", "c"))

    for after, trained in ((("a", "n", "z"), ("a", "n", "z")), (("a", "n", "c"), ("a", "m", "c"))):
        with pytest.raises(DigestMismatchError, match="do not release"):
            forget_members._compare(replace(done, after=after), trained)


@pytest.mark.parametrize("combine", ["log_pool", "mean", "votes"])
def test_keeping_members_of_untouched_shards_is_training_on_what_is_left(combine):
    data = people()
    model = Sharded(GaussianNB(), shards=5, classes=[0, 1], ids=0, combine=combine)
    whole = pickle.loads(pickle.dumps(model)).fit(data.X, data.y)
    rows = data.X[:, 0] != 7
    kept = {m: member for m, member in enumerate(whole.members_) if m != whole.shard_of(data.X[~rows])[0]}

    again = pickle.loads(pickle.dumps(model)).refit(data.X[rows], data.y[rows], kept)
    fresh = pickle.loads(pickle.dumps(model)).fit(data.X[rows], data.y[rows])

    assert pickle.dumps(again.members_[0]) == pickle.dumps(fresh.members_[0])
    assert (again.predict_proba(data.X) == fresh.predict_proba(data.X)).all()
    assert not (again.predict_proba(data.X) == whole.predict_proba(data.X)).all()
