"""How batches were drawn, judged by the batches themselves."""

import math
from bisect import bisect_right
from dataclasses import dataclass, field, replace
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.privacy_claims.watch_noise import RARE

#: draws of one person that are to be expected in batches that were left: none happens with probability exp(-MET)
MET = 3.0
ROUNDS = 3  #: times that a pass is left in the same place of a rhythm, at least


@dataclass(frozen=True)
class Used:
    """What the batches of the steps were.

    Parameters
    ----------
    kind : {"poisson", "shuffled", "unknown"}
    rate : float
        Expected share of the records in a release.
    steps : int
        Releases.
    together : int
        Batches that one step sums, each an independent draw.
    entries : list of arrays, or None
        What each step used, in its order; None where that is not known.
    number : int
        Which of the run's samplers drew it; -1 where none did.
    records : int
        Size of what was drawn from.
    passes : int
        Passes over the records that were begun, of shuffled batches.
    """

    kind: str
    rate: float
    steps: int
    together: int = 1
    entries: list[NDArray[Any]] | None = None
    number: int = -1
    records: int = 0
    passes: int = 0


@dataclass
class Draws:
    """Batches that one sampler drew.

    Parameters
    ----------
    sampler : object
        Kept alive, so that its identity stays its own.
    kind : {"poisson", "shuffled", "unknown"}
    records : int
        Size of what it draws from.
    rate : float
        By its word; NaN where it has none.
    number : int
        Which of the run's samplers it is.
    batches : list of arrays
        What was drawn, in the sampler's order.
    passes : list of int
        Before which of these batches the sampler began anew.
    predictable : bool
        Whether a batch was drawn from a seed that can be guessed.
    rates : set of float
        In force when batches were drawn, by the sampler's word.
    """

    sampler: Any
    kind: str
    records: int
    rate: float
    number: int = 0
    batches: list[NDArray[Any]] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)
    predictable: bool = False
    rates: set[float] = field(default_factory=set)

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each batch."""
        return [len(b) for b in self.batches]

    def pass_of(self, at: int) -> int:
        """Return in which pass a batch was drawn."""
        return bisect_right(self.passes, at)

    def span(self, number: int) -> tuple[int, int]:
        """Return the first batch of a pass, counted from 1, and the first behind it; 0 is what no pass holds."""
        starts = [0, *self.passes, len(self.batches)]
        return starts[number], starts[number + 1]


def kind(sampler: Any) -> tuple[str, int, float]:
    """Return (kind, records, rate) of a batch sampler."""
    from opacus.utils.uniform_sampler import UniformWithReplacementSampler
    from torch.utils.data import RandomSampler, SequentialSampler, SubsetRandomSampler

    if type(sampler) is UniformWithReplacementSampler:  # another may say this rate, and draw otherwise
        return "poisson", int(sampler.num_samples), float(sampler.sample_rate)
    inner = getattr(sampler, "sampler", None)
    records = len(inner) if inner is not None and hasattr(inner, "__len__") else 0
    known = type(inner) in (SequentialSampler, RandomSampler, SubsetRandomSampler)
    return ("shuffled" if known else "unknown"), records, math.nan


#: what each step clipped, piece by piece: (records, batches that each sampler had drawn by then, the latest last)
Clipped = list[list[tuple[int, dict[int, int]]]]


def used(clipped: Clipped, draws: list[Draws], records: int) -> Used:
    """Return what the steps used.

    A sampler counts only if its batches are those of the steps, one by one or several together.

    Parameters
    ----------
    clipped : list of lists of (int, dict)
    draws : list of Draws
    records : int
        Training records.
    """
    sizes = [sum(size for size, _ in pieces) for pieces in clipped]
    latest = [next(reversed(drawn_by_then), -1) for pieces in clipped for _, drawn_by_then in pieces]
    for drawn in sorted(draws, key=lambda d: -latest.count(d.number)):  # others may have as many batches of this size
        found = matched(clipped, drawn)
        if found is None:
            continue
        batches, used_of = found
        entries = entries_of(batches, drawn)
        together = max((len(b) for b in batches), default=1) or 1
        if sizes and all(b >= drawn.records for b in drawn.sizes) and together == 1:
            return Used("poisson", 1.0, len(sizes), 1, entries, drawn.number, drawn.records)
        taken = _with_empty(drawn, used_of)
        kind = _kind(drawn, taken, used_of)
        if kind == "poisson" and any(
            d.kind == kind and len(d.batches) > _few(used_of) for d in draws if d is not drawn
        ):
            kind = ""  # somebody may have drawn from several samplers, and taken the best
        split = any(b[0] < start <= b[-1] for b in batches if b for start in drawn.passes)
        if kind == "shuffled" and not split:  # a record is in at most one of the batches that a step sums
            begun = len({drawn.pass_of(at) for at in used_of})
            rate = min(1.0, max(sizes, default=1) / max(1, drawn.records))
            return Used(kind, rate, len(sizes), 1, entries, drawn.number, drawn.records, begun)
        if not kind:
            continue
        steps = max(len(sizes), len(taken.sizes))
        rate = drawn.rate if drawn.kind == "poisson" else max(drawn.sizes, default=1) / max(1, drawn.records)
        return Used(kind, min(1.0, rate), steps, together, entries, drawn.number, drawn.records)
    if sizes and not draws and all(b == records for b in sizes):
        return Used("poisson", 1.0, len(sizes), 1, [np.arange(records)] * len(sizes))
    return Used("unknown", 1.0, len(sizes))


def _kind(drawn: Draws, taken: Draws, used_of: list[int]) -> str:
    """Return how batches were drawn, by what they are; empty where they are not what their sampler says."""
    if drawn.kind != "poisson":
        return "shuffled" if _is_once_a_pass(drawn) else "unknown"
    # who is in which batch is known, or at another rate: nothing is amplified
    if drawn.predictable or len(drawn.rates) > 1:
        return "unknown"
    fair = _is_binomial(taken, len(taken.sizes)) and _is_independent(taken)
    return "poisson" if fair and not _is_set_back(drawn) and not _is_picked(drawn, used_of) else ""


def _is_once_a_pass(drawn: Draws) -> bool:
    """Whether no entry comes twice in a pass, by more than accident where the sampler is not one of torch's."""
    if getattr(getattr(drawn.sampler, "sampler", None), "replacement", False):
        return False
    ends = [*drawn.passes[1:], len(drawn.batches)]
    try:
        passes = [[int(i) for b in drawn.batches[a:e] for i in b] for a, e in zip(drawn.passes, ends, strict=True)]
    except (TypeError, ValueError):  # no numbers: entries by name
        return False
    if any(len(set(p)) != len(p) for p in passes):
        return False
    if drawn.kind == "shuffled":
        return True
    # with replacement, each pair in a pass is equal with at least this chance
    pairs = sum(len(p) * (len(p) - 1) / 2 for p in passes)
    return pairs / max(1, 1 + max((i for p in passes for i in p), default=0)) > -math.log(RARE)


