"""A yes by theorem is confirmed by the data: whatever else lies, who is refused stays refused."""

import json
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate import Domain, Policy, Recipe, Subject, TrainingData, cases
from privgate.cases import Kept
from privgate.check import confirm, gate
from privgate.evidence.verdict import Finding, Outcome
from privgate.influence import aggregate, person_table
from privgate.kernel import Case
from privgate.policy.rules.people import Dtp
from privgate.policy.rules.rule_base import Rule
from privgate.run.run import Budget
from privgate.theorems import catalogue
from privgate.training.fleet import Fleet
from tests.theorems.families import FAMILIES

GOLDENS = Path(__file__).resolve().parents[1] / "goldens" / "data" / "certificates.jsonl"
ROWS = {r["row"]: r for r in map(json.loads, GOLDENS.read_text().splitlines())}
#: theorems whose limits somebody of a golden breaks, one of each kind of case
REFUSED = ("categorical_nb", "gaussian_nb", "newton")
APPROVED = ("bernoulli_nb", "contingency_table", "smoothed_neighbors")


@pytest.fixture(scope="module")
def fleet():
    with Fleet(ledger="none", jobs=1) as made:
        yield made


def subject(name, kind):
    return FAMILIES[name](np.random.default_rng(ROWS[f"{name} {kind}"]["seed"])).subject


def dtp(policy, asked, fleet):
    return next(
        f for f in gate.evaluate(policy, asked, fleet=fleet, limits=Budget(full=True)).findings if f.rule == "dtp"
    )


def lying_table(monkeypatch):
    def nobody_moves(run):
        people = len(run.compute(person_table.measure_direct)["pdtp"])
        return np.zeros(people), np.zeros(people)

    monkeypatch.setattr(person_table, "limit_every_question", nobody_moves)


def lying_aggregation(monkeypatch):
    asked = aggregate.summarize
    monkeypatch.setattr(
        aggregate, "summarize", lambda *given, **named: replace(asked(*given, **named), value=0.0, low=0.0, high=0.0)
    )


def lying_limits(monkeypatch, change=lambda k: replace(k, low=np.zeros_like(k.low), high=np.zeros_like(k.high))):
    """Certificates' limits are 0, those that stand beside the cases as well."""
    bound = catalogue.bound

    def nobody(*given, **named):
        found, by, notes = bound(*given, **named)
        zero = np.zeros(len(found.upper))
        made = replace(found, upper=zero, lower=zero, cases=tuple(map(change, found.cases)))
        return made, by, notes

    monkeypatch.setattr(catalogue, "bound", nobody)
    lying_table(monkeypatch)


def lying_cases(monkeypatch):
    """The case is one of fewer people, who are harmless: of nobody but the first."""

    def few(k):
        return replace(k, high=np.zeros_like(k.high), units=np.where(np.arange(len(k.units)) > 0, k.units[:1], k.units))

    lying_limits(monkeypatch, few)


def no_cases(monkeypatch):
    monkeypatch.setattr(person_table, "list_cases", lambda _: ())
    lying_table(monkeypatch)


def lying_rule(monkeypatch):
    monkeypatch.setattr(Dtp, "against_limit", lambda self, m: self.finding(Outcome.PASSED, "passed", m))


LIES = (lying_table, lying_aggregation, lying_limits, lying_cases, no_cases, lying_rule)


@pytest.mark.quick(6)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
@pytest.mark.parametrize("name", REFUSED)
def test_who_is_refused_stays_refused_whatever_lies(name, lie, monkeypatch, fleet):
    lie(monkeypatch)
    found = dtp(Policy.load("dtp-1"), subject(name, "refused"), fleet)

    assert found.outcome == "inconclusive", found.message
    assert "does not come out again of the data" in found.message


