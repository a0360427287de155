"""The engines in the order in which they are asked: closed form, certified Newton, refit."""

from privgate.families import discriminants, least_squares, nearest, refit, ridge, sharded
from privgate.families.engine import Engine
from privgate.families.logistic import at_minimum, logistic_engine
from privgate.families.naive_bayes import bernoulli, categorical, gaussian, tokens
from privgate.families.pipelines import behind, counted_words
from privgate.subject.subject import Subject

ALL: tuple[Engine, ...] = (
    categorical.ENGINE,
    bernoulli.ENGINE,
    tokens.MULTINOMIAL,
    gaussian.ENGINE,
    tokens.COMPLEMENT,
    discriminants.LDA,
    discriminants.QDA,
    nearest.CENTROID,
    nearest.K_NEAREST,
    ridge.ENGINE,
    least_squares.ENGINE,
    logistic_engine.ENGINE,
    at_minimum.ENGINE,
    counted_words.ENGINE,
    sharded.ENGINE,
    refit.ENGINE,
)


def of(subject: Subject, *, sampled: bool = False, compared: bool = False) -> tuple[Engine, ...]:
    """Return the engines to ask about a subject, in order; a pipeline's fixed first steps are seen through.

    Where a rule asks about a sample of people (``sampled``), an engine that needs a sample of refits itself saves none.
    Where it asks about every question (``compared``), one that has no models to compare shows nothing.
    """
    found = behind.engines(subject, ALL)
    return tuple(e for e in found if not ((sampled and e.sample) or (compared and e.bare)))


def named(name: str) -> Engine:
    """Return the engine of a name."""
    return next(e for e in ALL if e.name == name)


def first(subject: Subject, *, sampled: bool = False, compared: bool = False) -> tuple[Engine, dict[str, str]]:
    """Return the first engine that answers for a subject, and why engines of its kind before it decline the work.

    It may hand single units on. What an engine ``declines`` as a whole is known here before anything is planned: a
    budget must not be spent on a closed form that in the end retrains everybody.
    """
    declined: dict[str, str] = {}
    for engine in of(subject, sampled=sampled, compared=compared):
        if engine.refusal(subject):
            continue
        if why := engine.declines(subject):
            declined[engine.name] = why
            continue
        return engine, declined
    raise LookupError("the last engine covers everything")  # pragma: no cover  refit supports all
