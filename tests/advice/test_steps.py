"""What a refusal says of the way out: measured, or how long measuring takes; the same every time, and shown."""

import json
import re

import numpy as np
import pytest
from privgate.advice.advice_search import Search
from privgate.advice.evaluate import costs_of_both as plan
from privgate.check.costs import costs
from sklearn.linear_model import LogisticRegression
from sklearn.neighbors import KNeighborsClassifier

from privgate import Budget, Domain, Policy, Recipe, Release, Subject, TrainingData, evaluate, report
from privgate.advice import candidates
from privgate.advice import evaluate as steps
from privgate.check import gate
from privgate.training.fleet import Fleet

SIZES = (3, 4)
RNG = np.random.default_rng(9)
Y = RNG.integers(0, 2, 60)
X = np.column_stack([np.where(RNG.random(60) < 0.7, Y, RNG.integers(0, v, 60)) for v in SIZES])
DATA = TrainingData(np.vstack([X, [[2, 3]]]), np.append(Y, 0), domain=Domain(categories=SIZES))
PLANNED = re.compile(r"at most \d+ x \d+ trainings, [\d.]+ (s|min|h|days) \(workers: 1\)")


def bayes(alpha=0.2):
    from sklearn.naive_bayes import CategoricalNB

    return Subject.local(Recipe(CategoricalNB(alpha=alpha, min_categories=list(SIZES)), seed=1), DATA)


def contradicted(C=9.0):
    """A regression, which a closed form answers: two features that tell the label, and one person who contradicts."""
    told = np.column_stack([Y[:40], np.where(np.arange(40) % 3, Y[:40], 1 - Y[:40])])
    data = TrainingData(np.vstack([told, [[1, 1]]]), np.append(Y[:40], 0), domain=Domain(box=((0, 1), (0, 1))))
    return Subject.local(Recipe(LogisticRegression(C=C, solver="newton-cholesky", tol=1e-8), seed=1), data)


@pytest.fixture(scope="module")
def fleet(tmp_path_factory):
    with Fleet(jobs=1, ledger=tmp_path_factory.mktemp("ledger")) as made:
        yield made


@pytest.fixture(scope="module")
def blocked(fleet):
    return evaluate("dtp-1", contradicted(), fleet=fleet)


@pytest.mark.parametrize("withheld", [False, True])
def test_the_file_is_looked_at_first_and_ends_no_search_where_nobody_gets_it(fleet, tmp_path, withheld):
    place = tmp_path / "both.yaml"
    rules = "rules: [{metric: pdtp, max: 0.5}, {metric: file_records, max: 0}]"
    place.write_text(f'schema: privgate/policy/v1\nname: both\nversion: "1"\n{rules}\n', encoding="utf-8")
    told = np.random.default_rng(4).normal(size=(61, 2)) + np.c_[DATA.y, DATA.y]
    subject = Subject.local(Recipe(KNeighborsClassifier(), seed=1), TrainingData(told, DATA.y))
    search = Search(Policy.load(place), subject, fleet, Budget(file_withheld=withheld))
    search.tried(candidates.NOTHING)
    found = search.tried(next(candidates.releases(subject)))

    assert found.rule == ("pdtp" if withheld else "file_records")
    assert found.outcome == "failed"
    assert withheld or found.trainings < 10  # nobody was left out
    named = steps.planned(Policy.load(place), subject, None, 0.0, 1, file_withheld=withheld).action
    assert named.endswith(f"{place.name}{' --file-not-downloadable' * withheld}`")


def test_what_is_named_passes_and_its_numbers_are_those_of_a_check(blocked, fleet):
    smoother = next(s for s in blocked.evidence.run.next_steps if s.action.startswith("C "))
    again = gate.evaluate(
        Policy.load("dtp-1"), contradicted(float(smoother.action.rsplit(" ", maxsplit=1)[1])), fleet=fleet
    )
    assert again.outcome.releases
    assert again.records.dtp_upper.max() == pytest.approx(smoother.measured.of_limit)
    assert blocked.records.dtp_lower.max() == pytest.approx(smoother.measured.of_limit_now, abs=0.02)
    assert smoother.measured.measure == "accuracy"


def test_the_same_check_says_the_same_and_trains_nothing_more(blocked, fleet):
    calls = fleet.calls
    again = evaluate("dtp-1", contradicted(), fleet=fleet)
    said = [[(s.action, s.effect) for s in v.evidence.run.next_steps] for v in (blocked, again)]
    assert said[0] == said[1]
    assert fleet.calls == calls