@pytest.mark.quick(3)
@pytest.mark.parametrize("lie", LIES, ids=lambda lie: lie.__name__)
def test_each_lie_would_make_a_yes_where_nothing_is_confirmed(lie, monkeypatch, fleet):
    lie(monkeypatch)
    monkeypatch.setattr(confirm, "confirm_findings", lambda findings, *_: findings)

    assert dtp(Policy.load("dtp-1"), subject("gaussian_nb", "refused"), fleet).outcome == "passed"


@pytest.mark.parametrize("name", APPROVED)
def test_a_yes_comes_out_again_of_the_data_alone(name, fleet):
    asked = subject(name, "approved")
    verdict = gate.evaluate(Policy.load("dtp-1"), asked, fleet=fleet)

    assert next(f for f in verdict.findings if f.rule == "dtp").outcome == "passed"
    assert [confirm.canonical(asked, k) for k in verdict.evidence.cases] == [""]


def numbers(n=80, d=4):
    rng = np.random.default_rng(3)
    X = rng.uniform(-1, 1, (n, d))
    data = TrainingData(
        X, (X[:, 0] + rng.normal(size=n) > 0).astype(int), domain=Domain(box=[(-1, 1)] * d), one_record_each=True
    )
    from sklearn.linear_model import LogisticRegression

    return Subject.local(Recipe(LogisticRegression(C=0.1, solver="newton-cholesky", tol=1e-8), seed=1), data)


def evidence(kept, records=None, **more):
    """What confirming looks at, of a run that measured nothing else."""
    made = {"cases": kept, "records": records or {}, "measurements": {}, "preconditions": ()}
    return SimpleNamespace(**{**made, "run": SimpleNamespace(trace=None), **more})


@pytest.fixture(scope="module")
def logistic(fleet):
    asked = numbers()
    *_, kept = gate.evaluate(Policy.load("dtp-1"), asked, fleet=fleet).evidence.cases  # one more where sums round apart
    return asked, kept


def test_an_array_or_a_setting_more_or_less_is_noticed(logistic):
    asked, kept = logistic
    arrays, settings = dict(kept.case.arrays), dict(kept.case.settings)
    for case, says in (
        (replace(kept.case, arrays={**arrays, "blocks": np.zeros(4, dtype=np.int64)}), "array 'blocks'"),
        (replace(kept.case, arrays={n: a for n, a in arrays.items() if n != "weight"}), "array 'weight'"),
        (replace(kept.case, settings={**settings, "norm": 0.1}), "setting 'norm'"),
        (replace(kept.case, family="gaussian"), "another kind"),
        (replace(kept.case, scope="own"), "another kind"),
    ):
        assert says in confirm.canonical(asked, replace(kept, case=case))
    for changed, says in (
        ({"theorem": "gaussian_nb"}, "does not apply"),
        ({"theorem": "nobody"}, "are not made of data again"),
        ({"seed": 1}, "one seed"),
    ):
        assert says in confirm.canonical(asked, replace(kept, **changed))


def test_a_check_comes_out_again_of_the_data_and_without_a_training(inside, tmp_path):
    policy = ("--policy", "dtp-1")
    assert inside("check", "models:/smoothed/1", *policy, "--no-attach", "--report-dir", "out").returncode == 0

    ended = inside("check", "models:/smoothed/1", *policy, "--recompute", "out")
    assert ended.returncode == 0, ended.stderr
    assert "recomputed: categorical_nb: its arrays are what the data make" in ended.stdout
    assert "recomputed: dtp: the kernel's limits come to 0.2573 again" in ended.stdout
    for arguments, says in (
        (("models:/regression/1", *policy, "--recompute", "out"), "the report is about another recipe"),
        (("models:/smoothed/1", "--policy", "strict", "--recompute", "out"), "was judged by another policy"),
        (("models:/smoothed/1", *policy, "--recompute", "nowhere"), "No such file"),
    ):
        ended = inside("check", *arguments)
        assert (ended.returncode, says in ended.stderr, "Traceback" in ended.stderr) == (4, True, False), ended.stderr
    (kept,) = cases.read(tmp_path / "out" / cases.FILE)
    other = replace(kept, case=replace(kept.case, arrays={**kept.case.arrays, "codes": 0 * kept.case.arrays["codes"]}))
    cases.write(tmp_path / "out" / cases.FILE, [other])
    document = json.loads((tmp_path / "out" / "report.json").read_text())
    ended = inside("check", "models:/smoothed/1", *policy, "--recompute", "out")
    assert (ended.returncode, "not the one that was judged" in ended.stderr) == (4, True)
    document["evidence"]["influence"]["cases"][0]["digest"] = other.digest()
    (tmp_path / "out" / "report.json").write_text(json.dumps(document))
    ended = inside("check", "models:/smoothed/1", *policy, "--recompute", "out")
    assert (ended.returncode, "array 'codes' of categorical_nb" in ended.stderr) == (4, True), ended.stderr


