"""Two reports side by side: rule by rule, the shift of risk, and which cause changed."""

import math
from collections.abc import Mapping
from typing import Any

from privgate.evidence import encode
from privgate.report import front, reading, words
from privgate.report.reading import Doc
from privgate.report.rendering import COMPARISON, check
from privgate.report.text import plain, real

SCHEMA = COMPARISON
_KEPT = ("title", "unit", "direction", "limit")
_NUMBERS = ("value", "low", "high", "outcome", "limit")


def compare(old: Doc, new: Doc) -> dict[str, Any]:
    """Return what changed from one report to another, as JSON values.

    Parameters
    ----------
    old, new : mapping
        Documents of ``document`` or ``report.json``; ``old`` is the version approved before.

    Returns
    -------
    dict
        ``schema``, ``old``, ``new``, ``summary``, ``rules``, ``distribution``, ``causes``; ``render`` shows it.
        A
        change is called better or worse only if the two intervals do not overlap.

    Raises
    ------
    UsageError
        One of them is no report of a known schema.
    """
    check(old)
    check(new)
    found: dict[str, Any] = {
        "schema": SCHEMA,
        "old": _named(old),
        "new": _named(new),
        "rules": _rules(old, new),
        "distribution": _distribution(old, new),
        "causes": _causes(old, new),
    }
    found["summary"] = _summary(found)
    return dict(encode(found))


def _named(doc: Doc) -> dict[str, Any]:
    s = reading.subject(doc)
    return {
        "name": s.get("name", ""),
        "version": s.get("version", ""),
        "outcome": doc.get("outcome"),
        "decision": words.decision(doc),
        "decided_at": doc.get("decided_at", ""),
        "policy": reading.mapping(doc.get("policy")).get("name", ""),
    }


def _rules(old: Doc, new: Doc) -> list[dict[str, Any]]:
    before = {str(f.get("rule")): f for f in words.rules(old)}
    after = {str(f.get("rule")): f for f in words.rules(new)}
    return [_rule(name, before.get(name), after.get(name)) for name in dict.fromkeys([*after, *before])]


def _rule(name: str, old: Doc | None, new: Doc | None) -> dict[str, Any]:
    shown = new or old or {}
    return {
        "rule": name,
        **{k: shown.get(k) for k in _KEPT},
        "old": {k: old.get(k) for k in _NUMBERS} if old else None,
        "new": {k: new.get(k) for k in _NUMBERS} if new else None,
        "change": _change(old, new),
    }


def _change(old: Doc | None, new: Doc | None) -> str:
    if old is None or new is None:
        return "new rule" if old is None else "rule removed"
    if old.get("request") != new.get("request"):
        return "not comparable: another measurement"
    a, b = ([real(f.get(k)) for k in ("low", "high")] for f in (old, new))
    if any(math.isnan(x) for x in (*a, *b)):
        return "not comparable: not measured"
    if a == b:
        return "same"
    worse, better = b[0] > a[1], b[1] < a[0]
    if new.get("direction") == "min":
        worse, better = better, worse
    return "worse" if worse else ("better" if better else "no clear change")


def _distribution(old: Doc, new: Doc) -> dict[str, Any]:
    """Return quantiles of each per-unit figure that both reports hold."""
    a, b = (reading.mapping(reading.mapping(d.get("units")).get("figures")) for d in (old, new))
    return {k: {"old": a[k]["quantiles"], "new": b[k]["quantiles"]} for k in a if k in b}


def _causes(old: Doc, new: Doc) -> list[dict[str, Any]]:
    code = _code(old, new)
    found = [{"cause": "training code", "changed": code, "old": _training(old), "new": _training(new)}]
    for label, key in _CAUSES:
        a, b = _cause(old, key), _cause(new, key)
        if a is not None or b is not None:
            changed = None if a is None or b is None else a != b
            found.append({"cause": label, "changed": changed, "old": _brief(a, b), "new": _brief(b, a)})
    return found


