"""Findings and evidence as a report may hold them: every small count of people in them hidden."""

import copy
from collections.abc import Iterable, Mapping, Sequence
from itertools import combinations
from types import MappingProxyType
from typing import Any

from privgate.evidence.json_values import SMALL_CELL, bounds, hidden, kept
from privgate.policy.rules import about
from privgate.report import guesses
from privgate.report.suppression import at_least, cells, nested, share
from privgate.run.needs import Need

#: keys of a precondition's detail that count no people of a kind: settings, totals, samples
_SETTINGS = frozenset({"labels", "largest", "runs", "version", "checked", "of", "units", "measured", "units_checked",
                       "records_compared", "singles", "singles_ignored", "blocks_ignored"})  # fmt: skip


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
    span = f"between {100 * told['low']:.3g} % and {100 * told['high']:.3g} %"
    seen, _, whose = str(payload["message"]).partition(" are people ")
    allowed = f"of all people; allowed is at most {100 * float(payload['limit']):.3g} %: {payload['outcome']}"
    said = f"{span} are people {whose}" if whose and not seen.startswith("not computed") else f"{span} {allowed}"
    # who is above which threshold is no secret: what the sentence means stays, with the share that is told
    head, of, tail = str(payload["meaning"]).partition(" % of the people in the data")
    meaning = f"{head.rpartition('at ')[0]}{span} of the people in the data{tail}" if of else ""
    return {**told, "message": said, "meaning": meaning}


def of_file(figures: Mapping[str, Any], records: int, limits: Sequence[float] = ()) -> dict[str, Any]:
    """Return what is told otherwise of how many records a file carries: a small count becomes its range."""
    if Need.FILE not in about(str(figures.get("request")).partition("(")[0]).needs:
        return {}
    per = 1 if figures.get("unit") == "fraction" else max(records, 1)
    limits = [*limits, *([float(figures["limit"])] if "limit" in figures else [])]
    given = {k: float(figures[k]) / per for k in ("low", "high")}
    told = {k: per * v for k, v in ranged(given, records, [v / per for v in limits]).items()}
    if not told or "message" not in figures:
        return told
    span = (
        f"between {round(told['low'] * records / per)} and {round(told['high'] * records / per)} of {records} records"
    )
    head = str(figures["message"]).partition(": its answers were judged, not the file; ")
    withheld = f"{head[0]}{head[1]}" if head[1] else ""
    limit = float(figures["limit"])
    allowed = f"; allowed is at most {f'{100 * limit:.4g} %' if per == 1 else f'{limit:.4g}'}"
    return {
        **told,
        "message": f"{withheld}{span} leave traces in the file{allowed}: {figures['outcome']}",
        "meaning": "",
    }


def evidence(
    payload: Mapping[str, Any],
    totals: Iterable[int],
    floors: Iterable[int] = (),
    limits: Mapping[str, Sequence[float]] = MappingProxyType({}),
    guessed: Mapping[str, Mapping[str, Any]] = MappingProxyType({}),
) -> dict[str, Any]:
    """Return the payload of evidence with every small count of people hidden.

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
    guessed : mapping
        Request to what is told of guesses at sensitive features instead (``guesses.differences``).
    """
    totals, floors, few = tuple(totals), tuple(floors), few_found(payload["measurements"])
    made = {part: copy.deepcopy(payload[part]) for part in ("run", "influence", "membership", "claims")}
    if influence := made["influence"]:
        _trainings(made["run"], influence)
        _influence(influence, int((payload.get("subject") or {}).get("n_units") or 0) or None)
    if membership := made["membership"]:
        if against := membership.get("against_pdtp"):
            against["n"] = at_least(against["n"], totals)
        _membership(membership, [m.get("behind") or {} for m in payload["measurements"]])
    if payload.get("attributes"):
        made["attributes"] = guesses.part(payload)
    if artifact := payload.get("artifact"):
        made["artifact"] = _artifact(dict(artifact))
    return {
        **payload,
        **made,
        "preconditions": [_precondition(copy.deepcopy(p), totals, floors) for p in payload["preconditions"]],
        "measurements": [
            _measurement(copy.deepcopy(m), totals, floors)
            | _limits_told(m, limits, few)
            | dict(guessed.get(m["request"]["key"], {}))
            for m in payload["measurements"]
        ],
    }


