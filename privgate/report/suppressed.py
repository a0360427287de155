"""Findings and evidence as a report may hold them: every small count of people in them hidden."""

from collections.abc import Iterable, Mapping, Sequence
from types import MappingProxyType
from typing import Any

from privgate.report.suppression import at_least, cells, hidden, kept, nested, sentence, share

#: keys of evidence whose text names or measures something and counts nobody
_OURS = frozenset({"rule", "outcome", "metric", "unit", "mode", "kind", "name", "title", "request", "status", "key",
                   "where", "source", "command", "threat_model", "engine", "sentence", "system",
                   "isolation"})  # fmt: skip
#: keys of a precondition's detail that count no people of a kind: settings, totals, samples
_SETTINGS = frozenset({"labels", "largest", "runs", "version", "checked", "of", "units", "measured", "units_checked",
                       "records_compared", "singles", "singles_ignored", "blocks_ignored"})  # fmt: skip


def sentences(value: Any, totals: Iterable[int]) -> Any:
    """Return a JSON value with ``sentence`` applied to every text in it but names and units."""
    totals = tuple(totals)
    if isinstance(value, Mapping):
        return {k: v if k in _OURS else sentences(v, totals) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [sentences(v, totals) for v in value]
    return sentence(value, totals) if isinstance(value, str) else value


def shares(findings: Sequence[Mapping[str, Any]]) -> dict[str, list[float]]:
    """Return request -> limits, of the rules on a share of people: a share of a known number is a count."""
    found: dict[str, list[float]] = {}
    for f in findings:
        if "aggregate=share_above" in str(f.get("request")):
            found.setdefault(str(f["request"]), []).append(float(f["limit"]))
    return found


def ranged(figures: Mapping[str, Any], people: int, limits: Sequence[float]) -> dict[str, Any]:
    """Return value, low and high of a share with its interval widened over a small count; NaN stays."""
    low, high = float(figures["low"]), float(figures["high"])
    if not (0 <= low <= high <= 1) or not people:
        return {}
    least, most = share(low, high, people, limits)
    return {} if (least, most) == (low, high) else {"low": least, "high": most, "value": most}


def ranged_finding(payload: Mapping[str, Any], people: int, limits: Sequence[float]) -> dict[str, Any]:
    """Return what of a rule on a share of people is told otherwise: its figures, and the sentences that say them."""
    told = ranged(payload, people, limits)
    if not told:
        return {}
    span = f"between {100 * told['low']:.3g} % and {100 * told['high']:.3g} % of all people"
    said = f"{span}; allowed is at most {100 * float(payload['limit']):.3g} %: {payload['outcome']}"
    return {**told, "message": said, "meaning": ""}


def finding(payload: Mapping[str, Any], totals: Iterable[int]) -> dict[str, Any]:
    """Return a finding whose sentences hide small counts; where people are the unit of its figure, that stays."""
    made: dict[str, Any] = dict(payload)
    return made if payload.get("unit") in ("people", "records") else {**made, **sentences(payload, totals)}


def evidence(
    payload: Mapping[str, Any],
    totals: Iterable[int],
    floors: Iterable[int] = (),
    limits: Mapping[str, Sequence[float]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the payload of evidence with every small count of people hidden, in numbers and in sentences.

    Parameters
    ----------
    payload : mapping
        ``Evidence.payload()``.
    totals : iterable of int
        How many people, records and candidates there are.
    floors : iterable of int
        Sample sizes that the policy asks for: what is rounded keeps its side of them, so that whoever judges the
        numbers again comes to the same end.
    limits : mapping
        Request to limits of its rules, of shares of people.
    """
    totals, floors = tuple(totals), tuple(floors)
    made = {part: sentences(payload[part], totals) for part in ("run", "influence", "membership", "claims")}
    if influence := made["influence"]:
        _influence(influence)
    if membership := made["membership"]:
        _membership(membership, [m.get("behind") or {} for m in payload["measurements"]])
    return {
        **payload,
        **made,
        "preconditions": [_precondition(sentences(p, totals)) for p in payload["preconditions"]],
        "measurements": [
            _measurement(finding(m, totals), totals, floors)
            | (ranged(m, m["population"], limits[key]) if (key := m["request"]["key"]) in limits else {})
            for m in payload["measurements"]
        ],
    }


def _each(found: dict[str, Any] | None, *keys: str, of: int | None = None) -> None:
    for key in keys:
        if found and isinstance(found.get(key), int):
            found[key] = kept(found[key], of)


def _reasons(found: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return reason -> how many, which add up to a number that is told."""
    known = [c or 0 for c in found.values()]
    return dict(zip(found, cells(known), strict=True)) if known else {}


def _influence(part: dict[str, Any]) -> None:
    for engine in part.get("engines") or ():
        asked = engine["asked"]
        _each(engine, "answered", "handed_on", of=asked)
        _each(engine, "asked")
        engine["why"], engine["without_limit"] = _reasons(engine["why"]), _reasons(engine["without_limit"])
    for name in ("noise", "registered"):
        _each(part.get(name), "units_above")
    for note in part.get("certificates") or ():
        _each(note, "units")
    _each(part.get("indirect_queries"), "open_units", "searched", "raised")


def _membership(part: dict[str, Any], behind: Sequence[Mapping[str, Any]]) -> None:
    if against := part.get("against_pdtp"):
        few = kept(against["records_above_1"], against["n"])
        if few != against["records_above_1"]:
            against |= {"records_above_1": few, "share_above_1_found": None}
    for name in ("members", "candidates"):
        total = max((b.get(name) or 0 for b in behind), default=0)
        for attack in part.get("attacks") or ():
            for cells_ in ("classes", "groups"):
                _rest((attack["figures"] or {}).get(cells_) or (), name, total)


def _rest(shown_: Sequence[dict[str, Any]], name: str, total: int) -> None:
    """Hide the smallest count where all together would leave a small rest: that of the cells too small to show."""
    told = [c for c in shown_ if c.get(name) is not None]
    if told and hidden(total - sum(c[name] for c in told)):
        min(told, key=lambda c: c[name])[name] = None


def _precondition(given: dict[str, Any]) -> dict[str, Any]:
    detail = dict(given.get("detail") or {})
    for key in [k for k in detail if k not in _SETTINGS]:
        if isinstance(detail[key], int) and not isinstance(detail[key], bool) and hidden(detail[key]):
            detail[key] = None
            detail.pop("share", None)  # the same count as a share
    for one in detail.get("expectations") or ():
        if hidden(one["unexpected"]):
            one |= {"unexpected": None, "percent": None}  # the same count as a share
    return {**given, "detail": detail}


def _measurement(given: dict[str, Any], totals: Sequence[int], floors: Sequence[int]) -> dict[str, Any]:
    behind = given.get("behind")
    if given["n"] == given["population"] and given.get("unit") not in ("people", "records"):
        given |= dict.fromkeys(("n", "population"), at_least(given["n"], totals, floors))
    if not isinstance(behind, dict):
        return given
    behind, total = dict(behind), given.get("population") or None
    for name in ("members", "candidates"):
        if behind.get(name):
            behind[name] = at_least(behind[name], totals, floors)
    if limits := behind.get("over_limit"):
        behind["over_limit"] = dict(zip(limits, nested(list(limits.values()), total or 2**62), strict=True))
    _each(behind, "registered_above", of=total)
    if removed := behind.get("removed_candidates"):
        behind["removed_candidates"] = {k: kept(n) for k, n in removed.items()}
    if told := behind.get("expectations"):
        behind["expectations"] = [
            {**e, "unexpected": None, "percent": 0.0} if hidden(e["unexpected"] or 0, total) else e for e in told
        ]
    return {**given, "behind": behind}
