"""Whether a training function's source leaves it no way to treat single people unlike the rest.

What a function was seen to do on all records and on halves of them, it may do otherwise without one person, and a
re-check of some people finds no function that lies about another. So a run that is to be signed believes what it was
seen to do only where the source can do nothing else: records and labels go into ``fit`` of one of scikit-learn's or
our own estimators and nowhere else, and nothing that is called is anybody else's.
"""

import ast
import sys
from collections.abc import Iterable, Mapping
from pathlib import PurePosixPath

from privgate.errors import SubjectError
from privgate.subject import estimators, sources
from privgate.subject.distributions import providing
from privgate.subject.library_classes import is_class_of
from privgate.subject.recipe import Recipe

#: whose names may be called, where they are classes of estimators, or one of these functions
_HOMES = ("sklearn.", "privgate.models")
_MAKERS = ("make_pipeline", "make_union", "make_column_transformer", "make_column_selector", "clone")
_VALUES = (ast.List, ast.Tuple, ast.Dict, ast.UnaryOp, ast.BinOp, ast.keyword, ast.operator, ast.unaryop, ast.Load)
_TYPES = (ast.Name, ast.Attribute, ast.Subscript, ast.Constant, ast.Tuple, ast.BinOp, ast.BitOr, ast.Load)


class _Strange(Exception):  # noqa: N818  an answer, not an error
    """What the source could do."""


def strange(recipe: Recipe) -> str:
    """Return what in its source could tell people apart; empty if nothing can.

    Parameters
    ----------
    recipe : Recipe
        Of a function.
    """
    home, _, name = str(recipe.payload["fit"]).partition(":")
    params = list(recipe.payload["params"].values())
    if estimators.references(params) or estimators.keeps_state(params):
        return "its parameters are more than numbers, text and lists of them"
    file, top = f"{home.replace('.', '/')}.py", home.partition(".")[0]
    around = {f"{parent}/__init__.py" for parent in map(str, PurePosixPath(file).parents) if parent != "."}
    if not {file} <= set(recipe.snapshot) <= {file, *around}:
        return "it consists of several files"
    if top in sys.stdlib_module_names or providing((top,)):
        return f"its module has the name of an installed one, {top}"
    try:
        trees = {path: ast.parse(content) for path, content in recipe.snapshot.items()}
        for tree in trees.values():
            _module(tree.body)
        function = next((s for s in trees[file].body if isinstance(s, ast.FunctionDef) and s.name == name), None)
        if function is None:
            return "it is no function of its module"
        _function(function, _imported(trees[file].body))
    except _Strange as exc:
        return str(exc)
    except (SyntaxError, ValueError, RecursionError) as exc:
        return f"its source cannot be read ({type(exc).__name__})"
    return ""


def _refuse(node: ast.AST, why: str) -> None:
    raise _Strange(f"line {getattr(node, 'lineno', '?')} {why}")


def _module(body: Iterable[ast.stmt]) -> None:
    """Refuse a module that does anything when it is imported, or binds a name twice."""
    bound: list[str] = []
    for s in body:
        if isinstance(s, ast.Import | ast.ImportFrom):
            bound += [(a.asname or a.name).partition(".")[0] for a in s.names]
            if "*" in bound:
                _refuse(s, "imports every name of a module")
        elif isinstance(s, ast.FunctionDef):
            bound.append(s.name)
            _signature(s)
        elif isinstance(s, ast.Assign) and all(isinstance(t, ast.Name) for t in s.targets) and _literal(s.value):
            bound += [t.id for t in s.targets if isinstance(t, ast.Name)]
        elif not (isinstance(s, ast.Expr) and isinstance(s.value, ast.Constant)) and not _of_main(s):
            _refuse(s, "runs when the module is imported")
    if twice := next((n for n in bound if bound.count(n) > 1 and n != "sklearn"), None):
        raise _Strange(f"{twice} is bound twice")


def _of_main(s: ast.stmt) -> bool:
    return isinstance(s, ast.If) and not s.orelse and ast.unparse(s.test) == "__name__ == '__main__'"


def _literal(value: ast.expr) -> bool:
    try:
        ast.literal_eval(value)
    except ValueError:
        return False
    return True


