"""A pipeline whose first steps learn nothing is its last step on transformed records: theorems see through them.

That they learn nothing is checked, not believed: fitted on random subsets of the records the first steps transform
everybody to the same numbers, bit by bit. ``first_steps`` says which may, and what they make of a domain.
"""

import warnings
from collections.abc import Mapping
from copy import copy
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from typing import Any, TypeVar

import numpy as np
from numpy.typing import NDArray

from privgate.subject.containers import length, take
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems import first_steps, listed
from privgate.theorems.certificate import Certified, Theorem, Units
from privgate.theorems.closed_form import Engine
from privgate.theorems.first_steps import Image
from privgate.theorems.hypotheses import Reach

SUBSETS = 3  # random subsets on which first steps are fitted again
_CELLS = 1e8  # largest transformed table, numbers
OTHER_KIND = "the recipe is not "  # how a theorem's refusal begins where it is about another kind of model
_Asked = TypeVar("_Asked", Engine, Theorem)


@dataclass(frozen=True, eq=False)
class Seen:
    """What a subject comes to where its first steps are fixed: the last step on transformed records, or itself."""

    subject: Subject
    problem: str = ""  # why a pipeline is not seen through; empty where it is, or where the recipe is no pipeline
    steps: tuple[str, ...] = ()  # classes of the first steps
    no_image: str = ""  # why the questions that the last step can be asked are not known; empty where they are
    first: Any = None  # the first steps, fitted
    last: str = ""  # class of the last step of a pipeline, seen through or not; empty for other recipes
    anywhere: bool = False  # whether the first steps map every query into the ranges of the last one's domain

    @property
    def words(self) -> str:
        """What was checked, one sentence."""
        classes = ", ".join(dict.fromkeys(self.steps))
        return f"the first steps ({classes}) do not depend on the data: {SUBSETS} random subsets left them as they are"


def through(subject: Subject) -> Seen:
    """Return what a pipeline comes to; a subject of any other recipe as it is."""
    from sklearn.pipeline import Pipeline

    estimator = subject.recipe.library_estimator
    if type(estimator) is not Pipeline or len(estimator.steps) < 2:
        return Seen(subject)
    last, why = type(estimator[-1]).__name__, first_steps.find_learning(estimator[:-1])
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
    declared = first_steps.describe_queries(subject.accepted, data.X)
    domain, why = first_steps.map_domain(fitted, declared, table.shape[1])
    anywhere = first_steps.map_domain(fitted, first_steps.describe_queries(None, data.X), table.shape[1])[0] is not None
    if not (why or anywhere or _hold(declared, subject)):
        # what a model learnt lies beyond the ranges, and a question that rounds in its own precision may come there
        domain, why = None, "training records lie outside the declared domain"
    if (questions := listed.container(subject)) is not None:
        rows = tuple(map(tuple, _densify(fitted.transform(questions)).astype(np.float64).tolist()))
        domain, why = Domain(queries=rows) if domain is None else replace(domain, queries=rows), ""
    data = replace(data, X=table, candidates=candidates, domain=domain, sensitive=())
    inner = replace(Subject.local(Recipe(last, seed=subject.recipe.seed), data), release=subject.release)
    if len(inner.classes) != len(subject.classes):
        return Seen(subject, "its last step declares other labels than the data have")
    classes = tuple(type(step).__name__ for _, step in first_steps.list_leaves(first))
    return Seen(inner, "", classes, why, fitted, anywhere=anywhere)


def _hold(image: Image, subject: Subject) -> bool:
    """Whether the declared domain holds every training record; a missing number may be any."""
    domain, X = subject.accepted, subject.data.X
    if domain is not None and domain.columns is not None:
        return bool(domain.holds(X).all())
    table = np.asarray(X.toarray() if hasattr(X, "toarray") else X, dtype=np.float64)
    return not bool(((table < image.low) | (table > image.high)).any())


def _densify(transformed: Any) -> NDArray[Any]:
    if np.prod(np.array(transformed.shape, dtype=np.float64)) > _CELLS:
        raise ValueError("the transformed table does not fit the memory")
    table = np.asarray(transformed.toarray() if hasattr(transformed, "toarray") else transformed)
    if table.ndim != 2 or table.dtype.kind not in "biuf":
        raise ValueError("the first steps give no table of numbers")
    return table


def _equal(a: NDArray[Any], b: NDArray[Any]) -> bool:
    return a.dtype == b.dtype and a.shape == b.shape and a.tobytes() == b.tobytes()


# Theorems and closed forms are told of the last step where they are asked about a pipeline.


def engines(subject: Subject, catalogue: tuple[Engine, ...]) -> tuple[Engine, ...]:
    """Return the closed forms to ask about a subject, in order; refits stay those of the whole pipeline."""
    if seen(subject).subject is subject:
        return catalogue
    return tuple(_ask_behind(engine, "supports", "declines", "answers", "notes") for engine in catalogue)


def certificates(subject: Subject, catalogue: Mapping[str, Theorem]) -> dict[str, Theorem]:
    """Return the theorems to ask about a subject."""
    behind, theorems = seen(subject), dict(catalogue)
    domain = behind.subject.accepted
    if behind.last or (domain is not None and domain.blocks):
        for name, theorem in catalogue.items():
            if not theorem.needs_retrained:
                theorems[name] = view = _ask_behind(theorem, "alone", "every_data_set")
                vars(view).update(unfit=partial(_refuse, theorem), certify=partial(_certify, theorem))
    return theorems


def _ask_behind(theorem: _Asked, *methods: str) -> _Asked:
    """Return a theorem whose methods are asked about what is seen of their subject."""

    def look(ask: Any, about: Any) -> Any:
        if isinstance(about, Subject):
            return ask(seen(about).subject)
        return ask(replace(about, subject=seen(about.subject).subject))

    view = copy(theorem)
    vars(view).update({name: partial(look, getattr(theorem, name)) for name in methods})
    return view


def _refuse(theorem: Theorem, subject: Subject) -> str:
    """Return why a theorem does not apply to the last step; empty if it does."""
    behind = seen(subject)
    why = theorem.unfit(behind.subject)
    if behind.problem and why.startswith(OTHER_KIND) and f"{behind.last} " in why:
        return behind.problem  # it is about the last step, and would speak if the first steps did not learn
    return behind.no_image if behind.no_image and why.startswith("no domain is declared") else why


def _certify(theorem: Theorem, about: Units) -> Certified:
    """Return a theorem's limits over everything that the first steps make of a query.

    The image of the declared domain may hold more than real queries lead to, so nothing it shows counts as seen.
    """
    behind = seen(about.subject)
    limits = theorem.certify(replace(about, subject=behind.subject))
    said, domain = list(limits.assumptions), behind.subject.accepted
    if behind.anywhere and domain is not None:
        reach = Reach.of(domain, behind.subject.data.X.shape[1])
        refused = "" if isinstance(reach, str) else reach.words()
        said = ["whatever is asked, the first steps map it into fixed ranges" if s == refused else s for s in said]
    lower = np.where(np.isinf(limits.lower), np.inf, 0.0)
    return replace(limits, lower=lower, assumptions=(*([behind.words] if behind.steps else []), *said))
