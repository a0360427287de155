"""What may be told of how many people are of some kind: decided by the number itself, where it is made.

A count from 1 to 9 is hidden, and so is one that leaves 1 to 9 of a total: whoever knows the total and one part knows
the other part (Willenborg & de Waal, "Elements of Statistical Disclosure Control", 2001, chapter 4). In JSON a hidden
count is ``null``, in a sentence its range. How many there are in all, nobody and everybody are told. Whoever computes
has the true numbers; what is written has been told: ``payload`` of each part asks the types of its fields.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Annotated, Any, ClassVar

import numpy as np
from pydantic import BaseModel, ConfigDict, PlainSerializer, SerializationInfo, WithJsonSchema, model_validator

#: counts of people below this are not shown
SMALL_CELL = 10
#: least and largest count, or ends of an interval
Range = tuple[int, int]
Ends = tuple[float, float]


@dataclass(frozen=True, slots=True)
class Count:
    """So many people or records, ``total`` what every reader knows; None where there is none.

    >>> [str(Count(*c)) for c in ((4,), (996, 1000), (40, 1000), (0, 1000), (5, 8))]
    ['1 to 9', '991 to 999', '40', '0', '1 to 8']
    >>> Count(4, 1000).shown, Count(996, 1000).shown, Count(40, 1000).shown
    (None, None, 40)
    """

    n: int
    total: int | None = None

    @property
    def hidden(self) -> bool:
        """Whether it is small, or leaves a small rest of its total."""
        return self.n > 0 and (self.n < SMALL_CELL or (self.total is not None and 0 < self.total - self.n < SMALL_CELL))

    @property
    def shown(self) -> int | None:
        """What JSON holds of it."""
        return None if self.hidden else self.n

    @property
    def ends(self) -> Range:
        """The range in which it is said to lie: itself where nothing is hidden."""
        if not self.hidden:
            return self.n, self.n
        if self.total is None or self.n < SMALL_CELL:
            return 1, min(SMALL_CELL - 1, self.total or SMALL_CELL)
        return self.total - SMALL_CELL + 1, self.total - 1

    def __str__(self) -> str:
        """Return what a sentence says: the range of a hidden count, except where everybody is meant."""
        return str(self.n) if not self.hidden or self.n == self.total else " to ".join(map(str, self.ends))


def tell_count(n: int | None, total: int | None = None) -> int | None:
    """Return what JSON holds of a count; None is one that was hidden before."""
    return None if n is None else Count(n, total).shown


def cells(counts: Iterable[int]) -> list[int | None]:
    """Return counts that add up to a total: small ones as None, never exactly one of them alone beside another count.

    >>> cells([400, 30, 0, 3])
    [400, None, 0, None]
    """
    shown = [Count(int(c)).shown for c in counts]
    rest = [c for c in shown if c]
    if shown.count(None) == 1 and rest:
        shown[shown.index(min(rest))] = None
    return shown


def at_least(count: int, totals: Iterable[int], floors: Iterable[int] = ()) -> int:
    """Return a sample's size, rounded down where it leaves a small rest of a total, not below ``floors`` of a policy.

    >>> at_least(298, [300]), at_least(298, [300], [295]), at_least(250, [300]), at_least(2, [4])
    (291, 295, 250, 1)
    """
    for total in totals if count and count not in totals else ():
        if 0 < total - count < SMALL_CELL:
            return max([1, total - SMALL_CELL + 1, *(f for f in floors if f <= count)])
    return count


def sampled(n: int, total: int) -> str:
    """Return in words how many of how many were looked at.

    >>> sampled(4, 280), sampled(298, 300), sampled(300, 300)
    ('4 of 280 people measured', 'at least 291 of 300 people measured', '300 of 300 people measured')
    """
    least = at_least(n, [total])
    return f"{'' if least == n else 'at least '}{least} of {total} people measured"


def share(low: float, high: float, people: int, limits: Iterable[float] = ()) -> Ends:
    """Return the interval of a share of people, a count of a known number: no end tells a small one or passes a limit.

    >>> share(0.004, 0.004, 1000, [0.01]), share(0.004, 0.004, 1000, [0.005]), share(0.04, 0.04, 1000, [0.05])
    ((0.001, 0.009), (0.001, 0.005), (0.04, 0.04))
    """
    if not people or not 0 <= low <= high <= 1:
        return low, high
    counts = [(Count(round(v * people), people), v) for v in (low, high)]
    least, most = (c.ends[i] / people if c.hidden else v for i, (c, v) in enumerate(counts))
    return widen_interval(limits, (low, high), (least, most))


def widen_interval(limits: Iterable[float], true: Ends, shown: Ends) -> Ends:
    """Return an interval that holds the true one, cut such that it lies on the same side of every limit."""
    (low, high), (least, most) = true, shown
    given = tuple(limits)
    least = max([least, *(math.nextafter(v, math.inf) for v in given if low > v)]) if least < low else low
    most = min([most, *(v for v in given if high <= v)]) if most > high else high
    return least, most


@dataclass(frozen=True, slots=True)
class Known:
    """What whoever reads a report knows, and what a count is therefore told beside."""

    units: int | None = None
    records: int | None = None
    #: every number of people or records that is no secret, and what is left of it without parts that are told
    totals: tuple[int, ...] = ()
    #: sample sizes that the policy asks for: whoever judges the numbers again comes to the same end
    floors: tuple[int, ...] = ()
    #: request to limits of its rules
    limits: Mapping[str, Sequence[float]] = field(default_factory=dict)
    #: in the trials of attacks
    members: int = 0
    candidates: int = 0
    #: people who were really trained without
    retrained: int = 0

    def sample(self, n: int) -> int:
        """Return how large a sample is said to be."""
        return at_least(n, self.totals, self.floors)

    def few(self, n: int) -> bool:
        """Whether a count is small, or leaves a small rest of a total that every reader knows."""
        return n not in self.totals and any(Count(n, total).hidden for total in (None, *self.totals))


def _count_within(total: str) -> PlainSerializer:
    def tell(n: int | None, info: SerializationInfo) -> int | None:
        return tell_count(n, getattr(info.context, total, None))

    return PlainSerializer(tell, return_type=int | None)


#: fields that count people: true in a run; in a report null where they are hidden, by the total that the name says
OfUnits = Annotated[int | None, _count_within("units")]
OfRecords = Annotated[int | None, _count_within("records")]
OfNoTotal = Annotated[int | None, _count_within("")]
#: how many of them were looked at
Sample = Annotated[int, PlainSerializer(lambda n, info: (info.context or Known()).sample(n), return_type=int)]
#: told by the part that it stands in, which knows what it adds up to
Part = int | None


Json = Any
#: a float; in JSON a number, or one of the words "inf", "-inf", "nan", which JSON has no number for
Number = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]})]


class EvidenceModel(BaseModel):
    """What every typed part of the evidence is: frozen, and without a key that nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid", defer_build=True)
    #: keys that earlier versions wrote, which are read and passed over
    earlier: ClassVar[frozenset[str]] = frozenset()
    #: whether what was not set is written, too
    whole: ClassVar[bool] = True

    @model_validator(mode="before")
    @classmethod
    def _pass_over(cls, given: Any) -> Any:
        return {k: v for k, v in given.items() if k not in cls.earlier} if isinstance(given, Mapping) else given

    def payload(self, known: Known | None = None) -> dict[str, Json]:
        """Return JSON values as they may be told; infinities and NaN become text."""
        return dict(encode(self.model_dump(context=known, exclude_unset=not self.whole)))


def encode(value: Any) -> Any:
    """Return ``value`` with non-finite floats as the words "inf", "-inf", "nan", and arrays as lists."""
    if isinstance(value, np.ndarray | np.generic):
        return encode(value.tolist())
    if isinstance(value, float) and not math.isfinite(value):
        return str(value)
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    return [encode(v) for v in value] if isinstance(value, list | tuple) else value
