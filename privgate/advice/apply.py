"""Making a chosen change the next version: trained anew, registered beside the old one, judged like any other."""

import shlex
from collections.abc import Sequence
from typing import Any

from privgate import registry
from privgate.advice import pretrained, proposable
from privgate.advice.advice import Advice
from privgate.advice.change import changed
from privgate.advice.point import Point
from privgate.errors import PrivgateError, UsageError
from privgate.policy import Policy
from privgate.registry.load import read_recipe
from privgate.registry.stored_model import StoredModel
from privgate.subject.subject import Subject


def apply(
    advice: Advice,
    number: int,
    *,
    tracking_uri: str | None = None,
    name: str | None = None,
    store: str | None = None,
    public: pretrained.Public | None = None,
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
    public : Public, optional
        The public records of the search, where the candidate was pre-trained on them: its encoder is made again.

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
        raise UsageError(f"the advice has no candidate {number}; it has {', '.join(map(str, known)) or 'none'}")
    point = known[number]
    if point.change.games:
        raise UsageError(f"candidate {number} is not advised: {point.change.games}")
    if point.change.kind == "pretrained" and public is None:
        raise UsageError(
            f"candidate {number} was pre-trained on public records: name them again with --public FILE.npz"
        )
    subject = registry.load_subject(advice.uri, tracking_uri=tracking_uri)
    if (subject.recipe.digest, subject.data.digest) != (advice.recipe, advice.data):
        raise UsageError(f"{advice.uri} is not what was advised on; run `privgate advise {advice.uri}` again")
    if why := proposable.before(subject, point.change, public):
        raise UsageError(f"candidate {number} is not what `privgate advise` proposes: {why}")
    try:
        made = changed(subject, point.change)
        why = proposable.after(subject.recipe, made.recipe, point.change)
    except (LookupError, TypeError, ValueError) as exc:
        why = f"it does not fit the recipe ({type(exc).__name__})"
    if why:
        raise UsageError(f"candidate {number} is not what `privgate advise` proposes: {why}")
    if (made.recipe.digest, made.data.digest) != (point.recipe, point.data):
        raise UsageError(
            f"candidate {number} as it is made here is not what was measured; run `privgate advise {advice.uri}` again"
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
        data_uri=_where(subject) if store is None and made.data.digest == subject.data.digest else None,
        tags=tags,
    )
    return registered, info


def command(subject: Subject, point: Point, out: str, tracking_uri: str | None = None) -> str:
    """Return the command line that applies a candidate; it names the store where other data have to be kept.

    The place is the one that whoever logged the version chose. It is shown and not taken: people's data go nowhere that
    only a recipe names.
    """
    words = ["privgate", "apply", str(point.number), "--out", out]
    if point.change.kind == "pretrained":
        words += ["--public", "FILE.npz"]
    where = _where(subject)
    if where is not None and point.data != subject.data.digest:
        words += ["--store", where.rstrip("/").rpartition("/")[0]]
    return typed(words, tracking_uri)


def typed(words: Sequence[str], tracking_uri: str | None = None) -> str:
    """Return a command line that a shell takes as these words, on one line; a registry that was named is named again.

    A word that cannot be shown on one line is left for whoever types it.
    """
    words = [*words, *(("--tracking-uri", tracking_uri) if tracking_uri else ())]
    return " ".join(shlex.quote(w) if w.isprintable() else "…" for w in words)


def _where(subject: Subject) -> str | None:
    """Return below which store the data of a loaded version lie; None where they are kept otherwise."""
    model = subject.model
    if subject.detail.get("data_kind") != "uri" or not isinstance(model, StoredModel):
        return None
    return str(read_recipe(model.folder, subject.uri)["data"]["uri"])


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
    return f"the policy {advice.policy} has changed since these candidates were measured: the next check may differ"