def known(payload: Mapping[str, Any], totals: Sequence[int]) -> tuple[int, ...]:
    """Return the totals, and what is left of the last of them without those whose number is told.

    A reader who knows how many candidates there are, and how many of them were left out for one reason, knows how many
    were left out for another.
    """
    told = [
        [kept(n) or 0 for n in ((m.get("behind") or {}).get("removed_candidates") or {}).values()]
        for m in payload["measurements"]
    ]
    sums = {sum(some) for counts in told for k in range(len(counts) + 1) for some in combinations(counts, k)}
    return tuple(dict.fromkeys([*totals, *(t - s for t in totals for s in sums if 0 < s < t)]))


def few_found(measurements: Iterable[Mapping[str, Any]]) -> dict[str, float]:
    """Return request -> what is told instead of the share of members that an attack finds, where these are a few."""
    told: dict[str, float] = {}
    for m in measurements:
        members, value = int((m.get("behind") or {}).get("members") or 0), float(m.get("value", "nan"))
        if "at_fpr=" in str(m["request"].get("key")) and members and 0 <= value <= 1:
            count = round(value * members)
            if hidden(count, members):
                told[m["request"]["key"]] = bounds(count, members)[1] / members
    return told


def _limits_told(
    given: Mapping[str, Any], limits: Mapping[str, Sequence[float]], few: Mapping[str, float]
) -> dict[str, Any]:
    key = given["request"]["key"]
    if key in few:
        return {"value": few[key]}
    people = given["population"]
    told = ranged(given, people, limits[key]) if key in limits else {}
    return told | (of_file({**given, "request": key}, people, limits.get(key, ())) if people else {})


def _each(found: dict[str, Any] | None, *keys: str, of: int | None = None) -> None:
    for key in keys:
        if found and isinstance(found.get(key), int):
            found[key] = kept(found[key], of)


def _reasons(found: Mapping[str, int | None]) -> dict[str, int | None]:
    """Return reason -> how many, which add up to a number that is told."""
    known = [c or 0 for c in found.values()]
    return dict(zip(found, cells(known), strict=True)) if known else {}


def _trainings(run: dict[str, Any], influence: Mapping[str, Any]) -> None:
    """Count trainings as if nine people had been retrained where a few were: each costs as many as there are seeds."""
    few = next((e["asked"] for e in influence.get("engines") or () if e["engine"] == "refit"), 0)
    if not hidden(few):
        return
    more = (SMALL_CELL - 1 - few) * max(1, (run.get("seeds") or {}).get("paired") or 0)
    for part, keys in (("plan", ("retrains", "leave_one_out")), ("trace", ("training_calls",)),
                       ("remembered", ("trained",))):  # fmt: skip
        for key in keys:
            if found := (run.get(part) or {}).get(key):
                run[part] = {**run[part], key: found + more}


def _influence(part: dict[str, Any], units: int | None) -> None:
    engines = part.get("engines") or ()
    everybody = engines[0]["asked"] if engines else None  # or a sample of the units
    coverage = part.get("coverage") or {}
    told = (coverage.get("n_measured"), coverage.get("not_computed") or None)  # of a run that stopped: a sample's size
    for engine in engines:
        if told[1] and {engine["answered"], engine["handed_on"]} <= {0, *told} and len(engine["why"]) == 1:
            continue
        asked = engine["asked"]
        _each(engine, "answered", "handed_on", of=asked)
        if kept(asked, everybody) is None:
            engine |= {key: None for key in ("asked", "answered", "handed_on") if engine[key]}
        _each(engine, "asked", of=units)
        for key, whole in (("why", "handed_on"), ("without_limit", "answered")):  # reasons add up to these
            counts = engine[key] if engine["asked"] is not None and engine[whole] is not None else {}
            engine[key] = dict.fromkeys(engine[key]) | _reasons(counts)
    for name in ("noise", "registered"):
        _each(part.get(name), "units_above", of=units)
    for note in part.get("certificates") or ():
        _each(note, "units", of=units)
    for note in part.get("cases") or ():
        _each(note, "people", of=units)
    _each(part.get("indirect_queries"), "open_units", "searched", "raised", of=units)


