"""Modes of a check: the exact maximum for less, and a ranking that can block but never approve."""

import json
from dataclasses import replace

import numpy as np
import pytest
from click.testing import CliRunner
from sklearn.linear_model import LogisticRegression

from privgate import Policy, Recipe, Subject, TrainingData, evaluate, report
from privgate.check import plan as planning
from privgate.check.plan import costs
from privgate.check.prepare import prepare
from privgate.cli import cli
from privgate.errors import ExitCode, UsageError
from privgate.influence import left_out, modes
from privgate.report import report_document as rendering
from privgate.run.run import Budget
from privgate.subject.domain import Domain
from privgate.verdict import Outcome

RNG = np.random.default_rng(2)
N = 80
X = RNG.normal(size=(N, 3))
Y = (X @ [1.0, -1.0, 0.5] + RNG.logistic(size=N) > 0).astype(int)
LOGISTIC = Recipe(LogisticRegression(C=0.1, tol=1e-10, solver="newton-cholesky"), seed=1)

HEAD = 'schema: privgate/policy/v1\nname: mine\nversion: "1"\nrules:\n'
LARGEST = "  - metric: pdtp\n    max: {}\n"
SHARE = "  - {metric: pdtp, id: few, max: 0.1, aggregate: share_above, threshold: 0.9}\n"
MEDIAN = "  - {metric: pdtp, id: middle, max: 1, aggregate: quantile, q: 0.5}\n"


def stump(X, y, *, seed):
    """Return a model that only refits cover."""
    from sklearn.tree import DecisionTreeClassifier

    return DecisionTreeClassifier(max_depth=1, min_samples_leaf=15, random_state=seed).fit(X, y)


@pytest.fixture
def policy(tmp_path):
    def write(*rules):
        (tmp_path / "p.yaml").write_text(HEAD + "".join(rules))
        return Policy.load(tmp_path / "p.yaml")

    return write


def checked(policy, recipe, fleet, mode, data=None):
    said = []
    subject = Subject.local(recipe, data or TrainingData(X, Y, one_record_each=True))
    verdict = evaluate(policy, subject, fleet=fleet, limits=Budget(mode=mode), announce=said.append)
    return verdict, said, report.document(verdict, hash_key=b"k" * 32)


def finding(verdict, rule):
    return next(f for f in verdict.findings if f.rule == rule)


def test_the_maximum_alone_ends_as_everybody_does_and_needs_no_training_of_its_own(fleet, policy):
    mine = policy(LARGEST.format(1))
    every, _, _ = checked(mine, LOGISTIC, fleet, "all")
    trained = fleet.calls
    quick, said, document = checked(mine, LOGISTIC, fleet, "max")

    assert quick.approved
    assert quick.policy["digest"] == every.policy["digest"]
    assert fleet.calls == trained
    one, other = (finding(v, "pdtp") for v in (every, quick))
    assert (other.low, other.high) == pytest.approx((one.low, one.high), abs=1e-6)
    assert quick.evidence.run.mode.used == "max"
    assert any("mode max" in line for line in said)
    assert document["units"]["figures"] == {}
    close = document["units"]["close"]  # hidden where fewer than ten were looked at closely
    assert close is None or 10 <= close < N
    ranking = np.sort(every.records.pdtp)[::-1]
    shown = [w["pdtp"] for w in document["units"]["worst"]]
    assert shown == pytest.approx(ranking[: len(shown)], abs=1e-6)  # who is listed is listed in the true order
    page = rendering.render(document, "html")
    assert "The exact maximum only" in page
    assert "only closely enough to show that they are not the largest" in page
    assert "how many people have which figure" not in page


@pytest.mark.slow
def test_what_needs_everybody_is_refused_before_training_where_only_the_maximum_is_measured(fleet, policy):
    mine = policy(LARGEST.format(1), SHARE, MEDIAN)
    bench = prepare(
        mine, Subject.local(LOGISTIC, TrainingData(X, Y, one_record_each=True)), fleet=fleet, limits=Budget(mode="max")
    )
    verdict, _, _ = checked(mine, LOGISTIC, fleet, "max")

    said = bench.cannot_conclude
    assert [line.split(":")[0] for line in said] == ["few", "middle"]
    for rule, word in (("few", "a share of people"), ("middle", "a quantile")):
        assert finding(verdict, rule).outcome is Outcome.INCONCLUSIVE
        assert finding(verdict, rule).message.startswith(f"{word} needs everybody's own value")
        assert "--mode all" in finding(verdict, rule).message
    assert finding(verdict, "pdtp").outcome is Outcome.PASSED
    assert verdict.exit_code is ExitCode.INCONCLUSIVE
    assert checked(mine, LOGISTIC, fleet, "all")[0].outcome.releases


