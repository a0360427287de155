"""Estimators as JSON: class path and parameters, nested as scikit-learn nests them; no pickle."""

import inspect
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from types import SimpleNamespace
from typing import Any

import numpy as np

from privgate.errors import SubjectError
from privgate.subject import sources
from privgate.subject.domain import Domain

Resolve = Callable[[str], Any]

#: classifiers whose parameters theorems read, and these: importing scikit-learn takes a second, and training has it
_READ = {
    "sklearn.naive_bayes:GaussianNB": {"priors", "var_smoothing"},
    "sklearn.naive_bayes:BernoulliNB": (_COUNTS := {"alpha", "class_prior", "fit_prior", "force_alpha"}) | {"binarize"},
    "sklearn.naive_bayes:CategoricalNB": _COUNTS | {"min_categories"},
}
#: classifiers of which no theorem reads anything, whatever their parameters
_UNREAD = {
    "sklearn.ensemble._forest:ExtraTreesClassifier",
    "sklearn.ensemble._forest:RandomForestClassifier",
    "sklearn.ensemble._gb:GradientBoostingClassifier",
    "sklearn.ensemble._hist_gradient_boosting.gradient_boosting:HistGradientBoostingClassifier",
    "sklearn.neighbors._classification:KNeighborsClassifier",
    "sklearn.neural_network._multilayer_perceptron:MLPClassifier",
    "sklearn.tree._classes:DecisionTreeClassifier",
}


class _Read(SimpleNamespace):
    """A classifier by its parameters, which nothing trains."""

    _estimator_type, predict_proba = "classifier", None

    def set_params(self, **params: Any) -> None:
        vars(self).update(params)

    def get_params(self, **_: bool) -> dict[str, Any]:
        return {**vars(self)}


def find_classes(spec: Mapping[str, Any], resolve: Resolve) -> dict[str, Any]:
    """Return the classes that a recorded estimator names; one that theorems only read is not imported."""
    ref, named = spec["class"], references(spec)
    if named == [ref] and (ref in _UNREAD or _READ.get(ref) == spec["params"].keys()):
        home, _, name = ref.partition(":")
        return {ref: type(name, (_Read,), {"__module__": home})}
    return {ref: resolve(ref) for ref in named}


def is_estimator(thing: Any) -> bool:
    """Whether ``thing`` is an unfitted estimator: an instance with ``fit`` and ``get_params``."""
    return not isinstance(thing, type) and hasattr(thing, "fit") and hasattr(thing, "get_params")


def is_fitted(value: Any) -> bool:
    """Whether an estimator, or one within it or within a list or mapping, has learned something."""
    if is_estimator(value):
        if any(k.endswith("_") and not k.startswith("_") for k in getattr(value, "__dict__", {})):
            return True
        value = _settings(value) or {}
    inner = value.values() if isinstance(value, Mapping) else value if isinstance(value, list | tuple) else ()
    return any(map(is_fitted, inner))


def is_class_of(homes: tuple[str, ...], thing: Any) -> bool:
    """Whether this is a class of estimators, kernels or splitters defined there, which keep what they are made with."""
    home = str(getattr(thing, "__module__", ""))  # a name alone may be ``sklearn.datasets._base:os.system``
    keeps = hasattr(thing, "get_params") or hasattr(thing, "get_n_splits")
    return isinstance(thing, type) and keeps and home.startswith(tuple(h.partition(":")[0] for h in homes))


def is_number_type(ref: str) -> bool:
    """Whether a reference names a number type or an elementwise function of numpy, which parameters of steps are."""
    home, _, name = ref.partition(":")
    thing = getattr(np, name, None) if home == "numpy" else None
    return isinstance(thing, np.ufunc) or (isinstance(thing, type) and issubclass(thing, np.number | np.bool_))


def reference(thing: Any) -> str:
    """Return ``module:qualname`` of a class or function; a script's own functions get the script's module name.

    ``SubjectError``: that name does not find it again (a lambda, a nested function, another object's name).
    """
    name = getattr(thing, "__qualname__", "") or getattr(thing, "__name__", "")
    home = getattr(thing, "__module__", None) or getattr(getattr(thing, "__objclass__", None), "__module__", None)
    if isinstance(thing, np.ufunc):
        home = home or "numpy"
    if not name or not home or "<" in name:
        own = name.rpartition("<locals>.")[2]  # an address tells nobody anything
        known = "a lambda" if own == "<lambda>" else own or repr(thing)
        raise SubjectError(f"{known} has no importable name; define it at the top level of a module")
    held: Any = sys.modules.get(home)
    for part in name.split("."):
        held = getattr(held, part, None)
    if held is not thing:
        raise SubjectError(f"{home}:{name} is not {thing!r}; a recipe needs what its own name can find again")
    return f"{sources.main_module() if home == '__main__' else home}:{name}"


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
    """Return ``value`` as JSON, or a ``SubjectError``; estimators, arrays, tuples and functions get a ``"!"``."""
    if value is None or isinstance(value, bool | int | str):
        return value
    if isinstance(value, float):
        return value if np.isfinite(value) else {"!": "float", "value": str(value)}
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, list):
        return [encode(v) for v in value]
    if (tag := next((tag for kind, tag in _CONTAINERS if isinstance(value, kind)), None)) is not None:
        return tag(value)
    if not isinstance(value, type) and (params := _settings(value)) is not None:
        return {"!": "estimator", "class": reference(type(value)), "params": {k: encode(v) for k, v in params.items()}}
    if isinstance(value, type | np.ufunc) or hasattr(value, "__qualname__"):
        return {"!": "import", "value": reference(value)}
    kind = type(value).__name__
    raise SubjectError(f"parameter of type {kind} cannot be recorded; use numbers, text, lists or estimators")


