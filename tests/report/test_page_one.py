"""What page one says: whole sentences, commands that run, no count undone, a histogram that hides no risk."""

import json
import re
import shlex
from dataclasses import replace
from html import unescape
from math import inf
from pathlib import Path

import pytest

import privgate
from privgate import report
from privgate.cli import COMMANDS, cli
from privgate.errors import PrivgateWarning
from privgate.evidence import BehindClaim, BehindInfluence, Measurement, Request
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules.claims import DpEpsilonLowerBound
from privgate.report import assertions, charts, page_one
from privgate.report.schema import read
from privgate.report.text import known

KINDS = ("certified", "refuted", "observed", "direct", "early", "undecided", "people", "stopped",
         "attacked", "unattacked", "private", "waived", "rounded", "optional")  # fmt: skip


def test_a_hostile_name_stays_one_word_of_the_command(runs):
    doc = runs.document("certified")
    doc["subject"]["uri"] = "models:/x; rm -rf ~/1"

    assert shlex.split(page_one.verify(read(doc)))[2] == doc["subject"]["uri"]
    doc["subject"]["uri"] = "models:/x\u202e/1"
    assert page_one.verify(read(doc)) == ""


def test_a_share_of_people_of_whom_most_were_spared_is_counted_of_all_of_them():
    request, behind = Request.build("pdtp", aggregate="share_above", threshold=1.0), BehindInfluence(not_computed=507)
    measured = Measurement(request, 10 / 527, 12 / 900, 0.98, "fraction", "confidence", 0.95, n=20, behind=behind)
    finding = Finding("a", "A", Outcome.FAILED, "", value=10 / 527, low=12 / 900, high=0.98)

    assert page_one._count(finding, measured) == "10"


def test_a_version_is_not_compared_with_itself(runs):
    old = runs.document("certified")

    assert runs.document("certified", baseline=old)["comparison"] is None


def test_a_version_before_that_cannot_be_read_is_warned_of_and_costs_no_verdict(runs):
    old = runs.document("before") | {"schema": "privgate/report/v1"}

    with pytest.warns(PrivgateWarning, match="nothing is compared with the version before: another version"):
        doc = runs.document("certified", baseline=old)
    assert doc["comparison"] is None
    assert doc["approved"]


def test_every_section_of_the_mathematics_that_a_report_cites_exists(runs):
    page = (Path(__file__).parents[2] / "docs/mathematics.md").read_text(encoding="utf-8")
    known = set(re.findall(r"^#{2,3} (\d+(?:\.\d+)?)", page, flags=re.MULTILINE))
    cited = set()
    for kind in KINDS:
        for text in re.findall(r"docs/mathematics\.md[^\"]*", json.dumps(runs.document(kind))):
            cited |= set(re.findall(r"(?:sections?|and) (\d+(?:\.\d+)?)", text))

    assert len(cited) > 8
    assert cited <= known
    html = report.render(runs.document("certified"), "html")
    assert f"that page in the sources of privgate {runs.document('certified')['privgate']}" in html


CONTEXT = {
    "data_name": "Adult sample",
    "data_source": "UCI repository",
    "purpose": "estimate income bands",
    "owner": "retail credit",
    "run_by": "ada",
    "run_on": "runner-7",
}


def test_page_one_names_the_candidates_that_were_tried_beside_all_that_were_given(runs):
    doc = runs.document("attacked")
    behind = [m["behind"] or {} for m in doc["evidence"]["measurements"]]
    (tried,) = {b["candidates"] for b in behind if b.get("candidates")}
    doc["subject"]["n_candidates"] = tried + 100

    assert page_one.view(read(doc))["facts"][1][1] == f"{tried + 100}, of whom attacks were tried on {tried}"


