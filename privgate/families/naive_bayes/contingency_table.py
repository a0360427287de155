"""Contingency tables: only the cells of the unit's own records change, so DTP equals PDTP, exactly."""

import numpy as np

from privgate.families import certificate
from privgate.families.certificate import Certificate, Certified, Units, attained
from privgate.families.over_all_queries import applies, rounding
from privgate.families.removal import vanishing
from privgate.models import shares
from privgate.subject.subject import Subject


class ContingencyTableCertificate(Certificate):
    """Theorem 1: the largest label change over the affected cells, with and without the unit."""

    name = "contingency_table"
    source = "docs/mathematics.md, section 1, Theorem 1"

    def unfit(self, subject: Subject) -> str:
        """Return why it does not apply; empty if it does."""
        return applies.own_refusal(subject, "ContingencyTable")

    def every_data_set(self, subject: Subject) -> float:
        """Return ``ln(1 + 1/alpha)`` for declared labels and one record a person."""
        alpha = float(applies.own_estimator(subject, "ContingencyTable").alpha)
        error = applies.own_error(subject, alpha, 1) if alpha > 0 else 0.0
        return certificate.smoothed(subject, alpha) + error

    def certify(self, about: Units) -> Certified:
        """Return the exact value for each of ``units``."""
        subject, units = about.subject, about.units
        alpha, K = float(applies.own_estimator(subject, "ContingencyTable").alpha), len(subject.classes)
        labels = subject.label_codes
        _, cell = np.unique(np.asarray(subject.data.X), axis=0, return_inverse=True)
        cell = cell.ravel()
        table = np.bincount(cell * K + labels, minlength=(int(cell.max()) + 1) * K).reshape(-1, K).astype(np.float64)
        value = np.full(len(units), np.inf)
        for k in np.flatnonzero(~vanishing(subject, units)):
            rows = subject.data.units[int(units[k])]
            left = table[cell[rows]].copy()
            for c, y in zip(cell[rows], labels[rows], strict=True):
                left[cell[rows] == c, y] -= 1
            with np.errstate(divide="ignore", invalid="ignore"):
                change = np.log(shares(table[cell[rows]], alpha)) - np.log(shares(left, alpha))
            value[k] = np.nan_to_num(np.abs(change), nan=0.0, posinf=np.inf).max()
        lower, upper = rounding.widened(value, value, np.full(len(value), applies.own_error(subject, alpha, 1)))
        assumption = "cells without a record answer the same whatever the data are; any query is allowed"
        return Certified(upper, lower, attained(lower, upper), (assumption,))
