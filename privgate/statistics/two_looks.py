"""A share of people from a random sample that may grow once: both looks, and what each may be wrong by.

The first look at ``first`` people spends on the question whether the share is within ``limit`` what its counts really
spend, which is a little less than ``alpha`` because counts are whole. What is left is the level of the second look, at
``then`` people. So whoever approves or blocks at either look errs with probability ``alpha`` at most.
"""

from dataclasses import dataclass

import numpy as np

from privgate.statistics.intervals import exceeding_limit

#: a level below this decides nothing
LEAST = 1e-9


@dataclass(frozen=True, slots=True)
class TwoLooks:
    """How a sample grows, fixed before anybody is looked at.

    Parameters
    ----------
    first, then : int
        People of the first look and of the second, ``first < then``, drawn without replacement; the second sample holds
        the first.
    population : int
        People there are.
    limit : float
        Share of them that is allowed.
    alpha : float
        Probability at most of a limit that is wrong, on either side.

    References
    ----------
    docs/mathematics.md, section 9.1.
    """

    first: int
    then: int
    population: int
    limit: float
    alpha: float = 0.05

    @property
    def allowed(self) -> int:
        """People who may exceed."""
        return int(np.floor(self.limit * self.population + 1e-9))

    def levels(self) -> tuple[float, float]:
        """Return what the first look leaves of ``alpha`` for (an upper limit, a lower limit) at the second."""
        from scipy.stats import hypergeom

        counts = np.arange(self.first + 1)
        few = hypergeom.cdf(counts, self.population, min(self.allowed + 1, self.population), self.first)
        many = hypergeom.sf(counts - 1, self.population, self.allowed, self.first)
        spent = (float(p[p <= self.alpha].max(initial=0.0)) for p in (few, many))
        upper, lower = (self.alpha - s for s in spent)
        return upper, lower

    def limits(self, surely: int, possibly: int, sampled: int) -> tuple[int, int]:
        """Return (least, most) people who exceed, when ``surely`` to ``possibly`` of the ``sampled`` do.

        Notes
        -----
        A decision at the first look says on which side of the limit the number is, and no more: a narrower claim, and a
        second one in the cases in which it goes on, would together be wrong more often.
        """
        if sampled == self.population:
            return surely, possibly
        upper, lower = (self.alpha, self.alpha) if sampled < self.then else self.levels()
        most = exceeding_limit(possibly, sampled, self.population, alpha=upper) if upper > LEAST else self.population
        least = self.population - (
            exceeding_limit(sampled - surely, sampled, self.population, alpha=lower)
            if lower > LEAST
            else self.population
        )
        if sampled < self.then and most <= self.allowed:
            return 0, self.allowed
        if sampled < self.then and least > self.allowed:
            return self.allowed + 1, self.population
        return least, most
