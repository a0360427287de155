"""Logistic regression without any retraining: where the minimiser goes without a unit, to a certified radius.

Self-concordance of the log-loss turns the gradient that a unit leaves behind into a ball that holds the new minimiser.
One Newton step bounds every unit; a second one, or Newton's method, follows where the first leaves something open.
"""

from collections.abc import Iterator

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.logistic import distances, downdate, minimum
from privgate.families.logistic.distances import MARGIN, HessianNorm
from privgate.families.logistic.downdate import Downdate
from privgate.families.logistic.minimum import FittedProblem
from privgate.families.over_all_queries import applies, linear
from privgate.families.over_all_queries.reach import Reach
from privgate.families.retrained import Index
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: share of a bound that may be the ball's radius before a second step is worth its time
_LOOSE = 0.02
#: multiplications spent on second steps that decide something, on those that only tighten, and on Newton's method
_DECIDE, _TIDY, _MINIMISE = 4e10, 1e10, 3e10
#: entries of the largest temporary array
_CHUNK = 4_000_000


class Newton(Certificate):
    """Section 6.3 (ii), about minimisers; how far a training may stop from its own follows from its gradient test."""

    name = "newton"
    source = "docs/mathematics.md, section 6.3 (ii)"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return distances.short_of_minimum(subject)

    def certify(self, about: Units) -> Certified:
        """Return the bound for each of ``units``."""
        subject, units = about.subject, about.units
        problem = minimum.agreed(subject)
        reach = applies.reach(subject)
        work = _Units(problem, reach, applies.members(subject, units))
        work.run(about.limit)
        detail = {"slack": work.whole, "gradient": float(problem.allowed.max()), "seen": problem.seen}
        detail |= {"units": len(units), **work.spent}
        exact = attained(work.lower, work.upper)
        return Certified(work.upper, work.lower, exact, (reach.words(), minimum.assumption(problem)), detail)


