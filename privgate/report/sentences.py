"""Every word of page one, of the summary and of the terminal's verdict that is ours: what a translator translates.

What comes from elsewhere is not here: names and digests, and the title, message, meaning and advice of a finding, which
a rule's own file holds (``privgate/policy/rules``) and a report carries as text. ``tests/report/test_sentences.py``
renders page one in another language and looks for what is left.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from privgate.documents import LARGE, strict_yaml
from privgate.evidence import figures, verdict

#: a key, and the sentence with its values in braces
FILE = Path(__file__).with_name("sentences.yaml")


@cache
def read_sentences() -> Mapping[str, str]:
    """Return key -> sentence: those of the file, of figures, and of decisions."""
    return {**figures.WORDS, **verdict.WORDS, **strict_yaml.read(FILE, LARGE)}


def say(key: str, **values: object) -> str:
    """Return the sentence of a key with its values in place."""
    return read_sentences()[key].format(**values)


def known(key: str) -> str:
    """Return the sentence of a key as it stands; empty if there is none."""
    return read_sentences().get(key, "")
