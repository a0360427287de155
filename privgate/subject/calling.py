"""Ways to write down training: a function, a partial, a method, a callable object, a class with ``fit``."""

import functools
import inspect
from collections.abc import Mapping
from typing import Any

from privgate.errors import SubjectError

_FORM = "a recipe needs fit(X, y, *, seed, **params)"
#: name of the object among the recorded parameters, if the function is a method
_OWNER = "self"


def plain(training: Any, params: Mapping[str, Any]) -> tuple[Any, Mapping[str, Any]]:
    """Return the same training as a function, method, class or estimator, with its parameters."""
    if isinstance(training, functools.partial):
        if training.args:
            raise SubjectError("the partial gives arguments by position, where X and y go; give them by name")
        return plain(training.func, {**training.keywords, **params})
    fits, named = hasattr(training, "fit"), hasattr(training, "get_params")
    if isinstance(training, type):
        return (training() if fits and named else training), params
    if hasattr(training, "__code__") or inspect.ismethod(training) or (fits and named):
        return training, params
    if fits:
        return training.fit, params
    if callable(training) and not hasattr(training, "__qualname__"):
        return training.__call__, params
    return training, params


def parts(training: Any) -> tuple[Any, dict[str, Any]]:
    """Return the function whose name is recorded, and the object that it is a method of, as a parameter."""
    if inspect.ismethod(training) and not isinstance(training.__self__, type):
        return training.__func__, {_OWNER: training.__self__}
    return training, {}


def check(training: Any, params: Mapping[str, Any]) -> None:
    """Refuse what cannot be called with records, labels, a seed and these parameters; say which argument is wrong."""
    name = getattr(training, "__qualname__", type(training).__name__)
    if _OWNER in params:
        raise SubjectError(f"a parameter of {name} is called {_OWNER!r}; rename it")
    if isinstance(training, type):
        if not hasattr(training, "fit"):
            raise SubjectError(f"{name} is a class without fit; {_FORM}")
        place = _seed_of(training)
        called, given = training, {**params, **({place: 0} if place else {})}
        if not place and "seed" not in _names(training.fit):
            raise SubjectError(f"neither {name}() nor its fit takes a seed or random_state; {_FORM}")
    else:
        called, given = training, {"seed": 0, **params}
        if "seed" not in _names(training):
            raise SubjectError(f"{name} takes no argument 'seed', by which it is trained again; {_FORM}")
    try:
        signature = inspect.signature(called)
    except (TypeError, ValueError):  # written in C
        return
    try:
        signature.bind(*(() if isinstance(training, type) else (None, None)), **given)
    except TypeError as exc:
        raise SubjectError(f"{name} cannot be called with these parameters: {exc}; {_FORM}") from exc


def train(function: Any, X: Any, y: Any, *, seed: int | None, params: Mapping[str, Any]) -> Any:
    """Return the model; a method or class that returns nothing has trained its object."""
    if isinstance(function, type):
        place = _seed_of(function)
        made = function(**params, **({place: seed} if place else {}))
        fitted = made.fit(X, y) if place else made.fit(X, y, seed=seed)
        return made if fitted is None else fitted
    if _OWNER not in params:
        return function(X, y, seed=seed, **params)
    owner = params[_OWNER]
    model = getattr(owner, function.__name__)(X, y, seed=seed, **{k: v for k, v in params.items() if k != _OWNER})
    return owner if model is None else model


def _names(function: Any) -> set[str]:
    """Return the names of arguments that may be given by name; all that are asked about where anything may."""
    try:
        parameters = inspect.signature(function).parameters.values()
    except (TypeError, ValueError):
        return {"seed", "random_state"}
    anything = any(p.kind is p.VAR_KEYWORD for p in parameters)
    return {p.name for p in parameters} | ({"seed"} if anything else set())


def _seed_of(kind: type) -> str:
    """Return by which name a class takes a seed where it is made; empty if it does not."""
    return next((name for name in ("seed", "random_state") if name in _names(kind)), "")
