"""The verdict: the worst finding wins, silence never passes, evidence survives JSON."""

import json
import math
import re
import sys
import types
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import TypeAdapter

from privgate.errors import ExitCode
from privgate.evidence import (
    BehindInfluence,
    BehindMembership,
    ClaimsPart,
    Evidence,
    Measurement,
    Observation,
    Precondition,
    Request,
    RunPart,
)
from privgate.evidence import verdict as verdicts
from privgate.evidence.verdict import Finding, Outcome, Verdict, worst
from tests import mutants

OUTCOMES = st.sampled_from([o for o in Outcome if o is not Outcome.NOT_NEEDED])


def verdict(*outcomes: Outcome, preconditions: tuple[Outcome, ...] = (), observed: bool = False) -> Verdict:
    findings = [Finding(f"precondition:{i}", "checked", o, "") for i, o in enumerate(preconditions)]
    findings += [Finding(f"rule{i}", "judged", o, "") for i, o in enumerate(outcomes)]
    return Verdict({"name": "p"}, tuple(findings), Evidence({}, (), {}), observed=observed)


def test_nothing_judged_is_inconclusive():
    assert worst([]) is Outcome.INCONCLUSIVE
    assert verdict().exit_code is ExitCode.INCONCLUSIVE
    assert verdict(preconditions=(Outcome.PASSED,)).exit_code is ExitCode.INCONCLUSIVE
    assert verdict(preconditions=(Outcome.FAILED,)).exit_code is ExitCode.FAILED


def test_no_change_of_one_place_of_the_verdict_approves_what_is_refused(monkeypatch):
    """What decides stands in privgate/errors.py, which counts among what a yes by theorem rests on."""
    refused, tried = [Finding("dtp", "judged", o, "") for o in (Outcome.FAILED, Outcome.INCONCLUSIVE)], 0
    for *_, what, source in mutants.possible(Path(verdicts.__file__)):
        changed = types.ModuleType("changed")
        monkeypatch.setitem(sys.modules, "changed", changed)
        exec(compile(source, "changed", "exec"), changed.__dict__)
        for f in refused:
            try:
                approved = changed.Verdict({"name": "p"}, (f,), Evidence({}, (), {})).approved
            except Exception:  # noqa: BLE001  a change may break anything
                approved = False
            assert not approved, what
        tried += 1
    assert tried > 20


@given(st.lists(OUTCOMES, min_size=1), st.lists(OUTCOMES))
def test_the_worst_finding_decides_whatever_the_order(rules, checks):
    found = verdict(*rules, preconditions=tuple(checks))

    assert found.outcome.rank == max(o.rank for o in [*rules, *checks])
    assert found.outcome == verdict(*reversed(rules), preconditions=tuple(reversed(checks))).outcome
    assert found.approved == (found.exit_code is ExitCode.PASSED)


@given(st.lists(OUTCOMES, min_size=1), OUTCOMES)
def test_one_more_finding_never_improves_a_verdict(rules, another):
    assert verdict(*rules, another).outcome.rank >= verdict(*rules).outcome.rank


def test_observing_ends_with_0_and_approves_nothing():
    found = verdict(Outcome.FAILED, observed=True)
    assert found.exit_code is ExitCode.PASSED
    assert not found.approved
    assert not verdict(Outcome.PASSED, observed=True).approved


def test_every_ending_has_its_own_code():
    assert [int(verdict(o).exit_code) for o in Outcome] == [5, 0, 0, 5, 1]


@pytest.mark.parametrize("number", [math.inf, -math.inf, math.nan, 0.1])
def test_measurements_and_findings_survive_json_with_infinities(number):
    request = Request.build("dtp", aggregate="max", q=None)
    measured = Measurement(request, number, number, number, behind=BehindInfluence(unseen=number), assumptions=("x",))
    found = Finding("r", "t", Outcome.FAILED, "m", value=number, high=number)

    written = json.loads(json.dumps([measured.payload(), found.payload()], allow_nan=False))
    again = [TypeAdapter(t).validate_python(p) for t, p in zip((Measurement, Finding), written, strict=True)]

    assert again[0].request == request
    assert np.array_equal([again[0].value, again[1].value, again[1].high], [number] * 3, equal_nan=True)
    assert np.array_equal(again[0].behind.unseen, number, equal_nan=True)


def test_evidence_survives_json_without_its_table():
    request = Request.build("pdtp", aggregate="quantile", q=0.9)
    evidence = Evidence(
        {"name": "m", "score": np.float64(2)},
        (Precondition("reproduces", "passed", "it does", {"worst": float("inf")}),),
        {request: Measurement(request, 1.0, 1.0, 1.0)},
        {"unit": np.array(["a"])},
        run=RunPart(cannot_conclude=("never",)),
        claims=ClaimsPart(observation=Observation(spends=((0.5, 0.0),))),
    )
    written = json.loads(json.dumps(evidence.payload(), allow_nan=False))
    earlier = {"run": {**written["run"], "single_median": "nan", "removals": None}, "collusion": {"sources": {}}}
    again = Evidence.from_payload({**written, **earlier})

    assert again.measurements == {request: evidence.measurements[request]}
    assert again.preconditions[0].name == "reproduces"
    assert again.run.cannot_conclude == ("never",)
    assert (again.influence, again.claims.observation.spends) == (None, ((0.5, 0.0),))
    assert not again.records


