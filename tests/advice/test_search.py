"""The search for a change that passes: what it proposes was measured, and a whole check agrees."""

import json
import os
import re
import subprocess
import sys

import numpy as np
import pytest

from privgate import Budget, Domain, Policy, Recipe, Subject, TrainingData, evaluate, log_model, registry
from privgate.advice import search as searching
from privgate.advice.knobs import Floor, find_floor
from privgate.advice.search import Rehearsal, advise, cross_validate, search_command
from privgate.check import gate
from privgate.errors import MeasurementError, UsageError
from privgate.evidence.verdict import Outcome
from privgate.models import ContingencyTable
from privgate.subject.release import Laplace, Release
from privgate.training.fleet import Fleet

SIZES = [3, 4, 2]


def table(n=60, seed=4):
    rng = np.random.default_rng(seed)
    y = np.where(rng.random(2 * n) < 0.4, "yes", "no")
    told = [np.where(rng.random(2 * n) < 0.7, y == "yes", rng.integers(0, v, 2 * n)) for v in SIZES]
    X = np.column_stack(told).astype(int)
    return TrainingData(
        X[:n], y[:n], candidates=(X[n:], y[n:]), domain=Domain(categories=tuple(SIZES)), one_record_each=True
    )


def naive_bayes(alpha=0.01):
    from sklearn.naive_bayes import CategoricalNB

    return Recipe(CategoricalNB(alpha=alpha, min_categories=SIZES), seed=1)


@pytest.fixture(scope="module")
def fleet():
    with Fleet(1, "none", isolate="none") as made:
        yield made


@pytest.fixture(scope="module")
def found(fleet):
    """Advice for a naive Bayes that smooths too little."""
    subject, said = Subject.local(naive_bayes(), table()), []
    return advise(Policy.load("dtp-1"), subject, fleet=fleet, tell=said.append), subject, said


def test_the_weakest_value_that_passes_is_confirmed_and_printed_as_a_diff(found):
    advice, subject, said = found

    assert advice.approved
    assert [t.passes for t in advice.tried] == [False] * (len(advice.tried) - 1) + [True]
    assert advice.best is advice.tried[-1]
    assert said[0] == "checking the model as it stands"
    assert said[-1] == f"checking as a whole: {advice.best.change.says}"
    assert advice.lines[-2:] == [f"  {line}" for line in advice.best.change.diff]
    assert advice.payload()["diff"] == advice.best.change.diff
    # by hand: what is proposed passes an ordinary check, and what was refused on the way does not
    for tried in advice.tried[-2:]:
        again = tried.change.change(subject)
        assert gate.evaluate(Policy.load("dtp-1"), again).outcome.releases is tried.passes


def test_the_check_that_confirms_has_randomness_that_the_search_has_not_seen(found, monkeypatch, fleet):
    _, subject, _ = found
    checked = []
    usual = gate.evaluate
    monkeypatch.setattr(gate, "evaluate", lambda p, s, **more: checked.append(s) or usual(p, s, **more))
    advise(Policy.load("dtp-1"), subject, fleet=fleet)

    assert [isinstance(s, Rehearsal) for s in checked] == [False, *[True] * (len(checked) - 2), False]
    assert checked[-2].training_digest != checked[-1].training_digest
    assert checked[-2].recipe.digest == checked[-1].recipe.digest


def test_what_a_whole_check_does_not_approve_is_no_advice(found, monkeypatch, fleet):
    _, subject, _ = found
    usual = gate.evaluate

    def strict(policy, asked, **more):
        made = usual(policy, asked, **more)
        first = gate.evaluate is strict and not isinstance(asked, Rehearsal)
        return usual(policy, subject, **more) if first else made  # as if refused

    monkeypatch.setattr(gate, "evaluate", strict)
    advice = advise(Policy.load("dtp-1"), subject, fleet=fleet)

    assert advice.best is not None
    assert not advice.approved
    assert "a whole check does not approve it" in advice.lines[-1]
    assert advice.payload()["diff"] == []


def memorised():
    from sklearn.neighbors import KNeighborsClassifier

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 3))
    return Recipe(KNeighborsClassifier(), seed=1), TrainingData(X, (X[:, 0] > 0).astype(int), one_record_each=True)


def nothing_to_turn():
    from sklearn.linear_model import LinearRegression

    rng = np.random.default_rng(0)
    return Recipe(LinearRegression(), seed=1), TrainingData(
        rng.normal(size=(40, 2)), rng.normal(size=40), one_record_each=True
    )


