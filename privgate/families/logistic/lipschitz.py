"""Theorem 6.9 of Long et al. (2017) with a derived constant: true, and loose by a factor of five to hundreds.

A constant that somebody states is not asked for here: nobody checks it, so it could not approve.
"""

import numpy as np

from privgate.families.certificate import Certified
from privgate.families.logistic import minimum
from privgate.families.logistic.linear_softmax import parameters
from privgate.families.over_all_queries import applies
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject


class Lipschitz:
    """Log-probabilities move by at most L times the largest change of a parameter."""

    name = "lipschitz"
    source = "Long et al. (2017), Theorem 6.9; constant of docs/mathematics.md, section 6.1"
    needs_retrained = True

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        return minimum.short_of_minimum(subject)

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``; infinite where the engine gives no parameters."""
        del limit
        reach = applies.reach(subject)
        problem = minimum.agreed(subject)
        stop = minimum.delivered(problem, reach, minimum.whole(minimum.Metric.of(problem, reach, problem.X)))
        found = parameters(retrained, subject)
        upper = np.full(len(units), np.inf)
        if found is not None:
            with_, without, error, known = found
            K, d = without[1].shape[1:]
            moved = np.maximum(
                np.abs(with_[1] - without[1]).max(axis=(1, 2)), np.abs(with_[0] - without[0]).max(axis=1)
            )
            constant = (1.0 if K == 2 else 2.0) * (1.0 + reach.longest(d)[0])
            lost = minimum.rounding(problem, *without, reach, constant * error)
            upper[known] = (constant * (moved + error) + lost + stop)[known]
        derived = "the Lipschitz constant is derived from the domain, not stated"
        assumptions = (reach.words(), minimum.assumption(problem), derived)
        return Certified(upper, np.zeros(len(units)), np.zeros(len(units), dtype=bool), assumptions)
