"""Confirming: many candidates at the limit are tried, and the probability that one passes stays below the level."""

from types import SimpleNamespace

import numpy as np
import pytest
from privgate.advice.advice_search import Search
from privgate.advice.apply import apply
from privgate.advice.change import Change
from privgate.advice.point import Point, Use
from privgate.advice.probe import FINALISTS
from scipy import stats

from privgate import Policy, Recipe, Subject, TrainingData
from privgate.advice import advice_page
from privgate.advice import point as usefulness
from privgate.advice import probe as confirming
from privgate.advice import probe as probing
from privgate.check import gate
from privgate.errors import MeasurementError, UsageError
from privgate.evidence import BehindClaim, Evidence, Measurement
from privgate.kernel.sample import upper_limit
from privgate.verdict import Verdict

#: people asked, searches, candidates of each
PEOPLE, SEARCHES, CANDIDATES = 2000, 600, 12

POLICY = """\
schema: privgate/policy/v1
name: guessing
version: "1"
description: One attack.
rules:
  - metric: attack_accuracy
    attack: any
    scope: model
    max: 0.6
    reason: a test
"""


def test_an_audit_is_told_by_what_it_found_and_allows_more_thanone_try():
    policy = Policy.load("dp-trained")
    [rule] = [r for r in policy.rules if r.metric == "dp_epsilon_lower_bound"]
    behind = BehindClaim(claimed_epsilon=8.0)
    audit = Measurement(rule.request(), 0.7, 0.7, float("inf"), kind="confidence", confidence=0.999, behind=behind)
    finding = rule.judge(audit)
    assert finding.outcome.releases
    assert probing.unsafe(finding) == 0.7
    checked = SimpleNamespace(evidence=SimpleNamespace(measurements={rule.request(): audit}))
    assert not confirming.one_try(policy, checked)


@pytest.fixture(autouse=True)
def same_use(request, monkeypatch):
    """Candidates are made up: nothing is trained to see what they are good for on other folds."""
    if "fleet" not in request.fixturenames:
        monkeypatch.setattr(Search, "again", lambda _, point: point)


@pytest.fixture(scope="module")
def policy(tmp_path_factory):
    path = tmp_path_factory.mktemp("policy") / "guessing.yaml"
    path.write_text(POLICY)
    return Policy.load(path)


def subject():
    from sklearn.naive_bayes import GaussianNB

    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(40, 2)), np.arange(40) % 2
    return Subject.local(Recipe(GaussianNB(), seed=0), TrainingData(X, y))


def found(policy, accuracy, rng, kind="confidence"):
    """Return what a whole check would: limits of an attack that is right with this probability."""
    measured = {}
    for rule in policy.rules:
        right = rng.binomial(PEOPLE, accuracy)
        high = float(upper_limit(right, PEOPLE, alpha=1 - rule.confidence))
        measured[rule.request()] = Measurement(rule.request(), right / PEOPLE, 0.5, high, kind=kind, n=PEOPLE)
    findings = tuple(rule.judge(measured[rule.request()]) for rule in policy.rules)
    return Verdict({}, findings, Evidence({}, (), measured))


def passing(count):
    """Return candidates that passed in a search."""
    more = {"outcome": "passed", "useful": 0.9, "floor": 0.5}
    return [Point(number=k, change=Change(says=f"candidate {k}"), **more) for k in range(count + 1)]


def wrong(policy, monkeypatch, rng):
    """Return in how many searches a candidate stands whose attack is right in exactly as many cases as is allowed."""
    monkeypatch.setattr(gate, "evaluate", lambda judge, *_, **__: found(judge, 0.6, rng))
    about, stood = subject(), 0
    for _ in range(SEARCHES):
        search = Search(policy, about, None, points=passing(CANDIDATES))
        search._confirm()
        stood += any(p.stands for p in search.points)
    return stood


def test_of_many_candidates_at_the_limit_one_stands_no_more_often_than_the_level_says(policy, monkeypatch):
    most = stats.binom(SEARCHES, 0.05).ppf(0.999)
    assert wrong(policy, monkeypatch, np.random.default_rng(1)) <= most
    # three tries at that level are found out
    monkeypatch.setattr(confirming, "rests_on_levels", lambda _: False)
    assert wrong(policy, monkeypatch, np.random.default_rng(1)) > most


def test_what_rests_on_a_level_is_known_and_an_audit_does_not():
    assert confirming.rests_on_levels(Policy.load("attacks-1"))
    assert not confirming.rests_on_levels(Policy.load("pdtp-1"))
    [audit] = [r for r in Policy.load("dp-trained").rules if r.metric == "dp_epsilon_lower_bound"]
    assert not confirming._has_level(audit), "its level is that of a false alarm"