@pytest.mark.parametrize(
    ("floors", "said"),
    [([0.01, 0.01], "below 1 % are released as 1 %."), ([0.002, 0.01], "below 0.2 % to 1 %, by label")],
)
def test_a_floor_is_said_and_whether_attacks_on_it_were_tried(runs, floors, said):
    doc = runs.document("certified")
    doc["subject"]["release"] |= {"floor": floors, "alone": True}
    doc = read(doc)

    assert said in page_one.reason(doc)
    assert "No attack on them was tried." in page_one.reason(doc)
    tried = doc.evidence.model_copy(update={"membership": read(runs.document("attacked")).evidence.membership})
    assert "which is not every attack" in page_one.reason(doc.model_copy(update={"evidence": tried}))
    assert "which alone decide" in page_one.released(doc.subject)


@pytest.mark.quick(5)
@pytest.mark.parametrize("kind", KINDS)
def test_every_command_that_a_report_prints_parses(runs, kind):
    """Each is a whole command line, or the name of a command in a sentence."""
    doc = runs.document(kind)
    shown = unescape(re.sub(r"<[^>]+>", " ", report.render(doc, "html")))
    found = re.findall(
        r"privgate ((?:[a-z][a-z-]+)(?: (?:models:/\S+|--policy [\w./-]+|--[a-z-]+|[\w./-]+\.(?:yaml|json)))*)", shown
    )
    lines = [shlex.split(line) for line in found if line.split()[0] in COMMANDS]

    assert (["verify", doc["subject"]["uri"], "--config", "guard.yaml"] in lines) == doc["approved"]
    for line in lines:
        context = cli.make_context("privgate", line[:1], resilient_parsing=True)
        command = cli.get_command(context, line[0])
        if len(line) > 1:
            command.make_context(line[0], line[1:])


def count_words(html):
    """Return how many words page one holds: all its text, what only a screen reader says included."""
    page = html.partition('<div id="page-one"')[2].partition('<div id="evidence"')[0]
    said = [*re.findall(r'(?:aria-label|title|alt)="([^"]*)"', page), re.sub(r"<[^>]+>", " ", page)]
    return len(unescape(" ".join(said)).split())


#: what was said falsely once, or said nothing; what is for who writes a text, and what escapes a number
GONE = re.compile(
    r"of the room between guessing|% of the limit is left|a certificate whose conditions the evidence lists"
    r"|Does the report name anybody|handed on|0 warn|`|&#96;|\| &#(4[89]|5[0-7]);"
)


@pytest.mark.parametrize("kind", KINDS)
def test_page_one_has_at_most_350_words_cuts_no_sentence_and_says_nothing_that_is_gone(runs, kind):
    doc = runs.document(kind) | {"context": CONTEXT}
    told = read(doc)

    assert [t.question for t in page_one.tiles(told)] == ["influence", "membership", "file", "claim"]
    for format_ in ("html", "markdown", "text"):
        shown = report.render(doc, format_)
        assert not GONE.search(shown)
        assert "…" not in shown.partition('<div id="evidence"')[0]
        assert format_ != "html" or count_words(shown) <= 350
    asked = [
        a.title for a in assertions.list_assertions(told) if not a.condition and a.outcome is not Outcome.NOT_NEEDED
    ]
    assert len(set(asked)) == len(asked) == sum(f.outcome is not Outcome.NOT_NEEDED for f in told.rules)


@pytest.mark.parametrize("kind", KINDS)
def test_a_tile_shows_its_figure_beside_its_limit(runs, kind):
    doc = read(runs.document(kind))
    by_title = {a.title: a.finding for a in assertions.list_assertions(doc) if not a.condition}
    shown = [t for t in page_one.tiles(doc) if t.bar]

    assert shown or not doc.approved
    for tile in shown:
        f = by_title[tile.title]
        assert 0 <= tile.bar.low <= tile.bar.high <= 1000
        assert tile.bar.unlimited == (f.high == float("inf"))
        beyond = tile.bar.high > tile.bar.limit if f.direction == "max" else tile.bar.low < tile.bar.limit
        assert beyond == (f.outcome.value in ("failed", "inconclusive") or bool(f.waiver) or f.mode == "warn")


