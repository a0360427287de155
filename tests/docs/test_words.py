"""One vocabulary: the page of words is the table, `explain` knows all of it, and reports use nothing else."""

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner

from privgate import vocabulary
from privgate.cli import cli
from privgate.errors import Outcome
from privgate.report.text import read_sentences

PAGE = Path(__file__).parents[2] / "docs/reference.md"
WORDS = vocabulary.WORDS | vocabulary.SENSITIVITY
#: what decisions, people and conditions were called before, in texts of ours
OLD = re.compile(r"\b(blocked|inconclusive|broken|precondition|people outside|people to compare)\b", re.IGNORECASE)

#: the same in every text of the package, where a person was a unit, and rules passed and failed
OLDER = re.compile(
    OLD.pattern.replace("(", "(units?|non-members?|passes|passed|can(?:not| never) (?:pass|fail)|per-unit|", 1),
    re.IGNORECASE,
)
#: units of measure and of differential privacy, what breaks in the plain sense, and passes of training
PLAIN = re.compile(
    r"unit of|another unit|the same unit|units frozen|hidden units|of its unit|, the unit and|delta, unit|no such unit|"
    r"report is broken|epoch passes|font-size|\\b\(unit|\^\(passed.*"
)
PACKAGE = Path(vocabulary.__file__).parent


def texts(file: Path) -> Iterator[tuple[int, str]]:
    """Yield each text of a module with three words or more, its values left out; no docstring."""
    if file.suffix == ".html":  # what a template says outside of its code, and the texts of several words within
        code = re.compile(r"\{[%{].*?[%}]\}", re.DOTALL)
        said = code.sub(lambda m: "\n".join(q for q in re.findall('"([^"]*)"', m[0]) if " " in q), file.read_text())
        yield from ((0, text) for text in re.sub(r"<[^>]*>", " ", said).splitlines())
        return
    tree, seen = ast.parse(file.read_text(encoding="utf-8")), set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Expr) and isinstance(node.value, ast.Constant):
            seen.add(node.value)
        elif isinstance(node, ast.JoinedStr):
            seen |= set(node.values)
            yield node.lineno, "".join(str(v.value) for v in node.values if isinstance(v, ast.Constant))
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and node not in seen:
            yield node.lineno, re.sub(r"{\w+}", "", node.value)


def test_no_text_of_the_package_uses_an_older_word():
    found, read = [], 0
    for file in sorted((*PACKAGE.rglob("*.py"), *PACKAGE.rglob("*.html"))):
        for line, text in texts(file) if file.name != "vocabulary.py" else ():
            wordy = len(re.findall(r"[a-z]{2,}", text)) >= 3
            read += wordy
            if wordy and not text.startswith("precondition:") and OLDER.search(PLAIN.sub("", text)):
                found.append(f"{file.relative_to(PACKAGE)}:{line}: {text}")

    assert read > 2500
    assert not found


def test_the_page_of_words_is_the_table():
    rows = "".join(f"| {word} | {meaning} |\n" for word, meaning in WORDS.items())
    assert PAGE.read_text(encoding="utf-8").endswith(f"| --- | --- |\n{rows}")


@pytest.mark.parametrize("word", WORDS)
def test_explain_knows_every_word(word):
    found = CliRunner().invoke(cli, ["explain", *word.upper().split()])

    assert found.exit_code == 0
    assert WORDS[word].split(".")[0] in found.output


def test_each_outcome_is_a_word():
    assert {o.word for o in Outcome} <= {*WORDS, "approved with a warning", "not needed"}


def test_the_sentences_of_reports_use_the_words():
    assert {k for k, text in read_sentences().items() if OLD.search(re.sub(r"{\w+}", "", text))} == set()
    assert [word for word, meaning in WORDS.items() if OLD.search(meaning)] == []