def _code(old: Doc, new: Doc) -> bool | None:
    """Return whether the training code changed; None where the reports cannot tell.

    The recipe's digest covers its sources and its parameters: equal digests mean equal code, different digests beside
    equal parameters mean changed code, and otherwise only names tell.
    """
    digests = [reading.mapping(reading.subject(d).get("digests")).get("recipe") for d in (old, new)]
    if None in digests:
        return None
    if digests[0] == digests[1]:
        return False
    if _training(old) != _training(new) or _recipe(old) == _recipe(new):
        return True
    # a class of scikit-learn changes with its version only, which is the environment's
    return False if _training(new).startswith("sklearn.") else None


def _recipe(doc: Doc) -> Doc:
    return reading.mapping(reading.subject(doc).get("recipe"))


def _training(doc: Doc) -> str:
    """Return the name of what trains: a function or an estimator's class."""
    recipe = _recipe(doc)
    named = recipe.get("fit") or reading.mapping(recipe.get("estimator")).get("class")
    return plain(named, 120) or "not recorded"


_CAUSES = (
    ("training data", "data"),
    ("hyperparameters", "params"),
    ("seed", "seed"),
    ("differential-privacy claim", "dp"),
    ("release", "release"),
    ("environment", "environment"),
    ("policy", "policy"),
)


def _cause(doc: Doc, key: str) -> Any:
    """Return what identifies one cause; None if the report does not say."""
    s = reading.subject(doc)
    recipe = _recipe(doc)
    if key == "data":
        return reading.mapping(s.get("digests")).get("data")
    if key == "params" and recipe.get("kind") == "estimator":
        return {"value": reading.mapping(recipe.get("estimator")).get("params")}
    if key == "release":
        return s.get("release")
    if key == "environment":
        trace = reading.mapping(reading.detail(doc).get("trace"))
        told = {k: v for k, v in trace.items() if k in ("python", "numpy", "scikit-learn", "versions")}
        return told or None
    if key == "policy":
        return reading.mapping(doc.get("policy")).get("digest")
    # a recipe without a seed or a claim says so: null is a value of its own there
    return {"value": recipe[key]} if key in recipe else None


def _brief(value: Any, other: Any) -> str:
    """Return one side of a cause in few words: of two mappings only where they differ."""
    if isinstance(value, Mapping) and set(value) == {"value"}:
        value, other = value["value"], reading.mapping(other).get("value")
        if value is None:
            return "none"
    if isinstance(value, Mapping):
        before = reading.mapping(other)
        told = {k: v for k, v in value.items() if k not in before or before[k] != v} or value
        return plain(", ".join(f"{k} = {v}" for k, v in told.items()), 160) or "none"
    if value is None:
        return "not recorded"
    return front.short(value)


def _summary(found: Doc) -> str:
    old, new = found["old"], found["new"]
    version = f"Against version {plain(old['version'], 20)} ({old['decision']})"
    changed = [c["cause"] for c in found["causes"] if c["changed"]]
    unknown = [c["cause"] for c in found["causes"] if c["changed"] is None]
    told = f"{', '.join(changed)} changed" if changed else "no recorded cause changed"
    if unknown:
        told += f"; not recorded for both: {', '.join(unknown)}"
    by = {
        k: [plain(r["title"] or r["rule"], 60) for r in found["rules"] if r["change"] == k] for k in ("worse", "better")
    }
    ends = [f"{k}: {', '.join(v)}" for k, v in by.items() if v] or ["no rule clearly better or worse"]
    moved = (
        "" if old["outcome"] == new["outcome"] else f" The decision went from {old['decision']} to {new['decision']}."
    )
    return f"{version}: {told}; {'; '.join(ends)}.{moved}"


def view(comparison: Doc) -> dict[str, Any]:
    """Return the words of a comparison for its own page."""
    old, new = reading.mapping(comparison.get("old")), reading.mapping(comparison.get("new"))
    return {
        "title": f"{front.subject({'subject': new})} against {front.subject({'subject': old})}",
        "summary": plain(comparison.get("summary")),
    }