def test_the_pictures_show_everybody(runs):
    doc = read(runs.document("certified"))
    steps = charts._rank(doc.units, "dtp_upper")

    assert steps[-1][0] == pytest.approx(doc.units.n)
    assert [nats for _, nats in steps] == sorted((nats for _, nats in steps), reverse=True)
    assert [p.svg != "" for p in charts.draw(doc)] == [True, False]
    assert [p.svg != "" for p in charts.draw(read(runs.document("private")))] == [False, True]


def test_a_claim_that_reruns_contradict_is_not_approved_by_its_epsilon(runs):
    doc, said = runs.document("private"), "the recipe claims epsilon 0.5, but the mechanism gives 2.955"
    kept = [f for f in doc["findings"] if f["rule"] != "precondition:dp_claim"]
    refused = {**kept[0], "rule": "precondition:dp_claim", "metric": "", "outcome": "failed", "message": said}
    before, after = (page_one.tiles(read({**doc, "findings": f}))[-1] for f in (doc["findings"], [*kept, refused]))

    assert (before.outcome, before.value) == (Outcome.PASSED, "epsilon 2.96")
    assert after.outcome is Outcome.FAILED
    assert said[1:] in after.text


def test_an_audit_that_could_contradict_nothing_is_no_figure():
    seen = {"epsilon": 0, "trainings": 200, "counted": 160, "misses": 39, "false_alarms": 17, "fpr": 0.2, "tpr": 0.5}
    audit = {"many_runs": seen, "delta": 1e-5, "trainings": 201}
    behind = BehindClaim.model_validate({"claimed_epsilon": 60.0, "audit": audit})
    m = Measurement(Request("dp_epsilon_lower_bound"), 0.0, 0.0, inf, "nats", "confidence", 0.999, behind=behind)
    finding = DpEpsilonLowerBound(max="claim").against_limit(m)
    (told,) = assertions.of_rules([finding], [m])

    assert not told.measured
    assert told.threshold == "at most epsilon 60 at delta 1×10⁻⁵"
    assert "so small that an audit" in finding.advice


@pytest.mark.parametrize(
    ("request_", "guess"),
    [("dp_attack_accuracy_bound(prior=0.5)", 0.5), ("dp_attack_accuracy_bound(prior=0.1)", 0.9),
     ("attack_tpr(at_fpr=0.01)", 0.01)],
)  # fmt: skip
def test_whoever_guesses_has_nothing_of_the_model_whatever_the_rule(runs, request_, guess):
    finding = next(
        a.finding for a in assertions.list_assertions(read(runs.document("attacked"))) if a.finding.unit == "fraction"
    )
    finding = replace(finding, metric=request_.partition("(")[0], request=request_, low=guess, limit=0.97)

    assert page_one.guessing(finding) == guess
    assert page_one._bar(finding).low == 0


@pytest.mark.parametrize("outcome", ["failed", "passed"])
def test_a_run_that_only_observed_neither_releases_nor_refuses(runs, outcome):
    doc = runs.document("observed")
    findings = [f | {"outcome": outcome, "advice": ""} if f["metric"] else f for f in doc["findings"]]
    told = read(doc | {"findings": findings, "outcome": outcome, "next_steps": []})

    assert page_one.view(told)["decision"].startswith("Observed only")
    assert not any("signed" in step for step in page_one.steps(told))


def test_every_condition_that_may_not_hold_has_a_title_that_says_what_should_be_so():
    code = "".join(f.read_text(encoding="utf-8") for f in Path(privgate.__file__).parent.rglob("*.py"))
    names = set(re.findall(r'Precondition\(\s*"(\w+)", (?!"passed")', code)) - {"attacked"}  # never a finding

    assert {"coins", "dp_claim", "recipe"} <= names
    assert not [n for n in names if not known(f"condition.{n}") and not n.startswith("certificate_")]
