"""What a random sample shows: shares of people, success probabilities, quantiles; no normal approximation.

Claim.  With probability at least 1 - alpha over the draw, the true number lies within the limits.

Certificate.  Counts. They count only if the sample was drawn uniformly without replacement before anybody was looked
at, by a secret that nobody could vary, if its size was fixed beforehand (``share``: or grows once, as fixed
beforehand), and if each person's outcome is fixed beforehand too (docs/mathematics.md, section 9.1). Whoever could not
be trained without counts as exceeding.

Why it is enough.  The limits invert exact tests: the hypergeometric for people of a finite population, Clopper and
Pearson (1934) for probabilities.

Axioms.  Logarithms of counts and their sums, ``rounding.gamma``; a tail is compared with alpha less that.
"""

from collections.abc import Callable

import numpy as np

from privgate.kernel.assertion import Case, Float, Limits, every
from privgate.kernel.rounding import ELEMENTARY, gamma

#: alpha below which a look decides nothing
_LEAST = 1e-9


def _log_steps(up: Float, down: Float) -> tuple[Float, float]:
    """Return the running sums of ``ln up - ln down`` from 0, and how far any of them may be off."""
    terms = np.log(up) - np.log(down)
    size = float(np.abs(np.log(up)).sum() + np.abs(np.log(down)).sum())
    return np.append(0.0, np.cumsum(terms)), (ELEMENTARY + gamma(len(terms) + 2)) * size


def _first(count: int, up: Float, down: Float) -> tuple[float, float]:
    """Return (least, largest) share that the first terms have of all, each term ``up / down`` times the one before."""
    logs, off = _log_steps(up, down)
    logs = logs - logs.max()
    part, whole = (float(np.exp(v).sum()) for v in (logs[:count], logs))
    # each sum errs by a share: of its terms' logarithms, of their exponentials, and of adding them
    share = 2 * (off + gamma(len(logs) + 8) + ELEMENTARY) + 1e-300
    return part / whole * np.exp(-share), min(1.0, part / whole * np.exp(share) + len(logs) * 1e-300)


def hypergeometric(k: int, n: int, marked: int, m: int) -> tuple[float, float]:
    """Return (least, largest) probability that at most ``k`` of ``m`` drawn from ``n`` are among the ``marked``."""
    first, last = max(0, m - (n - marked)), min(m, marked)
    if k >= last:
        return 1.0, 1.0
    if k < first:
        return 0.0, 0.0
    i = np.arange(first, last, dtype=np.float64)
    return _first(k - first + 1, (marked - i) * (m - i), (i + 1) * (n - marked - m + i + 1))


def exceeding(k: int, m: int, n: int, alpha: float) -> int:
    """Return how many of ``n`` people exceed at most, where ``k`` of ``m`` drawn do; wrong with probability alpha.

    ``max{M : P(Hypergeometric(n, M, m) <= k) > alpha}``. Nothing is ever said about the largest value.

    Examples
    --------
    >>> exceeding(0, 59, 1000, 0.05)
    48
    """
    every((0 <= k <= m <= n and 0 < alpha < 1, "counts of a sample do not fit its population"))
    low, high = k, n - (m - k)
    while low < high:
        middle = (low + high + 1) // 2
        low, high = (middle, high) if hypergeometric(k, n, middle, m)[1] > alpha else (low, middle - 1)
    return low


