"""The loader of policy files: strict where other readers of YAML guess."""

import pytest

from privgate.documents import DocumentError, strict_yaml
from privgate.policy.problems import PolicyFileError, parse, read


def test_reads_plain_values_and_remembers_every_line():
    tree = parse("a: 1\nb:\n  - x: 1e-6\n  - yes\nc: 2026-11-21\n", "p.yaml")

    assert tree.value == {"a": 1, "b": [{"x": 1e-6}, "yes"], "c": "2026-11-21"}
    assert tree.mark(("b", 0, "x")) == ("p.yaml", 3, 5)
    assert tree.mark(("b", 1)).line == 4
    assert tree.mark(("b", 1, "unknown")).line == 4


@pytest.mark.parametrize(
    ("text", "line", "words"),
    [
        ("a: 1\na: 2\n", 2, "duplicate key; the first is on line 1"),
        ("a: .nan\n", 1, "not a finite number"),
        ("a: -.inf\n", 1, "not a finite number"),
        ("a: 1e999\n", 1, "not a finite number"),
        ("a: 010\n", 1, "not a finite number"),
        ("a: 1_000\n", 1, "not a finite number"),
        ("a: 0x10\n", 1, "not a finite number"),
        ("a: &x 1\nb: *x\n", 2, "alias"),
        ("a: !!python/name:os.system 1\n", 1, "tag"),
        ("1: a\n", 1, "not text"),
        ("? [a]\n: 1\n", 1, "not text"),
        ("a: [1\n", 2, "not YAML"),
        ("- a\n", 1, "not a mapping"),
        ("", 1, "empty"),
        ("a: 1\n---\na: 2\n", 2, "not YAML"),
    ],
)
def test_refuses_what_two_readers_may_read_differently(text, line, words):
    with pytest.raises(PolicyFileError, match=words) as caught:
        parse(text, "p.yaml")

    (problem,) = caught.value.problems
    assert problem.mark.line == line
    assert str(problem).startswith("p.yaml")


def test_a_file_that_cannot_be_read_says_why(tmp_path):
    with pytest.raises(PolicyFileError, match="No such file"):
        read(tmp_path / "none.yaml")
    binary = tmp_path / "binary.yaml"
    binary.write_bytes(b"a: \xff\xfe")
    with pytest.raises(PolicyFileError, match="not UTF-8"):
        read(binary)
    large = tmp_path / "large.yaml"
    large.write_text("a: " + "x" * (1 << 20))
    with pytest.raises(PolicyFileError, match="larger than 1 MiB"):
        read(large)


def test_nesting_without_end_is_refused():
    with pytest.raises(PolicyFileError, match="not YAML"):
        parse("a: " + "[" * 5000 + "]" * 5000, "p.yaml")


@pytest.mark.parametrize("text", ["a: \x00", "%YAML 9.9\n---\na: 1\n", "a: 'x"])
def test_what_is_no_yaml_says_so(text):
    with pytest.raises(PolicyFileError, match=r"not YAML|not text|tag"):
        parse(text, "p.yaml")


@pytest.mark.parametrize("text", ["a: &x [*x]", "a: &a [1]\nb: &b [*a]\nc: *b", "a: &x [1]\nb: [" + "*x, " * 101 + "]"])
def test_a_list_that_mlflow_wrote_twice_is_read_and_nothing_that_grows(text):
    assert strict_yaml.as_mlflow_reads("a: &x [1]\nb: *x") == {"a": [1], "b": [1]}
    with pytest.raises(DocumentError, match="alias"):
        strict_yaml.as_mlflow_reads(text)
