"""Whether candidates are people like the members whom the model has not seen: no copies, and of one population.

A copy that was stored as float32 has other bits, and falls into the same cell of a fine grid. Candidates of one class
only, of another year or another country move an attack's success freely: a classifier that sees features and label
tries to tell members from candidates, without the model under test.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.controls import data_checks
from privgate.evidence import Count, Precondition
from privgate.evidence.telling import share as hide_share
from privgate.subject.containers import as_numbers
from privgate.subject.data import TrainingData

#: probability that an honest split is called shifted: a half for the AUC, a half for the labels
LEVEL = 2e-3
#: a smaller shift is told, but judged: an AUC of 0.53 moves an attack's accuracy by about 2 points
LEAST_AUC = 0.53
#: total variation distance of the label shares; moves an attack's accuracy by at most half of it
LEAST_LABELS = 0.04
#: people of either side that the classifier sees; columns it sees
MOST_PEOPLE, MOST_COLUMNS = 4000, 256
#: people on either side without whom nothing is shown
LEAST = 20
#: probability of a false alarm about members' answers, half in each of two tests
ANSWERS_LEVEL = 1e-3
#: probability that an honest split is called too alike; before members are charged for a twin, errors cost less
ALIKE_LEVEL, CHARGED = 1e-4, 1e-2
#: candidates with a twin beyond what chance explains: from this share on, no attack is judged
MOST_TWINS = 0.05
#: records may be left out of the trials on account of a twin if distinct members have one no oftener than this
RARE = 0.002
_NAMES = ("overlap", "near_overlap", "same_population")
#: whether it warns, one sentence, and JSON values
Checked = tuple[bool, str, dict[str, Any]]


@dataclass(frozen=True, eq=False)
class Twins:
    """How many candidates nearly equal a member."""

    #: candidates and members that were compared
    checked: int
    among: int
    #: of the candidates, who have a twin among the members; of the members, who have one among members of other people
    share: float
    usual: float
    #: an honest split shows so many more candidates with probability at most 1e-4
    clear: bool
    #: pool rows that have a twin among the members, or are one: no trials; none where distinct members have twins, too
    rows: Index
    #: members who have one, where rows are left out
    others: int = 0

    @property
    def shares(self) -> tuple[float, float]:
        """``share`` and ``usual`` as a report may say them: of a few people, the most that they could be."""
        one = hide_share(self.share, self.share, self.checked)[1]
        return one, hide_share(self.usual, self.usual, self.among)[1]

    @property
    def sentence(self) -> str:
        """What was seen, in words from which no small count of people follows."""
        words = [
            f"{'up to ' if Count(round(s * n), n).hidden else ''}{s:.1%}"
            for s, n in zip(self.shares, (self.checked, self.among), strict=True)
        ]
        text = f"{words[0]} of the candidates that were compared are nearly equal to a training record"
        return f"{text}, where {words[1]} would be by chance"

    @property
    def too_many(self) -> bool:
        """Whether so many candidates are members in disguise that members cannot be told from others."""
        return self.clear and (self.share - self.usual) / (1 - self.usual) >= MOST_TWINS


def find_twins(data: TrainingData, trial: Bool) -> Twins | None:
    """Return how many candidates nearly equal a member; None where too few can be compared.

    ``trial``, bool of shape (P,), are the pool rows that no other person's row equals exactly. Labels are not compared.
    What counts is how much oftener a candidate has a twin among the members than a member has one among the other
    members: where columns have few values, honest people are alike as well.
    """
    n = data.n
    outside, inside = n + np.flatnonzero(trial[n:]), np.flatnonzero(trial[:n])
    if min(len(outside), len(inside)) < 2:
        return None
    near, original = np.zeros(len(trial), dtype=bool), np.zeros(n, dtype=bool)
    for prints in _round_records(data.pool()[0]):
        near[:n] |= data_checks.is_shared(prints[:n], data.units.owner)
        near[n:] |= np.isin(prints[n:], prints[:n])
        original |= np.isin(prints[:n], prints[outside])
    hits, others = int(near[outside].sum()), int(near[inside].sum())
    share, usual = hits / len(outside), others / len(inside)
    clear = share > usual and test_oftener(hits, len(outside), others, len(inside)) <= ALIKE_LEVEL
    rows, others = np.zeros(0, dtype=np.int64), others if usual <= RARE else 0
    if usual <= RARE:
        rows = np.unique(np.concatenate([outside[near[outside]], np.flatnonzero(original), inside[near[inside]]]))
    return Twins(len(outside), len(inside), share, usual, clear, rows, others)


def _round_records(X: Any) -> tuple[data_checks.Print, ...]:
    """Return numbers a record that are equal for near ones, or for equal ones where nearness has no meaning."""
    if not hasattr(X, "tocsr"):
        return data_checks.fingerprint_near(X) or (data_checks.fingerprint(X),)
    grids = [X.tocsr().astype(np.float64) for _ in range(2)]
    step = (float(np.nanstd(grids[0].data)) if grids[0].nnz else 0.0) * 1e-3 or 1.0
    for grid, shift in zip(grids, (0.0, 0.5), strict=True):
        grid.data = np.floor(grid.data / step + shift)
    return tuple(map(data_checks.fingerprint, grids))


def test_oftener(hits: int, among: int, usual: int, of: int) -> float:
    """Return P(at least ``hits`` of ``among`` candidates match) if members match one another as often.

    One-sided Fisher test; members' matches come in pairs, so that half of them are counted.
    """
    from scipy.stats import hypergeom

    half, pairs = -(-usual // 2), -(-of // 2)
    return float(hypergeom.sf(hits - 1, among + pairs, hits + half, among))


@dataclass(frozen=True, slots=True)
class Shift:
    """How well members and candidates are told apart by what they are."""

    #: of a classifier on features and label, on people whom it has not seen; 0.5 where nothing tells them apart. Far
    #: below, what was learned is the wrong way round: candidates were made from members, or picked beside them, and lie
    #: in one half what their originals are in the other
    auc: float
    #: probabilities of as much if both are exchangeable
    p_auc: float
    p_labels: float
    #: total variation distance between the label shares, in [0, 1]
    labels: float

    @property
    def seen(self) -> bool:
        """Whether exchangeability is refuted at level 2e-3."""
        return min(self.p_auc, self.p_labels) <= LEVEL / 2

    @property
    def clear(self) -> bool:
        """Whether it is refuted, and large enough to move an attack's success."""
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


