"""What page one says: whole sentences, commands that run, no count undone, a histogram that hides no risk."""

import json
import re
import shlex
from html import escape, unescape

import pytest
from click.testing import CliRunner

from privgate import report
from privgate.cli import COMMANDS, cli
from privgate.errors import PrivgateWarning
from privgate.report import assertions, charts, front, words
from privgate.report.report_schema import read
from privgate.report.text import plain

KINDS = ("certified", "refuted", "observed", "direct", "largest", "screened", "undecided", "people", "stopped",
         "attacked", "unattacked", "private", "declared", "waived", "rounded", "optional")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
def test_no_sentence_of_a_decision_is_cut(runs, kind):
    page = front.view(read(runs.document(kind)))

    said = [page[k] for k in ("decision", "sentence", "why", "how_sure", "held", "changes")]
    said += [*page["steps"], *page["not_shown"], *page["waivers"], *(v for row in page["rows"] for v in row.values())]
    assert not [s for s in said if "…" in s]
    assert all(s[-1] in ".)!?" for s in (page["sentence"], page["why"], *page["steps"]))


def test_what_page_one_leaves_out_is_told_in_full_below(runs):
    doc = runs.document("private")
    (long,) = (f["meaning"] for f in doc["findings"] if f["metric"] == "dp_attack_accuracy_bound")
    doc["findings"] = [{**f, "meaning": f"{f['meaning']}; {'x' * 200}; last"} for f in doc["findings"]]

    html = report.render(doc, "html")
    page, _, evidence = html.partition('id="evidence"')
    assert "x; last" not in page
    assert "x; last" in evidence
    assert long[:60].lower() not in page.lower()  # it gives the figure, and how bad
    assert long[:60].lower() in evidence.lower()


