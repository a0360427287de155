"""How many small changes of the modules that decide the tests notice, those of this commit and of earlier ones.

``python tests/mutants.py HEAD ead5284`` draws 20 changes a module of HEAD's package, the same every time, and runs of
each commit's tests those that reach the changed line, the cheapest first, until one fails. Each suite runs once
beforehand, to learn who reaches what. What is known lies in ``build/mutants``, so that a run goes on where one was
interrupted; ``--only`` names the tests that a suite has, where all of them would take too long.
"""

import argparse
import ast
import collections
import contextlib
import functools
import gc
import json
import os
import random
import signal
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[1]
#: modules, and in what folder or file their own tests lie
MODULES = {
    "influence/aggregate.py": "influence",
    "policy/judging.py": "policy",
    "guard/checks.py": "guard",
    "guard/statement.py": "guard",
    "run/refit.py": "run",
    "claims/accounting.py": "claims",
    "evidence/telling.py": "report",
    "documents/strict_json.py": "documents",
    "digest.py": "documents",
    "training/ledger.py": "training",
}
SEED, NUMBER = 20261123, 20  # of mutants a module
NEAR, FAR, LIMIT = 8.0, 4.0, 60.0  # seconds of own tests, of others, of one run whatever happens

FLIPS = {ast.Lt: ast.LtE, ast.LtE: ast.Lt, ast.Gt: ast.GtE, ast.GtE: ast.Gt, ast.Eq: ast.NotEq, ast.NotEq: ast.Eq}
FLIPS |= {ast.Is: ast.IsNot, ast.IsNot: ast.Is, ast.In: ast.NotIn, ast.NotIn: ast.In, ast.And: ast.Or, ast.Or: ast.And}
FLIPS |= {ast.Add: ast.Sub, ast.Sub: ast.Add, ast.Mult: ast.Div, ast.Div: ast.Mult, ast.FloorDiv: ast.Mult}
NAMES = {"min": "max", "max": "min", "any": "all", "all": "any"}


def changes(node: ast.AST) -> Iterator[tuple[ast.AST, str]]:
    """Yield a part of the source, and what comes in its place."""
    match node:
        case ast.Compare(left, [op], [right]):
            yield node, ast.unparse(ast.Compare(left, [FLIPS[type(op)]()], [right]))
        case ast.BoolOp(op, values):
            yield node, ast.unparse(ast.BoolOp(FLIPS[type(op)](), values))
            yield from ((node, ast.unparse(ast.BoolOp(op, [v for v in values if v is not out]))) for out in values)
        case ast.BinOp(left, op, right) if type(op) in FLIPS:
            yield node, ast.unparse(ast.BinOp(left, FLIPS[type(op)](), right))
        case ast.UnaryOp(ast.Not(), operand):
            yield node, ast.unparse(operand)
        case ast.If(test) | ast.IfExp(test):
            yield test, f"not ({ast.unparse(test)})"
        case ast.Constant(bool() | int() | float() as value):
            yield node, str(not value if isinstance(value, bool) else value + 1)
        case ast.Return(ast.expr() as value) if not isinstance(value, ast.Constant):
            yield value, "None"
        case ast.Raise() | ast.Expr(ast.Call()):
            yield node, "pass"
        case ast.comprehension(ifs=ifs):
            yield from ((test, "True") for test in ifs)
        case ast.Call(ast.Name(name) as called) if name in NAMES:
            yield called, NAMES[name]


def mutants(path: Path) -> list[tuple[int, int, int, str, str]]:
    """Return those of ``possible`` that are drawn of a module."""
    return sorted(random.Random(f"{SEED} {path.name}").sample(possible(path), NUMBER))


