"""How batches were drawn, judged by the batches themselves."""

import math
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.privacy_claims.watch_noise import RARE


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
    """

    kind: str
    rate: float
    steps: int
    together: int = 1
    entries: list[NDArray[Any]] | None = None
    number: int = -1


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
    """

    sampler: Any
    kind: str
    records: int
    rate: float
    number: int = 0
    batches: list[NDArray[Any]] = field(default_factory=list)
    passes: list[int] = field(default_factory=list)

    @property
    def sizes(self) -> list[int]:
        """Number of entries of each batch."""
        return [len(b) for b in self.batches]


def kind(sampler: Any) -> tuple[str, int, float]:
    """Return (kind, records, rate) of a batch sampler."""
    from torch.utils.data import RandomSampler, SequentialSampler

    if hasattr(sampler, "sample_rate"):
        return "poisson", int(sampler.num_samples), float(sampler.sample_rate)
    inner = getattr(sampler, "sampler", None)
    records = len(inner) if inner is not None and hasattr(inner, "__len__") else 0
    once = isinstance(inner, SequentialSampler) or (isinstance(inner, RandomSampler) and not inner.replacement)
    return ("shuffled" if once else "unknown"), records, math.nan


def used(sizes: list[int], draws: list[Draws], records: int) -> Used:
    """Return what the steps used.

    A sampler counts only if the sizes of its batches are those of the steps, one by one or several together.

    Parameters
    ----------
    sizes : list of int
        Records in the sum of each step.
    draws : list of Draws
    records : int
        Training records.
    """
    for drawn in draws:
        found = matched(sizes, drawn)
        if found is None:
            continue
        together, entries, split = found
        if sizes and all(b >= drawn.records for b in drawn.sizes) and together == 1:
            return Used("poisson", 1.0, len(sizes), 1, entries, drawn.number)
        if drawn.kind == "shuffled" and not split:  # a record is in at most one of the batches that a step sums
            begun = sum(start < len(drawn.batches) for start in drawn.passes)
            # a pass that leaves records out may use one of them each time, however few its batches are
            rate = max(max(sizes, default=1) / max(1, drawn.records), begun / max(1, len(sizes)))
            below = math.nextafter(1.0, 0.0)  # at 1 the sampling would not matter, and nobody would say that it differs
            return Used(drawn.kind, min(below, rate), len(sizes), 1, entries, drawn.number)
        steps = max(len(sizes), len(drawn.sizes))
        if drawn.kind == "poisson" and not (_is_binomial(drawn, steps) and _is_independent(drawn)):
            continue
        rate = drawn.rate if drawn.kind == "poisson" else max(drawn.sizes, default=1) / max(1, drawn.records)
        return Used(drawn.kind, min(1.0, rate), steps, together, entries, drawn.number)
    if sizes and not draws and all(b == records for b in sizes):
        return Used("poisson", 1.0, len(sizes), 1, [np.arange(records)] * len(sizes))
    return Used("unknown", 1.0, len(sizes))


def matched(sizes: list[int], drawn: Draws) -> tuple[int, list[NDArray[Any]], bool] | None:
    """Return (batches a step at most, entries of each step, whether a step crosses passes); None if they do not fit."""
    most, split, entries, at = 1, False, [], 0
    for size in sizes:
        mine: list[NDArray[Any]] = []
        begun = at
        while sum(len(b) for b in mine) < size and at < len(drawn.batches):
            mine += [drawn.batches[at]] if len(drawn.batches[at]) else []
            at += 1
        if sum(len(b) for b in mine) != size:
            return None
        most = max(most, len(mine))
        split |= len(mine) > 1 and any(begun < start < at for start in drawn.passes)
        entries.append(np.concatenate(mine) if mine else np.zeros(0, dtype=object))
    return most, entries, split


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
    spread = float(((sizes - n * q) ** 2).sum() / (n * q * (1 - q)))
    return bool(spread >= chi2.ppf(RARE, len(sizes)))


def _is_independent(draws: Draws) -> bool:
    """Whether entries come as often, and again as soon, as independent inclusion makes them, but for rare accidents."""
    from scipy.stats import chi2

    n, q = draws.records, draws.rate
    if not 0 < q < 1:
        return True
    batches = [np.asarray(b, dtype=np.int64) for b in draws.batches]
    if any(len(np.unique(b)) != len(b) for b in batches) or any(len(b) and b.max() >= n for b in batches):
        return False
    counts = np.bincount(np.concatenate(batches), minlength=n) if batches else np.zeros(n)
    expected, variance = len(batches) * q, len(batches) * q * (1 - q)
    spread = float(((counts - expected) ** 2).sum() / variance)
    # the tail of counts is a little heavier than that of a normal variable
    if not chi2.ppf(RARE, n) * 0.8 <= spread <= chi2.isf(RARE, n) * (1 + 3 / min(expected, 3)):
        return False
    again = sum(len(np.intersect1d(a, b)) for a, b in pairwise(batches))
    pairs = n * (len(batches) - 1)
    # an entry's chance to come again in two neighbouring pairs of batches shares the batch between them
    deviation = math.sqrt(max(0.0, pairs * (q**2 - q**4) + 2 * (pairs - n) * (q**3 - q**4)))
    return abs(again - pairs * q * q) <= 6 * deviation + 10
