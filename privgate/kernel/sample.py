"""What a random sample shows: shares of people, success probabilities, quantiles; no normal approximation.

Claim.  With probability at least 1 - alpha over the draw, the true number lies within the limits.

Certificate.  Counts. They count only if the sample was drawn uniformly without replacement, by a secret that no user
could vary, and if its size, or both of ``Looks``, and each person's outcome were fixed before the first measurement
(docs/mathematics.md, section 9.1). A person without whom no model could be trained counts as exceeding.

Why it is enough.  The limits invert exact tests: the hypergeometric for people of a finite population, Clopper and
Pearson (1934) for probabilities.

Axioms.  Logarithms of counts and their sums, ``rounding.gamma``; a tail is compared with alpha less that.
"""

from bisect import bisect_left
from collections.abc import Callable
from dataclasses import dataclass
from functools import lru_cache
from typing import Any

import numpy as np

from privgate.kernel.assertion import Case, Float, Limits, every
from privgate.kernel.rounding import ELEMENTARY, gamma


def _first(count: int, up: Float, down: Float) -> tuple[float, float]:
    """Return (least, largest) share that the first terms have of all, each term ``up / down`` times the one before."""
    more, less = np.log(up), np.log(down)
    off = (ELEMENTARY + gamma(len(more) + 2)) * float(np.abs(more).sum() + np.abs(less).sum())  # of any running sum
    logs = np.append(0.0, np.cumsum(more - less))
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


def exceeding_limit(k: int, m: int, n: int, *, alpha: float) -> int:
    """Return how many of ``n`` people exceed at most, where ``k`` of ``m`` drawn do; wrong with probability alpha.

    ``max{M : P(Hypergeometric(n, M, m) <= k) > alpha}``. Nothing is ever said about the largest value.

    >>> exceeding_limit(0, 59, 1000, alpha=0.05)
    48
    """
    every((0 <= k <= m <= n and 0 < alpha < 1, "counts of a sample do not fit its population"))
    return _least(k + 1, n - (m - k) + 1, lambda marked: hypergeometric(k, n, marked, m)[1] <= alpha) - 1


#: error probability of a first look that approves if no person exceeds; error probability of both looks together
FIRST, LEVEL = 0.04, 0.05
#: how many people of the second look may exceed
PARDONED = 2


@dataclass(frozen=True, slots=True)
class Looks:
    """Two looks at one random order of people, planned before the first measurement.

    Approving if nobody of the first exceeds, or at most two of the second, errs with ``LEVEL`` at most, in any order.
    """

    #: people of each look; the second holds the first. Where fewer than two may exceed, the second is everybody
    sizes: tuple[int, int]
    #: how many there are
    people: int
    #: how many of them may exceed
    allowed: int

    def share(self, surely: int, possibly: int, sampled: int) -> tuple[int, int]:
        """Return (least, most) people who exceed, where ``surely`` to ``possibly`` of the first ``sampled`` do."""
        n, (first, second) = self.people, self.sizes
        every((0 <= surely <= possibly <= sampled <= n, "more exceed than were looked at"))
        if sampled == n:
            return surely, possibly
        least = n - exceeding_limit(sampled - surely, sampled, n, alpha=LEVEL)
        if (sampled == first and not possibly) or (sampled == second and possibly <= PARDONED):
            return min(least, self.allowed), self.allowed
        alpha = {first: FIRST, second: LEVEL - FIRST}.get(sampled, LEVEL)
        return least, max(exceeding_limit(possibly, sampled, n, alpha=alpha), self.allowed + 1)

    @property
    def refusing(self) -> int:
        """How many of the second look exceed at least where more of all do than are allowed."""
        last = self.sizes[1]
        counts = range(1, min(last, self.allowed) + 1)
        below = ((k, hypergeometric(k - 1, self.people, self.allowed, last)[0]) for k in counts)
        return next((k for k, least in below if 1 - least <= LEVEL), self.allowed + 1)


@lru_cache(maxsize=1_000)
def plan_looks(people: int, allowed: int) -> Looks:
    """Return the least two looks by which at most ``allowed`` of so many people exceed.

    >>> plan_looks(1_000, 10).sizes, plan_looks(20_000, 200).sizes, plan_looks(100, 1).sizes
    ((253, 546), (317, 754), (80, 100))
    """
    every((0 <= allowed < people, "no such plan of a sample"))
    worst = allowed + 1
    first = _least(1, people, lambda m: hypergeometric(0, people, worst, m)[1] <= FIRST)
    if allowed < PARDONED:
        return Looks((first, people), people, allowed)
    none = hypergeometric(0, people, worst, first)

    def spent(m: int) -> float:
        both = none[0] * hypergeometric(PARDONED, people - first, worst, m - first)[0]  # approved at either look
        return none[1] + hypergeometric(PARDONED, people, worst, m)[1] - both

    return Looks((first, _least(first, people, lambda m: spent(m) <= LEVEL)), people, allowed)


def _least(low: int, high: int, holds: Callable[[int], bool]) -> int:
    """Return the least number from which on something holds that holds at the highest."""
    return low + bisect_left(range(low, high), True, key=holds)  # noqa: FBT003  the first that is not less


