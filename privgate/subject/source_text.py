"""What statements of a script or notebook bind, call and read as: questions to their text, none of which runs it."""

import ast
import re
import textwrap
from collections.abc import Iterator
from types import CodeType

#: calls that read, train or log: made again at every import, they would do so in every worker
_WORK = re.compile(
    r"(partial_)?fit(_\w+)?|train(_\w+)?|read_\w+|load\w*|open|fetch_\w+|log_\w+|start_run|autolog|download\w*|urlopen"
    r"|urlretrieve|connect|execute|query|from_pretrained|parse_\w*args|input|cross_val\w*|predict\w*|recv|get_data\w*"
)


def spans(node: ast.stmt, code: CodeType) -> bool:
    """Return whether a definition is the one that a piece of code was compiled from."""
    return _first(node) <= code.co_firstlineno <= (node.end_lineno or node.lineno)


def _first(node: ast.stmt) -> int:
    return min([node.lineno, *(int(d.lineno) for d in getattr(node, "decorator_list", ()))])


def segment(node: ast.stmt, lines: list[str]) -> str:
    """Return the lines of a statement; one that shares its line with others is written anew."""
    text = textwrap.dedent("\n".join(lines[_first(node) - 1 : node.end_lineno]))
    try:
        alone = len(ast.parse(text).body) == 1
    except SyntaxError:
        alone = False
    return text if alone else ast.unparse(node)


def bound(statement: ast.stmt) -> set[str]:
    """Return the global names that a statement at the top of a file binds or changes."""
    if isinstance(statement, ast.If) and "__name__" in ast.unparse(statement.test):
        return set()
    found: set[str] = set()
    for node in _outside_functions(statement):
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            found.add(node.name)
        elif isinstance(node, ast.Import | ast.ImportFrom):
            found |= {(a.asname or a.name).partition(".")[0] for a in node.names}
        elif isinstance(node, ast.Name) and isinstance(node.ctx, ast.Store):
            found.add(node.id)
        elif isinstance(node, ast.Subscript | ast.Attribute) and isinstance(node.ctx, ast.Store):
            found |= set(dotted(node)[:1])
    if isinstance(statement, ast.Expr) and isinstance(statement.value, ast.Call):
        found |= set(dotted(statement.value.func)[:1])
    return found


def _outside_functions(statement: ast.AST) -> Iterator[ast.AST]:
    yield statement
    if not isinstance(statement, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef | ast.Lambda):
        for child in ast.iter_child_nodes(statement):
            yield from _outside_functions(child)


def work(statement: ast.stmt) -> str:
    """Return the first call in a statement that reads, trains or logs, as text; empty if there is none."""
    for node in _outside_functions(statement):
        if isinstance(node, ast.Call) and _WORK.fullmatch(called(node)):
            return f"{ast.unparse(node.func)[:60]}()"
    return ""


def called(call: ast.Call) -> str:
    """Return the last name of what is called, empty where it has none."""
    return call.func.attr if isinstance(call.func, ast.Attribute) else getattr(call.func, "id", "")


def dotted(node: ast.AST) -> list[str]:
    """Return the names of ``a.b.c``, also below subscripts; empty where it begins with anything but a name."""
    parts: list[str] = []
    while isinstance(node, ast.Attribute | ast.Subscript):
        parts += [node.attr] if isinstance(node, ast.Attribute) else []
        node = node.value
    return [node.id, *reversed(parts)] if isinstance(node, ast.Name) else []
