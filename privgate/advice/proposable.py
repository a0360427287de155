"""What a search can propose and nothing else: advice is a file, and whoever edits it must not choose what is run."""

import math
import re
from collections.abc import Iterator, Mapping
from typing import Any

from privgate.advice import learners, pretrained
from privgate.advice.change import Change, Replacement
from privgate.advice.knobs import BY_NAME, EARLY, KNOBS, Place
from privgate.advice.knobs import learners as inside
from privgate.subject import estimators
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

#: learners that a search puts in place of a recipe's own, or around it
OURS = frozenset(
    {"privgate.models:Sharded", "privgate.models:KeyedForest", "privgate.torch_recipe:PrivateTorchTraining"}
)
#: what a recipe on a frozen encoder names
_PRETRAINED = frozenset({"sklearn.pipeline:Pipeline", "privgate.models:FrozenEncoder"}) | {
    "sklearn.linear_model._logistic:LogisticRegression",
    "sklearn.linear_model:LogisticRegression",
}
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def before(subject: Subject, change: Change, public: pretrained.Public | None = None) -> str:
    """Return why no search proposes such a change to the subject; empty if one could. Nothing is made yet."""
    if change.kind == "pretrained":
        if public is None:
            return "its encoder cannot be made again without the public records"
        why = pretrained.unfit(subject, public)
        return why or ("" if pretrained.again(subject, public, change) else "another encoder comes of these records")
    people = len(subject.data.units)
    if any(not 0 <= u < people for u in change.removed) or len(set(change.removed)) != len(change.removed):
        return f"it removes people that are not among the {people}, or somebody twice"
    turned = dict(_turned(subject.recipe.payload))
    if any(s.place not in turned for s in change.settings):
        return "it sets a parameter that no search turns"
    if any(isinstance(s.value, str) and s.value not in turned[s.place] for s in change.settings):
        return "it gives a parameter a text that no search gives"
    if change.learner is not None and (why := _misplaced(subject.recipe.payload, change.learner)):
        return why
    private = change.learner is not None and change.learner.spec["class"].endswith(":PrivateTorchTraining")
    if change.claim is not None and not private:
        return "it claims differential privacy for training that it leaves as it is"
    if change.shards < 0 or (change.shards and not 0 < change.dtp < math.inf):
        return "it trains in shards that there cannot be"
    return ""


def _misplaced(payload: Mapping[str, Any], learner: Replacement) -> str:
    if str(learner.spec.get("class")) not in OURS or estimators.keeps_state(learner.spec):
        return "it puts a learner in place that no search proposes"
    if learner.place not in {place for place, _, _ in inside(payload)}:
        return "it puts a learner where the recipe has none"
    return "it puts a learner in place that reads files" if estimators.names_files(learner.spec) else ""


def after(recipe: Recipe, made: Recipe, change: Change) -> str:
    """Return which code a changed recipe names that the recipe does not; empty where it names none but ours."""
    ours = OURS | _PRETRAINED if change.kind == "pretrained" else OURS
    new = set(_names(made.payload)) - set(_names(recipe.payload)) - ours
    return f"it names {min(new)!r}, which the recipe does not" if new else ""


def _turned(payload: Mapping[str, Any]) -> Iterator[tuple[Place, set[str]]]:
    """Yield every place of a recipe that a search may set, and the texts that it may put there."""
    if payload["kind"] == "function":
        for name in BY_NAME:
            yield ("params", name), set()
    for place, name, _ in inside(payload):
        texts: dict[str, set[str]] = {k.parameter: set() for k in KNOBS.get(name, ())}
        for knob in KNOBS.get(name, ()):
            texts |= {n: {v} for n, v in knob.beside if isinstance(v, str)} | {
                n: set() for n, v in knob.beside if not isinstance(v, str)
            }
        more = (*((EARLY[name][0],) if name in EARLY else ()), *learners.BOOSTED.get(name, ())[:4])
        for parameter, allowed in (texts | {str(n): set() for n in more}).items():
            yield (*place, "params", parameter), allowed


def _names(value: Any) -> Iterator[str]:
    if isinstance(value, str) and _NAME.fullmatch(value):
        yield value
    elif isinstance(value, dict):
        for inside in value.values():
            yield from _names(inside)
    elif isinstance(value, list | tuple):
        for inside in value:
            yield from _names(inside)