@pytest.mark.quick(4)
@pytest.mark.parametrize("kind", KINDS)
def test_the_command_that_verifies_is_one_that_runs(runs, kind, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    (tmp_path / "guard.yaml").write_text("x", encoding="utf-8")
    command = shlex.split(front.verify(read(runs.document(kind))))
    if not runs.document(kind)["approved"]:
        assert command == []  # nobody signs what was not approved
        return

    context = cli.make_context("privgate", command[1:2], resilient_parsing=True)
    verify = cli.get_command(context, command[1])
    given = verify.make_context("verify", command[2:]).params
    assert command[0] == "privgate"
    assert given["what"] == runs.document(kind)["subject"]["uri"]
    assert given["config"].name == "guard.yaml"
    # the command line is complete: what is wrong is the file
    assert "give --config" not in CliRunner().invoke(cli, command[1:]).output


def test_a_hostile_name_stays_one_word_of_the_command(runs):
    doc = runs.document("certified")
    doc["subject"]["uri"] = "models:/x; rm -rf ~/1"

    assert shlex.split(front.verify(read(doc)))[2] == doc["subject"]["uri"]
    doc["subject"]["uri"] = "models:/x\u202e/1"
    assert front.verify(read(doc)) == ""


@pytest.mark.parametrize("format_", ["html", "markdown"])
def test_no_backtick_and_no_escaped_number_reaches_a_reader(runs, format_):
    for kind in ("refuted", "private"):
        shown = report.render(runs.document(kind), format_)
        assert "`" not in shown
        assert "&#96;" not in shown
        assert not any(f"| &#{ord(c)};" in shown for c in "0123456789")


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
    from pathlib import Path

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


def drawn(monkeypatch, **given):
    """Return (left edge, height, hatch) of each bar of a histogram, where the limit stands, and the height of all."""
    seen = {}
    original = charts.Drawing.__exit__

    def look(self, *exc):
        bars = self.axes.patches
        seen["bars"] = [(p.get_x(), p.get_height(), p.get_hatch()) for p in bars]
        seen["top"] = self.axes.get_ylim()[1]
        return original(self, *exc)

    monkeypatch.setattr(charts.Drawing, "__exit__", look)
    svg = charts.histogram("h", "t", "d", **given)
    return seen["bars"], seen["top"], svg


@pytest.mark.parametrize("limit", [0.2, 1.0, 7.0])
def test_what_has_no_limit_stands_right_of_the_limit_and_of_everything_finite(monkeypatch, limit):
    bars, _, svg = drawn(monkeypatch, edges=[0.0, 0.25, 0.5], counts=[100, 0], unbounded=191, limit=limit)

    assert "no upper limit known" in svg
    ((lane, height, _),) = (b for b in bars if b[1] == 191)
    assert lane > max(limit, 0.5)
    assert height == 191


def test_a_range_of_one_figure_is_drawn_all_the_same():
    row = charts.Line("a", 0.5, 0.5, 0.5, 0.0)

    svg = charts.intervals("h", "t", "d", rows=[row], limit=1.0, top=2.0)
    assert "stroke-width: 5; stroke-linecap: square" in svg


def test_a_suppressed_cell_says_nothing_about_its_height(monkeypatch):
    bars, top, _ = drawn(monkeypatch, edges=[0.0, 0.5, 1.0], counts=[300, None], unbounded=None, limit=0.7)

    assert [height for _, height, hatch in bars if hatch] == [top, top]


CONTEXT = {
    "data_name": "Adult sample",
    "data_source": "UCI repository",
    "purpose": "estimate income bands",
    "owner": "retail credit",
    "run_by": "ada",
    "run_on": "runner-7",
    "accuracy": 0.8125,
    "accuracy_n": 1000,
}


def test_page_one_says_what_a_data_protection_officer_asks(runs):
    doc = runs.document("attacked") | {"context": CONTEXT}

    page = front.view(read(doc))
    told = dict(page["facts"])
    digest = doc["subject"]["digests"]["data"][7:23]
    assert told["Data set"] == f"Adult sample, 150 records, whose they are was not declared, sha256 {digest}"
    assert (told["Data source"], told["Purpose"], told["Owner"]) == (
        "UCI repository", "estimate income bands", "retail credit",
    )  # fmt: skip
    assert told["Checked by"] == "ada on runner-7; training code isolated by bubblewrap 0.8.0"
    assert told["What was judged"] == "its answers (exact probabilities of every label), not its file"
    assert page["accuracy"] == "The model is right about 81.2 % of 1,000 candidates."
    for format_ in ("html", "markdown"):
        shown = report.render(doc, format_)
        assert all(v in shown for v in ("estimate income bands", "retail credit", "81.2 %"))


def test_what_nobody_stated_is_said_to_be_missing(runs):
    page = front.view(read(runs.document("certified")))

    assert [v for k, v in page["facts"] if k in ("Data source", "Purpose", "Owner")] == ["not stated"] * 3
    assert page["accuracy"].startswith("How often the model is right was not measured")


@pytest.mark.parametrize("kind", KINDS)
def test_the_bar_shows_the_finding_that_decided(runs, kind):
    doc = read(runs.document(kind))
    shown = front.view(doc)["bar"]
    decided = (a.finding for a in front.deciding(doc))
    figures = [f for f in decided if f.limit == f.limit and f.value == f.value]

    assert (shown is None) == (not figures)
    if shown is not None:
        first = figures[0]
        assert 0 <= shown.low <= shown.high <= 1000
        assert shown.unlimited == (first.high == float("inf"))
        beyond = shown.high > shown.limit if first.direction == "max" else shown.low < shown.limit
        assert beyond == (
            first.outcome.value in ("failed", "inconclusive") or bool(first.waiver) or first.mode == "warn"
        )
        assert shown.sentence == f"{shown.title}: measured {shown.measured}, allowed {shown.allowed}."


@pytest.mark.parametrize("kind", KINDS)
def test_no_two_rules_share_a_title(runs, kind):
    doc = read(runs.document(kind))

    asked = [a.asked for a in assertions.of(doc) if not a.condition]
    assert len(set(asked)) == len(asked) == len(words.rules(doc))


@pytest.mark.parametrize("kind", ["attacked", "refuted", "certified"])
def test_the_evidence_says_nothing_twice(runs, kind):
    doc = runs.document(kind)
    _, _, evidence = report.render(doc, "html").partition('id="evidence"')

    for condition in doc["evidence"]["preconditions"]:
        if len(condition["message"]) > 30:
            assert evidence.count(escape(plain(condition["message"])).replace("&#x27;", "&#39;")) == 1
    assert evidence.count("What to do next") <= 1
    silent = [c for c in doc["evidence"]["influence"]["certificates"] if not c["applies"]]
    assert f"{len(silent)} theorems do not apply to this model" in evidence


@pytest.mark.parametrize("kind", KINDS)
def test_the_worst_people_stand_in_the_order_of_what_is_shown(runs, kind):
    doc = read(runs.document(kind))
    if doc.units is None or not doc.units.worst:
        return
    limits = {r.figure for r in doc.units.above}
    rows = [(w.dtp_upper, w.dtp_lower, w.pdtp) for w in doc.units.worst]
    keys = [0, 1, 2] if "dtp_upper" in limits and any(r[0] != float("inf") for r in rows) else [1, 0, 2]
    keys = [2, 0, 1] if limits == {"pdtp"} else keys

    assert rows == sorted(rows, key=lambda r: tuple(-r[k] for k in keys))


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


HOSTILE = "<script>x</script> **b** [a](javascript:x)\n---\n::error::x ![i](http://evil.test) \u202e"


@pytest.mark.parametrize("format_", ["html", "markdown", "junit", "text", "json"])
def test_what_an_operator_states_commands_nothing(runs, format_):
    doc = runs.document("attacked") | {"context": {**CONTEXT, **dict.fromkeys(list(CONTEXT)[:6], HOSTILE)}}

    shown = report.render(doc, format_)
    assert "\u202e" not in shown
    if format_ == "json":
        json.loads(shown)
        return
    assert "<script>x" not in shown
    assert "\n::error" not in shown
    if format_ == "markdown":
        assert "](" not in shown


@pytest.mark.parametrize("kind", KINDS)
def test_a_terminal_says_each_thing_once_and_no_hidden_count(runs, kind):
    shown = report.render(runs.document(kind), "text").splitlines()

    told = [line.strip().casefold() for line in shown if line.strip()]
    assert not any(told[0].startswith(line) for line in told[1:])
    assert not [line for line in told if "suppressed of" in line or "of suppressed" in line]
