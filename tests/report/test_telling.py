"""No small count of people leaves in any report, and none follows from what does."""

import functools
import html
import json
import re

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from pydantic import BaseModel

from privgate import evidence as parts
from privgate import report
from privgate.errors import SubjectError
from privgate.evidence import Count, EngineShare, Evidence, InfluencePart, Measurement, Precondition
from privgate.evidence.telling import SMALL_CELL, Known, share
from privgate.evidence.verdict import Verdict
from privgate.policy.rules import ALL
from privgate.registry.attachments import collect_metrics
from privgate.report.people import Pseudonyms
from privgate.report.schema import read
from tests.report.small_counts import sentence

KINDS = ("before", "refuted", "undecided", "attacked", "private", "optional", "waived")
#: what may be few, and how many the gate chose to look at
THINGS = (
    r"rules|expectations|theorems|figures|preconditions|requirements|looked at|people (?:or records were )?measured"
)
NOUNS = r"(?:people|persons|records?|units?|members?|candidates?)"
#: a small number that counts people
FEW = rf"(?<!\d to )(?<![\w.,=-])[1-9] (?:of (?:the )?[\d,]+ (?!{THINGS})\w+|{NOUNS}\b(?! each|, each)|are\b)"


@given(st.integers(20, 3000), st.data())
def test_a_range_holds_the_count_and_is_that_of_every_count_hidden_with_it(total, data):
    count = data.draw(st.integers(0, total))
    low, high = Count(count, total).ends

    assert low <= count <= high
    assert str(Count(count, total)) == (str(count) if low == high else f"{low} to {high}")
    if low != high:
        others = [c for c in range(low, high + 1) if (c < SMALL_CELL) == (count < SMALL_CELL)]
        assert all(Count(c, total).ends == (low, high) for c in others)


#: whole numbers of the evidence that count no people of a kind: trainings, seeds, questions, sizes of samples
NOBODY = """
targets values trainings group reruns paired_seeds cells cells_too_small_to_show searched
shadow_models questions queries counted false_alarms misses alarms attacks runs canaries guesses right checked
compared remembered trained training_calls steps noiseless_steps passes paired leave_one_out ranking retrains shadows
n_measured n_units not_computed read size
"""
#: told by the part that they stand in: what they add up to is known there; or the size of what was looked at
IN_PART = "records records_above_1 members others candidates units answered asked handed_on"


def test_a_new_whole_number_of_the_evidence_says_how_it_is_told():
    models = [m for m in vars(parts).values() if isinstance(m, type) and issubclass(m, BaseModel)]
    bare = {k for m in models for k, f in m.model_fields.items() if f.annotation in (int, int | None) if not f.metadata}

    assert len(models) > 30
    assert bare - {*NOBODY.split(), *IN_PART.split()} == set()


@given(
    st.integers(10, 5000),
    st.data(),
    st.sampled_from(["are above the limit", "people", "units to 1e-9", "records equal"]),
)
def test_a_sentence_says_neither_a_few_nor_all_but_a_few(total, data, noun):
    part = data.draw(st.integers(0, total))
    said = sentence(f"{part} of {total} {noun}; {total - part} people are not", [total])

    exact = {
        int(n) for n in re.findall(r"(?<!to )\b(\d+)\b(?! to)", said.replace(f"of {total}", "").replace("1e-9", ""))
    }
    assert not any(Count(n, total).hidden for n in exact)
    assert sentence(said, [total]) == said


def told(doc):
    """Yield (format, text) of everything that leaves."""
    for name in ("html", "markdown", "junit"):
        page = re.sub(r"<style>.*?</style>|<svg.*?</svg>", " ", report.render(doc, name), flags=re.DOTALL)
        yield name, html.unescape(html.unescape(re.sub(r"<[^>]+>", " ", page)))
    yield "json", json.dumps([doc["findings"], doc["next_steps"], doc["evidence"]["preconditions"]])


