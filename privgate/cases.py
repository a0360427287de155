"""Cases that limits came from: kept in one file beside the per-person table, and judged again by whoever holds it.

A case tells the data: a minimum and one move a person give every record back. ``cases.npz`` is personal data, stays
with whoever holds the data, and is never uploaded. Evidence names each case by its digest. A yes by theorem comes out
again of numpy and the kernel alone: nothing else that made the report is asked.
"""

import hashlib
import json
import zipfile
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.typing import NDArray

from privgate import kernel
from privgate.documents import LARGE, strict_json
from privgate.errors import DigestMismatchError, SubjectError
from privgate.kernel import Case
from privgate.kernel.sample import exceeding_limit, plan_looks, quantile_rank

FILE = "cases.npz"
#: families of the kernel that went with 0.1.0, and what they were about
GONE = {"cells": "boosted trees and forests", "words": "multinomial and complement naive Bayes"}
#: bytes of arrays that are kept of one check, and read of one file; twice that is held while they are written
MOST = 1 << 30
#: of two runs of the kernel
_SAME = 1e-6
#: of limits from a random sample of people
_ALPHA = 0.05
#: arrays of one file: a case has about thirty; people of a report
_ARRAYS, _PEOPLE = 2_000, 1 << 27
#: kinds of numbers in arrays, eight bytes each; the kernel reads no others
_KINDS = ("<f8", "<i8")


@dataclass(frozen=True, eq=False)
class Kept:
    """A case, whom it is about, and what the kernel said.

    ``units`` names the kernel's first A people, whose limits are ``low`` and ``high``: positions in
    ``subject.data.units``, ``~`` them where nothing is claimed. ``theorem`` is a key of the catalogue. ``seed`` is
    counted from 0; a theorem that holds under each has 0 alone.
    """

    case: Case
    units: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    theorem: str = ""
    seed: int = 0

    @classmethod
    def judge_case(cls, case: Case, units: NDArray[np.int64], *, theorem: str = "", seed: int = 0) -> Self:
        """Return the case with what the kernel says of its first people; the kernel may refuse."""
        limits, first = kernel.limits(case), slice(0, len(units))
        if len(limits.high) < len(units):
            raise kernel.Refused("the case is about fewer people than are named")
        return cls(case, np.asarray(units, dtype=np.int64), limits.low[first], limits.high[first], theorem, seed)

    def judge_again(self) -> Self:
        """Return the same with what the kernel says now."""
        return self.judge_case(self.case, self.units, theorem=self.theorem, seed=self.seed)

    def about(self, named: NDArray[np.bool_]) -> Self:
        """Return the same, claiming nothing of those of ``units`` who are not ``named``."""
        return replace(self, units=np.where(named | (self.units < 0), self.units, ~self.units))

    @property
    def everybody(self) -> NDArray[np.int64]:
        """The positions of all A people, those of whom nothing is claimed too."""
        return np.where(self.units < 0, ~self.units, self.units)

    def digest(self) -> str:
        """Return ``sha256:…`` of the case, whom it is about, the theorem and the seed."""
        units = hashlib.sha256(np.ascontiguousarray(self.units, dtype="<i8").tobytes()).hexdigest()
        content = json.dumps([self.case.digest(), units, self.theorem, self.seed])
        return "sha256:" + hashlib.sha256(content.encode()).hexdigest()


def upper(kept: Sequence[Kept], people: int) -> NDArray[np.float64]:
    """Return everybody's upper limit, shape (people,); infinite for whom no case claims one.

    Of a seed's cases the least counts, of a theorem's seeds the largest, of theorems the least.
    """
    least = np.full(people, np.inf)
    for theorem in dict.fromkeys(k.theorem for k in kept):
        mine = [k for k in kept if k.theorem == theorem]
        seeds = np.full((1 + max(k.seed for k in mine), people), np.inf)
        for k in mine:
            np.minimum.at(seeds[k.seed], k.units[k.units >= 0], k.high[k.units >= 0])
        least = np.minimum(least, seeds.max(axis=0))
    return least


def people(kept: Sequence[Kept]) -> int:
    """Return of how many people some case claims a limit."""
    return len(np.unique(np.concatenate([k.units[k.units >= 0] for k in kept]))) if kept else 0


