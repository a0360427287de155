"""The route in process: local subjects, preconditions that stop, measurements that cannot be taken."""

import numpy as np
import pytest
from sklearn.naive_bayes import CategoricalNB, GaussianNB

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check.beforehand import too_few
from privgate.check.prepare import prepare
from privgate.evidence import COLUMNS
from privgate.evidence.verdict import Outcome
from privgate.run.run import Budget
from privgate.subject.domain import Domain
from privgate.training.fleet import Fleet

SIZES = [3, 4]
RNG = np.random.default_rng(9)
Y = RNG.integers(0, 2, 40)
X = np.column_stack([(RNG.integers(0, v, 40) + Y) % v for v in SIZES])
DATA = TrainingData(X, Y, domain=Domain(categories=tuple(SIZES)), one_record_each=True)


@pytest.fixture
def fleet(tmp_path):
    with Fleet(jobs=1, ledger=tmp_path / "ledger") as made:
        yield made


def naive_bayes(alpha: float) -> Recipe:
    return Recipe(CategoricalNB(alpha=alpha, min_categories=SIZES), seed=1)


def test_a_local_subject_is_judged_without_a_registry(fleet):
    verdict = evaluate(Policy.load("dtp-1"), Subject.local(naive_bayes(5.0), DATA), fleet=fleet)

    assert verdict.outcome.releases, [f.message for f in verdict.findings]
    assert list(COLUMNS) == list(verdict.records.columns[: len(COLUMNS)])
    assert len(verdict.records) == 40
    assert (verdict.records.dtp_lower <= verdict.records.dtp_upper).all()
    assert (verdict.records.pdtp <= verdict.records.dtp_upper + 1e-12).all()


def test_a_dp_recipe_with_a_recorded_seed_is_blocked_before_training(fleet):
    from privgate.subject.claim import Claim

    recipe = Recipe(
        CategoricalNB(min_categories=SIZES), seed=1, dp=Claim("dp-sgd", "add_remove", epsilon=1.0, delta=1e-5)
    )
    verdict = evaluate(Policy.load("dtp-1"), Subject.local(recipe, DATA), fleet=fleet)

    assert verdict.outcome is Outcome.FAILED
    assert any("regenerate the noise" in f.message for f in verdict.findings)
    assert fleet.calls == 0


def one_split(X, y, *, seed):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=1, min_samples_leaf=10, random_state=seed).fit(X, y)


def test_a_sample_of_units_claims_nothing_about_the_largest(fleet):
    subject = Subject.local(Recipe(one_split, seed=1), DATA)
    verdict = evaluate(Policy.load("pdtp-1"), subject, fleet=fleet, limits=Budget(max_retrains=10, seeds=1))

    assert len(verdict.records) == 10
    assert not verdict.approved


def test_a_rule_that_is_not_required_and_does_not_apply_is_shown_as_such(fleet, load_policy):
    optional = "  - metric: dp_epsilon\n    max: 2\n    delta: 0.00001\n    required: false\n"
    policy = load_policy(f"rules:\n  - metric: dtp\n    max: 1\n{optional}")
    verdict = evaluate(policy, Subject.local(naive_bayes(5.0), DATA), fleet=fleet)

    found = {f.rule: f for f in verdict.findings}
    assert not found["dp_epsilon"].applies
    assert "not applicable" in found["dp_epsilon"].message
    assert verdict.outcome.releases


@pytest.mark.quick(1)
def test_what_is_released_is_measured_beside_exact_probabilities_and_never_certified(fleet):
    from privgate import Release

    subject = Subject.local(naive_bayes(5.0), DATA, release=Release("label"))
    exact = evaluate(Policy.load("pdtp-1"), Subject.local(naive_bayes(5.0), DATA), fleet=fleet).records
    verdict = evaluate(Policy.load("dtp-1"), subject, fleet=fleet, limits=Budget(full=True))

    assert (verdict.records.pdtp >= exact.pdtp).all()
    assert np.isinf(verdict.records.dtp_upper).all()
    assert not verdict.approved


def side_channel(X, y, *, seed):
    """Answer as a constant, but at one input say whether the last record was there: the paper's planted classifier."""
    from sklearn.dummy import DummyClassifier

    class Planted(DummyClassifier):
        def predict_proba(self, queries):
            p = np.tile(self.class_prior_, (len(queries), 1))
            p[(np.asarray(queries) == [2, 3]).all(axis=1)] = [0.9, 0.1] if self.n_seen_ == 40 else [0.1, 0.9]
            return p

    model = Planted(strategy="prior").fit(X, y)
    model.n_seen_ = len(X)
    return model


