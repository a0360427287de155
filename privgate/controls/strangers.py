"""Candidates must be people like the members whom the model has not seen: no copies, and of the same population.

Attacks are judged by how well they tell members from candidates. Copies count to a few digits: one that was stored as
float32 has other bits. Candidates of another year or country are told apart without the model.
"""

from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Compute, Float, Index
from privgate.controls import data_checks
from privgate.evidence import Count, Precondition
from privgate.subject.containers import as_numbers
from privgate.subject.data import TrainingData

#: probability that an honest split is called shifted: a half for the AUC, a half for the labels
LEVEL = 2e-3
#: attacks are judged despite a smaller shift, which is reported: an AUC of 0.53 moves their accuracy by about 2 points
LEAST_AUC = 0.53
#: total variation distance of the label shares; moves an attack's accuracy by at most half of it
LEAST_LABELS = 0.04
#: people of either side that the classifier sees; columns it sees
MOST_PEOPLE, MOST_COLUMNS = 4000, 256
#: people on either side without whom nothing is tested
LEAST = 20
#: probability of a false alarm about members' answers, half in each of two tests
ANSWERS_LEVEL = 1e-3


@dataclass(frozen=True, slots=True)
class Shift:
    """How well a classifier tells members from candidates by their features and labels, without the model."""

    #: of the classifier on people whom it has not seen; 0.5 where nothing tells them apart, and far below where
    #: candidates in one half were made from members in the other
    auc: float
    #: probabilities of such an AUC and of such label shares where members and candidates are exchangeable
    p_auc: float
    p_labels: float
    #: total variation distance between the label shares, in [0, 1]
    labels: float

    @property
    def significant(self) -> bool:
        """Whether members and candidates are not exchangeable, at level 2e-3."""
        return min(self.p_auc, self.p_labels) <= LEVEL / 2

    @property
    def clear(self) -> bool:
        """Whether the shift is significant, and large enough to move an attack's success."""
        auc = self.p_auc <= LEVEL / 2 and abs(self.auc - 0.5) >= LEAST_AUC - 0.5
        return auc or (self.p_labels <= LEVEL / 2 and self.labels >= LEAST_LABELS)

    @property
    def sentence(self) -> str:
        """How members and candidates are told apart, in words."""
        below = self.auc < 0.5 and self.p_auc <= LEVEL / 2
        return (
            f"told apart by features and label alone with an AUC of {self.auc:.2f}, 0.5 is due; shares of labels "
            f"differ by {self.labels:.1%}{'; as if they were made from members, or picked beside them' * below}"
        )


