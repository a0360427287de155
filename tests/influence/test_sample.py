"""A share of people from a random sample: who is in it nobody can choose, and what it shows is stated."""

from dataclasses import replace

import numpy as np
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.neighbors import KNeighborsClassifier

from privgate import Policy, Recipe, Subject, TrainingData, evaluate
from privgate.check.prepare import prepare
from privgate.evidence.verdict import Outcome
from privgate.influence import left_out
from privgate.run.run import Budget
from privgate.theorems import least_squares
from privgate.training.fleet import Fleet
from privgate.training.ledger import Ledger
from tests.in_process import InProcess

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


def in_process(secret):
    """Return a fleet without workers that draws people by this secret."""
    own = InProcess()
    own.ledger = Ledger("none", secret=secret)
    return own


def drawn(secret, made, **limits):
    plan = left_out.plan_people(prepare(SHARE, made, fleet=in_process(secret), limits=Budget(**limits)))
    return plan.order[: plan.sizes[-1]]


def test_177_people_show_that_all_but_one_in_a_hundred_of_320_are_below_the_limit(fleet):
    verdict = evaluate(SHARE, subject(), fleet=fleet)

    (found,) = verdict.evidence.measurements.values()
    assert verdict.approved, [f.message for f in verdict.findings]
    assert (found.n, found.population, found.low) == (177, N, 0.0)
    assert 0 < found.high <= 0.01
    assert found.confidence == 0.95


def test_fewer_people_than_the_rule_wants_approve_nothing(fleet):
    verdict = evaluate(SHARE, subject(), fleet=fleet, limits=Budget(max_retrains=120))

    finding = next(f for f in verdict.findings if f.rule == "pdtp")
    assert finding.outcome is Outcome.INCONCLUSIVE
    assert "120 of 320" in finding.advice


def test_who_is_drawn_follows_from_a_secret_and_not_from_what_its_owner_can_vary():
    made = subject()
    one, again, other = (drawn(s, made) for s in (b"k" * 32, b"k" * 32, b"q" * 32))

    np.testing.assert_array_equal(one, again)
    assert len(one) == len(set(one.tolist())) == 304
    assert not np.array_equal(one, other)
    assert set(drawn(b"k" * 32, made, max_retrains=100)) < set(one)


def test_who_a_budget_reaches_follows_from_the_secret_too():
    plain = Policy.load("pdtp-1")
    drawn_by = [
        left_out.plan_people(prepare(plain, subject(), fleet=f, limits=Budget(max_retrains=100))).order[:100]
        for f in map(in_process, (b"k" * 32, b"k" * 32, b"q" * 32))
    ]
    np.testing.assert_array_equal(drawn_by[0], drawn_by[1])
    assert set(drawn_by[0].tolist()) != set(drawn_by[2].tolist())


def test_every_person_is_as_likely_to_be_drawn():
    made, counts = subject(), np.zeros(N)
    for k in range(200):
        counts[drawn(k.to_bytes(32, "big"), made)[:177]] += 1
    due = 200 * 177 / N
    assert abs(counts - due).max() < 5 * np.sqrt(due * (1 - 177 / N))


def remembering(X, y, *, seed):
    """One neighbour alone: most of the people change their own answer."""
    del seed
    return KNeighborsClassifier(1).fit(X, y)


def test_where_most_people_exceed_a_refusal_takes_few_trainings():
    """60 % and more of the people exceed, and 25 trainings say so, whoever is drawn: the mean of 20 draws."""
    made = Subject.local(Recipe(remembering, seed=1), TrainingData(X, RNG.permutation(Y), one_record_each=True))
    trained = []
    for k in range(20):
        own = in_process(k.to_bytes(32, "big"))
        run = replace(prepare(SHARE, made, fleet=own, limits=Budget()), seeds=(1,))
        assert run.compute(left_out.leave_out).decided_by == "pdtp"
        trained.append(own.calls)
    assert np.mean(trained) <= 25


def test_a_closed_form_that_refits_contradict_is_not_used_and_nobody_else_is_drawn(monkeypatch):
    rng = np.random.default_rng(0)
    data = TrainingData(X, X[:, 0] + rng.normal(size=N), one_record_each=True)
    answers = least_squares.LEAST_SQUARES.answers

    def wrong(asked):
        made, left = answers(asked)
        return replace(made, log_without=made.log_with), left

    monkeypatch.setattr(least_squares.LEAST_SQUARES, "answers", wrong)
    with Fleet(jobs=1, ledger=Ledger("none", secret=b"k" * 32)) as own:
        about = Subject.local(Recipe(Ridge(), seed=1), data)
        run = replace(prepare(Policy.load("release-1"), about, fleet=own, limits=Budget()), seeds=(1,))
        made, plan = run.compute(left_out.leave_out), run.compute(left_out.plan_people)

    assert made.preconditions[-1].outcome == "warned"
    assert "disagrees" in made.declined["least_squares"]
    assert set(made.retrained.engine) == {"refit"}
    assert set(made.retrained.units) in [set(plan.order[:size]) for size in plan.sizes]


def test_what_ranks_people_is_fixed_before_they_are_drawn():
    digests = set()
    for secret in (b"k" * 32, b"q" * 32):
        run = replace(prepare(SHARE, subject(), fleet=in_process(secret), limits=Budget()), seeds=(1,))
        run.compute(left_out.leave_out)
        told = run.compute(left_out.describe_draw)
        digests.add(told.detail["ranked_by"])
        assert told.detail["given_key"]
    assert len(digests) == 1


def test_tries_on_changed_code_are_counted_and_a_key_of_ones_own_is_no_secret(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    said = []
    for shift in (0.0, 0.0, 1.0):
        with Fleet(jobs=1, ledger=tmp_path / "ledger") as own:
            made = replace(subject(X + shift), name="credit")
            run = prepare(SHARE, made, fleet=own, limits=Budget())
            said.append(left_out.describe_draw(run))
    assert [p.detail["tries"] for p in said] == [1, 1, 2]
    assert "0.098 at most" in said[2].message
    assert "whoever drew could have known whom" in said[0].message


def test_sizes_that_a_policy_names_are_without_effect():
    early, late = Policy.load("share-1@5").rules[0], SHARE.rules[0]

    assert (early.sample, early.up_to) == (299, 1196)
    assert early.request() == late.request()


def test_a_rule_that_needs_everybody_is_not_served_by_a_sample(load_policy, fleet):
    both = load_policy("extends: share-1\nrules:\n  - {metric: pdtp, id: largest, max: 2}\n")

    assert [prepare(p, subject(), fleet=fleet, limits=None).share for p in (SHARE, both)] == [0.01, None]
