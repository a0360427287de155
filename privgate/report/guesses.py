"""What was found about sensitive features, as a report may hold it: no small count of people in it or in its limits.

A share of a known number of people is a count, and so are its confidence limits: whoever knows how many were asked
finds the one count that gives them. Where a count is hidden its share is hidden too, and the limits are those that hold
for every count hidden with it, on their own side of every rule's limit.
"""

import math
from collections.abc import Iterable, Mapping
from typing import Any

from privgate.evidence.json_values import bounds, hidden
from privgate.kernel.sample import difference
from privgate.report.suppression import at_least

#: who is asked about, and the share of them whose feature is guessed
SIDES = (("members", "inside"), ("others", "outside"))
Range = tuple[int, int]
#: whose measurement says how many were asked about
METRIC = "attribute_advantage"


def asked_about(payload: Mapping[str, Any]) -> dict[str, int]:
    """Return how many members and how many others were asked about, of ``Evidence.payload()``."""
    behind = next((m["behind"] or {} for m in payload["measurements"] if m["request"]["metric"] == METRIC), {})
    return {"members": int(behind.get("members") or 0), "others": int(behind.get("candidates") or 0)}


def part(payload: Mapping[str, Any]) -> dict[str, Any]:
    """Return what was found about every feature, small counts hidden."""
    asked = asked_about(payload)
    alphas = _alphas(payload)
    return {
        "attributes": [_feature(f, asked, alphas.get(f["name"], 0.05)) for f in payload["attributes"]["attributes"]]
    }


def _feature(found: Mapping[str, Any], asked: Mapping[str, int], alpha: float) -> dict[str, Any]:
    everybody = asked["others"]
    taught = {**asked, "others": everybody - everybody // 2}  # half of those outside taught the guess
    by_value = [told(g, {}, alpha) for g in found["by_value"]]
    for side, share in SIDES:  # who has none of the values shown follows from how many have each
        if by_value and hidden(asked[side] - sum(g[side] for g in by_value)):
            least = min(by_value, key=lambda g: g[side])
            least |= {
                side: None,
                share: None,
                "advantage": {**least["advantage"], "value": None, "low": None, "high": None},
            }
    prior = found["prior_guess"]
    return {
        **found,
        "adversaries": [told(g, asked, alpha) for g in found["adversaries"]],
        "without_model": told(found["without_model"], taught, alpha),
        "prior_guess": None if hidden(round(float(prior) * everybody), everybody) else prior,
        "by_value": by_value,
    }


def told(given: Mapping[str, Any], asked: Mapping[str, int], alpha: float) -> dict[str, Any]:
    """Return one adversary's guesses, of which no small count of right or wrong ones follows."""
    ranges, made = _ranges(given, asked), dict(given)
    for (side, share), (right, all_) in zip(SIDES, ranges, strict=True):
        if right[0] < right[1] or all_[0] < all_[1]:
            made |= {side: all_[0], share: None}
    if any(low < high for pair in ranges for low, high in pair):
        low, high = _limits(ranges, alpha, alpha)
        made["advantage"] = {**made["advantage"], "value": None, "low": low, "high": high}
    return made


def differences(payload: Mapping[str, Any], findings: Iterable[Mapping[str, Any]]) -> dict[str, dict[str, Any]]:
    """Return request -> value, low and high that are told of a largest difference, where a count behind it is hidden.

    Parameters
    ----------
    payload : mapping
        ``Evidence.payload()``, nothing hidden yet.
    findings : iterable of mapping
        What rules say of it; none of their limits is crossed.
    """
    asked, given = asked_about(payload), list(findings)
    found: dict[str, dict[str, Any]] = {}
    for m in payload["measurements"]:
        if m["request"]["metric"] != METRIC or m["problem"]:
            continue
        one, alpha = m["request"]["options"].get("attribute"), 1 - float(m["confidence"])
        rows = [g for f in payload["attributes"]["attributes"] if one in (None, f["name"]) for g in f["adversaries"]]
        ranges = [_ranges(g, asked) for g in rows]
        if not any(low < high for sides in ranges for pair in sides for low, high in pair):
            continue
        ends = [_limits(r, alpha / len(rows), alpha) for r in ranges]
        low, high = max(e[0] for e in ends), max(e[1] for e in ends)
        for limit in [float(f["limit"]) for f in given if f["request"] == m["request"]["key"]]:
            low = max(low, math.nextafter(limit, 2.0)) if float(m["low"]) > limit else low
            high = min(high, limit) if float(m["high"]) <= limit else high
        found[m["request"]["key"]] = {"value": high, "low": low, "high": high}
    return found


def finding(payload: Mapping[str, Any], told_: Mapping[str, Any]) -> dict[str, Any]:
    """Return what a rule says of a difference of which only ``told_`` leaves."""
    span = f"between {100 * told_['low']:.3g} and {100 * told_['high']:.3g} percentage points"
    said = f"{span}; allowed are at most {100 * float(payload['limit']):.3g}: {payload['outcome']}"
    return {**told_, "message": said, "meaning": ""}


def _alphas(payload: Mapping[str, Any]) -> dict[str, float]:
    """Return feature -> one less the confidence of the limits in its table: that of the rule that asked first."""
    found: dict[str, float] = {}
    names = [f["name"] for f in payload["attributes"]["attributes"]]
    for m in payload["measurements"]:
        if m["request"]["metric"] == METRIC and not m["problem"]:
            one = m["request"]["options"].get("attribute")
            for name in names if one is None else [one]:
                found.setdefault(name, 1 - float(m["confidence"]))
    return found


def _ranges(given: Mapping[str, Any], asked: Mapping[str, int]) -> list[tuple[Range, Range]]:
    """Return, of members and of others, in which range the right guesses and all guesses are said to lie."""
    made: list[tuple[Range, Range]] = []
    for side, share in SIDES:
        n, rate = int(given[side]), float(given[share])
        right = round(rate * n) if n else 0
        total = asked.get(side) or n
        most = total - 1 if hidden(total - n) else n  # of a few of them nobody knows the value
        made.append((bounds(right, n), (at_least(n, [total]), most)))
    return made


def _limits(ranges: Iterable[tuple[Range, Range]], low_alpha: float, high_alpha: float) -> tuple[float, float]:
    """Return limits that hold whichever counts in their ranges are the true ones."""
    (inside, members), (outside, others) = ranges
    counts = (inside[0], members[1], min(outside[1], others[0]), others[0])
    _, low, _ = difference(counts, low_alpha=low_alpha, high_alpha=high_alpha)
    counts = (min(inside[1], members[0]), members[0], outside[0], others[1])
    _, _, high = difference(counts, low_alpha=low_alpha, high_alpha=high_alpha)
    return low, high
