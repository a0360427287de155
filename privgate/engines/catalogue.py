"""The engines in the order in which they are asked: closed form, certified Newton, tree, batched networks, refit."""

from privgate.engines import (
    bernoulli_nb,
    categorical_nb,
    complement_nb,
    decision_tree,
    gaussian_nb,
    k_nearest,
    lda,
    logistic,
    multinomial_nb,
    nearest_centroid,
    qda,
    refit,
    ridge,
    torch_nets,
)
from privgate.engines.base import Engine
from privgate.subject import Subject

ALL: tuple[Engine, ...] = (
    categorical_nb.ENGINE,
    bernoulli_nb.ENGINE,
    multinomial_nb.ENGINE,
    gaussian_nb.ENGINE,
    complement_nb.ENGINE,
    lda.ENGINE,
    qda.ENGINE,
    nearest_centroid.ENGINE,
    k_nearest.ENGINE,
    ridge.ENGINE,
    logistic.ENGINE,
    decision_tree.ENGINE,
    torch_nets.ENGINE,
    refit.ENGINE,
)


def first(subject: Subject) -> tuple[Engine, dict[str, str]]:
    """Return the first engine that answers for a subject, and why engines of its kind before it decline the work.

    It may hand single units on. What an engine ``declines`` as a whole is known here before anything is planned: a
    budget must not be spent on a closed form that in the end retrains everybody.
    """
    declined: dict[str, str] = {}
    for engine in ALL:
        if engine.supports(subject):
            continue
        if why := getattr(engine, "declines", _never)(subject):
            declined[engine.name] = why
            continue
        return engine, declined
    raise LookupError("the last engine covers everything")  # pragma: no cover


def _never(subject: Subject) -> str:
    del subject
    return ""
