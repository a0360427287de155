"""Limits for proportions and quantiles that hold at every sample size: no normal approximation anywhere."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


def _level(alpha: float) -> float:
    if not 0 < alpha < 1:
        raise ValueError(f"alpha must lie in (0, 1), not {alpha!r}")
    return alpha


def _counts(k: Any, n: Any) -> tuple[Float, Float]:
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    if np.isnan(k).any() or np.isnan(n).any() or (k < 0).any() or (k > n).any():
        raise ValueError("successes must lie between 0 and the number of trials")
    return k, n


def lower_limit(k: Any, n: Any, *, alpha: float) -> Float:
    """Return the one-sided lower Clopper-Pearson limit of a success probability.

    Parameters
    ----------
    k, n : int arrays, broadcast together
        Successes and independent trials; no trials at all gives 0.
    alpha : float in (0, 1)
        Largest probability that the limit lies above the truth.

    Returns
    -------
    float64 array
        A fraction in [0, 1].

    References
    ----------
    Clopper and Pearson (1934); docs/mathematics.md, sections 9.1-9.3.

    Examples
    --------
    >>> round(float(lower_limit(90, 100, alpha=0.05)), 4)
    0.8363
    """
    from scipy.special import betaincinv

    k, n = _counts(k, n)
    inner = betaincinv(np.maximum(k, 1), n - k + 1, _level(alpha))
    return np.asarray(np.where(k > 0, inner, 0.0), dtype=np.float64)


def upper_limit(k: Any, n: Any, *, alpha: float) -> Float:
    """Return the one-sided upper Clopper-Pearson limit; see ``lower_limit``. No trials at all gives 1.

    Examples
    --------
    >>> round(float(upper_limit(0, 59, alpha=0.05)), 3)  # the rule of three, exactly
    0.05
    """
    from scipy.special import betaincinv

    k, n = _counts(k, n)
    inner = betaincinv(k + 1, np.maximum(n - k, 1), 1 - _level(alpha))
    return np.asarray(np.where(k < n, inner, 1.0), dtype=np.float64)


def clopper_pearson(k: Any, n: Any, *, alpha: float) -> tuple[Float, Float]:
    """Return both limits, each at ``alpha / 2``: together they cover the truth with probability 1 - alpha or more."""
    return lower_limit(k, n, alpha=alpha / 2), upper_limit(k, n, alpha=alpha / 2)


def exceeding_limit(k: int, m: int, n: int, *, alpha: float) -> int:
    """Return the upper limit of how many of ``n`` records exceed a threshold, when ``k`` of ``m`` sampled ones do.

    Parameters
    ----------
    k, m, n : int
        Exceeding, sampled (uniformly without replacement, fixed before looking), and all records.
    alpha : float
        Largest probability that more records exceed than the limit says.

    Returns
    -------
    int
        ``max{M : P(Hypergeometric(n, M, m) <= k) > alpha}``; nothing is ever said about the maximum.

    References
    ----------
    docs/mathematics.md, section 9.1.

    Examples
    --------
    >>> exceeding_limit(0, 59, 1000, alpha=0.05)
    48
    """
    from scipy.stats import hypergeom

    if not 0 <= k <= m <= n:
        raise ValueError(f"need 0 <= k <= m <= n, not k={k}, m={m}, n={n}")
    low, high = k, n - (m - k)  # fewer than k is impossible, and so is more than that
    _level(alpha)
    while low < high:
        middle = (low + high + 1) // 2
        if hypergeom.cdf(k, n, middle, m) > alpha:
            low = middle
        else:
            high = middle - 1
    return low


def quantile_rank(m: int, q: float, *, alpha: float) -> int | None:
    """Return which order statistic of ``m`` sampled values is an upper limit of their ``q``-quantile.

    Parameters
    ----------
    m : int
        Sample size.
    q : float in (0, 1)
        Quantile.
    alpha : float
        Largest probability that the order statistic lies below the quantile.

    Returns
    -------
    int or None
        1 is the smallest value, ``m`` the largest; None where even the largest proves nothing.

    References
    ----------
    docs/mathematics.md, section 9.1: smallest j with ``BinomialCDF(j - 1; m, q) >= 1 - alpha``.

    Examples
    --------
    >>> quantile_rank(59, 0.95, alpha=0.05), quantile_rank(300, 0.95, alpha=0.05), quantile_rank(58, 0.95, alpha=0.05)
    (59, 292, None)
    """
    from scipy.special import bdtr

    if not 0 < q < 1:
        raise ValueError(f"a quantile lies in (0, 1), not {q!r}")
    if m < 1:
        return None
    enough = np.flatnonzero(bdtr(np.arange(m, dtype=np.float64), m, q) >= 1 - _level(alpha))
    return int(enough[0]) + 1 if len(enough) else None