def _is_set_back(drawn: Draws) -> bool:
    """Whether batches came again, by more than accident: who sets a sampler back has seen what it draws."""
    from scipy.stats import binom

    people, alike = as_sets(drawn.batches), _alike(drawn.records, drawn.rate)
    if len(people) ** 2 * alike < RARE:
        return len(set(people)) < len(people)
    # of few records, single batches come again; passes do not
    spans = [drawn.span(number) for number in range(1, len(drawn.passes) + 1)]
    longest = max((end - start for start, end in spans), default=0)
    names = {who: name for name, who in enumerate(people)}
    table = np.arange(-1, -1 - len(spans) * longest, -1).reshape(len(spans), longest)  # behind a pass: like nothing
    for row, (start, end) in zip(table, spans, strict=True):
        row[: end - start] = [names[who] for who in people[start:end]]
    least = int(binom.isf(RARE / max(1, len(spans)) ** 2, longest, alike)) + 1
    return any(((table[i + 1 :] == row).sum(axis=1) >= least).any() for i, row in enumerate(table))


def _is_picked(drawn: Draws, used_of: list[int]) -> bool:
    """Whether batches may have been left because of whom they hold.

    A few may be left: honest trainings look at one before the first step. More may where all passes are alike, and
    are so many that whoever picks would have met the person he picks for. What is drawn after the last step is free.
    """
    known = set(used_of)
    passed = [at for at in range(max(known, default=0)) if at not in known]
    left = [at for at in passed if len(drawn.batches[at])]
    few = _few(used_of)
    if drawn.rate >= 1 or len(left) <= few:
        return False
    early = sum(at < used_of[0] for at in left)
    met = -math.log1p(-drawn.rate) * (len(passed) - sum(at < used_of[0] for at in passed)) >= MET
    passes = sorted({drawn.pass_of(at) for at in used_of})
    between = [map(drawn.span, range(before + 1, after)) for before, after in pairwise([0, *passes])]
    gaps = [tuple(end - start for start, end in spans) for spans in between]  # sizes of the passes that were left
    begins = early <= few or gaps[0] in gaps[1:]
    return not (met and begins and _is_rhythm(gaps[1:]) and _end_alike(drawn, used_of, left))


