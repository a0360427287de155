"""What fixed first steps make of a whole domain: a range for each feature, never too narrow.

Interval arithmetic, feature by feature (docs/mathematics.md, section 17.1). Where a step's answers have no known range
there is no image, and any question is allowed.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privgate.arrays import Float
from privgate.subject.domain import Domain

#: relative room for what our own steps round, who compute in double precision
_ROUNDED = 1e-12
#: and for what the library's round, each result: they compute in the precision of the question, half at the least
_HALF = 2.0**-10
#: below this half precision does not tell numbers from each other
_SMALLEST = 2.0**-24
#: elementwise functions that rise everywhere
_RISING = ("log1p", "log", "log2", "log10", "sqrt", "exp", "expm1", "exp2", "tanh", "arctan", "arcsinh", "cbrt", "rint")


class NoImage(Exception):  # noqa: N818  an answer, not an error
    """Why the answers of the first steps have no known range."""


@dataclass(frozen=True, eq=False)
class Image:
    """Ranges of features, and which of them are one-hot together.

    Parameters
    ----------
    low, high : float64 arrays of shape (d,)
        NaN where nothing is known of a feature: text, or a column that nobody declared.
    blocks : tuple of tuples of int
        As in ``Domain``.
    names : sequence
        Of the features; what a reason names.
    """

    low: Float
    high: Float
    blocks: tuple[tuple[int, ...], ...] = ()
    names: Sequence[Any] = ()

    @classmethod
    def of(cls, domain: Domain | None, X: Any) -> "Image":
        """Return what a raw query may hold; unknown where nothing is declared."""
        if not hasattr(X, "shape") or len(X.shape) != 2:
            return cls(np.zeros(0), np.zeros(0))
        d = int(X.shape[1])
        names = list(getattr(X, "columns", range(d)))
        low, high = np.full(d, np.nan), np.full(d, np.nan)
        if domain is None:
            return cls(low, high, (), names)
        if domain.columns is not None:
            for k, column in enumerate(domain.columns):
                numbers = column.values if column.ends is None else column.ends
                if numbers and all(isinstance(v, int | float) for v in numbers):
                    low[k], high[k] = min(numbers), max(numbers)
        elif domain.box is not None:
            low, high = np.array(domain.box, dtype=np.float64).reshape(-1, 2).T.copy()
        elif domain.categories is not None:
            low, high = np.zeros(d), np.array(domain.categories, dtype=np.float64) - 1
        return cls(low, high, domain.blocks, names)

    def holds(self, X: Any, domain: Domain | None) -> bool:
        """Whether every record of ``X`` is one that this image of ``domain`` allows; a missing number may be any."""
        if domain is not None and domain.columns is not None:
            return bool(domain.holds(X).all())
        table = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
        return not bool(((table < self.low) | (table > self.high)).any())

    def take(self, columns: Sequence[int]) -> "Image":
        """Return some of the features, in this order."""
        place = {c: k for k, c in enumerate(columns)}
        blocks = tuple(tuple(place[j] for j in b if j in place) for b in self.blocks)
        at = np.asarray(columns, dtype=np.int64)
        names = [self.names[c] for c in columns]
        return Image(self.low[at], self.high[at], tuple(b for b in blocks if b), names)

    def domain(self) -> Domain:
        """Return the ranges as a domain.

        Raises
        ------
        NoImage
            Of some feature nothing is known.
        """
        bad = np.flatnonzero(~(np.isfinite(self.low) & np.isfinite(self.high)))
        if len(bad):
            name = self.names[bad[0]] if len(self.names) == len(self.low) else int(bad[0])
            if np.isinf([self.low[bad[0]], self.high[bad[0]]]).any():
                raise NoImage(
                    f"{name!r} may be infinite where it reaches the last step; declare a narrower range of it"
                )
            raise NoImage(
                f"no range is declared of {name!r}, which reaches the last step; declare it, for example "
                f"TrainingData(X, y, domain={{{name!r}: (0, 100), …}}), every column of the frame"
            )
        box = tuple(zip(self.low.tolist(), self.high.tolist(), strict=True))
        return Domain(box=box, blocks=self.blocks)


def joined(images: Sequence[Image]) -> Image:
    """Return the features of several images, one after the other."""
    if not images:
        return Image(np.zeros(0), np.zeros(0))
    start = np.cumsum([0, *(len(i.low) for i in images)])
    blocks = tuple(tuple(j + int(s) for j in b) for i, s in zip(images, start, strict=False) for b in i.blocks)
    names = [n for i in images for n in (i.names if len(i.names) == len(i.low) else [""] * len(i.low))]
    low, high = (np.concatenate(v) for v in zip(*((i.low, i.high) for i in images), strict=True))
    return Image(low, high, blocks, names)


def through(step: Any, given: Image) -> Image:
    """Return what a fitted step makes of an image.

    Raises
    ------
    NoImage
        The step's answers have no known range.
    """
    if step is None or step == "passthrough":
        return given
    kind = type(step).__name__
    if kind in ("FeatureUnion", "ColumnTransformer") and step.transformer_weights is not None:
        raise NoImage(f"{kind} weighs its parts, and what that makes of a range is not looked at")
    if kind == "Pipeline":
        for _, inner in step.steps:
            given = through(inner, given)
        return given
    if kind == "FeatureUnion":
        return joined([through(inner, given) for _, inner in step.transformer_list if inner != "drop"])
    if kind == "ColumnTransformer":
        return _by_columns(step, given)
    return _OF[kind](step, given)


def _by_columns(step: Any, given: Image) -> Image:
    made = []
    for name, inner, _ in step.transformers_:
        where = step.output_indices_[name]
        if isinstance(inner, str) and inner == "drop":
            continue
        columns = list(step._transformer_to_input_indices[name])  # noqa: SLF001  how it resolved names, slices and selectors
        found = through(inner, given.take(columns))
        if where.stop - where.start != len(found.low):
            raise NoImage(f"step {name!r} gives {where.stop - where.start} features, {len(found.low)} were expected")
        made.append((where.start, found))
    return joined([found for _, found in sorted(made, key=lambda pair: pair[0])])


def _fixed_one_hot(step: Any, given: Image) -> Image:
    del given
    return _one_hot([len(c.values or ()) + c.missing for c in step.columns_], [c.name for c in step.columns_])


def _fixed_scaler(step: Any, given: Image) -> Image:
    del given
    d = sum(1 + c.missing for c in step.columns_)
    return Image(np.zeros(d), np.ones(d))


def _one_hot(widths: Sequence[int], names: Sequence[Any]) -> Image:
    edges = np.cumsum([0, *widths])
    blocks = tuple(tuple(range(a, b)) for a, b in zip(edges[:-1].tolist(), edges[1:].tolist(), strict=True) if b > a)
    labels = [n for n, w in zip(names, widths, strict=True) for _ in range(w)]
    return Image(np.zeros(int(edges[-1])), np.ones(int(edges[-1])), blocks, labels)


def _one_hot_encoder(step: Any, given: Image) -> Image:
    del given
    widths = []
    for j, categories in enumerate(step.categories_):
        gone = step.drop_idx_ is not None and step.drop_idx_[j] is not None
        widths.append(len(categories) - gone)
    return _one_hot(widths, range(len(widths)))


def _ordinal_encoder(step: Any, given: Image) -> Image:
    high = np.array([len(c) - 1.0 for c in step.categories_])
    low = np.zeros(len(high))
    for value in (step.unknown_value, step.encoded_missing_value):
        if value is not None and np.isfinite(value):
            low, high = np.minimum(low, value), np.maximum(high, value)
    return Image(low, high, (), given.names)


def _imputer(step: Any, given: Image) -> Image:
    fill = np.asarray(step.statistics_, dtype=object)
    if all(isinstance(v, int | float | np.number) for v in fill.tolist()) and len(fill) == len(given.low):
        value = fill.astype(np.float64)
        return Image(np.minimum(given.low, value), np.maximum(given.high, value), (), given.names)
    unknown = np.full(len(fill), np.nan)
    return Image(unknown, unknown, (), given.names)


def _zero_to_one(step: Any, given: Image) -> Image:
    del step
    return Image(np.zeros(len(given.low)), np.ones(len(given.low)), (), given.names)


def _normalizer(step: Any, given: Image) -> Image:
    del step
    low = np.where(given.low >= 0, 0.0, -1.0 - _HALF)  # NaN compares as not: nothing known, anything from -1
    return Image(low, np.full(len(low), 1.0 + _HALF), (), given.names)


def _function(step: Any, given: Image) -> Image:
    if step.func is None:
        return given
    if getattr(step.func, "__name__", "") not in _RISING:
        raise NoImage(f"nothing is known of the range of {getattr(step.func, '__name__', 'its function')}")
    with np.errstate(all="ignore"):
        low, high = step.func(given.low), step.func(given.high)
    low, high = _outward(low, high)
    return Image(low, high, (), given.names)


def _polynomial(step: Any, given: Image) -> Image:
    low, high = [], []
    for powers in step.powers_:
        a, b = 1.0, 1.0
        for j in np.flatnonzero(powers):
            ends = np.array([given.low[j], given.high[j]]) ** int(powers[j])
            c, d = float(ends.min()), float(ends.max())
            if powers[j] % 2 == 0 and given.low[j] < 0 < given.high[j]:
                c = 0.0
            corners = np.array([a * c, a * d, b * c, b * d])
            a, b = float(corners.min()), float(corners.max())
        low.append(a)
        high.append(b)
    names = (
        ["*".join(str(given.names[j]) for j in np.flatnonzero(p).tolist()) for p in step.powers_] if given.names else ()
    )
    sides = _outward(np.array(low), np.array(high), step.powers_.sum(axis=1))
    return Image(*sides, (), names)


def _hashed(step: Any, given: Image) -> Image:
    del given
    if step.norm is None and not step.binary:
        raise NoImage("a text of any length has counts of any size; set norm='l2' or binary=True in HashingVectorizer")
    # several words may fall on one feature, so that binary bounds nothing unless it is applied to features
    if step.norm is None:
        raise NoImage("words that share a feature add up; set norm='l2' in HashingVectorizer")
    high = np.full(step.n_features, 1.0 + _ROUNDED)
    return Image(-high if step.alternate_sign else np.zeros(step.n_features), high)


def _counts(step: Any, given: Image) -> Image:
    del given
    if not step.binary:
        raise NoImage("a text of any length has counts of any size; set binary=True in CountVectorizer")
    d = len(step.vocabulary_)
    return Image(np.zeros(d), np.ones(d))


def _unbounded(step: Any, given: Image) -> Image:
    del given
    raise NoImage(f"the answers of {type(step).__name__} have no limit")


def _outward(low: Float, high: Float, results: Any = 1) -> tuple[Float, Float]:
    """Return ranges whose ends are widened by what so many results in half precision round; 0 stays 0, as it does."""
    room = [np.where(end == 0, 0.0, np.abs(end) * _HALF * results + _SMALLEST) for end in (low, high)]
    return low - room[0], high + room[1]


_OF: dict[str, Callable[[Any, Image], Image]] = {
    "FixedScaler": _fixed_scaler,
    "FixedOneHot": _fixed_one_hot,
    "OneHotEncoder": _one_hot_encoder,
    "OrdinalEncoder": _ordinal_encoder,
    "SimpleImputer": _imputer,
    "MissingIndicator": _zero_to_one,
    "FunctionTransformer": _function,
    "Binarizer": _zero_to_one,
    "Normalizer": _normalizer,
    "PolynomialFeatures": _polynomial,
    "HashingVectorizer": _hashed,
    "FeatureHasher": _unbounded,
    "CountVectorizer": _counts,
}
