"""Which first steps learn nothing, and what they make of a whole domain: a range for each feature, never too narrow.

A step is fixed where its class computes each record's features from that record and its parameters alone: ``LEARNS``
says so from the library's documentation. Ranges come by interval arithmetic (docs/mathematics.md, section 17.1). Where
a step's answers have no known range there is no image, and any question is allowed.
"""

from collections.abc import Callable, Sequence
from functools import reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.domain import Domain

#: our own first steps; a class derived from one of them is another class
_OWN = (FixedScaler, FixedOneHot)
_DEGREE = 4  # largest degree of polynomials; they are made in this process
_ROUNDED = 1e-12  # relative room for what our own steps round, who compute in double precision
#: and for what the library's round, each result: they compute in the precision of the question, half at the least
_HALF = 2.0**-10
_SMALLEST = 2.0**-24  # below this half precision does not tell numbers from each other
#: elementwise functions that rise everywhere
_RISING = ("log1p", "log", "log2", "log10", "sqrt", "exp", "expm1", "exp2", "tanh", "arctan", "arcsinh", "cbrt", "rint")
_HASHING = "HashingVectorizer(n_features=1024, alternate_sign=False)"
#: what to put in the place of a step that learns
INSTEAD = {
    "OneHotEncoder": "privgate.models.FixedOneHot(domain) or categories=[…]",
    "OrdinalEncoder": "categories=[…]",
    "SimpleImputer": "strategy='constant' with keep_empty_features=True",
    "CountVectorizer": f"vocabulary=[…] or {_HASHING}",
    "TfidfVectorizer": _HASHING,
    "LabelEncoder": "privgate.models.FixedOneHot(domain)",
} | dict.fromkeys(
    ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "QuantileTransformer", "PowerTransformer"),
    "privgate.models.FixedScaler(domain)",
)

_CATEGORIES = (
    ("its categories are read off them", lambda s: isinstance(s.categories, str)),
    ("rare categories are merged by their counts", lambda s: (s.min_frequency, s.max_categories) != (None, None)),
)
_KNOWN = {type(None), np.ufunc}
_FILES = ("it reads files, which are not part of the data", lambda s: s.input != "content")
_MARKS = "it marks the columns that have missing values among them"
#: class -> what it reads off the data, and with which parameters; no other class is known to be fixed
LEARNS: dict[str, Sequence[tuple[str, Callable[[Any], bool]]]] = {
    **dict.fromkeys(("FixedScaler", "FixedOneHot", "Binarizer", "Normalizer", "FeatureHasher"), ()),
    "OneHotEncoder": _CATEGORIES,
    "OrdinalEncoder": _CATEGORIES,
    "SimpleImputer": (
        ("its values are the {0.strategy} of them", lambda s: s.strategy != "constant"),
        (_MARKS, lambda s: s.add_indicator),
        ("a column that has no value is dropped; set keep_empty_features=True", lambda s: not s.keep_empty_features),
    ),
    "MissingIndicator": ((_MARKS, lambda s: s.features != "all"),),
    "FunctionTransformer": (
        ("it calls a function of which nothing is known", lambda s: not {type(s.func), type(s.inverse_func)} <= _KNOWN),
        ("it has arguments of which nothing is known", lambda s: bool(s.kw_args)),
    ),
    "PolynomialFeatures": (
        (f"a degree above {_DEGREE} makes more features than are looked at", lambda s: np.max(s.degree) > _DEGREE),
    ),
    "HashingVectorizer": (_FILES,),
    "CountVectorizer": (("the words are read off them", lambda s: s.vocabulary is None), _FILES),
}


def find_learning(steps: Any) -> str:
    """Return which step depends on the data, or may, and what to put in its place; empty if none does."""
    for name, step in list_leaves(steps):
        kind = type(step).__name__
        if not (_is_library(step) or type(step) in _OWN):
            return f"nothing is known of step {name!r} ({kind})"
        why = next((": " + text.format(step) for text, learns in LEARNS.get(kind, ()) if learns(step)), "")
        if why or kind not in LEARNS:
            instead = f"; take {INSTEAD[kind]}" if kind in INSTEAD else ""
            return f"step {name!r} ({kind}) depends on the data{why}{instead}"
    return ""


def list_leaves(step: Any, name: str = "") -> list[tuple[str, Any]]:
    """Return (name, step) of all that a step is made of, unfitted, in their order."""
    kind = type(step).__name__
    if step is None or isinstance(step, str):
        return []
    if not _is_library(step) or kind not in ("Pipeline", "ColumnTransformer", "FeatureUnion"):
        return [(name, step)]
    if kind == "ColumnTransformer":
        parts = [*((part, inner) for part, inner, _ in step.transformers), ("remainder", step.remainder)]
    else:
        parts = step.steps if kind == "Pipeline" else step.transformer_list
    return [leaf for part, inner in parts for leaf in list_leaves(inner, part)]