def _membership(part: dict[str, Any], behind: Sequence[Mapping[str, Any]]) -> None:
    if against := part.get("against_pdtp"):
        few = kept(against["records_above_1"], against["n"])
        if few != against["records_above_1"]:
            against |= {"records_above_1": few, "share_above_1_found": None}
    trials = [max((b.get(name) or 0 for b in behind), default=0) for name in ("members", "candidates")]
    for attack in part.get("attacks") or ():
        if attack["figures"] and attack.get("scope") == "model" and all(trials):
            _found(attack["figures"], *trials)
    for name, total in zip(("members", "candidates"), trials, strict=True):
        for attack in part.get("attacks") or ():
            for cells_ in ("classes", "groups"):
                _rest((attack["figures"] or {}).get(cells_) or (), name, total)


def _found(figures: dict[str, Any], members: int, others: int) -> None:
    """Hide where an attack finds few members, or wrongly accuses few others: a rate of a known number is a count."""
    figures["roc"] = [
        point
        for point in figures["roc"]
        if not any(hidden(round(v * n), n) for v, n in zip(point, (others, members), strict=True))
    ]
    for rate in figures["tpr_at_fpr"]:
        if rate["value"] is not None and hidden(round(rate["value"] * members), members):
            rate["value"] = bounds(round(rate["value"] * members), members)[1] / members


def _artifact(part: dict[str, Any]) -> dict[str, Any]:
    n = part["records"]
    _each(part, "least", "most", of=n)
    part["carried"] = [dict(c) for c in part["carried"]]
    for carried in part["carried"]:
        _each(carried, "least", "most", "beside", of=n)
    return part


def _rest(shown_: Sequence[dict[str, Any]], name: str, total: int) -> None:
    """Hide the smallest count where all together would leave a small rest: that of the cells too small to show."""
    told = [c for c in shown_ if c.get(name) is not None]
    if told and hidden(total - sum(c[name] for c in told)):
        min(told, key=lambda c: c[name])[name] = None


def _precondition(given: dict[str, Any], totals: Sequence[int], floors: Sequence[int]) -> dict[str, Any]:
    detail = dict(given.get("detail") or {})
    for key in ("checked", "records_compared"):
        if isinstance(detail.get(key), int):
            detail[key] = at_least(detail[key], totals, floors)
    few = [k for k, v in detail.items() if k not in _SETTINGS and type(v) is int and _few(v, totals)]
    if few:
        detail |= dict.fromkeys(few)
        detail.pop("share", None)  # the same count as a share
    for one in detail.get("expectations") or ():
        if hidden(one["unexpected"]):
            one |= {"unexpected": None, "percent": None}  # the same count as a share
    return {**given, "detail": detail}


def _few(count: int, totals: Sequence[int]) -> bool:
    """Whether a count is small, or leaves a small rest of a total that every reader knows."""
    return count not in totals and any(hidden(count, total) for total in (None, *totals))


def _measurement(given: dict[str, Any], totals: Sequence[int], floors: Sequence[int]) -> dict[str, Any]:
    behind = given.get("behind")
    if given["n"] == given["population"] and given.get("unit") not in ("people", "records"):
        given |= dict.fromkeys(("n", "population"), at_least(given["n"], totals, floors))
    if not isinstance(behind, dict):
        return given
    behind, total = dict(behind), given.get("population") or None
    pair = [int(behind.get(name) or 0) for name in ("members", "candidates")]
    least = [at_least(count, totals, floors) for count in pair]
    behind |= {name: v for name, v in zip(("members", "candidates"), least, strict=True) if behind.get(name)}
    if sum(pair) and sum(pair) - sum(least):  # what is rounded in one place is not told by the sum of both
        given |= {k: given[k] - sum(pair) + sum(least) for k in ("n", "population") if given[k] == sum(pair)}
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
