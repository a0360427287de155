"""Every mistake a person can make in a policy is named: line, key, what was expected, nearest valid name.

The messages are in ``broken/messages.txt``; PRIVGATE_UPDATE_GOLDENS=1 rewrites the file, to be read as a diff.
"""

import os
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


def test_messages_are_the_golden_ones(monkeypatch):
    monkeypatch.chdir(FOLDER)

    text = "\n\n".join(f"# {name}\n{message(name)}" for name in BROKEN) + "\n"

    if os.environ.get("PRIVGATE_UPDATE_GOLDENS"):
        GOLDEN.write_text(text, encoding="utf-8")
    assert text == GOLDEN.read_text(encoding="utf-8")


WRONG = ["1.5", "yes", "text", "[1.5]", "[[1]]", "{a: 1}", "{a: {b: [c]}}", "null", "'2020-01-01'", "-1", ".nan", "[]"]
#: what is right for the key
RIGHT = {
    "schema": (), "name": ("yes", "text", "'2020-01-01'"), "version": ("yes", "text", "'2020-01-01'"),
    "description": ("yes", "text", "'2020-01-01'"), "extends": ("null",), "waivers": ("[]",), "never_waivable": ("[]",),
    "approves": ("yes", "text", "'2020-01-01'"), "audit": (), "data": (),
    "valid_days": (), "file": (), "rules": (),
}  # fmt: skip


def test_every_key_of_a_policy_is_tried_with_wrong_kinds():
    from privgate.policy.document_shape import Document

    assert set(RIGHT) == {name.rstrip("_") for name in Document.model_fields}


@pytest.mark.parametrize("whole", [True, False], ids=["beside the other keys", "alone"])
@pytest.mark.parametrize("key", sorted(RIGHT))
def test_a_value_of_a_wrong_kind_is_one_sentence(tmp_path, key, whole):
    base = {"schema": "privgate/policy/v1", "name": "n", "version": "'1'", "rules": "[{metric: dtp, max: 1}]"}
    path = tmp_path / "policy.yaml"
    for value in (v for v in WRONG if v not in RIGHT[key]):
        keys = {**(base if whole else {}), key: value}
        path.write_text("".join(f"{k}: {v}\n" for k, v in keys.items()))
        said = message(str(path))
        assert key in said, value
        assert all(len(line) < 600 for line in said.splitlines())


@pytest.mark.parametrize(
    "content",
    [
        "password: hunter2",
        "hunter2\n: [",
        "{hunter2: [",
        "- hunter2",
        "hunter2",
        "schema: hunter2",
        "name: &hunter2 x\nb: *hunter3",
    ],
)
def test_nothing_is_printed_of_a_file_that_is_no_policy(tmp_path, write_policy, content):
    (tmp_path / "other.yaml").write_text(content)
    said = message(str(write_policy("extends: ./other.yaml\nrules: []\n")))
    assert "is no policy" in said
    assert "hunter" not in said