def _is_library(step: Any) -> bool:
    return type(step).__module__.startswith("sklearn.")


# What they make of a domain.


class NoImage(Exception):  # noqa: N818  an answer, not an error
    """Why the answers of the first steps have no known range."""


class Image(NamedTuple):
    """Ranges of d features, and which of them are one-hot together."""

    low: Float  # NaN where nothing is known of a feature: text, or a column that nobody declared
    high: Float
    names: Sequence[Any]  # what a reason names
    blocks: tuple[tuple[int, ...], ...] = ()  # as in ``Domain``


def map_domain(fitted: Any, queries: Image, features: int) -> tuple[Domain | None, str]:
    """Return what fitted first steps, which give so many features, make of queries; or why that is not known."""
    try:
        image = transform_image(fitted, queries)
    except NoImage as exc:
        return None, str(exc)
    for low, high, name in zip(*image[:3], strict=True):
        if np.isinf([low, high]).any():
            return None, f"{name!r} may be infinite where it reaches the last step; declare a narrower range of it"
        if np.isnan([low, high]).any():
            example = f"TrainingData(X, y, domain={{{name!r}: (0, 100), …}}), every column of the frame"
            return (
                None,
                f"no range is declared of {name!r}, which reaches the last step; declare it, for example {example}",
            )
    if len(image.low) != features:
        return None, "the first steps give another number of features than their parameters say"
    return Domain(box=tuple(zip(image.low.tolist(), image.high.tolist(), strict=True)), blocks=image.blocks), ""


def describe_queries(domain: Domain | None, X: Any) -> Image:
    """Return what a raw query like the records ``X`` may hold; unknown where nothing is declared."""
    d = int(X.shape[1]) if len(getattr(X, "shape", ())) == 2 else 0
    names, (low, high) = list(getattr(X, "columns", range(d))), np.full((2, d), np.nan)
    if domain is None or not d:
        return Image(low, high, names)
    if domain.columns is not None:
        for k, column in enumerate(domain.columns):
            numbers = column.values if column.ends is None else column.ends
            if numbers and all(isinstance(v, int | float) for v in numbers):
                low[k], high[k] = min(numbers), max(numbers)
    elif domain.box is not None:
        low, high = np.array(domain.box, dtype=np.float64).reshape(-1, 2).T.copy()
    elif domain.categories is not None:
        low, high = np.zeros(d), np.array(domain.categories, dtype=np.float64) - 1
    return Image(low, high, names, domain.blocks)


def transform_image(step: Any, given: Image) -> Image:
    """Return what a fitted step makes of an image; raise ``NoImage`` where its answers have no known range."""
    if step is None or step == "passthrough":
        return given
    kind = type(step).__name__
    if kind in ("FeatureUnion", "ColumnTransformer") and step.transformer_weights is not None:
        raise NoImage(f"{kind} weighs its parts, and what that makes of a range is not looked at")
    if kind == "Pipeline":
        return reduce(lambda image, part: transform_image(part[1], image), step.steps, given)
    if kind == "FeatureUnion":
        return _join([transform_image(inner, given) for _, inner in step.transformer_list if inner != "drop"])
    if kind == "ColumnTransformer":
        return _transform_columns(step, given)
    return _transform_words(step) if "Vectorizer" in kind else _transform_features(step, kind, given)


def _transform_columns(step: Any, given: Image) -> Image:
    parts = {}
    for name, inner, _ in step.transformers_:
        if not (isinstance(inner, str) and inner == "drop"):
            where, columns = step.output_indices_[name], list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names
            place = {c: k for k, c in enumerate(columns)}
            blocks = (tuple(place[j] for j in b if j in place) for b in given.blocks)
            at, names = np.asarray(columns, dtype=np.int64), [given.names[c] for c in columns]
            chosen = Image(given.low[at], given.high[at], names, tuple(b for b in blocks if b))
            parts[where.start, name] = part = transform_image(inner, chosen)
            if where.stop - where.start != len(part.low):
                raise NoImage(f"step {name!r} gives {where.stop - where.start} features, {len(part.low)} were expected")
    return _join([part for _, part in sorted(parts.items(), key=lambda item: item[0])])


def _join(images: Sequence[Image]) -> Image:
    """Return the features of several images, one after the other."""
    start = np.cumsum([0, *(len(i.low) for i in images)]).tolist()
    blocks = tuple(tuple(j + s for j in b) for i, s in zip(images, start, strict=False) for b in i.blocks)
    low, high = (np.concatenate([np.zeros(0), *(getattr(i, end) for i in images)]) for end in ("low", "high"))
    return Image(low, high, [name for i in images for name in i.names], blocks)