@pytest.mark.parametrize(("kind", "tried"), [("exact", FINALISTS), ("bound", FINALISTS), ("confidence", 1)])
def test_limits_whose_level_nobody_names_have_one_try(kind, tried, monkeypatch):
    policy, asked = Policy.load("pdtp-1"), []

    def evaluate(judge, *_, **__):
        asked.append(judge)
        measured = {r.request(): Measurement(r.request(), 2.0, 2.0, 3.0, kind=kind, n=40) for r in judge.rules}
        findings = tuple(r.judge(measured[r.request()]) for r in judge.rules)
        return Verdict({}, findings, Evidence({}, (), measured))

    monkeypatch.setattr(gate, "evaluate", evaluate)
    search = Search(policy, subject(), None, points=passing(CANDIDATES))
    search._confirm()
    assert len(asked) == tried
    assert sum(bool(p.confirmed) for p in search.points) == tried
    more = f"a whole check of {CANDIDATES - tried} more that were approved in the search: "
    assert search.left == [more + ("its level allows one try" if tried == 1 else "3 at most")]


@pytest.mark.parametrize("accuracy", [0.5, 0.7])
def test_where_a_rule_may_be_passed_by_chance_one_is_tried_whatever_comes_of_it(accuracy, policy, monkeypatch):
    rng = np.random.default_rng(2)
    monkeypatch.setattr(gate, "evaluate", lambda judge, *_, **__: found(judge, accuracy, rng))
    search = Search(policy, subject(), None, points=passing(CANDIDATES))
    search._confirm()
    assert [p.number for p in search.points if p.confirmed] == [1]
    assert search.points[1].stands == (accuracy == 0.5)
    more = f"a whole check of {CANDIDATES - 1} more that were approved in the search"
    assert search.left == [f"{more}: its level allows one try"]
    ends = f"1 not approved by a whole check, {CANDIDATES - 1} approved in the search alone"
    assert (ends in advice_page.summary(kept(search))) == (accuracy == 0.7)


def kept(search):
    about = {"uri": "", "policy": "", "policy_digest": "", "recipe": "", "data": "", "measure": "accuracy"}
    refused = search.points[0].model_copy(update={"outcome": "failed"})
    return advice_page.Advice(**about, points=(refused, *search.points[1:]), left=tuple(search.left))


@pytest.mark.parametrize("seen", [Use(float("nan"), 0.1, 0.2), Use(0.9, 0.1, float("nan")), MeasurementError("lost")])
def test_what_could_not_be_asked_on_other_folds_does_not_stand(seen, fleet, monkeypatch, tmp_path):
    """An AUC of a fold with one label is no number: unknown is not above the floor."""

    def asked(*_, **__):
        if isinstance(seen, Exception):
            raise seen
        return seen

    monkeypatch.setattr(usefulness, "cross_validated", asked)
    search = Search(Policy.load("pdtp-1"), subject(), fleet, points=passing(1), measure="accuracy")
    search.points[1] = search.again(search.points[1].model_copy(update={"confirmed": "passed"}))
    assert search.points[1].passes
    assert not search.points[1].stands
    advice = kept(search)
    assert advice.best == ()
    advice.write(tmp_path / "advice.json")
    assert advice_page.Advice.read(tmp_path / "advice.json").payload() == advice.payload()
    assert "other folds unknown" in advice_page.text(advice)
    assert "1 no better than that on other folds" in advice_page.summary(advice)
    with pytest.raises(UsageError, match="what it is good for is not known"):
        apply(advice, 1)


def test_what_answers_badly_on_other_folds_is_not_applied():
    points = passing(1)
    points[1] = points[1].model_copy(update={"confirmed": "passed", "confirmed_useful": 0.4})
    with pytest.raises(UsageError, match=r"advice wants more than 0\.5000"):
        apply(kept(Search(Policy.load("pdtp-1"), subject(), None, points=points, measure="accuracy")), 1)


def test_the_chosen_candidate_is_measured_on_folds_that_did_not_choose_it(fleet):
    about = subject()
    first, second = usefulness.folds(about), usefulness.folds(about, usefulness.AGAIN)
    assert sorted(np.concatenate(second).tolist()) == list(range(40))
    assert not any(np.array_equal(a, b) for a, b in zip(first, second, strict=True))
    search = Search(Policy.load("pdtp-1"), about, fleet, measure="accuracy")
    shown = {"useful": 0.99, "useful_error": 0.1, "floor": 0.2}
    point = Point(number=1, change=Change(says=""), outcome="passed", confirmed="passed", **shown)
    again = search.again(point)
    use = usefulness.cross_validated(about, fleet, "accuracy", draw=usefulness.AGAIN)
    assert (again.useful, again.confirmed_useful, again.floor) == (0.99, use.mean, max(0.2, use.floor))
    assert point.stands
    assert not again.stands, "labels are random: on other folds it answers as whoever ignores the features"
    failed = point.model_copy(update={"confirmed": "failed"})
    assert search.again(failed) is failed
    advice = SimpleNamespace(points=(again,), measure="accuracy")
    assert f"other folds {again.confirmed_useful:.4f}" in "\n".join(map(str, advice_page._rows(advice)))


def test_what_is_remembered_is_not_timed_again(fleet):
    from privgate.training import plan

    about = subject()
    fits = plan.leave_out_fits(about, np.arange(40), (0,))
    first = plan.estimate(about, fits, fleet)
    calls = fleet.calls
    again = plan.estimate(about, fits, fleet, recalled=True)
    assert fleet.calls == calls
    assert (again.remembered, again.missing) == (plan.TIMED, 40 - plan.TIMED) == (first.remembered, first.missing)
    assert again.seconds_each > 0
