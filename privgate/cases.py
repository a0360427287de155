"""Cases that limits came from: kept in one file beside the per-person table, and read again within limits.

A case tells the data: a minimum and one move a person give every record back. ``cases.npz`` is personal data, stays
with whoever holds the data, and is never uploaded. Evidence names each case by its digest.
"""

import hashlib
import json
import math
import zipfile
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any, Self

import numpy as np
from numpy.lib import format as npy
from numpy.typing import NDArray

from privgate import kernel
from privgate.documents import DocumentError, DocumentLimits, strict_json
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
#: arrays of one file: a case has about thirty
_ARRAYS = 2_000
_HEAD = DocumentLimits(4 << 20, 100_000, 16)
#: kinds of numbers in arrays, eight bytes each; the kernel reads no others
_KINDS = ("<f8", "<i8")


@dataclass(frozen=True, eq=False)
class Kept:
    """A case, whom it is about, and what the kernel said.

    Parameters
    ----------
    case : Case
    units : int64 array of shape (A,)
        Whom the kernel's first A people are: positions in ``subject.data.units``, ``~`` them where nothing is claimed.
    low, high : float64 arrays of shape (A,)
        The kernel's limits of these.
    theorem : str
        Who posed it; a key of ``certificates.ALL``.
    seed : int
        Under which of the seeds, counted from 0; a theorem that holds under each has 0 alone.
    """

    case: Case
    units: NDArray[np.int64]
    low: NDArray[np.float64]
    high: NDArray[np.float64]
    theorem: str = ""
    seed: int = 0

    @classmethod
    def of(cls, case: Case, units: NDArray[np.int64], *, theorem: str = "", seed: int = 0) -> Self:
        """Return the case with what the kernel says of its first people; the kernel may refuse."""
        limits, asked = kernel.limits(case), slice(0, len(units))
        if len(limits.high) < len(units):
            raise kernel.Refused("the case is about fewer people than are named")
        return cls(case, np.asarray(units, dtype=np.int64), limits.low[asked], limits.high[asked], theorem, seed)

    def again(self) -> Self:
        """Return the same with what the kernel says now."""
        return self.of(self.case, self.units, theorem=self.theorem, seed=self.seed)

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
        told = json.dumps([self.case.digest(), units, self.theorem, self.seed])
        return "sha256:" + hashlib.sha256(told.encode()).hexdigest()


def upper(kept: Sequence[Kept], people: int) -> NDArray[np.float64]:
    """Return everybody's upper limit, shape (people,); infinite for whom no case claims one.

    Of a seed's cases the least counts, of a theorem's seeds the largest, of theorems the least.
    """
    least = np.full(people, np.inf)
    for theorem in dict.fromkeys(k.theorem for k in kept):
        mine, worst = [k for k in kept if k.theorem == theorem], np.zeros(people)
        for seed in range(1 + max(k.seed for k in mine)):
            one = np.full(people, np.inf)
            for k in (k for k in mine if k.seed == seed):
                named = k.units >= 0
                np.minimum.at(one, k.units[named], k.high[named])
            worst = np.maximum(worst, one)
        least = np.minimum(least, worst)
    return least


def people(kept: Sequence[Kept]) -> int:
    """Return of how many people some case claims a limit."""
    return len(np.unique(np.concatenate([k.units[k.units >= 0] for k in kept]))) if kept else 0


def needed(kept: Sequence[Kept], people: int) -> tuple[Kept, ...]:
    """Return the cases without which somebody's upper limit were larger: what a later one shows as well goes."""
    found, wanted = list(kept), upper(kept, people)
    for k in kept:
        rest = [other for other in found if other is not k]
        own = {o.seed for o in rest if o.theorem == k.theorem}  # none are forgotten, or all of a theorem
        if (k.seed in own or not own) and (upper(rest, people) <= wanted).all():
            found = rest
    return tuple(found)


def name_removed_theorem(noted: Iterable[Mapping[str, Any]]) -> str:
    """Return which case of a report is of a family that only an earlier version knew; empty where none is."""
    family = next((str(note["family"]) for note in noted if note.get("family") in GONE), "")
    if not family:
        return ""
    return (
        f"the report rests on cases of {family!r}, the theorem about {GONE[family]}, which went with 0.1.0, the last "
        "version that knew it: judge the model by share-1 or release-1, or train it in privgate.models.Sharded"
    )