def share(
    surely: int, possibly: int, looks: tuple[int, ...], sampled: int, n: int, allowed: int, alpha: float
) -> tuple[int, int]:
    """Return (least, most) people of ``n`` who exceed, where ``surely`` to ``possibly`` of the ``sampled`` do.

    Parameters
    ----------
    looks : tuple of one or two int
        Sizes at which is looked, fixed beforehand; the second sample holds the first.
    sampled : int
        Which of them this is, or everybody.
    allowed : int
        People who may exceed. The first of two looks spends on this question alone what its whole counts spend of
        alpha; the second has what is left, so that whoever decides at either look errs with probability alpha at most.
    """
    every((0 <= surely <= possibly <= sampled <= n and sampled in (*looks, n), "not a look that was fixed beforehand"))
    every((0 <= allowed < n and 0 < alpha < 1 and list(looks) == sorted(set(looks)), "no such plan"))
    if sampled == n:
        return surely, possibly
    upper = lower = alpha
    if len(looks) > 1 and sampled == looks[1]:
        counts = range(looks[0] + 1)
        few = [hypergeometric(c, n, allowed + 1, looks[0])[1] for c in counts]
        many = [1.0] + [1 - hypergeometric(c, n, allowed, looks[0])[0] for c in counts[:-1]]
        upper, lower = (alpha - max((p for p in tails if p <= alpha), default=0.0) for tails in (few, many))
    most = exceeding(possibly, sampled, n, upper) if upper > _LEAST else n
    least = n - (exceeding(sampled - surely, sampled, n, lower) if lower > _LEAST else n)
    if len(looks) > 1 and sampled == looks[0]:
        if most <= allowed:
            return 0, allowed
        if least > allowed:
            return allowed + 1, n
    return least, most


def binomial(k: int, n: int, p: float) -> tuple[float, float]:
    """Return (least, largest) probability of at most ``k`` successes in ``n`` independent trials."""
    if k >= n or p <= 0:
        return 1.0, 1.0
    if k < 0 or p >= 1:
        return 0.0, 0.0
    i = np.arange(n, dtype=np.float64)
    return _first(k + 1, (n - i) * p, (i + 1) * (1 - p))  # 1 - p is exact, or off by a share of EPS


def success(k: int, n: int, alpha: float) -> tuple[float, float]:
    """Return one-sided (lower, upper) limits of a success probability, each wrong with probability alpha.

    Clopper and Pearson (1934). Without trials (0, 1).

    Examples
    --------
    >>> round(success(0, 59, 0.05)[1], 3)
    0.05
    """
    every((0 <= k <= n and 0 < alpha < 1, "successes lie between 0 and the number of trials"))
    upper = 1.0 if k == n else _crossing(lambda p: binomial(k, n, p)[1] > alpha)
    lower = 0.0 if k == 0 else 1 - _crossing(lambda p: binomial(n - k, n, p)[1] > alpha)
    return lower, upper


def _crossing(holds: Callable[[float], bool]) -> float:
    """Return a number above which ``holds`` is false, to 1e-12."""
    low, high = 0.0, 1.0
    while high - low > 1e-12:
        middle = (low + high) / 2
        low, high = (middle, high) if holds(middle) else (low, middle)
    return high


def rank(m: int, q: float, alpha: float) -> int | None:
    """Return which of ``m`` ascending values limits their q-quantile from above; 1 is the least, None if none does.

    Smallest j with ``P(Binomial(m, q) <= j - 1) >= 1 - alpha``; docs/mathematics.md, section 9.1.

    Examples
    --------
    >>> rank(59, 0.95, 0.05), rank(300, 0.95, 0.05), rank(58, 0.95, 0.05)
    (59, 292, None)
    """
    every((0 < q < 1 and 0 < alpha < 1 and m >= 0, "a quantile lies in (0, 1)"))
    if m == 0 or binomial(m - 1, m, q)[0] < 1 - alpha:
        return None
    low, high = 1, m
    while low < high:
        middle = (low + high) // 2
        low, high = (low, middle) if binomial(middle - 1, m, q)[0] >= 1 - alpha else (middle + 1, high)
    return low


def bound(case: Case) -> Limits:
    """Return limits of the share of people who exceed, as one number from 0 to 1."""
    names = ("surely", "possibly", "sampled", "people", "allowed")
    surely, possibly, sampled, people, allowed = (case.setting(name, int) for name in names)
    looks = tuple(int(v) for v in case.array("looks", 1, "i"))
    every((people > 0, "there is nobody"))
    least, most = share(surely, possibly, looks, sampled, people, allowed, case.setting("alpha", float))
    return Limits(np.array([least / people]), np.array([np.nextafter(most / people, np.inf)]))