def stored(**more):
    request = Request.build("pdtp", aggregate="max")
    number = Measurement(request, 1.0, 1.0, 1.0, n=3, population=3, behind=BehindInfluence(paired_seeds=2))
    found = Evidence({"name": "m"}, (), {request: number}).payload()
    return found | more


def changed(**numbers):
    (number,) = stored()["measurements"]
    return stored(measurements=[number | numbers])


@pytest.mark.parametrize(
    ("payload", "words"),
    [
        (changed(low="small"), "measurements.0.low: Input should be a valid number"),
        (changed(low=None), "measurements.0.low: Input should be a valid number"),
        (changed(kind="sure"), "measurements.0.kind: Input should be 'exact', 'bound', 'confidence', 'point' or"),
        (changed(detail={}), "measurements.0.detail: Unexpected keyword argument"),
        (changed(behind={"paired_seeds": "many"}), "measurements.0.behind.BehindInfluence.paired_seeds"),
        (changed(behind={"paired_seeds": 2, "searched": 9}), "measurements.0.behind"),
        (stored(run={"seeds": {"compared": 11}}), "run.seeds.dependent: Field required"),
        (stored(run={"isolation": "none", "approved": True}), "run.approved: Extra inputs are not permitted"),
        (stored(records={"pdtp": [0.0]}), "records: Extra inputs are not permitted"),
        ({k: v for k, v in stored().items() if k != "run"}, "an earlier version of privgate wrote this evidence"),
    ],
)
def test_evidence_that_nobody_wrote_so_is_refused_in_one_sentence(payload, words):
    with pytest.raises(ValueError, match=re.escape(words)) as refused:
        Evidence.from_payload(payload)
    assert "\n" not in str(refused.value)


def test_what_stands_behind_a_number_speaks_of_its_own_question_only():
    foreign = BehindInfluence(paired_seeds=75)

    assert BehindMembership.read(foreign).shadow_models == 0
    assert BehindInfluence.read(None).paired_seeds == 0
    assert BehindInfluence.read(foreign) is foreign
    assert foreign.payload() == {"paired_seeds": 75}


@pytest.mark.parametrize("field", ["run", "behind"])
def test_parts_of_the_evidence_are_not_changed_afterwards(field):
    part = {"run": RunPart(), "behind": BehindInfluence()}[field]
    with pytest.raises(ValueError, match="frozen"):
        setattr(part, next(iter(type(part).model_fields)), None)


def test_equal_requests_are_one_request():
    assert Request.build("a", x=1, y=2) == Request.build("a", y=2, x=1)
    assert Request.build("a", x=1).key != Request.build("a", x=2).key
    assert Request.build("a", x=1).option("y", 7) == 7


# -- in Python and in a notebook --------------------------------------------------------------------------------------


@pytest.fixture
def judged(monkeypatch, tmp_path):
    """The verdict of a real run of 150 people."""
    import importlib.util
    from pathlib import Path

    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    spec = importlib.util.spec_from_file_location("real_runs_of_verdict", Path(__file__).parent / "report/real_runs.py")
    runs = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(runs)
    return runs.verdict("attacked")


def test_a_verdict_is_one_line(judged):
    assert repr(judged) == "<Verdict refused: salary 1 by policy many; dtp, attack_accuracy>"
    assert "no rule was judged" in repr(verdict())
    assert "observed only" in repr(verdict(Outcome.PASSED, observed=True))


def test_a_notebook_shows_a_table_in_which_no_name_is_markup(judged):
    shown = judged._repr_html_()

    assert shown.count("<tr>") == 1 + sum(not f.rule.startswith("precondition:") for f in judged.findings)
    evil = Verdict(
        {"name": "<script>"}, (Finding("r", "<b>", Outcome.FAILED, "<img onerror=x>"),), Evidence({}, (), {})
    )
    assert not re.search(r"<(script|b|img)\b", evil._repr_html_())


def test_a_verdict_writes_its_report_and_draws_its_people(judged, tmp_path):
    from xml.etree import ElementTree as ET

    (page,) = judged.report(tmp_path / "deep" / "page.html", purpose="credit scoring", owner="the bank")
    files = judged.report(tmp_path / "all")
    picture = judged.plot()

    assert "credit scoring" in page.read_text(encoding="utf-8")
    assert {p.name for p in files} >= {"report.json", "report.html", "summary.md"}
    assert not [n for n in judged.evidence.records["unit"] if str(n) in picture.svg]
    root = ET.fromstring(picture.save(tmp_path / "people.svg").read_text(encoding="utf-8"))
    assert root.tag == "{http://www.w3.org/2000/svg}svg"
    assert set(re.findall(r"var\((--[\w-]+)", picture.svg)) <= set(re.findall(r"(--[\w-]+):", picture.svg))
    assert "people" in repr(picture)
    with pytest.raises(TypeError, match="no place for purposes"):
        judged.report(tmp_path, purposes="x")
    with pytest.raises(Exception, match="nothing to draw"):
        verdict(Outcome.PASSED).plot()
