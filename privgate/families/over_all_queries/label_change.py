"""Lemma 0 and its consequences: how far probabilities can move when scores move by a known amount.

``d`` is the change of the own class's score minus the common change of all others, ``r`` the log-odds
``ln((1 - p') / p')`` against the own class in the model *without* the unit. Everything in nats.
"""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

#: below it log1p keeps what a difference of softplus would cancel, above it the difference is the accurate one
_SMALL = 1.0


def _softplus(r: Float) -> Float:
    return np.asarray(np.logaddexp(0.0, r), dtype=np.float64)


def _ratio(r: Float, d: Float) -> Float:
    """Return ``|softplus(r + d) - softplus(r)|``, without cancellation for small ``d``."""
    with np.errstate(over="ignore", invalid="ignore"):
        small = np.log1p(np.expm1(np.clip(d, -_SMALL, _SMALL)) / (1.0 + np.exp(np.clip(-r, -700, 700))))
        large = _softplus(r + d) - _softplus(r)
    return np.abs(np.where(np.abs(d) < _SMALL, small, large))


def own_label(d: Float, r: Float) -> Float:
    """Return A1, the change of the own label's log-probability.

    Parameters
    ----------
    d, r : float64 arrays that broadcast
        Score change and log-odds against the own class without the unit.

    References
    ----------
    docs/mathematics.md, section 0: A1 increases in ``|d|`` and in ``r``.
    """
    return _ratio(np.asarray(r, dtype=np.float64), -np.asarray(d, dtype=np.float64))


def other_label(d: Float, r: Float) -> Float:
    """Return A2, the change of every other label's log-probability; increases in ``|d|``, decreases in ``r``."""
    return _ratio(-np.asarray(r, dtype=np.float64), np.asarray(d, dtype=np.float64))


def largest(d: Float, r: Float) -> Float:
    """Return F = max(A1, A2), the largest change of any label's log-probability at one query."""
    return np.asarray(np.maximum(own_label(d, r), other_label(d, r)), dtype=np.float64)


def from_ranges(d_low: Float, d_high: Float, r_low: Float, r_high: Float) -> Float:
    """Return an upper bound of F over every query with ``d`` and ``r`` in these ranges, shape of the inputs.

    References
    ----------
    docs/mathematics.md, section 3.1, bound (B): by monotonicity of A1 and A2.
    """
    up, down = np.maximum(d_high, 0.0), np.minimum(d_low, 0.0)
    worst = np.maximum.reduce(
        [own_label(up, r_high), other_label(up, r_low), own_label(down, r_high), other_label(down, r_low)]
    )
    return np.asarray(worst, dtype=np.float64)
