"""Changes of log-probabilities: the arithmetic of PDTP and DTP, means over paired seeds, and an exact test."""

from collections.abc import Iterable
from functools import cache
from itertools import combinations
from typing import NamedTuple

import numpy as np

from privgate.arrays import Float

# Changes of log-probabilities: the arithmetic of PDTP and DTP, with the conventions for zeros.


def label_changes(log_with: Float, log_without: Float) -> Float:
    """Return ln p(y|x) - ln p'(y|x) of every label, shape (..., K), nats, of log-probabilities with and without a unit.

    0 where both probabilities are 0 (the label is skipped), +inf or -inf where exactly one is. Long et al. (2017),
    Definition 6.1; docs/mathematics.md, section 0. ``FloatingPointError``: NaN, an engine failure.

    >>> label_changes(np.log([[0.5, 0.5]]), np.log([[0.25, 0.75]])).round(4).tolist()
    [[0.6931, -0.4055]]
    """
    if np.isnan(log_with).any() or np.isnan(log_without).any():
        raise FloatingPointError("NaN log-probabilities: an engine failure, not a zero")
    with np.errstate(invalid="ignore"):
        change = log_with - log_without
    change[np.isneginf(log_with) & np.isneginf(log_without)] = 0.0
    return np.asarray(change, dtype=np.float64)


def largest_change(log_with: Float, log_without: Float) -> Float:
    """Return max over labels of |ln p - ln p'|, shape (...,): PDTP of each query; nats, larger is worse."""
    return np.asarray(np.abs(label_changes(log_with, log_without)).max(axis=-1), dtype=np.float64)


# Paired seeds: the effect of leaving a unit out, as a mean over seeds with limits, and the noise floor beside it.

#: paired seeds without which no upper limit is stated. What happens in 4 % of trainings is seen among 75 with
#: probability .953; with 10 or 20, a jump in 5 % of trainings is missed with probability .60 and .36
SEEDS_FOR_A_LIMIT = 75


class MeanChange(NamedTuple):
    """Largest mean change over labels of each row, nats."""

    #: shape (R,): ``low <= value <= high``; equal for a single seed, whose spread nobody knows
    value: Float
    low: Float
    high: Float


def mean_changes(change: Float, *, n_tests: int, confidence: float = 0.95) -> MeanChange:
    """Return the largest mean change over labels, with limits corrected over labels and ``n_tests`` units.

    ``change``, shape (S, R, K), is ``ln p - ln p'`` of S paired seeds; infinities stay infinite. ``confidence`` is the
    joint coverage of all intervals. ``low`` is Student's limit, for approximately normal changes. ``high`` is that, and
    ``unseen(S)``, the share of trainings that all S seeds may have missed, times the largest change among them;
    infinite below ``SEEDS_FOR_A_LIMIT``. No limit of an unbounded mean holds for every distribution (Bahadur and
    Savage, 1956): ``high`` holds where what is rarer than that share changes answers no more than the largest change
    seen. Sections 9.4 and 15 of docs/mathematics.md have its errors by simulation.
    """
    seeds, _, labels = change.shape
    with np.errstate(invalid="ignore"):
        mean = change.mean(axis=0)
    # +inf and -inf at two seeds: some seed gives a label away completely
    mean = np.where(np.isinf(change).any(axis=0), np.inf, mean)
    size = np.abs(mean)
    value = size.max(axis=-1)
    if seeds == 1:
        return MeanChange(value, value, value)
    from scipy.stats import t

    with np.errstate(invalid="ignore"):
        deviation = np.nan_to_num(change.std(axis=0, ddof=1), nan=0.0, posinf=0.0)
    quantile = t.ppf(1 - (1 - confidence) / (2 * max(1, n_tests) * labels), seeds - 1)
    half = quantile * deviation / np.sqrt(seeds)
    low = np.where(np.isinf(value), np.inf, np.maximum(size - half, 0.0).max(axis=-1))
    if seeds < SEEDS_FOR_A_LIMIT:
        return MeanChange(value, low, np.full_like(value, np.inf))
    high = size + half + unseen(seeds) * np.abs(change).max(axis=0)
    return MeanChange(value, low, high.max(axis=-1))


