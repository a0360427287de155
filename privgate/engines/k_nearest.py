"""k nearest neighbours without each record: one search for two neighbours more serves all."""

import numpy as np
from numpy.typing import NDArray

from privgate.engines import design, single_records
from privgate.engines.base import SEVERAL, Cost, Declined
from privgate.engines.counts import Float
from privgate.retrain.fleet import Fleet
from privgate.retrain.retrained import Index, Retrained, Shadows
from privgate.subject import Subject

#: relative difference of squared distances below which two neighbours may change places by rounding
TIE = 1e-9


class KNearest:
    """Leave-one-out for ``KNeighborsClassifier`` with uniform weights, Euclidean distances; exact where nothing ties.

    Identity: without t the k nearest of x are those of its k + 1 nearest that are not t. scikit-learn breaks ties by no
    rule that survives a removal, so a query whose k-th, (k + 1)-th or (k + 2)-th neighbours tie is handed on
    (mathematical reference, section 5 and its correction).
    """

    name = "k_nearest"
    version = 1
    hands_on = (SEVERAL, "the distances of their neighbours tie")

    def supports(self, subject: Subject) -> str:
        """Return why the recipe or data is not covered; empty if it is."""
        from sklearn.neighbors import KNeighborsClassifier

        estimator = subject.recipe.library_estimator
        if type(estimator) is not KNeighborsClassifier:
            return "the recipe is not scikit-learn's KNeighborsClassifier"
        if why := design.refusal(subject):
            return why
        if estimator.weights != "uniform":
            return "neighbours are weighted"
        euclidean = estimator.metric == "euclidean" or (estimator.metric == "minkowski" and estimator.p == 2)
        if not euclidean or estimator.metric_params:
            return "distances are not Euclidean"
        if subject.data.n < estimator.n_neighbors + 3:
            return "there are hardly more records than neighbours"
        return ""

    def cost(self, subject: Subject, units: Index, seeds: tuple[int | None, ...]) -> Cost:
        """Return the cost of one search over all records."""
        n, d = subject.data.n, int(subject.data.X.shape[1])
        return Cost(0, 2e-10 * n * len(units) * d + 2e-5 * len(units), 64 * n)

    def leave_out(
        self,
        subject: Subject,
        units: Index,
        seeds: tuple[int | None, ...],
        fleet: Fleet,
        *,
        queries: tuple[Index, Index] | None = None,
    ) -> tuple[Retrained, Index]:
        """Return every record whose queries do not tie; the others, and people with several records, are handed on."""
        from sklearn.neighbors import NearestNeighbors

        estimator, n = subject.recipe.library_estimator, subject.data.n
        k, K = int(estimator.n_neighbors), len(subject.classes)
        X, y = design.matrix(subject).astype(np.float64, copy=False), subject.label_codes
        X = X - X[:n].mean(axis=0)
        search = NearestNeighbors(n_neighbors=k + 2, algorithm=estimator.algorithm, leaf_size=estimator.leaf_size).fit(
            X[:n]
        )
        scale = float((X[:n] ** 2).sum(axis=1).max())
        if not scale > 0:
            raise Declined("all records are equal")

        def joint(record: Index, query: Index) -> tuple[Float, Float, NDArray[np.bool_]]:
            distance, found = search.kneighbors(X[query])
            square = distance[:, k - 1 :] ** 2
            allowed = TIE * (square[:, 2] + 1e-3 * scale)
            fine = (square[:, 1] - square[:, 0] > allowed) & (square[:, 2] - square[:, 1] > allowed)
            away = found == record[:, None]
            among = away[:, :k].any(axis=1)
            votes = np.zeros((len(query), K))
            rows = np.arange(len(query))
            for j in range(k):
                votes[rows, y[found[:, j]]] += 1
            rest = votes.copy()
            rest[rows[among], y[record[among]]] -= 1
            rest[rows[among], y[found[among, k]]] += 1
            return np.log(votes / k), np.log(rest / k), fine

        return single_records.leave_out(
            self.name, joint, subject=subject, units=units, seeds=seeds, queries=queries, normalize=False
        )

    def subsets(
        self, subject: Subject, masks: NDArray[np.bool_], seeds: tuple[int | None, ...], fleet: Fleet
    ) -> Shadows | None:
        """Return None: refits answer."""
        return None


ENGINE = KNearest()