# What follows of all limits, for rules: the yes that it gives, or why it gives none.


@dataclass(frozen=True)
class Yes:
    """A rule that passed because of what theorems say.

    Parameters
    ----------
    rule : str
    options : mapping
        What was asked: aggregate, threshold, quantile, sample.
    limit, judged : float
        What the rule allows, and the upper limit that was held against it.
    unit : float
        What one of the rule's unit is in the case's.
    apart : float
        How far released answers are from those of the recipe's model, which theorems are about; nats.
    drawn : int
        How many people were drawn at random, and were asked about; 0 where it is not told.
    """

    rule: str
    options: Mapping[str, Any]
    limit: float
    judged: float
    unit: float = 1.0
    apart: float = 0.0
    drawn: int = 0

    def shortfall(self, upper: NDArray[np.float64], asked: int) -> str:
        """Return why these limits of everybody, of whom so many were asked about, give no yes; empty if they do."""
        found = self.aggregated(upper, asked)
        if not found <= self.limit:
            return f"{self.rule!r} approved, but the kernel's limits come to {found:.6g}: allowed is {self.limit:g}"
        if not at_most(found, self.judged):
            return f"rule {self.rule!r} was judged by {self.judged:.6g}, and the kernel's limits come to {found:.6g}"
        return ""

    def aggregated(self, upper: NDArray[np.float64], asked: int) -> float:
        """Return the number of all limits that the rule is about; infinite where it is about none.

        Whoever was drawn, and of whom no case claims a limit, counts as beyond all of them.
        """
        how, n, asked = self.options.get("aggregate", "max"), len(upper), max(asked, self.drawn)
        upper = upper / self.unit + self.apart
        if how == "share_above":
            above = n - int((upper <= float(self.options["threshold"])).sum())
            return (above if asked >= n else self._exceeding(above - (n - asked), asked, n)) / n
        if how == "quantile":
            q = float(self.options["q"])
            rank = quantile_rank(asked, q, alpha=_ALPHA) if asked < n else int(np.ceil(q * n))
            return np.inf if rank is None else float(np.sort(upper)[max(rank, 1) - 1])
        return float(upper.max(initial=0.0)) if how == "max" and n else np.inf

    def _exceeding(self, above: int, asked: int, people: int) -> int:
        """Return how many exceed at most, by the planned looks; by a sample of the rule's own in earlier reports."""
        if self.options.get("sample"):
            return exceeding_limit(above, asked, people, alpha=_ALPHA)
        return plan_looks(people, min(people - 1, int(self.limit * people + 1e-9))).share(0, above, asked)[1]


def at_most(found: float, stated: float) -> bool:
    """Return whether a number is at most another one, but for sums in another order, on another machine."""
    return found <= stated or found - stated <= _SAME * (1 + min(abs(found), abs(stated)))


def apart(details: Iterable[tuple[str, Mapping[str, Any]]], *, every: bool) -> float:
    """Return how far released answers are from the recipe's by what controls found, (name, figures) each; nats.

    At ``every`` question, or at people's own records.
    """
    names = ("from_registered_model_nats", "from_registered_model_elsewhere_nats")[: 2 if every else 1]
    most = {"reproduces": 0.0, "served": 0.0}
    for control, found in details:
        for name in {"reproduces": names, "served": ("ways_apart",)}.get(control, ()):
            most[control] = max(most[control], float(found.get(name) or 0.0))
    return most["reproduces"] + most["served"]


# As arrays and JSON values: in the ledger among others, in a file by themselves.


def packed(kept: Sequence[Kept]) -> tuple[dict[str, NDArray[Any]], list[dict[str, Any]]]:
    """Return the cases as arrays and JSON values; arrays that are the same object stand once."""
    arrays: dict[str, NDArray[Any]] = {}
    names: dict[int, str] = {}

    def named(array: NDArray[Any]) -> str:
        if id(array) not in names:
            names[id(array)] = f"case{len(names)}"
            arrays[names[id(array)]] = array
        return names[id(array)]

    told = []
    for k in kept:
        own = {name: named(array) for name, array in sorted(k.case.arrays.items())}
        told.append({
            "family": k.case.family, "asked": k.case.asked, "settings": dict(k.case.settings), "arrays": own,
            "units": named(k.units), "low": named(k.low), "high": named(k.high), "theorem": k.theorem, "seed": k.seed,
        })  # fmt: skip
    return arrays, told


