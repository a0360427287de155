"""Theorem 6.9 of Long et al. (2017) with a derived constant: true, and loose by a factor of five to hundreds.

A constant that somebody states is not asked for here: nobody checks it, so it could not approve.
"""

import numpy as np

from privgate.certificates import library, logistic
from privgate.certificates.base import Certified
from privgate.certificates.linear_softmax import parameters
from privgate.retrain.retrained import Index, Retrained
from privgate.subject import Subject


class Lipschitz:
    """Log-probabilities move by at most L times the largest change of a parameter."""

    name = "lipschitz"
    source = "Long et al. (2017), Theorem 6.9; constant of the mathematical reference, section 6.1"
    needs_retrained = True

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        return logistic.short_of_minimum(subject)

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return the bound for each of ``units``; infinite where the engine gives no parameters."""
        del limit
        reach = library.reach(subject)
        problem = logistic.agreed(subject)
        stop = logistic.delivered(problem, reach, logistic.whole(logistic.Metric.of(problem, reach, problem.X)))
        found = parameters(retrained, subject)
        upper = np.full(len(units), np.inf)
        if found is not None:
            with_, without, error, known = found
            K, d = without[1].shape[1:]
            moved = np.maximum(
                np.abs(with_[1] - without[1]).max(axis=(1, 2)), np.abs(with_[0] - without[0]).max(axis=1)
            )
            constant = (1.0 if K == 2 else 2.0) * (1.0 + reach.longest(d)[0])
            lost = logistic.rounding(problem, *without, reach, constant * error)
            upper[known] = (constant * (moved + error) + lost + stop)[known]
        derived = "the Lipschitz constant is derived from the domain, not stated"
        assumptions = (reach.words(), logistic.assumption(problem), derived)
        return Certified(upper, np.zeros(len(units)), np.zeros(len(units), dtype=bool), assumptions)
