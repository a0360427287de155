"""From a file to a resolved document: what it extends laid under it, suites read in, every mistake named by line."""

import hashlib
import json
from collections.abc import Iterator
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import Any, Generic, TypeVar

from privgate.controls import suites
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.documents.strict_json import Place
from privgate.errors import PolicyError
from privgate.membership import NAMES
from privgate.policy import document_shape
from privgate.policy import problems as locate
from privgate.policy.document_shape import WAIVER_DAYS, Document
from privgate.policy.problems import PolicyFileError, Tree, nearest, read
from privgate.policy.rules.rule_base import ISOLATIONS

# ``extends``: a policy laid over another; what the result says more weakly than the other is refused.

#: mappings that are merged key by key
_MERGED = ("audit", "data")
#: what a file says about itself; never inherited. A waiver was
#: granted against the limits of its own file
_OWN = ("schema", "name", "version", "description", "approves", "extends", "waivers")


def lay_over(child: Tree, parent: Tree) -> Tree:
    """Return the child's values over the parent's.

    Rules are matched by id. The child's rules come first, so that positions in messages are those of the child's file.
    """
    value = {k: v for k, v in parent.value.items() if k not in _OWN}
    value.update({k: v for k, v in child.value.items() if k not in (*_MERGED, "rules")})
    if isinstance(said := child.value.get("never_waivable") or [], list):  # the shape check names anything else
        value["never_waivable"] = [*said, *(n for n in parent.value.get("never_waivable") or () if n not in said)]
    for name in _MERGED:
        if not isinstance(given := child.value.get(name, {}), dict):
            value[name] = given  # no keys with values: the shape check says so
            continue
        theirs = parent.value.get(name, {})
        value[name] = {**theirs, **given}
        if name == "data":  # by now paths of suites are a list; anything else the shape check names
            ours = [] if given.get("suite") is None else given["suite"]
            value[name]["suite"] = [*theirs.get("suite", ()), *(ours if isinstance(ours, list) else [ours])]
    mine = child.value.get("rules", [])
    if not isinstance(mine, list) or not all(isinstance(rule, dict) for rule in mine):
        value["rules"] = mine  # as above
    else:
        theirs = {_id(rule): rule for rule in parent.value["rules"]}
        value["rules"] = [*({**theirs.pop(_id(rule), {}), **rule} for rule in mine), *theirs.values()]
    return Tree(child.file, value, child.marks)


_TIGHTER = "a tighter value, or a waiver for one model version"


def list_weakened(child: Document, parent: Document) -> Iterator[tuple[Place, str]]:
    """Yield place and sentence of everything that the child says more weakly than its parent."""
    own = {rule.name: (i, rule) for i, rule in enumerate(child.rules)}
    known = parent.groups
    for name, (position, rule) in own.items():
        if rule.either in known.values() and name not in known:
            text = f"{rule.either!r} is asked by the parent: another rule that is enough for it would weaken it"
            yield ("rules", position, "either"), text
    for theirs in parent.rules:
        position, ours = own[theirs.name]
        for key, why in ours.loosened(theirs).items():
            yield ("rules", position, key), f"{getattr(ours, key, None)!r} {why}"
    for part in ("audit", "data"):
        mine, other = getattr(child, part), getattr(parent, part)
        for key in type(mine).model_fields:
            if key != "suite" and _size(getattr(mine, key)) < _size(getattr(other, key)):
                yield (part, key), f"{getattr(mine, key)!r} may only be raised: the parent has {getattr(other, key)!r}"
    if child.file != parent.file and parent.file == "downloadable":
        yield ("file",), f"{child.file!r} may not be stated here: the parent judges the file itself"
    if child.valid_days > parent.valid_days:
        yield ("valid_days",), f"{child.valid_days} may only be lowered: the parent has {parent.valid_days}"


def _size(value: Any) -> float:
    """Return how much a setting demands; words by their place in what the key accepts, least first."""
    return float(ISOLATIONS.index(value) if isinstance(value, str) else value)


def _id(rule: dict[str, Any]) -> Any:
    return str(rule.get("id") or rule.get("metric"))


D = TypeVar("D", bound=Document)
_DEEPEST = 8  # files that extend one another; more is a mistake


@dataclass(frozen=True)
class Resolved(Generic[D]):
    """A policy with everything it extends: its values with their lines, and the same, checked."""

    tree: Tree
    document: D
    #: ``name version`` of what it extends, nearest first
    chain: tuple[str, ...] = ()
    #: ``file@sha256:<digest> -> JSON text`` of every suite that is named
    suites: dict[str, str] = field(default_factory=dict)
    #: all that was read: the file, what it extends, and their suites
    files: tuple[Path, ...] = ()


def resolve(path: Path, name: str, kind: type[D], above: tuple[Path, ...] = ()) -> Resolved[D]:
    """Return the policy of a file that messages call ``name``, with all that it extends, as a ``kind`` of document."""
    tree = read(path, name)
    suite_texts, suite_files = _read_suites(tree, path.parent)
    parent = _parent(tree, path, above)
    tree = tree if parent is None else lay_over(tree, parent.tree)
    document = document_shape.validated(tree, kind)
    weaker = () if parent is None else list_weakened(document, parent.document)
    weakened = (tree.problem(place, what, _TIGHTER) for place, what in weaker)
    unfit = (tree.problem(*problem) for problem in (*_unknown_names(document), *_unfit_waivers(document)))
    if problems := sorted([*weakened, *unfit]):
        raise PolicyFileError(*problems)
    own = Resolved(tree, document, suites=suite_texts, files=(path, *suite_files))
    if parent is None:
        return own
    return replace(
        own,
        chain=(f"{parent.document.name} {parent.document.version}", *parent.chain),
        suites={**parent.suites, **own.suites},
        files=(*own.files, *parent.files),
    )