def test_a_ranking_never_approves_and_the_report_says_why(fleet, policy):
    verdict, said, document = checked(policy(LARGEST.format(5)), Recipe(stump, seed=1), fleet, "screen")

    status = verdict.records.status
    assert (status == "screened").sum() == N - 20
    assert (status == "exact").sum() == 20
    assert verdict.exit_code is ExitCode.INCONCLUSIVE
    told = finding(verdict, "precondition:mode")
    assert told.message.startswith(f"screened, not certified: {N - 20} of {N} people were only ranked")
    assert verdict.evidence.influence.coverage.n_measured == 20
    assert next(iter(verdict.evidence.measurements.values())).n == 20
    assert any("undecided at best" in line for line in said)
    assert any("without single people: at most 84 trainings" in line for line in said)  # 64 that rank, and 20
    assert document["decision"] == "undecided: a ranking of people approves nothing"
    shares = verdict.evidence.influence.engines
    assert [(s.engine, s.answered, s.handed_on) for s in shares] == [("refit", 20, N - 20), ("screen", N - 20, 0)]
    assert len(document["units"]["worst"]) == 10
    for form in ("html", "markdown"):
        assert "creened, not certified" in rendering.render(document, form)
    assert "check with --mode all" in told.message


def test_a_ranking_never_approves_even_where_nobody_was_only_ranked(fleet, policy):
    verdict, _, _ = checked(policy(LARGEST.format(1)), LOGISTIC, fleet, "screen")

    assert finding(verdict, "pdtp").outcome is Outcome.PASSED
    assert not verdict.approved
    assert verdict.exit_code is ExitCode.INCONCLUSIVE


def test_a_ranking_can_block(fleet, policy):
    verdict, _, _ = checked(policy(LARGEST.format(1e-6)), Recipe(stump, seed=1), fleet, "screen")

    assert verdict.exit_code is ExitCode.FAILED


@pytest.mark.parametrize("wrong", [{"mode": "fast"}, {"mode": "screen", "max_retrains": 5}])
def test_modes_that_mean_nothing_are_refused(wrong):
    with pytest.raises(UsageError, match=r"no mode 'fast'|--mode screen or the budget"):
        Budget(**wrong)


def test_the_plan_says_what_a_mode_costs(fleet, policy):
    def plan(recipe, mode):
        subject = Subject.local(recipe, TrainingData(X, Y, one_record_each=True))
        return costs(policy(LARGEST.format(1)), subject, fleet=fleet, limits=Budget(mode=mode)).said

    assert any("only people who could hold the largest PDTP" in line for line in plan(LOGISTIC, "max"))
    ranked = plan(Recipe(stump, seed=1), "screen")
    assert any("undecided at best" in line for line in ranked)
    assert any("without single people: at most 84 trainings" in line for line in ranked)
    every = plan(Recipe(stump, seed=1), "all")
    assert any(f"without single people: at most {N + modes.FOLDS} trainings" in line for line in every)


@pytest.mark.slow
def test_the_command_line_approves_by_the_maximum(privgate, tmp_path):
    check = ["check", "models:/regression/1", "--policy", "pdtp-1", "--mode", "max", "--no-attach"]
    ended = privgate(*check, "--report-dir", "out")

    assert ended.returncode == 0, ended.stdout + ended.stderr
    assert "mode max" in ended.stdout
    assert "logistic: 60 of 60 people or records" in ended.stdout
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    assert document["evidence"]["run"]["mode"]["used"] == "max"


def test_the_command_line_hands_on_what_was_chosen(monkeypatch):
    seen = []
    monkeypatch.setattr("privgate.registry.load_subject", lambda uri, **_: uri)
    monkeypatch.setattr("privgate.cli.options.print_plan", lambda run: seen.append(run.limits))
    check = ["check", "models:/m/1", "--policy", "pdtp-1", "--plan"]

    assert CliRunner().invoke(cli, check).exit_code == 0
    with pytest.warns(UserWarning, match="no effect any more"):
        assert CliRunner().invoke(cli, [*check, "--mode", "max", "--precision", "mixed"]).exit_code == 0

    assert [limits.mode for limits in seen] == ["all", "max"]


def test_logistic_regression_that_no_theorem_follows_is_planned_so(fleet, policy):
    data = TrainingData(np.tile(X, (20, 1)), np.tile(Y, 20), domain=Domain(box=((-9, 9),) * 3), one_record_each=True)
    subject = Subject.local(Recipe(LogisticRegression(C=0.1), seed=1), data)
    bench = prepare(policy(LARGEST.format(1)), subject, fleet=fleet, limits=Budget(max_retrains=7, mode="max"))

    assert bench.once(modes.used) == "all"
    assert len(bench.once(left_out.chosen_units)) == 7
    _, said = planning.make(bench, policy(LARGEST.format(1)))
    assert any("logistic does not answer here" in s and "solver='newton-cholesky', tol=1e-8" in s for s in said)
    (never,) = prepare(Policy.load("dtp-1"), subject, fleet=fleet, limits=None).cannot_conclude
    assert "can never approve" in never
    assert "solver='newton-cholesky', tol=1e-8" in never
    assert "forests" not in never


def test_the_price_of_all_seeds_is_told_before_they_are_trained(fleet, policy):
    subject = Subject.local(Recipe(stump, seed=1), TrainingData(X, Y, one_record_each=True))
    bench = prepare(policy(LARGEST.format(1)), subject, fleet=fleet, limits=None)
    bench = replace(bench, seeds=(1, 2), more_seeds=tuple(range(75)))
    planned, _ = planning.make(bench, policy(LARGEST.format(1)))
    assert planned.leave_one_out == 75 * N + modes.FOLDS

    _, said = planning.make(replace(bench, limits=Budget(max_retrains=2 * N), _made={}), policy(LARGEST.format(1)))
    assert any("75 runs, which an approval needs, are not within the budget" in s for s in said)
