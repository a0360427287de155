"""A pipeline whose first steps learn nothing is its last step on transformed records.

The first steps are applied once. That they do not depend on the data is checked, not believed: their classes and
parameters are in the catalogue of ``steps``, and fitted on random subsets of the records they transform everybody to
the same numbers, bit by bit.
"""

import warnings
from collections.abc import Callable
from dataclasses import dataclass, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.pipelines import image, steps
from privgate.families.pipelines.image import Image, NoImage
from privgate.subject.containers import length, take
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

#: random subsets on which first steps are fitted again
SUBSETS = 3
#: largest transformed table, numbers
_CELLS = 1e8


@dataclass(frozen=True, eq=False)
class Seen:
    """What a subject comes to where its first steps are fixed.

    Parameters
    ----------
    subject : Subject
        The last step on transformed records; the subject itself where there is nothing to see through.
    problem : str
        Why a pipeline is not seen through; empty where it is, or where the recipe is no pipeline.
    steps : tuple of str
        Classes of the first steps.
    no_image : str
        Why the questions that the last step can be asked are not known; empty where they are.
    first : estimator or None
        The first steps, fitted.
    last : str
        Class of the last step of a pipeline, seen through or not; empty for other recipes.
    anywhere : bool
        Whether the first steps map every query into the ranges of the last one's domain, declared or not.
    """

    subject: Subject
    problem: str = ""
    steps: tuple[str, ...] = ()
    no_image: str = ""
    first: Any = None
    last: str = ""
    anywhere: bool = False

    @property
    def words(self) -> str:
        """What was checked, one sentence."""
        listed = ", ".join(dict.fromkeys(self.steps))
        return f"the first steps ({listed}) do not depend on the data: {SUBSETS} random subsets left them as they are"


#: the listed questions of a declared domain as the recipe's kind of records
Listed = Callable[[Subject], Any]


def through(subject: Subject, listed: Listed = lambda _: None) -> Seen:
    """Return what a pipeline comes to; a subject of any other recipe as it is."""
    estimator = subject.recipe.library_estimator
    if not steps.is_pipeline(estimator):
        return Seen(subject)
    last = type(estimator[-1]).__name__
    if why := _unlike(estimator):
        return Seen(subject, why, last=last)
    first = estimator[:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replace(_through(subject, first, estimator[-1], listed), last=last)
    except Exception as exc:  # noqa: BLE001  whatever the library makes of somebody's data: refits will say it
        return Seen(subject, f"its first steps cannot be applied to these records ({type(exc).__name__})", last=last)


def _unlike(estimator: Any) -> str:
    """Return which part of the pipeline is not fixed; empty if all but the last are."""
    for name, step in estimator.steps[:-1]:
        if why := steps.unfixed(step, name):
            return why
    if getattr(estimator, "transform_input", None) is not None:
        return "the pipeline transforms more than records"
    return "its last step is none" if estimator.steps[-1][1] in (None, "passthrough") else ""


def _through(subject: Subject, first: Any, last: Any, listed: Listed) -> Seen:
    from sklearn.base import clone

    data = subject.data
    few = np.arange(min(2, data.n))
    width = clone(first).fit(take(data.X, few), data.y[few]).transform(take(data.X, few)).shape[1]
    if width * float(data.n) > _CELLS:
        return Seen(subject, f"{width} features of {data.n} records do not fit the memory")
    fitted = clone(first).fit(data.X, data.y)
    table = _plain(fitted.transform(data.X))
    rng = subject.generator("fixed steps")
    n = data.n
    for size in (n // 2, n // 2, min(n, 10))[:SUBSETS]:
        some = np.sort(rng.choice(n, max(1, size), replace=False)).astype(np.int64)
        again = _plain(clone(first).fit(take(data.X, some), data.y[some]).transform(data.X))
        alone = _plain(fitted.transform(take(data.X, some)))
        if not _same(again, table) or not _same(alone, table[some]):
            return Seen(
                subject, "its first steps transform records differently when fitted on, or asked about, fewer of them"
            )
    candidates = None
    if data.candidates is not None:
        outside = data.candidates[0]
        rows = _plain(fitted.transform(outside)) if length(outside) else table[:0]
        candidates = rows, data.candidates[1]
    given, anywhere = Image.of(subject.accepted, data.X), not _image(fitted, Image.of(None, data.X), table.shape[1])[1]
    domain, why = _image(fitted, given, table.shape[1])
    if not (why or anywhere or given.holds(data.X, subject.accepted)):
        # what a model learnt lies beyond the ranges, and a question that rounds in its own precision may come there
        domain, why = None, "training records lie outside the declared domain"
    if (questions := listed(subject)) is not None:
        asked = tuple(map(tuple, _plain(fitted.transform(questions)).astype(np.float64).tolist()))
        domain = Domain(queries=asked) if domain is None else replace(domain, queries=asked)
        why = ""
    inner = replace(data, X=table, candidates=candidates, domain=domain, sensitive=())
    recipe = Recipe(last, seed=subject.recipe.seed)
    made = replace(Subject.local(recipe, inner), release=subject.release)
    if len(made.classes) != len(subject.classes):
        return Seen(subject, "its last step declares other labels than the data have")
    return Seen(made, "", steps.names(first), why, fitted, anywhere=anywhere)


def _image(fitted: Any, given: Image, features: int) -> tuple[Domain | None, str]:
    """Return what fitted first steps make of a domain, or why that is not known."""
    try:
        domain = image.through(fitted, given).domain()
    except NoImage as exc:
        return None, str(exc)
    if len(domain.box or ()) != features:
        return None, "the first steps give another number of features than their parameters say"
    return domain, ""


def _plain(made: Any) -> NDArray[Any]:
    """Return transformed records as a dense table.

    Raises
    ------
    ValueError
        It would not fit the memory, or is no table.
    """
    if float(np.prod(np.array(made.shape, dtype=np.float64))) > _CELLS:
        raise ValueError("the transformed table does not fit the memory")
    table = np.asarray(made.toarray() if hasattr(made, "toarray") else made)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise ValueError("the first steps give no table of numbers")
    return table


def _same(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()
