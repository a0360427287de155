"""A long run of tests that goes on where it was interrupted: ``pytest --resume FILE``.

Each test that has ended is a line of FILE, with a digest of the tree it ran on. A rerun on the same tree runs what has
not passed; on another tree it begins anew.
"""

import time
from collections import Counter, defaultdict
from pathlib import Path

import pytest

import kept

#: what tests rest on; those of the documentation rest on DOCS too
TREE = ("privgate", "tests", "examples", "policies", "hooks", "packages", "pyproject.toml", "constraints.txt")
DOCS = ("docs", "README.md", "CHANGELOG.md")
#: outcomes that are not asked for again
ENDED_RIGHT = {"passed", "xfailed"}


def pytest_addoption(parser):
    group = parser.getgroup("resumed")
    group.addoption("--resume", type=Path, metavar="FILE", help="keep what has ended there, and go on from it")
    group.addoption("--most-minutes", type=float, default=0.0, help="begin no test after so many minutes; 0: no end")
    group.addoption("--resumed-table", type=Path, metavar="FILE", help="write a table of what has ended there")
    group.addoption("--begins", type=Path, metavar="FILE", help="what tests measured: removed where nothing is kept")


def pytest_configure(config):
    if not config.getoption("resume"):
        return
    worker = getattr(config, "workerinput", None)
    if worker is not None:
        config.pluginmanager.register(_Run(set(worker["resumed_over"]), worker["resumed_until"]))
        return
    minutes = config.getoption("most_minutes")
    before = _Kept(config)
    config.pluginmanager.register(before)
    config.pluginmanager.register(_Run(before.over, time.time() + 60 * minutes if minutes else None))


def plain(nodeid):
    """Return a test's name without the group that xdist adds to it.

    >>> plain("t.py::a[x@b]@tests/guard"), plain("t.py::a[x@b]"), plain("t.py::a@servers")
    ('t.py::a[x@b]', 't.py::a[x@b]', 't.py::a')
    """
    name, mark, group = nodeid.rpartition("@")
    return name if mark and "]" not in group else nodeid


class _Run:
    """Where tests run: passes over what has passed, and begins none after the end of the time."""

    def __init__(self, over, until):
        self.over, self.until = over, until

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, config, items):
        gone = [i for i in items if plain(i.nodeid) in self.over]
        if gone:
            config.hook.pytest_deselected(items=gone)
            items[:] = [i for i in items if plain(i.nodeid) not in self.over]

    @pytest.hookimpl(optionalhook=True)
    def pytest_configure_node(self, node):
        """Give a worker the same: one that replaces another must collect the same tests."""
        node.workerinput["resumed_over"] = sorted(self.over)
        node.workerinput["resumed_until"] = self.until

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self):
        return True if self.until is not None and time.time() > self.until else None


