"""A metric's name stands in its rule's file; all other code asks the metric."""

import ast
import inspect
from collections.abc import Iterator
from pathlib import Path

import pytest

import privgate
from privgate.evidence import COLUMNS
from privgate.policy.rules import ALL, METRICS

PACKAGE = Path(privgate.__file__).parent
#: words spelled like a metric that are none: of the HTML, a part of the evidence, a parameter, a key, a column
HTML = {
    ("pdtp", "influence/measures.py"),
}


def pages(tree: ast.AST) -> set[int]:
    """Return the docstrings of a module and of what it defines."""
    homes = (ast.Module, ast.ClassDef, ast.FunctionDef)
    first = [node.body[0] for node in ast.walk(tree) if isinstance(node, homes) and node.body]
    return {id(statement.value) for statement in first if isinstance(statement, ast.Expr)}


def named(tree: ast.AST) -> Iterator[tuple[int, str]]:
    """Yield line and name of every text that is a metric's name.

    A column of the per-person table may have a metric's name; it is one unless it is compared, or listed among metrics.
    """
    quiet = pages(tree)
    above = {id(child): node for node in ast.walk(tree) for child in ast.iter_child_nodes(node)}
    for node in ast.walk(tree):
        if not (isinstance(node, ast.Constant) and node.value in METRICS) or id(node) in quiet:
            continue
        home = above[id(node)]
        listed = isinstance(home, ast.Tuple | ast.List | ast.Set) and all(
            isinstance(one, ast.Constant) and one.value in METRICS for one in home.elts
        )
        if node.value not in COLUMNS or listed or isinstance(home, ast.Compare):
            yield node.lineno, node.value


#: whoever confirms a yes asks no rule, and so knows by itself what a theorem decides
APART = ("check/confirm.py", "cases.py")


def test_a_metric_is_named_in_its_own_file():
    found = {}
    for path in sorted(PACKAGE.rglob("*.py")):
        where, text = str(path.relative_to(PACKAGE)), path.read_text(encoding="utf-8")
        if not any(f"{name}{end}" in text for name in METRICS for end in "\"'"):
            continue  # most files, and to parse them takes seconds
        for line, name in named(ast.parse(text)):
            if where not in APART and path != Path(inspect.getfile(ALL[name])) and (name, where) not in HTML:
                found[f"{where}:{line}"] = name

    assert not found


@pytest.mark.parametrize(
    ("code", "seen"),
    [
        ('x = row["pdtp"]', []),
        ('{"pdtp": 1.0}', []),
        ('shown = ("pdtp", "dtp_lower")', []),
        ('finding.metric == "pdtp"', ["pdtp"]),
        ('finding.metric in ("dtp", "pdtp")', ["dtp", "pdtp"]),
        ('bench.asked & {"pdtp"}', ["pdtp"]),
        ('{"dtp": 1}', ["dtp"]),
        ('"""The metric ``dtp``."""', []),
    ],
)
def test_what_is_seen_as_a_name(code, seen):
    assert sorted(name for _, name in named(ast.parse(code))) == seen