def _parent(tree: Tree, path: Path, above: tuple[Path, ...]) -> Resolved[Document] | None:
    """Return what the file extends, if anything."""
    base = tree.value.get("extends")
    if base is None:
        return None

    def refusal(what: str, expected: str, near: str = "") -> PolicyFileError:
        return PolicyFileError(tree.problem(("extends",), what, expected, near))

    if not isinstance(base, str):
        raise refusal("is not text", "one policy: a shipped name or a file")
    try:
        target = locate.find(base, folder=path.parent)
    except PolicyFileError as exc:
        _, _, what, *text = exc.problems[0]
        raise refusal(f"{base!r}: {what}", *text) from exc
    here = (*above, path.resolve())
    if target.resolve() in here:
        raise refusal(f"{base!r} leads back to itself", "a policy that ends somewhere")
    if len(here) > _DEEPEST:
        raise refusal(f"more than {_DEEPEST} policies deep", "a shorter chain")
    if not _is_policy(target, base):  # any file can be named, and nothing of it is anybody's to read
        raise refusal(f"{base!r} is no policy that can be read", "a shipped name, or a policy file without mistakes")
    return resolve(target, base, Document, here)


def _is_policy(path: Path, name: str) -> bool:
    try:
        return str(read(path, name).value.get("schema")).startswith("privgate/policy/")
    except PolicyFileError:
        return False


def _unknown_names(document: Document) -> Iterator[tuple[Place, str, str, str]]:
    names, attacks = [rule.name for rule in document.rules], ["any", *NAMES]
    for i, rule in enumerate(document.rules):
        attack = getattr(rule, "attack", "any")
        if attack not in attacks:
            text = "any, or an attack that `privgate explain --list` names"
            yield ("rules", i, "attack"), f"unknown attack {attack!r}", text, nearest(attack, attacks)
    named: list[tuple[Place, str]] = [(("never_waivable", i), n) for i, n in enumerate(document.never_waivable)]
    named += [(("waivers", i, "rule"), waiver.rule) for i, waiver in enumerate(document.waivers)]
    for place, name in named:
        if name not in names:
            yield place, f"no rule is called {name!r}", f"one of {', '.join(names)}", nearest(name, names)


def _unfit_waivers(document: Document) -> Iterator[tuple[Place, str, str, str]]:
    names = {rule.name: rule for rule in document.rules}
    for i, waiver in enumerate(document.waivers):
        if (rule := names.get(waiver.rule)) is None:
            continue
        place = ("waivers", i)
        if waiver.rule in document.never_waivable:
            yield (*place, "rule"), f"rule {waiver.rule!r} may never be waived", "no waiver for it", ""
        if waiver.granted > (datetime.now(UTC) + timedelta(hours=14)).date():  # the latest day anywhere on earth
            text = f"granted on {waiver.granted}, which is still to come"
            yield (*place, "granted"), text, "the day on which it was approved", ""
        same = [w for w in document.waivers[: i + 1] if w.subject == waiver.subject]
        days = (max(w.expires for w in same) - min(w.granted for w in same)).days
        if len(same) > 1 and days > WAIVER_DAYS:
            text = f"{len(same)} waivers excuse rule {waiver.rule!r} for the same version over {days} days together"
            yield (*place, "expires"), text, f"at most {WAIVER_DAYS} days; renewing one replaces it", ""
        if why := rule.with_limit(waiver.ceiling).vacuous({}):
            text = f"the ceiling {waiver.ceiling:g} waives everything: {why}"
            yield (*place, "ceiling"), text, "a ceiling that a measurement can exceed", ""


def _read_suites(tree: Tree, folder: Path) -> tuple[dict[str, str], list[Path]]:
    """Read every suite that the file names, put ``file@sha256:…`` in the place of its path, and say what was read."""
    texts: dict[str, str] = {}
    files: list[Path] = []
    data: Any = tree.value.get("data")
    listed: Any = data.get("suite") if isinstance(data, dict) else None
    if isinstance(listed, str):
        listed = data["suite"] = [listed]
    for i, one in enumerate(listed if isinstance(listed, list) else ()):
        if not isinstance(one, str):
            continue  # the shape check says so
        path, place = folder / one, ("data", "suite", i)
        try:
            suite = suites.parse(strict_json.text_of(path, LARGE), path.name)
        except (OSError, PolicyError, DocumentError) as exc:
            what = str(exc) if isinstance(exc, PolicyError) else f"{one!r} cannot be read: {strict_json.why(exc)}"
            raise PolicyFileError(tree.problem(place, what, "a Great Expectations suite beside the policy")) from exc
        plain = json.dumps(suite, sort_keys=True, separators=(",", ":"))
        name = f"{path.name}@sha256:{hashlib.sha256(plain.encode()).hexdigest()}"
        texts[name] = plain
        files.append(path)
        listed[i] = name
    return texts, files
