"""The one door for documents: what is built to be slow, large or endless is refused, quickly and in little room."""

import hashlib
import json
import os
import resource
import sys
import time
from itertools import product
from pathlib import Path

import numpy as np
import pytest

from privgate import digest
from privgate.documents import LARGE, SMALL, DocumentError, strict_json, strict_yaml

YAML, JSON = SMALL.size - 10, LARGE.size - 10


def nested(text, most):
    return text * (most // len(text))


SLOW_YAML = {
    "60,000 keys": "".join(f"k{i}: 1\n" for i in range(60_000)),
    "nested lists": nested("[", YAML),
    "nested dashes": nested("- ", YAML),
    "nested mappings": nested("{", YAML),
    "nested questions": nested("? ", YAML),
    "comments": nested("#\n", YAML),
    "one long text": "a: " + "x" * (YAML - 5),
    "one long folded text": "a: " + nested("x\n  ", YAML - 5),
    "escapes": 'a: "' + nested("\\x41", YAML - 9) + '"',
    "digits": "a: " + nested("9", YAML - 5),
    "a number to base 60": "a: " + nested("1:", YAML - 9) + "1",
    "documents": nested("---\n", YAML),
    "items": "a: [" + ",".join("x" * (YAML // 2 - 9)),
    "colons": nested(":", YAML),
    "anchors": nested("&a ", YAML),
    "tags": nested("!", YAML),
    "directives": "".join(f"%TAG !{i}! tag:a{i}\n" for i in range(30_000)) + "--- a",
    "indentation": "\n".join(" " * i + "a:" for i in range(1_400)),
    "aliases of aliases": "a: &a [x, x]\n"
    + "".join(f"{c}: &{c} [*{p}, *{p}]\n" for p, c in zip("abcdefghijklmnop", "bcdefghijklmnopq", strict=True)),
    "an alias of itself": "a: &a [*a]\n",
    "merges of merges": "a: &a {x: 1}\nb: &b {<<: [*a, *a]}\nc: {<<: [*b, *b]}\n",
    "control characters": "a: \x01\n",
    "a date that is none": "a: 2026-13-45\n",
}
SLOW_JSON = {
    "nested lists": nested(b"[", JSON),
    "nested mappings": nested(b'{"a":', JSON),
    "empty lists": b"[" + nested(b"[],", JSON) + b"[]]",
    "many empty lists": b"[" + nested(b"[],", 297_000) + b"[]]",
    "many mappings": b"[" + b'{"abcde":1},' * 49_000 + b"1]",
    "digits": nested(b"9", JSON),
    "many numbers": b"[" + b"9223372036854775807," * 99_000 + b"1]",
    "a long fraction": b"1." + nested(b"9", JSON),
    "a long exponent": b"1e" + nested(b"9", JSON),
    "one long text": b'"' + nested(b"a", JSON) + b'"',
    "escapes": b'"' + nested(b"\\n", JSON) + b'"',
    "allowed escapes": b'"' + b"\\n" * 390_000 + b'"',
    "halves of pairs": b'"' + nested(b"\\ud800", JSON) + b'"',
    "quotes": nested(b'"', JSON),
    "escaped quotes": nested(b'"\\"', JSON),
    "escaped quotes that nothing opens": b'\\"' * 390_000,
    "escaped quotes that nothing closes": b'"' + b'\\"' * 390_000,
    "texts that begin with a backslash": b'"\\' * 390_000,
    "backslashes": nested(b"\\", JSON),
    "blanks": nested(b" ", JSON),
    "one key often": b"{" + b'"a":1,' * 99_000 + b'"a":1}',
    "many keys": b"{" + b",".join(b'"%d":%d' % (i, i) for i in range(99_000)) + b"}",
    "wide characters": ('"' + nested("\U0001f600", JSON // 4) + '"').encode(),
    "no text": b'"\xe9"',
}


def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / (2**20 if sys.platform == "darwin" else 2**10)


def costs(read):
    """Return seconds of processor and MiB that reading took; a ``DocumentError`` is an answer."""
    before, began = peak(), time.process_time()
    said = "read"
    try:
        read()
    except DocumentError as exc:
        said = str(exc)
    assert 0 < len(said) < 400
    return time.process_time() - began, peak() - before


def second():
    """Return what takes a second of a processor of 2024, measured now: a busy machine is slower in both."""
    began = time.process_time()
    for _ in range(10):
        json.loads(json.dumps([{str(i): [i]} for i in range(20_000)]))
    return 2 * (time.process_time() - began)


@pytest.mark.parametrize("name", SLOW_YAML)
@pytest.mark.parametrize("read", [strict_yaml.parse, strict_yaml.as_mlflow_reads])
def test_yaml_that_is_built_to_be_slow_takes_less_than_a_second(name, read):
    seconds, megabytes = costs(lambda: read(SLOW_YAML[name]))
    assert seconds < 1 or seconds < second()
    assert megabytes < 100


@pytest.mark.parametrize("name", SLOW_JSON)
def test_json_that_is_built_to_be_slow_takes_less_than_a_second(name):
    seconds, megabytes = costs(lambda: strict_json.loads(SLOW_JSON[name], LARGE))
    assert seconds < 1 or seconds < second()
    assert megabytes < 100


@pytest.mark.parametrize("opening", [b"", b'"', b"["])
def test_four_times_as_much_json_takes_about_four_times_as_long(opening):
    units = [b"".join(u) for n in (1, 2, 3) for u in product([b"\\", b'"', b"[", b"}", b",", b"1", b"a"], repeat=n)]

    def seconds(unit, size):
        text = opening + nested(unit, size)
        return min(costs(lambda: strict_json.loads(text, LARGE))[0] for _ in range(3))

    slow = [u for u in units if costs(lambda u=u: strict_json.loads(opening + nested(u, 8_000), LARGE))[0] > 0.005]
    assert [u for u in slow if seconds(u, 16_000) > 8 * max(seconds(u, 4_000), 0.001)] == []


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ('{"a": 1, "a": 1}', "key 'a' twice"),
        ('[{"a": {"b": 1, "b": 2}}]', "key 'b' twice"),
        ("[NaN]", "NaN"),
        ("[-Infinity]", "Infinity"),
        ("1e999", "not finite"),
        ("9223372036854775808", "64 bits"),
        ("[" * 65 + "]" * 65, "64 deep"),
        ('"\\ud800"', "UTF-8"),
        ("{", "not JSON"),
        ("", "not JSON"),
        ("[1] 2", "not JSON"),
    ],
)
def test_json_that_two_readers_may_read_differently_is_refused(text, says):
    with pytest.raises(DocumentError, match=says):
        strict_json.loads(text, LARGE)


def test_json_at_its_limits_is_read():
    assert strict_json.loads("[" * 64 + '"[[[\\"[["' + "]" * 64, LARGE)
    assert strict_json.loads("[9223372036854775807, -9223372036854775808, 1e308]")[0] == 2**63 - 1
    assert len(strict_json.loads("[" + "1," * 19_998 + "1]")) == 19_999
    assert strict_json.loads('["\\ud83d\\ude00", "é"]') == ["😀", "é"]


def test_only_regular_files_are_read(tmp_path):
    os.mkfifo(tmp_path / "pipe")
    (tmp_path / "link").symlink_to(tmp_path / "file")
    (tmp_path / "file").write_text("a: 1\n")
    for path in (tmp_path / "pipe", tmp_path, "/dev/zero", "/dev/tty"):
        with pytest.raises((DocumentError, OSError), match=r"no regular file|No such device"):
            strict_json.content(tmp_path / path)
    assert strict_yaml.read(tmp_path / "link") == {"a": 1}  # mounted configuration is made of links
    (tmp_path / "file").write_bytes(b" " * (SMALL.size + 1))
    with pytest.raises(DocumentError, match="larger than 1 MiB"):
        strict_json.content(tmp_path / "file")
    with pytest.raises(DocumentError, match="name"):
        strict_json.content(tmp_path / "a\0b")


def test_a_model_folder_holds_plain_files_with_plain_names(tmp_path):
    (tmp_path / "good").write_text("x")
    assert list(digest.of_files(tmp_path)) == ["good"]
    os.mkfifo(tmp_path / "pipe")
    with pytest.raises(DocumentError, match="no regular file"):
        digest.of_files(tmp_path)
    with pytest.raises(DocumentError, match="no regular file"):
        digest.of_file(tmp_path / "pipe")
    (tmp_path / "pipe").unlink()
    for target in ("good", ".", "nowhere"):  # a file, a folder, nothing
        (tmp_path / "link").symlink_to(target)
        with pytest.raises(DocumentError, match="is a link"):
            digest.of_files(tmp_path)
        (tmp_path / "link").unlink()
    (tmp_path / "cache").mkdir()
    (tmp_path / "cache" / "link").symlink_to("good")
    assert list(digest.of_files(tmp_path, exclude=["cache"])) == ["good"]
    (tmp_path / "cache" / "link").unlink()
    try:
        (tmp_path / os.fsdecode(b"\xff\xfe")).touch()
    except OSError:
        pytest.skip("this file system takes no name that is not UTF-8")
    with pytest.raises(DocumentError, match="no UTF-8 name"):
        digest.of_files(tmp_path)


def test_what_mlflow_reads_is_what_the_structure_says():
    text = "flavors: &f\n  sklearn: {code: null}\nsame: *f\nwhen: 2026-01-02\nsize: 010\n"
    found = strict_yaml.as_mlflow_reads(text)
    assert found["same"] == found["flavors"] == {"sklearn": {"code": None}}
    assert found["size"] == 8  # as YAML 1.1 has it, and MLflow
    for wrong in ("flavors: {a: 1, a: 2}", "a: !!python/name:os.system x", "b: {<<: {a: 1}}", "a: " + "9" * 200):
        with pytest.raises(DocumentError):
            strict_yaml.as_mlflow_reads(wrong)


def test_the_key_that_is_there_twice_is_named():
    with pytest.raises(DocumentError, match="holds the key 'b' twice"):
        strict_json.loads('{"a": 1, "b": 2, "c": 3, "b": 4}')


def test_a_digest_is_of_all_that_is_there(tmp_path):
    content = b"x" * (1 << 20) + b"y"
    (tmp_path / "b").write_bytes(content)
    (tmp_path / "a").write_bytes(b"")
    files = digest.of_files(tmp_path)

    assert list(files.values()) == [f"sha256:{hashlib.sha256(c).hexdigest()}" for c in (b"", content)]
    assert digest.of_manifest(files) == digest.of_manifest(dict(reversed(files.items()))) == digest.of_json(files)
    assert digest.of_array(np.arange(3)) == digest.of_bytes(b"<i8(3,)", np.arange(3).tobytes())
    assert digest.of_array(np.array(["a", 1], object)) == digest.of_json(["a", "1"])


@pytest.mark.parametrize(("name", "make"), [("pipe", os.mkfifo), ("a\udcff", Path.touch)], ids=["a pipe", "no UTF-8"])
def test_what_is_no_plain_file_with_a_plain_name_has_no_digest(tmp_path, name, make):
    make(tmp_path / name)
    with pytest.raises(
        DocumentError, match=f"is no {'regular file' if name == 'pipe' else 'UTF-8 name'}; model folders"
    ):
        digest.of_files(tmp_path)
