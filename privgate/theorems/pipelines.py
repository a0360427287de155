"""A pipeline whose first steps learn nothing is its last step on transformed records: theorems see through them.

A step is fixed where its class computes each record's features from that record and its parameters alone: ``LEARNS``
says so from the library's documentation. That is checked, not believed: fitted on random subsets of the records the
first steps transform everybody to the same numbers, bit by bit. What they make of a declared domain is a range for each
feature, never too narrow (docs/mathematics.md, section 17.1).
"""

import warnings
from collections.abc import Callable, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, reduce
from itertools import pairwise
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import length, take
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems import two_models

SUBSETS = 3  # random subsets on which first steps are fitted again
_CELLS = 1e8  # largest transformed table, numbers
#: our own first steps; a class derived from one of them is another class
_OWN = (FixedScaler, FixedOneHot)
#: what to put in the place of a step that learns
INSTEAD = {
    "OneHotEncoder": "privgate.models.FixedOneHot(domain) or categories=[…]",
    "OrdinalEncoder": "categories=[…]",
    "SimpleImputer": "strategy='constant' with keep_empty_features=True",
    "LabelEncoder": "privgate.models.FixedOneHot(domain)",
} | dict.fromkeys(
    ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "QuantileTransformer", "PowerTransformer"),
    "privgate.models.FixedScaler(domain)",
)
_CATEGORIES = (
    ("its categories are read off them", lambda s: isinstance(s.categories, str)),
    ("rare categories are merged by their counts", lambda s: (s.min_frequency, s.max_categories) != (None, None)),
)
#: class -> what it reads off the data, and with which parameters; no other class is known to be fixed
LEARNS: dict[str, Sequence[tuple[str, Callable[[Any], bool]]]] = {
    "FixedScaler": (),
    "FixedOneHot": (),
    "OneHotEncoder": _CATEGORIES,
    "OrdinalEncoder": _CATEGORIES,
    "SimpleImputer": (
        ("its values are the {0.strategy} of them", lambda s: s.strategy != "constant"),
        ("it marks the columns that have missing values among them", lambda s: s.add_indicator),
        ("a column that has no value is dropped; set keep_empty_features=True", lambda s: not s.keep_empty_features),
    ),
}


@dataclass(frozen=True, eq=False)
class Seen:
    """What a subject comes to where its first steps are fixed: the last step on transformed records, or itself."""

    subject: Subject
    problem: str = ""  # why a pipeline is not seen through; empty where it is, or where the recipe is no pipeline
    steps: tuple[str, ...] = ()  # classes of the first steps
    no_image: str = ""  # why the questions that the last step can be asked are not known; empty where they are
    last: str = ""  # class of the last step of a pipeline, seen through or not; empty for other recipes
    anywhere: bool = False  # whether the first steps map every query into the ranges of the last one's domain

    @property
    def words(self) -> str:
        """What was checked, one sentence."""
        classes = ", ".join(dict.fromkeys(self.steps))
        return f"the first steps ({classes}) do not depend on the data: {SUBSETS} random subsets left them as they are"


def through(subject: Subject) -> Seen:
    """Return what a pipeline comes to; a subject of any other recipe as it is."""
    estimator = subject.recipe.library_estimator
    kind = type(estimator)
    if f"{kind.__module__}:{kind.__qualname__}" != "sklearn.pipeline:Pipeline" or len(estimator.steps) < 2:
        return Seen(subject)
    last, why = type(estimator[-1]).__name__, find_learning(estimator[:-1])
    if not why and getattr(estimator, "transform_input", None) is not None:
        why = "the pipeline transforms more than records"
    elif not why and estimator.steps[-1][1] in (None, "passthrough"):
        why = "its last step is none"
    if why:
        return Seen(subject, why, last=last)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replace(_transform(subject, estimator[:-1], estimator[-1]), last=last)
    except Exception as exc:  # noqa: BLE001  whatever the library makes of somebody's data: refits will say it
        return Seen(subject, f"its first steps cannot be applied to these records ({type(exc).__name__})", last=last)


seen = lru_cache(maxsize=4)(through)