def possible(path: Path) -> list[tuple[int, int, int, str, str]]:
    """Return first line, last line, column, what is changed there, and the source with the change."""
    source = path.read_bytes()
    tree = ast.parse(source)
    for kind in (c for c in ast.walk(tree) if isinstance(c, ast.ClassDef)):  # what a class is made with stays
        kind.decorator_list, kind.body = [], [n for n in kind.body if isinstance(n, ast.FunctionDef)]
    starts, found = [0, *(i + 1 for i, byte in enumerate(source) if byte == ord("\n"))], set()
    for at, new in (change for node in ast.walk(tree) for change in changes(node)):
        first, last = starts[at.lineno - 1] + at.col_offset, starts[at.end_lineno - 1] + at.end_col_offset
        put = new if isinstance(at, ast.stmt) or new in NAMES else f"({new})"
        what = f"{' '.join(source[first:last].decode().split())} -> {new}"
        made = (source[:first] + put.encode() + source[last:]).decode()
        found.add((at.lineno, at.end_lineno, at.col_offset, what, made))
    return sorted(found)


def codes(made: types.CodeType) -> Iterator[tuple[str, types.CodeType]]:
    """Yield every function's code by its name."""
    for inner in made.co_consts:
        if isinstance(inner, types.CodeType):
            yield inner.co_qualname, inner
            yield from codes(inner)


def put_in(path: Path, source: str, functions: list[types.FunctionType]) -> None:
    """Change a module that is imported already: all its functions, and its values."""
    module, fresh = sys.modules[functions[0].__module__], types.ModuleType(functions[0].__module__)
    exec(made := compile(source, str(path), "exec"), fresh.__dict__)
    new = dict(codes(made))
    for f in functions:
        f.__code__ = new.get(f.__code__.co_qualname, f.__code__)
    for name, value in vars(fresh).items():
        if isinstance(value, types.FunctionType) and value.__module__ == module.__name__:
            old = getattr(module, name)
            old.__defaults__, old.__kwdefaults__ = value.__defaults__, value.__kwdefaults__
        elif not name.startswith("__") and not callable(value):
            setattr(module, name, value)


