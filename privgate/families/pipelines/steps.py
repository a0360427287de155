"""First steps of a pipeline that do not depend on the data: which classes, with which parameters, and which they reach.

A step is fixed where its class computes each record's features from that record and its parameters alone. The catalogue
says so from the library's documentation; whoever uses it also sees that trainings on other records give the same
features, bit by bit.
"""

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from privgate.models import FixedOneHot, FixedScaler

#: our own first steps; a class derived from one of them is another class
_OWN = (FixedScaler, FixedOneHot)
#: largest degree of polynomials; they are made in this process
_DEGREE = 4
#: what to put in the place of a step that learns
INSTEAD = {
    "StandardScaler": "privgate.models.FixedScaler(domain)",
    "MinMaxScaler": "privgate.models.FixedScaler(domain)",
    "MaxAbsScaler": "privgate.models.FixedScaler(domain)",
    "RobustScaler": "privgate.models.FixedScaler(domain)",
    "QuantileTransformer": "privgate.models.FixedScaler(domain)",
    "PowerTransformer": "privgate.models.FixedScaler(domain)",
    "OneHotEncoder": "privgate.models.FixedOneHot(domain) or categories=[…]",
    "OrdinalEncoder": "categories=[…]",
    "SimpleImputer": "strategy='constant' with keep_empty_features=True",
    "CountVectorizer": "vocabulary=[…] or HashingVectorizer(n_features=1024, alternate_sign=False)",
    "TfidfVectorizer": "HashingVectorizer(n_features=1024, alternate_sign=False)",
    "LabelEncoder": "privgate.models.FixedOneHot(domain)",
}


def is_pipeline(estimator: Any) -> bool:
    """Whether this is scikit-learn's Pipeline with a first step and a last one."""
    from sklearn.pipeline import Pipeline

    return type(estimator) is Pipeline and len(estimator.steps) > 1


def unfixed(step: Any, name: str = "") -> str:
    """Return which step depends on the data, or may, and what to put in its place; empty if none does."""
    if step is None or step in ("passthrough", "drop"):
        return ""
    for part, inner in parts(step):
        if why := unfixed(inner, part):
            return why
    kind = type(step).__name__
    if not _library(step):
        return f"nothing is known of step {name!r} ({kind})"
    if kind in ("Pipeline", "ColumnTransformer", "FeatureUnion"):
        return ""
    if kind not in FIXED:
        return f"step {name!r} ({kind}) depends on the data" + (f"; take {INSTEAD[kind]}" if kind in INSTEAD else "")
    why = FIXED[kind](step)
    if not why:
        return ""
    return f"step {name!r} ({kind}) depends on the data: {why}" + (f"; take {INSTEAD[kind]}" if kind in INSTEAD else "")


def parts(step: Any) -> Iterator[tuple[str, Any]]:
    """Yield (name, step) of what a step is made of, unfitted."""
    kind = type(step).__name__
    if not _library(step):
        return
    if kind == "Pipeline":
        yield from step.steps
    elif kind == "FeatureUnion":
        yield from step.transformer_list
    elif kind == "ColumnTransformer":
        yield from ((name, inner) for name, inner, _ in step.transformers)
        yield "remainder", step.remainder


def names(step: Any) -> tuple[str, ...]:
    """Return the classes of all steps within, in their order."""
    inner = [n for _, part in parts(step) for n in names(part)]
    if inner or type(step).__name__ in ("Pipeline", "ColumnTransformer", "FeatureUnion"):
        return tuple(inner)
    return () if step is None or isinstance(step, str) else (type(step).__name__,)


def _library(step: Any) -> bool:
    home = type(step).__module__
    return home.startswith("sklearn.") or type(step) in _OWN


def _one_hot(step: Any) -> str:
    if isinstance(step.categories, str):
        return "its categories are read off them"
    if step.min_frequency is not None or step.max_categories is not None:
        return "rare categories are merged by their counts"
    return ""


def _ordinal(step: Any) -> str:
    return _one_hot(step)


def _imputer(step: Any) -> str:
    if step.strategy != "constant":
        return f"its values are the {step.strategy} of them"
    if step.add_indicator:
        return "it marks the columns that have missing values among them"
    return "" if step.keep_empty_features else "a column that has no value is dropped; set keep_empty_features=True"


def _function(step: Any) -> str:
    for function in (step.func, step.inverse_func):
        if function is not None and not isinstance(function, np.ufunc):
            return "it calls a function of which nothing is known"
    return "" if not step.kw_args else "it has arguments of which nothing is known"


def _polynomial(step: Any) -> str:
    degree = max(step.degree) if isinstance(step.degree, tuple) else step.degree
    return "" if degree <= _DEGREE else f"a degree above {_DEGREE} makes more features than are looked at"


def _hashing(step: Any) -> str:
    return "" if step.input == "content" else "it reads files, which are not part of the data"


def _counting(step: Any) -> str:
    return "the words are read off them" if step.vocabulary is None else _hashing(step)


def _indicator(step: Any) -> str:
    return "" if step.features == "all" else "it marks the columns that have missing values among them"


def _always(_: Any) -> str:
    return ""


#: class -> why it is not fixed with its parameters; empty if it is
FIXED: dict[str, Callable[[Any], str]] = {
    "FixedScaler": _always,
    "FixedOneHot": _always,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _ordinal,
    "SimpleImputer": _imputer,
    "MissingIndicator": _indicator,
    "FunctionTransformer": _function,
    "Binarizer": _always,
    "Normalizer": _always,
    "PolynomialFeatures": _polynomial,
    "HashingVectorizer": _hashing,
    "CountVectorizer": _counting,
    "FeatureHasher": _always,
}