def binomial(k: int, n: int, p: float) -> tuple[float, float]:
    """Return (least, largest) probability of at most ``k`` successes in ``n`` independent trials."""
    if k >= n or p <= 0:
        return 1.0, 1.0
    if k < 0 or p >= 1:
        return 0.0, 0.0
    i = np.arange(n, dtype=np.float64)
    return _first(k + 1, (n - i) * p, (i + 1) * (1 - p))  # 1 - p is exact, or off by a share of EPS


@lru_cache(maxsize=100_000)
def _above(k: int, n: int, alpha: float) -> float:
    """Return a number, to 1e-12, above which at most ``k`` successes have probability alpha or less."""
    low, high, a, b = k / n, 1.0, k / n, 1.0
    more, less, last = -np.log(alpha), -745.0, 0  # logarithms of the probability in alphas, at a and at b
    for _ in range(25):  # a line between both, so that halving, which decides, asks for few of its 40 values
        p = min(max(a + (b - a) * more / (more - less), a + 1e-13), b - 1e-13)
        if not a < p < b:
            break
        side = np.log(binomial(k, n, p)[1] / alpha + 1e-300)
        if side > 0:
            a, more, less, last = p, side, less / 2 if last > 0 else less, 1
        else:
            b, less, more, last = p, side, more / 2 if last < 0 else more, -1
    while high - low > 1e-12:
        middle = (low + high) / 2
        larger = middle <= a or (middle < b and binomial(k, n, middle)[1] > alpha)
        low, high = (middle, high) if larger else (low, middle)
    return high


def upper_limit(k: Any, n: Any, *, alpha: float) -> Float:
    """Return one-sided upper Clopper-Pearson limits of a success probability, fractions, float64; 1 without trials.

    Of ``k`` successes of ``n`` trials, broadcast together; each is too low with probability ``alpha`` at most.

    >>> round(float(upper_limit(0, 59, alpha=0.05)), 3)  # the rule of three, exactly
    0.05
    """
    k, n = np.broadcast_arrays(np.asarray(k, dtype=np.float64), np.asarray(n, dtype=np.float64))
    every(
        (bool((k >= 0).all() and (k <= n).all()), "successes lie between 0 and the number of trials"),
        (bool((k == np.floor(k)).all() and (n == np.floor(n)).all()) and 0 < alpha < 1, "counts are whole numbers"),
    )
    limits = [1.0 if a == b else _above(int(a), int(b), alpha) for a, b in zip(k.ravel(), n.ravel(), strict=True)]
    return np.asarray(limits, dtype=np.float64).reshape(k.shape)


def lower_limit(k: Any, n: Any, *, alpha: float) -> Float:
    """Return one-sided lower Clopper-Pearson limits, those of failures from the other end; 0 without trials.

    >>> round(float(lower_limit(90, 100, alpha=0.05)), 4)
    0.8363
    """
    return np.asarray(1 - upper_limit(np.asarray(n) - np.asarray(k), n, alpha=alpha))


def difference(counts: tuple[int, int, int, int], *, low_alpha: float, high_alpha: float) -> tuple[float, float, float]:
    """Return ``a / n - b / k`` of counts (a, n, b, k), then its limits: one Clopper-Pearson limit of either share.

    >>> [round(v, 3) for v in difference((90, 100, 50, 100), low_alpha=0.05, high_alpha=0.05)]
    [0.4, 0.222, 0.553]
    """
    a, n, b, k = counts
    low = lower_limit(a, n, alpha=low_alpha / 2) - upper_limit(b, k, alpha=low_alpha / 2)
    high = upper_limit(a, n, alpha=high_alpha / 2) - lower_limit(b, k, alpha=high_alpha / 2)
    return a / n - b / k if n and k else float("nan"), float(low), float(high)


def quantile_rank(m: int, q: float, *, alpha: float) -> int | None:
    """Return which of ``m`` ascending values limits their q-quantile from above; 1 is the least, None if none does.

    Smallest j with ``P(Binomial(m, q) <= j - 1) >= 1 - alpha``; docs/mathematics.md, section 9.1.

    >>> quantile_rank(59, 0.95, alpha=0.05), quantile_rank(300, 0.95, alpha=0.05), quantile_rank(58, 0.95, alpha=0.05)
    (59, 292, None)
    """
    every((0 < q < 1 and 0 < alpha < 1 and m >= 0, "a quantile lies in (0, 1)"))
    if m == 0 or binomial(m - 1, m, q)[0] < 1 - alpha:
        return None
    return _least(1, m, lambda j: binomial(j - 1, m, q)[0] >= 1 - alpha)


def bound(case: Case) -> Limits:
    """Return limits of the share of people who exceed, as one number from 0 to 1."""
    names = ("surely", "possibly", "sampled", "people", "allowed")
    surely, possibly, sampled, people, allowed = (case.setting(name, int) for name in names)
    least, most = plan_looks(people, allowed).share(surely, possibly, sampled)
    return Limits(np.array([least / people]), np.array([np.nextafter(most / people, np.inf)]))