@pytest.mark.parametrize("kind", KINDS)
def test_no_format_says_a_small_count_and_no_number_behind_a_figure_is_one(runs, kind):
    doc = runs.document(runs.verdict(runs.few(runs.golden(kind))))
    mine = [f[k] for k in ("message", "meaning") for f in doc["findings"] if f["unit"] in ("people", "records")]

    for name, leaving in told(doc):
        # a rule's own figure is what the rule is about
        said = functools.reduce(lambda text, figure: text.replace(figure, ""), mine, leaving)
        assert not re.findall(FEW, said), name
    found, influence = [], doc["evidence"]["influence"] or {}
    looked_at = (influence.get("coverage") or {}).get("n_measured")
    for one in influence.get("engines", ()):
        counts = [one["answered"], one["handed_on"], *one["why"].values(), *one["without_limit"].values()]
        found += [n for n in counts if n not in (one["asked"], looked_at)]  # the gate chose how many it asked about
    for m in doc["evidence"]["measurements"]:
        found += (m.get("behind") or {}).get("removed_candidates", {}).values()
    assert not any(n is not None and 0 < n < SMALL_CELL for n in found)
    assert found or kind in ("stopped", "private")


@pytest.mark.parametrize("kind", KINDS)
def test_who_judges_the_report_again_judges_the_same_numbers(runs, kind):
    verdict = runs.verdict(kind)
    again = Evidence.from_payload(runs.document(verdict)["evidence"]).measurements

    for request, measured in verdict.evidence.measurements.items():
        judged = [(m.value, m.low, m.high, m.confidence or 1, bool(m.problem)) for m in (measured, again[request])]
        assert np.array_equal(*judged, equal_nan=True)


def attacked(people, **more):
    """Return what is told of one attack on as many members as candidates."""
    tested = parts.SelfTest(planted=1.0, blind=0.5, tolerance=0.1)
    figures = {"auc": 0.5}
    figures |= {"accuracy": {"value": 0.5, "low": 0.4, "high": 0.6}, "tpr_at_fpr": (), "roc": ((0, 0), (1, 1)), **more}
    attack = parts.AttackResult(name="a", title="A", self_test=tested, figures=figures)
    told = parts.MembershipPart(attacks=(attack,)).payload(Known(members=people, candidates=people))
    return told["attacks"][0]["figures"]


def test_what_an_attack_finds_of_a_few_members_is_not_told_as_a_rate():
    roc = ((0.0, 0.0), (0.001, 0.004), (0.02, 0.02), (1.0, 1.0))
    told = attacked(1000, roc=roc, tpr_at_fpr=({"value": 0.003, "low": 0.0, "high": 0.02, "fpr": 0.01},))

    assert told["roc"] == [[0.0, 0.0], [0.02, 0.02], [1.0, 1.0]]
    assert told["tpr_at_fpr"][0]["value"] == 0.009


@given(st.integers(20, 3000), st.data(), st.lists(st.floats(0, 1), max_size=3))
def test_a_share_tells_no_small_count_and_stays_on_its_side_of_every_limit(people, data, limits):
    low, high = sorted(data.draw(st.lists(st.integers(0, people), min_size=2, max_size=2)))
    least, most = share(low / people, high / people, people, limits)

    assert least <= low / people <= high / people <= most
    for limit in limits:
        assert (high / people <= limit) == (most <= limit)
        assert (low / people > limit) == (least > limit)
    for end, count in ((least, low), (most, high)):
        # unless a limit of the policy itself stands there, every small count has the same end
        few = Count(count, people)
        assert not few.hidden or end != count / people or end in limits or count in few.ends


SHARED = {
    "pdtp": "whose own answer changes more than 2.72-fold",
    "dtp": "for whom some answer changes more than 2.72-fold",
    "sensitivity": "whose own answer moves by over 1 times the usual error",
}