def test_the_evidence_of_a_check_is_not_touched_by_the_search(blocked, fleet):
    alone = gate.evaluate(Policy.load("dtp-1"), contradicted(), fleet=fleet)
    assert alone.evidence.run.next_steps == ()
    assert [f.payload() for f in alone.findings] == [f.payload() for f in blocked.findings]
    assert alone.records.dtp_upper.tolist() == blocked.records.dtp_upper.tolist()


def test_a_report_draws_what_was_measured_and_says_how_long_the_rest_takes(blocked):
    doc = report.document(blocked, hash_key=b"k" * 32)
    page = report.render(doc, "html")
    assert "What would be approved, and what it costs" in page
    steps = json.loads(json.dumps(doc))["next_steps"]
    assert sum(s["measured"] is not None for s in steps) in (1, 2, 3)
    assert PLANNED.search(steps[-1]["cost"])
    shown = report.render(doc, "markdown")
    assert "privgate advise" in shown


def test_an_approved_model_gets_no_advice(fleet):
    verdict = evaluate("dtp-1", bayes(50.0), fleet=fleet)
    assert verdict.outcome.releases
    assert verdict.evidence.run.next_steps == ()


def test_what_only_retraining_answers_is_planned_and_not_measured(fleet):
    from sklearn.ensemble import ExtraTreesClassifier

    subject = Subject.local(Recipe(ExtraTreesClassifier(3), seed=0), TrainingData(X, Y))
    verdict = evaluate("pdtp-1", subject, fleet=fleet)
    assert not verdict.outcome.releases
    [planned] = verdict.evidence.run.next_steps
    assert planned.measured is None
    assert PLANNED.search(planned.cost)
    assert report.document(verdict, hash_key=b"k" * 32)["next_steps"][0]["measured"] is None


def grown(X, y, *, seed):
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(random_state=seed).fit(X, y)


def test_where_nothing_can_be_tried_no_search_is_offered(fleet, tmp_path):
    rule = "{metric: attack_accuracy, scope: model, max: 0.51}"
    (tmp_path / "p.yaml").write_text(f'schema: privgate/policy/v1\nname: p\nversion: "1"\nrules: [{rule}]\n')
    records, labels = RNG.normal(size=(160, 3)), RNG.integers(0, 2, 160)
    data = TrainingData(records[:80], labels[:80], candidates=(records[80:], labels[80:]))
    subject = Subject.local(Recipe(grown, seed=0), data, release=Release("label"))
    verdict = evaluate(tmp_path / "p.yaml", subject, fleet=fleet, limits=Budget(shadow_models=8))
    assert not verdict.outcome.releases
    assert verdict.evidence.run.next_steps == ()


def same(X, y, *, seed):
    from sklearn.dummy import DummyClassifier

    return DummyClassifier(strategy="constant", constant=0).fit([[0.0], [0.0]], [0, 1])


def test_where_a_control_stops_the_run_no_other_parameters_are_advised(fleet):
    verdict = evaluate("pdtp-1", Subject.local(Recipe(same, seed=0), TrainingData(X, Y)), fleet=fleet)
    assert not verdict.outcome.releases
    assert verdict.evidence.run.next_steps == ()


def test_a_plan_says_what_a_search_would_take(fleet):
    untimed = lambda lines: [re.sub(r"[\d.]+ (m?s|min|h)\b", "a while", line) for line in lines]  # each is timed anew
    said = plan(Policy.load("dtp-1"), contradicted(), fleet=fleet, limits=Budget())
    assert untimed(said[:-1]) == untimed(costs(Policy.load("dtp-1"), contradicted(), fleet=fleet, limits=Budget()).said)
    assert said[-1].startswith("if it refuses: search for the cheapest change that is approved")
    assert PLANNED.search(said[-1])


def test_a_printed_command_names_a_policy_so_that_it_is_found(tmp_path, monkeypatch):
    own = tmp_path / "ours" / "ours.yaml"
    own.parent.mkdir()
    monkeypatch.chdir(tmp_path)
    own.write_text(Policy.load("dtp-1").path.read_text(encoding="utf-8").replace("name: dtp-1", "name: bank"))
    for policy, named in ((Policy.load("dtp-1"), "--policy dtp-1`"), (Policy.load(own), "--policy ours/ours.yaml`")):
        assert steps.planned(policy, bayes(), None, 0.0, 1).action.endswith(named)