class Reached:
    """Notes which test runs which line of the modules, and how long each takes."""

    def __init__(self) -> None:
        import coverage

        self.files, self.seconds = [Path.cwd() / "privgate" / m for m in MODULES], collections.Counter[str]()
        self.measured = coverage.Coverage(None, include=list(map(str, self.files)), config_file=False)
        self.measured.start()

    @pytest.hookimpl(wrapper=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[None]:
        self.measured.switch_context(item.nodeid)
        return (yield)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        # what fails without a mutant shows nothing
        self.seconds[report.nodeid] += float("inf") if report.failed else report.duration

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionfinish(self) -> None:
        self.measured.stop()
        lines = [self.measured.get_data().contexts_by_lineno(str(f)) for f in self.files]
        name = f"reached-{os.environ['PYTEST_XDIST_WORKER']}.json"
        Path(name).write_text(json.dumps({"seconds": self.seconds, "lines": lines}))


class Killing:
    """Runs the tests against each mutant in a fork of the process that has collected them."""

    def __init__(self) -> None:
        self.maps, self.known = reached(Path()), Path("killed.jsonl")
        self.seconds = {test: s for m in self.maps for test, s in m["seconds"].items()}

    def chosen(self, module: str, lines: range) -> list[str]:
        """Return the tests that reach these lines: its own, then others; each the cheapest first."""
        found = [m["lines"][list(MODULES).index(module)] for m in self.maps]
        at = {t for some in found for n in lines for t in some.get(str(n), ()) if t}
        at = at or {t for some in found for tests in some.values() for t in tests if t}
        left, taken = {True: NEAR, False: FAR}, {True: list[str](), False: list[str]()}
        for test in sorted(at, key=lambda t: self.seconds.get(t, 0.0)):
            own = MODULES[module] in test.partition("::")[0]
            left[own] -= self.seconds.get(test, 0.0)
            taken[own] += [test] if left[own] > 0 else []
        return taken[True] + taken[False]

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtestloop(self, session: pytest.Session) -> bool:
        known = dict(map(json.loads, self.known.read_text().splitlines())) if self.known.exists() else {}
        items, stamp = {item.nodeid: item for item in session.items}, 10**9
        gc.unfreeze()
        functions = [f for f in gc.get_objects() if isinstance(f, types.FunctionType)]
        gc.freeze()
        for module in MODULES:
            own = [f for f in functions if f.__code__.co_filename.endswith(f"/privgate/{module}")]
            for mutant in mutants(path := Path.cwd() / "privgate" / module):
                name, stamp = f"{module}:{mutant[0]}:{mutant[2]} {mutant[3]}", stamp + 1
                if name in known:
                    continue
                chosen = [items[t] for t in self.chosen(module, range(mutant[0], mutant[1] + 1)) if t in items]
                original = path.read_bytes()
                try:
                    path.write_text(mutant[4])  # for the processes that tests start
                    os.utime(path, (stamp, stamp))  # else what was compiled in the same second would run
                    ended = self.ended(session, chosen, functools.partial(put_in, path, mutant[4], own))
                finally:
                    path.write_bytes(original)
                with self.known.open("a") as f:
                    f.write(json.dumps([name, ended == pytest.ExitCode.TESTS_FAILED]) + "\n")
        return True

    def ended(self, session: pytest.Session, chosen: list[pytest.Item], change: Callable[[], None]) -> int:
        """Return how the tests end; only a failed one kills."""
        if not (child := os.fork()):
            os.setsid()
            code = int(pytest.ExitCode.INTERNAL_ERROR)
            threading.Timer(LIMIT, os._exit, [code]).start()
            with contextlib.suppress(BaseException):
                for name in ("killing", "terminalreporter"):
                    session.config.pluginmanager.unregister(name=name)
                change()
                session.items = chosen
                with contextlib.suppress(pytest.Session.Failed):
                    session.config.hook.pytest_runtestloop(session=session)
                code = int(session.testsfailed > 0)
            os._exit(code)
        _, status = os.waitpid(child, 0)
        with contextlib.suppress(ProcessLookupError):
            os.killpg(child, signal.SIGKILL)  # what it started
        return os.waitstatus_to_exitcode(status)


def pytest_configure(config: pytest.Config) -> None:
    """Become one of the two plugins: in workers of pytest-xdist, and in the one process that kills."""
    if hasattr(config, "workerinput"):
        config.pluginmanager.register(Reached())
    elif config.getoption("numprocesses") is None:
        config.pluginmanager.register(Killing(), "killing")


def reached(tree: Path) -> list[dict]:
    """Return what the workers noted."""
    return [json.loads(path.read_text()) for path in sorted(tree.glob("reached-*.json"))]


def killed(commit: str, only: list[str]) -> dict[str, bool]:
    """Return which mutants the tests of a commit kill, in a copy of HEAD."""
    tree = ROOT / "build" / "mutants" / commit
    if not tree.exists():
        tree.mkdir(parents=True)
        copy = f"git archive HEAD | tar x -C {tree} && rm -r {tree}/tests"
        copy += f" && git archive {commit} tests | tar x -C {tree}"
        subprocess.run(copy, cwd=ROOT, check=True, shell=True)
    command = [sys.executable, "-m", "pytest", "-q", "-pmutants"]
    environment = os.environ | {"PYTHONPATH": f"{tree}{os.pathsep}{Path(__file__).parent}"}
    if not reached(tree):
        subprocess.run([*command, "-n2", "--dist=loadfile", *only], cwd=tree, env=environment, check=False)
    files = sorted({test.partition("::")[0] for m in reached(tree) for test in m["seconds"]})
    subprocess.run([*command, "-x", "-m", "", *files], cwd=tree, env=environment, check=True)
    return dict(map(json.loads, (tree / "killed.jsonl").read_text().splitlines()))


def main() -> None:
    """Print how many mutants of each module each suite kills, and those that one of them lets live."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("commits", nargs="*", default=["HEAD"], help="whose tests are used")
    parser.add_argument("--only", nargs="+", default=["tests", "privgate"], metavar="PATH", help="these tests")
    asked = parser.parse_args()
    by = [killed(commit, asked.only) for commit in asked.commits]
    print("module", *asked.commits, sep=" | ")
    for module in MODULES:
        print(module, *(sum(k for name, k in one.items() if name.startswith(module)) for one in by), sep=" | ")
    for name in by[0]:
        if not all(one[name] for one in by):
            print(name, *("killed" if one[name] else "lives" for one in by), sep=" | ")


if __name__ == "__main__":
    main()
