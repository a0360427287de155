"""Whether candidates come from where the members come from, asked without the model under test.

Candidates of one class only, of another year or another country move an attack's success freely, in both directions.
A classifier that sees features and label tries to tell members from candidates; what it achieves on people whom it has
not learned from is a figure with a known distribution if the two are exchangeable, whatever the data are.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.subject.containers import as_numbers, length
from privgate.subject.data import TrainingData

#: probability that an honest split is called shifted: a quarter each for an AUC above and below 0.5, neighbours, labels
LEVEL = 2e-3
#: candidates beside members beyond what chance explains, as a share of the candidates, from which on it counts
LEAST_BESIDE = 0.05
#: a shift smaller than this is told, but judged: an AUC of 0.53 moves an attack's accuracy by about 2 points
LEAST_AUC = 0.53
#: total variation distance of the label shares; moves an attack's accuracy by at most half of it
LEAST_LABELS = 0.04
#: people of either side that the classifier sees; columns it sees
MOST_PEOPLE, MOST_COLUMNS = 4000, 256


@dataclass(frozen=True, slots=True)
class Shift:
    """How well members and candidates are told apart by what they are.

    Parameters
    ----------
    auc : float
        Of a classifier on features and label, on people whom it has not seen; 0.5 where nothing tells them apart.
    p_auc, p_labels : float
        Probability of an AUC so far from 0.5, and of such label shares, if members and candidates are exchangeable.
        Far below 0.5, what was learned is the wrong way round: candidates were made from members, or picked beside
        them, and lie in one half what their originals are in the other.
    labels : float
        Total variation distance between the label shares, in [0, 1].
    p_beside, beside : float
        Share of the candidates whose nearest neighbour is a member, beyond what is due, and its probability.
    """

    auc: float
    p_auc: float
    p_labels: float
    labels: float
    p_beside: float = 1.0
    beside: float = 0.0

    @property
    def below(self) -> bool:
        """Whether what was learned is clearly the wrong way round."""
        return self.auc < 0.5 and self.p_auc <= LEVEL / 2

    @property
    def beside_members(self) -> bool:
        """Whether clearly more candidates than is due have a member for their nearest neighbour."""
        return self.p_beside <= LEVEL / 4 and self.beside >= LEAST_BESIDE

    @property
    def seen(self) -> bool:
        """Whether exchangeability is refuted at level 2e-3."""
        return self.p_auc <= LEVEL / 2 or min(self.p_labels, self.p_beside) <= LEVEL / 4

    @property
    def clear(self) -> bool:
        """Whether it is refuted, and large enough to move an attack's success."""
        auc = self.p_auc <= LEVEL / 2 and abs(self.auc - 0.5) >= LEAST_AUC - 0.5
        return auc or self.beside_members or (self.p_labels <= LEVEL / 4 and self.labels >= LEAST_LABELS)


