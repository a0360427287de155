"""Reading attacks from a report document: figures with intervals, curves, groups, however they were recorded."""

import math
from typing import Any

from privgate.report import reading
from privgate.report.reading import Doc
from privgate.report.text import number, percent, plain, real

Curve = list[tuple[float, ...]]


def title(attack: Doc) -> str:
    """Return an attack's plain name, with the class or group it speaks about."""
    where = plain(attack.get("where"), 40)
    return f"{plain(attack.get('title') or attack.get('name'), 60)}{f', {where}' if where else ''}"


def estimate(value: Any) -> tuple[float, float, float]:
    """Return (value, low, high) of a figure given as a number or with its interval; NaN where absent."""
    if isinstance(value, dict):
        return real(value.get("value")), real(value.get("low")), real(value.get("high"))
    return real(value), math.nan, math.nan


def told(value: Any, *, fraction: bool = True) -> str:
    """Return a figure with its interval in words."""
    x, low, high = estimate(value)
    show = percent if fraction else number
    if math.isnan(x):
        return "not measured"
    return (
        f"{show(x)} ({show(low)} to {show(high)})"
        if math.isfinite(low) and math.isfinite(high)
        else f"{show(x)}, no interval"
    )


def at_fpr(attack: Doc) -> list[tuple[float, str]]:
    """Return (fpr, true-positive rate in words), ascending in fpr."""
    return sorted((fpr, _rate(rate)) for fpr, rate in _rates(attack))


def _rates(attack: Doc) -> list[tuple[float, Any]]:
    """Return (fpr, rate as a number or with its interval), however they were recorded."""
    given = attack.get("tpr_at_fpr")
    found: list[tuple[float, Any]] = []
    if isinstance(given, dict):
        found = [(real(f), t) for f, t in given.items()]
    elif isinstance(given, list):
        for row in given:
            if isinstance(row, dict):
                point = {"value": row.get("tpr"), "low": row.get("low"), "high": row.get("high")}
                found.append((real(row.get("fpr")), {**row, **point}))
            elif isinstance(row, list | tuple) and len(row) >= 2:
                found.append((real(row[0]), row[1]))
    return [f for f in found if not math.isnan(f[0])]


def finds_most(attacks: list[Doc]) -> tuple[Doc, float, str] | None:
    """Return the attack that finds most at the smallest false-positive rate that any resolves: (attack, fpr, words).

    What is the best by AUC need not be the best at a small rate; a sentence about a rate names the best at that rate.
    """
    found = [(fpr, -estimate(t)[0], i, _rate(t)) for i, a in enumerate(attacks) for fpr, t in _rates(a)]
    found = [f for f in found if f[3][:1].isdigit()]
    if not found:
        return None
    fpr, _, i, words = min(found)
    return attacks[i], fpr, words


def _rate(value: Any) -> str:
    unresolved = isinstance(value, dict) and (value.get("resolvable") is False or value.get("problem"))
    return "not resolvable with this sample" if unresolved else told(value)


def strength(attack: Doc) -> float:
    """Return the larger of AUC and accuracy, to put the strongest first."""
    auc = estimate(attack.get("auc"))[0]
    accuracy = estimate(attack.get("accuracy"))[0]
    return max(v for v in (auc, accuracy, 0.0) if not math.isnan(v))


def points(attack: Doc) -> Curve:
    """Return an ROC as tuples of fractions, at most 200 of them."""
    given = [
        tuple(real(v) for v in p) for p in attack.get("roc") or () if isinstance(p, list | tuple) and len(p) in (2, 4)
    ]
    given = [p for p in given if not any(math.isnan(v) for v in p)]
    return thinned(given)


def thinned(curve: Curve, most: int = 200) -> Curve:
    """Return every so-manieth point of a curve, its last included."""
    step = max(1, -(-len(curve) // most))
    return [p for i, p in enumerate(curve) if i % step == 0 or i == len(curve) - 1]


def by_group(attack: Doc) -> list[Doc]:
    """Return an attack's figures for each label and group, whichever way they were recorded."""
    found = list(reading.rows(attack.get("by")))
    for key in ("classes", "groups"):
        found += [{"group": str(r.get("name")), "accuracy": dict(r)} for r in reading.rows(attack.get(key))]
    return found
