"""Members trained again without somebody, the proof that all others are unchanged, and who was told before."""

import hashlib
import pickle
import time
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from privgate import registry
from privgate.errors import DigestMismatchError, PrivgateError, UsageError
from privgate.evidence import Count
from privgate.families import sharded_members
from privgate.families.sharded_members import declared
from privgate.influence.risky_removal import without
from privgate.models import Sharded
from privgate.registry.client import answering, connect
from privgate.subject import estimators
from privgate.subject.data import TrainingData
from privgate.subject.subject import Subject

# Members of a sharded model trained again without somebody, and the proof that all others are what they were.


@dataclass(frozen=True)
class Forgotten:
    """What was trained again, and what shows that nothing else changed.

    Parameters
    ----------
    uri : str
        The new version.
    people, records : int
        Who were forgotten, with how many records.
    members : tuple of int
        Trained again.
    trained_on, of_records : int
        Records that these members read, and all that are left.
    seconds : float
        Processor time of training them once.
    before, after : tuple of str
        Digest of every member, in the version that held the people and in the new one as it is stored.
    """

    uri: str
    people: int
    records: int
    members: tuple[int, ...]
    trained_on: int
    of_records: int
    seconds: float
    before: tuple[str, ...]
    after: tuple[str, ...]


def forget(
    uri: str, ids: Sequence[str], *, tracking_uri: str | None = None, store: str | None = None
) -> tuple[Forgotten, Subject]:
    """Train the members that held somebody again, and register the next version; return the proof and the old subject.

    Opens the stored model here, as whoever trained it may.

    Parameters
    ----------
    uri : str
        A registered version of a ``Sharded`` recipe.
    ids : sequence of str
        Names of units: groups, else record ids, else row numbers.
    tracking_uri, store : str, optional
        As in ``log_model``; data that lie with the run are put beside the new version likewise.

    Raises
    ------
    UsageError
        The model is not sharded, somebody is not in its data, nobody would be left, or the learner does not give the
        same member twice, so that nothing could be proven: nothing is registered.
    DigestMismatchError
        What was stored is not what was proven.
    """
    subject = registry.load_subject(uri, tracking_uri=tracking_uri)
    if not subject.version:
        raise UsageError(f"{uri} is no registered version, so there is no next one; use models:/name/version")
    old = _opened(subject, uri)
    units = _units(subject.data, ids)
    gone = np.concatenate([subject.data.units[int(u)] for u in units])
    if public := int(old.published(subject.data.X, subject.data.y)[gone].sum()):
        raise UsageError(
            f"{Count(public, len(gone))} of their {len(gone)} records are among the public records of the recipe, "
            "which every member is trained on; take them out of public= and train the whole again"
        )
    left = without(subject.data, units)
    concerned = tuple(np.unique(old.shard_of(subject.data.X)[gone]).tolist())
    kept = {m: member for m, member in enumerate(old.members_) if m not in concerned}
    made = dict[str, Any]()

    def trained(data: TrainingData) -> Sharded:
        started = time.process_time()
        model = _retrained(subject, data, kept)
        made["seconds"] = time.process_time() - started
        made["after"] = _digests(model)
        if _digests(_retrained(subject, data, kept)) != made["after"]:
            raise UsageError(
                f"{type(old.base).__name__} does not give the same member twice from the same records and seed, so "
                "nothing could be proven and nothing was registered; fix its random_state and threads"
            )
        return model

    if store is None and subject.detail.get("data_kind") == "run":
        store = "artifacts"
    info = registry.log_model(
        subject.recipe,
        left,
        registered_model_name=subject.name,
        release=subject.release,
        tracking_uri=tracking_uri,
        store=store,
        trained=trained,
        tags={
            "privgate.forgotten_from": uri,
            "privgate.forgotten_members": f"{', '.join(map(str, concerned))} of {len(old.members_)}"[:250],
        },
    )
    new = f"models:/{subject.name}/{info.registered_model_version}"
    found = Forgotten(
        uri=new,
        people=len(units),
        records=len(gone),
        members=concerned,
        trained_on=int(np.isin(old.shard_of(left.X), concerned).sum()),
        of_records=left.n,
        seconds=made["seconds"],
        before=_digests(old),
        after=_digests(_opened(registry.load_subject(new, tracking_uri=tracking_uri), new)),
    )
    _compare(found, made["after"])
    return found, subject


