"""Theorems about recipe and data alone: what confirms a yes makes their cases again. Small ones stand here whole."""

from dataclasses import replace

import numpy as np

from privgate.arrays import Index
from privgate.families import certificate
from privgate.families.certificate import ByDesign, Certificate, Certified, Units, designed
from privgate.families.designs import vanishing
from privgate.families.logistic.logistic_limits import BallLogisticCertificate, Newton
from privgate.families.naive_bayes import theorems
from privgate.families.over_all_queries import applies
from privgate.families.sharded_members import ShardedMembers
from privgate.kernel import Case
from privgate.subject.subject import Subject


class SmoothedNeighborsCertificate(ByDesign):
    """At any query a record is among the k nearest, or nothing changes; then one vote passes to the next neighbor.

    Or is lost, where nobody is left to vote: with e of r lost votes replaced, a label's share grows by at most
    ``(e + alpha) / alpha x (V + C alpha) / (V - r + e + C alpha)``, which is largest where e = r.
    """

    name = "smoothed_neighbors"
    source = "docs/mathematics.md, section 5: order by (distance, record); section 12.3"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.own_refusal(subject, "SmoothedNeighbors"):
            return problem
        if not applies.own_estimator(subject, "SmoothedNeighbors").alpha > 0:
            return "without smoothing one vote can make a label impossible: DTP is infinite"
        return ""

    def every_data_set(self, subject: Subject) -> float:
        """Return ``ln(1 + 1/alpha)`` for declared labels and one record a person."""
        alpha = float(applies.own_estimator(subject, "SmoothedNeighbors").alpha)
        error = applies.own_error(subject, alpha, 1) if alpha > 0 else 0.0
        return certificate.smoothed(subject, alpha) + error

    def certify(self, about: Units) -> Certified:
        """Return ``ln(1 + g / alpha)`` for each of ``units``, g the votes that it can hold."""
        subject, units = about.subject, about.units
        kept, gone = self.judged(about), vanishing(subject, units)
        assumption = (
            "any query is allowed; neighbors are ordered by distance and, where equal, by their own features and label"
        )
        made = Certified.without_data(kept and kept.about(~gone), units, (assumption,))
        return replace(made, lower=np.where(gone, np.inf, 0.0), exact=gone)

    def design(self, subject: Subject, units: Index) -> Case:
        """Return the votes of each unit."""
        estimator = applies.own_estimator(subject, "SmoothedNeighbors")
        size = np.array([len(subject.data.units[int(u)]) for u in units], dtype=np.int64)
        alpha, most = float(estimator.alpha), int(estimator.n_neighbors)
        off = applies.own_error(subject, alpha, 1)
        return designed(size, design="shares", alpha=alpha, most=most, off=off)


ALL: dict[str, Certificate] = {
    c.name: c
    for c in (*theorems.ALL, SmoothedNeighborsCertificate(), BallLogisticCertificate(), ShardedMembers(), Newton())
}
