"""Linear softmax models from two parameter vectors: exact for two classes on a box, ODTP for more."""

import numpy as np
from numpy.typing import NDArray

from privgate.families.certificate import Certified
from privgate.families.logistic import minimum
from privgate.families.over_all_queries import applies, linear
from privgate.families.over_all_queries.discrete import attained
from privgate.families.retrained import Index, Retrained, Status
from privgate.subject.subject import Subject

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 4_000_000


class LinearSoftmax:
    """The difference of two linear models is linear, so its largest value over a box is a sum over features."""

    name = "linear_softmax"
    source = "docs/mathematics.md, section 6.2"
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
        upper, lower = np.full(len(units), np.inf), np.zeros(len(units))
        if found is not None:
            with_, without, distance, known = found
            d = without[1].shape[2]
            # every pair of classes may be off by sqrt(2) of the joint error of all parameters
            error = np.sqrt(2.0) * distance * float(np.hypot(reach.longest(d)[1], 1.0))
            error += minimum.rounding(problem, *without, reach, error) + stop
            step = max(1, _CHUNK // without[1][0].size // max(1, without[1].shape[1]))
            for part in np.split(known, np.arange(step, len(known), step)):
                if len(part):
                    low, high = linear.any_classes(
                        (with_[0][part], with_[1][part]), (without[0][part], without[1][part]), reach
                    )
                    upper[part], lower[part] = high + error[part], np.maximum(low - error[part], 0.0)
        return Certified(upper, lower, attained(lower, upper), (reach.words(), minimum.assumption(problem)))


def parameters(
    retrained: Retrained | None, subject: Subject
) -> tuple[tuple[Float, Float], tuple[Float, Float], Float, Index] | None:
    """Return ((bias, weights) with each unit, the same without, Euclidean error, units that have them), or None.

    ``bias`` has shape (U, K), ``weights`` (U, K, d), ``error`` (U,); what the engines leave in ``Retrained.changes``.
    """
    names = ("coef", "intercept", "coef_with", "intercept_with", "coef_error")
    if retrained is None or len(retrained.seeds) != 1 or not all(n in retrained.changes for n in names):
        return None
    coef, intercept, coef_with, intercept_with, error = (
        np.asarray(retrained.changes[n][0], dtype=np.float64) for n in names
    )
    if coef.shape[1] != len(subject.classes):
        return None
    trusted = np.array([s in (Status.EXACT, Status.CONVERGED) for s in retrained.status], dtype=bool)
    trusted &= np.isfinite(error) & np.isfinite(coef).all(axis=(1, 2)) & np.isfinite(intercept).all(axis=1)
    return (intercept_with, coef_with), (intercept, coef), error, np.flatnonzero(trusted)
