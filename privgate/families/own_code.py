"""Whether the source of a recipe's own learner holds a place where two trainings could leave something for each other.

What is found here is certain enough to say nothing for every learner: a module's own list, a class's attribute, the
garbage collector, a file. What is not found is no proof, since libraries have such places, too.
"""

import ast
from collections.abc import Iterator

from privgate.subject.recipe import Recipe

#: modules by which code reaches what it was not given
REACHING = frozenset((
    "sys", "gc", "inspect", "ctypes", "threading", "_thread", "os", "posix", "io", "pathlib", "tempfile", "builtins",
    "importlib", "multiprocessing", "shelve", "sqlite3", "socket", "mmap", "weakref", "contextvars", "shutil", "pickle",
    "subprocess", "traceback", "types", "atexit", "signal", "joblib", "cloudpickle", "dill", "asyncio", "concurrent",
))  # fmt: skip
#: names that do the same without a module
_NAMES = frozenset(("open", "globals", "vars", "locals", "eval", "exec", "compile", "__import__", "setattr", "delattr"))
#: attributes that lead from an object to its class, its module or its caller
_ATTRIBUTES = frozenset((
    "__class__", "__dict__", "__globals__", "__builtins__", "__subclasses__", "__mro__", "__bases__", "__module__",
    "__func__", "__code__", "__closure__", "__defaults__", "__kwdefaults__", "__self__", "__wrapped__",
    "f_back", "f_globals", "f_locals", "tb_frame", "gi_frame", "cr_frame",
))  # fmt: skip
#: decorators that remember
_REMEMBERING = ("cache", "lru_cache", "cached", "memoize")


def shared(recipe: Recipe) -> str:
    """Return where two trainings by the recipe's own code could share something, one clause; empty if nothing is seen.

    Parameters
    ----------
    recipe : Recipe
        Nothing of it is imported.
    """
    for path, content in sorted(recipe.snapshot.items()):
        if not path.endswith(".py"):
            continue
        try:
            tree = ast.parse(content)
        except (SyntaxError, ValueError, RecursionError):
            return f"{path} cannot be read"
        if found := next(_of_bodies(tree), None) or next(_anywhere(tree), None):
            line, what = found
            return f"line {line} of {path} {what}"
    return ""


Found = Iterator[tuple[int, str]]


def _of_bodies(tree: ast.Module) -> Found:
    """Yield what modules, classes and functions keep for everybody: anything that can be written into."""
    for node in ast.walk(tree):
        if isinstance(node, ast.Module | ast.ClassDef):
            for s in node.body:
                value = getattr(s, "value", None) if isinstance(s, ast.Assign | ast.AnnAssign | ast.AugAssign) else None
                if value is not None and not _fixed(value):
                    yield s.lineno, "keeps something that can be written into; a number, a text or a tuple is none"
        elif isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
            defaults = (*node.args.defaults, *(d for d in node.args.kw_defaults if d is not None))
            if any(not _fixed(d) for d in defaults):
                yield node.lineno, "has a default that can be written into; take None, a number, a text or a tuple"


def _fixed(value: ast.expr) -> bool:
    """Whether an expression is a number, a text, a name of a library's, or a tuple or formula of them."""
    parts = (
        ast.Constant,
        ast.Tuple,
        ast.UnaryOp,
        ast.BinOp,
        ast.operator,
        ast.unaryop,
        ast.Load,
        ast.Name,
        ast.Attribute,
    )
    return all(isinstance(n, parts) for n in ast.walk(value))


def _anywhere(tree: ast.Module) -> Found:
    """Yield what leads out of a training wherever it stands."""
    outside = {
        a.asname or a.name.partition(".")[0] for n in ast.walk(tree) if isinstance(n, ast.Import) for a in n.names
    }
    outside |= {a.asname or a.name for n in ast.walk(tree) if isinstance(n, ast.ImportFrom) for a in n.names}
    outside |= {n.name for n in tree.body if isinstance(n, ast.ClassDef | ast.FunctionDef)}
    for node in ast.walk(tree):
        line = getattr(node, "lineno", 0)
        if isinstance(node, ast.Import | ast.ImportFrom):
            named = [a.name for a in node.names] if isinstance(node, ast.Import) else [node.module or ""]
            if bad := {n.partition(".")[0] for n in named} & REACHING:
                yield line, f"imports {min(bad)}"
        elif isinstance(node, ast.Global):
            yield line, f"writes {node.names[0]}, which belongs to its module"
        elif isinstance(node, ast.Name) and node.id in _NAMES:
            yield line, f"uses {node.id}"
        elif isinstance(node, ast.Attribute) and node.attr in _ATTRIBUTES:
            yield line, f"reads {node.attr}"
        elif isinstance(node, ast.Attribute | ast.Subscript) and isinstance(node.ctx, ast.Store | ast.Del):
            if (root := _root(node)) in outside or root in ("cls", ""):
                yield line, f"writes into {root or 'what a call gave'}, which every training has"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
            if len(node.args) == 1:
                yield line, "asks for the class of something"
        elif any(_called(d).startswith(_REMEMBERING) for d in getattr(node, "decorator_list", ())):
            yield line, "remembers what it was asked before"


def _root(node: ast.expr) -> str:
    """Return the name that a chain of attributes and items begins with; empty where it is another expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