#: what holds other values -> its tagged form; the first that fits
_CONTAINERS: tuple[tuple[Any, Callable[[Any], dict[str, Any]]], ...] = (
    (np.ndarray, lambda v: {"!": "array", "dtype": v.dtype.str, "value": encode(v.tolist())}),
    (np.dtype, lambda v: {"!": "dtype", "value": v.str}),
    (tuple, lambda v: {"!": "tuple", "value": encode([*v])}),
    (set | frozenset, lambda v: {"!": "set", "value": sorted(map(encode, v), key=repr)}),
    (Domain, lambda v: {"!": "domain", "value": {**v.payload(), "proposed": False}}),
    (slice, lambda v: {"!": "slice", "value": [v.start, v.stop, v.step]}),
    (Mapping, lambda v: {"!": "dict", "value": [[encode(k), encode(x)] for k, x in v.items()]}),
)


def decode(value: Any, resolve: Resolve) -> Any:
    """Return what ``encode`` recorded; ``resolve`` maps ``"module:qualname"`` to objects, a recipe's own ones first."""
    if isinstance(value, list):
        return [decode(v, resolve) for v in value]
    if not isinstance(value, dict):
        return value
    make = _DECODERS.get(value["!"])
    if make is None:
        raise SubjectError(f"recipe.json holds an unknown kind of parameter {value['!']!r}")
    return make(value, resolve)


_DECODERS: dict[str, Callable[[Any, Resolve], Any]] = {
    "float": lambda v, _: float(v["value"]),
    "array": lambda v, r: np.array(decode(v["value"], r), dtype=v["dtype"]),
    "tuple": lambda v, r: tuple(decode(v["value"], r)),
    "set": lambda v, r: set(decode(v["value"], r)),
    "slice": lambda v, _: slice(*v["value"]),
    "domain": lambda v, _: Domain.from_payload(v["value"]),
    "dtype": lambda v, _: np.dtype(v["value"]),
    "dict": lambda v, r: {decode(k, r): decode(x, r) for k, x in v["value"]},
    "import": lambda v, r: r(v["value"]),
    "estimator": lambda v, r: r(v["class"])(**{k: decode(x, r) for k, x in v["params"].items()}),
}


def references(value: Any) -> list[str]:
    """Return every ``module:qualname`` that ``decode`` would resolve; what holds no values where it should raises."""
    if isinstance(value, list):
        return [r for v in value for r in references(v)]
    if not isinstance(value, dict) or value.get("!") == "domain":
        return []
    if value.get("!") == "import":
        return [value["value"]]
    if value.get("!") == "estimator":
        return [value["class"], *references([*value.get("params", {}).values()])]
    inner = value.get("value", [])
    return [] if isinstance(inner, str) else [r for v in inner for r in references(v)]


def names_files(value: Any) -> bool:
    """Whether fitting what ``decode`` makes reads or writes files that its parameters name."""
    todo: list[Any] = [value]
    for part in todo:
        todo += part.values() if isinstance(part, Mapping) else part if isinstance(part, list) else ()
    nodes = (part.get("params") for part in todo if isinstance(part, Mapping) and part.get("!") == "estimator")
    params = [p for p in nodes if isinstance(p, Mapping)]
    return any(p.get("memory") is not None or p.get("input", "content") != "content" for p in params)


@contextmanager
def seeded(estimator: Any, seed: int | None) -> Iterator[None]:
    """While this lasts, torch draws from the seed: networks of skorch have no ``random_state`` and draw from torch."""
    parts = [estimator, *estimator.get_params(deep=True).values()]
    if seed is None or not any(c.__module__.startswith("skorch.") for p in parts for c in type(p).__mro__):
        yield
        return
    import torch

    with torch.random.fork_rng():
        torch.manual_seed(seed)
        yield


def set_seed(estimator: Any, seed: int | None) -> Any:
    """Set every ``random_state`` of an estimator, nested ones too, and return it."""
    if seed is not None:
        names = [k for k in estimator.get_params(deep=True) if k == "random_state" or k.endswith("__random_state")]
        if names:  # what set_params of somebody's own class returns is not looked at
            estimator.set_params(**dict.fromkeys(names, seed))
    return estimator
