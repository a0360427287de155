"""Every mistake a person can make in a policy is named: line, key, what was expected, nearest valid name.

The messages are in ``broken/messages.txt``; PRIVGATE_UPDATE_GOLDENS=1 rewrites the file, to be read as a diff.
"""

import os
import re
from pathlib import Path

import pytest

from privgate import Policy
from privgate.errors import ExitCode, PolicyError
from privgate.policy.rules import METRICS

FOLDER = Path(__file__).parent / "broken"
GOLDEN = FOLDER / "messages.txt"
BROKEN = sorted(p.name for p in FOLDER.glob("*.yaml"))


def message(name):
    with pytest.raises(PolicyError) as caught:
        Policy.load(name)
    assert caught.value.exit_code is ExitCode.USAGE
    # which metrics there are, is no matter of these messages
    return str(caught.value).replace(", ".join(METRICS), "<every metric>")


def test_there_are_enough_mistakes_to_learn_from():
    assert len(BROKEN) >= 30


def test_messages_are_the_golden_ones(monkeypatch):
    monkeypatch.chdir(FOLDER)

    text = "\n\n".join(f"# {name}\n{message(name)}" for name in BROKEN) + "\n"

    if os.environ.get("PRIVGATE_UPDATE_GOLDENS"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


@pytest.mark.parametrize("name", BROKEN)
def test_every_message_names_the_file_and_a_line_that_exists(name, monkeypatch):
    monkeypatch.chdir(FOLDER)
    lines = len((FOLDER / name).read_text(encoding="utf-8").splitlines())

    for line in message(name).splitlines():
        found = re.match(rf"{re.escape(name)}:(\d+): \S", line)
        assert found, line
        assert 1 <= int(found[1]) <= lines + 1
        assert not line.endswith((".", "None"))