def _few(used_of: list[int]) -> int:
    """Return how many batches may be left whatever they hold."""
    return max(min(2, len(used_of) // 5), len(used_of) // 20)


def _is_rhythm(gaps: list[tuple[int, ...]]) -> bool:
    """Whether one pass, always as long, is left each time after as many others, three times or more; or none is."""
    held = [at for at, gap in enumerate(gaps) if gap]
    if not held:
        return True
    apart = {b - a for a, b in pairwise([-1, *held])}
    alike = len({gaps[at] for at in held}) == 1 == len(gaps[held[0]])
    return alike and len(held) >= ROUNDS and len(apart) == 1 and len(gaps) - 1 - held[-1] < min(apart)


def _end_alike(drawn: Draws, used_of: list[int], left: list[int]) -> bool:
    """Whether each pass that was used ends after as many batches, or ran out; the last one may end earlier."""
    passes = {drawn.pass_of(at) for at in used_of}
    places = [(drawn.pass_of(at), at - drawn.span(drawn.pass_of(at))[0]) for at in used_of]
    last = max(place for _, place in places)
    return all(at - drawn.span(drawn.pass_of(at))[0] > last for at in left if drawn.pass_of(at) in passes)


def _alike(records: int, rate: float) -> float:
    """Return the chance that two Poisson batches hold the same people, or both nobody."""
    return math.exp(records * math.log(rate**2 + (1 - rate) ** 2))


def as_sets(batches: list[NDArray[Any]]) -> list[frozenset[Any]]:
    """Return who is in each batch."""
    return [frozenset(np.ravel(b).tolist()) for b in batches]


def is_again(some: list[frozenset[Any]], others: list[frozenset[Any]], records: int, rate: float) -> bool:
    """Whether Poisson batches of two lists are the same, by more than accident.

    Parameters
    ----------
    some, others : lists of frozensets
        Entries of each batch.
    records : int
        Size of what they were drawn from.
    rate : float
    """
    from scipy.stats import binom

    if not 0 < rate < 1:
        return False
    alike = _alike(records, rate)
    if len(some) * len(others) * alike < RARE:
        return not set(some).isdisjoint(others)
    # of few records, equal batches are common, but not one by one
    equal = sum(a == b for a, b in zip(some, others, strict=False))
    return bool(binom.sf(equal - 1, min(len(some), len(others)), alike) < RARE)


def _with_empty(drawn: Draws, used_of: list[int]) -> Draws:
    """Return the batches that steps used, and those that hold nobody in the same passes: each of these is a step."""
    known = set(used_of)
    passes = {drawn.pass_of(at) for at in known}
    kept = [b for at, b in enumerate(drawn.batches) if at in known or (not len(b) and drawn.pass_of(at) in passes)]
    return replace(drawn, batches=kept)


def matched(clipped: Clipped, drawn: Draws) -> tuple[list[list[int]], list[int]] | None:
    """Return (which batches each step used, all of these in order); None if they do not fit.

    A batch is the last that was drawn when its gradients were clipped. Where loaders draw ahead, batches are used in
    order and their sizes tell them.
    """
    paired = _paired(clipped, drawn)
    if paired is not None:
        return paired, [at for batches in paired for at in batches]
    found, known = [], list[int]()
    at = number = 0
    for pieces in clipped:
        sizes: dict[int, int] = {}  # of what one step sums, by pass
        for size, by_then in pieces:
            current = drawn.pass_of(by_then.get(drawn.number, 0) - 1)
            sizes[current] = sizes.get(current, 0) + size
        mine: list[int] = []
        for current, size in sizes.items():
            start, end = drawn.span(current)
            at = at if current == number else start  # what was drawn ahead in a pass that was broken off is left
            first, number, held = at, current, list[int]()
            while sum(len(drawn.batches[b]) for b in held) < size and at < end:
                held += [at] if len(drawn.batches[at]) else []
                at += 1
            if sum(len(drawn.batches[b]) for b in held) != size:
                return None
            mine += held
            known += range(first, at)
        found.append(mine)
    return found, known if any(found) else []


def _paired(clipped: Clipped, drawn: Draws) -> list[list[int]] | None:
    """Return each step's batches as those drawn last when they were clipped; None if their sizes are others."""
    found, before = [], -1
    for pieces in clipped:
        held: dict[int, int] = {}  # a batch may be clipped in pieces
        for size, drawn_by_then in pieces:
            at = drawn_by_then.get(drawn.number, 0) - 1
            held[at] = held.get(at, 0) + size
        mine: list[int] = []
        for last, size in held.items():  # several batches may be clipped together
            first, rest = last + 1, size
            while rest > 0 and first > 0:
                first -= 1
                rest -= len(drawn.batches[first])
            nobody = [last] if not size and last >= 0 and not len(drawn.batches[last]) else []
            mine += nobody or range(first, last + 1) if rest == 0 else [-1]
        if min(mine, default=0) < 0 or any(a >= b for a, b in pairwise([before, *mine])):
            return None  # of another size, or used a second time
        found.append(mine)
        before = mine[-1] if mine else before
    return found


def entries_of(batches: list[list[int]], drawn: Draws) -> list[NDArray[Any]]:
    """Return the entries of each step's batches, in order."""
    none = np.zeros(0, dtype=object)
    return [np.concatenate([drawn.batches[at] for at in mine]) if mine else none for mine in batches]


def _is_binomial(draws: Draws, steps: int) -> bool:
    """Whether batch sizes vary as independent inclusion at the stated rate makes them, but for rare accidents."""
    from scipy.stats import binom, chi2

    n, q = draws.records, draws.rate
    if not 0 < q < 1:
        return q == 1
    sizes = np.array(draws.sizes[:steps], dtype=np.float64)
    total = sizes.sum()
    if total > binom.ppf(1 - RARE, n * len(sizes), q):
        return False
    if binom.pmf(math.floor((n + 1) * q), n, q) ** len(sizes) > RARE:
        return True  # the likeliest sizes, one after the other, are no accident to speak of
    spread = float(((sizes - n * q) ** 2).sum() / (n * q * (1 - q)))
    return bool(spread >= chi2.ppf(RARE, len(sizes)))


def _is_independent(draws: Draws) -> bool:
    """Whether entries come as often, and again as soon, as independent inclusion makes them, but for rare accidents."""
    from scipy.stats import binom, chi2

    n, q = draws.records, draws.rate
    if not 0 < q < 1:
        return True
    try:
        batches = [np.asarray(b, dtype=np.int64) for b in draws.batches]
    except (TypeError, ValueError):  # no numbers: entries by name
        return False
    if any(len(np.unique(b)) != len(b) for b in batches) or any(
        len(b) and not 0 <= b.min() <= b.max() < n for b in batches
    ):
        return False
    counts = np.bincount(np.concatenate(batches), minlength=n) if batches else np.zeros(n)
    expected, variance = len(batches) * q, len(batches) * q * (1 - q)
    spread = float(((counts - expected) ** 2).sum() / variance)
    # counts of few batches are nearly Poisson: their spread varies by what is below 1 in them
    lowest = min(chi2.ppf(RARE, n) * 0.8, n - 6 * math.sqrt(n * (2 + 1 / expected))) if expected else 0.0
    # the tail of counts is a little heavier than that of a normal variable
    if not lowest <= spread <= chi2.isf(RARE, n) * (1 + 3 / min(expected, 3)):
        return False
    # one entry in all batches is lost among many
    often, seldom = binom.sf(counts.max() - 1, len(batches), q), binom.cdf(counts.min(), len(batches), q)
    if min(often, seldom) < RARE / (2 * n):
        return False
    again = sum(len(np.intersect1d(a, b)) for a, b in pairwise(batches))
    pairs = n * (len(batches) - 1)
    # an entry's chance to come again in two neighbouring pairs of batches shares the batch between them
    deviation = math.sqrt(max(0.0, pairs * (q**2 - q**4) + 2 * (pairs - n) * (q**3 - q**4)))
    return abs(again - pairs * q * q) <= 6 * deviation + 10
