"""German and French are the English table, key by key; a page in them holds no English of ours."""

import ast
import json
import re
from html import unescape
from pathlib import Path

import pytest

from privgate import report
from privgate.errors import UsageError
from privgate.evidence import figures
from privgate.policy import rules
from privgate.report import front, report_schema, sentences
from privgate.report.sentences import LANGUAGES, SENTENCES, spoken

#: what only a translation holds: its name, its marks, and words that English takes from rules and units
SHARES = {f"title.share.{of}" for of in ("dtp", "pdtp", "pdtp.beside", "sensitivity", "sensitivity.beside")}
OWN = {"code", "marks", *SHARES, *(f"title.{name}" for name in rules.ALL)}
UNITS = {f"unit.{n}" for n in ("people", "person", "records", "record", "expectations", "residual deviations")}
FOREIGN = [name for name in LANGUAGES if name != "en"]
#: the terminal speaks English alone
ENGLISH = {k for k in SENTENCES if k.startswith("terminal.")}


def values(text):
    return sorted(re.findall(r"\{(\w+)\}", text))


@pytest.mark.parametrize("language", FOREIGN)
def test_a_translation_says_every_sentence_with_the_same_values(language):
    table = sentences._table(language)

    assert table.keys() == (SENTENCES.keys() - ENGLISH) | OWN | UNITS
    assert {k for k in SENTENCES.keys() & table.keys() if values(table[k]) != values(SENTENCES[k])} == set()
    assert all(text.strip() for text in table.values())


@pytest.mark.parametrize("language", FOREIGN)
@pytest.mark.parametrize("format_", ["html", "markdown"])
def test_a_page_says_its_decision_in_the_language_and_marks_what_is_english(runs, language, format_):
    for kind in ("certified", "refuted", "undecided", "regressor", "shares"):
        doc = runs.document(kind)
        page = unescape(unescape(report.render(doc, format_, language)))
        with spoken(language):
            first = sentences.say("remains")
        assert first in page
        assert SENTENCES["remains"] not in page
        if format_ == "html":
            assert f'<html lang="{language}">' in page
            assert '<div lang="en">' in page  # the evidence
    assert figures.number(1234.5) == "1,234.5"  # and nothing stays


def test_numbers_have_the_marks_of_the_language():
    for language, told in (("en", "1,234.5"), ("de", "1.234,5"), ("fr", "1 234,5")):
        with spoken(language):
            assert figures.number(1234.5) == told
            assert figures.percent(0.125) == ("12.5 %" if language == "en" else "12,5 %")


def test_another_language_and_another_format_are_one_sentence(runs):
    doc = runs.document("certified")

    with pytest.raises(UsageError, match="'it' is no language of reports; write one of en, de, fr"):
        report.render(doc, "html", "it")
    with pytest.raises(UsageError, match="json is written in English only"):
        report.render(doc, "json", "de")


def test_the_evidence_is_the_same_in_every_language(runs):
    doc = json.loads(json.dumps(runs.document("attacked")))

    pages = [report.render(doc, "html", name) for name in LANGUAGES]
    assert len({page.partition("</nav>")[2].rpartition("</section>")[0] for page in pages}) == 1


STEPS = json.loads((Path(sentences.__file__).parent / "languages/steps.json").read_text(encoding="utf-8"))


def test_every_translated_step_is_one_that_the_package_says():
    told = set()
    for file in Path(rules.__file__).parents[2].rglob("*.py"):
        told |= {n.value for n in ast.walk(ast.parse(file.read_text(encoding="utf-8"))) if type(n) is ast.Constant}
    said = "\n".join(str(text).replace("`", "") for text in told)

    for english, others in STEPS.items():
        assert others.keys() == set(FOREIGN)
        assert {tuple(values(text)) for text in (english, *others.values())} == {tuple(values(english))}
        # the package puts some of these together from parts
        parts = re.split(r"\{\w+\}|; | \(|, or | trained | was | were |\b1 ", english)
        assert [part for part in parts if part.strip(" ,:()x") not in said] == []


@pytest.mark.parametrize("language", FOREIGN)
@pytest.mark.parametrize("kind", ["certified", "refuted", "undecided", "attacked", "regressor", "shares"])
def test_what_to_do_next_is_in_the_language_of_the_page(runs, kind, language):
    doc = report_schema.read(runs.document(kind))
    with spoken(language):
        told = front.view(doc)

    assert told["steps"]
    assert told["english"] == set()
    assert not [step for step in told["steps"] if re.search(r"\b(which|without|becomes|trainings|people)\b", step)]


def test_advice_that_nobody_translated_stays_english_and_is_marked(runs):
    doc = runs.document("undecided")
    doc["next_steps"] = [{"action": "ask the author", "effect": "", "cost": "", "measured": None}]

    assert '<bdi lang="en">Ask the author.</bdi>' in report.render(doc, "html", "de")
