"""Counts in cells: categorical and Bernoulli naive Bayes, and partitions that no data moved.

Records.  ``cells`` each record is in one cell of each of d features or partitions. Counts are whole numbers, so that
what a person's absence takes off them is exact.

Claim.  Scores of class k are a constant plus a sum of what one cell of each feature adds (``_Model``). No answer about
a record of theirs (asked "own"), or to any accepted question ("any"), differs by more than ``high`` between the models
with and without a person; one about a record of theirs, or their ``question``, differs by ``low`` or more.

Certificate.  None: counts say it all.

Why it is enough.
1. A person who holds R of T records of class k in a cell takes ln((T + a) / (T - R + a)) off its score there, and in
   every cell of a feature of V categories adds -ln(1 - m / (N + a V)), m of the class's N records being theirs. A
   learnt prior loses ln(N / (N - m)); a fixed one nothing.
2. A change of a log-odds is a sum over features, so its maximum is the sum of the features' maxima.
   Where there are few questions, all of them are put, and for two classes those that matter (``_ends``).
3. Where a class is left without records, or a feature without the category that sets its size, nothing is limited.
4. One table: no other cell than a person's own changes. Without smoothing an empty cell answers 1 / K for all labels.
5. Shares of declared classes (setting ``declared``) stay defined where a class is left without records.
6. ``scores`` turns changes of scores into those of answers.

Axioms.  Training counts, and answers are computed as scikit-learn's ``CategoricalNB`` and ``BernoulliNB``, and
privgate's ``ContingencyTable`` do; ``BernoulliNB`` computes ln(1 - exp(ln p)) (``_negated``).
"""

import math
from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import cached_property
from typing import NamedTuple

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import ELEMENTARY, EPS, gamma, of_logarithm
from privgate.kernel.scores import BLOCK, Block, Scope, at, blocks, fixed_prior, labels, largest, over, settled

#: answers up to which everybody is put every accepted question, and those that are put at the ends otherwise
_ANSWERS, _ENDS = 1 << 24, 1 << 22
#: smoothing below which numbers that are divided by it may overflow
_TINY = 1e-290


@dataclass(frozen=True, eq=False)
class _Model:
    """Scores ``bias[k] + sum_j table[cell of feature j, k]``."""

    #: shapes (n,) and (n, d)
    label: Index
    cells: Index
    #: shape (d,): first cell of each feature
    start: Index
    #: shape (cells, K): records of each class in each cell
    T: Float
    #: shape (K,)
    N: Float
    alpha: float
    #: shape (d, K): what shares are of: N + alpha V
    whole: Float
    #: shape (K,)
    bias: Float
    #: whether the bias follows N
    learnt: bool
    #: what Bernoulli's rounding adds to ``off``
    negated: float = 0.0

    @classmethod
    def from_case(cls, case: Case, codes: Index, sizes: Index) -> "_Model":
        """Return the model that is trained on the case's records."""
        (label, N), alpha = labels(case, codes.shape), case.setting("alpha", float)
        every((alpha >= _TINY, "without smoothing a cell may be impossible"))
        start, fixed = np.cumsum(sizes) - sizes, fixed_prior(case, len(N))
        cells = codes + start
        T, whole = _count(cells, label, sizes, len(N)), N + alpha * sizes[:, None]
        return cls(label, cells, start, T, N, alpha, whole, np.log(N) if fixed is None else fixed, fixed is None)

    @property
    def sizes(self) -> Index:
        return np.diff(self.start, append=len(self.T))

    @cached_property
    def table(self) -> Float:
        """What each cell adds to the scores, (cells, K)."""
        return np.asarray(np.log(self.T + self.alpha) - np.repeat(np.log(self.whole), self.sizes, axis=0))

    @cached_property
    def off(self) -> float:
        """Largest error of a score, with or without any person, in the library and here."""
        d, V = len(self.start), int(self.sizes.max())
        top = float(self.N.sum()) + self.alpha * V
        one = 2 * max(abs(np.log(self.alpha)), abs(np.log(top)), 1.0)
        size = 3 * d * one + np.log(top) + np.abs(self.bias).max()
        return self.negated + float(2 * (d * gamma(V + 8) + (gamma(d + 8) + ELEMENTARY) * size))