def needed(kept: Sequence[Kept], people: int) -> tuple[Kept, ...]:
    """Return the cases without which somebody's upper limit were larger: what a later one shows as well goes."""
    needed, wanted = list(kept), upper(kept, people)
    for k in kept:
        rest = [other for other in needed if other is not k]
        seeds = {o.seed for o in rest if o.theorem == k.theorem}  # none are forgotten, or all of a theorem
        if (k.seed in seeds or not seeds) and (upper(rest, people) <= wanted).all():
            needed = rest
    return tuple(needed)


def name_removed_theorem(noted: Iterable[Mapping[str, Any]]) -> str:
    """Return which case of a report is of a family that only an earlier version knew; empty where none is."""
    family = next((str(note["family"]) for note in noted if note.get("family") in GONE), "")
    gone = f"cases of {family!r}, the theorem about {GONE.get(family)}, which went with 0.1.0, the last version that"
    instead = "judge the model by share-1 or release-1, or train it in privgate.models.Sharded"
    return f"the report rests on {gone} knew it: {instead}" if family else ""


# What follows of all limits, for rules: the yes that it gives, or why it gives none.


@dataclass(frozen=True)
class Yes:
    """A rule that passed because of what theorems say.

    ``options`` are what was asked: aggregate, threshold, quantile, sample. ``limit`` is allowed, by ``judged`` the rule
    was judged. One of the rule's unit is ``scale`` of the case's. Released answers are ``apart``, nats, from those that
    theorems are about. ``drawn`` people were drawn at random, and asked about; 0 where it is not told.
    """

    rule: str
    options: Mapping[str, Any]
    limit: float
    judged: float
    scale: float = 1.0
    apart: float = 0.0
    drawn: int = 0

    def shortfall(self, upper: NDArray[np.float64], questions: int) -> str:
        """Return why these limits of everybody, of whom so many were asked about, give no yes; empty if they do."""
        number = self.aggregated(upper, questions)
        if not number <= self.limit:
            return f"{self.rule!r} approved, but the kernel's limits come to {number:.6g}: allowed is {self.limit:g}"
        if not at_most(number, self.judged):
            return f"rule {self.rule!r} was judged by {self.judged:.6g}, and the kernel's limits come to {number:.6g}"
        return ""

    def aggregated(self, upper: NDArray[np.float64], questions: int) -> float:
        """Return the number of all limits that the rule is about; who was drawn and has none is beyond all of them."""
        how, n, questions = self.options.get("aggregate", "max"), len(upper), max(questions, self.drawn)
        upper = upper / self.scale + self.apart
        if how == "share_above":
            above = n - int((upper <= float(self.options["threshold"])).sum())
            return (above if questions >= n else self._limit_exceeding(above - (n - questions), questions, n)) / n
        if how == "quantile":
            q = float(self.options["q"])
            rank = quantile_rank(questions, q, alpha=_ALPHA) if questions < n else int(np.ceil(q * n))
            return np.inf if rank is None else float(np.sort(upper)[max(rank, 1) - 1])
        return float(upper.max(initial=0.0)) if how == "max" and n else np.inf

    def _limit_exceeding(self, above: int, questions: int, people: int) -> int:
        """Return how many exceed at most, by the planned looks; by a sample of the rule's own in earlier reports."""
        if self.options.get("sample"):
            return exceeding_limit(above, questions, people, alpha=_ALPHA)
        return plan_looks(people, min(people - 1, int(self.limit * people + 1e-9))).share(0, above, questions)[1]


def at_most(number: float, stated: float) -> bool:
    """Return whether a number is at most another one, but for sums in another order, on another machine."""
    return number <= stated or number - stated <= _SAME * (1 + min(abs(number), abs(stated)))


def apart(details: Iterable[tuple[str, Mapping[str, Any]]], *, every: bool) -> float:
    """Return how far released answers are from the recipe's by what controls found, (name, figures) each; nats.

    At ``every`` question, or at people's own records.
    """
    own = ("from_registered_model_nats", "from_registered_model_elsewhere_nats")[: 2 if every else 1]
    most = {"reproduces": [0.0], "served": [0.0]}
    for control, figures in details:
        names = {"reproduces": own, "served": ("ways_apart",)}.get(control, ())
        most.setdefault(control, []).extend(float(figures.get(name) or 0.0) for name in names)
    return max(most["reproduces"]) + max(most["served"])


# As arrays and JSON values in one file.


