"""A pipeline whose first steps learn nothing is its last step on transformed records: theorems see through them.

A step is fixed where its class computes each record's features from that record and its parameters alone: the table
``FIXED`` says so from the library's documentation. That is checked, not believed: fitted on random subsets of the
records the first steps transform everybody to the same numbers, bit by bit. ``image`` says what they make of a domain.
"""

import warnings
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass, replace
from functools import lru_cache
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Index
from privgate.models import FixedOneHot, FixedScaler
from privgate.subject.containers import length, take
from privgate.subject.domain import Domain
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.theorems import image, listed
from privgate.theorems.accepted_range import Reach
from privgate.theorems.certificate import Certified, Theorem, Units
from privgate.theorems.closed_form import Asked, Engine
from privgate.theorems.image import Image, NoImage
from privgate.theorems.retrained import Retrained

#: random subsets on which first steps are fitted again
SUBSETS = 3
#: largest transformed table, numbers
_CELLS = 1e8
#: largest degree of polynomials; they are made in this process
_DEGREE = 4
#: our own first steps; a class derived from one of them is another class
_OWN = (FixedScaler, FixedOneHot)
#: how a theorem's refusal begins where it is about another kind of model
OTHER_KIND = "the recipe is not "
_SCALER = "privgate.models.FixedScaler(domain)"
_HASHING = "HashingVectorizer(n_features=1024, alternate_sign=False)"
#: what to put in the place of a step that learns
INSTEAD = {
    **dict.fromkeys(
        ("StandardScaler", "MinMaxScaler", "MaxAbsScaler", "RobustScaler", "QuantileTransformer", "PowerTransformer"),
        _SCALER,
    ),
    "OneHotEncoder": "privgate.models.FixedOneHot(domain) or categories=[…]",
    "OrdinalEncoder": "categories=[…]",
    "SimpleImputer": "strategy='constant' with keep_empty_features=True",
    "CountVectorizer": f"vocabulary=[…] or {_HASHING}",
    "TfidfVectorizer": _HASHING,
    "LabelEncoder": "privgate.models.FixedOneHot(domain)",
}


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


def through(subject: Subject) -> Seen:
    """Return what a pipeline comes to; a subject of any other recipe as it is."""
    from sklearn.pipeline import Pipeline

    estimator = subject.recipe.library_estimator
    if type(estimator) is not Pipeline or len(estimator.steps) < 2:
        return Seen(subject)
    last = type(estimator[-1]).__name__
    if why := _unlike(estimator):
        return Seen(subject, why, last=last)
    first = estimator[:-1]
    try:
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            return replace(_through(subject, first, estimator[-1]), last=last)
    except Exception as exc:  # noqa: BLE001  whatever the library makes of somebody's data: refits will say it
        return Seen(subject, f"its first steps cannot be applied to these records ({type(exc).__name__})", last=last)


def _unlike(estimator: Any) -> str:
    """Return which part of the pipeline is not fixed; empty if all but the last are."""
    for name, step in estimator.steps[:-1]:
        if why := unfixed(step, name):
            return why
    if getattr(estimator, "transform_input", None) is not None:
        return "the pipeline transforms more than records"
    return "its last step is none" if estimator.steps[-1][1] in (None, "passthrough") else ""


def _through(subject: Subject, first: Any, last: Any) -> Seen:
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
    if (questions := listed.container(subject)) is not None:
        asked = tuple(map(tuple, _plain(fitted.transform(questions)).astype(np.float64).tolist()))
        domain = Domain(queries=asked) if domain is None else replace(domain, queries=asked)
        why = ""
    inner = replace(data, X=table, candidates=candidates, domain=domain, sensitive=())
    recipe = Recipe(last, seed=subject.recipe.seed)
    made = replace(Subject.local(recipe, inner), release=subject.release)
    if len(made.classes) != len(subject.classes):
        return Seen(subject, "its last step declares other labels than the data have")
    return Seen(made, "", names(first), why, fitted, anywhere=anywhere)


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


@lru_cache(maxsize=4)
def seen(subject: Subject) -> Seen:
    """Return the subject as closed forms and theorems may see it."""
    return through(subject)


