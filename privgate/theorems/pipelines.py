"""A pipeline whose first step learns nothing is its last step on transformed records: theorems see through it.

Such steps are ``FixedScaler`` and ``FixedOneHot``, which know ranges and categories by declaration, alone or as columns
of a ``ColumnTransformer``. They map whatever is asked into [0, 1] (docs/mathematics.md, section 17).
"""

import warnings
from collections.abc import Iterator
from dataclasses import replace
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import length, take
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

_CELLS = 1e8  # largest transformed table, numbers


class Seen(NamedTuple):
    """What a subject comes to where its first step is fixed: the last step on transformed records, or itself."""

    subject: Subject
    problem: str = ""  # why a pipeline is not seen through; empty where it is, or where the recipe is no pipeline
    steps: tuple[str, ...] = ()  # classes of the fixed steps; empty where nothing is seen through
    last: str = ""  # class of the last step of a pipeline, seen through or not; empty for other recipes

    @property
    def words(self) -> str:
        """What was checked, one sentence."""
        return f"the first steps ({', '.join(dict.fromkeys(self.steps))}) know their columns by declaration alone"


def through(subject: Subject) -> Seen:
    """Return what a pipeline comes to; a subject of any other recipe as it is."""
    estimator = subject.recipe.library_estimator
    kind = type(estimator)
    if f"{kind.__module__}:{kind.__qualname__}" != "sklearn.pipeline:Pipeline" or len(estimator.steps) < 2:
        return Seen(subject)
    last, first = type(estimator[-1]).__name__, estimator[0]
    if why := _find_learning(estimator) or _refuse_shape(estimator):
        return Seen(subject, why, last=last)
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            inner = _transform(subject, first, estimator[-1])
    except Exception as exc:  # noqa: BLE001  whatever the library makes of somebody's data: refits will say it
        return Seen(subject, f"its first steps cannot be applied to these records ({type(exc).__name__})", last=last)
    if len(inner.classes) != len(subject.classes):
        return Seen(subject, "its last step declares other labels than the data have", last=last)
    return Seen(inner, steps=tuple(type(step).__name__ for _, step in _list_parts(first)), last=last)


seen = lru_cache(maxsize=4)(through)


def _list_parts(step: Any) -> list[tuple[str, Any]]:
    """Return (name, step) of the parts of a ``ColumnTransformer``, fitted or not, or of the step itself."""
    if type(step).__name__ != "ColumnTransformer" or not type(step).__module__.startswith("sklearn."):
        return [("", step)]
    parts = [*(part[:2] for part in getattr(step, "transformers_", step.transformers)), ("remainder", step.remainder)]
    return [(name, part) for name, part in parts if not (isinstance(part, str) and part == "drop")]


def _find_learning(pipeline: Any) -> str:
    for name, step in pipeline.steps[:-1]:
        for inner, part in _list_parts(step):
            if type(part) not in (FixedScaler, FixedOneHot):  # a class derived from one of them is another class
                kind = part if isinstance(part, str) else type(part).__name__
                fixed = "privgate.models.FixedScaler(domain) and FixedOneHot(domain) do not"
                return f"step {inner or name!r} ({kind}) may depend on the data; {fixed}"
    return ""


def _refuse_shape(pipeline: Any) -> str:
    if getattr(pipeline, "transform_input", None) is not None:
        return "the pipeline transforms more than records"
    if len(pipeline.steps) > 2 or pipeline.steps[-1][1] in (None, "passthrough"):
        return "its fixed steps stand one after the other; put them beside each other in a ColumnTransformer"
    return "its parts are weighed" if getattr(pipeline[0], "transformer_weights", None) else ""


def _transform(subject: Subject, first: Any, last: Any) -> Subject:
    """Return the last step on transformed records; its domain is all that the first one can make of a question."""
    from sklearn.base import clone

    data, few = subject.data, np.arange(min(2, subject.data.n))
    fitted = clone(first).fit(take(data.X, few), data.y[few])  # it learns nothing, so that two records say all
    if fitted.transform(take(data.X, few)).shape[1] * float(data.pool_size) > _CELLS:
        raise MemoryError
    table = _densify(fitted.transform(data.X))
    candidates = data.candidates
    if candidates is not None:
        candidates = _densify(fitted.transform(candidates[0])) if length(candidates[0]) else table[:0], candidates[1]
    domain = Domain(box=((0.0, 1.0),) * table.shape[1], blocks=tuple(_list_blocks(fitted)))
    data = replace(data, X=table, candidates=candidates, domain=domain, sensitive=())
    return replace(Subject.local(Recipe(last, seed=subject.recipe.seed), data), release=subject.release)


def _densify(transformed: Any) -> NDArray[Any]:
    table = np.asarray(transformed)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise ValueError("the first steps give no table of numbers")
    return table


def _list_blocks(fitted: Any) -> Iterator[tuple[int, ...]]:
    """Yield the features of each one-hot column, of which at most one is not 0."""
    start = 0
    for _, step in _list_parts(fitted):
        one_hot = type(step) is FixedOneHot
        for column in getattr(step, "columns_", ()):
            width = len(column.values or ()) + column.missing + (not one_hot)
            if one_hot and width:
                yield tuple(range(start, start + width))
            start += width
