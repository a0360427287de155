"""The sentences of page one stand in one table."""

import re
from pathlib import Path

from privgate.report import text as words


def test_every_sentence_is_used_and_every_used_one_exists():
    folder = Path(words.__file__).parent
    code = "".join(p.read_text(encoding="utf-8") for p in [*folder.rglob("*.py"), *folder.rglob("*.html")])
    prefixes = ("condition.", "kind.", "release.", "result.", "scope.", "column.", "next.",
                "reason.", "question.", "harm.", "bad.", "file.", "sure.")  # fmt: skip
    for key in words.read_sentences():
        assert f'"{key}"' in code or f"'{key}'" in code or key.startswith(prefixes), key


def test_a_sentence_takes_the_values_that_it_names():
    for key, text in words.read_sentences().items():
        values = dict.fromkeys(re.findall(r"\{(\w+)\}", text), "x")
        assert "{" not in words.say(key, **values)
