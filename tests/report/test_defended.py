"""Page one claims no more than its run: margins, who accepted what, what only warns, what was tried."""

import json
import math
import re
from dataclasses import replace
from pathlib import Path

import pytest

import privgate
from privgate.evidence import BehindClaim, Measurement, Request
from privgate.policy.rules.claims import DpAttackAccuracyBound, DpEpsilonLowerBound
from privgate.report import front, plain_formats, sentences, what_was_asked
from privgate.report.report_schema import read


def changed(doc, rule, **values):
    """Return a report of which the finding of one rule is changed."""
    found = [f | values if f["rule"] == rule else f for f in doc["findings"]]
    return read(json.loads(json.dumps(doc | {"findings": found})))


def asked(doc, question):
    return next(q for q in what_was_asked.of(doc) if q.question == question)


@pytest.mark.parametrize(("low", "high", "told"), [
    (0.5, 0.5475, "52 % of the room between guessing and the limit is left"),
    (0.63, 0.7, "beyond the limit by at least 30 % of the room between guessing and it"),
    (0.6000001, 0.7, "beyond the limit"),
    (0.55, 0.7, "the interval lies on both sides of the limit"),
])  # fmt: skip
def test_a_margin_above_guessing_says_of_what_it_is_a_share(runs, low, high, told):
    outcome = "passed" if high <= 0.6 else "failed" if low > 0.6 else "inconclusive"
    doc = changed(runs.document("attacked"), "attack_accuracy", low=low, high=high, limit=0.6, outcome=outcome)

    row = next(a for a in what_was_asked.assertions.of(doc) if a.finding.rule == "attack_accuracy")
    assert what_was_asked.margin(row) == told


@pytest.mark.parametrize(("value", "told"), [
    (15.0, "50 % of the limit more than it asks for"), (5.0, "at least 50 % of the limit too little"),
])  # fmt: skip
def test_a_least_value_has_its_margin_on_the_other_side(runs, value, told):
    outcome = "passed" if value >= 10 else "failed"
    doc = changed(runs.document("attacked"), "deletion_capacity", value=value, low=value, high=value, outcome=outcome)

    row = next(a for a in what_was_asked.assertions.of(doc) if a.finding.rule == "deletion_capacity")
    assert what_was_asked.margin(row) == told


def test_only_a_waiver_that_applies_is_told_as_accepted_and_a_waived_rule_is_a_warning(runs):
    refused, waived = (what_was_asked.second_side(read(runs.document(kind))) for kind in ("attacked", "waived"))

    told = [line for line in refused["remains"] if "by waiver" in line]
    assert len(told) == 1  # the other one has expired
    assert "Members found" in told[0]
    assert not any("Nobody accepted a risk" in line for line in refused["remains"])
    assert waived["weighed"] != [sentences.say("weighed.none")]
    assert "waived up to 2" in waived["weighed"][0]


def test_what_is_enforced_and_warns_is_not_called_what_the_policy_only_warns_of(runs):
    said = "the operator states that the file is not downloadable: its answers were judged, not the file"
    doc = changed(runs.document("certified"), "dtp", outcome="warned", message=said)

    assert any(said in line for line in what_was_asked.second_side(doc)["weighed"])


def test_a_question_that_a_rule_only_warns_of_was_asked(runs):
    doc = changed(runs.document("certified"), "dtp", mode="warn")

    found = asked(doc, "influence")
    assert found.state == "only_warned"
    assert "this policy only warns" in found.told
    assert (
        "influence of one person" not in " ".join(what_was_asked.second_side(doc)["remains"]).partition("not asked")[2]
    )
    assert what_was_asked.second_side(doc)["harms"][0]["likely"] != sentences.say("likely.not_asked")


def test_other_rules_approve_as_well_only_where_they_do(runs):
    doc = runs.document("attacked")
    findings = [f | {"outcome": "warned", "mode": "warn"} for f in doc["findings"] if f["metric"]]

    assert "approve as well" not in front.why(read(doc | {"findings": findings, "outcome": "warned", "approved": True}))


@pytest.mark.parametrize("outcome", ["failed", "passed"])
def test_a_run_that_only_observed_neither_releases_nor_refuses(runs, outcome):
    doc = runs.document("observed")
    findings = [f | {"outcome": outcome, "advice": ""} if f["metric"] else f for f in doc["findings"]]
    told = read(doc | {"findings": findings, "outcome": outcome, "next_steps": []})

    assert front.sentence(told) == sentences.say("sentence.observed")
    assert "observed only" in plain_formats.terminal(told).splitlines()[1]
    assert not any("signed" in step for step in front.steps(told))
    assert (front.steps(told) == [sentences.say("next.observed")]) == (outcome == "passed")


def test_a_share_is_told_with_whose_it_is_and_never_equal_to_a_limit_that_it_exceeds(runs):
    doc = runs.document("shares")
    rule = next(f["rule"] for f in doc["findings"] if f["metric"] == "pdtp")
    low = 0.2 * (1 + 1e-15)
    broken = changed(doc, rule, value=0.9, low=low, high=0.9, limit=0.2, outcome="failed", mode="enforce")

    told = next(a for a in what_was_asked.assertions.of(broken) if a.finding.rule == rule)
    assert told.value == "over 20 % to 90 %"
    assert what_was_asked.margin(told) == "beyond the limit"
    assert told.asked in asked(broken, "influence").told


def test_how_sure_tells_who_was_tried_beside_who_was_measured(runs):
    told = front.how_sure(read(runs.document("unattacked")))

    assert "members of 400" in told
    assert "people or records were measured" in told


