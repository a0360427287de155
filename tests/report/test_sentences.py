"""The words of page one stand in one table: in another language, nothing of ours is left in English."""

import json
import re
from html import unescape

import pytest

from privgate import report
from privgate.evidence import figures, verdict
from privgate.report import sentences

KINDS = ("certified", "refuted", "observed", "direct", "early", "undecided", "people", "stopped",
         "attacked", "private", "waived", "optional")  # fmt: skip
#: units and names of things that are the same in every language, and the digest's
KEPT = {"nats", "nat", "sha256", "DTP", "PDTP", "epsilon", "ln", "bubblewrap", "UTC", "privgate", "verify", "config",
        "guard", "yaml", "models", "Long", "people", "person", "records", "record",
        "attacks", "regression"}  # fmt: skip


@pytest.fixture
def elsewhere(monkeypatch):
    """Every sentence in a language without one English letter."""

    def foreign(text):
        return "".join(p if p.startswith("{") else re.sub(r"[A-Za-z]", "ж", p) for p in re.split(r"(\{\w+\})", text))

    said = {k: foreign(v) for k, v in sentences.read_sentences().items()}
    monkeypatch.setattr(sentences, "read_sentences", lambda: said)
    monkeypatch.setattr(figures, "WORDS", said)
    monkeypatch.setattr(verdict, "WORDS", said)


def strings(value):
    if isinstance(value, dict):
        for k, v in value.items():
            yield k
            yield from strings(v)
    elif isinstance(value, list):
        for v in value:
            yield from strings(v)
    elif isinstance(value, str):
        yield value


def words_of(text):
    return set(re.findall(r"[A-Za-z]{2,}", text))


@pytest.mark.quick(8)
@pytest.mark.parametrize("format_", ["html", "markdown", "text"])
@pytest.mark.parametrize("kind", KINDS)
def test_what_is_ours_on_page_one_can_be_translated(runs, elsewhere, kind, format_):
    doc = runs.document(kind)
    page = report.render(doc, format_)

    page = page.partition('<div id="evidence"')[0].partition("<body>")[2] if format_ == "html" else page
    text = unescape(unescape(re.sub(r"<[^>]+>", " ", page)))
    text = re.sub(r"\b[0-9a-f]{16}\b", " ", text)  # names of people, hashed
    # what rules and recipes say comes with the report, capital or not
    carried = {w.lower() for s in strings(json.loads(json.dumps(doc))) for w in words_of(s)}
    left = {w for w in words_of(text) if w.lower() not in carried} - KEPT
    assert not left, left
    assert "жжж" in text


def test_every_sentence_is_used_and_every_used_one_exists():
    from pathlib import Path

    folder = Path(sentences.__file__).parent
    files = [Path(figures.__file__), Path(verdict.__file__), *folder.rglob("*.py"), *folder.rglob("*.html")]
    code = "".join(p.read_text(encoding="utf-8") for p in files)
    prefixes = ("condition.", "kind.", "release.", "result.", "scope.", "column.", "next.", "decision.", "covers.",
                "reason.", "question.", "harm.", "bad.", "file.", "sure.")  # fmt: skip
    for key in sentences.read_sentences():
        assert f'"{key}"' in code or f"'{key}'" in code or key.startswith(prefixes), key


def test_a_sentence_takes_the_values_that_it_names():
    for key, text in sentences.read_sentences().items():
        values = dict.fromkeys(re.findall(r"\{(\w+)\}", text), "x")
        assert "{" not in sentences.say(key, **values)
