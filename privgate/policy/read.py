"""From a file to a resolved document: what it extends laid under it, suites read in, every mistake named by line."""

import hashlib
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass, field
from datetime import UTC, date, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from privgate.documents import LARGE, DocumentError, door
from privgate.errors import PolicyError
from privgate.membership import attacks, numbers
from privgate.policy import extend, locate, rules, shape
from privgate.policy.document import WAIVER_DAYS, AppliesTo, Document
from privgate.policy.problems import PolicyFileError, Problem, nearest
from privgate.policy.strict_yaml import Place, Tree, dotted, read
from privgate.run import suites

D = TypeVar("D", bound=Document)
_DEEPEST = 8  # files that extend one another; more is a mistake


@dataclass(frozen=True)
class Resolved(Generic[D]):
    """A policy with everything it extends.

    Parameters
    ----------
    tree : Tree
        Its values, each with the file and line it comes from.
    document : Document
        The same, checked.
    conditions : tuple of AppliesTo
        All of them must hold: its own and those of what it extends.
    chain : tuple of str
        ``name version`` of what it extends, nearest first.
    suites : mapping
        ``file@sha256:<digest> -> JSON text`` of every suite that is named.
    files : tuple of Path
        All that was read: the file, what it extends, and their suites.
    """

    tree: Tree
    document: D
    conditions: tuple[AppliesTo, ...]
    chain: tuple[str, ...] = ()
    suites: dict[str, str] = field(default_factory=dict)
    files: tuple[Path, ...] = ()


def resolve(path: Path, name: str, kind: type[D], above: tuple[Path, ...] = ()) -> Resolved[D]:
    """Return the file's policy, with everything it extends.

    Parameters
    ----------
    path : Path
        The file.
    name : str
        How messages call it.
    kind : type of Document
        What is made of it, in the one validation that there is.
    above : tuple of Path
        Files that led here by ``extends``.

    Raises
    ------
    PolicyFileError
        With every problem found.
    """
    tree = read(path, name)
    found, suite_files = _read_suites(tree, path.parent)
    files = (path, *suite_files)
    parent = _parent(tree, path, above)
    if parent is None:
        document = shape.validated(tree, kind)
        _refuse(_cross_checks(document, tree, found))
        return Resolved(tree, document, (document.applies_to,), suites=found, files=files)
    merged = extend.lay_over(tree, parent.tree)
    document = shape.validated(merged, kind)
    found = {**parent.suites, **found}
    _refuse([*extend.weakened(document, parent.document, merged), *_cross_checks(document, merged, found)])
    chain = (f"{parent.document.name} {parent.document.version}", *parent.chain)
    conditions = (document.applies_to, *parent.conditions)
    return Resolved(merged, document, conditions, chain, found, (*files, *parent.files))


def _parent(tree: Tree, path: Path, above: tuple[Path, ...]) -> Resolved[Document] | None:
    """Return what the file extends, if anything."""
    base = tree.value.get("extends")
    if base is None:
        return None
    mark = tree.mark(("extends",))
    here = (*above, path.resolve())
    if not isinstance(base, str):
        raise PolicyFileError(Problem(*mark, "extends", "is not text", "one policy: a shipped name or a file"))
    try:
        target = locate.find(base, beside=path.parent)
    except PolicyFileError as exc:
        first = exc.problems[0]
        text = f"{base!r}: {first.what}"
        raise PolicyFileError(Problem(*mark, "extends", text, first.expected, first.nearest)) from exc
    if target.resolve() in here:
        raise PolicyFileError(
            Problem(*mark, "extends", f"{base!r} leads back to itself", "a policy that ends somewhere")
        )
    if len(here) > _DEEPEST:
        raise PolicyFileError(Problem(*mark, "extends", f"more than {_DEEPEST} policies deep", "a shorter chain"))
    return resolve(target, base, Document, here)


def _refuse(problems: list[Problem]) -> None:
    if problems:
        raise PolicyFileError(*sorted(problems, key=lambda p: (p.file, p.line, p.key)))


def _cross_checks(document: Document, tree: Tree, found: Mapping[str, str]) -> list[Problem]:
    """Return what is wrong although every part is right by itself."""
    facts = {"expectations": expected_of(found)}
    return [
        Problem(*tree.mark(p), dotted(p), what, expected, near) for p, what, expected, near in _crossed(document, facts)
    ]


def expected_of(held: Mapping[str, str]) -> dict[str, int]:
    """Return how many expectations each suite has."""
    return {name: len(json.loads(text)["expectations"]) for name, text in held.items()}