def _signature(s: ast.FunctionDef) -> None:
    """Refuse what is called when a function is defined."""
    args = s.args
    if s.decorator_list or not all(_literal(d) for d in (*args.defaults, *args.kw_defaults) if d is not None):
        _refuse(s, "runs something where it defines a function")
    several = (*args.posonlyargs, *args.args, *args.kwonlyargs, args.vararg, args.kwarg)
    for kind in (s.returns, *(a.annotation for a in several if a is not None)):
        if kind is not None and not all(isinstance(n, _TYPES) for n in ast.walk(kind)):
            _refuse(s, "runs something where it defines a function")


def _imported(body: Iterable[ast.stmt]) -> dict[str, str]:
    """Return name -> what it stands for, ``module:name`` or ``module``, of imports of libraries that are known."""
    found: dict[str, str] = {}
    for s in body:
        if isinstance(s, ast.ImportFrom) and not s.level and f"{s.module}.".startswith(_HOMES):
            found |= {a.asname or a.name: f"{s.module}:{a.name}" for a in s.names}
        elif isinstance(s, ast.Import):
            found |= {a.asname: a.name for a in s.names if a.asname and f"{a.name}.".startswith(_HOMES)}
    return found


def _function(s: ast.FunctionDef, known: Mapping[str, str]) -> None:
    """Refuse a function in which records and labels go anywhere but into ``fit``."""
    args = s.args
    plain = [a.arg for a in (*args.posonlyargs, *args.args)]
    if len(plain) < 2 or args.vararg or args.kwarg:
        _refuse(s, "takes other arguments than records, labels and parameters")
    records = (plain[0], plain[1])
    names = {**known, **_imported(s.body)}
    given = {*plain, *(a.arg for a in args.kwonlyargs)}
    for node in s.body:
        if isinstance(node, ast.Assign):
            made = {t.id for t in node.targets if isinstance(t, ast.Name)}
        else:
            made = {a.asname or a.name for a in getattr(node, "names", ())} - set(_imported([node]))
        if made & set(records):
            _refuse(node, "gives records another name")
        given |= made
    if given & set(names):
        _refuse(s, "gives a name that it imports to something else")
    for node in s.body:
        elsewhere = isinstance(node, ast.Assign) and not all(isinstance(t, ast.Name) for t in node.targets)
        if isinstance(node, ast.Assign | ast.Return | ast.Expr) and not elsewhere:
            _value(node.value or ast.Constant(None), records, names)
        elif not isinstance(node, ast.Import | ast.ImportFrom | ast.Pass) and not _forgets(node, records):
            _refuse(node, f"is a {type(node).__name__}, which could tell people apart")


def _forgets(node: ast.stmt, records: tuple[str, str]) -> bool:
    return isinstance(node, ast.Delete) and all(isinstance(t, ast.Name) and t.id not in records for t in node.targets)


def _value(node: ast.AST, records: tuple[str, str], names: Mapping[str, str]) -> None:
    """Refuse an expression that reads records, or calls what nobody knows."""
    if isinstance(node, ast.Name) and node.id in records:
        _refuse(node, f"reads {node.id}")
    elif isinstance(node, ast.Attribute):
        _value(node.value, records, names)
    elif isinstance(node, ast.Call):
        _call(node, records, names)
    elif isinstance(node, _VALUES):
        for inner in ast.iter_child_nodes(node):
            _value(inner, records, names)
    elif not isinstance(node, ast.Name | ast.Constant):
        _refuse(node, f"is a {type(node).__name__}, which could tell people apart")


def _call(node: ast.Call, records: tuple[str, str], names: Mapping[str, str]) -> None:
    function = node.func
    if isinstance(function, ast.Attribute) and function.attr == "fit":
        _value(function.value, records, names)
        if [ast.unparse(a) for a in node.args] != list(records) or node.keywords:
            _refuse(node, "fits something else than its records and labels")
        return
    if isinstance(function, ast.Attribute) and function.attr == "set_params":
        _value(function.value, records, names)
    elif not _makes(ast.unparse(function), names):
        _refuse(node, f"calls {ast.unparse(function)[:60]}")
    for inner in (*node.args, *node.keywords):
        _value(inner, records, names)


def _makes(called: str, names: Mapping[str, str]) -> bool:
    """Whether this is an estimator's class, or a function that puts estimators together."""
    first, _, rest = called.partition(".")
    if first not in names:
        return False
    reference = names[first] + (f"{'.' if ':' in names[first] else ':'}{rest}" if rest else "")
    try:
        thing = sources.resolve(reference, None)
    except SubjectError:
        return False
    if getattr(thing, "__name__", "") in _MAKERS:
        return str(getattr(thing, "__module__", "")).startswith("sklearn.")
    return is_class_of(_HOMES, thing)