def test_a_limit_that_nothing_reaches_is_not_said_to_be_exceeded(runs):
    doc = runs.document("screened")
    for m in doc["evidence"]["measurements"]:
        m |= {"high": "inf", "kind": "confidence", "behind": {**(m["behind"] or {}), "beyond": 0.01}}

    assert "may exceed" not in front.how_sure(read(doc))


def rows(doc):
    return {a.finding.rule: a for a in what_was_asked.assertions.of(doc)}


def test_a_claim_that_reruns_contradict_is_not_told_as_approved_by_its_epsilon(runs):
    doc, said = runs.document("private"), "the recipe claims epsilon 0.5, but the mechanism gives 2.955"
    kept = [f for f in doc["findings"] if f["rule"] != "precondition:dp_claim"]
    refused = {**kept[0], "rule": "precondition:dp_claim", "metric": "", "outcome": "failed", "message": said}
    told = read(json.loads(json.dumps(doc | {"findings": [*kept, refused]})))

    assert asked(read(doc), "claim").state == "approved"
    assert asked(told, "claim").state == "refused"
    assert said in asked(told, "claim").told
    assert (
        next(h for h in what_was_asked.second_side(told)["harms"] if "claim" in h["what"])["likely"]
        == f"{said[:1].upper()}{said[1:]}."
    )


def test_an_audit_is_told_as_the_leak_that_it_proves_and_every_epsilon_with_its_delta(runs):
    doc = read(runs.document("private"))
    (rule,) = [a for a in rows(doc).values() if a.finding.metric == "dp_epsilon_lower_bound"]

    assert re.fullmatch(r"at least epsilon [\d.]+", rule.value)
    assert rule.threshold.endswith(" at delta 1×10⁻⁵")
    assert (
        "at delta 1×10⁻⁵" in next(h for h in what_was_asked.second_side(doc)["harms"] if "claim" in h["what"])["likely"]
    )
    assert "201" not in front.how_sure(doc)  # its trainings are neither trials nor people


def test_an_audit_that_could_contradict_nothing_says_so_beside_its_limit():
    seen = {"epsilon": 0, "trainings": 200, "counted": 160, "misses": 39, "false_alarms": 17, "fpr": 0.2, "tpr": 0.5}
    audit = {"many_runs": seen, "delta": 1e-5, "trainings": 201}
    behind = BehindClaim.model_validate({"claimed_epsilon": 60.0, "audit": audit})
    m = Measurement(Request("dp_epsilon_lower_bound"), 0.0, 0.0, math.inf, "nats", "confidence", 0.999, behind=behind)
    finding = DpEpsilonLowerBound(max="claim").against_limit(m)
    (told,) = what_was_asked.assertions.of_rules([finding], [m])

    assert not told.measured
    assert told.threshold == "at most epsilon 60 at delta 1×10⁻⁵"
    assert "cannot be contradicted by any audit" in front.row(told)["note"]
    assert "so small that an audit" in finding.advice


def test_advice_of_a_rule_that_only_warns_does_not_ask_for_what_was_done():
    m = Measurement(Request("dp_attack_accuracy_bound"), 0.9, 0.9, 0.9, "fraction", "bound")

    assert DpAttackAccuracyBound(max=0.75, mode="warn").against_limit(m).advice.startswith("add noise")


@pytest.mark.parametrize(("metric", "guess", "told"), [
    ("dp_attack_accuracy_bound(prior=0.5)", 0.5, "45 %"), ("dp_attack_accuracy_bound(prior=0.1)", 0.9, None),
    ("attack_tpr(at_fpr=0.01)", 0.01, "59 %"),
])  # fmt: skip
def test_whoever_guesses_has_nothing_of_the_model_whatever_the_rule(runs, metric, guess, told):
    high, limit = {0.5: (0.6369, 0.75), 0.9: (0.92, 0.95), 0.01: (0.0467, 0.1)}[guess]
    a = rows(read(runs.document("attacked")))["attack_accuracy"]
    name = metric.partition("(")[0]
    f = replace(a.finding, metric=name, request=metric, value=high, low=guess, high=high, limit=limit, direction="max")
    a = replace(a, finding=replace(f, unit="fraction"))

    assert what_was_asked.guessing(a.finding) == guess
    assert what_was_asked.room(a) == pytest.approx((limit - high) / (limit - guess))
    assert told is None or what_was_asked.margin(a) == f"{told} of the room between guessing and the limit is left"
    assert front.bar([a]).low == 0


@pytest.mark.parametrize(("figures", "behind", "told", "never"), [
    ({"low": 0.05, "high": "inf"}, {}, "What was seen is certain; no upper limit is known.", "Exact"),
    ({"kind": "confidence", "confidence": 0.95}, {"beyond": 0.05}, "estimated; some, drawn", "were measured."),
    ({"value": 1.2, "low": 0.4, "high": "inf"}, {"own_coins": True, "followed": True},
     "at the recorded seed it is 3.32-fold (1.2 nats)", "holds for the recorded seed"),
])  # fmt: skip
def test_how_sure_says_no_more_than_engines_and_seeds_showed(runs, figures, behind, told, never):
    doc = runs.document("certified")
    for m in doc["evidence"]["measurements"]:
        m |= {**figures, "behind": {**(m["behind"] or {}), **behind}}

    assert told in front.how_sure(read(doc))
    assert never not in front.how_sure(read(doc))


def test_every_condition_that_may_not_hold_has_a_title_that_says_what_should_be_so():
    code = "".join(f.read_text(encoding="utf-8") for f in Path(privgate.__file__).parent.rglob("*.py"))
    names = set(re.findall(r'Precondition\(\s*"(\w+)", (?!"passed")', code)) - {"attacked"}  # never a finding

    assert {"coins", "dp_claim", "recipe"} <= names
    assert not [n for n in names if not sentences.known(f"condition.{n}") and not n.startswith("certificate_")]
