"""The engines in the order in which they are asked: closed form, certified Newton, shards, refit."""

from privgate.families import least_squares, refit, ridge, sharded
from privgate.families.engine import Engine
from privgate.families.logistic import logistic_engine
from privgate.families.pipelines import behind
from privgate.subject.subject import Subject

ALL: tuple[Engine, ...] = (
    ridge.ENGINE,
    least_squares.ENGINE,
    logistic_engine.ENGINE,
    sharded.ENGINE,
    refit.ENGINE,
)


def of(subject: Subject) -> tuple[Engine, ...]:
    """Return the engines to ask about a subject, in order; a pipeline's fixed first steps are seen through."""
    return behind.engines(subject, ALL)


def first(subject: Subject) -> tuple[Engine, dict[str, str]]:
    """Return the first engine that answers for a subject, and why engines of its kind before it decline the work.

    It may hand single units on. What an engine ``declines`` as a whole is known here before anything is planned: a
    budget must not be spent on a closed form that in the end retrains everybody.
    """
    declined: dict[str, str] = {}
    for engine in of(subject):
        if engine.refusal(subject):
            continue
        if why := engine.declines(subject):
            declined[engine.name] = why
            continue
        return engine, declined
    raise LookupError("the last engine covers everything")  # pragma: no cover  refit supports all