def find_learning(steps: Any) -> str:
    """Return which step depends on the data, or may, and what to put in its place; empty if none does."""
    for name, step in _list_leaves(steps):
        kind = type(step).__name__
        if not (_is_library(step) or type(step) in _OWN):
            return f"nothing is known of step {name!r} ({kind})"
        why = next((": " + text.format(step) for text, learns in LEARNS.get(kind, ()) if learns(step)), "")
        if why or kind not in LEARNS:
            instead = f"; take {INSTEAD[kind]}" if kind in INSTEAD else ""
            verb = "depends" if why or instead else "may depend"
            return f"step {name!r} ({kind}) {verb} on the data{why}{instead}"
    return ""


def _list_leaves(step: Any, name: str = "") -> list[tuple[str, Any]]:
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
    return [leaf for part, inner in parts for leaf in _list_leaves(inner, part)]


def _is_library(step: Any) -> bool:
    return type(step).__module__.startswith("sklearn.")


def _transform(subject: Subject, first: Any, last: Any) -> Seen:
    from sklearn.base import clone

    data, n = subject.data, subject.data.n
    few = np.arange(min(2, n))
    width = clone(first).fit(take(data.X, few), data.y[few]).transform(take(data.X, few)).shape[1]
    if width * float(n) > _CELLS:
        return Seen(subject, f"{width} features of {n} records do not fit the memory")
    fitted = clone(first).fit(data.X, data.y)
    table, rng = _densify(fitted.transform(data.X)), subject.generator("fixed steps")
    for size in (n // 2, n // 2, min(n, 10))[:SUBSETS]:
        some = np.sort(rng.choice(n, max(1, size), replace=False)).astype(np.int64)
        again = _densify(clone(first).fit(take(data.X, some), data.y[some]).transform(data.X))
        alone = _densify(fitted.transform(take(data.X, some)))
        if not _equal(again, table) or not _equal(alone, table[some]):
            why = "its first steps transform records differently when fitted on, or asked about, fewer of them"
            return Seen(subject, why)
    candidates = data.candidates
    if candidates is not None:
        candidates = _densify(fitted.transform(candidates[0])) if length(candidates[0]) else table[:0], candidates[1]
    domain, why, anywhere = _map_domain(fitted, subject, table.shape[1])
    if (questions := two_models.container(subject)) is not None:
        rows = tuple(map(tuple, _densify(fitted.transform(questions)).astype(np.float64).tolist()))
        domain, why = Domain(queries=rows) if domain is None else replace(domain, queries=rows), ""
    data = replace(data, X=table, candidates=candidates, domain=domain, sensitive=())
    inner = replace(Subject.local(Recipe(last, seed=subject.recipe.seed), data), release=subject.release)
    if len(inner.classes) != len(subject.classes):
        return Seen(subject, "its last step declares other labels than the data have")
    classes = tuple(type(step).__name__ for _, step in _list_leaves(first))
    return Seen(inner, "", classes, why, anywhere=anywhere)


def _densify(transformed: Any) -> NDArray[Any]:
    if np.prod(np.array(transformed.shape, dtype=np.float64)) > _CELLS:
        raise ValueError("the transformed table does not fit the memory")
    table = np.asarray(transformed.toarray() if hasattr(transformed, "toarray") else transformed)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise ValueError("the first steps give no table of numbers")
    return table


def _equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# What they make of a domain.


class NoImage(Exception):  # noqa: N818  an answer, not an error
    """Why the answers of the first steps have no known range."""


class Image(NamedTuple):
    """Ranges of d features, and which of them are one-hot together."""

    low: Float  # NaN where nothing is known of a feature: text, or a column that nobody declared
    high: Float
    names: Sequence[Any]  # what a reason names
    blocks: tuple[tuple[int, ...], ...] = ()  # as in ``Domain``


def _map_domain(fitted: Any, subject: Subject, features: int) -> tuple[Domain | None, str, bool]:
    """Return what fitted first steps make of any query, or else of the declared domain; or why that is not known.

    The last says whether any query was asked about.
    """
    given = _describe_queries(subject)
    try:
        for queries in (given._replace(low=given.low * np.nan, high=given.high * np.nan), given):
            image, anywhere = _transform_image(fitted, queries), queries is not given
            if len(image.low) != features:
                return None, "the first steps give another number of features than their parameters say", False
            if not (unknown := np.isnan(image.low + image.high)).any():
                break
    except NoImage as exc:
        return None, str(exc), False
    if unknown.any():
        name = image.names[int(unknown.argmax())]
        example = f"TrainingData(X, y, domain={{{name!r}: (0, 100), …}}), every column of the frame"
        why = f"no range is declared of {name!r}, which reaches the last step; declare it, for example {example}"
        return None, why, False
    if not (anywhere or _holds_records(given, subject)):
        # what a model learnt lies beyond the ranges, and a question that rounds in its own precision may come there
        return None, "training records lie outside the declared domain", False
    box = tuple(zip(image.low.tolist(), image.high.tolist(), strict=True))
    return Domain(box=box, blocks=image.blocks), "", anywhere


def _describe_queries(subject: Subject) -> Image:
    """Return what a raw query like the records may hold; unknown where nothing is declared."""
    domain, X = subject.accepted, subject.data.X
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


def _holds_records(image: Image, subject: Subject) -> bool:
    """Whether the declared domain holds every training record; a missing number may be any."""
    domain, X = subject.accepted, subject.data.X
    if domain is not None and domain.columns is not None:
        return bool(domain.holds(X).all())
    table = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    return not bool(((table < image.low) | (table > image.high)).any())


def _transform_image(step: Any, given: Image) -> Image:
    """Return what a fitted step of ``LEARNS`` makes of an image; raise ``NoImage`` where its answers have no range."""
    kind = type(step).__name__
    if step is None or isinstance(step, str) or (kind == "FunctionTransformer" and step.func is None):
        return given  # how a fitted ColumnTransformer holds what passes through
    if getattr(step, "transformer_weights", None) is not None:
        raise NoImage(f"{kind} weighs its parts, and what that makes of a range is not looked at")
    if kind == "Pipeline":
        return reduce(lambda image, part: _transform_image(part[1], image), step.steps, given)
    if kind == "FeatureUnion":
        return _join([_transform_image(inner, given) for _, inner in step.transformer_list if inner != "drop"])
    if kind == "ColumnTransformer":
        return _transform_columns(step, given)
    if kind == "SimpleImputer":
        numbers = all(isinstance(v, int | float | np.number) for v in step.statistics_.tolist())
        value = step.statistics_.astype(np.float64) if numbers else np.nan
        return Image(np.minimum(given.low, value), np.maximum(given.high, value), given.names)
    if kind == "OrdinalEncoder":
        ends = [v for v in (0.0, step.unknown_value, step.encoded_missing_value) if v is not None and np.isfinite(v)]
        high = np.array([len(c) - 1.0 for c in step.categories_])
        return Image(np.full(len(high), min(ends)), np.maximum(high, max(ends)), given.names)
    if kind == "OneHotEncoder":
        gone = [None] * len(step.categories_) if step.drop_idx_ is None else step.drop_idx_
        widths = [len(c) - (g is not None) for c, g in zip(step.categories_, gone, strict=True)]
    elif type(step) in _OWN:
        widths = [len(c.values or ()) + c.missing + (kind == "FixedScaler") for c in step.columns_]
    else:
        raise NoImage(f"the answers of {kind} have no limit")
    edges = np.cumsum([0, *widths]).tolist()
    blocks = () if kind == "FixedScaler" else tuple(tuple(range(a, b)) for a, b in pairwise(edges) if b > a)
    return Image(np.zeros(edges[-1]), np.ones(edges[-1]), [""] * edges[-1], blocks)


def _transform_columns(step: Any, given: Image) -> Image:
    parts = {}
    for name, inner, _ in step.transformers_:
        if not (isinstance(inner, str) and inner == "drop"):
            where, columns = step.output_indices_[name], list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names
            place = {c: k for k, c in enumerate(columns)}
            blocks = (tuple(place[j] for j in b if j in place) for b in given.blocks)
            at, names = np.asarray(columns, dtype=np.int64), [given.names[c] for c in columns]
            chosen = Image(given.low[at], given.high[at], names, tuple(b for b in blocks if b))
            parts[where.start, name] = part = _transform_image(inner, chosen)
            if where.stop - where.start != len(part.low):
                raise NoImage(f"step {name!r} gives {where.stop - where.start} features, {len(part.low)} were expected")
    return _join([part for _, part in sorted(parts.items(), key=lambda item: item[0])])


def _join(images: Sequence[Image]) -> Image:
    """Return the features of several images, one after the other."""
    start = np.cumsum([0, *(len(i.low) for i in images)]).tolist()
    blocks = tuple(tuple(j + s for j in b) for i, s in zip(images, start, strict=False) for b in i.blocks)
    low, high = (np.concatenate([np.zeros(0), *(getattr(i, end) for i in images)]) for end in ("low", "high"))
    return Image(low, high, [name for i in images for name in i.names], blocks)
