"""A long suite that is interrupted goes on: what passed on this tree does not run again, everything else does."""

import json
import shutil
import subprocess
from pathlib import Path

import pytest

from tests import resumed

pytest_plugins = ["pytester"]
SUITE = """
from pathlib import Path
import pytest

def ran(name):
    with open("ran.txt", "a") as f:
        f.write(name + " ")

@pytest.mark.parametrize("x", ["a@b", "c"])
def test_one(x):
    ran("one")

def test_two():
    ran("two")
    assert not Path("broken").exists()

def test_three():
    ran("three")
    if Path("killed").exists():
        pytest.exit("stopped by hand")

def test_four():
    pytest.skip("no such library")
"""


GROUPED = """
@pytest.hookimpl(tryfirst=True)
def pytest_collection_modifyitems(items):
    for item in items:
        item.add_marker(pytest.mark.xdist_group("servers"))
"""


class Suite:
    """A suite whose conftest.py is the plugin itself: workers have no other way to import it."""

    def __init__(self, pytester):
        self.home = pytester
        pytester.makeconftest(Path(resumed.__file__).read_text() + GROUPED)
        pytester.makeini(f"[pytest]\npythonpath = {Path(resumed.__file__).parents[1] / 'examples'}\n")
        self.file = pytester.path / "tests" / "test_some.py"
        self.file.parent.mkdir()
        self.file.write_text(SUITE)

    def run(self, *more):
        """Return what was printed, and the names that ran."""
        ran = self.home.path / "ran.txt"
        ran.unlink(missing_ok=True)
        options = ("-p", "no:cacheprovider", "--resume", "build/kept.jsonl")
        result = self.home.runpytest_inprocess(*options, "--resumed-table", "table.md", *more)
        return result, ran.read_text().split() if ran.exists() else []

    def mark(self, name, *, there):
        path = self.home.path / name
        path.touch() if there else path.unlink()


@pytest.fixture
def suite(pytester, monkeypatch):
    monkeypatch.setenv("PYTEST_DISABLE_PLUGIN_AUTOLOAD", "1")  # seconds of imports a worker
    return Suite(pytester)


def test_a_failed_test_runs_again_and_nothing_that_passed(suite):
    suite.mark("broken", there=True)
    first, ran = suite.run()
    suite.mark("broken", there=False)
    second, again = suite.run()
    third, nothing = suite.run()

    assert (first.ret, second.ret, third.ret) == (1, 0, 0)
    assert (ran, again, nothing) == (["one", "one", "two", "three"], ["two"], [])
    first.stdout.fnmatch_lines(["build/kept.jsonl: 0 tests passed on this very tree before*"])
    second.stdout.fnmatch_lines(["build/kept.jsonl: 3 tests passed on this very tree before*", "*: 2 did not pass*"])
    table = (suite.home.path / "table.md").read_text()
    assert "4 passed, 1 skipped; 0 not run." in table
    assert "| tests/test_some.py | 4 |  | 1 |  | 0.0 |" in table
    assert "- tests/test_some.py: 1 skipped: no such library" in table


def test_an_interrupted_run_goes_on_behind_what_has_ended(suite):
    suite.mark("killed", there=True)
    first, ran = suite.run()
    suite.mark("killed", there=False)
    second, again = suite.run()

    assert (first.ret, second.ret) == (2, 0)
    assert (ran, again) == (["one", "one", "two", "three"], ["three"])
    assert "2 tests remain; the same command goes on from here" in first.stdout.str()


def test_half_a_line_of_a_killed_run_counts_as_not_run(suite):
    assert len(suite.run()[1]) == 4
    record = suite.home.path / "build" / "kept.jsonl"
    whole, _, _ = record.read_text().partition('{"test": "tests/test_some.py::test_two')
    record.write_text(whole + '{"test": "tests/te')

    assert suite.run()[1] == ["two", "three"]
    assert suite.run()[1] == []