class EngineBehind(Engine):
    """A closed form that answers for the last step of a pipeline; refits are those of the whole pipeline."""

    def __init__(self, engine: Engine) -> None:
        self.engine = engine
        self.name, self.tolerance, self.hands_on = engine.name, engine.tolerance, engine.hands_on
        self.complements, self.certain, self.tasks = engine.complements, engine.certain, engine.tasks

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        return self.engine.supports(seen(subject).subject)

    def declines(self, subject: Subject) -> str:
        """Return beforehand why ``answers`` will raise ``Declined``."""
        return self.engine.declines(seen(subject).subject)

    def answers(self, asked: Asked) -> tuple[Retrained, Index]:
        """Return what it can answer, and the units handed on."""
        return self.engine.answers(replace(asked, subject=seen(asked.subject).subject))

    def notes(self, subject: Subject) -> Mapping[str, Any]:
        """Return JSON values for the report."""
        return self.engine.notes(seen(subject).subject)


class CertificateBehind(Theorem):
    """A catalogued theorem about the last step, over everything that the first steps make of a query.

    The image of the declared domain may hold more than real queries lead to, so that nothing it finds counts as seen.
    """

    def __init__(self, certificate: Theorem) -> None:
        self.certificate = certificate
        self.name, self.source = certificate.name, certificate.source

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        found = seen(subject)
        why = self.certificate.unfit(found.subject)
        if found.problem and why.startswith(OTHER_KIND) and f"{found.last} " in why:
            return found.problem  # it is about the last step, and would speak if the first steps did not learn
        if found.no_image and why.startswith("no domain is declared"):
            return found.no_image
        return why

    def alone(self, subject: Subject) -> str:
        """Return why its bounds count only beside an attack rule; empty where they count by themselves."""
        return self.certificate.alone(seen(subject).subject)

    def every_data_set(self, subject: Subject) -> float:
        """Return what the theorem about the last step says of every data set; first steps learn nothing."""
        return self.certificate.every_data_set(seen(subject).subject)

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of the units."""
        found = seen(about.subject)
        made = self.certificate.certify(replace(about, subject=found.subject))

        said = list(made.assumptions)
        if found.anywhere and found.subject.accepted is not None:
            ranges = Reach.of(found.subject.accepted, found.subject.data.X.shape[1])
            told = "" if isinstance(ranges, str) else ranges.words()
            said = ["whatever is asked, the first steps map it into fixed ranges" if s == told else s for s in said]
        return replace(
            made,
            lower=np.where(np.isinf(made.lower), np.inf, 0.0),
            assumptions=(*([found.words] if found.steps else []), *said),
        )


def engines(subject: Subject, catalogue: tuple[Engine, ...]) -> tuple[Engine, ...]:
    """Return the closed forms to ask about a subject, in order: those behind fixed first steps where there are any."""
    found = seen(subject)
    if found.subject is subject:
        return catalogue
    return tuple(EngineBehind(e) for e in catalogue)


def certificates(subject: Subject, catalogue: Mapping[str, Theorem]) -> dict[str, Theorem]:
    """Return the theorems to ask about a subject."""
    found = seen(subject)
    domain = found.subject.accepted
    if found.last or (domain is not None and domain.blocks):
        return {n: c if c.needs_retrained else CertificateBehind(c) for n, c in catalogue.items()}
    return dict(catalogue)


# Which first steps do not depend on the data.


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
    check = FIXED[kind]
    if check is None or not (why := check(step)):
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


#: class -> (step) -> why it is not fixed with its parameters, empty if it is; None where it always is
FIXED: dict[str, Callable[[Any], str] | None] = {
    "FixedScaler": None,
    "FixedOneHot": None,
    "OneHotEncoder": _one_hot,
    "OrdinalEncoder": _one_hot,
    "SimpleImputer": _imputer,
    "MissingIndicator": _indicator,
    "FunctionTransformer": _function,
    "Binarizer": None,
    "Normalizer": None,
    "PolynomialFeatures": _polynomial,
    "HashingVectorizer": _hashing,
    "CountVectorizer": _counting,
    "FeatureHasher": None,
}
