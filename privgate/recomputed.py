"""A yes by theorem comes out again: the kernel runs on kept cases, and what it says is held against rules that passed.

Nothing that made the report is asked: not the table, the aggregation, the rules or the engines. numpy and the kernel
are enough, so that whoever verifies a release can do it who has the folder of the check.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

from privgate import cases
from privgate.cases import Kept, Yes, apart, at_most
from privgate.documents import DocumentError, strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.kernel import Refused

#: people of a report, at most
_PEOPLE = 1 << 27
#: families whose limits are no person's
_NOBODYS = ("sample",)


def by_theorem(document: Mapping[str, Any], kept: Sequence[Kept]) -> Iterator[Yes]:
    """Yield the rules of a report that passed by theorems.

    Over all questions nothing else passes, but for a declared list, every question of which was put to real models.
    About people's own records a theorem stands where fewer were trained without than there are, or than a sample asks.
    """
    told = {m["request"]["key"]: m for m in document["evidence"]["measurements"]}
    domain = document["evidence"]["subject"].get("domain") or {}
    details = [(p["name"], p["detail"]) for p in document["evidence"]["preconditions"]]
    for f in document["findings"]:
        found = told.get(f["request"])
        if f["outcome"] != "passed" or found is None or found["request"]["metric"] != f["metric"]:
            continue
        options = found["request"]["options"]
        people = found["population"]
        few = found["n"] is None or found["n"] < min(people, options.get("sample") or people)
        few = few and (options.get("aggregate", "max") == "max" or found.get("confidence") is None)
        anywhere = f["metric"] == "dtp" and not domain.get("queries")
        own = f["metric"] == "pdtp" and few
        if anywhere or own or (f["metric"] == "sensitivity" and options.get("over") == "domain"):
            unit = _unit(f["unit"], document["evidence"], kept)
            stated = float(f["limit"]), float(f["high"]), unit, apart(details, every=not own)
            yield Yes(f["rule"], options, *stated, found["n"] or 0)


def _unit(named: str, evidence: Mapping[str, Any], kept: Sequence[Kept]) -> float:
    """Return what one of a finding's units is in the case's: nats of both, or deviations of a regressor's targets."""
    targets = [float(k.case.arrays["y"].std()) for k in kept if k.case.family == "squares"]
    targets += [float(k.case.settings["deviation"]) for k in kept if "deviation" in k.case.settings]
    if not targets:
        return 1.0
    told = evidence["influence"]["sensitivity"] if named == "residual deviations" else None
    size = evidence["subject"]["release"]["noise"]["scale"] if told is None else told["residual_outside"]
    return abs(float(size)) / targets[0]


@strict_json.reading("report.json cannot be recomputed", SubjectError)
def again(document: Mapping[str, Any], folder: Path, compared: Callable[[Kept], Kept] = lambda kept: kept) -> list[str]:
    """Return a sentence for each rule that passes again by the cases of a folder.

    Parameters
    ----------
    document : mapping
        The report, which whoever calls has compared with a statement, or not.
    folder : Path
        Holds ``cases.npz``.
    compared : callable
        What each case claims, of whoever has the data; it may refuse one.

    Raises
    ------
    DigestMismatchError
        A case is not the one that the report names, or the kernel says otherwise of it.
    SubjectError
        The file cannot be read, rests on a theorem that went, or no rule of the report approved by a certificate.
    """
    noted = (document["evidence"]["influence"] or {}).get("cases") or []
    if not noted:
        raise SubjectError("the report names no case: no limit of it is a theorem's, or an earlier version wrote it")
    if why := cases.name_removed_theorem(noted):
        raise SubjectError(why)
    kept = [_again(compared(k), note) for k, note in zip(named(noted, folder), noted, strict=True)]
    people = int(document["evidence"]["subject"]["n_units"])
    if not 0 < people <= _PEOPLE:
        raise SubjectError(f"the report is about {people} people; 1 to {_PEOPLE} can be recomputed")
    if any(k.everybody.max(initial=-1) >= people for k in kept):
        raise DigestMismatchError(f"{cases.FILE} is about more people than the report")
    upper, asked = cases.upper(kept, people), cases.people(kept)
    said = []
    for yes in by_theorem(document, kept):
        if why := yes.shortfall(upper, asked):
            raise DigestMismatchError(why)
        found = yes.aggregated(upper, asked)
        said.append(f"{yes.rule}: the kernel's limits come to {found:.4g} again, at most {yes.limit:g} is allowed")
    if not said:
        raise SubjectError("no rule of the report approved by a certificate: there is no yes that comes out again")
    return said


def named(noted: Sequence[Mapping[str, Any]], folder: Path) -> tuple[Kept, ...]:
    """Return the kept cases of a folder, each the one that a report names in its place."""
    try:
        kept = cases.read(folder / cases.FILE)
    except OSError as exc:
        raise SubjectError(f"{folder / cases.FILE} cannot be read: {exc.strerror}") from exc
    except DocumentError as exc:
        raise SubjectError(f"{folder / cases.FILE} {exc}") from exc
    if len(kept) != len(noted):
        raise DigestMismatchError(f"{cases.FILE} holds {len(kept)} cases, and the report names {len(noted)}")
    for k, note in zip(kept, noted, strict=True):
        if (found := k.digest()) != note["digest"]:
            whose = f"has {found[:19]}…, and the report names {str(note['digest'])[:19]}…"
            raise DigestMismatchError(f"a case of {cases.FILE} is not the one that was judged: it {whose}")
    return kept


def _again(kept: Kept, note: Mapping[str, Any]) -> Kept:
    """Return a case with what the kernel says of it now, which is what the report says of it."""
    if kept.case.asked != "any" or kept.case.family in _NOBODYS:
        raise DigestMismatchError(f"a case of {cases.FILE} limits nobody's change of any answer")
    try:
        found = kept.again()
    except Refused as exc:
        raise DigestMismatchError(f"the kernel refuses a case of {cases.FILE}: {exc}") from exc
    for name in ("low", "high"):
        old, new = float(note[name]), float(getattr(found, name).max(initial=0.0))
        if not (at_most(old, new) and at_most(new, old)):
            raise DigestMismatchError(f"the kernel says {new:.6g} of a case at most, and the report says {old:.6g}")
    return found
