"""Confidence limits of what an attack achieves against one target model; the threshold is fixed before the trials."""

from dataclasses import dataclass
from enum import StrEnum

import numpy as np
from numpy.random import Generator

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.kernel.sample import lower_limit, upper_limit
from privgate.statistics.roc import Decisions, checked, least_nonmembers, tpr_at_fpr


class Figure(StrEnum):
    """What an attack achieves, as one number."""

    ACCURACY = "balanced accuracy"
    ADVANTAGE = "TPR less FPR"
    MEMBERS_FOUND = "TPR at an FPR"


@dataclass(frozen=True, slots=True)
class Interval:
    """A figure on the sample and the limits around it.

    Parameters
    ----------
    value : float
        On the sample.
    low, high : float
        ``low`` is above the truth with probability at most the level it was asked for; ``high`` likewise below.
    """

    value: float
    low: float
    high: float


def balanced_accuracy(decisions: Decisions, *, low_alpha: float, high_alpha: float) -> Interval:
    """Return (TPR + TNR) / 2 with limits from one Clopper-Pearson limit a side.

    Parameters
    ----------
    decisions : Decisions
        Independent trials, given the attack: the threshold may not have been chosen on them.
    low_alpha, high_alpha : float
        Error probability of each limit, shared equally by the two rates.

    Returns
    -------
    Interval
        Fractions in [0, 1]; 0.5 is blind. Without members or without non-members the limits are 0 and 1.

    References
    ----------
    docs/mathematics.md, section 9.2.
    """
    n1, n0 = decisions.tp + decisions.fn, decisions.fp + decisions.tn
    low = lower_limit([decisions.tp, decisions.tn], [n1, n0], alpha=low_alpha / 2).mean()
    high = upper_limit([decisions.tp, decisions.tn], [n1, n0], alpha=high_alpha / 2).mean()
    return Interval(decisions.balanced_accuracy, float(low), float(high))


def as_advantage(accuracy: Interval) -> Interval:
    """Return the same limits as TPR - FPR, that is ``2 * balanced accuracy - 1``."""
    return Interval(2 * accuracy.value - 1, 2 * accuracy.low - 1, 2 * accuracy.high - 1)


def untied(scores: Float, rng: Generator) -> Float:
    """Return ranks of the scores, 0 for the smallest; equal scores are put in an order drawn by chance.

    An attack with few distinct scores ("right" or "wrong") has no threshold near a small false-positive rate. Its
    adversary can still accuse at that rate: only some of those with the highest score, chosen by chance. That finds at
    least as many members as any threshold within the rate (the ROC's chord lies above its corners), so every attack
    can be held to every rate.

    Raises
    ------
    MeasurementError
        A score is NaN: its place in an order would be made up.
    """
    s = np.asarray(scores, dtype=np.float64)
    if np.isnan(s).any():
        raise MeasurementError(f"{int(np.isnan(s).sum())} attack scores are NaN: the attack failed")
    out = np.empty(len(s))
    out[np.lexsort((rng.random(len(s)), s))] = np.arange(len(s))
    return out


def threshold_ranks(n0: int, fpr: float, *, low_alpha: float, high_alpha: float) -> tuple[int, int]:
    """Return (j_lo, j_hi): which largest non-member score is the threshold for blocking and for approving.

    Parameters
    ----------
    n0 : int
        Calibration non-members.
    fpr : float in (0, 1)
        False-positive rate that must hold in the population.
    low_alpha, high_alpha : float
        Probability that firing *above* the j_lo-th largest exceeds ``fpr``, and that firing *at or above* the
        j_hi-th stays below it.

    Returns
    -------
    tuple of int
        ``j_lo`` is 0 where no threshold is narrow enough at ``low_alpha`` (nothing can block), ``j_hi`` is ``n0 + 1``
        where none is wide enough (nothing can approve).

    Raises
    ------
    MeasurementError
        The sample cannot resolve this rate at ``high_alpha``, the level of a single test; says how many non-members
        could.

    References
    ----------
    docs/mathematics.md, section 9.2.

    Examples
    --------
    >>> threshold_ranks(2000, 0.01, low_alpha=0.025, high_alpha=0.025)
    (12, 30)
    """
    from scipy.special import betainc

    least = least_nonmembers(fpr, alpha=high_alpha)
    if n0 < least:
        raise MeasurementError(f"too few to resolve a false-positive rate of {fpr:g}; give at least {least} candidates")
    j = np.arange(1, n0 + 1, dtype=np.float64)
    below = betainc(j, n0 + 1 - j, fpr)  # P(population FPR of the j-th largest <= fpr), falling in j
    fine = np.flatnonzero(below >= 1 - low_alpha)
    wide = np.flatnonzero(below <= high_alpha)
    return (int(fine[-1]) + 1 if len(fine) else 0), (int(wide[0]) + 1 if len(wide) else n0 + 1)


def tpr_limits(scores: Float, members: Bool, *, fpr: float, low_alpha: float, high_alpha: float) -> Interval:
    """Return the true-positive rate at a false-positive rate that holds in the population, with limits.

    Parameters
    ----------
    scores : float64 array of shape (n,)
        Against one target model; higher means "more likely a member".
    members : bool array of shape (n,)
        Non-members calibrate the two thresholds, members are the trials.
    fpr : float in (0, 1)
        As a fraction.
    low_alpha, high_alpha : float
        Error probability of each limit, half for its threshold and half for its count.

    Returns
    -------
    Interval
        ``low`` may block, ``high`` may approve; they come from different thresholds. ``value`` is the sample's ROC.

    Raises
    ------
    MeasurementError
        Too few non-members for this rate.

    References
    ----------
    docs/mathematics.md, section 9.2 (one threshold approves wrongly in up to 97 % of cases).
    """
    s, m = checked(scores, members)
    inside, outside = s[m], np.sort(s[~m])[::-1]
    j_lo, j_hi = threshold_ranks(len(outside), fpr, low_alpha=low_alpha / 2, high_alpha=high_alpha / 2)
    low, high = 0.0, 1.0
    if j_lo > 0:
        surely = int((inside > outside[j_lo - 1]).sum())
        low = float(lower_limit(surely, len(inside), alpha=low_alpha / 2))
    if j_hi <= len(outside):
        possibly = int((inside >= outside[j_hi - 1]).sum())
        high = float(upper_limit(possibly, len(inside), alpha=high_alpha / 2))
    return Interval(tpr_at_fpr(s, m, fpr=fpr), low, high)