def find_shift(data: TrainingData, trial: Bool) -> Shift | None:
    """Return how far candidates are from members; None without enough people on either side.

    ``trial``, bool of shape (P,), are the pool rows to compare: copies on both sides, or among the candidates, would be
    learned by heart. Lopez-Paz and Oquab (2017), "Revisiting Classifier Two-Sample Tests"; the AUC of the held-out half
    is a Mann-Whitney statistic: mean 1/2 and variance at most ``(n1 + n0 + 1) / (12 n1 n0)`` under exchangeability.
    """
    if data.candidates is None:
        return None
    rng, people = np.random.default_rng(23), data.units  # people are exchangeable, not records: one of each
    own = people.order[(people.bounds[:-1] + rng.random(len(people)) * np.diff(people.bounds)).astype(np.int64)]
    sides = [own[trial[own]], data.n + np.flatnonzero(trial[data.n :])]
    sides = [np.sort(rng.permutation(rows)[:MOST_PEOPLE]) for rows in sides]
    if min(map(len, sides)) < LEAST:
        return None
    y = np.concatenate([data.y, data.candidates[1]])
    if data.numbers:  # compared as labels are, by tenths of the training targets
        y = np.searchsorted(np.unique(np.quantile(data.y.astype(np.float64), np.linspace(0.1, 0.9, 9))), y)
    p_labels, distance = _compare_labels(y[sides[0]], y[sides[1]])
    features = _list_features(data, np.concatenate(sides), y)
    outside = np.repeat([False, True], [len(s) for s in sides])
    learn = np.zeros(len(outside), dtype=bool)
    for side in (False, True):
        rows = np.flatnonzero(outside == side)
        # several candidates may be one person's records, which mostly stand together; learned in one half and asked in
        # the other they would pass for a shift
        rows = rows if data.groups is not None and side else rng.permutation(rows)
        learn[rows[: len(rows) // 2]] = True
    from scipy.special import ndtr
    from sklearn.ensemble import RandomForestClassifier

    from privgate.statistics.roc import auc

    trees = RandomForestClassifier(100, min_samples_leaf=3, random_state=0, class_weight="balanced", n_jobs=1)
    held = outside[~learn]
    area = auc(trees.fit(features[learn], outside[learn]).predict_proba(features[~learn])[:, 1], held)
    n1, n0 = int(held.sum()), int((~held).sum())
    z = (area - 0.5) / np.sqrt((n1 + n0 + 1) / (12 * n1 * n0))
    return Shift(float(area), float(2 * ndtr(-abs(z))), p_labels, distance)


def _compare_labels(inside: NDArray[Any], outside: NDArray[Any]) -> tuple[float, float]:
    """Return (p-value of a chi-square test on label shares, their total variation distance); rare labels as one."""
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
    """Return what the classifier sees of pool rows, shape (R, w): columns as ranks, words as counts, and the label."""
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
    """Return a column as finite numbers that float32 holds; categories as positions in their order.

    Ranks tell trees as much as the numbers do, and no offset or unit rounds them away.
    """
    numbers = as_numbers(values)
    if numbers is None:
        return np.unique([str(x) for x in values.tolist()], return_inverse=True)[1].astype(np.float64)
    return np.unique(np.where(np.isnan(numbers), np.inf, numbers), return_inverse=True)[1].astype(np.float64)


def check_strangers(
    data: TrainingData, twins: Twins | None = None, shift: Shift | None = None, nearly: int = 0
) -> list[Precondition]:
    """Return whether candidates are copies of members, members in disguise, or of another population.

    Warnings and no more: rules that need candidates are inconclusive then and say so themselves, others do not.

    ``twins`` and ``shift`` are what the pool found, None where it could not be looked for; ``nearly`` candidates are
    left out of every attack because a member nearly equals them.
    """
    if data.candidates is None or not len(data.candidates[1]):
        empty: tuple[dict[str, Any], ...] = ({"count": 0, "candidates": []}, {"share": 0.0}, {"auc": None})
        return [Precondition(n, "passed", "there are no candidates", d) for n, d in zip(_NAMES, empty, strict=True)]
    checks = (_check_copies(data), _check_twins(twins, nearly), _check_population(shift))
    return [
        Precondition(name, "warned" if warned else "passed", text, detail)
        for name, (warned, text, detail) in zip(_NAMES, checks, strict=True)
    ]


def list_copies(data: TrainingData) -> Index:
    """Return the positions of candidates that equal a training record in features and label, ascending."""
    if data.candidates is None:
        return np.zeros(0, dtype=np.int64)
    members, candidates = (
        data_checks.fingerprint_with_label(data.X, data.y),
        data_checks.fingerprint_with_label(*data.candidates),
    )
    return np.flatnonzero(np.isin(candidates, members)).astype(np.int64)


def _check_copies(data: TrainingData) -> Checked:
    rows, total = list_copies(data), data.pool_size - data.n
    detail = {"count": len(rows), "of": total, "candidates": rows.tolist()}
    if not len(rows):
        return False, f"none of {total} candidates is also a training record", detail
    # a rule that needs candidates cannot be judged then and says so itself; others do not need them
    alone = ": nobody is left to compare with, so no attack can be judged"
    rest = alone if len(rows) == total else "; they are left out of every attack"
    return True, f"{Count(len(rows), total)} of {total} candidates equal a training record{rest}", detail


def _check_twins(twins: Twins | None, nearly: int) -> Checked:
    if twins is None:
        text = "whether candidates are training records in all but a few digits was not looked at: too few people"
        return True, text, {"share": None}
    share, usual = twins.shares
    detail = {"checked": twins.checked, "share": share, "usual": usual, "removed": nearly}
    removed = f"{Count(nearly)} are left out of every attack"
    if not twins.clear:
        text = "no more candidates than chance explains are nearly equal to a training record"
        return False, f"{text}; {removed}" if nearly else text, detail
    return True, f"{twins.sentence}; {'no attack is judged by them' if twins.too_many else removed}", detail


def _check_population(shift: Shift | None) -> Checked:
    if shift is None:
        text = "whether candidates come from the same population was not looked at: too few people on one side"
        return True, text, {"auc": None}
    # more digits, or how many were compared, would tell how many equal a record of the other side: each is left out
    detail = {k: round(getattr(shift, k), 2) for k in ("auc", "labels", "p_auc", "p_labels")}
    if not shift.seen:
        return False, f"nothing tells training records and candidates apart (AUC {shift.auc:.2f}, 0.5 is due)", detail
    text = f"candidates are not from the same population as the training records: {shift.sentence}"
    rest = "no attack is judged by them" if shift.clear else "too little to move a figure by much"
    return True, f"{text}; {rest}", detail


def check_answers(without: Float, with_: Float, members: Float, others: Float) -> Precondition | None:
    """Return the finding that members' answers contradict the measured influence; None if they do not.

    A recipe that knows its data by another way answers about members as it always did, whoever is left out. Members'
    answers by models without them and candidates' answers come from one distribution, but for what a person's own
    record moves: they are compared by ranks. And members are answered better than candidates by what their own records
    change, on average over those who were left out, and by at most twice that.

    Arrays say how right models are about a member, larger is better: one without that person and the one that knows
    all, shape (U,); and of all members and of candidates, by the model that knows the members.
    """
    if min(len(without), len(others), len(members)) < LEAST:
        return None
    from scipy.stats import mannwhitneyu, norm

    moved = with_ - without
    # an answer without a person leans away from that person: what its record moves is no sign, whichever way it counts
    way = "greater" if without.mean() > others.mean() else "less"
    ranks = max(2 * float(mannwhitneyu(side, others, alternative=way).pvalue) for side in (without, with_))
    apart = abs(float(members.mean() - others.mean() - moved.mean())) - float(np.abs(moved).mean())
    error = float(np.sqrt(sum(part.var(ddof=1) / len(part) for part in (members, others, moved))))
    means = float(2 * norm.sf(apart / error)) if error > 0 else float(apart <= 0)
    if min(ranks, means) > ANSWERS_LEVEL / 2:
        return None
    text = (
        f"models that were trained without members answer about them otherwise than about candidates (on average "
        f"{without.mean():.2f} and {others.mean():.2f}), and leaving out explains {moved.mean():.2f}: the "
        "recipe may know its data by another way, or candidates are other people than members"
    )
    return Precondition("answers", "inconclusive", text, {"p_ranks": ranks, "p_means": means})
