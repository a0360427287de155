"""Small changes of a module, one at a time: what a test of the verdict makes of each."""

import ast
from collections.abc import Iterator
from pathlib import Path

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