def shift(data: TrainingData, trial: Bool) -> Shift | None:
    """Return how far candidates are from members; None without enough people on either side.

    Parameters
    ----------
    data : TrainingData
    trial : bool array of shape (P,)
        Pool rows to compare: copies on both sides, or among the candidates, would be learned by heart.

    References
    ----------
    Lopez-Paz and Oquab (2017), "Revisiting Classifier Two-Sample Tests"; the AUC of the held-out half is a Mann-Whitney
    statistic: mean 1/2 and variance at most ``(n1 + n0 + 1) / (12 n1 n0)`` under exchangeability.
    """
    if data.candidates is None:
        return None
    rng = np.random.default_rng(23)
    units = data.units  # people are exchangeable, not records: one of each
    own = units.order[(units.bounds[:-1] + rng.random(len(units)) * np.diff(units.bounds)).astype(np.int64)]
    sides = [own[trial[own]], data.n + np.flatnonzero(trial[data.n :])]
    sides = [np.sort(rng.permutation(rows)[:MOST_PEOPLE]) for rows in sides]
    if min(map(len, sides)) < 20:
        return None
    y = np.concatenate([data.y, data.candidates[1]])
    if data.numbers:  # compared as labels are, by tenths of the training targets
        y = np.searchsorted(np.unique(np.quantile(data.y.astype(np.float64), np.linspace(0.1, 0.9, 9))), y)
    p_labels, distance = _labels(y[sides[0]], y[sides[1]])
    seen = _features(data, sides, y)
    outside = np.repeat([0, 1], [len(s) for s in sides])
    learn = np.zeros(len(outside), dtype=bool)
    for side in (0, 1):
        who = np.flatnonzero(outside == side)
        if data.groups is None or side == 0:
            who = rng.permutation(who)
        # else: nobody says whose records the candidates are, and one person's records, learned in one half and asked in
        # the other, would pass for a shift; they mostly stand together
        learn[who[: len(who) // 2]] = True
    from scipy.special import ndtr
    from sklearn.ensemble import RandomForestClassifier

    from privgate.statistics.roc import auc

    trees = RandomForestClassifier(
        100, min_samples_leaf=3, max_features="sqrt", random_state=0, class_weight="balanced", n_jobs=1
    ).fit(seen[learn], outside[learn])
    told = outside[~learn].astype(bool)
    area = auc(trees.predict_proba(seen[~learn])[:, 1], told)
    n1, n0 = int(told.sum()), int((~told).sum())
    z = (area - 0.5) / np.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    return Shift(float(area), float(2 * ndtr(-abs(z))), p_labels, distance, *_beside(seen, outside == 1, rng))


def _beside(seen: Float, outside: Bool, rng: np.random.Generator) -> tuple[float, float]:
    """Return (p-value, excess share of candidates whose nearest neighbour is a member), in ranks of the columns.

    Candidates that were made from members lie beside them, with whatever noise hides that from a comparison of columns.

    References
    ----------
    Schilling (1986), "Multivariate Two-Sample Tests Based on Nearest Neighbors"; moments by permuting who is who.
    """
    from scipy.special import ndtr
    from sklearn.neighbors import NearestNeighbors

    order = rng.permutation(len(seen))  # ties go to whom chance puts first
    scale = seen.std(axis=0)
    points, side = (seen / np.where(scale > 0, scale, 1.0))[order], outside[order]
    nearest = NearestNeighbors(n_neighbors=1, algorithm="brute").fit(points).kneighbors(return_distance=False)[:, 0]
    found = float((~side[nearest])[side].sum())
    due = np.array([(~s[nearest])[s].sum() for s in (rng.permutation(side) for _ in range(400))], dtype=np.float64)
    z = (found - 0.5 - due.mean()) / max(float(due.std()), 0.5)
    return float(ndtr(-z)), float((found - due.mean()) / max(1, side.sum()))


def _labels(inside: NDArray[Any], outside: NDArray[Any]) -> tuple[float, float]:
    """Return (p-value of a chi-square test on label shares, their total variation distance); rare labels as one."""
    names, code = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    table = np.stack([np.bincount(c, minlength=len(names)) for c in (code[: len(inside)], code[len(inside) :])])
    share = table / table.sum(axis=1, keepdims=True)
    distance = float(np.abs(share[0] - share[1]).sum() / 2)
    order = np.argsort(table.sum(axis=0), kind="stable")
    expected = table.sum(axis=0)[order] * table.sum(axis=1).min() / table.sum()
    rare = np.maximum.accumulate(expected[::-1] < 10)[::-1]
    table = table[:, order]
    if rare.any():
        table = np.column_stack([table[:, rare].sum(axis=1), table[:, ~rare]])
    if table.shape[1] < 2:
        return 1.0, distance
    from scipy.stats import chi2_contingency

    return float(chi2_contingency(table, correction=False).pvalue), distance


def _features(data: TrainingData, sides: list[Index], y: NDArray[Any]) -> Float:
    """Return what the classifier sees of the rows: numbers as they are, categories and text as numbers, the label."""
    rows = np.concatenate(sides)
    X = data.at(rows)
    columns: list[Float]
    if hasattr(X, "tocsr"):
        csr = X.tocsr()
        often = np.argsort(-np.asarray((csr != 0).sum(axis=0)).ravel(), kind="stable")[:MOST_COLUMNS]
        # sums over the rows of a sparse array have one axis, those of a sparse matrix two
        sums = [np.asarray(v.sum(axis=1)).reshape(-1, 1) for v in (csr != 0, csr)]
        columns = [csr[:, np.sort(often)].toarray(), *sums]
    elif hasattr(X, "columns"):
        columns = [_column(X.iloc[:, j])[:, None] for j in range(min(X.shape[1], MOST_COLUMNS))]
    elif hasattr(X, "shape"):
        flat = np.asarray(X).reshape(length(X), -1)
        some = np.arange(flat.shape[1])
        if len(some) > MOST_COLUMNS:
            some = np.sort(np.random.default_rng(29).permutation(some)[:MOST_COLUMNS])
        columns = [_column(flat[:, j])[:, None] for j in some]
    else:
        from sklearn.feature_extraction.text import HashingVectorizer

        texts = [str(v) for v in X]
        sizes = np.array([[len(t), t.count(" ")] for t in texts], dtype=np.float64)
        columns = [HashingVectorizer(n_features=MOST_COLUMNS, norm=None).transform(texts).toarray(), sizes]
    label = np.unique(y, return_inverse=True)[1][rows][:, None]
    return np.hstack([*(np.asarray(c, dtype=np.float64) for c in columns), label.astype(np.float64)])


def _column(values: Any) -> Float:
    """Return a column as finite numbers that float32 holds; categories as positions in their order."""
    v = as_numbers(values)
    if v is None:
        return np.unique([str(x) for x in values.tolist()], return_inverse=True)[1].astype(np.float64)
    # ranks tell trees as much as the numbers do, and no offset or unit rounds them away
    return np.unique(np.where(np.isnan(v), np.inf, v), return_inverse=True)[1].astype(np.float64)
