"""The sentences of page one, of the summary and of the terminal's verdict.

Figures and decisions have their own words, as have the title, message, meaning and advice of a finding, which a report
carries as text.
"""

from collections.abc import Mapping
from functools import cache
from pathlib import Path

from privgate.documents import LARGE, strict_yaml

#: a key, and the sentence with its values in braces
FILE = Path(__file__).with_name("sentences.yaml")


@cache
def read_sentences() -> Mapping[str, str]:
    """Return key -> sentence."""
    return dict(strict_yaml.read(FILE, LARGE))


def say(key: str, **values: object) -> str:
    """Return the sentence of a key with its values in place."""
    return read_sentences()[key].format(**values)


def known(key: str) -> str:
    """Return the sentence of a key as it stands; empty if there is none."""
    return read_sentences().get(key, "")
