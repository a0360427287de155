"""The worst of many: tests that stay honest when every record, class and attack was searched."""

import numpy as np
from numpy.typing import NDArray

from privgate.kernel.sample import lower_limit

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
    """
    flat = np.asarray(p, dtype=np.float64).ravel()
    flat = np.where(np.isnan(flat), 1.0, flat)
    order = np.argsort(flat, kind="stable")
    fine = flat[order] <= alpha / (len(flat) - np.arange(len(flat)))
    stop = len(fine) if fine.all() else int(np.argmin(fine))
    rejected = np.zeros(len(flat), dtype=bool)
    rejected[order[:stop]] = True
    return rejected.reshape(np.shape(p))


def simultaneous_low(correct: Counts, trials: Counts, *, alpha: float) -> Float:
    """Return lower limits of all probabilities that hold together: Clopper-Pearson at ``alpha / count``.

    The largest of them exceeds a threshold exactly when Holm's procedure rejects anything at that threshold.
    """
    return lower_limit(correct, trials, alpha=alpha / max(1, np.size(correct)))
