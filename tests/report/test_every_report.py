"""Laws that hold for the report of every real run in every format."""

import json
import re
from html.parser import HTMLParser
from xml.etree import ElementTree as ET

import pytest
from pydantic import ValidationError

from privgate import report
from privgate.errors import SubjectError
from privgate.report import assertions, schema
from privgate.report.text import plain, prose

KINDS = ("certified", "refuted", "observed", "direct", "early", "undecided", "people", "stopped",
         "attacked", "unattacked", "private", "waived", "rounded", "optional")  # fmt: skip
#: of these, the runs that together fill every section: those whose texts are made hostile
WRITTEN = ("refuted", "early", "stopped", "attacked", "private", "waived")
FORMATS = ("html", "markdown", "junit")
# letters, digits and symbols that a format, a terminal or a log could obey
HOSTILE = (
    "<script>alert(1)</script><img src=x onerror=alert(2)> \" onmouseover=alert(3) ' {{7*7}} {% raw %} $\\frac$ "
    "\u202egnp.exe\u2066\u200f\x1b[31m\x00 a|b `c` **d** [e](javascript:alert(4)) ![f](http://evil.test/g.png) @team\n"
    "::error file=x::boo\n##[error]boo\n# h1\n- [ ] x\r\n</svg></style></title>]]>-->\ud800" + "A" * 10_000
)
BANNED = r"\b(safe|anonymous|private|compliant|(?<!not )certified|privacy score)\b"


@pytest.fixture(scope="module")
def documents(runs):
    return {kind: runs.document(kind) for kind in KINDS}


@pytest.fixture(scope="module")
def rendered(documents):
    """Each report in each format, drawn once."""
    made = {}

    def get(kind, format_="html", *, hostile=False):
        key = kind, format_, hostile
        if key not in made:
            made[key] = report.render(poisoned(documents[kind]) if hostile else documents[kind], format_)
        return made[key]

    return get


def text_of(html):
    return re.sub(r"\s+", " ", re.sub(r"<[^>]+>", " ", re.sub(r"<style>.*?</style>", "", html, flags=re.DOTALL)))


@pytest.mark.quick(5)
@pytest.mark.parametrize("kind", KINDS)
def test_every_finding_is_told_with_its_message(documents, rendered, kind):
    html = rendered(kind)
    junit = ET.fromstring(rendered(kind, "junit"))

    for asserted in assertions.list_assertions(schema.read(documents[kind])):
        told, finding = asserted.sentence, asserted.finding
        assert told.replace("'", "&#39;").replace("<", "&lt;").replace(">", "&gt;").replace('"', "&#34;") in html
        assert plain(finding.message).replace("`", "") in told
        said = [shown.get("message") for shown in (*junit.iter("failure"), *junit.iter("error"))]
        assert finding.outcome in ("passed", "warned") or f"{asserted.title}: {prose(finding.message)}" in said
    assert [c.get("name") for c in junit.iter("testcase")] == [
        f["rule"]
        for f in sorted(documents[kind]["findings"], key=lambda f: (not f["rule"].startswith("pre"), _rank(f)))
    ]


def _rank(finding):
    return ("failed", "inconclusive", "warned", "passed").index(finding["outcome"])


@pytest.mark.quick(5)
@pytest.mark.parametrize("kind", KINDS)
def test_the_page_runs_nothing_claims_nothing_it_cannot_show_and_its_charts_are_told(rendered, kind):
    html = rendered(kind)

    for text in (html, rendered(kind, "markdown")):
        assert not re.search(BANNED, text_of(text), flags=re.IGNORECASE)
    assert not re.search(r"<(script|iframe|object|embed|img|audio|video|base|form|input)\b", html, flags=re.IGNORECASE)
    assert not re.search(r"(src|srcset|action|formaction|ping)\s*=", html, flags=re.IGNORECASE)
    assert not re.search(r"url\((?!#)|@import", html, flags=re.IGNORECASE)
    assert set(re.findall(r'href="([^"#]*)', html)) <= {"", "data:,"}
    ids = re.findall(r'\bid="([^"]+)"', html)
    assert len(ids) == len(set(ids))
    assert set(re.findall(r'(?:href="#|url\(#)([^")]+)', html)) <= set(ids)
    for figure in re.findall(r"<figure>.*?</figure>", html, flags=re.DOTALL):
        assert re.search(r'role="img" aria-labelledby="([^"]+)-title \1-desc"', figure)
        assert re.search(r"<title[^>]*>[^<]+</title><desc[^>]*>[^<]+</desc>", figure)
        assert re.search(r"<figcaption><strong>[^<]+</strong> <bdi>[^<]+\.</bdi></figcaption>", figure)
        assert "<caption>" in figure