@pytest.mark.parametrize(
    ("metric", "aggregate", "n", "sample", "confidence", "due"),
    [
        ("dtp", "max", 100, None, None, True),
        ("dtp", "share_above", 40, 40, 0.95, True),
        ("pdtp", "max", 100, None, None, False),
        ("pdtp", "max", 59, None, None, True),
        ("pdtp", "share_above", 59, None, 0.95, False),  # what an operator's budget leaves is a sample
        ("pdtp", "share_above", 59, 80, None, True),
        ("pdtp", "share_above", 80, 80, 0.95, False),
        ("attack_accuracy", "max", 59, None, None, False),
    ],
)
def test_what_can_only_be_a_theorems_yes_is_known(logistic, metric, aggregate, n, sample, confidence, due):
    rule = {"metric": metric, "aggregate": aggregate, "sample": sample, "max": 1.0, "threshold": 1.0}
    measured = SimpleNamespace(n=n, population=100, confidence=confidence, behind=None)

    assert bool(confirm.by_theorem(rule, logistic[0], measured, {})) is due


def test_a_waiver_counts_up_to_its_ceiling(logistic):
    asked, kept = logistic
    rule = {"metric": "dtp", "aggregate": "max", "sample": None, "max": 0.001}
    ceilings = [({"rule": "dtp", "ceiling": c},) for c in (0.01, 1.0)]

    def ended(applied, waivers):
        waived = Finding("dtp", "DTP", Outcome.WARNED, "waived", metric="dtp", waiver=f"waived up to {applied:g} until")
        waived = replace(waived, waiver=f"{waived.waiver} 2026-12-31: why")
        return confirm.confirm_findings([waived], {"rules": [rule], "waivers": waivers}, asked, evidence([kept]))[
            0
        ].outcome

    assert [ended(w["ceiling"], (w,)) for (w,) in ceilings] == ["inconclusive", "warned"]
    assert ended(0.01, [w for (w,) in ceilings]) == "inconclusive"  # the other one was not applied


@pytest.mark.quick(2)
@pytest.mark.parametrize("name", REFUSED)
def test_a_rule_that_is_enforced_does_not_become_a_warning(name, monkeypatch, fleet):
    finding = Rule.finding
    monkeypatch.setattr(Rule, "finding", lambda *given: replace(finding(*given), outcome=Outcome.WARNED))
    found = dtp(Policy.load("dtp-1"), subject(name, "refused"), fleet)

    assert found.outcome == "inconclusive", found.message


def test_a_solver_that_stopped_early_is_not_confirmed():
    X = np.random.default_rng(0).uniform(size=(60, 3))
    data = TrainingData(X, np.arange(60) % 2, domain=Domain(box=((-1.0, 1.0),) * 3), one_record_each=True)
    kept = Kept(Case("logistic", "any"), np.arange(60), np.zeros(60), np.zeros(60), "newton")
    asked = Subject.local(Recipe(LogisticRegression(C=0.1, solver="lbfgs", max_iter=1, tol=1e-8)), data)

    assert "does not apply" in confirm.canonical(asked, kept)
