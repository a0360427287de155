"""Logistic regression in a ball: a bound that needs no data."""

import numpy as np

from privgate.families.certificate import Certificate, Certified, Units, designed
from privgate.families.over_all_queries import applies
from privgate.models.ball_logistic import FLAT
from privgate.subject.subject import Subject


class BallLogisticCertificate(Certificate):
    """A record moves the minimiser by at most ``C radius``, and an answer by ``radius`` times that; g records, g times.

    The objective is strongly convex with constant 1 in every direction, the intercept's included, and a record's
    gradient is at most as long as the record. What the solver leaves over counts on both sides.
    """

    name = "ball_logistic"
    source = "docs/mathematics.md, section 12.3, Theorem 12.4"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        if problem := applies.own_refusal(subject, "BallLogistic"):
            return problem
        return "" if subject.declared_classes is not None else "classes= does not declare every label"

    def every_data_set(self, subject: Subject) -> float:
        """Return the bound for one record a person; how many another one has is declared nowhere."""
        if subject.data.groups is not None:
            return np.inf
        return float(applies.own_estimator(subject, "BallLogistic").bound)

    def certify(self, about: Units) -> Certified:
        """Return the bound of each of the units by the number of its records."""
        estimator = applies.own_estimator(about.subject, "BallLogistic")
        held = np.array([len(rows) for rows in about.members])
        told = {"C": float(estimator.C), "radius": float(estimator.radius), "stop": FLAT}
        upper = designed(held, design="ball", **told)
        words = (
            f"any query is allowed: records and queries are pulled into a ball of radius {estimator.radius:g}; "
            "nothing of the data is looked at"
        )
        if estimator.towards is not None:
            words += (
                "; the head that it is pulled towards is declared public: one made from these people would not show"
            )
        return Certified(upper, np.zeros(len(upper)), np.zeros(len(upper), dtype=bool), (words,))