def poisoned(doc):
    """Replace every text of a document by the hostile one, but where only known words or another type may stand."""
    stated = ("data_name", "data_source", "purpose", "owner", "run_by", "run_on")
    made = _hostile(doc) | {"context": dict.fromkeys(stated, HOSTILE)}
    made["schema"] = doc["schema"]
    while True:
        try:
            schema.ReportDocument.model_validate(made)
        except ValidationError as exc:
            for error in exc.errors():
                _restore(made, doc, list(error["loc"]))
        else:
            break
    try:
        schema.read(made)
    except SubjectError:  # what was asked says of which figures a count follows
        for part in (lambda d: d["findings"], lambda d: d["evidence"]["measurements"]):
            for row, was in zip(part(made), part(doc), strict=True):
                row["request"] = was["request"]
    return made


def _hostile(value):
    if isinstance(value, dict):
        return {k: _hostile(v) for k, v in value.items()}
    if isinstance(value, list):
        return [_hostile(v) for v in value]
    return HOSTILE if isinstance(value, str) and value not in ("inf", "-inf", "nan") else value


def _restore(made, doc, place):
    """Put back the value at a place; places within a union name its branch too, which is no key."""
    for key in place:
        if (isinstance(doc, dict) and key in doc) or (isinstance(doc, list) and isinstance(key, int)):
            holder, last = made, key
            made, doc = made[key], doc[key]
    assert holder[last] != doc, place
    holder[last] = json.loads(json.dumps(doc))


class Elements(HTMLParser):
    def __init__(self, page):
        super().__init__()
        self.tags, self.attributes = set(), set()
        self.feed(page)

    def handle_starttag(self, tag, attrs):
        self.tags.add(tag)
        self.attributes |= {name for name, _ in attrs}


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", WRITTEN)
def test_hostile_text_adds_no_element_and_no_attribute_to_the_page(rendered, kind):
    clean, html = [Elements(rendered(k)) for k in KINDS], rendered(kind, hostile=True)

    assert Elements(html).tags <= set().union(*(page.tags for page in clean))
    assert Elements(html).attributes <= set().union(*(page.attributes for page in clean))
    assert len(html) < 1_000_000
    html.encode("utf-8")


@pytest.mark.quick(2)
@pytest.mark.parametrize("kind", WRITTEN)
@pytest.mark.parametrize("format_", FORMATS)
def test_hostile_text_never_commands_a_log_or_a_terminal(documents, rendered, kind, format_):
    text = rendered(kind, format_, hostile=True)
    outside_style = re.sub(r"<style>.*?</style>", "", text, flags=re.DOTALL)

    assert not re.search("[\x00-\x08\x0b-\x1f\x7f\u202a-\u202e\u2066-\u2069\u200e\u200f\ud800-\udfff]", text)
    assert not re.search(r"^\s*::", outside_style, flags=re.MULTILINE)
    assert format_ == "html" or not re.search(r"::|##\[", text)
    if format_ == "junit":
        assert len(list(ET.fromstring(text).iter("testcase"))) == len(documents[kind]["findings"])


@pytest.mark.parametrize("kind", WRITTEN)
def test_hostile_text_stays_within_its_markdown_cell(documents, rendered, kind):
    clean, text = (rendered(kind, "markdown", hostile=h) for h in (False, True))

    cells = {line.count("|") for line in text.splitlines() if line.startswith("|")}
    assert cells == {5}
    assert len(text.splitlines()) <= len(clean.splitlines()) + 12
    assert len(text.encode()) < 200 * 1024
    ours = re.sub(r"</?(details|summary)>", "", text)
    assert not re.search(r"[<>@`]", ours)
    assert "](" not in ours
    assert all(line.startswith(("## ", "**", "- **", "|", "<", "*", "All", "")) for line in text.splitlines())


def test_markdown_is_one_page(rendered):
    for kind in KINDS:  # two lines a question, and one policy asks all of them
        assert len(rendered(kind, "markdown").splitlines()) < 62
