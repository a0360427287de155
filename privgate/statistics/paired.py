"""Paired seeds: the effect of leaving a unit out, as a mean over seeds with limits, and the noise floor beside it."""

from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class MeanChange:
    """Largest mean change over labels of each row, nats.

    Parameters
    ----------
    value, low, high : float64 arrays of shape (R,)
        ``low <= value <= high``; equal for a single seed, whose spread nobody knows.
    """

    value: Float
    low: Float
    high: Float


def mean_changes(change: Float, *, n_tests: int, confidence: float = 0.95) -> MeanChange:
    """Return the largest mean change over labels, with t limits corrected over labels and units.

    Parameters
    ----------
    change : float64 array of shape (S, R, K)
        ``ln p - ln p'`` of S paired seeds; infinities stay infinite.
    n_tests : int
        Number of units looked at; the limits are Bonferroni-corrected over units and labels.
    confidence : float
        Joint coverage of all intervals.

    Returns
    -------
    MeanChange
        Larger is worse. Valid for approximately normal differences only; said so where it is reported.

    References
    ----------
    Section 9.4 of the mathematical reference, with its correction: every label is tested, not the own label alone.
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
    low = np.maximum(size - half, 0.0).max(axis=-1)
    return MeanChange(value, np.where(np.isinf(value), np.inf, low), (size + half).max(axis=-1))


def noise_floor(log_with: Float) -> Float:
    """Return the change expected between two seeds with nobody removed, shape (R,), nats; 0 for a single seed.

    Parameters
    ----------
    log_with : float64 array of shape (S, R, K)
        Log-probabilities of models trained on all data with S seeds.

    References
    ----------
    Section 9.4 of the mathematical reference: sd of a difference of two runs is sqrt(2) times the sd of one.
    """
    if len(log_with) == 1:
        return np.zeros(log_with.shape[1])
    with np.errstate(invalid="ignore"):
        spread = np.sqrt(2.0) * log_with.std(axis=0, ddof=1)
    return np.asarray(np.nan_to_num(spread, nan=np.inf).max(axis=-1), dtype=np.float64)