def _encode_one_hot(widths: Sequence[int], names: Sequence[Any]) -> Image:
    features = [n for n, w in zip(names, widths, strict=True) for _ in range(w)]
    edges = np.cumsum([0, *widths]).tolist()
    blocks = tuple(tuple(range(a, b)) for a, b in pairwise(edges) if b > a)
    return Image(np.zeros(len(features)), np.ones(len(features)), features, blocks)


def _transform_features(step: Any, kind: str, given: Image) -> Image:
    """Return what a step of a class of ``LEARNS`` makes of an image of columns."""
    match kind:
        case "FixedScaler":
            return _between(0.0, 1.0, [""] * sum(1 + c.missing for c in step.columns_))
        case "MissingIndicator" | "Binarizer":
            return _between(0.0, 1.0, given.names)
        case "Normalizer":
            low = np.where(given.low >= 0, 0.0, -1.0 - _HALF)  # NaN compares as not: nothing known, anything from -1
            return Image(low, np.full(len(low), 1.0 + _HALF), given.names)
        case "FixedOneHot":
            columns = step.columns_
            return _encode_one_hot([len(c.values or ()) + c.missing for c in columns], [c.name for c in columns])
        case "OneHotEncoder":
            dropped = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
            widths = [len(c) - (gone is not None) for c, gone in zip(step.categories_, dropped, strict=True)]
            return _encode_one_hot(widths, range(len(widths)))
        case "OrdinalEncoder":
            high = np.array([len(c) - 1.0 for c in step.categories_])
            ends = [
                v for v in (0.0, step.unknown_value, step.encoded_missing_value) if v is not None and np.isfinite(v)
            ]
            return Image(np.full(len(high), min(ends)), np.maximum(high, max(ends)), given.names)
        case "SimpleImputer":
            numbers = all(isinstance(v, int | float | np.number) for v in step.statistics_.tolist())
            value = step.statistics_.astype(np.float64) if numbers else np.nan
            return Image(np.minimum(given.low, value), np.maximum(given.high, value), given.names)
        case "PolynomialFeatures":
            return _multiply(step.powers_, given)
        case "FunctionTransformer" if step.func is None:
            return given
        case "FunctionTransformer" if step.func.__name__ in _RISING:
            with np.errstate(all="ignore"):
                return Image(*_widen(step.func(given.low), step.func(given.high)), given.names)
        case "FunctionTransformer":
            raise NoImage(f"nothing is known of the range of {step.func.__name__}")
    raise NoImage(f"the answers of {kind} have no limit")


def _transform_words(step: Any) -> Image:
    """Return what a vectorizer makes of any text."""
    if type(step).__name__ == "CountVectorizer":
        if not step.binary:
            raise NoImage("a text of any length has counts of any size; set binary=True in CountVectorizer")
        return _between(0.0, 1.0, [""] * len(step.vocabulary_))
    if step.norm is None and not step.binary:
        raise NoImage("a text of any length has counts of any size; set norm='l2' or binary=True in HashingVectorizer")
    # several words may fall on one feature, so that binary bounds nothing unless it is applied to features
    if step.norm is None:
        raise NoImage("words that share a feature add up; set norm='l2' in HashingVectorizer")
    high = 1.0 + _ROUNDED
    return _between(-high if step.alternate_sign else 0.0, high, [""] * step.n_features)


def _between(low: float, high: float, names: Sequence[Any]) -> Image:
    return Image(np.full(len(names), low), np.full(len(names), high), names)


def _multiply(powers: NDArray[Any], given: Image) -> Image:
    """Return the ranges of products of powers (m, d)."""
    low, high = np.ones((2, len(powers)))
    for k, exponents in enumerate(powers):
        for j in np.flatnonzero(exponents):
            ends = np.array([given.low[j], given.high[j]]) ** int(exponents[j])
            least = 0.0 if exponents[j] % 2 == 0 and given.low[j] < 0 < given.high[j] else ends.min()
            corners = np.outer([low[k], high[k]], [least, ends.max()])
            low[k], high[k] = corners.min(), corners.max()
    names = ["*".join(str(given.names[j]) for j in np.flatnonzero(p).tolist()) for p in powers]
    return Image(*_widen(low, high, powers.sum(axis=1)), names)


def _widen(low: Float, high: Float, results: Any = 1) -> tuple[Float, Float]:
    """Return ranges whose ends are widened by what so many results in half precision round; 0 stays 0, as it does."""
    room = [np.where(end == 0, 0.0, np.abs(end) * _HALF * results + _SMALLEST) for end in (low, high)]
    return low - room[0], high + room[1]
