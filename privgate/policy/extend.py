"""``extends``: a policy laid over another; what the result says more weakly than the other is refused."""

from collections.abc import Iterator
from typing import Any

from privgate.policy.document import Document
from privgate.policy.part import ISOLATIONS
from privgate.policy.problems import Problem
from privgate.policy.strict_yaml import Place, Tree, dotted

#: mappings that are merged key by key, and lists that are joined
_MERGED = ("audit", "data")
_JOINED = ("waivers", "never_waivable")
#: what a file says about itself; never inherited (conditions are all kept, but beside one another)
_OWN = ("schema", "name", "version", "description", "approves", "extends", "applies_to")


def lay_over(child: Tree, parent: Tree) -> Tree:
    """Return the child's values over the parent's; every value remembers the file and line it comes from.

    Rules are matched by id. The child's rules come first, so that positions in messages are those of the child's file.
    """
    value = {k: v for k, v in parent.value.items() if k not in _OWN}
    marks = {place: mark for place, mark in parent.marks.items() if place and place[0] not in ("rules", *_JOINED)}
    value.update({k: v for k, v in child.value.items() if k not in (*_MERGED, *_JOINED, "rules")})
    for name in _MERGED:
        if not isinstance(given := child.value.get(name, {}), dict):
            value[name] = given  # no keys with values: the shape check says so
            continue
        value[name] = {**_mapping(parent, name), **_mapping(child, name)}
        if name == "data":
            value[name]["suite"] = [*_listed(parent, name, "suite"), *_listed(child, name, "suite")]
    merged = Tree(child.file, value, {**marks, **child.marks})
    _join_lists(merged, child, parent)
    _merge_rules(merged, child, parent)
    return merged


def weakened(child: Document, parent: Document, tree: Tree) -> Iterator[Problem]:
    """Return a problem for everything that the child says more weakly than its parent."""
    own = {rule.name: (i, rule) for i, rule in enumerate(child.rules)}
    for theirs in parent.rules:
        position, ours = own[theirs.name]
        for key, why in ours.loosened(theirs).items():
            yield _problem(tree, ("rules", position, key), f"{getattr(ours, key, None)!r} {why}")
    yield from _waived_more(child, parent, tree)
    for part in ("audit", "data"):
        mine, other = getattr(child, part), getattr(parent, part)
        for key in type(mine).model_fields:
            if key != "suite" and _size(getattr(mine, key)) < _size(getattr(other, key)):
                text = f"{getattr(mine, key)!r} may only be raised: the parent has {getattr(other, key)!r}"
                yield _problem(tree, (part, key), text)
    if child.file != parent.file and parent.file == "downloadable":
        yield _problem(tree, ("file",), f"{child.file!r} may not be stated here: the parent judges the file itself")
    if child.valid_days > parent.valid_days:
        text = f"{child.valid_days} may only be lowered: the parent has {parent.valid_days}"
        yield _problem(tree, ("valid_days",), text)


def _size(value: Any) -> float:
    """Return how much a setting demands; words by their place in what the key accepts, least first."""
    return float(ISOLATIONS.index(value) if isinstance(value, str) else value)


def _waived_more(child: Document, parent: Document, tree: Tree) -> Iterator[Problem]:
    """Yield a problem for every inherited waiver of a rule that is tightened, and for every one that grew.

    A ceiling was approved against the limit that stood with it. Where the limit is lowered, the same ceiling waives
    more than anybody approved: it must be stated again, no higher than before.
    """
    ours, theirs = ({r.name: r.judged() for r in d.rules} for d in (child, parent))
    direction = {r.name: r.direction for r in child.rules}
    before = {(w.rule, w.model, w.version): w for w in parent.waivers}
    for i, waiver in enumerate(child.waivers):
        old = before.get((waiver.rule, waiver.model, waiver.version))
        if old is None or waiver.rule not in ours:
            continue
        grown = waiver.ceiling - old.ceiling if direction[waiver.rule] == "max" else old.ceiling - waiver.ceiling
        if grown > 0:
            text = f"{waiver.ceiling:g} waives more than the {old.ceiling:g} of the policy that this one extends"
            yield _problem(tree, ("waivers", i, "ceiling"), text)
        if waiver == old and tree.mark(("waivers", i)).file != tree.file and ours[waiver.rule] != theirs[waiver.rule]:
            mark = tree.mark(("extends",))
            text = (
                f"the inherited waiver {waiver.key} up to {waiver.ceiling:g} was approved for the rule as it was; this "
                "file tightens the rule"
            )
            expected = f"the waiver stated here again, up to at most {waiver.ceiling:g}, or removed where it stands"
            yield Problem(mark.file, mark.line, f"waivers.{i}", text, expected)


def _problem(tree: Tree, place: Place, what: str) -> Problem:
    mark = tree.mark(place)
    return Problem(mark.file, mark.line, dotted(place), what, "a tighter value, or a waiver for one model version")


def _mapping(tree: Tree, name: str) -> dict[str, Any]:
    found = tree.value.get(name)
    return found if isinstance(found, dict) else {}


def _listed(tree: Tree, name: str, key: str) -> list[Any]:
    found = _mapping(tree, name).get(key)
    return found if isinstance(found, list) else ([] if found is None else [found])


def _join_lists(merged: Tree, child: Tree, parent: Tree) -> None:
    """Put the parent's waivers and never-waivable rules behind the child's."""
    for name in _JOINED:
        mine, theirs = child.value.get(name) or [], parent.value.get(name) or []
        if not isinstance(mine, list):
            merged.value[name] = mine  # not a list: the shape check says so
            continue
        said = [_excused(v) for v in mine]
        kept = [i for i, v in enumerate(theirs) if _excused(v) not in said]
        merged.value[name] = [*mine, *(theirs[i] for i in kept)]
        for new, old in enumerate(kept, start=len(mine)):
            _move(merged, parent, (name, old), (name, new))


def _excused(item: Any) -> Any:
    """Return what a waiver excuses, which a file that extends another may state anew; any other item is itself."""
    if isinstance(item, dict) and {"rule", "model", "version"} <= item.keys():
        return tuple(str(item[key]) for key in ("rule", "model", "version"))
    return item


def _merge_rules(merged: Tree, child: Tree, parent: Tree) -> None:
    """Lay the child's rules over the parent's rules of the same id, and put the parent's other rules behind them."""
    mine = child.value.get("rules", [])
    if not isinstance(mine, list) or not all(isinstance(r, dict) for r in mine):
        merged.value["rules"] = mine
        return
    theirs = {_id(r): (k, r) for k, r in enumerate(parent.value["rules"])}
    rules: list[Any] = []
    for i, rule in enumerate(mine):
        k, base = theirs.pop(_id(rule), (None, {}))
        if k is not None:
            own = {place: mark for place, mark in merged.marks.items() if place[:2] == ("rules", i)}
            _move(merged, parent, ("rules", k), ("rules", i))
            merged.marks.update(own)
        rules.append({**base, **rule})
    for k, base in theirs.values():
        _move(merged, parent, ("rules", k), ("rules", len(rules)))
        rules.append(base)
    merged.value["rules"] = rules
    merged.marks.setdefault(("rules",), parent.mark(("rules",)))


def _id(rule: dict[str, Any]) -> Any:
    return str(rule.get("id") or rule.get("metric"))


def _move(merged: Tree, source: Tree, old: Place, new: Place) -> None:
    """Copy the marks of everything below ``old`` of the source to below ``new``."""
    for place, mark in source.marks.items():
        if place[: len(old)] == old:
            merged.marks[(*new, *place[len(old) :])] = mark
