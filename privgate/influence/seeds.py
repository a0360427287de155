"""Beside the limits of ``paired``: does a unit have an effect at all, and how well could one question tell it."""

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def sign_flip(changes: Float) -> Float:
    """Return two-sided p-values of "no effect" from flipping the sign of paired changes.

    Parameters
    ----------
    changes : float64 array of shape (S, N)
        Paired changes of N hypotheses; exact if both arms are exchangeable when there is no effect.

    Returns
    -------
    float64 array of shape (N,)
        At least ``2 ** (1 - S)``: N hypotheses need ``S >= 1 + log2(N / alpha)`` seeds. All sign patterns are
        enumerated up to 16 seeds; more are refused, since then a Student limit does.
    """
    seeds = len(changes)
    if not 1 <= seeds <= 16:
        raise ValueError(f"sign flips are enumerated for 1 to 16 seeds, not {seeds}")
    signs = 1.0 - 2.0 * ((np.arange(2**seeds)[:, None] >> np.arange(seeds)) & 1)
    means = np.abs(signs @ changes)
    seen = np.abs(changes.sum(axis=0))
    return np.asarray((means >= seen * (1 - 1e-12)).mean(axis=0), dtype=np.float64)


def single_query_advantage(mean: Float, spread: Float) -> Float:
    """Return 2 Phi(|mean| / (2 spread)) - 1: the best single query's advantage when both are normal; descriptive."""
    from scipy.special import ndtr

    with np.errstate(divide="ignore", invalid="ignore"):
        ratio = np.where(spread > 0, np.abs(mean) / spread, np.where(np.abs(mean) > 0, np.inf, 0.0))
    return np.asarray(2 * ndtr(ratio / 2) - 1, dtype=np.float64)