class _Kept:
    """Where the run was started: keeps what has ended, says what remains, and writes the table."""

    def __init__(self, config):
        self.config, self.path = config, config.getoption("resume")
        folder, libraries = config.rootpath, kept.environment()
        self.tree = kept.of(libraries, kept.digest(*(folder / name for name in TREE)))
        self.tree_and_docs = kept.of(self.tree, kept.digest(*(folder / name for name in DOCS)))
        self.asked, self.reports = set(), defaultdict(list)
        rows = kept.read(self.path)
        self.rows = {r["test"]: r for r in rows if r["tree"] == self.rests_on(r["test"])}
        if len(self.rows) < len({r["test"] for r in rows}) or not rows:
            self.path.unlink(missing_ok=True)
            for row in self.rows.values():
                kept.add(self.path, row)
            if not self.rows and config.getoption("begins"):
                config.getoption("begins").unlink(missing_ok=True)
        self.over = {test for test, row in self.rows.items() if row["outcome"] in ENDED_RIGHT}
        self.anew = len({r["test"] for r in rows} - set(self.rows))

    def rests_on(self, test):
        return self.tree_and_docs if test.startswith(("tests/docs/", "tests/test_docs")) else self.tree

    def pytest_report_header(self):
        lines = [f"{self.path}: {len(self.over)} tests passed on this very tree before and do not run again"]
        again = len(self.rows) - len(self.over)
        lines += [f"{self.path}: {again} did not pass on this tree and run again"] if again else []
        return lines + ([f"{self.path}: {self.anew} ended on another tree and count as not run"] if self.anew else [])

    def pytest_collection_finish(self, session):
        self.asked |= {plain(i.nodeid) for i in session.items}

    @pytest.hookimpl(optionalhook=True)
    def pytest_xdist_node_collection_finished(self, ids):
        self.asked |= set(map(plain, ids))

    def pytest_runtest_logreport(self, report):
        test = plain(report.nodeid)
        self.reports[test].append(report)
        if report.when in {"setup", "call"}:  # "???": its worker has died
            return
        reports = self.reports.pop(test)
        row = {
            "test": test,
            **_outcome(reports),
            "seconds": round(sum(getattr(r, "duration", 0.0) for r in reports), 2),
            "tree": self.rests_on(test),
        }
        self.rows[test] = row
        kept.add(self.path, row)

    def remaining(self):
        return self.asked - set(self.rows) if self.asked else set()

    @pytest.hookimpl(trylast=True)
    def pytest_sessionfinish(self, session):
        if session.exitstatus == pytest.ExitCode.NO_TESTS_COLLECTED and self.over:
            session.exitstatus = pytest.ExitCode.OK
        if session.exitstatus == pytest.ExitCode.OK and self.remaining():
            session.exitstatus = pytest.ExitCode.TESTS_FAILED
        table = self.config.getoption("resumed_table")
        if table and self.rows:
            table.write_text(written(self.rows.values(), len(self.remaining())), encoding="utf-8")

    def pytest_terminal_summary(self, terminalreporter):
        remaining = len(self.remaining())
        if remaining:
            terminalreporter.write_line(f"{remaining} tests remain; the same command goes on from here", red=True)


def _outcome(reports):
    """Return how a test ended, and why where it did not run."""
    if any(r.failed for r in reports):
        return {"outcome": "failed"}
    skipped = next((r for r in reports if r.skipped), None)
    if skipped is None:
        return {"outcome": "passed"}
    if hasattr(skipped, "wasxfail"):
        return {"outcome": "xfailed", "reason": skipped.wasxfail}
    said = skipped.longrepr[2] if isinstance(skipped.longrepr, tuple) else str(skipped.longrepr)
    return {"outcome": "skipped", "reason": said.removeprefix("Skipped: ")}


def written(rows, remaining):
    """Return the table: a line a file, and below it what failed and why something did not run."""
    files = defaultdict(list)
    for row in rows:
        files[row["test"].partition("::")[0]].append(row)
    count = Counter(row["outcome"] for row in rows)
    said = ", ".join(f"{count[name]} {name}" for name in ("passed", "failed", "skipped", "xfailed") if count[name])
    minutes = sum(row["seconds"] for row in rows) / 60
    lines = [
        "# The slow suite",
        "",
        f"Made by `make test-slow`; do not edit. Machine: {kept.machine()}.",
        f"{said}; {remaining} not run. {minutes:.0f} minutes of one core.",
        "",
        "| test file | passed | failed | skipped | xfailed | minutes |",
        "| --- | ---: | ---: | ---: | ---: | ---: |",
    ]
    for name, own in sorted(files.items()):
        outcomes = Counter(row["outcome"] for row in own)
        cells = " | ".join(str(outcomes[name] or "") for name in ("passed", "failed", "skipped", "xfailed"))
        lines.append(f"| {name} | {cells} | {sum(row['seconds'] for row in own) / 60:.1f} |")
    why = Counter((row["test"].partition("::")[0], row["outcome"], row["reason"]) for row in rows if "reason" in row)
    lines += ["", *(f"- {name}: {times} {outcome}: {reason}" for (name, outcome, reason), times in sorted(why.items()))]
    lines += [f"- failed: `{row['test']}`" for row in rows if row["outcome"] == "failed"]
    return "\n".join(lines).rstrip() + "\n"
