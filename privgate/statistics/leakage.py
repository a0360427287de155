"""Changes of log-probabilities: the arithmetic of PDTP and DTP, with the conventions for zeros."""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def label_changes(log_with: Float, log_without: Float) -> Float:
    """Return ln p(y|x) - ln p'(y|x) of every label.

    Parameters
    ----------
    log_with, log_without : float64 array of shape (..., K)
        Natural log-probabilities of the models with and without the unit.

    Returns
    -------
    float64 array of the same shape
        Nats. 0 where both probabilities are 0 (the label is skipped), +inf or -inf where exactly one is.

    Raises
    ------
    FloatingPointError
        An input is NaN: an engine failure must not look like a zero.

    References
    ----------
    Long et al. (2017), Definition 6.1; conventions of docs/mathematics.md, section 0.

    Examples
    --------
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
