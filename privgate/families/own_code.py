"""Whether the source of a recipe's own learner holds a place where two trainings could leave something for each other.

What is found here is certain enough to say nothing for every learner: a module's own list, a class's attribute, the
garbage collector, a file. What is not found is no proof, since libraries have such places, too.
"""

import ast
from collections.abc import Iterable, Iterator, Mapping

from privgate.subject import estimators
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
#: methods that write into what they belong to
_WRITING = frozenset((
    "append", "extend", "insert", "add", "update", "setdefault", "pop", "clear", "remove", "discard", "appendleft",
    "put", "push", "write", "seed", "set_state",
))  # fmt: skip
#: decorators that remember
_REMEMBERING = ("cache", "lru_cache", "cached", "memoize")


def shared(recipe: Recipe) -> str:
    """Return where two trainings by the recipe's own code could share something, one clause; empty if nothing is seen.

    Parameters
    ----------
    recipe : Recipe
        An estimator. Nothing of it is imported; what its classes and functions do not reach may be anything.
    """
    try:
        trees = {p: ast.parse(content) for p, content in recipe.snapshot.items() if p.endswith(".py")}
    except (SyntaxError, ValueError, RecursionError) as exc:
        return f"its source cannot be read ({type(exc).__name__})"
    for path, nodes in _reached(trees, estimators.references(recipe.payload.get("estimator"))).items():
        if found := next(_of_bodies(nodes), None) or next(_anywhere(nodes, trees[path]), None):
            line, what = found
            return f"line {line} of {path} {what}"
    return ""


Found = Iterator[tuple[int, str]]


def _reached(trees: Mapping[str, ast.Module], references: Iterable[str]) -> dict[str, list[ast.AST]]:
    """Return of each file the statements that are reached from ``module:name``; all of one that cannot be looked into.

    A name stands for every statement that binds it, and what such a statement reads is reached, too.
    """
    todo = [(home, name.partition(".")[0]) for home, _, name in (r.partition(":") for r in references)]
    known, found = set(todo), dict[str, list[ast.AST]]()
    while todo:
        home, name = todo.pop()
        for path in {f"{home.replace('.', '/')}.py", f"{home.replace('.', '/')}/__init__.py"} & set(trees):
            for s in _statements(trees[path].body):
                if name != "*" and name not in _binds(s):
                    continue
                found.setdefault(path, []).append(s)
                more = {(home, n.id) for n in ast.walk(s) if isinstance(n, ast.Name)}
                for n in (n for n in ast.walk(s) if isinstance(n, ast.Import | ast.ImportFrom)):
                    package = home.split(".")[: -n.level] if isinstance(n, ast.ImportFrom) and n.level else []
                    if isinstance(n, ast.ImportFrom):
                        of = ".".join([*package, *([n.module] if n.module else [])])
                        more |= {(of, a.name) for a in n.names} | {(f"{of}.{a.name}", "*") for a in n.names}
                    else:
                        more |= {(a.name, "*") for a in n.names}
                todo += more - known
                known |= more
    return found


def _statements(body: Iterable[ast.stmt]) -> Iterator[ast.stmt]:
    """Yield a module's statements, those within conditions and trials too."""
    for s in body:
        yield s
        for part in ("body", "orelse", "finalbody", "handlers"):
            inner = [] if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef) else getattr(s, part, [])
            for h in inner:
                yield from _statements(h.body if isinstance(h, ast.ExceptHandler) else [h])


def _binds(s: ast.stmt) -> set[str]:
    if isinstance(s, ast.Import | ast.ImportFrom):
        return {a.asname or a.name.partition(".")[0] for a in s.names}
    if isinstance(s, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
        return {s.name}
    if isinstance(s, ast.Assign | ast.AnnAssign | ast.AugAssign):
        return {n.id for n in ast.walk(s) if isinstance(n, ast.Name) and isinstance(n.ctx, ast.Store)}
    return set()


def _of_bodies(nodes: Iterable[ast.AST]) -> Found:
    """Yield what modules, classes and functions keep for everybody: anything that can be written into."""
    for top in nodes:
        for node in (top, *(s for c in ast.walk(top) if isinstance(c, ast.ClassDef) for s in c.body)):
            if isinstance(node, ast.Assign | ast.AnnAssign) and node.value is not None and not _fixed(node.value):
                yield node.lineno, "keeps something that can be written into; a number, a text or a tuple is none"
        for node in ast.walk(top):
            if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda):
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


def _anywhere(nodes: Iterable[ast.AST], tree: ast.Module) -> Found:
    """Yield what leads out of a training wherever it stands."""
    outside = {name for s in _statements(tree.body) for name in _binds(s)}
    outside |= {name for n in ast.walk(tree) if isinstance(n, ast.Import | ast.ImportFrom) for name in _binds(n)}
    for node in (n for top in nodes for n in ast.walk(top)):
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
        elif isinstance(node, ast.Call) and _writes(node.func) and _root(node.func) in outside:
            yield line, f"writes into {_root(node.func)}, which every training has"
        elif isinstance(node, ast.Call) and isinstance(node.func, ast.Name) and node.func.id == "type":
            if len(node.args) == 1:
                yield line, "asks for the class of something"
        elif any(_called(d).startswith(_REMEMBERING) for d in getattr(node, "decorator_list", ())):
            yield line, "remembers what it was asked before"


def _writes(called: ast.expr) -> bool:
    """Whether a method is called that writes into something of a module's; ``np.append`` is a function of one."""
    deep = isinstance(called, ast.Attribute) and isinstance(called.value, ast.Attribute | ast.Subscript)
    return deep and isinstance(called, ast.Attribute) and called.attr in _WRITING


def _root(node: ast.expr) -> str:
    """Return the name that a chain of attributes and items begins with; empty where it is another expression."""
    while isinstance(node, ast.Attribute | ast.Subscript):
        node = node.value
    return node.id if isinstance(node, ast.Name) else ""


def _called(node: ast.expr) -> str:
    node = node.func if isinstance(node, ast.Call) else node
    return node.attr if isinstance(node, ast.Attribute) else node.id if isinstance(node, ast.Name) else ""