def unpacked(arrays: dict[str, NDArray[Any]], told: Sequence[dict[str, Any]]) -> tuple[Kept, ...]:
    """Return the cases that ``packed`` took apart."""
    return tuple(
        Kept(
            Case(t["family"], t["asked"], t["settings"], {name: arrays[a] for name, a in t["arrays"].items()}),
            arrays[t["units"]],
            arrays[t["low"]],
            arrays[t["high"]],
            t["theorem"],
            t["seed"],
        )
        for t in told
    )


def write(path: Path, kept: Sequence[Kept]) -> None:
    """Write the cases to a file.

    Raises
    ------
    OSError
        It cannot be written.
    """
    arrays, told = packed(kept)
    # what an infinite limit is, JSON has no word for: limits stand among the arrays
    head = np.frombuffer(json.dumps(told, allow_nan=False).encode(), dtype=np.uint8)
    named: dict[str, Any] = {"head": head, **{n: a.astype(_KINDS[a.dtype.kind == "i"]) for n, a in arrays.items()}}
    np.savez(path, **named)


def read(path: Path) -> tuple[Kept, ...]:
    """Return the cases of a file; what it claims of people is believed only after the kernel ran again.

    Raises
    ------
    DocumentError
        It is no such file, or larger than what is written.
    OSError
        It cannot be opened or read.
    """
    with strict_json.opened(path) as f:
        try:
            with zipfile.ZipFile(f) as archive:
                arrays = dict(_arrays(archive))
            told = strict_json.loads(arrays.pop("head").tobytes(), _HEAD)
            return tuple(_sound(k) for k in unpacked(arrays, told))
        except DocumentError:
            raise
        except (zipfile.BadZipFile, zipfile.LargeZipFile, EOFError, NotImplementedError, *strict_json.GARBLED) as exc:
            raise DocumentError(f"is no file of cases ({strict_json.why(exc)})") from exc


def _arrays(archive: zipfile.ZipFile) -> Iterator[tuple[str, NDArray[Any]]]:
    """Give the arrays of an archive; what each would take is known before it is read."""
    members = archive.infolist()
    if len(members) > _ARRAYS or sum(m.file_size for m in members) > MOST + len(members) * 1_000:
        raise DocumentError(f"holds more than {_ARRAYS} arrays, or more than {MOST >> 20} MiB of them")
    if any(m.compress_type != zipfile.ZIP_STORED or m.flag_bits & 1 for m in members):
        raise DocumentError("is no file of cases (an array is compressed or encrypted)")
    for member in members:
        with archive.open(member) as f:
            name, version = member.filename.removesuffix(".npy"), npy.read_magic(f)
            if version != (1, 0):
                raise DocumentError("is no file of cases (an array of another version)")
            shape, fortran, dtype = npy.read_array_header_1_0(f, max_header_size=2_000)
            if dtype.str not in (_KINDS if name != "head" else ("|u1",)):
                raise DocumentError(f"is no file of cases (an array of {dtype})")
            body = f.read()
        if math.prod(shape) * dtype.itemsize != len(body):
            raise DocumentError("is no file of cases (an array of another length)")
        yield name, np.frombuffer(body, dtype=dtype).reshape(shape, order="F" if fortran else "C")


def _sound(kept: Kept) -> Kept:
    """Return a case that was read if all of it is of the right kind."""
    right = (
        type(kept.case.family) is str,
        type(kept.case.settings) is dict,
        type(kept.theorem) is str,
        type(kept.seed) is int and 0 <= kept.seed < _ARRAYS,
        kept.units.ndim == 1 and kept.units.dtype.kind == "i" and len(np.unique(kept.everybody)) == len(kept.units),
        kept.low.shape == kept.high.shape == kept.units.shape,
        not np.isnan(kept.high.astype(np.float64)).any(),
    )
    if not all(right):
        raise ValueError("a case is of the wrong kind")
    return kept
