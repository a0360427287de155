"""Training functions that do no more than fit an estimator: recognised by watched runs, re-checked like any engine.

What a function does on all records and on two halves says nothing about what it would do without one person: that is
what the re-check's refits, which call the function itself, are for. They look at some people, and a function may be
written to treat another one differently: a run that is to be signed uses an engine only where the source shows that
it cannot (``strange``). Records and labels go into ``fit`` of one of scikit-learn's or our own estimators and nowhere
else, and nothing that is called is anybody else's. No theorem rests on it.
"""

import ast
import sys
import weakref
from collections.abc import Iterable, Mapping
from dataclasses import replace
from pathlib import PurePosixPath

from privgate.errors import SubjectError
from privgate.evidence import Precondition
from privgate.subject import estimators, sources
from privgate.subject.libraries import is_class_of, providing
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

#: fewer units than this are refitted sooner than a function is recognised and an engine re-checked
LEAST_UNITS = 150
_KNOWN: "weakref.WeakKeyDictionary[Recipe, Recipe]" = weakref.WeakKeyDictionary()


def recognise(subject: Subject, fleet: Fleet) -> Precondition | None:
    """Look at a training function once, and return what was found; None where there is nothing to look at.

    Until then a function is a stranger to every engine but refits.
    """
    recipe = subject.recipe
    if recipe.is_estimator or recipe.payload["predict"] is not None or recipe.payload["dp"] is not None:
        return None
    if len(subject.data.units) < LEAST_UNITS:
        return None
    found = fleet.recognised(subject)
    made, why = None, str(found.get("why", "its worker said nothing"))
    if "estimator" in found:
        payload = {**recipe.payload, "kind": "estimator", "estimator": found["estimator"], "params": {}}
        payload.pop("fit", None)
        try:
            made = Recipe.read(payload, None)
            known = made.library_estimator
        except SubjectError as exc:
            made, known, why = None, None, str(exc)
        if known is None:
            made, why = None, "what it fits is no estimator of scikit-learn's or ours alone"
    if made is not None and fleet.signable and (way := strange(recipe)):
        made, why = None, f"{way}, and so may do otherwise without single people; give the estimator itself, Recipe(…)"
    if made is None:
        text = f"the training function is not recognised as the fit of one estimator ({why}); everybody is refitted"
        return Precondition("recognised", "passed", text, {"why": why})
    _KNOWN[recipe] = made
    name = _name(made)
    text = (
        f"the training function fits {name} to exactly its records and labels, on all of them and on two halves; its "
        "engine is used, and re-checked by refits of the function itself"
    )
    return Precondition("recognised", "passed", text, {"estimator": name})


def known(subject: Subject) -> Recipe | None:
    """Return the recipe of the estimator that a subject's training function was seen to fit; None if none was."""
    return None if subject.recipe.is_estimator else _KNOWN.get(subject.recipe)


def as_estimator(subject: Subject, recipe: Recipe) -> Subject:
    """Return the subject with the recipe of what its function fits."""
    return replace(subject, recipe=recipe)


def _name(recipe: Recipe) -> str:
    estimator = recipe.library_estimator
    steps = [s for _, s in estimator.steps] if type(estimator).__name__ == "Pipeline" else [estimator]
    return " + ".join(type(s).__name__ for s in steps)


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
