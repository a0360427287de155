"""Estimators as JSON: class path and parameters, nested as scikit-learn nests them; no pickle."""

from collections.abc import Callable, Mapping
from typing import Any

import numpy as np

from privgate.errors import SubjectError

Resolve = Callable[[str], Any]


def is_estimator(thing: Any) -> bool:
    """Whether ``thing`` is an unfitted estimator: an instance with ``fit`` and ``get_params``."""
    return not isinstance(thing, type) and hasattr(thing, "fit") and hasattr(thing, "get_params")


def reference(thing: Any) -> str:
    """Return ``module:qualname`` of a class or function.

    Raises
    ------
    SubjectError
        It cannot be imported again by that name (a lambda, a nested function).
    """
    name = getattr(thing, "__qualname__", "")
    if not name or "<" in name:
        raise SubjectError(f"{thing!r} has no importable name; define it at the top level of a module")
    return f"{thing.__module__}:{name}"


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
    if isinstance(value, np.ndarray):
        return {"!": "array", "dtype": value.dtype.str, "value": [encode(v) for v in value.tolist()]}
    if isinstance(value, list):
        return [encode(v) for v in value]
    if isinstance(value, tuple):
        return {"!": "tuple", "value": [encode(v) for v in value]}
    if isinstance(value, slice):
        return {"!": "slice", "value": [value.start, value.stop, value.step]}
    if isinstance(value, Mapping):
        return {"!": "dict", "value": [[encode(k), encode(v)] for k, v in value.items()]}
    if is_estimator(value):
        params = value.get_params(deep=False)
        return {"!": "estimator", "class": reference(type(value)), "params": {k: encode(v) for k, v in params.items()}}
    if isinstance(value, type) or callable(value):
        return {"!": "import", "value": reference(value)}
    raise SubjectError(
        f"parameter of type {type(value).__name__} cannot be recorded; use numbers, text, lists or estimators"
    )


def decode(value: Any, resolve: Resolve) -> Any:
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
    if kind == "slice":
        return slice(*value["value"])
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
