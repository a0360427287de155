"""Limits of what an attack achieves against one model; its threshold comes first. docs/mathematics.md, section 9.2."""

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from typing import TypeVar

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.statistics.roc import Decisions, checked, least_nonmembers, tpr_at_fpr

Place = TypeVar("Place")


class Figure(StrEnum):
    """What an attack achieves, as one number."""

    ACCURACY = "balanced accuracy"
    ADVANTAGE = "TPR less FPR"
    MEMBERS_FOUND = "TPR at an FPR"


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure on the sample and its limits, each of which errs with at most the probability that it was asked for."""

    value: float
    low: float
    high: float


def find_worst(intervals: Mapping[Place, Interval]) -> tuple[Place, Interval]:
    """Return where a figure is largest, and that figure with the largest lower and the largest upper limit of all."""
    place = max(intervals, key=lambda k: np.nan_to_num(intervals[k].value, nan=-np.inf))
    low, high = (max(getattr(one, end) for one in intervals.values()) for end in ("low", "high"))
    return place, Interval(intervals[place].value, low, high)


def balanced_accuracy(decisions: Decisions, *, low_alpha: float, high_alpha: float, copies: float = 0.0) -> Interval:
    """Return (TPR + TNR) / 2, a fraction, with limits from one Clopper-Pearson limit a side, open without a side.

    The two rates share each limit's error. Decisions are independent trials, given the attack: the threshold may not
    have been chosen on them. At most ``copies`` of the non-members are members, whom an attack is right to call so.
    """
    n1, n0 = decisions.tp + decisions.fn, decisions.fp + decisions.tn
    low = lower_limit([decisions.tp, decisions.tn], [n1, n0], alpha=low_alpha / 2).mean()
    found, spared = upper_limit([decisions.tp, decisions.tn], [n1, n0], alpha=high_alpha / 2)
    spared = min(1.0, spared * n0 / (n0 - copies)) if copies < n0 else 1.0
    return Interval(decisions.balanced_accuracy, float(low), float(found + spared) / 2)


def as_advantage(accuracy: Interval) -> Interval:
    """Return the same limits as TPR - FPR, that is ``2 * balanced accuracy - 1``."""
    return Interval(2 * accuracy.value - 1, 2 * accuracy.low - 1, 2 * accuracy.high - 1)


def untied(scores: Float, rng: Generator) -> Float:
    """Return ranks of the scores, 0 for the smallest; equal scores are put in an order drawn by chance.

    So who has few distinct scores can still accuse some of the highest, at a small false-positive rate. That finds at
    least as many members as any threshold within the rate (the ROC's chord lies above its corners).
    """
    if np.isnan(scores).any():
        raise MeasurementError(f"{int(np.isnan(scores).sum())} attack scores are NaN: the attack failed")
    ranks = np.empty(len(scores))
    ranks[np.lexsort((rng.random(len(scores)), scores))] = np.arange(len(scores))
    return ranks


def threshold_ranks(n0: int, fpr: float, *, low_alpha: float, high_alpha: float) -> tuple[int, int]:
    """Return (j_lo, j_hi): which largest of ``n0`` non-members' scores is the threshold to block and to approve.

    Firing *above* the j_lo-th exceeds ``fpr`` in the population with probability ``low_alpha`` at most, firing *at or
    above* the j_hi-th stays below it with ``high_alpha``. 0 and ``n0 + 1`` stand where no threshold is narrow or wide
    enough. ``MeasurementError``: the sample cannot resolve this rate at ``high_alpha``, the level of a single test.
    """
    least = least_nonmembers(fpr, alpha=high_alpha)
    if n0 < least:
        raise MeasurementError(f"too few to resolve a false-positive rate of {fpr:g}; give at least {least} candidates")
    j = np.arange(1, n0 + 1, dtype=np.float64)
    logs = n0 * np.log1p(-fpr) + np.cumsum(np.log((n0 + 1 - j) / j * (fpr / (1 - fpr))))  # of a binomial probability
    below = np.cumsum(np.exp(logs)[::-1])[::-1]  # P(population FPR of the j-th largest <= fpr), falling in j
    fine, wide = np.flatnonzero(below >= 1 - low_alpha), np.flatnonzero(below <= high_alpha)
    return (int(fine[-1]) + 1 if len(fine) else 0), (int(wide[0]) + 1 if len(wide) else n0 + 1)


def tpr_limits(
    scores: Float, members: Bool, *, fpr: float, low_alpha: float, high_alpha: float, copies: float = 0.0
) -> Interval:
    """Return the true-positive rate at a false-positive rate that holds in the population, with limits.

    Of scores (n,), higher for members, non-members calibrate two thresholds and members are the trials. ``low`` may
    block, ``high`` may approve; they come from different thresholds (one threshold approves wrongly in up to 97 % of
    cases). Each spends half of its error on its threshold. ``value`` is the sample's ROC. At most ``copies`` of the
    non-members are members. ``MeasurementError`` where non-members are too few for this rate.
    """
    s, m = checked(scores, members)
    inside, outside = s[m], np.sort(s[~m])[::-1]
    j_lo, j_hi = threshold_ranks(len(outside), fpr, low_alpha=low_alpha / 2, high_alpha=high_alpha / 2)
    low, high, j_hi = 0.0, 1.0, j_hi + int(np.ceil(copies))
    if j_lo > 0:
        low = float(lower_limit((inside > outside[j_lo - 1]).sum(), len(inside), alpha=low_alpha / 2))
    if j_hi <= len(outside):
        high = float(upper_limit((inside >= outside[j_hi - 1]).sum(), len(inside), alpha=high_alpha / 2))
    return Interval(tpr_at_fpr(s, m, fpr=fpr), low, high)