@pytest.mark.parametrize(
    ("make", "policy", "why"),
    [
        (memorised, "release-1", "no change of the model can be approved: .*40 records of the training data"),
        (lambda: (naive_bayes(), table()), "release-1", "no change of the model can be approved: .* candidates"),
        (nothing_to_turn, "regression-1", "no parameter of which it is known that it protects people"),
    ],
)
def test_what_no_change_mends_is_said_before_anything_is_trained(make, policy, why):
    """The search used to measure the model as it stands before it said so."""
    with Fleet(1, "none", isolate="none") as fleet:
        advice = advise(Policy.load(policy), Subject.local(*make()), fleet=fleet)
        assert fleet.calls == 0
    assert not advice.approved
    (line,) = advice.lines
    assert re.search(why, line)


def test_a_model_that_passes_as_it_stands_is_not_changed(fleet):
    advice = advise(Policy.load("dtp-1"), Subject.local(naive_bayes(alpha=50.0), table()), fleet=fleet)

    assert advice.approved
    assert advice.lines == ["the model as it stands keeps the policy"]
    assert advice.payload()["diff"] == []


def test_without_time_nothing_is_begun(found, fleet):
    _, subject, _ = found
    advice = advise(Policy.load("dtp-1"), subject, fleet=fleet, seconds=-1.0)

    assert not advice.tried
    assert "the time is spent" in advice.lines[-1]


def picky(X, y, *, seed, alpha=0.01):
    """Refuse what advice would turn it to."""
    if alpha > 0.01:
        raise ValueError("no alpha above 0.01")
    return naive_bayes().training.fit(X, y)


def test_a_change_that_cannot_be_trained_never_passes(fleet):
    subject = Subject.local(Recipe(picky, {"alpha": 0.01}, seed=1), table())
    verdict = evaluate("pdtp-1", subject, fleet=fleet)
    assert not verdict.outcome.releases
    advice = advise(Policy.load("pdtp-1"), subject, fleet=fleet, verdict=verdict)

    assert advice.tried
    assert not any(t.passes for t in advice.tried)
    assert all("cross-validation: training raised ValueError" in t.why for t in advice.tried[1:])


# a floor under the answers


class Hinting:
    """A model that answers well, and in what a person hardly can be by whom it was trained on."""

    def __init__(self, X, y):
        from sklearn.linear_model import LogisticRegression

        self.model, self.known, self.classes_ = LogisticRegression(C=0.01).fit(X, y), set(X[:, 0]), np.unique(y)

    def predict_proba(self, X):
        p = np.clip(self.model.predict_proba(X)[:, 1], 0.2, 0.8)
        low = np.where(np.isin(X[:, 0], list(self.known)), 0.004, 0.001)
        p = np.where(X[:, 1] < -0.5, low, p)
        return np.column_stack([1 - p, p])


def hinting(X, y, *, seed, C=1.0):
    return Hinting(X, y)


def told_in_tails(n=80):
    rng = np.random.default_rng(2)
    X = rng.normal(size=(2 * n, 2))
    y = ((X[:, 0] + rng.normal(size=2 * n) > 0) & (X[:, 1] > -0.5)).astype(int)
    return TrainingData(X[:n], y[:n], candidates=(X[n:], y[n:]), one_record_each=True)


@pytest.mark.parametrize("withheld", [True, False])
def test_a_floor_is_tried_first_and_named_with_the_statement_that_it_needs(fleet, withheld):
    from sklearn.metrics import log_loss, roc_auc_score

    subject, said = Subject.local(Recipe(hinting, {"C": 1.0}, seed=1), told_in_tails()), []
    limits = Budget(file_withheld=withheld)
    advice = advise(Policy.load("pdtp-1"), subject, fleet=fleet, limits=limits, tell=said.append)

    first = advice.tried[0]
    assert isinstance(first.change, Floor)
    assert first.passes
    assert (len(advice.tried) == 1) is withheld  # the same model: nothing is weaker
    assert advice.best is first  # no other keeps the policy
    assert advice.approved
    assert advice.lines[-2].strip() == "+ log_model, log_recipe: release=Release(floor=True)"
    assert "--file-not-downloadable" in advice.lines[-1]
    assert "--file-not-downloadable" in said[1]
    # by hand, what it costs
    X, y = subject.data.candidates
    exact = Hinting(subject.data.X, subject.data.y).predict_proba(X)[:, 1]
    low = np.clip(exact, 0.01, 0.99)
    scores = (("AUC", roc_auc_score), ("log loss", log_loss))
    told = [f"{name} {f(y, exact):.4f} becomes {f(y, low):.4f}" for name, f in scores]
    at_floor = f"of 80 candidates' answers {100 * np.mean(exact < 0.01):.3g} % have a label at the floor"
    assert first.quality.endswith(", ".join([at_floor, *told]))


