"""Which versions of a model were trained on somebody: what was told before stays told, and bounds add up."""

from collections.abc import Sequence
from dataclasses import dataclass

import numpy as np

from privgate import registry
from privgate.errors import PrivgateError
from privgate.families import sharded
from privgate.registry.client import answering, connect
from privgate.subject.subject import Subject


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
    made = sharded.declared(subject)
    if made is None or sharded.ShardedMembers().unfit(subject):
        return tuple(np.inf if i in units else 0.0 for i in ids)
    shard = made.shard_of(subject.data.X)
    held = [len(np.unique(shard[subject.data.units[units[i]]])) if i in units else 0 for i in ids]
    each = made.bound(np.array(held, dtype=np.int64))
    return tuple(float(b) if h else 0.0 for b, h in zip(each, held, strict=True))


def together(seen: Sequence[Seen]) -> float:
    """Return the most that any of the people can move the answers of all versions together, nats."""
    return max((sum(each) for each in zip(*(s.bounds for s in seen), strict=True)), default=0.0)
