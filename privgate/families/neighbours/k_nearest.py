"""k nearest neighbours without each record, by one search for all; smoothed, one record is one vote at any query."""

from typing import Any

import numpy as np

from privgate.families import certificate, design
from privgate.families.certificate import Certificate, Certified, Units, designed
from privgate.families.closed_form import ClosedForm, Form, Scores
from privgate.families.engine import Cost, Declined, LibraryEngine
from privgate.families.over_all_queries import applies
from privgate.families.removal import Removal, vanishing
from privgate.families.retrained import Index, Seeds
from privgate.subject.subject import Subject

#: relative difference of squared distances below which two neighbours may change places by rounding
TIE = 1e-9
#: records of a unit that are searched past: where all of more lie among the nearest, the unit is handed on
MOST = 64


class KNearest(LibraryEngine, ClosedForm):
    """Leave-one-out for ``KNeighborsClassifier`` with uniform weights, Euclidean distances; exact where nothing ties.

    Identity: without a unit of m records the k nearest of x are the first k of its k + m nearest that are not the
    unit's. scikit-learn breaks ties by no rule that survives a removal, so a query whose k-th and next neighbours tie,
    with or without the unit, is handed on (docs/mathematics.md, section 5).
    """

    name = "k_nearest"
    library = "KNeighborsClassifier"
    hands_on = "the distances of their neighbours tie"

    def unfit(self, estimator: Any, subject: Subject) -> str:
        """Return which parameters are not covered; empty if all are."""
        if estimator.weights != "uniform":
            return "neighbours are weighted"
        euclidean = estimator.metric == "euclidean" or (estimator.metric == "minkowski" and estimator.p == 2)
        if not euclidean or estimator.metric_params:
            return "distances are not Euclidean"
        return "there are hardly more records than neighbours" if subject.data.n < estimator.n_neighbors + 3 else ""

    def cost(self, subject: Subject, units: Index, seeds: Seeds, *, mode: str = "all") -> Cost:
        """Return the cost of one search over all records."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2e-10 * n * len(units) * d + 2e-5 * len(units), 64 * n)

    def form(self, subject: Subject) -> Form:
        """Return the closed form; units with a query whose neighbours tie are handed on.

        Raises
        ------
        Declined
            All records are equal.
        """
        from sklearn.neighbors import NearestNeighbors

        estimator, n = subject.recipe.library_estimator, subject.data.n
        k, K = int(estimator.n_neighbors), len(subject.classes)
        X, y = design.matrix(subject).astype(np.float64, copy=False), subject.label_codes
        # scikit-learn may multiply squares out, uncentred: what that rounds may be a tie
        rounded = 16 * float(np.finfo(np.float64).eps) * float((X**2).sum(axis=1).max())
        X = X - X[:n].mean(axis=0)
        search = NearestNeighbors(algorithm=estimator.algorithm, leaf_size=estimator.leaf_size).fit(X[:n])
        scale = float((X[:n] ** 2).sum(axis=1).max())
        if not scale > 0:
            raise Declined("all records are equal")

        def joint(lost: Removal, unit: Index, query: Index) -> Scores:
            wide = k + 1 + min(int(lost.size.max()), MOST, n - k - 1)
            distance, found = search.kneighbors(X[query], n_neighbors=wide)
            owner = np.full(n, -1)
            owner[lost.rows] = np.repeat(np.arange(len(lost.size)), lost.size)
            stays = owner[found] != unit[:, None]
            rank = np.cumsum(stays, axis=1)  # among those that stay
            votes, rest = np.zeros((len(query), K)), np.zeros((len(query), K))
            rows = np.arange(len(query))
            for j in range(wide):
                label = y[found[:, j]]
                votes[rows, label] += j < k
                rest[rows, label] += stays[:, j] & (rank[:, j] <= k)
            square = distance**2
            allowed = TIE * (square[:, -1] + 1e-3 * scale) + rounded
            last, following = (rank < k).sum(axis=1), (rank <= k).sum(axis=1)  # places of the k-th and the next
            fine = (following < wide) & (square[:, k] - square[:, k - 1] > allowed)
            fine &= square[rows, np.minimum(following, wide - 1)] - square[rows, np.minimum(last, wide - 1)] > allowed
            return Scores(np.log(votes / k), np.log(rest / k), fine)

        return Form(joint, 4 * (k + 3) + X.shape[1], normalize=False)


class SmoothedNeighborsCertificate(Certificate):
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
        estimator = applies.own_estimator(subject, "SmoothedNeighbors")
        size = np.array([len(subject.data.units[int(u)]) for u in units], dtype=np.int64)
        alpha, most = float(estimator.alpha), int(estimator.n_neighbors)
        upper = designed(size, design="shares", alpha=alpha, most=most) + applies.own_error(subject, alpha, 1)
        gone = vanishing(subject, units)
        upper[gone] = np.inf
        assumption = (
            "any query is allowed; neighbors are ordered by distance and, where equal, by their own features and label"
        )
        return Certified(upper, np.where(gone, np.inf, 0.0), gone, (assumption,))


ENGINE = KNearest()
