"""What belongs to the whole process is written by nobody while threads may read it: environment, folder, addresses."""

import ast
from pathlib import Path

import pytest

import privgate

PACKAGE = Path(privgate.__file__).parent
#: function -> what it may do, and why
ALLOWED = {
    ("__main__.py", "main"): {"os.environ.setdefault"},  # before anything else runs
    ("github.py", "take_credentials"): {"os.environ.pop", "os.environ.update"},  # a step of CI, before anything else
    # a worker process, which trains one model at a time
    ("training/task_limits.py", "scrub"): {"del os.environ", "os.environ.update"},
    ("training/task_limits.py", "scrubbed"): {"del os.environ", "os.environ.update"},
    ("training/worker.py", "start"): {"os.chdir", "signal.signal", "time.tzset"},
    ("training/sandbox/inside.py", "serve"): {"signal.signal"},  # the server's own process, before it forks
    ("training/sandbox/inside.py", "run"): {"signal.signal"},
    ("training/sandbox/inside.py", "_work"): {"signal.signal"},
    ("training/task_limits.py", "call"): {"signal.signal"},  # in workers' main threads only
}
WRITES = {"update", "setdefault", "pop", "popitem", "clear", "__setitem__", "__delitem__"}
CALLS = {
    *(f"os.environ.{name}" for name in WRITES),
    *("os.putenv", "os.unsetenv", "os.chdir", "os.fchdir", "os.umask", "os.setuid", "os.nice", "signal.signal"),
    *("mlflow.set_tracking_uri", "mlflow.set_registry_uri", "mlflow.set_experiment", "locale.setlocale"),
    *("socket.setdefaulttimeout", "sys.setrecursionlimit", "time.tzset"),
}


LAST = {call.rpartition(".")[2] for call in CALLS}


def written(tree):
    """Give (function, line, what) for everything in a module that changes the process's state."""
    waiting = [(tree, "<module>")]
    while waiting:
        node, function = waiting.pop()
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            function = node.name
        waiting += [(child, function) for child in ast.iter_child_nodes(node)]
        found = ()
        if isinstance(node, ast.Call):
            named = isinstance(node.func, ast.Attribute) and node.func.attr in LAST
            found = (ast.unparse(node.func),) if named and ast.unparse(node.func) in CALLS else ()
        elif isinstance(node, ast.Assign | ast.AugAssign | ast.AnnAssign | ast.Delete):
            targets = getattr(node, "targets", None) or [node.target]
            word = "del os.environ" if isinstance(node, ast.Delete) else "os.environ ="
            found = (word for t in targets if ast.unparse(t).startswith("os.environ"))
        elif isinstance(node, ast.ImportFrom) and node.module == "os":
            # by another name it could not be followed
            found = ("import of environ" for n in node.names if n.name in {"environ", "putenv", "unsetenv", "chdir"})
        yield from ((function, node.lineno, what) for what in found)


def test_no_module_changes_what_belongs_to_the_process():
    wrong = []
    for path in sorted(PACKAGE.rglob("*.py")):
        name = path.relative_to(PACKAGE).as_posix()
        for function, line, what in written(ast.parse(path.read_text(encoding="utf-8"))):
            if what not in ALLOWED.get((name, function), ()):
                wrong.append(f"{name}:{line}: {function}: {what}")
    assert wrong == []


@pytest.mark.parametrize(
    "line",
    [
        "os.environ['A'] = '1'", "os.environ.update(A='1')", "os.environ |= {'A': '1'}", "del os.environ['A']",
        "os.environ.pop('A')", "os.putenv('A', '1')", "os.chdir('/')", "os.umask(0)", "mlflow.set_tracking_uri('x')",
        "from os import environ", "signal.signal(1, f)",
    ],
)  # fmt: skip
def test_the_law_sees_every_way_of_writing(line):
    assert [what for _, _, what in written(ast.parse(f"def f():\n    {line}\n"))]
