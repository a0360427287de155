"""Whether the code that trains is the code that somebody recorded, and the code that was approved before."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from privgate import digest
from privgate.registry import reports
from privgate.subject.subject import Subject


@dataclass(frozen=True)
class Pinned:
    """What is known about a recipe's sources.

    Parameters
    ----------
    loose : tuple of str
        Why sources are not pinned, one phrase each.
    changed : tuple of str
        What changed since the version that was approved last.
    before : str
        That version; empty if none was approved.
    """

    loose: tuple[str, ...] = ()
    changed: tuple[str, ...] = ()
    before: str = ""


def sources(subject: Subject) -> dict[str, str]:
    """Return the digest of every source file of the recipe, and of how it is called."""
    files = {name: digest.of_bytes(content) for name, content in sorted(subject.recipe.snapshot.items())}
    return {**files, "recipe": digest.of_json(dict(subject.recipe.payload))}


def pinned(subject: Subject, unrecorded: tuple[str, ...]) -> Pinned:
    """Return what is not pinned and what changed; ``unrecorded`` are modules seen at work that no snapshot holds."""
    recipe, loose = subject.recipe, []
    if not recipe.is_estimator and not recipe.snapshot:
        loose.append("no file holds the training function's source")
    if unrecorded:
        loose.append(f"modules {', '.join(unrecorded)} are at work and not among the recorded sources")
    environment = subject.detail.get("environment", {})
    if different := tuple(environment.get("differences", ())):
        loose.append(f"libraries are not the recorded ones ({different[0]})")
    before = reports.approved_before(subject)
    if before is None:
        return Pinned(tuple(loose))
    version = str(before["subject"]["version"])
    return Pinned(tuple(loose), tuple(_changed(subject, before)), version)


def _changed(subject: Subject, before: Mapping[str, Any]) -> list[str]:
    """Return which sources differ; where the earlier report lists none, whether the recipe as a whole does."""
    old = dict((before["evidence"].get("collusion") or {}).get("sources") or {})
    if not old:
        same = before["subject"]["digests"].get("recipe") == subject.recipe.digest
        return [] if same else ["the recipe"]
    new = sources(subject)
    return sorted(k for k in old.keys() | new.keys() if old.get(k) != new.get(k))
