"""What float64 adds: how far a deployed formula, and the certificate's own, can be from the exact one.

Bounds are outward and first order with room to spare (a factor of two or more), in units of ``U``; where an error is
not small against what it is an error of, the bound is infinite. docs/mathematics.md, section 16.
"""

import numpy as np
from numpy.typing import NDArray

from privgate.families.over_all_queries.reach import Reach

Float = NDArray[np.float64]

#: unit roundoff of float64: one operation errs by at most this share
U = 2.0**-53
#: share by which a logarithm or an exponential may err: two units in the last place, what numpy's vector code promises
LOG = 4 * U
#: an error of a larger share of a number says nothing about its logarithm any more
SHARE = 0.25
#: the smallest share of a count that float64 holds in full
TINY = 1e-290
#: log-odds from which on a released probability has lost digits, or is 0 while another model's is not
DEEPEST = 700.0
#: numbers that stay in a core's cache
PART = 2**15


def of_logarithm(share: Float) -> Float:
    """Return how far ``ln`` of a number is off that errs by ``share`` of itself; infinite from ``SHARE`` on."""
    share = np.asarray(share, dtype=np.float64)
    with np.errstate(invalid="ignore"):
        return np.where(share < SHARE, -np.log1p(-np.minimum(share, SHARE)), np.inf)


def of_answers(error: Float, size: Float) -> Float:
    """Return the error of every log-probability, nats, of shape (...,), from those of the K scores.

    Parameters
    ----------
    error : float64 array of shape (..., K)
        Of each class's score at any question.
    size : float64 array of shape (..., K)
        Largest absolute score.

    Notes
    -----
    ``-ln p_y = ln sum_k exp(s_k - s_y)`` moves by at most the two largest errors; normalizing, exponentiating and
    taking the logarithm again err by a share of the largest score.
    """
    K = error.shape[-1]
    two = np.sort(error, axis=-1)[..., -2:].sum(axis=-1)
    return np.asarray(two + (4 * K + 40) * U + 4 * LOG * size.max(axis=-1))


def of_linear(error: Float, weights: Float, reach: Reach, prior: float) -> Float:
    """Return the error of every log-probability, nats, of shape (N,), where scores are linear in non-negative queries.

    Parameters
    ----------
    error, weights : float64 arrays of shape (N, K, d)
        The weights, and how far each is off.
    reach : Reach
    prior : float
        Largest absolute constant of a score.
    """
    size = np.abs(weights)
    with np.errstate(invalid="ignore"):
        whole = reach.maximum(size) + prior
        off = reach.maximum(np.where(np.isfinite(error), error, 0.0) + (size.shape[-1] + 8) * U * size)
    # a weight that is not bounded makes no score bounded, unless no query reaches it; that is not looked into
    off = np.where(np.isfinite(error).all(axis=-1), off, np.inf)
    return of_answers(off + 2 * LOG * prior, whole)


def of_sums(X: Float, table: Float) -> Float:
    """Return how far sums of columns of ``X`` (n, d), non-negative numbers, may be off where ``table`` is their value.

    Any order of adding is covered, and so is taking records off again.
    """
    return np.where(exact_sums(X), 0.0, (len(X) + 8) * U * table)


def exact_sums(X: Float) -> NDArray[np.bool_]:
    """Return the columns of ``X`` (n, d) whose sums are exact in any order: whole numbers, none of them large."""
    if _small_and_whole(X):
        return np.ones(X.shape[1], dtype=bool)
    whole = (np.floor(X) == X).all(axis=0)
    return np.asarray(whole & (np.abs(X).sum(axis=0) < 2.0**52))


def _small_and_whole(X: Float) -> bool:
    """Whether all of ``X`` is whole and no column's sum can be large; looks at parts that stay in the cache."""
    step, top = max(1, PART // max(1, X.shape[1])), 0.0
    for start in range(0, len(X), step):
        part = X[start : start + step]
        if not (np.floor(part) == part).all():
            return False
        top = max(top, float(part.max(initial=0.0)), -float(part.min(initial=0.0)))
    return top * len(X) < 2.0**52


def held(upper: Float, spread: float) -> Float:
    """Return bounds of released probabilities: infinite where one may be too small for float64 to hold in full.

    Below ``exp(-708)`` few digits are left, and of two small probabilities one may be released as 0, the other not.

    Parameters
    ----------
    upper : float64 array of shape (U,)
        Largest change of each unit's log-probabilities.
    spread : float
        Largest difference of two classes' scores, the model of everybody's, over the domain.
    """
    return np.where(spread + upper < DEEPEST, upper, np.inf)


def widened(lower: Float, upper: Float, error: Float) -> tuple[Float, Float]:
    """Return (lower, upper) of the computed change from those of the exact one; infinite ones stay."""
    error = np.where(np.isnan(error), np.inf, error)
    with np.errstate(invalid="ignore"):
        low = np.where(np.isinf(lower), lower, np.fmax(lower - error, 0.0))
    return low, np.where(np.isnan(upper), np.inf, upper + error)