def write(path: Path, kept: Sequence[Kept]) -> None:
    """Write the cases to a file, an array that several hold once; ``OSError`` where it cannot be written."""
    arrays: dict[int, tuple[str, NDArray[Any]]] = {}

    def name(array: NDArray[Any]) -> str:
        return arrays.setdefault(id(array), (f"case{len(arrays)}", array))[0]

    headers = [
        {"family": k.case.family, "asked": k.case.scope, "settings": dict(k.case.settings)}
        | {"arrays": {n: name(array) for n, array in sorted(k.case.arrays.items())}}
        | {"units": name(k.units), "low": name(k.low), "high": name(k.high), "theorem": k.theorem, "seed": k.seed}
        for k in kept
    ]
    # what an infinite limit is, JSON has no word for: limits stand among the arrays
    head = np.frombuffer(json.dumps(headers, allow_nan=False).encode(), dtype=np.uint8)
    named: dict[str, Any] = {n: a.astype(_KINDS[a.dtype.kind == "i"]) for n, a in arrays.values()}
    np.savez(path, head=head, **named)


def read(path: Path) -> tuple[Kept, ...]:
    """Return the cases of a file; what it claims of people is believed only after the kernel ran again."""
    garbled = (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, MemoryError, *strict_json.GARBLED)
    try:
        with strict_json.opened(path) as f, zipfile.ZipFile(f) as archive:
            members = archive.infolist()
            if len(members) > _ARRAYS or sum(m.file_size for m in members) > MOST + len(members) * 1_000:
                raise ValueError(f"it holds more than {_ARRAYS} arrays, or more than {MOST >> 20} MiB of them")
            if any(m.compress_type != zipfile.ZIP_STORED or m.flag_bits & 1 for m in members):
                raise ValueError("an array is compressed or encrypted")  # its size would be known when it is read
            f.seek(0)
            arrays = dict(np.load(f, allow_pickle=False))
        head = strict_json.loads(arrays.pop("head").tobytes(), LARGE)
        if odd := next((a.dtype for a in arrays.values() if a.dtype.str not in _KINDS), None):
            raise ValueError(f"an array of {odd}")
        return tuple(_read_case(t, arrays) for t in head)
    except OSError as exc:
        raise SubjectError(f"{path} cannot be read: {exc.strerror}") from exc
    except garbled as exc:
        raise SubjectError(f"{path} is no file of cases ({strict_json.why(exc)})") from exc


def _read_case(described: Mapping[str, Any], arrays: Mapping[str, NDArray[Any]]) -> Kept:
    """Return a case if all of it is of the right kind."""
    case = Case(
        described["family"],
        described["asked"],
        described["settings"],
        {n: arrays[a] for n, a in described["arrays"].items()},
    )
    units, low, high = (arrays[described[n]] for n in ("units", "low", "high"))
    kept = Kept(case, units, low, high, described["theorem"], described["seed"])
    right = (
        type(case.family) is str and type(case.settings) is dict and type(kept.theorem) is str,
        type(kept.seed) is int and 0 <= kept.seed < _ARRAYS,
        units.ndim == 1 and units.dtype.kind == "i" and len(np.unique(kept.everybody)) == len(units),
        low.shape == high.shape == units.shape and not np.isnan(high.astype(np.float64)).any(),
    )
    if not all(right):
        raise ValueError("a case is of the wrong kind")
    return kept


# A yes by theorem comes out again: the kernel runs on kept cases, and what it says is held against rules that passed.


def find_yeses(document: Mapping[str, Any], kept: Sequence[Kept]) -> Iterator[Yes]:
    """Yield the rules of a report that passed by theorems.

    Over all questions nothing else passes, but for the lists of questions that earlier versions put to real models.
    About people's own records a theorem stands where fewer were trained without than there are, or than a sample asks.
    """
    measurements = {m["request"]["key"]: m for m in document["evidence"]["measurements"]}
    domain = document["evidence"]["subject"].get("domain") or {}
    details = [(p["name"], p["detail"]) for p in document["evidence"]["preconditions"]]
    for f in document["findings"]:
        m = measurements.get(f["request"])
        if f["outcome"] != "passed" or m is None or m["request"]["metric"] != f["metric"]:
            continue
        options, people = m["request"]["options"], m["population"]
        few = m["n"] is None or m["n"] < min(people, options.get("sample") or people)
        few = few and (options.get("aggregate", "max") == "max" or m.get("confidence") is None)
        anywhere = f["metric"] == "dtp" and not domain.get("queries")
        own = f["metric"] == "pdtp" and few
        if anywhere or own or (f["metric"] == "sensitivity" and options.get("over") == "domain"):
            unit_name = _read_unit(f["unit"], document["evidence"], kept)
            stated = float(f["limit"]), float(f["high"]), unit_name, apart(details, every=not own)
            yield Yes(f["rule"], options, *stated, m["n"] or 0)


