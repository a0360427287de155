"""A share of people from a random sample: who is in it nobody can choose, and what it shows is stated."""

from dataclasses import replace

import numpy as np
import pytest
from pydantic import ValidationError
from sklearn.linear_model import LogisticRegression

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check.prepare import prepare
from privgate.families import answering as families
from privgate.families import catalogue, refit
from privgate.influence import left_out
from privgate.policy.rules import ALL
from privgate.run.run import Budget
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger
from privgate.verdict import Outcome

N = 320
RNG = np.random.default_rng(8)
X = RNG.normal(size=(N, 2))
Y = (X[:, 0] + RNG.logistic(size=N) > 0).astype(int)
SHARE = Policy.load("share-1")


def fitted(X, y, *, seed):
    """Logistic regression that only refits cover: fitted twice, it is not recognised."""
    del seed
    return LogisticRegression().fit(X, y).fit(X, y)


def subject(X=X):
    return Subject.local(Recipe(fitted, seed=1), TrainingData(X, Y, one_record_each=True))


def drawn(secret, made, **limits):
    with Fleet(jobs=1, ledger=Ledger("none", secret=secret)) as own:
        run = prepare(SHARE, made, fleet=own, limits=Budget(**limits))
        return left_out.selection(run)


def test_299_people_show_that_all_but_one_in_a_hundred_are_below_the_limit(fleet):
    verdict = evaluate(SHARE, subject(), fleet=fleet)

    (found,) = verdict.evidence.measurements.values()
    assert verdict.approved, [f.message for f in verdict.findings]
    assert (found.n, found.population, found.low) == (299, N, 0.0)
    assert 0 < found.high <= 0.01
    assert found.confidence == 0.95
    assert "drawn at random" in verdict.evidence.influence.coverage.claim


def test_fewer_people_than_the_rule_wants_approve_nothing(fleet):
    verdict = evaluate(SHARE, subject(), fleet=fleet, limits=Budget(max_retrains=150))

    finding = next(f for f in verdict.findings if f.rule == "pdtp")
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "150 of 320" in finding.advice


def test_who_is_drawn_follows_from_a_secret_and_not_from_what_its_owner_can_vary():
    made = subject()
    one, again, other = (drawn(s, made).units for s in (b"k" * 32, b"k" * 32, b"q" * 32))

    np.testing.assert_array_equal(one, again)
    assert len(one) == len(set(one.tolist())) == 299
    assert not np.array_equal(one, other)
    assert set(drawn(b"k" * 32, made, max_retrains=100).units) < set(one.tolist())


def test_who_a_budget_reaches_follows_from_the_secret_too():
    plain = Policy.load("pdtp-1")
    with (
        Fleet(jobs=1, ledger=Ledger("none", secret=b"k" * 32)) as one,
        Fleet(jobs=1, ledger=Ledger("none", secret=b"q" * 32)) as other,
    ):
        drawn_by = [
            left_out.selection(prepare(plain, subject(), fleet=f, limits=Budget(max_retrains=100))).units
            for f in (one, one, other)
        ]
    np.testing.assert_array_equal(drawn_by[0], drawn_by[1])
    assert set(drawn_by[0].tolist()) != set(drawn_by[2].tolist())


def test_every_person_is_as_likely_to_be_drawn():
    made, counts = subject(), np.zeros(N)
    for k in range(200):
        counts[drawn(k.to_bytes(32, "big"), made).units] += 1
    due = 200 * 299 / N
    assert abs(counts - due).max() < 5 * np.sqrt(due * (1 - 299 / N))


def alone(rows, N=N):
    """People who alone hold a feature, against what the others of their kind are labelled."""
    own = np.zeros((N, len(rows)))
    own[rows, range(len(rows))] = 1.0
    y = Y.copy()
    y[rows] = X[rows, 0] <= 0
    return Subject.local(Recipe(loosely, seed=1), TrainingData(np.column_stack([X, own]), y, one_record_each=True))


def loosely(X, y, *, seed):
    """Hardly regularised, so that a feature which one person holds is this person's; fitted twice, not recognised."""
    del seed
    return LogisticRegression(C=1e3, max_iter=1000).fit(X, y).fit(X, y)


