"""Making a chosen change the next version: what may be proposed, and registering."""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from privgate import registry
from privgate.advice.advice_page import Advice
from privgate.advice.change import BY_NAME, EARLY, KNOBS, Change, Place, changed, learners
from privgate.advice.point import Point
from privgate.errors import PrivgateError, UsageError
from privgate.policy import Policy
from privgate.registry.load import data_place
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

# What a search can propose and nothing else: advice is a file, and whoever edits it must not choose what is run.

#: what a search puts around a recipe's own learner
OURS = frozenset({"privgate.models:Sharded"})
_NAME = re.compile(r"[A-Za-z_][\w.]*:[A-Za-z_][\w.]*")


def before(subject: Subject, change: Change) -> str:
    """Return why no search proposes such a change to the subject; empty if one could. Nothing is made yet."""
    people = len(subject.data.units)
    if any(not 0 <= u < people for u in change.removed) or len(set(change.removed)) != len(change.removed):
        return f"it removes people that are not among the {people}, or somebody twice"
    turned = dict(_turned(subject.recipe.payload))
    if any(s.place not in turned for s in change.settings):
        return "it sets a parameter that no search turns"
    if any(isinstance(s.value, str) and s.value not in turned[s.place] for s in change.settings):
        return "it gives a parameter a text that no search gives"
    if change.shards < 0 or (change.shards and not 0 < change.dtp < math.inf):
        return "it trains in shards that there cannot be"
    return ""


def after(recipe: Recipe, made: Recipe) -> str:
    """Return which code a changed recipe names that the recipe does not; empty where it names none but ours."""
    new = set(_names(made.payload)) - set(_names(recipe.payload)) - OURS
    return f"it names {min(new)!r}, which the recipe does not" if new else ""


def _turned(payload: Mapping[str, Any]) -> Iterator[tuple[Place, set[str]]]:
    """Yield every place of a recipe that a search may set, and the texts that it may put there."""
    if payload["kind"] == "function":
        for name in BY_NAME:
            yield ("params", name), set()
    for place, name, _ in learners(payload):
        texts: dict[str, set[str]] = {k.parameter: set() for k in KNOBS.get(name, ())}
        for knob in KNOBS.get(name, ()):
            texts |= {n: {v} for n, v in knob.beside if isinstance(v, str)} | {
                n: set() for n, v in knob.beside if not isinstance(v, str)
            }
        more = {EARLY[name][0]: set[str]()} if name in EARLY else {}
        for parameter, allowed in (texts | more).items():
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


# Making a chosen change the next version: trained anew, registered beside the old one, judged like any other.


def apply(
    advice: Advice,
    number: int,
    *,
    tracking_uri: str | None = None,
    name: str | None = None,
    store: str | None = None,
) -> tuple[str, Any]:
    """Train a candidate, log it with its recipe and register it; nothing is promoted.

    Parameters
    ----------
    advice : Advice
    number : int
        Of the candidate.
    tracking_uri : str, optional
    name : str, optional
        Registered model; the one that was judged if absent.
    store : str, optional
        As in ``log_model``. Data with a source need none; data that lie with the run of the judged version are put
        beside the new one likewise, and unchanged data below a store stay where they are.

    Returns
    -------
    tuple of (str, ModelInfo)
        Name of the registered model, and with ``registered_model_version`` what was logged.

    Raises
    ------
    UsageError
        There is no such candidate, it is not advised, or the model is not the one that the search started from.
    """
    known = {p.number: p for p in advice.points[1:]}
    if number not in known:
        raise UsageError(f"the advice has no change {number}; it has {', '.join(map(str, known)) or 'none'}")
    point = known[number]
    if point.change.games:
        raise UsageError(f"change {number} is not advised: {point.change.games}")
    if why := point.useless(advice.measure):
        raise UsageError(f"change {number} is not advised: {why}")
    subject = registry.load_subject(advice.uri, tracking_uri=tracking_uri)
    if (subject.recipe.digest, subject.data.digest) != (advice.recipe, advice.data):
        raise UsageError(f"{advice.uri} is not what was advised on; run `privgate advise {advice.uri}` again")
    if why := before(subject, point.change):
        raise UsageError(f"change {number} is not what `privgate advise` proposes: {why}")
    try:
        made = changed(subject, point.change)
        why = after(subject.recipe, made.recipe)
    except (LookupError, TypeError, ValueError) as exc:
        why = f"it does not fit the recipe ({type(exc).__name__})"
    if why:
        raise UsageError(f"change {number} is not what `privgate advise` proposes: {why}")
    if (made.recipe.digest, made.data.digest) != (point.recipe, point.data):
        raise UsageError(
            f"change {number} as it is made here is not what was measured; run `privgate advise {advice.uri}` again"
        )
    tags = {
        "privgate.advised_from": advice.uri,
        "privgate.advised_change": point.change.says[:250],
        # whoever reads the approval sees out of how many it was chosen
        "privgate.advised_candidates": str(len(advice.points) - 1),
    }
    registered = name or subject.name
    if store is None and subject.detail.get("data_kind") == "run" and not point.change.removed:
        store = "artifacts"
    info = registry.log_model(
        made.recipe,
        made.data,
        registered_model_name=registered,
        release=made.release,
        tracking_uri=tracking_uri,
        store=store,
        data_uri=data_place(subject) if store is None and made.data.digest == subject.data.digest else None,
        tags=tags,
    )
    return registered, info


def command(subject: Subject, point: Point, out: str, tracking_uri: str | None = None) -> str:
    """Return the command line that applies a candidate; it names the store where other data have to be kept.

    The place is the one that whoever logged the version chose. It is shown and not taken: people's data go nowhere that
    only a recipe names.
    """
    words = ["privgate", "apply", str(point.number), "--out", out]
    where = data_place(subject)
    if where is not None and point.data != subject.data.digest:
        words += ["--store", where.rstrip("/").rpartition("/")[0]]
    return typed(words, tracking_uri)


def typed(words: Sequence[str], tracking_uri: str | None = None) -> str:
    """Return a command line that a shell takes as these words, on one line; a registry that was named is named again.

    A word that cannot be shown on one line is left for whoever types it.
    """
    words = [*words, *(("--tracking-uri", tracking_uri) if tracking_uri else ())]
    return " ".join(shlex.quote(w) if w.isprintable() else "…" for w in words)


def changed_policy(advice: Advice) -> str:
    """Return that the policy is no longer the one that candidates were measured by; empty where it is.

    The gate judges by the policy of the day; nothing depends on this but what a reader expects.
    """
    try:
        found = Policy.load(advice.policy)
    except PrivgateError:
        return f"the policy {advice.policy} is not found here: whether it has changed since is not known"
    if found.digest == advice.policy_digest:
        return ""
    return f"the policy {advice.policy} has changed since these changes were measured: the next check may differ"
