"""Estimators as JSON: class path and parameters, nested as scikit-learn nests them; no pickle."""

import functools
import inspect
import sys
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from privgate.errors import SubjectError
from privgate.subject import sources
from privgate.subject.domain import Domain

Resolve = Callable[[str], Any]


def is_estimator(thing: Any) -> bool:
    """Whether ``thing`` is an unfitted estimator: an instance with ``fit`` and ``get_params``."""
    return not isinstance(thing, type) and hasattr(thing, "fit") and hasattr(thing, "get_params")


def reference(thing: Any) -> str:
    """Return ``module:qualname`` of a class or function; a script's own functions get the script's module name.

    Raises
    ------
    SubjectError
        It cannot be imported again by that name (a lambda, a nested function, a name that means something else).
    """
    name = getattr(thing, "__qualname__", "") or getattr(thing, "__name__", "")
    home = getattr(thing, "__module__", None) or getattr(getattr(thing, "__objclass__", None), "__module__", None)
    if isinstance(thing, np.ufunc):
        home = home or "numpy"
    if not name or not home or "<" in name:
        raise SubjectError(f"{thing!r} has no importable name; define it at the top level of a module")
    found: Any = sys.modules.get(home)
    for part in name.split("."):
        found = getattr(found, part, None)
    if found is not thing:
        raise SubjectError(
            f"{home}:{name} is not {thing!r}; a recipe needs functions and classes that their own names find again"
        )
    if home == "__main__" and not sources.is_interactive():
        home = sources.main_module()
    return f"{home}:{name}"


def _settings(value: Any) -> dict[str, Any] | None:
    """Return the constructor arguments of an estimator, kernel or splitter, or None where they cannot be read."""
    if hasattr(value, "get_params") and not isinstance(value, type):
        return dict(value.get_params(deep=False))
    # cross-validation splitters have no get_params, but keep their arguments as attributes, as estimators do
    if type(value).__module__.startswith("sklearn."):
        names = list(inspect.signature(type(value)).parameters)
        if all(hasattr(value, n) for n in names):
            return {n: getattr(value, n) for n in names}
    return None


def encode(value: Any) -> Any:
    """Return ``value`` as JSON; estimators, arrays, tuples, classes and functions are tagged with ``"!"``.

    Raises
    ------
    SubjectError
        A parameter is of a kind that has no JSON form here.
    """
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"!": "float", "value": str(value)}
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, list):
        return [encode(v) for v in value]
    if (tagged := _container(value)) is not None:
        return tagged
    if not isinstance(value, type) and (params := _settings(value)) is not None:
        return {"!": "estimator", "class": reference(type(value)), "params": {k: encode(v) for k, v in params.items()}}
    if isinstance(value, type) or callable(value):
        return {"!": "import", "value": reference(value)}
    raise SubjectError(
        f"parameter of type {type(value).__name__} cannot be recorded; use numbers, text, lists or estimators"
    )


def _container(value: Any) -> dict[str, Any] | None:
    """Return the tagged form of anything that holds other values, or None."""
    if isinstance(value, np.ndarray):
        return {"!": "array", "dtype": value.dtype.str, "value": [encode(v) for v in value.tolist()]}
    if isinstance(value, np.dtype):
        return {"!": "dtype", "value": value.str}
    if isinstance(value, tuple):
        return {"!": "tuple", "value": [encode(v) for v in value]}
    if isinstance(value, set | frozenset):
        return {"!": "set", "value": sorted((encode(v) for v in value), key=repr)}
    if isinstance(value, Domain):
        return {"!": "domain", "value": {**value.payload(), "proposed": value.proposed}}
    if isinstance(value, slice):
        return {"!": "slice", "value": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {"!": "dict", "value": [[encode(k), encode(v)] for k, v in value.items()]}
    if isinstance(value, functools.partial):
        return {"!": "partial", "value": [encode(value.func), encode(value.args), encode(value.keywords)]}
    return None


def decode(value: Any, resolve: Resolve) -> Any:  # noqa: PLR0912  one branch a tag
    """Return what ``encode`` recorded.

    Parameters
    ----------
    value : JSON
        What ``encode`` returned.
    resolve : callable
        ``"module:qualname" -> object``; in workers it looks into the recipe's own sources first.
    """
    if isinstance(value, list):
        return [decode(v, resolve) for v in value]
    if not isinstance(value, dict):
        return value
    kind = value["!"]
    if kind == "float":
        return float(value["value"])
    if kind == "array":
        return np.array(decode(value["value"], resolve), dtype=value["dtype"])
    if kind == "tuple":
        return tuple(decode(value["value"], resolve))
    if kind == "set":
        return set(decode(value["value"], resolve))
    if kind == "slice":
        return slice(*value["value"])
    if kind == "domain":
        return Domain.from_payload(value["value"])
    if kind == "dtype":
        return np.dtype(value["value"])
    if kind == "partial":
        function, args, keywords = (decode(v, resolve) for v in value["value"])
        return functools.partial(function, *args, **keywords)
    if kind == "dict":
        return {decode(k, resolve): decode(v, resolve) for k, v in value["value"]}
    if kind == "import":
        return resolve(value["value"])
    if kind == "estimator":
        params = {k: decode(v, resolve) for k, v in value["params"].items()}
        return resolve(value["class"])(**params)
    raise SubjectError(f"recipe.json holds an unknown kind of parameter {kind!r}")


def references(value: Any) -> list[str]:
    """Return every ``module:qualname`` that ``decode`` would resolve."""
    if isinstance(value, list):
        return [r for v in value for r in references(v)]
    if not isinstance(value, dict):
        return []
    own = [value["class"]] if value.get("!") == "estimator" else []
    own += [value["value"]] if value.get("!") == "import" else []
    if value.get("!") == "domain":
        return []
    inner = value.get("params", {}).values() if value.get("!") == "estimator" else value.get("value", [])
    return own + [r for v in (inner if not isinstance(inner, str) else []) for r in references(v)]


def set_seed(estimator: Any, seed: int | None) -> Any:
    """Set every ``random_state`` of an estimator, nested ones too, and return it.

    With ``seed=None`` an estimator that leaves a ``random_state`` open stays random.
    """
    if seed is not None:
        names = [k for k in estimator.get_params(deep=True) if k == "random_state" or k.endswith("__random_state")]
        estimator.set_params(**dict.fromkeys(names, seed))
    return estimator