@pytest.mark.parametrize("metric", SHARED)
@pytest.mark.parametrize("stopped", [0, 40])
def test_a_hidden_share_is_told_with_whose_it_is_and_its_threshold(metric, stopped):
    rule = ALL[metric](max=0.01, aggregate="share_above", threshold=1.0)
    behind = parts.BehindInfluence(not_computed=stopped, decided_by="x") if stopped else None
    known = {"unit": "fraction", "n": 100, "population": 100, "where": "Ada", "behind": behind}
    finding = rule.judge(Measurement(rule.request(), 0.05, 0.05, 0.05, **known))
    shown = Pseudonyms(b"k" * 32, ["Ada"]).scrub(finding.payload(), "Ada")

    whose = SHARED[metric]
    assert shown["title"] == "People with high influence"
    assert whose in shown["meaning"]
    for words in (shown["message"], shown["meaning"]):
        assert "1 %" in words
        assert "5 %" not in words
        assert "Ada" not in words
    assert "at most 1 % is allowed: refused" in shown["message"]
    assert finding.suffix == "_share_above"


DECIDED = "the verdict was decided without them"
STOPPED = parts.UnitCoverage(n_measured=4, n_units=1000, not_computed=996)


def engines(*shares, coverage=None, totals=(), units=None):
    """Return (what is told of engines, and of how many people were measured), of (name, asked, answered, why)."""
    part = InfluencePart(coverage=coverage, engines=tuple(EngineShare.from_parts(*one) for one in shares))
    known = Known(units=units or shares[0][1], totals=totals)
    told = part.payload(known)
    assert InfluencePart.model_validate(told).payload(known) == told, "what was told is told again as it was"
    return [[e[k] for k in ("asked", "answered", "handed_on", "why")] for e in told["engines"]], told["coverage"]


@pytest.mark.parametrize(("shares", "told"), [
    # a run that stopped early said "1 to 9 of 400 people" and, of the same engine, "396 handed on"
    *(([("trees", 400, few, {DECIDED: 400 - few}), ("refit", 400 - few, 0, {DECIDED: 400 - few})],
       [[400, None, None, {DECIDED: None}], [None, 0, None, {DECIDED: None}]]) for few in (4, 396)),
    # how many were trained without in a run that stopped is told the same way everywhere
    ([("a", 1000, 4, {DECIDED: 996}), ("refit", 996, 0, {DECIDED: 996})],
     [[1000, 4, 996, {DECIDED: 996}], [996, 0, 996, {DECIDED: 996}]]),
    ([("a", 1000, 4, {"splits tie": 3, DECIDED: 993})], [[1000, None, None, {"splits tie": None, DECIDED: None}]]),
])  # fmt: skip
def test_whom_an_engine_answered_does_not_follow_from_whom_it_handed_on(shares, told):
    assert engines(*shares, coverage=STOPPED if shares[0][1] == 1000 else None)[0] == told


def test_a_sample_that_the_coverage_does_not_tell_is_told_of_no_engine_either():
    few = parts.UnitCoverage(n_measured=6, n_units=40, not_computed=34)
    # 13 people have equal records, which a warning tells
    ((_, answered, handed_on, _),), coverage = engines(("refit", 40, 6, {DECIDED: 34}), coverage=few, totals=(40, 13))

    assert (coverage["n_measured"], answered, handed_on) == (4, None, None)
    # 296 of a sample of 300: of all 1,000 they are no small rest
    shares = ("a", 300, 4, {DECIDED: 296}), ("refit", 296, 0, {DECIDED: 296})
    assert engines(*shares, units=1000)[0][1] == [None, 0, None, {DECIDED: None}]
    for said in ("4 of 1000 people were trained without", "nobody was trained without 996 of 1000 people"):
        assert sentence(said, [1000]) == said


def test_how_many_were_left_out_for_one_reason_does_not_follow_from_the_others():
    removed = {"also_in_training": 37, "nearly": 3}
    behind = parts.BehindMembership(members=1000, candidates=960, removed_candidates=removed)
    request = ALL["attack_accuracy"](max=0.6).request()
    taken = Measurement(request, 0.5, 0.4, 0.6, unit="fraction", n=1960, population=1960, behind=behind)
    subject = {"n_records": 1000, "n_units": 1000, "n_candidates": 1000}
    checked = Precondition("near_overlap", "passed", "", {"checked": 960})
    told = Evidence(subject, (checked,), {taken.request: taken}).payload()

    # 1,000 less 37 less 3: neither 960 nor a sum that holds it may leave
    (m,), (p,) = told["measurements"], told["preconditions"]
    assert (m["behind"]["candidates"], m["n"], m["population"]) == (954, 1954, 1954)
    assert p["detail"]["checked"] == 954


