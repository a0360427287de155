"""What can be changed about a subject: knobs of its recipe, shards, fewer people, other releases."""

import itertools
import math
from collections.abc import Iterator

from privgate.advice.change import Change, Setting
from privgate.advice.knobs import Knob, Place, sites
from privgate.check import gate
from privgate.errors import PrivgateError
from privgate.influence import remove_risky
from privgate.policy import Policy
from privgate.subject.release import Release
from privgate.subject.subject import Subject

SHARDS = (4, 10, 20)
#: people that are removed at most, of all
REMOVED = 0.05

_RELEASES = (
    ("rounded to one digit", Release(form="rounded", step=0.1), ""),
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
    limits = gate.unit_limits(policy)
    yield from itertools.chain(
        _removals(subject, min(limits, default=math.inf)), _sharded(subject, limits), _releases(subject)
    )


def _releases(subject: Subject) -> Iterator[Change]:
    if not subject.release.exact:
        return
    for says, release, games in _RELEASES:
        yield Change(says=f"release {says}", kind="release", release=release.payload(), games=games)


def _sharded(subject: Subject, limits: tuple[float, ...]) -> Iterator[Change]:
    """Yield the same learner in shards, clipped to the policy's own limit: a theorem then holds whatever it does."""
    payload = subject.recipe.payload
    if payload["kind"] != "estimator" or payload["predict"] is not None or not limits:
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


def _removals(subject: Subject, limit: float) -> Iterator[Change]:
    """Yield the riskiest people removed, where that can be computed without training."""
    if not math.isfinite(limit):
        return
    most = max(1, int(REMOVED * len(subject.data.units)))
    try:
        found = remove_risky.remove_risky(subject, limit=limit, budget=most, patience=50)
    except PrivgateError:
        return  # it would take a training for each person and removal: `privgate remove-risky` does that
    if len(found.removed):
        yield Change(
            says=f"the {len(found.removed)} riskiest people removed",
            kind="remove",
            removed=tuple(int(u) for u in found.removed),
        )
