"""Small counts of people, hidden wherever a report says them: in tables, in sentences, in what stands behind a number.

A count from 1 to 9 is hidden, and so is one that leaves 1 to 9 of a total: whoever knows the total and one part knows
the other part (Willenborg & de Waal, "Elements of Statistical Disclosure Control", 2001, chapter 4). In words a hidden
count becomes the range that it lies in, in numbers ``null``. How many there are in all, nobody and everybody are told.
"""

import re
from collections.abc import Iterable, Sequence

import numpy as np
from numpy.typing import NDArray

from privgate.evidence.values import SMALL_CELL
from privgate.report.text import number

_NUMBER = r"\d{1,3}(?:,\d{3})+|\d+"
_PEOPLE = r"(?:people|persons?|records?|units?|members?|candidates?|non-members?)"
# what is counted by "3 of 4 …" and is nobody
_THINGS = (
    "expectations|trainings|such trainings|retrains|rules|preconditions|conditions|theorems|models|figures|seeds|steps|"
    "features|columns|attacks|bounds|entries|draws|updates|questions|runs|cells|limits|shadow|target|canaries|guesses"
)
_ALONE = r"(?<![\w.,=-])(?<! to )(?<!-fold )"
# "4 of 1000 people were trained without": how large a sample is tells nothing about anybody in it
_PART = re.compile(rf"{_ALONE}(?<!was trained without )(?P<part>{_NUMBER}) of "
                   rf"(?P<all>(?:the |all |these )?)(?P<total>{_NUMBER})"
                   rf"(?![\w.,]*\d| (?:{_THINGS})\b| units were (?:measured|retrained)| people were trained without)"
                   rf"(?P<noun> {_PEOPLE}\b)?(?P<share> \([\d.e+-]+ %\))?")  # fmt: skip
_COUNT = re.compile(rf"{_ALONE}(?<!up to )(?<!at most )(?<!at least )(?<!than )(?<!\d of )(?<!group of )"
                    rf"(?<!all )(?<!these )"
                    rf"(?P<count>{_NUMBER})"
                    rf"(?P<noun> (?:more |other |training )?{_PEOPLE}\b(?! each))"
                    r"(?P<share> \([\d.e+-]+ %\))?")  # fmt: skip
# how large a sample is tells nothing about anybody in it, unless it is of a hidden few
_SAMPLE = re.compile(r"training function on $")
_BARE = re.compile(rf"{_ALONE}(?P<count>[1-9])(?P<noun> (?:are|were)\b| labels? of one person)")


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


def shown(count: int | None, total: int | None = None) -> str:
    """Return a count in words, its range where it is hidden; None is one that was hidden before.

    Examples
    --------
    >>> shown(4, 1000), shown(996, 1000), shown(1234), shown(None)
    ('1 to 9', '991 to 999', '1,234', 'suppressed')
    """
    if count is None:
        return "suppressed"
    low, high = bounds(count, total)
    return number(count) if low == high else f"{number(low)} to {number(high)}"


def cells(counts: NDArray[np.int64] | Sequence[int]) -> list[int | None]:
    """Return counts that add up to a total: small ones as None, never exactly one of them alone beside another count.

    Examples
    --------
    >>> cells([400, 30, 0, 3])
    [400, None, 0, None]
    """
    given = np.asarray(counts, dtype=np.int64)
    small = (given > 0) & (given < SMALL_CELL)
    rest = np.flatnonzero((given > 0) & ~small)
    if small.sum() == 1 and len(rest):
        small[rest[np.argmin(given[rest])]] = True
    return [None if hide else int(c) for c, hide in zip(given, small, strict=True)]


def nested(counts: Sequence[int], total: int) -> list[int | None]:
    """Return counts of which each contains the smaller ones, without those from which a small difference follows.

    How many lie above 1 nat and how many above 1.1 tell how many lie between.

    Examples
    --------
    >>> nested([400, 395, 20, 3], 1000)
    [400, None, 20, None]
    """
    told, last = [0, total], {}
    for i in sorted(range(len(counts)), key=lambda i: -counts[i]):
        if counts[i] in (0, total) or not any(0 < abs(counts[i] - known) < SMALL_CELL for known in told):
            told.append(counts[i])
            last[i] = counts[i]
    return [last.get(i) for i in range(len(counts))]


def sentence(text: str, totals: Iterable[int] = ()) -> str:
    """Return a sentence with every small count of people in it as a range.

    Parameters
    ----------
    text : str
        One of ours: "4 of 1000 are above the limit now".
    totals : iterable of int
        How many people and records there are, which everybody knows.

    Examples
    --------
    >>> sentence("4 of 1000 are above the limit now; 996 people are not", [1000])
    '1 to 9 of 1000 are above the limit now; 991 to 999 people are not'
    >>> sentence("1 label of one person only; 3 records (0.3 %) are alike")
    '1 to 9 label of one person only; 1 to 9 records are alike'
    """
    known = {t for t in totals if t}

    def ranged(count: int, *all_: int) -> str:
        for total in () if count in known else (None, *all_):
            if hidden(count, total):
                return " to ".join(map(str, bounds(count, total)))
        return ""

    def part(m: re.Match[str]) -> str:
        count, total = _int(m["part"]), _int(m["total"])
        # of a few there is no part to tell, and how many they are is hidden itself
        few = ranged(total, *known)
        if not few and _SAMPLE.search(text, 0, m.start()):
            return m[0]
        told = ranged(count, total, *known) if count != total else few
        if few and total < SMALL_CELL:
            return f"{few if count else f'none of {few}'}{m['noun'] or ''}"
        of = f"{m['all']}{few or m['total']}{m['noun'] or ''}"
        return m[0] if not told and not few else f"{told or m['part']} of {of}"

    def count(m: re.Match[str]) -> str:
        told = ranged(_int(m["count"]), *known)
        return f"{told}{m['noun']}" if told else m[0]

    text = _PART.sub(part, text)
    return _BARE.sub(count, _COUNT.sub(count, text))


def _int(digits: str) -> int:
    return int(digits.replace(",", ""))


def at_least(count: int, totals: Iterable[int], floors: Iterable[int] = ()) -> int:
    """Return a sample's size, rounded down where it leaves a small rest of a total: who was left out of it is nobody's.

    Examples
    --------
    >>> at_least(298, [300]), at_least(298, [300], [295]), at_least(250, [300])
    (291, 295, 250)
    """
    for total in totals if count not in totals else ():
        if 0 < total - count < SMALL_CELL:
            return max([total - SMALL_CELL + 1, *(f for f in floors if f <= count)])
    return count


def share(low: float, high: float, people: int, limits: Iterable[float]) -> tuple[float, float]:
    """Return the interval of a share of people whose ends tell no small count, on the same side of every limit.

    Examples
    --------
    >>> share(0.004, 0.004, 1000, [0.01]), share(0.004, 0.004, 1000, [0.005]), share(0.04, 0.04, 1000, [0.05])
    ((0.001, 0.009), (0.001, 0.005), (0.04, 0.04))
    """
    given = tuple(limits)
    least, most = (bounds(round(v * people), people)[i] / people for i, v in enumerate((low, high)))
    least = max([least, *(float(np.nextafter(v, 2.0)) for v in given if low > v)]) if least < low else low
    most = min([most, *(v for v in given if high <= v)]) if most > high else high
    return least, most
