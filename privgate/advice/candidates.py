"""What can be changed about a subject: parameters, shards, other releases, other learners, and people left out last."""

import itertools
from collections.abc import Callable, Iterator
from functools import partial

import numpy as np

from privgate.advice.change import EARLY, Change, Knob, Place, Setting, learners, sites
from privgate.check import prepare
from privgate.errors import PrivgateError
from privgate.evidence import Count
from privgate.evidence.telling import SMALL_CELL
from privgate.influence import risky_removal
from privgate.policy import Policy
from privgate.subject.release import Laplace, Release
from privgate.subject.subject import Subject

#: a part of the way, 0 to 1, to where little is left of the model -> the change
Scale = Callable[[float], Change]


def early(subject: Subject) -> Iterator[Change]:
    """Yield early stopping on records that a learner sets aside itself."""
    for place, name, _ in learners(subject.recipe.payload):
        if name in EARLY:
            parameter, value = EARLY[name]
            yield Change(
                says=f"early stopping on records that it sets aside itself ({parameter} {value})",
                kind="parameters",
                settings=(Setting(place=(*place, "params", parameter), value=value),),
            )


SHARDS = (4, 10, 20)  # members of an ensemble that are tried
#: people left out at most: of all, and so many
REMOVED, MOST_REMOVED = 0.05, 20

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


def knob_scales(subject: Subject) -> Iterator[list[Scale]]:
    """Yield the scales of each knob: alone, and then with what belongs beside it."""
    for place, knob, start in present_values(subject):
        yield [
            partial(knob_change, place, knob, start, beside=beside)
            for beside in ((False, True) if knob.beside else (False,))
        ]


def together(subject: Subject) -> Iterator[list[Scale]]:
    """Yield the scale that turns every knob by the same part of its way: less of each is enough."""
    knobs = present_values(subject)

    def at(part: float) -> Change:
        turned = [knob_change(place, knob, start, part) for place, knob, start in knobs]
        return Change(
            says="; ".join(t.says for t in turned),
            kind="parameters",
            settings=tuple(setting for t in turned for setting in t.settings),
        )

    if len(knobs) > 1:
        yield [at]


def releases(subject: Subject) -> Iterator[Change]:
    """Yield coarser answers of a classifier that releases exact ones."""
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


def removals(subject: Subject, limits: tuple[float, ...]) -> risky_removal.RiskyRemoval | None:
    """Return the largest value while the riskiest people go, where that can be computed without training.

    It goes on where the limit is kept: who sees the first dip alone does not see that the next removal may undo it.
    """
    budget = min(MOST_REMOVED, max(1, int(REMOVED * len(subject.data.units))))
    try:
        return risky_removal.remove_risky(subject, limit=0.0, budget=budget) if limits else None
    except PrivgateError:
        return None  # it would take a training for each person and removal


def fewest(found: risky_removal.RiskyRemoval, limit: float) -> int:
    """Return how many removals keep a limit first, or make the largest value smallest."""
    kept = np.flatnonzero(found.upper <= limit)
    return int(kept[0]) if len(kept) else found.best


def left_out(
    subject: Subject, found: risky_removal.RiskyRemoval, limit: float, draw: np.random.Generator
) -> Iterator[Change]:
    """Yield the riskiest people left out, others drawn by chance among them where they are few.

    Two versions tell how many lie between them: it is never a number so small that it tells of somebody.
    """
    risky = found.order[: fewest(found, limit)]
    others = np.setdiff1d(np.arange(len(subject.data.units)), risky)
    gone = np.concatenate([risky, draw.permutation(others)[: max(0, SMALL_CELL - len(risky))]])
    if len(risky) and len(gone) <= REMOVED * len(subject.data.units):
        yield Change(
            says=f"{Count(len(gone))} people left out, the riskiest among them",
            kind="remove",
            removed=tuple(sorted(int(u) for u in gone)),
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


def most(subject: Subject, policy: Policy, *, halvings: int) -> int:
    """Return how many candidates a search measures at most, without computing any."""
    scales = [s for found in (*knob_scales(subject), *together(subject)) for s in found]
    count = len(scales) + (noisy(subject) is not None)
    limits = prepare.unit_limits(policy)
    others = itertools.chain(early(subject), sharded(subject, limits), releases(subject))
    return halvings * count + len(list(others)) + (1 if limits else 0)
