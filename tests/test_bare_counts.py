"""How many people are of some kind is a ``Count`` wherever a sentence is made; looks for what is no such thing."""

import ast
import re
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[1] / "privgate"
#: what follows a count of people: the noun, or a total and the noun
PEOPLE = re.compile(
    r"^(?: of (?:the|all|their)?)? ?(?:more |other |training |public |past |random )*"
    r"(?:people|persons?|records?|units?|members?|non-members|candidates?)\b"
)
#: how many were looked at, and how many there are: (file, what is counted)
NOBODY = {
    # drawn for a control, a comparison or a refit
    ("run/refit.py", "len(compared)"),
    ("run/refit.py", "len(answers.units)"),
    ("influence/measures.py", "people"),
    ("controls/served.py", "len(rows)"),
    ("controls/served.py", "total - questions"),
    ("training/worker.py", "len(queries)"),
    # all there are
    ("membership/distance.py", "len(inside)"),
    ("membership/distance.py", "len(outside)"),
    # rows of a table
    ("report/sections/units.py", "len(rows)"),
}


def is_count(node, known):
    """Whether an expression is a length or a sum, by itself or by its name."""
    if isinstance(node, ast.Call):
        name = getattr(node.func, "id", getattr(node.func, "attr", ""))
        return name in ("len", "sum", "count_nonzero") or (name == "int" and any(is_count(a, known) for a in node.args))
    if isinstance(node, ast.Attribute):
        return node.attr == "size"
    if isinstance(node, ast.BinOp):
        return is_count(node.left, known) or is_count(node.right, known)
    return isinstance(node, ast.Name) and node.id in known


def bindings(function):
    for node in ast.walk(function):
        if isinstance(node, ast.Assign | ast.NamedExpr | ast.AnnAssign) and node.value is not None:
            for target in node.targets if isinstance(node, ast.Assign) else [node.target]:
                both = isinstance(target, ast.Tuple) and isinstance(node.value, ast.Tuple)
                yield from zip(target.elts, node.value.elts, strict=False) if both else [(target, node.value)]


def bare(source):
    """Yield the sentences in which a count stands before people, as (line, what is counted)."""
    for function in ast.walk(ast.parse(source)):
        if not isinstance(function, ast.FunctionDef):
            continue
        known = set()
        for target, value in bindings(function):
            if isinstance(target, ast.Name) and is_count(value, known):
                known.add(target.id)
        for node in ast.walk(function):
            for i, part in enumerate(node.values if isinstance(node, ast.JoinedStr) else ()):
                if not isinstance(part, ast.FormattedValue) or not is_count(part.value, known):
                    continue
                if i > 1 and "Count(" in ast.unparse(node.values[i - 2]):
                    continue  # the total of one that is told
                after = "".join(v.value if isinstance(v, ast.Constant) else "the" for v in node.values[i + 1 :])
                if PEOPLE.match(after):
                    yield node.lineno, ast.unparse(part.value)


@pytest.mark.parametrize(
    ("source", "found"),
    [
        ("f'{len(bad)} people are'", 1),
        ("f'{len(bad)} of {n} units are'", 1),
        ("f'{int(bad.sum())} training records are'", 1),
        ("f'{Count(len(bad), n)} of {n} people are'", 0),
        ("f'{sampled(len(bad), n)}'", 0),
        ("f'{len(runs)} runs of {n} people'", 0),
    ],
)
def test_a_bare_count_is_found(source, found):
    assert len(list(bare(f"def f(bad, n, runs):\n    return {source}"))) == found
    assert (
        len(list(bare(f"def f(bad, n, runs):\n    k = len(bad)\n    return {source.replace('len(bad)', 'k')}")))
        == found
    )


def test_no_sentence_counts_people_by_itself():
    found = {
        (str(file.relative_to(PACKAGE)), said): line
        for file in sorted(PACKAGE.rglob("*.py"))
        for line, said in bare(file.read_text(encoding="utf-8"))
    }

    assert found.keys() - NOBODY == set()
    assert NOBODY - found.keys() == set()  # what is excused is there
