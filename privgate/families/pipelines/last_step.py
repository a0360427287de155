"""A pipeline whose first steps learn, as its last step on transformed records, and how these move without each unit."""

import warnings
from dataclasses import replace
from functools import lru_cache
from typing import Any

from privgate.families.pipelines import carry, steps
from privgate.families.pipelines.carried import Carried, NotCarried, Who, given, numbers
from privgate.families.pipelines.seen_through import seen
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject


@lru_cache(maxsize=4)
def laid_open(subject: Subject) -> tuple[Subject, Carried] | str:
    """Return the last step on what the first steps make of the records, fitted on everybody, and how that moves.

    An estimator alone is its own last step. A sentence where what the first steps learn is not carried.
    """
    estimator = subject.recipe.library_estimator
    piped = steps.is_pipeline(estimator)
    if piped and not seen(subject).problem:
        return "its first steps do not depend on the data"
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            found = _carried(subject, estimator[:-1] if piped else None)
    except NotCarried as exc:
        return str(exc)
    except Exception as exc:  # noqa: BLE001  whatever the library makes of somebody's data: refits will say it
        return f"its first steps cannot be applied to these records ({type(exc).__name__})"
    data, table = subject.data, numbers(found)
    candidates = None if data.candidates is None else (table[data.n :], data.candidates[1])
    inner = replace(data, X=table[: data.n], candidates=candidates, domain=None, sensitive=())
    recipe = Recipe(estimator[-1] if piped else estimator, seed=subject.recipe.seed)
    return replace(Subject.local(recipe, inner), release=subject.release), found


def _carried(subject: Subject, first: Any) -> Carried:
    from sklearn.base import clone

    data = subject.data
    if not hasattr(data.X, "shape") or len(data.X.shape) != 2 or hasattr(data.X, "nnz"):
        raise NotCarried("records are no table")
    if why := carry.strange(first):
        raise NotCarried(why)
    fitted = None if first is None else clone(first).fit(data.X, data.y)
    return carry.carry(fitted, given(data.pool()[0], len(data.units)), Who(data.n, data.units))