def _crossed(document: Document, facts: Mapping[str, Any]) -> Iterator[tuple[Place, str, str, str]]:
    names = {rule.name: rule for rule in document.rules}
    known = ["any", *attacks.BY_NAME, *numbers.BY_NAME]
    for i, rule in enumerate(document.rules):
        attack = getattr(rule, "attack", "any")
        if attack not in known:
            text = "any, or an attack that `privgate list` names"
            yield ("rules", i, "attack"), f"unknown attack {attack!r}", text, nearest(attack, known)
    for i, name in enumerate(document.never_waivable):
        if name not in names:
            yield (
                ("never_waivable", i),
                f"no rule is called {name!r}",
                f"one of {', '.join(names)}",
                nearest(name, names),
            )
    for i, waiver in enumerate(document.waivers):
        place = ("waivers", i)
        if waiver.rule not in names:
            text = f"no rule is called {waiver.rule!r}"
            yield (*place, "rule"), text, f"one of {', '.join(names)}", nearest(waiver.rule, names)
            continue
        if waiver.rule in document.never_waivable:
            yield (*place, "rule"), f"rule {waiver.rule!r} may never be waived", "no waiver for it", ""
        rule = names[waiver.rule]
        if waiver.granted > latest_day():
            text = f"granted on {waiver.granted}, which is still to come"
            yield (*place, "granted"), text, "the day on which it was approved", ""
        yield from _chained(document, i)
        beyond = waiver.ceiling - rule.limit if rule.direction == "max" else rule.limit - waiver.ceiling
        if beyond <= 0:
            side = "above" if rule.direction == "max" else "below"
            text = f"the ceiling {waiver.ceiling:g} waives nothing: the limit is {rule.limit:g}"
            yield (*place, "ceiling"), text, f"a number {side} the limit", ""
        elif why := rule.with_limit(waiver.ceiling).vacuous(facts):
            text = f"the ceiling {waiver.ceiling:g} waives everything: {why}"
            yield (*place, "ceiling"), text, "a ceiling that a measurement can exceed", ""


def latest_day() -> date:
    """Return the latest day that it is anywhere on earth."""
    return (datetime.now(UTC) + timedelta(hours=14)).date()


def _chained(document: Document, i: int) -> Iterator[tuple[Place, str, str, str]]:
    """Yield a problem where a waiver and those before it excuse the same for longer than one waiver may."""
    waiver = document.waivers[i]
    same = [w for w in document.waivers[: i + 1] if w.subject == waiver.subject]
    days = (max(w.expires for w in same) - min(w.granted for w in same)).days
    if len(same) > 1 and days > WAIVER_DAYS:
        text = f"{len(same)} waivers excuse rule {waiver.rule!r} for the same version over {days} days together"
        yield ("waivers", i, "expires"), text, f"at most {WAIVER_DAYS} days; renewing one replaces it", ""


def _read_suites(tree: Tree, folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Read every suite that the file names, put ``file@sha256:…`` in the place of its path, and say what was read."""
    found: dict[str, str] = {}
    files: list[Path] = []
    for holder, key, place in list(_suite_places(tree)):
        path = folder / holder[key]
        mark = tree.mark(place)
        try:
            text = door.content(path, LARGE).decode("utf-8")
            suite = suites.parse(text, path.name)
        except OSError as exc:
            what = f"{holder[key]!r} cannot be read: {exc.strerror}"
            raise PolicyFileError(Problem(*mark, dotted(place), what, "a file beside the policy")) from exc
        except (PolicyError, UnicodeDecodeError, DocumentError) as exc:
            raise PolicyFileError(Problem(*mark, dotted(place), str(exc), "a Great Expectations suite")) from exc
        plain = json.dumps(suite, sort_keys=True, separators=(",", ":"))
        name = f"{path.name}@sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
        found[name] = plain
        files.append(path)
        holder[key] = name
    return found, files


def _suite_places(tree: Tree) -> Iterator[tuple[Any, Any, Place]]:
    """Return (container, key, place) of every path of a suite that is text; the shape check finds the rest."""
    data = tree.value.get("data")
    if isinstance(data, dict):
        if isinstance(data.get("suite"), str):
            data["suite"] = [data["suite"]]
        if isinstance(data.get("suite"), list):
            for i, one in enumerate(data["suite"]):
                if isinstance(one, str):
                    yield data["suite"], i, ("data", "suite", i)
    for i, rule in enumerate(tree.value.get("rules") or []):
        kind = rules.ALL.get(str(rule.get("metric"))) if isinstance(rule, dict) else None
        for key in kind.files if kind else ():
            if isinstance(rule.get(key), str):
                yield rule, key, ("rules", i, key)
