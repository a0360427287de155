"""What can be changed about a subject: knobs of its recipe, shards, fewer people, other releases."""

import itertools
from collections.abc import Callable, Iterator

import numpy as np
from numpy.typing import NDArray

from privgate.advice import learners
from privgate.advice.change import Change, Setting
from privgate.advice.knobs import Knob, Place, sites
from privgate.check import asked
from privgate.errors import PrivgateError
from privgate.influence import remove_risky
from privgate.policy import Policy
from privgate.subject.release import Laplace, Release
from privgate.subject.subject import Subject

SHARDS = (4, 10, 20)
#: people that are removed at most, of all
REMOVED = 0.05
#: shares of the people that a model is trained on instead of all, and people who must be left
ONE_IN, LEAST_SAMPLED = (2, 4, 10), 20

#: the model as it stands
NOTHING = Change(says="the model as it stands")

_RELEASES = (
    ("rounded to one digit", Release(form="rounded", step=0.1), ""),
    ("in four bins", Release(form="binned", step=0.25), ""),
    ("the three most likely labels", Release(form="top_k", k=3), ""),
    ("the most likely label with its probability", Release(form="top_k", k=1), ""),
    ("the label alone", Release(form="label"), ""),
    (
        "probabilities at temperature 10",
        Release(temperature=10.0),
        "it makes the numbers smaller and hands out the same knowledge: whoever knows the temperature undoes it",
    ),
)


def present_values(subject: Subject) -> list[tuple[Place, Knob, float]]:
    """Return every knob of a recipe that can still be turned, with where to start."""
    found = ((place, knob, knob.start(value)) for place, knob, value in sites(subject.recipe.payload))
    return [(place, knob, start) for place, knob, start in found if start is not None]


def knob_change(place: Place, knob: Knob, start: float, part: float, *, beside: bool = False) -> Change:
    """Return one knob turned a part of its way, with what belongs beside it or without."""
    value = knob.between(start, part)
    also = knob.beside if beside else ()
    return Change(
        says=", ".join([f"{knob.parameter} {start:g} becomes {value:g}", *(f"{name} {v}" for name, v in also)]),
        kind="parameters",
        settings=(
            Setting(place=place, value=value),
            *(Setting(place=(*place[:-1], name), value=v) for name, v in also),
        ),
    )


def everything(subject: Subject, policy: Policy) -> Iterator[Change]:
    """Yield every change that is no knob, the cheapest first."""
    limits = asked.unit_limits(policy)
    yield from itertools.chain(removals(subject, limits), _releases(subject), sharded(subject, limits))


def _releases(subject: Subject) -> Iterator[Change]:
    if not subject.release.exact or subject.task == "regression":
        return
    for says, release, games in _RELEASES:
        if release.form == "top_k" and release.k >= len(subject.classes):
            continue
        yield Change(says=f"release {says}", kind="release", release=release.payload(), games=games)


def sharded(subject: Subject, limits: tuple[float, ...]) -> Iterator[Change]:
    """Yield the same learner in shards, clipped to the policy's own limit: a theorem then holds whatever it does."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] is not None or not limits:
        return
    if subject.task == "regression" or payload["dp"] is not None:
        return
    if subject.recipe.own_model is not None or subject.data.groups is not None:
        return
    for k in SHARDS:
        yield Change(
            says=f"trained in {k} shards, answers clipped to {min(limits):g} nats",
            kind="shards",
            shards=k,
            dtp=min(limits),
        )


def removals(subject: Subject, limits: tuple[float, ...]) -> Iterator[Change]:
    """Yield the riskiest people removed, where that can be computed without training."""
    if not limits:
        return
    budget = max(1, int(REMOVED * len(subject.data.units)))
    try:
        found = remove_risky.remove_risky(subject, limit=min(limits), budget=budget, patience=50)
    except PrivgateError:
        return  # it would take a training for each person and removal: `privgate remove-risky` does that
    yield from removed(found.removed)


def removed(units: NDArray[np.int64]) -> Iterator[Change]:
    """Yield these people removed; nothing where there are none."""
    if len(units):
        yield Change(
            says="the riskiest person removed" if len(units) == 1 else f"the {len(units)} riskiest people removed",
            kind="remove",
            removed=tuple(int(u) for u in units),
        )


def sampled(subject: Subject, draw: np.random.Generator) -> Iterator[Change]:
    """Yield ever fewer people, drawn at random: to whoever does not know the draw, each may not be among them.

    That is a smaller prior (Thudi et al. 2022, section 4.2), while the draw stays secret, and no smaller influence: who
    is left tells more, so that fewer are worth trying only where a half helped.
    """
    n = len(subject.data.units)
    order = draw.permutation(n)
    for k in ONE_IN:
        if n // k < LEAST_SAMPLED:
            return
        yield Change(
            says=f"trained on one in {k} of the people, drawn in secret: membership is 1/{k} to whoever starts to ask",
            kind="sample",
            removed=tuple(sorted(int(u) for u in order[n // k :])),
        )


def noisy(subject: Subject) -> Callable[[float], Change] | None:
    """Return Laplace noise on a regressor's answers, from a hundredth to ten deviations of the targets; else None."""
    if subject.task != "regression" or subject.release.noise is not None:
        return None
    deviation = subject.scale[1]

    def at(part: float) -> Change:
        scale = float(f"{deviation * 10 ** (3 * part - 2):.3g}")
        release = Release(noise=Laplace(scale))
        return Change(
            says=f"Laplace noise of scale {scale:g} on every answer", kind="release", release=release.payload()
        )

    return at


def most(subject: Subject, policy: Policy, *, halvings: int, trials: int) -> int:
    """Return how many candidates a search measures at most, without computing any."""
    knobs = present_values(subject)
    turned = sum((1 + halvings) * (2 if knob.beside else 1) for _, knob, _ in knobs)
    scales = len(list(learners.families(subject, policy))) + (noisy(subject) is not None)
    limits = asked.unit_limits(policy)
    others = itertools.chain(learners.early(subject), sharded(subject, limits), _releases(subject))
    private = 0 if learners.named_private(subject, policy) is None else 2 + halvings
    alone = len(list(others)) + (1 if limits else 0) + private + len(ONE_IN)
    return turned + (1 + halvings) * scales + (trials if len(knobs) > 1 else 0) + alone