def find_shift(data: TrainingData, trial: Bool, compute: Compute) -> Shift | None:
    """Return how well candidates are told from members; None without enough people on either side.

    ``trial``, bool of shape (P,), marks the pool rows to compare, ties among them: who is alone may be few. Lopez-Paz
    and Oquab (2017), "Revisiting Classifier Two-Sample Tests". The AUC of the held-out half is a Mann-Whitney
    statistic: under exchangeability its mean is 1/2 and its variance at most ``(n1 + n0 + 1) / (12 n1 n0)``.
    """
    rng, people = np.random.default_rng(23), data.units
    # people are exchangeable, records are not: one record of each person is compared
    own = people.order[(people.bounds[:-1] + rng.random(len(people)) * np.diff(people.bounds)).astype(np.int64)]
    sides = [own[trial[own]], data.n + np.flatnonzero(trial[data.n :])]
    sides = [np.sort(rng.permutation(rows)[:MOST_PEOPLE]) for rows in sides]
    if min(map(len, sides)) < LEAST:
        return None
    y = np.concatenate([data.y, data.candidates[1]])
    if data.predicts_numbers:  # targets are compared like labels, by tenths of the training targets
        y = np.searchsorted(np.unique(np.quantile(data.y.astype(np.float64), np.linspace(0.1, 0.9, 9))), y)
    features = _list_features(data, np.concatenate(sides), y)
    outside = np.repeat([False, True], [len(s) for s in sides])
    learn = np.zeros(len(outside), dtype=bool)
    for side in (False, True):
        rows = np.flatnonzero(outside == side)
        # one person's candidates mostly stand together: a person in both halves would pass for a shift
        rows = rows if data.groups is not None and side else rng.permutation(rows)
        learn[rows[: len(rows) // 2]] = True
    return Shift(*compute(measure_shift, features, outside, learn, *(y[s] for s in sides)))


def measure_shift(features: Float, outside: Bool, learn: Bool, *labels: NDArray[Any]) -> tuple[float, ...]:
    """Return the fields of ``Shift``, by trees that learn from some rows, and by the labels of both sides."""
    from scipy.special import ndtr
    from sklearn.ensemble import RandomForestClassifier

    from privgate.statistics.roc import auc

    trees = RandomForestClassifier(100, min_samples_leaf=3, random_state=0, class_weight="balanced", n_jobs=1)
    held = outside[~learn]
    area = auc(trees.fit(features[learn], outside[learn]).predict_proba(features[~learn])[:, 1], held)
    n1, n0 = int(held.sum()), int((~held).sum())
    z = (area - 0.5) / np.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    return float(area), float(2 * ndtr(-abs(z))), *_compare_labels(*labels)


def _compare_labels(inside: NDArray[Any], outside: NDArray[Any]) -> tuple[float, float]:
    """Return the p-value of a chi-square test on label shares, rare labels as one, and the shares' distance."""
    from scipy.stats import chi2_contingency

    names, code = np.unique(np.concatenate([inside, outside]), return_inverse=True)
    table = np.stack([np.bincount(c, minlength=len(names)) for c in (code[: len(inside)], code[len(inside) :])])
    share = table / table.sum(axis=1, keepdims=True)
    distance = float(np.abs(share[0] - share[1]).sum() / 2)
    rare = table.sum(axis=0) * (table.sum(axis=1).min() / table.sum()) < 10
    if rare.any():
        table = np.column_stack([table[:, ~rare], table[:, rare].sum(axis=1)])
    if table.shape[1] < 2:
        return 1.0, distance
    return float(chi2_contingency(table, correction=False).pvalue), distance


def _list_features(data: TrainingData, rows: Index, y: NDArray[Any]) -> Float:
    """Return the classifier's features of pool rows, shape (R, w): ranks of columns or counts of words, and labels."""
    X = data.at(rows)
    if hasattr(X, "tocsr"):
        csr = X.tocsr()
        often = np.argsort(-np.asarray((csr != 0).sum(axis=0)).ravel(), kind="stable")[:MOST_COLUMNS]
        # sums over the rows of a sparse array have one axis, those of a sparse matrix two
        sums = [np.asarray(v.sum(axis=1)).reshape(-1, 1) for v in (csr != 0, csr)]
        columns = [csr[:, np.sort(often)].toarray(), *sums]
    elif isinstance(X, list):
        from sklearn.feature_extraction.text import HashingVectorizer

        texts = [str(v) for v in X]
        sizes = np.array([[len(t), t.count(" ")] for t in texts], dtype=np.float64)
        columns = [HashingVectorizer(n_features=MOST_COLUMNS, norm=None).transform(texts).toarray(), sizes]
    else:
        every = data_checks.list_columns(X)
        some = np.sort(np.random.default_rng(29).permutation(len(every))[:MOST_COLUMNS])
        columns = [_rank(every[j])[:, None] for j in some]
    label = np.unique(y, return_inverse=True)[1][rows][:, None]
    return np.hstack([np.asarray(c, dtype=np.float64) for c in (*columns, label)])


def _rank(values: Any) -> Float:
    # trees learn as much from ranks as from numbers, and float32 holds ranks whatever the offset or unit
    numbers = as_numbers(values)
    if numbers is None:
        return np.unique([str(x) for x in values.tolist()], return_inverse=True)[1].astype(np.float64)
    return np.unique(np.where(np.isnan(numbers), np.inf, numbers), return_inverse=True)[1].astype(np.float64)


def check_candidates(data: TrainingData, shift: Shift | None = None, copies: float = 0.0) -> list[Precondition]:
    """Check whether candidates equal members, nearly equal members, or are of another population; warn at most.

    ``shift`` is the pool's, None where too few people could be compared. At most a share of ``copies`` of the
    candidates are members, more than chance explains; 0 without an alarm.
    """
    if data.candidates is None or not len(data.candidates[1]):
        empty = partial(Precondition, outcome="passed", message="there are no candidates")
        return [empty("overlap", detail={"count": 0, "candidates": []}), empty("same_population", detail={"auc": None})]
    return [_check_copies(data, copies), _check_population(shift)]


def list_copies(data: TrainingData) -> Index:
    """Return the positions of candidates that equal a training record in features and label, ascending."""
    members = data_checks.fingerprint_with_label(data.X, data.y)
    candidates = data_checks.fingerprint_with_label(*data.candidates[:2])
    return np.flatnonzero(np.isin(candidates, members)).astype(np.int64)


def _check_copies(data: TrainingData, copies: float) -> Precondition:
    rows, total = list_copies(data), data.pool_size - data.n
    detail = {"count": len(rows), "of": total, "candidates": rows.tolist()}
    text = f"{Count(len(rows), total)} of {total} candidates equal a training record"
    if copies:
        step = "than chance explains: whoever is stored once more is nobody new: leave them out"
        text += f"; more of them equal or nearly equal one, or each other, {step}"
    elif len(rows):
        text += ", no more than chance explains"
    return Precondition("overlap", "warned" if copies else "passed", text, detail)


def _check_population(shift: Shift | None) -> Precondition:
    judge = partial(Precondition, "same_population")
    if shift is None:
        text = "whether candidates come from the same population was not looked at: too few people on one side"
        return judge("warned", text, {"auc": None})
    # more digits would tell how many records were compared, and so how many were left out as copies
    detail = {k: round(getattr(shift, k), 2) for k in ("auc", "labels", "p_auc", "p_labels")}
    if not shift.significant:
        text = f"nothing tells training records and candidates apart (AUC {shift.auc:.2f}, 0.5 is due)"
        return judge("passed", text, detail)
    text = f"candidates are not from the same population as the training records: {shift.sentence}"
    rest = "no attack is judged by them" if shift.clear else "too little to move a figure by much"
    return judge("warned", f"{text}; {rest}", detail)


def check_answers(without: Float, with_: Float, members: Float, others: Float) -> tuple[str, dict[str, float]]:
    """Return in words and numbers that members' answers contradict the measured influence; empty if they do not.

    A recipe that knows its data by another way answers well about members whoever is left out. By ranks, models without
    a member must answer about that member as about candidates. On average, members' answers may exceed candidates' by
    at most twice what their own records move. The arrays say how right a model is: ``without`` and ``with_``, (U,),
    about left-out members, ``members`` and ``others`` (candidates) by the full model.
    """
    if min(len(without), len(others), len(members)) < LEAST:
        return "", {}
    from scipy.stats import mannwhitneyu, norm

    moved = with_ - without
    # both must differ from candidates' the same way, because a model without a person leans away from that person
    way = "greater" if without.mean() > others.mean() else "less"
    ranks = max(2 * float(mannwhitneyu(answers, others, alternative=way).pvalue) for answers in (without, with_))
    apart = abs(float(members.mean() - others.mean() - moved.mean())) - float(np.abs(moved).mean())
    error = float(np.sqrt(sum(part.var(ddof=1) / len(part) for part in (members, others, moved))))
    means = float(2 * norm.sf(apart / error)) if error > 0 else float(apart <= 0)
    if min(ranks, means) > ANSWERS_LEVEL / 2:
        return "", {}
    text = (
        f"models that were trained without members answer about them otherwise than about candidates (on average "
        f"{without.mean():.2f} and {others.mean():.2f}), and leaving out explains {moved.mean():.2f}: the "
        "recipe may know its data by another way, or candidates are other people than members"
    )
    return text, {"p_ranks": ranks, "p_means": means}