def _count(cells: Index, label: Index, sizes: Index, K: int) -> Float:
    """Return how many records of each class are in each cell, (cells, K); of ``cells`` (n, d), ``sizes`` (d,)."""
    counts = np.bincount((cells * K + label[:, None]).ravel(), minlength=int(sizes.sum()) * K)
    return counts.reshape(-1, K).astype(np.float64)


class _Loss(NamedTuple):
    """What some people's absence takes off scores: ``bias`` (U, K), ``M`` (K, U, cells); records that remain (U, K)."""

    remaining: Float
    bias: Float
    M: Float

    @classmethod
    def from_model(cls, model: _Model, block: Block) -> "_Loss":
        """Return what each of some people's absence takes off."""
        (_, rows, who, U), (cells, K), label = block, model.T.shape, model.label[block.rows]
        m = np.zeros((U, K))
        np.add.at(m, (who, label), 1.0)
        shift = np.log1p(-m[:, None, :] / model.whole)  # (U, d, K)
        M = np.repeat(shift.transpose(2, 0, 1), model.sizes, axis=2)
        key, R = np.unique((label * U + who)[:, None] * cells + model.cells[rows], return_counts=True)
        T = model.T[key % cells, key // (cells * U)]
        M.ravel()[key] += np.log1p(R / (T - R + model.alpha))
        bias = -np.log1p(-m / model.N) if model.learnt else np.zeros((U, K))
        return cls(model.N - m, bias, M)

    def at(self, model: _Model, cells: Index, who: Index) -> tuple[Float, Float]:
        """Return (low, high) at questions in these cells (m, d), without the people ``who``."""
        z, each = model.bias + model.table[cells].sum(axis=1), who[:, None]
        lost = np.stack([M[each, cells].sum(axis=1) for M in self.M], axis=1)
        return at(z, z - self.bias[who] - lost, model.off)


def categorical(case: Case) -> Limits:
    """Return limits of naive Bayes over categories: ``codes`` (n, d), of which an estimator knows ``sizes`` (d,)."""
    codes, sizes, floor = case.array("codes", 2, "i"), case.array("sizes", 1, "i"), case.array("floor", 1, "i")
    n, d = codes.shape
    every((n > 0 and d > 0 and sizes.shape == (d,) == floor.shape, "records, 'sizes' and 'floor' differ"))
    every(
        (bool((codes >= 0).all()), "a record is in no cell"),
        (bool((sizes == np.maximum(codes.max(axis=0) + 1, floor)).all()), "training knows other 'sizes'"),
    )
    model, (person, people) = _Model.from_case(case, codes, sizes), case.person(n)
    accepted = case.array("accepted", 1, "i") if case.scope == "any" else sizes
    within = accepted.shape == (d,) and bool(((accepted > 0) & (accepted <= sizes)).all())
    every((within, "'accepted' are other categories"))
    if case.setting("bernoulli", bool):
        every((bool((floor == 2).all() and (sizes == 2).all()), "features of Bernoulli's are 0 and 1"))
        model = replace(model, negated=2 * _negated(model, person, people))
    limits = _limits(case, model, accepted)
    low, high = limits.low, limits.high
    for j in np.flatnonzero(sizes > floor):
        holders = person[codes[:, j] == sizes[j] - 1]
        if (holders == holders[0]).all():  # training without them knows one category less
            high[holders[0]] = np.inf
            low[holders[0]] = np.inf if accepted[j] == sizes[j] else 0.0
    return Limits(low, high)


def _negated(model: _Model, person: Index, people: int) -> float:
    """Return how far ``ln(1 - exp(ln p))`` moves a score, at most.

    ln p errs by ``own``; 1 - p by that share of p and by half a unit of 1, which is a share of 1 - p.
    """
    K, a = len(model.N), model.alpha
    most = np.bincount(person * K + model.label, minlength=people * K).reshape(people, K).max(axis=0)
    zeros, ones = np.maximum(model.T[::2] - most, 0.0) + a, model.T[1::2] + a
    size = np.abs(np.log(a)) + np.log1p(model.N.sum() + 2 * a)
    own = ELEMENTARY * 2 * size + 8 * EPS
    taken = of_logarithm(2 * (own * ones / zeros + EPS * (ones + zeros) / zeros))
    return float(taken.sum(axis=0).max())


def partitions(case: Case) -> Limits:
    """Return limits of a table that no data moved: ``leaf`` (n, 1), of ``sizes`` (1,), is where each record counts.

    A person's absence changes only that person's cells.
    """
    leaf, sizes = case.array("leaf", 2, "i"), case.array("sizes", 1, "i")
    every((leaf.shape[1:] == sizes.shape == (1,), "several partitions, as of RandomTrees, which went with 0.1.0"))
    declared, a = case.setting("declared", bool, default=False), case.setting("alpha", float)
    label, N = labels(case, leaf.shape, declared=declared)
    every(
        (a >= _TINY or a == 0, "without smoothing a cell may be impossible"),
        (bool(((leaf >= 0) & (leaf < sizes)).all()), "a record is in no cell"),
    )
    (person, people), K, cells = case.person(len(leaf)), len(N), int(sizes[0])
    key, where = np.unique(person * cells + leaf[:, 0], return_inverse=True)
    R, m = np.zeros((len(key), K)), np.zeros((people, K))
    np.add.at(R, (where.ravel(), label), 1.0)
    np.add.at(m, (person, label), 1.0)
    T = _count(leaf, label, sizes, K)[key % cells]
    p, q = (np.where(t.sum(axis=1, keepdims=True) + K * a > 0, t + a, 1.0) for t in (T, T - R))
    p, q = p / p.sum(axis=1, keepdims=True), q / q.sum(axis=1, keepdims=True)
    change = np.where(p == q, 0.0, np.abs(np.log(p) - np.log(q))).max(axis=1)
    size = 1 + (abs(np.log(a)) if a > 0 else 0.0) + np.log(N.sum() + K * (a + 1))
    most, off = largest(key // cells, people, change), float(8 * (gamma(2 * K + 26) + ELEMENTARY * size))
    gone = (m >= N).any(axis=1) & (not declared)
    return Limits(np.where(gone, np.inf, np.maximum(most - off, 0.0)), np.where(gone, np.inf, most + off))


def _limits(case: Case, model: _Model, questions: Index) -> Limits:
    """Return limits of a sum over features, of which the first ``questions`` (d,) cells each are accepted."""
    table, (person, people) = model.table, case.person(len(model.label))
    limit, question = case.setting("limit", float, default=1.0), _question(case, model, questions, people)
    chosen = np.concatenate([s + np.arange(a) for s, a in zip(model.start, questions, strict=True)])
    start, w = np.cumsum(questions) - questions, (table[chosen, 1] - table[chosen, 0], model.bias[1] - model.bias[0])
    top = _odds(table.T[:, None, chosen], model.bias[None], start)[0]
    low, high, observed = np.empty(people), np.empty(people), np.zeros(1)
    for block in blocks(person, people, model.T.size):
        loss, some = _Loss.from_model(model, block), block.people
        below, most = loss.at(model, model.cells[block.rows], block.who)
        if case.scope == "any":
            inside = (model.cells[block.rows] - model.start < questions).all(axis=1)
            below, M = np.where(inside, below, 0.0), loss.M[:, :, chosen]
            scope = Scope(top, limit, _reach(w, M, loss.bias, start))
            most = over(_odds(M, loss.bias, start), model.off, scope)
            few = people * len(questions) * questions.prod(dtype=np.float64) <= _ANSWERS
            most = _enumerated(model, loss, questions, most, 0.0 if few else limit)
            observed = loss.at(model, np.maximum(question[some], 0), np.arange(block.U))[0]
            observed = np.where((question[some] >= 0).all(axis=1), observed, 0.0)
            if not few and len(loss.M) == 2:
                reached, most = _ends(model, loss, questions, most, limit)
                observed = np.fmax(observed, reached) if case.setting("every", bool, default=False) else observed
        else:
            most = largest(block.who, block.U, most)
        low[some], high[some] = settled(block, below, observed, most, loss.remaining)
    return Limits(low, high)


def _enumerated(model: _Model, loss: _Loss, questions: Index, high: Float, limit: float) -> Float:
    """Return what changes most over every accepted question, of people above the limit, if they are few answers."""
    some, count = np.flatnonzero(high > limit), questions.prod(dtype=np.float64)
    if not 0 < len(some) * count * len(questions) <= _ANSWERS:
        return high
    cells = np.stack(np.unravel_index(np.arange(int(count)), tuple(questions)), axis=1) + model.start
    high, step = high.copy(), max(1, BLOCK // (len(cells) * len(questions)))
    for part in np.split(some, np.arange(step, len(some), step)):
        most = loss.at(model, np.tile(cells, (len(part), 1)), np.repeat(part, len(cells)))[1]
        high[part] = np.minimum(high[part], most.reshape(len(part), -1).max(axis=1))
    return high


def _ends(model: _Model, loss: _Loss, questions: Index, high: Float, limit: float) -> tuple[Float, Float]:
    """Return (low, high) for two classes, of the first people above the limit, if their questions are few.

    At questions that move the log-odds alike, an answer changes more the farther up, or down, the log-odds are: each
    label's change is monotone in them, and what rounding adds is largest at an end. So of the cells of a feature that
    a person's absence moves alike only the two with the most and the least log-odds are put, all ends on one side.
    """
    w, budget = model.table[:, 1] - model.table[:, 0], _ENDS
    low, high = np.zeros(len(high)), high.copy()
    for u in np.flatnonzero(high > limit):
        move, up, down = loss.M[1, u] - loss.M[0, u], [], []
        for first, count in zip(model.start, questions, strict=True):
            cells = first + np.lexsort((w[first : first + count], move[first : first + count]))
            edge = np.flatnonzero(np.diff(move[cells]) != 0)
            up.append(cells[np.append(edge, len(cells) - 1)])
            down.append(cells[np.append(0, edge + 1)])
        budget -= len(questions) * math.prod(len(c) for c in up)
        if budget < 0:
            break
        put = np.concatenate([np.stack([v.ravel() for v in np.meshgrid(*side)], axis=1) for side in (up, down)])
        below, most = loss.at(model, put, np.full(len(put), u))
        low[u], top = below.max(), most.max() + (most - below).max() + 8 * model.off
        high[u] = np.fmin(high[u], top)
    return low, high


def _odds(M: Float, bias: Float, start: Index) -> Float:
    """Return the largest sum of a first class less a second's, (U, K, K): in each feature the cell with most."""
    odds = np.zeros((len(bias), len(M), len(M)))
    for a in range(len(M)):
        for b in range(a):
            change, moved = M[a] - M[b], bias[:, a] - bias[:, b]
            odds[:, a, b] = np.maximum.reduceat(change, start, axis=1).sum(axis=1) + moved
            odds[:, b, a] = -np.minimum.reduceat(change, start, axis=1).sum(axis=1) - moved
    return odds


def _reach(w: tuple[Float, float], M: Float, bias: Float, start: Index) -> Callable[..., Float]:
    """Return what ``over`` asks: the sum of the features' largest combinations of log-odds ``w`` and change."""

    def reach(who: Index, k: float, n: float) -> Float:
        change, moved = M[1, who] - M[0, who], bias[who, 1] - bias[who, 0]
        return np.asarray(np.maximum.reduceat(k * w[0] - n * change, start, axis=1).sum(axis=1) + k * w[1] - n * moved)

    return reach


def _question(case: Case, model: _Model, questions: Index, people: int) -> Index:
    """Return the cells (people, d) of array ``question``, codes of accepted ones; -1 where there is none."""
    if "question" not in case.arrays:
        return np.full((people, len(questions)), -1)
    question = case.array("question", 2, "i")
    every((question.shape == (people, len(questions)), "'question' fits nobody"))
    return np.where(((question >= 0) & (question < questions)).all(axis=1, keepdims=True), question + model.start, -1)
