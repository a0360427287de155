"""A theorem that limits everybody: a sample is trained without, and one change beyond the theorem undoes it."""

import dataclasses
from dataclasses import replace
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.calibration import CalibratedClassifierCV
from sklearn.ensemble import StackingClassifier, VotingClassifier
from sklearn.model_selection import GridSearchCV
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import StandardScaler

from privgate import Budget, Policy, Recipe, Subject, TrainingData
from privgate.check import beforehand, gate
from privgate.check import prepare as asked
from privgate.check.prepare import prepare
from privgate.influence import left_out
from privgate.models import Sharded
from privgate.theorems.theorem import DataTheorem

PEOPLE, SAMPLE = 60, 8
RNG = np.random.default_rng(5)
Y = RNG.integers(0, 2, PEOPLE)
X = RNG.normal(size=(PEOPLE, 2)) + Y[:, None]


@pytest.fixture(autouse=True)
def few(monkeypatch):
    monkeypatch.setattr(left_out, "CHECKED", SAMPLE)
    monkeypatch.setattr(asked, "CHECKED", SAMPLE)


def subject(dtp=0.9):
    made = Sharded(GaussianNB(var_smoothing=1e-3), shards=4, dtp=dtp, classes=[0, 1])
    return Subject.local(Recipe(made, seed=0), TrainingData(X, Y, one_record_each=True))


def run(policy, about, fleet, **limits):
    made = prepare(policy, about, fleet=fleet, limits=Budget(**limits))
    return beforehand.choose_seeds(made)


@pytest.mark.slow
def test_a_sample_is_trained_without_and_the_theorem_limits_the_others(fleet):
    verdict = gate.evaluate("pdtp-1", subject(), fleet=fleet)
    [finding] = [f for f in verdict.findings if f.metric == "pdtp"]
    coverage = verdict.evidence.influence.coverage
    assert (coverage.n_measured, coverage.n_units) == (SAMPLE, PEOPLE)
    assert "a certificate over all questions limits everybody's change to 0.9 nats" in coverage.claim
    assert finding.high == pytest.approx(0.9, abs=1e-6)
    assert finding.low <= finding.high
    assert verdict.outcome.releases


def test_one_change_beyond_the_theorem_undoes_the_limit_of_everybody(fleet, monkeypatch):
    certify = DataTheorem.certify

    def wrong(self, about):
        found = certify(self, about)
        return type(found)(found.upper * 1e-6, found.lower, found.assumptions, found.why)

    monkeypatch.setattr(DataTheorem, "certify", wrong)
    verdict = gate.evaluate("pdtp-1", subject(), fleet=fleet)
    [finding] = [f for f in verdict.findings if f.metric == "pdtp"]
    assert finding.high == np.inf
    assert not verdict.outcome.releases


class Derived(Sharded):
    __module__ = __name__


def outside(model):
    return Subject.local(Recipe(model, seed=0), TrainingData(X, Y, one_record_each=True))


@pytest.mark.parametrize(
    "model",
    [
        Derived(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1]),
        make_pipeline(StandardScaler(), Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1])),
        CalibratedClassifierCV(Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1])),
        GridSearchCV(Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1]), {"dtp": [0.5, 0.9]}, cv=2),
        StackingClassifier([("a", Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1]))]),
        VotingClassifier([(n, Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1])) for n in "ab"], voting="soft"),
        Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0, 1], public=(X[:3], Y[:3])),
        Sharded(GaussianNB(), shards=4, dtp=0.9, classes=[0]),
    ],
    ids=["derived", "scaled", "calibrated", "searched", "stacked", "voting", "public people", "labels missing"],
)
def test_what_stands_around_shards_is_not_covered_by_their_theorem(model, fleet):
    made = replace(prepare(Policy.load("pdtp-1"), outside(model), fleet=fleet, limits=Budget()), seeds=(0,))
    assert left_out.limit_everybody(made) is None


def test_dtp_is_limited_likewise(fleet):
    verdict = gate.evaluate("dtp-1", subject(), fleet=fleet)
    [finding] = [f for f in verdict.findings if f.metric == "dtp"]
    assert finding.high == pytest.approx(0.9, abs=1e-6)
    assert verdict.evidence.influence.coverage.n_measured == SAMPLE
    assert verdict.outcome.releases


@pytest.mark.parametrize(
    ("about", "limits"),
    [(1.5, {}), (0.9, {"full": True})],
    ids=["beyond the limit", "everybody is asked for"],
)
def test_everybody_counts_where_the_theorem_is_not_enough(about, limits, fleet):
    made = run(Policy.load("pdtp-1"), subject(about), fleet, **limits)
    assert left_out.limit_everybody(made) is None


def test_a_budget_bounds_the_refits_beside_a_theorem_and_takes_nothing_from_it(fleet):
    verdict = gate.evaluate("dtp-1", subject(), fleet=fleet, limits=Budget(max_retrains=5))
    assert verdict.outcome.releases
    assert verdict.evidence.influence.coverage.n_measured <= 5


@pytest.mark.parametrize("audit", ["min_coverage: 1.0", "min_units: 40", "min_seeds: 10"])
def test_a_policy_that_wants_more_people_or_seeds_gets_them(audit, fleet, load_policy):
    own = load_policy(f"extends: pdtp-1\naudit:\n  {audit}\n")
    assert left_out.limit_everybody(run(Policy.load("pdtp-1"), subject(), fleet)) is not None
    assert left_out.limit_everybody(run(own, subject(), fleet)) is None


def test_a_rule_that_wants_everybodys_value_gets_it():
    policy = Policy.load("pdtp-1")
    assert asked.by_theorem(policy)
    rule = policy.rules[0]
    other = SimpleNamespace(about=dataclasses.replace(rule.about, per_unit=False))
    assert not asked.by_theorem(SimpleNamespace(rules=(rule, other), audit=policy.audit))