def _read_unit(named: str, evidence: Mapping[str, Any], kept: Sequence[Kept]) -> float:
    """Return what one of a finding's units is in the case's: nats of both, or deviations of a regressor's targets."""
    targets = [float(k.case.arrays["y"].std()) for k in kept if k.case.family == "squares"]
    targets += [float(k.case.settings["deviation"]) for k in kept if "deviation" in k.case.settings]
    if not targets:
        return 1.0
    scale = evidence["influence"]["sensitivity"] if named == "residual deviations" else None
    size = evidence["subject"]["release"]["noise"]["scale"] if scale is None else scale["residual_outside"]
    return abs(float(size)) / targets[0]


@strict_json.reading("report.json cannot be recomputed", SubjectError)
def recompute(
    document: Mapping[str, Any], folder: Path, compared: Callable[[Kept], Kept] = lambda kept: kept
) -> list[str]:
    """Return a sentence for each rule that passes again by the cases of a folder.

    ``compared`` says what each case claims, of whoever has the data, and may refuse one. ``DigestMismatchError``: a
    case is not the one that the report names, or the kernel says otherwise of it. ``SubjectError``: the file cannot be
    read, rests on a theorem that went, or no rule of the report approved by a certificate.
    """
    noted = (document["evidence"]["influence"] or {}).get("cases") or []
    if not noted:
        raise SubjectError("the report names no case: no limit of it is a theorem's, or an earlier version wrote it")
    if why := name_removed_theorem(noted):
        raise SubjectError(why)
    kept = [_judge_noted(compared(k), note) for k, note in zip(_read_noted(noted, folder), noted, strict=True)]
    count = int(document["evidence"]["subject"]["n_units"])
    if not 0 < count <= _PEOPLE:
        raise SubjectError(f"the report is about {count} people; 1 to {_PEOPLE} can be recomputed")
    if any(k.everybody.max(initial=-1) >= count for k in kept):
        raise DigestMismatchError(f"{FILE} is about more people than the report")
    limits, questions, said = upper(kept, count), people(kept), list[str]()
    for yes in find_yeses(document, kept):
        if why := yes.shortfall(limits, questions):
            raise DigestMismatchError(why)
        number = yes.aggregated(limits, questions)
        said.append(f"{yes.rule}: the kernel's limits come to {number:.4g} again, at most {yes.limit:g} is allowed")
    if not said:
        raise SubjectError("no rule of the report approved by a certificate: there is no yes that comes out again")
    return said


def _read_noted(noted: Sequence[Mapping[str, Any]], folder: Path) -> tuple[Kept, ...]:
    """Return the kept cases of a folder, each the one that a report names in its place."""
    kept = read(folder / FILE)
    if len(kept) != len(noted):
        raise DigestMismatchError(f"{FILE} holds {len(kept)} cases, and the report names {len(noted)}")
    for k, note in zip(kept, noted, strict=True):
        if (digest := k.digest()) != note["digest"]:
            whose = f"has {digest[:19]}…, and the report names {str(note['digest'])[:19]}…"
            raise DigestMismatchError(f"a case of {FILE} is not the one that was judged: it {whose}")
    return kept


def _judge_noted(kept: Kept, note: Mapping[str, Any]) -> Kept:
    """Return a case with what the kernel says of it now, which is what the report says of it."""
    if kept.case.scope != "any" or kept.case.family == "sample":
        raise DigestMismatchError(f"a case of {FILE} limits nobody's change of any answer")
    try:
        judged = kept.judge_again()
    except kernel.Refused as exc:
        raise DigestMismatchError(f"the kernel refuses a case of {FILE}: {exc}") from exc
    for name in ("low", "high"):
        old, new = float(note[name]), float(getattr(judged, name).max(initial=0.0))
        if not (at_most(old, new) and at_most(new, old)):
            raise DigestMismatchError(f"the kernel says {new:.6g} of a case at most, and the report says {old:.6g}")
    return judged
