"""k nearest neighbors with additive smoothing: one record is one vote, wherever the query is."""

import numpy as np

from privgate.families.certificate import Certificate, Certified
from privgate.families.over_all_queries import applies
from privgate.families.removal import vanishing
from privgate.families.retrained import Index, Retrained
from privgate.subject.subject import Subject


class SmoothedNeighbors(Certificate):
    """At any query a record is among the k nearest, or nothing changes; then one vote passes to the next neighbor.

    Or is lost, where nobody is left to vote: with e of r lost votes replaced, a label's share grows by at most
    ``(e + alpha) / alpha x (V + C alpha) / (V - r + e + C alpha)``, which is largest where e = r.
    """

    name = "smoothed_neighbors"
    source = "docs/mathematics.md, section 5: order by (distance, record); section 12.3"

    def applies(self, subject: Subject) -> str:
        """Return "does not apply, because …" or an empty text."""
        if problem := applies.own_refusal(subject, "SmoothedNeighbors"):
            return problem
        if not applies.own_estimator(subject, "SmoothedNeighbors").alpha > 0:
            return "does not apply, because without smoothing one vote can make a label impossible: DTP is infinite"
        return ""

    def bound(
        self, subject: Subject, units: Index, retrained: Retrained | None, *, limit: float | None = None
    ) -> Certified:
        """Return ``ln(1 + g / alpha)`` for each of ``units``, g the votes that it can hold."""
        del retrained, limit
        estimator = applies.own_estimator(subject, "SmoothedNeighbors")
        size = np.array([len(subject.data.units[int(u)]) for u in units], dtype=np.int64)
        votes = np.minimum(size, estimator.n_neighbors)
        upper = np.log1p(votes / float(estimator.alpha)) + applies.own_error(subject, float(estimator.alpha), 1)
        gone = vanishing(subject, units)
        upper[gone] = np.inf
        assumption = (
            "any query is allowed; neighbors are ordered by distance and, where equal, by their own features and label"
        )
        return Certified(upper, np.where(gone, np.inf, 0.0), gone, (assumption,))
