"""The worst of many: tests that stay honest when every record, class and attack was searched."""

import numpy as np
from numpy.typing import NDArray

from privgate.statistics.intervals import lower_limit, upper_limit

Float = NDArray[np.float64]
Bool = NDArray[np.bool_]
Counts = NDArray[np.int64]


def holm(p: Float, *, alpha: float) -> Bool:
    """Return which hypotheses Holm's step-down procedure rejects, whatever their dependence.

    Parameters
    ----------
    p : float64 array of any shape
        p-values; NaN is never rejected.
    alpha : float
        Probability that any true hypothesis is rejected.

    Returns
    -------
    bool array of the same shape

    References
    ----------
    Holm (1979); docs/mathematics.md, section 9.3.

    Examples
    --------
    >>> holm(np.array([0.01, 0.04, 0.03, 0.005]), alpha=0.05).tolist()
    [True, False, False, True]
    """
    flat = np.asarray(p, dtype=np.float64).ravel()
    flat = np.where(np.isnan(flat), 1.0, flat)
    order = np.argsort(flat, kind="stable")
    fine = flat[order] <= alpha / (len(flat) - np.arange(len(flat)))
    stop = len(fine) if fine.all() else int(np.argmin(fine))
    rejected = np.zeros(len(flat), dtype=bool)
    rejected[order[:stop]] = True
    return rejected.reshape(np.shape(p))


def exceeds(correct: Counts, trials: Counts, *, threshold: float, alpha: float) -> Bool:
    """Return which success probabilities are shown to exceed ``threshold``: exact binomial tests, Holm over all.

    Parameters
    ----------
    correct, trials : int64 arrays of one shape
        Right guesses and independent trials of each (record, attack).
    threshold : float in [0, 1]
        Allowed success probability.
    alpha : float
        Probability that anything at or below the threshold is called exceeding.
    """
    from scipy.special import bdtrc

    correct, trials = np.broadcast_arrays(np.asarray(correct), np.asarray(trials))
    tail = bdtrc(np.maximum(correct, 1) - 1.0, trials, threshold)
    return holm(np.where(correct == 0, 1.0, tail), alpha=alpha)


def simultaneous_low(correct: Counts, trials: Counts, *, alpha: float) -> Float:
    """Return lower limits of all probabilities that hold together: Clopper-Pearson at ``alpha / count``.

    The largest of them exceeds a threshold exactly when Holm's procedure rejects anything at that threshold.
    """
    return lower_limit(correct, trials, alpha=alpha / max(1, np.size(correct)))


def largest_high(correct: Counts, trials: Counts, *, alpha: float) -> float:
    """Return an upper limit for the largest of all probabilities, each limited at ``alpha`` without correction.

    Approving needs *every* limit below the threshold, an intersection-union test, so no correction is due: the
    probability of approving while one probability lies above is at most ``alpha``. 1 where there is nothing.

    References
    ----------
    Berger (1982); docs/mathematics.md, section 9.3.
    """
    return float(upper_limit(correct, trials, alpha=alpha).max(initial=0.0)) if np.size(correct) else 1.0