def _opened(subject: Subject, uri: str) -> Sharded:
    """Return the stored model of a recipe that is ``Sharded``; anything else is refused before it is opened."""
    own = subject.recipe.own_model
    if own is None or own["class"] != "Sharded" or subject.model is None:
        spec = subject.recipe.payload.get("estimator") or {}
        kind = str(spec.get("class", "a training function")).rpartition(":")[2]
        raise UsageError(
            f"{uri} is {kind}, not privgate.models.Sharded, so every record reached all of it; train it again on data "
            "without these people, and log that as the next version"
        )
    model = subject.model.load()
    if type(model) is not Sharded or len(getattr(model, "members_", ())) != int(own["shards"]):
        raise DigestMismatchError(f"the model stored as {uri} is not the Sharded that its recipe describes")
    recipe = declared(subject)
    if recipe is None or (recipe.shard_of(subject.data.X) != model.shard_of(subject.data.X)).any():
        raise DigestMismatchError(
            f"the model stored as {uri} puts people into other shards than its recipe, so who held whom is not known"
        )
    return model


def _units(data: TrainingData, ids: Sequence[str]) -> Any:
    names = {str(name): u for u, name in enumerate(data.unit_names)}
    if unknown := [i for i in ids if i not in names]:
        raise UsageError(f"{len(unknown)} of {len(ids)} ids name nobody in the training data, {unknown[0]!r} first")
    units = np.unique([names[i] for i in ids]).astype(np.int64)
    if not len(units) or len(units) == len(names):
        raise UsageError("nobody to forget" if not len(units) else "nobody would be left to train on")
    return units


def _retrained(subject: Subject, data: TrainingData, kept: dict[int, Any]) -> Sharded:
    made = estimators.set_seed(subject.recipe.estimator, subject.recipe.seed)
    with estimators.seeded(made, subject.recipe.seed):
        return made.refit(data.X, data.y, kept)  # type: ignore[no-any-return]  # an estimator is Any


def _digests(model: Sharded) -> tuple[str, ...]:
    return tuple(_digest(m) for m in model.members_)


def _digest(member: Any) -> str:
    """Return the digest of a member's bytes; written and read once more first, after which they stay the same."""
    again = pickle.dumps(pickle.loads(pickle.dumps(member, protocol=5)), protocol=5)  # noqa: S301  just written here
    return "sha256:" + hashlib.sha256(again).hexdigest()


def _compare(found: Forgotten, trained: tuple[str, ...]) -> None:
    pairs = enumerate(zip(found.before, found.after, trained, strict=True))
    wrong = [m for m, (old, new, made) in pairs if new != made or (m not in found.members and new != old)]
    if wrong:
        raise DigestMismatchError(
            f"member {wrong[0]} of {found.uri} is not what it should be as it is stored; do not release that version"
        )


# Which versions of a model were trained on somebody: what was told before stays told, and bounds add up.


@dataclass(frozen=True)
class Seen:
    """What one version knows of some people.

    Parameters
    ----------
    version : str
    aliases : tuple of str
        Under which it can be asked for now; who asked for it before, nobody recorded.
    bounds : tuple of float
        Nats that each of the people can move any of its answers by: 0 for who is not in its data, infinite where no
        bound holds whatever is asked.
    problem : str
        Why its data could not be read, so that everybody counts as seen; else empty.
    """

    version: str
    aliases: tuple[str, ...]
    bounds: tuple[float, ...]
    problem: str = ""

    @property
    def people(self) -> int:
        """How many of them it was trained on, or may have been."""
        return sum(b > 0 for b in self.bounds)


def versions(name: str, ids: Sequence[str], *, tracking_uri: str | None = None) -> list[Seen]:
    """Return what every registered version knows of people, oldest first; versions that hold none of them too."""
    client = connect(tracking_uri)
    with answering(f"listing the versions of {name}"):
        rows = list(client.search_model_versions(f"name='{name}'", max_results=10_000))
        named = client.get_registered_model(name).aliases
    found = []
    for row in sorted(rows, key=lambda r: int(r.version)):
        aliases = tuple(a for a, v in named.items() if str(v) == str(row.version))
        try:
            subject = registry.load_subject(f"models:/{name}/{row.version}", tracking_uri=tracking_uri)
        except PrivgateError as exc:
            found.append(Seen(str(row.version), aliases, (np.inf,) * len(ids), str(exc)))
        else:
            found.append(Seen(str(row.version), aliases, bounds(subject, ids)))
    return found


def bounds(subject: Subject, ids: Sequence[str]) -> tuple[float, ...]:
    """Return how far each person can move any answer of a sharded model, whatever its data: 0 for strangers."""
    units = {str(n): u for u, n in enumerate(subject.data.unit_names)}
    made = declared(subject)
    if made is None or sharded_members.ShardedMembers().unfit(subject):
        return tuple(np.inf if i in units else 0.0 for i in ids)
    shard = made.shard_of(subject.data.X)
    held = [len(np.unique(shard[subject.data.units[units[i]]])) if i in units else 0 for i in ids]
    each = made.bound(np.array(held, dtype=np.int64))
    return tuple(float(b) if h else 0.0 for b, h in zip(each, held, strict=True))


def together(seen: Sequence[Seen]) -> float:
    """Return the most that any of the people can move the answers of all versions together, nats."""
    return max((sum(each) for each in zip(*(s.bounds for s in seen), strict=True)), default=0.0)