class _Units:
    """Bounds of all units, tightened where it matters."""

    def __init__(self, problem: FittedProblem, reach: Reach, members: applies.Members) -> None:
        self.problem, self.reach, self.members = problem, reach, members
        n = len(members)
        self.lower, self.upper, self.error = np.zeros(n), np.full(n, np.inf), np.full(n, np.inf)
        self.metric = HessianNorm.of(problem, reach, problem.X)
        self.whole = distances.delivered(problem, reach, distances.whole(self.metric))
        self.sizes = np.ones(n, dtype=np.int64)
        if isinstance(members, tuple):
            self.sizes = np.array([len(rows) for rows in members], dtype=np.int64)
        self.spent = {"second_steps": 0, "minimised_again": 0}

    def run(self, limit: float | None) -> None:
        """Fill in the bounds."""
        totals = np.bincount(self.problem.labels)
        gone = [np.bincount(self.problem.labels[self._rows(k)], minlength=len(totals)) for k in range(len(self.sizes))]
        kept = np.array([bool((totals > g).all()) for g in gone], dtype=bool)
        self.lower[~kept] = np.inf
        for part in self._parts(np.flatnonzero(kept)):
            self._steps(part, second=False)
        self._second(np.fromiter(self._open(limit, kept), dtype=np.int64), _DECIDE)
        self._second(np.flatnonzero(kept & ~(self.error <= _LOOSE * self.upper)), _TIDY)
        budget = int(_MINIMISE / (self.problem.X.shape[0] * self.problem.u.size**2))
        for k in self._open(limit, kept):
            if self.spent["minimised_again"] >= budget:
                return
            self._minimise_again(k)
            self.spent["minimised_again"] += 1

    def _second(self, units: Index, budget: float) -> None:
        """Make second steps, largest bound first, while the budget lasts."""
        units = units[np.argsort(-self.upper[units], kind="stable")]
        n = min(len(units), int(budget / (2 * self.problem.X.size * self.problem.C)))
        for part in self._parts(np.sort(units[:n])):
            self._steps(part, second=True)
        self.spent["second_steps"] += n

    def _rows(self, k: int) -> Index:
        return np.atleast_1d(self.members[k])

    def _parts(self, units: Index) -> Iterator[Index]:
        """Yield units in pieces of equal size of unit that fit the memory."""
        K = self.problem.C + 1
        for size in np.unique(self.sizes[units]):
            place = units[self.sizes[units] == size]
            step = max(1, _CHUNK // (K * K * self.problem.X.shape[1] * int(size)))
            yield from np.split(place, np.arange(step, len(place), step))

    def _steps(self, part: Index, *, second: bool) -> None:
        if not len(part):
            return
        down = Downdate.of(self.problem, np.array([self._rows(k) for k in part]))
        R = self.metric.R / down.shrink
        u, rho, length = downdate.one_step(down, R, self.metric.rest)
        far = rho
        if second:
            u, rho, far = downdate.second_step(down, u, length, R)
        self._put(part, u, rho, self.metric, shrink=down.shrink, moved=length + far)

    def _put(self, part: Index, u: Float, rho: Float, metric: HessianNorm, *, shrink: Float, moved: Float) -> None:
        """Record bounds from parameters within ``rho`` of the minimiser.

        ``moved`` bounds how far the minimiser is from where ``metric`` was taken: the Hessian there, where a refit's
        gradient counts, is at least ``exp(-R moved)`` of this one.
        """
        with np.errstate(over="ignore", invalid="ignore"):
            bend = np.exp(np.minimum(metric.R / shrink * moved, 300.0) / 2) / shrink
            refit = distances.radius(metric.stop * bend, metric.R * bend) * bend * metric.norm
            apart = (rho * metric.norm / shrink + refit) * (1 + MARGIN)
        good = np.isfinite(apart)
        if not good.any():
            return
        with_, without = self.problem.softmax(self.problem.u[None]), self.problem.softmax(u[good])
        lower, upper = linear.any_classes(with_, without, self.reach)
        released = distances.rounding(self.problem, *without, self.reach, apart[good])
        error, at = apart[good] + released + self.whole, part[good]
        upper = upper * (1 + MARGIN) + error
        better = upper < self.upper[at]
        self.error[at] = np.where(better, error, self.error[at])
        self.upper[at] = np.minimum(self.upper[at], upper)
        self.lower[at] = np.maximum(self.lower[at], lower * (1 - MARGIN) - error)

    def _open(self, limit: float | None, kept: NDArray[np.bool_]) -> Iterator[int]:
        """Yield units worth more time, each once: no bound, both sides of the limit, or the possible maximum."""
        first = np.isinf(self.upper) & kept
        if limit is not None:
            first |= (self.lower <= limit) & (limit < self.upper)
        yield from np.flatnonzero(first).tolist()
        for k in np.argsort(-np.where(kept, self.upper, -1.0)).tolist():
            if not kept[k] or self.upper[k] <= self.lower[kept].max(initial=0.0) * (1 + _LOOSE):
                return
            if not first[k] and self.error[k] > MARGIN * self.upper[k]:
                yield k

    def _minimise_again(self, k: int) -> None:
        """Bound one unit at its own minimiser, where the ball is as small as rounding."""
        p, keep = self.problem, np.ones(len(self.problem.X), dtype=bool)
        keep[self._rows(k)] = False
        found = minimum.minimise(p.X[keep], p.labels[keep], p.u, p.lam, gauge=p.gauge)
        if found is None:
            return
        u, gradient, H = found
        if not np.linalg.cond(H) < minimum.CONDITION:
            return
        there = p.moved(u, np.asarray(np.linalg.inv(H)).reshape(p.inverse.shape), gradient)
        metric = HessianNorm.of(there, self.reach, p.X[keep])
        one = np.ones(1)
        nu, _ = downdate.radius(metric.rest * one, metric.R * one)
        self._put(np.array([k]), u[None], nu, metric, shrink=one, moved=nu)
