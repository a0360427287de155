"""A model's next version with coins that a key draws, once data and code are fixed.

Whoever trains may try many seeds and register the one that passes. Here the seed follows from a key that only the gate
has, from the data and from the code: another try with the same ones gives the same seed. Changed code or data give
another seed, so that a try costs a version that everybody sees; its coins are compared with others as everybody's are.
"""

import hashlib
import hmac

from privgate import digest
from privgate.errors import UsageError
from privgate.registry import log
from privgate.registry.client import answering, connect
from privgate.registry.load import data_place, load_subject
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject

#: tag of a version: which one it was drawn again from
TAG = "privgate.redrawn_from"


def drawn_seed(subject: Subject, key: bytes) -> int:
    """Return the seed that a key gives for data and code, in [0, 2^31); the recorded seed is no part of them."""
    recipe = subject.recipe
    files = {name: digest.of_bytes(content) for name, content in recipe.snapshot.items()}
    told = digest.of_json([{**recipe.payload, "seed": None}, files, subject.data.digest, *subject.data.order])
    return int.from_bytes(hmac.digest(key, f"privgate coins/1\0{told}".encode(), hashlib.sha256)[:4], "big") >> 1


def retrain(subject: Subject, key: bytes, *, tracking_uri: str | None = None, store: str | None = None) -> str:
    """Train a version again with drawn coins, and register it; return its URI.

    ``key`` is the gate's, such as its ledger's. What was registered so before is taken as it is, so that an interrupted
    command goes on. Training runs here, as in ``log_model``.

    Raises
    ------
    UsageError
        The recipe records no seed, or the data were given by somebody who has to say where they may be kept.
    """
    if subject.recipe.seed is None:
        raise UsageError(f"{subject.uri} records no seed, so that no coins can be drawn for it; log it with a seed")
    seed = drawn_seed(subject, key)
    if seed == subject.recipe.seed:  # it was drawn already
        return f"models:/{subject.name}/{subject.version}"
    recipe = Recipe.read({**subject.recipe.payload, "seed": seed}, subject.recipe.root)
    if known := _registered(subject, recipe, tracking_uri):
        return known
    if store is None and subject.detail.get("data_kind") == "run":
        store = "artifacts"
    info = log.log_model(
        recipe,
        subject.data,
        registered_model_name=subject.name,
        release=subject.release,
        tracking_uri=tracking_uri,
        store=store,
        data_uri=None if store else data_place(subject),
        tags={TAG: str(subject.uri)},
    )
    return f"models:/{subject.name}/{info.registered_model_version}"


def _registered(subject: Subject, recipe: Recipe, tracking_uri: str | None) -> str:
    """Return the version that was drawn so before: that recipe on these data; empty if there is none."""
    client = connect(tracking_uri)
    with answering(f"listing the versions of {subject.name}"):
        rows = list(client.search_model_versions(f"name='{subject.name}'", max_results=10_000))
    for row in rows:
        uri = f"models:/{subject.name}/{row.version}"
        if row.tags.get(TAG) == subject.uri:
            made = load_subject(uri, tracking_uri=tracking_uri)
            if (made.recipe.digest, made.data.digest) == (recipe.digest, subject.data.digest):
                return uri
    return ""