def test_trainings_do_not_tell_how_many_were_retrained():
    def run(few_of):
        shares = EngineShare.from_parts("tree", 150, 150 - few_of), EngineShare.from_parts("refit", few_of, few_of)
        trainings, nothing = 65 + 13 * few_of, dict.fromkeys(("remembered", "compared", "different", "noisy"), 0)
        made = parts.RunPart(
            seeds=parts.SeedControl(dependent=True, paired=13),
            plan=parts.TrainingPlan(retrains=trainings, leave_one_out=13 * few_of),
            trace=parts.RunTrace(training_calls=trainings + 8),
            remembered=parts.Remembered(signable=True, trained=trainings, **nothing),
        )
        return Evidence({"n_units": 150}, (), {}, run=made, influence=InfluencePart(engines=shares)).payload()["run"]

    assert run(3) == run(7)
    assert run(30) != run(31)


def test_the_share_of_members_found_is_the_same_range_in_report_and_registry(runs):
    kept = runs.golden("attacked")
    (rule,) = (f for f in kept["findings"] if f["metric"] == "attack_tpr")
    (measured_,) = (m for m in kept["evidence"]["measurements"] if m["request"]["metric"] == "attack_tpr")
    members = measured_["behind"]["members"]
    seen = set()
    for found in (2, 7):
        rule["value"] = measured_["value"] = found / members
        verdict = runs.verdict(kept)
        doc = runs.document(verdict)
        (shown,) = (f for f in doc["findings"] if f["metric"] == "attack_tpr")
        (again,) = (m for m in doc["evidence"]["measurements"] if m["request"]["metric"] == "attack_tpr")
        seen.add((shown["value"], again["value"], collect_metrics(verdict)[f"privgate/{rule['rule']}"]))

    assert seen == {(9 / members,) * 3}


@pytest.mark.parametrize("few", [1, 4, 9])
def test_a_point_inside_an_interval_that_hides_nothing_is_hidden_itself(few):
    """A few of a thousand people, between nobody and forty of them."""
    request = ALL["pdtp"](max=0.2, aggregate="share_above", threshold=1.0).request()
    made = Measurement(request, few / 1000, 0.0, 0.04, unit="fraction", n=1000, population=1000)

    assert (made.shown.low, made.shown.high, made.shown.value) == (0.0, 0.04, 0.04)


@pytest.mark.parametrize("key", ["told_as", "limits"])
def test_a_report_that_says_how_it_is_told_is_none(runs, key):
    document = runs.document("shares")
    document["evidence"]["measurements"][0][key] = [0.0, 1.0]

    with pytest.raises(SubjectError, match="no report states it"):
        read(document)


@pytest.mark.parametrize("floor", [0, 295])
def test_how_many_were_left_out_of_a_sample_is_not_told(runs, floor):
    """298 of 300 people were measured; whoever judges again comes to the same end."""
    request = ALL["pdtp"](max=1.0).request()
    made = Measurement(request, 0.5, 0.5, np.inf, unit="nats", n=298, population=300)
    evidence = Evidence({"n_units": 300}, (), {request: made},
                        influence=InfluencePart(coverage=parts.UnitCoverage(n_measured=298, n_units=300)))  # fmt: skip
    for audit in ({"min_units": floor}, {"min_coverage": floor / 300}):
        told = Verdict({"source": {"audit": audit}}, (), evidence).shown_values()["evidence"]
        (measured,) = told["measurements"]

        assert (measured["n"], measured["population"]) == (max(floor, 291), 300)
        assert told["influence"]["coverage"]["n_measured"] == max(floor, 291)
    assert "at least 291 of 300 people measured" in ALL["pdtp"](max=1.0).judge(made).message
