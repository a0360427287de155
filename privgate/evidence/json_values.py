"""JSON values of evidence: numbers that may be infinite, and the base of every typed part."""

from collections.abc import Mapping
from typing import Annotated, Any

import numpy as np
from pydantic import BaseModel, ConfigDict, WithJsonSchema

Json = Any
Option = str | float | int | bool | None | tuple[str, ...]
#: a float; in JSON a number, or one of the words "inf", "-inf", "nan", which JSON has no number for
Number = Annotated[float, WithJsonSchema({"anyOf": [{"type": "number"}, {"enum": ["inf", "-inf", "nan"]}]})]
#: counts of people below this are not shown
SMALL_CELL = 10
#: a count of people; in a report null where it is 1 to 9, or would give such a count away; never null in a run
Count = int | None


def hidden(count: int, total: int | None = None) -> bool:
    """Whether a count is small, or leaves a small rest of its total.

    Examples
    --------
    >>> hidden(4, 1000), hidden(996, 1000), hidden(40, 1000), hidden(0, 1000), hidden(1000, 1000)
    (True, True, False, False, False)
    """
    return count > 0 and (count < SMALL_CELL or (total is not None and 0 < total - count < SMALL_CELL))


def kept(count: int | None, total: int | None = None) -> int | None:
    """Return a count, or None where it is hidden."""
    return None if count is None or hidden(count, total) else count


def bounds(count: int, total: int | None = None) -> tuple[int, int]:
    """Return the range in which a count is said to lie: itself where nothing is hidden.

    Examples
    --------
    >>> bounds(4, 1000), bounds(996, 1000), bounds(40, 1000), bounds(5, 8)
    ((1, 9), (991, 999), (40, 40), (1, 8))
    """
    if not hidden(count, total):
        return count, count
    if total is None or count < SMALL_CELL:
        return 1, min(SMALL_CELL - 1, total or SMALL_CELL)
    return total - SMALL_CELL + 1, total - 1


def told_count(count: int, *totals: int) -> str:
    """Return a count of people for a sentence: itself, or the range of a small count or of a small rest of a total.

    Whatever says how many people are of some kind says it by this; nothing is taken out of sentences afterwards.

    Examples
    --------
    >>> [told_count(4), told_count(996, 1000), told_count(40, 1000), told_count(0, 1000), told_count(60, 60, 400)]
    ['1 to 9', '991 to 999', '40', '0', '60']
    """
    for total in () if count in totals else (None, *totals):
        if hidden(count, total):
            return " to ".join(map(str, bounds(count, total)))
    return str(count)


def coarse(share: float, people: int, limit: float = float("nan")) -> float:
    """Return a share of people; one that would tell a small count is the upper end of such counts, below its limit.

    Examples
    --------
    >>> coarse(0.004, 1000), coarse(0.996, 1000), coarse(0.04, 1000), coarse(0.004, 1000, 0.005)
    (0.009, 0.999, 0.04, 0.005)
    """
    if not people or not 0 <= share <= 1:
        return float(share)
    count, most = round(share * people), float(share)
    if 0 < count < SMALL_CELL:
        most = min(SMALL_CELL - 1, people) / people
    elif 0 < people - count < SMALL_CELL:
        most = (people - 1) / people
    return limit if share <= limit < most else most


class EvidenceModel(BaseModel):
    """What every typed part of the evidence is: frozen, and without a key that nobody declared."""

    model_config = ConfigDict(frozen=True, extra="forbid")

    def payload(self) -> dict[str, Json]:
        """Return JSON values; infinities and NaN become text."""
        found: dict[str, Json] = encode(self.model_dump())
        return found


def encode(value: Any) -> Any:
    """Return ``value`` with non-finite floats as the words "inf", "-inf", "nan", and arrays as lists."""
    if isinstance(value, np.ndarray):
        return [encode(v) for v in value.tolist()]
    if isinstance(value, np.generic):
        return encode(value.item())
    if isinstance(value, float) and not np.isfinite(value):
        return "nan" if np.isnan(value) else ("inf" if value > 0 else "-inf")
    if isinstance(value, Mapping):
        return {str(k): encode(v) for k, v in value.items()}
    if isinstance(value, list | tuple):
        return [encode(v) for v in value]
    return value


def decode(value: Any) -> Any:
    """Return the float that ``encode`` wrote as a word; anything else unchanged."""
    return float(value) if isinstance(value, str) else value
