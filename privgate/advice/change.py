"""One change to what is judged: other parameters, shards, fewer people, or another release."""

import copy
from dataclasses import replace
from typing import Any, Literal

import numpy as np
from numpy.typing import NDArray
from pydantic import BaseModel, ConfigDict

from privgate import digest
from privgate.advice.knobs import Place
from privgate.errors import UsageError
from privgate.influence.remove_risky import without
from privgate.subject import estimators
from privgate.subject.claim import Claim
from privgate.subject.recipe import Recipe
from privgate.subject.release import Release
from privgate.subject.subject import Subject

Kind = Literal["none", "parameters", "learner", "private", "pretrained", "shards", "remove", "sample", "release"]


class Setting(BaseModel):
    """One value inside a recipe's JSON form."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Place
    value: bool | int | float | str | None


class Replacement(BaseModel):
    """Another estimator where one is."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    place: Place
    spec: dict[str, Any]


class Change(BaseModel):
    """What is done to a subject; nothing at all is the model as it stands.

    Parameters
    ----------
    says : str
        For people, one phrase.
    settings : tuple of Setting
        Parameters of the recipe.
    learner : Replacement, optional
        Another learner in place of one.
    claim : mapping, optional
        What differential privacy the other learner's training claims; such a recipe has no seed.
    shards : int
        Wrapped in ``privgate.models.Sharded`` with so many; 0 for not.
    dtp : float
        What the shards are clipped to, nats.
    removed : tuple of int
        Positions of people left out of training: as telling as their names.
    release : mapping, optional
        Another release.
    games : str
        Why a good number would not be a good model; empty for honest changes.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    says: str
    kind: Literal["none", "parameters", "learner", "private", "pretrained", "shards", "remove", "sample", "release"] = (
        "none"
    )
    settings: tuple[Setting, ...] = ()
    learner: Replacement | None = None
    claim: dict[str, str | int | float | None] | None = None
    shards: int = 0
    dtp: float = 0.0
    removed: tuple[int, ...] = ()
    release: dict[str, Any] | None = None
    games: str = ""


class Rehearsal(Subject):
    """A subject whose randomness is not that of a check: what the search has looked at decides no verdict."""

    @property
    def training_digest(self) -> str:
        """As of the subject, and different from it."""
        return digest.of_json([super().training_digest, "advice"])


def changed(subject: Subject, change: Change) -> Subject:
    """Return the subject with a change made to it, as a local one: its model is whatever its recipe trains."""
    recipe = _recipe(subject, change)
    data = without(subject.data, np.array(change.removed, dtype=np.int64)) if change.removed else subject.data
    release = subject.release if change.release is None else Release.from_payload(dict(change.release))
    return Subject.local(recipe, data, release=release, name=subject.name)


def rehearsed(subject: Subject) -> Rehearsal:
    """Return the same subject for the search."""
    return Rehearsal(subject.recipe, subject.data, None, subject.release, subject.name, digests=subject.digests)


def _recipe(subject: Subject, change: Change) -> Recipe:
    recipe = subject.recipe
    if not (change.settings or change.shards or change.learner):
        return recipe
    payload = copy.deepcopy(dict(recipe.payload))
    for setting in change.settings:
        _set(payload, setting.place, estimators.encode(setting.value))
    if change.learner is not None:
        _set(payload, change.learner.place, change.learner.spec)
    if change.shards:
        payload["estimator"] = _sharded(payload["estimator"], change, subject.classes, recipe.seed)
    claim = recipe.dp if change.claim is None else Claim.from_payload(change.claim)
    if change.claim is not None:  # a recorded seed lets anybody take the noise back out
        payload |= {"dp": change.claim, "seed": None}
    if recipe.recorded is not None:
        return Recipe.read(payload, recipe.root)
    seed = payload["seed"]
    if payload["kind"] == "function":
        params = {k: estimators.decode(v, _known) for k, v in payload["params"].items()}
        return replace(recipe, params=params, seed=seed, dp=claim)
    held = estimators.decode(payload["estimator"], _known)
    return replace(recipe, training=held, params={}, seed=seed, dp=claim)


def _set(payload: dict[str, Any], place: Place, value: Any) -> None:
    inside: Any = payload
    for key in place[:-1]:
        inside = inside[key]
    inside[place[-1]] = value


def _sharded(base: Any, change: Change, classes: NDArray[Any], seed: int | None) -> dict[str, Any]:
    from privgate.models import Sharded

    made = Sharded(None, shards=change.shards, dtp=change.dtp, classes=classes, random_state=seed or 0)
    spec: dict[str, Any] = estimators.encode(made)
    spec["params"]["base"] = base
    return spec


def _known(name: str) -> Any:
    """Return what a live recipe names: it was imported by whoever wrote it."""
    from privgate.subject import sources

    found = sources.resolve(name, None)
    if found is None:
        raise UsageError(f"{name} of the recipe cannot be found again")
    return found
