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
3. Where a class is left without records, or a feature without the category that sets its size, nothing is limited.
4. The arithmetic mean of shares: p / p' is a ratio of sums of one cell's share a partition; it is at most r if
   sum_b max over cells of (p_b - r p'_b) <= 0.
5. ``scores`` turns changes of scores into those of answers.

Axioms.  Training counts, and answers are computed as scikit-learn's ``CategoricalNB`` and ``BernoulliNB``, and
privgate's ``ContingencyTable`` and ``RandomTrees`` do; the latter computes ln(1 - exp(ln p)) (``_negated``).
"""

from collections.abc import Iterator
from dataclasses import dataclass

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import ELEMENTARY, EPS, gamma, of_logarithm
from privgate.kernel.scores import BLOCK, at, largest, over

#: halvings of the interval in which a ratio is looked for
_HALVINGS = 40
#: smoothing below which numbers that are divided by it may overflow
_TINY = 1e-290


@dataclass(frozen=True, eq=False)
class _Model:
    """Scores ``bias[k] + scale * sum_j table[cell of feature j, k]``.

    Parameters
    ----------
    label, cells : int64 arrays of shape (n,) and (n, d)
    start : int64 array of shape (d,)
        First cell of each feature.
    T : float64 array of shape (cells, K)
        Records of each class in each cell.
    N : float64 array of shape (K,)
    alpha : float
    whole : float64 array of shape (d, K)
        What shares are of: N + alpha V; infinite where it is the same for all classes.
    bias : float64 array of shape (K,)
    learnt : bool
        Whether the bias follows N.
    scale : float
    """

    label: Index
    cells: Index
    start: Index
    T: Float
    N: Float
    alpha: float
    whole: Float
    bias: Float
    learnt: bool
    scale: float = 1.0

    @classmethod
    def of(cls, case: Case, codes: Index, sizes: Index, *, shares: bool) -> "_Model":
        """Return the model that is trained on the case's records; ``shares`` are of N, or of what is in the cell."""
        label, K, alpha = case.array("label", 1, "i"), case.setting("classes", int), case.setting("alpha", float)
        n, d = codes.shape
        every(
            (n > 0 and d > 0 and label.shape == (n,), "records and labels differ"),
            (K >= 2 and bool(((label >= 0) & (label < K)).all()), f"labels are not from 0 to {K - 1}"),
            (alpha >= _TINY, "without smoothing a cell may be impossible"),
            (sizes.shape == (d,) and bool(((codes >= 0) & (codes < sizes)).all()), "a record is in no cell"),
        )
        N, start = np.bincount(label, minlength=K).astype(np.float64), np.cumsum(sizes) - sizes
        every((bool((N > 0).all()), "a class has no record"))
        cells = codes + start
        T = np.bincount((cells * K + label[:, None]).ravel(), minlength=int(sizes.sum()) * K).reshape(-1, K)
        learnt = shares and case.setting("fit_prior", bool)
        bias = case.array("log_prior", 1) if "log_prior" in case.arrays else np.zeros(K)
        every((bias.shape == (K,) and bool(np.isfinite(bias).all()), f"'log_prior' is not of {K} numbers"))
        whole = N + alpha * sizes[:, None] if shares else np.full((d, K), np.inf)
        return cls(
            label,
            cells,
            start,
            T.astype(np.float64),
            N,
            alpha,
            whole,
            np.log(N) if learnt else bias,
            learnt,
            1.0 if shares else 1.0 / d,
        )

    @property
    def sizes(self) -> Index:
        return np.diff(self.start, append=len(self.T))

    @property
    def table(self) -> Float:
        """What each cell adds to the scores, (cells, K)."""
        of = np.where(np.isfinite(self.whole), np.log(self.whole), 0.0)
        return np.asarray(self.scale * (np.log(self.T + self.alpha) - np.repeat(of, self.sizes, axis=0)))

    @property
    def off(self) -> float:
        """How far a score is off with or without anybody, in the library; twice, for what is lost here."""
        d, V = len(self.start), int(self.sizes.max())
        top = float(self.N.sum()) + self.alpha * V
        one = 2 * max(abs(np.log(self.alpha)), abs(np.log(top)), 1.0)
        size = 3 * d * self.scale * one + np.log(top) + np.abs(self.bias).max()
        return float(2 * (d * self.scale * gamma(V + 8) + (gamma(d + 8) + ELEMENTARY) * size))


@dataclass(frozen=True, eq=False)
class _Block:
    """Some people: what their absence takes off the scores of class k in each cell, ``M`` (K, U, cells)."""

    people: slice
    rows: Index
    who: Index
    left: Float
    bias: Float
    M: Float

    def without(self, z: Float, cells: Index, who: Index) -> Float:
        """Return scores without the people ``who`` in these cells (m, d), ``z`` (m, K) with everybody."""
        M, each = self.M, who[:, None]
        return z - self.bias[who] - np.stack([M[k][each, cells].sum(axis=1) for k in range(len(M))], axis=1)


def _blocks(model: _Model, person: Index, people: int) -> Iterator[_Block]:
    """Yield everybody, in blocks that fit the memory."""
    (cells, K), order = model.T.shape, np.argsort(person, kind="stable")
    first = np.searchsorted(person[order], np.arange(people + 1))
    step = max(1, BLOCK // (cells * K))
    for p in range(0, people, step):
        U = min(step, people - p)
        rows = order[first[p] : first[p + U]]
        who, label = person[rows] - p, model.label[rows]
        m = np.zeros((U, K))
        np.add.at(m, (who, label), 1.0)
        shift = np.log1p(-m[:, None, :] / model.whole)  # (U, d, K)
        M = np.repeat(shift.transpose(2, 0, 1), model.sizes, axis=2)
        key = ((label * U + who)[:, None] * cells + model.cells[rows]).ravel()
        key, R = np.unique(key, return_counts=True)
        T = model.T[key % cells, key // (cells * U)]
        M.ravel()[key] += np.log1p(R / (T - R + model.alpha))
        bias = -np.log1p(-m / model.N) if model.learnt else np.zeros((U, K))
        yield _Block(slice(p, p + U), rows, who, model.N - m, bias, model.scale * M)


def categorical(case: Case) -> Limits:
    """Return limits of naive Bayes over categories: ``codes`` (n, d), of which an estimator knows ``sizes`` (d,)."""
    codes, sizes, floor = case.array("codes", 2, "i"), case.array("sizes", 1, "i"), case.array("floor", 1, "i")
    n, d = codes.shape
    every((n > 0 and d > 0 and sizes.shape == (d,) == floor.shape, "records, 'sizes' and 'floor' differ"))
    every((bool((sizes == np.maximum(codes.max(axis=0) + 1, floor)).all()), "training knows other 'sizes'"))
    model, (person, people) = _Model.of(case, codes, sizes, shares=True), case.person(n)
    asked = case.array("accepted", 1, "i") if case.asked == "any" else sizes
    every((asked.shape == (d,) and bool(((asked > 0) & (asked <= sizes)).all()), "'accepted' are other categories"))
    off = model.off
    if case.setting("bernoulli", bool, default=False):
        every((bool((floor == 2).all() and (sizes == 2).all()), "features of Bernoulli's are 0 and 1"))
        off += 2 * _negated(model, person, people)
    found = _limits(case, model, person, people, asked, off)
    low, high = found.low, found.high
    for j in np.flatnonzero(sizes > floor):
        holders = person[codes[:, j] == sizes[j] - 1]
        if (holders == holders[0]).all():  # training without them knows one category less
            high[holders[0]] = np.inf
            low[holders[0]] = np.inf if asked[j] == sizes[j] else 0.0
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
    """Return limits of partitions that no data moved: cells ``leaf`` (n, B), of ``sizes`` (B,); every cell is asked."""
    leaf, sizes = case.array("leaf", 2, "i"), case.array("sizes", 1, "i")
    average = case.setting("average", str)
    every((average in ("geometric", "arithmetic"), f"no average is {average!r}"))
    model, (person, people) = _Model.of(case, leaf, sizes, shares=False), case.person(len(leaf))
    if average == "geometric" and len(sizes) > 1:
        return _limits(case, model, person, people, sizes, model.off)
    return _arithmetic(case, model, person, people)


def _limits(case: Case, model: _Model, person: Index, people: int, asked: Index, off: float) -> Limits:
    """Return limits of a sum over features, of which the first ``asked`` (d,) cells each are accepted."""
    table, K, limit = model.table, len(model.N), case.setting("limit", float, default=1.0)
    chosen = np.concatenate([s + np.arange(a) for s, a in zip(model.start, asked, strict=True)])
    start, w = np.cumsum(asked) - asked, (table[chosen, 1] - table[chosen, 0], model.bias[1] - model.bias[0])
    spans = [
        np.maximum.reduceat(table[chosen, a] - table[chosen, b], start).sum() + model.bias[a] - model.bias[b]
        for a in range(K)
        for b in range(K)
    ]
    low, high, question = np.empty(people), np.empty(people), _question(case, model, asked, people)
    for block in _blocks(model, person, people):
        some, M = slice(*block.people.indices(people)), block.M[:, :, chosen]
        below, above = _at(model, table, block, off, model.cells[block.rows], block.who)
        if case.asked == "any":
            inside = (model.cells[block.rows] - model.start < asked).all(axis=1)
            below, odds = np.where(inside, below, 0.0), np.zeros(len(block.left))
            for a in range(K):
                for b in range(a):
                    change, moved = M[a] - M[b], block.bias[:, a] - block.bias[:, b]
                    up = np.maximum.reduceat(change, start, axis=1).sum(axis=1) + moved
                    down = np.minimum.reduceat(change, start, axis=1).sum(axis=1) + moved
                    odds = np.maximum.reduce([odds, up, -down])

            def reach(who: Index, k: float, n: float, block: _Block = block, M: Float = M) -> Float:
                change, moved = M[1, who] - M[0, who], block.bias[who, 1] - block.bias[who, 0]
                return np.maximum.reduceat(k * w[0] - n * change, start, axis=1).sum(axis=1) + k * w[1] - n * moved

            high[some] = over(odds, max(spans), off, K, limit, reach)
            if question is not None:
                told = _at(model, table, block, off, np.maximum(question[some], 0), np.arange(len(block.left)))[0]
                told = np.where((question[some] >= 0).all(axis=1), told, 0.0)
                below, block = np.append(below, told), block  # noqa: PLW2901
        else:
            high[some] = largest(block.who, len(block.left), above)
        who = np.append(block.who, np.arange(len(block.left)))[: len(below)]
        low[some] = largest(who, len(block.left), np.nan_to_num(below, nan=0.0, posinf=0.0))
        vanishing = (block.left <= 0).any(axis=1)
        low[some], high[some] = np.where(vanishing, np.inf, low[some]), np.where(vanishing, np.inf, high[some])
    return Limits(low, high)


def _at(model: _Model, table: Float, block: _Block, off: float, cells: Index, who: Index) -> tuple[Float, Float]:
    """Return (low, high) at questions in these cells (m, d), without the people ``who``."""
    z = model.bias + table[cells].sum(axis=1)
    return at(z, block.without(z, cells, who), off)


def _question(case: Case, model: _Model, asked: Index, people: int) -> Index | None:
    """Return the cells of array ``question`` (people, d), codes; -1 where one is not accepted, None without any."""
    if "question" not in case.arrays:
        return None
    found = case.array("question", 2, "i")
    every((found.shape == (people, len(asked)), "'question' fits nobody"))
    return np.where(((found >= 0) & (found < asked)).all(axis=1, keepdims=True), found + model.start, -1)


def _arithmetic(case: Case, model: _Model, person: Index, people: int) -> Limits:
    """Return limits of means of shares, by the one ratio that no choice of cells exceeds."""
    raise NotImplementedError