def test_an_indirect_question_is_found_that_tells_more_than_the_direct_one(fleet):
    data = TrainingData(np.minimum(X, [2, 2]), Y, domain=Domain(categories=tuple(SIZES)), one_record_each=True)
    verdict = evaluate(Policy.load("dtp-1"), Subject.local(Recipe(side_channel, seed=1), data), fleet=fleet)

    assert verdict.records.pdtp.max() < 0.2
    assert verdict.records.dtp_lower.max() == pytest.approx(np.log(9), abs=0.1)
    assert verdict.outcome is Outcome.FAILED


def forgetful(X, y, *, seed):
    """Train from randomness that no seed fixes."""
    rng = np.random.default_rng()
    return CategoricalNB(min_categories=SIZES, alpha=1 + rng.random()).fit(X, y)


def test_after_a_control_that_stops_everything_nothing_more_is_trained_or_advised(fleet):
    verdict = evaluate(Policy.load("pdtp-1"), Subject.local(Recipe(forgetful, seed=1), DATA), fleet=fleet)

    found = {f.rule: f for f in verdict.findings}
    assert found["precondition:reproduces"].outcome is Outcome.INCONCLUSIVE
    assert "precondition:depends_on_data" not in found
    assert fleet.calls == 2
    assert found["pdtp"].message.startswith("not measured, because two trainings")
    assert found["pdtp"].advice == ""


MANY, LABELS = RNG.normal(size=(260, 3)), RNG.integers(0, 2, 260)
SUITE = '{"expectations": [{"type": "expect_column_max_to_be_between", "kwargs": {"column": "%s", "max_value": 0}}]}'
#: (training records, candidates, keys of the policy, what is said): known before anything is trained
NEVER = {
    "a broken suite": (MANY[:160], MANY[160:], "data: {suite: s.json}", "s.json: 1 of 3 expectations do not hold"),
    "few records": (MANY[:160], MANY[160:], "data: {min_rows: 200}", "at least 200 are asked for"),
    "few people": (MANY[:160], MANY[160:], "audit: {min_units: 200}", "the policy wants 200 people"),
    "few candidates": (MANY[:160], MANY[160:], "audit: {min_candidates: 200}", "needs 200 candidates, and"),
    "no candidates": (MANY[:160], None, "", "no candidates: attacks need people who were not trained on"),
    "members for candidates": (MANY[:160], MANY[:100], "", "stored once more"),
}


@pytest.mark.parametrize("more", ["bound: upper", "bound: lower"])
def test_a_rate_that_candidates_resolve_wants_as_many_whichever_limit_approves(fleet, load_policy, more):
    rule = f"{{metric: attack_tpr, at_fpr: 0.01, max: 0.9, reason: r, {more}}}"
    data = TrainingData(MANY[:160], LABELS[:160], candidates=(MANY[160:], LABELS[160:]), one_record_each=True)
    policy, subject = load_policy(f"rules: [{rule}]\n"), Subject.local(Recipe(GaussianNB(), seed=1), data)

    run = prepare(policy, subject, fleet=fleet, limits=None)

    assert "needs 368" in too_few(policy, run)
    assert any("cannot resolve a false-positive rate" in why for why in run.cannot_conclude)


@pytest.mark.parametrize("name", NEVER)
def test_what_no_training_can_approve_ends_before_any_and_is_no_fault_of_the_model(fleet, tmp_path, load_policy, name):
    X, others, keys, said = NEVER[name]
    (tmp_path / "s.json").write_text(SUITE % "x0")
    rules = "[{metric: attack_accuracy, scope: model, max: 0.9, reason: r}, {metric: pdtp, max: 1.0e-9, reason: r}]"
    policy = load_policy(f"approves: Few.\n{keys}\nrules: {rules}\n")
    candidates = None if others is None else (others, LABELS[: len(others)])
    data = TrainingData(X, LABELS[:160], candidates=candidates, one_record_each=True)

    verdict = evaluate(policy, Subject.local(Recipe(GaussianNB(), seed=1), data), fleet=fleet)

    assert fleet.calls == 0
    assert verdict.outcome in (Outcome.INCONCLUSIVE, Outcome.FAILED)
    assert any(said in f.message for f in verdict.findings if f.rule.startswith("precondition:"))
    rule = next(f for f in verdict.findings if f.rule == "pdtp")
    assert rule.message.startswith("not measured, because ")
    assert rule.advice == ""
    assert not verdict.evidence.run.next_steps