def unseen(seeds: int, *, alpha: float = 0.05) -> float:
    """Return the largest share of trainings that may show in none of ``seeds``, except with probability ``alpha``.

    >>> [round(unseen(s), 3) for s in (10, 20, 75)]
    [0.259, 0.139, 0.039]
    """
    return float(1.0 - alpha ** (1.0 / seeds))


def spread_change(log_with: Float, log_without: Float) -> Float:
    """Return how much two distributions over seeds differ though their means agree, shape (R,), nats.

    Of log-probabilities (S, R, K) with and without the unit, twice the difference of the standard deviations: so far
    the quantiles at 2.3 % and 97.7 % of normal answers lie apart. It betrays a unit (sd .3 against .9: advantage .48).
    0 for fewer than three seeds and infinite answers. Section 9.4 of docs/mathematics.md.
    """
    if len(log_with) < 3:
        return np.zeros(log_with.shape[1])
    with np.errstate(invalid="ignore"):
        apart = 2.0 * np.abs(log_with.std(axis=0, ddof=1) - log_without.std(axis=0, ddof=1))
    return np.asarray(np.nan_to_num(apart, nan=0.0, posinf=0.0).max(axis=-1), dtype=np.float64)


def noise_floor(log_with: Float) -> Float:
    """Return the change expected between two seeds with nobody removed, shape (R,), nats; 0 for a single seed.

    Of S models trained on all data, ``log_with`` (S, R, K): sqrt(2) times their sd. Section 9.4 of docs/mathematics.md.
    """
    if len(log_with) == 1:
        return np.zeros(log_with.shape[1])
    with np.errstate(invalid="ignore"):
        spread = np.sqrt(2.0) * log_with.std(axis=0, ddof=1)
    return np.asarray(np.nan_to_num(spread, nan=np.inf).max(axis=-1), dtype=np.float64)


def moments(tables: Iterable[Float], *, ddof: int = 0) -> tuple[Float, Float]:
    """Return mean and standard deviation of each entry over equal tables, which are gone through twice, one by one.

    To the last bit what NumPy gives of them all together, ``ddof`` as there, without their memory.
    """
    count, total = 0, np.zeros(0)
    for one in tables:
        count, total = count + 1, np.add(total, one, out=total) if count else one.copy()
    total /= count
    squares = np.zeros_like(total)
    with np.errstate(invalid="ignore"):
        for one in tables:
            squares += np.square(one - total)
    squares /= count - ddof
    return total, np.sqrt(squares, out=squares)


def widest(tables: Iterable[Float]) -> float:
    """Return the largest difference of one entry between any two of some tables, taken one by one."""
    low, high = np.zeros(0), np.zeros(0)
    for count, one in enumerate(tables):
        low, high = (np.minimum(low, one), np.maximum(high, one)) if count else (one, one)
    return float((high - low).max(initial=0.0))


# An exact test by permutation of whether two sets of runs are one sample.


@cache
def _splits(size: int) -> Float:
    """Return all ways to split 2 m runs in halves, as signs of shape (C(2 m, m) / 2, 2 m); the first m runs first."""
    chosen = [c for c in combinations(range(2 * size), size) if 0 in c]
    sign = -np.ones((len(chosen), 2 * size))
    np.put_along_axis(sign, np.array(chosen), 1.0, axis=1)
    return sign


def permutation_p(runs: Float) -> float:
    """Return the exact p-value of "both halves of the runs are one sample", by the distance of their means.

    ``runs`` (2 m, D) are m of one side, then m of the other: at least ``2 / C(2 m, m)``; uniform where exchangeable.
    """
    sign = _splits(len(runs) // 2)
    centred = runs - runs.mean(axis=0)
    distance = np.square(sign @ centred).sum(axis=1)
    return float(np.mean(distance >= distance[0] * (1 - 1e-12)))  # the first split is the true one