@pytest.mark.slow
def test_a_sample_that_leaves_the_limit_open_grows_once():
    """Three people of 320 exceed: among 299 that may be more than 1 % of all, and among all it is not."""
    secret = b"k" * 32
    rows = next(r for r in range(N) if set(range(r, r + 3)) <= set(drawn(secret, alone([r, r + 1, r + 2])).units))
    made = alone([rows, rows + 1, rows + 2])
    with Fleet(jobs=1, ledger=Ledger("none", secret=secret)) as own:
        verdict = evaluate(SHARE, made, fleet=own)
        (found,) = verdict.evidence.measurements.values()

    assert (found.n, found.population) == (N, N)
    assert found.low == found.high == 3 / N
    assert verdict.approved, [f.message for f in verdict.findings]


class Careless(refit.Refit):
    """Says of the first 299 people that nothing changes without them; what it says of more is right."""

    name, trains, real = "careless", False, False

    def answers(self, asked):
        made, left = super().answers(asked)
        return (made if len(made.units) == N else replace(made, log_without=made.log_with)), left


@pytest.mark.slow
def test_an_engine_that_was_wrong_about_the_first_people_is_not_asked_about_more(monkeypatch):
    """The re-check of the larger sample draws others, and might not see again what was seen once."""
    for place in (catalogue, families):
        monkeypatch.setattr(place, "of", lambda *_, **__: (Careless(), refit.ENGINE))
    secret = b"k" * 32
    rows = next(r for r in range(N) if set(range(r, r + 3)) <= set(drawn(secret, alone([r, r + 1, r + 2])).units))
    with Fleet(jobs=1, ledger=Ledger("none", secret=secret)) as own:
        verdict = evaluate(SHARE, alone([rows, rows + 1, rows + 2]), fleet=own)
    about = verdict.evidence.influence

    assert next(iter(verdict.evidence.measurements.values())).n == N
    assert set(verdict.evidence.records["engine"]) == {"refit"}
    assert [row.engine for row in about.recheck] == ["careless"]
    assert "disagrees" in about.declined["careless"]


@pytest.mark.parametrize(
    "options",
    [
        {"aggregate": "max", "up_to": 400},
        {"aggregate": "share_above", "threshold": 1.0, "up_to": 400},
        {"aggregate": "share_above", "threshold": 1.0, "sample": 299, "up_to": 299},
    ],
)
def test_a_sample_that_cannot_grow_is_refused_with_the_policy(options):
    with pytest.raises(ValidationError, match="up_to"):
        ALL["pdtp"](max=0.01, **options)


def test_over_all_questions_no_sample_grows():
    options = {"aggregate": "share_above", "threshold": 1.0, "sample": 299, "up_to": 400, "max": 0.01}

    assert ALL["pdtp"](**options).up_to == 400
    with pytest.raises(ValidationError, match="certificates limit people"):
        ALL["dtp"](**options)


def test_a_waiver_of_a_rule_whose_sample_grows_is_about_the_same_people():
    (rule,) = SHARE.rules

    assert rule.request().option("limit") == 0.01
    assert rule.with_limit(0.05).request() == rule.request()


@pytest.mark.parametrize(
    ("options", "said"),
    [
        ({"max": 1.0, "sample": 299}, "measure everybody"),
        ({"max": 0.01, "aggregate": "share_above", "threshold": 1.0, "sample": 298}, "at least 299 do"),
        ({"max": 1.0, "aggregate": "quantile", "q": 0.95, "sample": 58}, "at least 59 do"),
    ],
)
def test_a_sample_that_can_show_nothing_is_refused_with_the_policy(options, said):
    with pytest.raises(ValidationError, match=said):
        ALL["pdtp"](**options)
    if said != "measure everybody":
        assert ALL["pdtp"](**{**options, "sample": options["sample"] + 1}).sample


def test_a_rule_that_needs_everybody_is_not_served_by_a_sample(tmp_path, fleet):
    (tmp_path / "p.yaml").write_text(
        'schema: privgate/policy/v1\nname: mine\nversion: "1"\nextends: share-1\nrules:\n'
        "  - {metric: pdtp, id: largest, max: 2}\n"
    )
    both = Policy.load(tmp_path / "p.yaml")

    assert [prepare(p, subject(), fleet=fleet, limits=None).sample for p in (SHARE, both)] == [299, None]