@pytest.mark.parametrize(
    ("share", "release", "floor"),
    [
        (0.5, Release(), True),
        (0.02, Release(), {1: 0.002}),
        (0.5, Release("label"), None),
        (0.5, Release(floor=True), None),
    ],
)
def test_a_rare_event_has_a_floor_of_its_own_and_other_releases_none(share, release, floor):
    y = (np.arange(200) < 200 * share).astype(int)
    data = TrainingData(np.arange(400.0).reshape(200, 2), y, one_record_each=True)
    proposed = find_floor(Subject.local(naive_bayes(), data, release=release))
    declared = Recipe(ContingencyTable(classes=[-1, 0, 1, 2]), seed=1)  # of two labels nobody has any

    assert (proposed and proposed.floor) == floor
    assert find_floor(Subject.local(declared, data, release=release)) == proposed
    assert ("; declare a tenth" in str(proposed and proposed.diff)) == isinstance(floor, dict)


# usefulness


def test_usefulness_is_that_of_a_plain_loop_over_peoples_folds(fleet):
    subject = Subject.local(naive_bayes(), table())
    useful, worst, words = cross_validate(subject, fleet)
    X, y = subject.data.X, subject.data.y
    held = searching._folds(subject)
    assert np.array_equal(np.sort(np.concatenate(held)), np.arange(60))
    logs, shares, right = [], [], []
    for rows in held:
        others = np.setdiff1d(np.arange(60), rows)
        model = naive_bayes().training.fit(X[others], y[others])
        p = model.predict_proba(X[rows])[np.arange(len(rows)), np.searchsorted(model.classes_, y[rows])]
        logs.append(np.log(p).mean())
        shares.append(np.log([np.mean(y[others] == label) for label in y[rows]]).mean())
        right.append(np.mean(model.predict(X[rows]) == y[rows]))
    assert useful == pytest.approx(np.mean(logs))
    gained = np.subtract(logs, shares)
    assert worst == pytest.approx(np.mean(shares) + 2 * np.std(gained, ddof=1) / np.sqrt(5))
    assert words == f"cross-validated accuracy {np.mean(right):.4f}"


def test_noise_on_a_regressors_answers_costs_usefulness(fleet):
    from sklearn.linear_model import Ridge

    rng = np.random.default_rng(0)
    X = rng.normal(size=(40, 2))
    data = TrainingData(X, X[:, 0] + rng.normal(size=40), one_record_each=True)
    plain, noisy = (
        cross_validate(Subject.local(Recipe(Ridge()), data, release=release), fleet)[0]
        for release in (Release(), Release(noise=Laplace(1.0)))
    )
    assert plain - noisy == pytest.approx(2.0 / data.y.var())


def test_a_training_that_fails_is_named(fleet):
    subject = Subject.local(Recipe(picky, {"alpha": 1.0}, seed=1), table())
    with pytest.raises(MeasurementError, match="cross-validation: training raised"):
        cross_validate(subject, fleet)


# the way out of a check


def test_a_refused_check_names_the_search_and_an_approved_one_does_not(found, fleet):
    _, subject, _ = found
    refused = evaluate("dtp-1", subject, fleet=fleet)
    approved = evaluate("dtp-1", Subject.local(naive_bayes(alpha=50.0), table()), fleet=fleet)

    [step] = refused.evidence.run.next_steps
    assert "`privgate advise URI --policy dtp-1`" in step.action
    assert refused.detail["next_steps"] == [step.payload()]
    assert approved.evidence.run.next_steps == ()
    assert search_command(Subject.local(*nothing_to_turn()), Policy.load("dtp-1")) == ""
    with pytest.raises(UsageError, match="judges a Subject"):
        evaluate("dtp-1", "models:/m/1")


def test_the_commands_search_a_registered_model_and_print_the_diff(tmp_path):
    uri = registry.local_registry(tmp_path)
    log_model(naive_bayes(), table(), registered_model_name="m", tracking_uri=uri, store=tmp_path / "data")

    def run(*words):
        environment = {**os.environ, "PRIVGATE_LEDGER": str(tmp_path / "ledger"), "MLFLOW_TRACKING_URI": uri}
        command = [sys.executable, "-m", "privgate", *words, "--policy", "dtp-1", "--jobs", "1", "--quiet"]
        return subprocess.run(command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=False)

    advice = run("advise", "models:/m/1", "--json")
    checked = run("check", "models:/m/1", "--advise", "--no-attach")
    said = json.loads(advice.stdout)

    assert (advice.returncode, checked.returncode) == (0, 1), (advice.stderr, checked.stderr)
    assert said["approved"]
    assert said["diff"][0] == "- CategoricalNB: alpha = 0.01"
    assert checked.stdout.rstrip().endswith("\n".join(f"  {line}" for line in said["diff"]))
    assert Outcome.FAILED.value in (tmp_path / "privgate-report" / "report.json").read_text()