@pytest.mark.quick(1)
@pytest.mark.parametrize("path", ["tests/test_some.py", "privgate/new.py", "pyproject.toml"])
def test_another_tree_runs_everything(suite, path):
    measured = suite.home.path / "measured.jsonl"
    measured.write_text("old\n")
    assert suite.run("--begins", str(measured))[1] == ["one", "one", "two", "three"]
    assert not measured.exists()
    measured.write_text("of this tree\n")
    assert suite.run("--begins", str(measured))[1] == []
    assert measured.exists()
    other = suite.home.path / path
    other.parent.mkdir(exist_ok=True)
    other.write_text((other.read_text() if other.exists() else "") + "# changed\n")

    result, ran = suite.run("--begins", str(measured))

    assert ran == ["one", "one", "two", "three"]
    assert not measured.exists()
    assert "5 ended on another tree and count as not run" in result.stdout.str()


def test_what_runs_leave_and_their_tables_are_not_the_tree(suite):
    assert len(suite.run()[1]) == 4
    for name in ("tests/__pycache__/x.pyc", "tests/slow-results.md", "docs/page.md"):
        path = suite.home.path / name
        path.parent.mkdir(exist_ok=True)
        path.write_text("x")

    assert suite.run()[1] == []


def test_a_test_of_the_documentation_rests_on_it(suite):
    (suite.home.path / "docs").mkdir()
    (suite.home.path / "tests" / "docs").mkdir()
    suite.file.rename(suite.home.path / "tests" / "docs" / "test_some.py")
    assert len(suite.run()[1]) == 4
    (suite.home.path / "docs" / "page.md").write_text("x")

    assert len(suite.run()[1]) == 4


def test_no_test_begins_after_the_time_and_the_run_does_not_end_well(suite):
    first, ran = suite.run("--most-minutes", "1e-9")
    second, again = suite.run("--most-minutes", "10")

    assert (first.ret, ran) == (1, [])
    assert "5 tests remain; the same command goes on from here" in first.stdout.str()
    assert (second.ret, len(again)) == (0, 4)


def test_workers_pass_over_what_the_first_process_kept(suite):
    suite.mark("broken", there=True)
    workers = ("-p", "xdist", "-n", "1", "--dist", "loadgroup")
    first, ran = suite.run(*workers)
    suite.mark("broken", there=False)
    second, again = suite.run(*workers)
    third, nothing = suite.run(*workers)
    late, _ = suite.run(*workers, "--resume", "build/late.jsonl", "--most-minutes", "1e-9")

    assert (first.ret, second.ret, third.ret, late.ret) == (1, 0, 0, 1)
    assert (sorted(ran), again, nothing) == (["one", "one", "three", "two"], ["two"], [])
    assert "5 tests remain" in late.stdout.str()
    names = [json.loads(line)["test"] for line in (suite.home.path / "build" / "kept.jsonl").read_text().splitlines()]
    assert "tests/test_some.py::test_one[a@b]" in names
    assert not [n for n in names if n.endswith("servers")]


def test_a_worker_that_dies_is_a_failed_test_that_runs_again(suite):
    suite.file.write_text(
        "import os\nfrom pathlib import Path\n"
        "def test_dies():\n    Path('dead').exists() or (Path('dead').touch(), os._exit(1))\n"
    )
    first, _ = suite.run("-p", "xdist", "-n", "1")
    second, _ = suite.run("-p", "xdist", "-n", "1")

    assert (first.ret, second.ret) == (1, 0)


@pytest.mark.slow
@pytest.mark.skipif(shutil.which("make") is None, reason="no make here")
def test_every_night_goes_on_behind_a_suite_that_failed(tmp_path):
    one = tmp_path / "one"
    one.write_text('#!/bin/sh\ntest "$2" != bench\n')
    one.chmod(0o755)
    root = Path(resumed.__file__).parents[1]
    command = ["make", "--silent", "--old-file", ".venv/.installed", "nightly"]

    failed = subprocess.run([*command, f"MAKE={one}"], cwd=root, capture_output=True, text=True, check=False)
    done = subprocess.run([*command, "MAKE=true"], cwd=root, capture_output=True, text=True, check=False)

    said = [line.split(" after ")[0] for line in failed.stdout.splitlines()]
    assert said[:2] == ["test-slow: done", "bench: FAILED"]
    assert said[2:] == ["reproduce: done", "kinds: done", "utility: done", "truth: done"]
    assert failed.returncode != 0
    assert (done.returncode, done.stdout.count(": done after")) == (0, 6)
