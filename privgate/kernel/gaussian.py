"""Gaussian naive Bayes: how far each person's absence moves an answer, at own records or over a box.

Model.  Score of class k at x: prior + sum_j of -ln(v)/2 - (x_j - mean)^2 / (2 v), v the variance of the class's feature
plus ``var_smoothing`` times the largest variance of a feature over all records. So every absence moves every class.

Claim.  No answer about a record of theirs (asked "own"), or to any question of the box ("any"), differs by more than
``high`` between the models with and without a person; one about a record of theirs, or their ``question``, differs by
``low`` or more.

Certificate.  None: moments say it all.

Why it is enough.
1. Without a person the sum of squares of a class about its mean is that with them, less their own squares about that
   mean, less the square of their sum divided by how many records are left (Chan, Golub and LeVeque 1979).
2. A change of a log-odds is a sum of one quadratic function a feature: on a side it is largest at an end or its vertex.
3. A mean of n numbers is off by up to n units in the last place of the largest, in the library and here, and with it
   the deviation of a question; the variance by its square and n such shares of itself. A constant feature far from 0
   has no other variance than that (math.md, section 16). Whole numbers add up exactly.
4. Where a class is left without records, or without variance, nothing is limited. ``scores`` does the rest.

Axioms.  Answers are computed as scikit-learn's ``GaussianNB`` does, in float64. Rounding is as ``rounding`` says.
"""

from typing import NamedTuple

import numpy as np
from numpy.typing import NDArray

from privgate.kernel.accepted import Accepted
from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import ELEMENTARY, EPS, SHARE, of_logarithm
from privgate.kernel.scores import Block, Scope, at, blocks, fixed_prior, labels, largest, over, settled

#: operations, the library's and ours, for each that adds a number to a mean or to a sum of squares
_EACH = 4
#: and for each feature, times its largest term
_TERMS = 32
#: share of a sum of squares below which what is left of it is computed anew
_CANCELS = 1e-3


class _Scores(NamedTuple):
    """Scores ``constant (…, K) + sum_j line (…, K, d) x_j + curve (…, K, d) x_j^2``."""

    constant: Float
    line: Float
    curve: Float

    def pair(self, a: int, b: int) -> tuple[Float, Float, Float]:
        """Return the difference of two classes' scores."""
        line, curve = (v[..., a, :] - v[..., b, :] for v in (self.line, self.curve))
        return self.constant[..., a] - self.constant[..., b], line, curve


class _Moments(NamedTuple):
    """Of U models: records (U, K), means and variances (U, K, d), without smoothing; variances of everything (U, d)."""

    n: Float
    mean: Float
    variance: Float
    overall: Float


class _Model(NamedTuple):
    """Records, centred at their mean, and what training knows of them."""

    raw: Float
    X: Float
    label: Index
    smoothing: float
    prior: Float | None
    all: _Moments

    @classmethod
    def from_case(cls, case: Case) -> "_Model":
        """Return the model that is trained on the case's records."""
        raw = case.array("X", 2)
        label, held = labels(case, raw.shape)
        every((bool((np.abs(raw) < 1e100).all()), "numbers are not finite"))
        prior = fixed_prior(case, len(held), default="log_prior" not in case.arrays)
        smoothing = case.setting("var_smoothing", float)
        every((smoothing >= 0, "'var_smoothing' is negative"))
        X = raw - raw.mean(axis=0)
        own = [X[label == k] for k in range(len(held))]
        moments = np.array([[v.mean(axis=0) for v in own]]), np.array([[v.var(axis=0) for v in own]])
        return cls(raw, X, label, smoothing, prior, _Moments(held[None], *moments, X.var(axis=0)[None]))

    def without(self, block: Block) -> _Moments:
        """Return the moments without each of some people."""
        (_, rows, who, U), (n, mean, variance, overall) = block, self.all
        X, label = self.X[rows], self.label[rows]
        K, d = mean.shape[1:]
        lost, sums, squares = np.zeros((U, K)), np.zeros((U, K, d)), np.zeros((U, K, d))
        z = X - mean[0, label]
        np.add.at(lost, (who, label), 1.0)
        np.add.at(sums, (who, label), z)
        np.add.at(squares, (who, label), z**2)
        kept = (n - lost)[:, :, None]
        before = n[:, :, None] * variance
        after = before - squares - sums**2 / kept
        means, variances = mean - sums / kept, after / kept
        centre = self.X.mean(axis=0)
        total, square = np.zeros((U, d)), np.zeros((U, d))
        np.add.at(total, who, X - centre)
        np.add.at(square, who, (X - centre) ** 2)
        count, rest = len(self.X), (len(self.X) - lost.sum(axis=1))[:, None]
        most = count * overall - square - total**2 / rest
        odd = (after < _CANCELS * before).any(axis=(1, 2)) | (most < _CANCELS * count * overall).any(axis=1)
        moments = _Moments(kept[:, :, 0], means, variances, most / rest)
        for u in np.flatnonzero(odd & (kept > 0).all(axis=(1, 2))).tolist():
            self._anew(moments, u, rows[who == u])
        return moments

    def _anew(self, moments: _Moments, u: int, rows: Index) -> None:
        kept = np.ones(len(self.X), dtype=bool)
        kept[rows] = False
        moments.overall[u] = self.X[kept].var(axis=0)
        for k in np.unique(self.label[rows]):
            own = self.X[kept & (self.label == k)]
            moments.mean[u, k], moments.variance[u, k] = own.mean(axis=0), own.var(axis=0)

    def variance(self, moments: _Moments) -> Float:
        """Return what the library divides by, (U, K, d)."""
        return np.asarray(moments.variance + self.smoothing * moments.overall.max(axis=1)[:, None, None])

    def priors(self, moments: _Moments) -> Float:
        """Return constants of the scores, (U, K)."""
        return np.log(moments.n) if self.prior is None else np.broadcast_to(self.prior, moments.n.shape)

    def scores(self, moments: _Moments) -> _Scores:
        """Return the scores of U models, of centred questions."""
        v = self.variance(moments)
        constant = self.priors(moments) - 0.5 * (np.log(v) + moments.mean**2 / v).sum(axis=2)
        return _Scores(constant, moments.mean / v, -0.5 / v)

    def at(self, moments: _Moments, x: Float) -> Float:
        """Return the scores (U, K) of one centred question (U, d) a model."""
        v = self.variance(moments)
        apart = (x[:, None, :] - moments.mean) ** 2
        return np.asarray(self.priors(moments) - 0.5 * (np.log(v) + apart / v).sum(axis=2))

    def off(self, moments: _Moments, size: Float) -> Float:
        """Return how far a score is off, (U,), at questions of at most this size, centred (U or 1, d)."""
        total, n, d = self.variance(moments), len(self.X), self.X.shape[1]
        here, there = np.abs(self.X).max(axis=0), np.abs(self.raw).max(axis=0)
        count = moments.n[:, :, None] + 8
        constant = (self.raw == self.raw[:1]).all(axis=0)
        off = np.where(self._exact, np.where(constant, 0.0, EPS * there), count * EPS * there)
        off = off + count * EPS * here
        overall = np.where(self._exact, EPS * there, (n + 8) * EPS * there) + (n + 8) * EPS * here
        spread = np.maximum(self.all.overall, moments.overall) + overall**2
        floor = (overall**2 + _EACH * (n + 8) * EPS * spread).max(axis=1) + 4 * EPS * moments.overall.max(axis=1)
        spread = np.maximum(self.all.variance, moments.variance) + off**2
        doubt = off**2 + _EACH * count * EPS * spread + 8 * EPS * total + self.smoothing * floor[:, None, None]
        share = np.where(total > 0, doubt / total, np.inf)
        safe = np.where(share < SHARE, 1 - share, np.nan)
        far = size[:, None, :] + np.abs(moments.mean)
        square = far**2 / total
        moved = (2 * far * off + off**2) / (total * safe) + square * share / safe + of_logarithm(share)
        terms = (square + np.abs(np.log(total)) + 2).sum(axis=2)
        prior = np.abs(self.priors(moments)) + np.log(n)
        lost = 0.5 * moved.sum(axis=2) + _TERMS * (d + 12) * EPS * 0.5 * terms + 2 * ELEMENTARY * prior
        return np.asarray(np.nan_to_num(lost, nan=np.inf).max(axis=1))

    @property
    def _exact(self) -> NDArray[np.bool_]:
        """Which features add up exactly in any order."""
        whole = (np.floor(self.raw) == self.raw).all(axis=0)
        return np.asarray(whole & (np.abs(self.raw).sum(axis=0) < 2.0**52))


def _top(pair: tuple[Float, Float, Float], side: Float) -> Float:
    """Return the largest ``constant + sum_j line_j x_j + curve_j x_j^2`` on the sides (2, d), (U,)."""
    constant, line, curve = pair
    vertex = np.clip(np.nan_to_num(np.where(curve < 0, -line / (2 * curve), 0.0)), side[0], side[1])
    values = [line * x + curve * x**2 for x in (side[0], side[1], vertex)]
    return np.asarray(constant + np.maximum.reduce(values).sum(axis=-1))


def bound(case: Case) -> Limits:
    """Return limits of Gaussian naive Bayes; the module's docstring is the theorem."""
    model, (n, d) = _Model.from_case(case), case.array("X", 2).shape
    (person, people), K = case.person(n), model.all.n.shape[1]
    limit, centre = case.setting("limit", float, default=1.0), model.raw.mean(axis=0)
    inside, side, question = np.ones(n, dtype=bool), np.zeros((2, d)), np.full((people, d), np.nan)
    if "question" in case.arrays:
        question = case.certificate("question", (people, d))
    if case.scope == "any":
        accepted = Accepted.from_case(case, d)
        side, inside = np.array([accepted.low, accepted.high]) - centre, accepted.inside(model.raw)
        question = np.where(accepted.inside(question)[:, None], question, np.nan)
    everybody, far = model.scores(model.all), np.abs(side).max(axis=0)[None]
    low, high, observed = np.zeros(people), np.zeros(people), np.zeros(1)
    for block in blocks(person, people, 4 * K * d):
        without = model.without(block)
        below, above = _at(model, without, block.who, model.X[block.rows])
        if case.scope == "any":
            below = np.where(inside[block.rows], below, 0.0)
            observed = _at(model, without, np.arange(block.U), question[block.people] - centre)[0]
            off = np.maximum(model.off(model.all, far), model.off(without, far))
            most = _over(everybody, model.scores(without), side, off, limit)
        else:
            most = largest(block.who, block.U, above)
        low[block.people], high[block.people] = settled(block, below, observed, most, without.n)
    return Limits(low, high)


def _at(model: _Model, moments: _Moments, who: Index, x: Float) -> tuple[Float, Float]:
    """Return (low, high) at one centred question (m, d) a row, without the people ``who``; in blocks of rows."""
    moments = _Moments(*(v[who] for v in moments))
    everybody = _Moments(*(np.broadcast_to(v, (len(who), *v.shape[1:])) for v in model.all))
    size = np.abs(x)
    off = np.maximum(model.off(everybody, size), model.off(moments, size))
    return at(model.at(everybody, x), model.at(moments, x), off)


def _over(everybody: _Scores, scores: _Scores, side: Float, off: Float, limit: float) -> Float:
    """Return ``high`` over the box, (U,)."""
    K = scores.constant.shape[1]
    change = _Scores(*(b - a for a, b in zip(everybody, scores, strict=True)))
    odds, top = np.zeros((len(off), K, K)), np.zeros((K, K))
    for a in range(K):
        for b in set(range(K)) - {a}:
            odds[:, a, b], top[a, b] = _top(change.pair(b, a), side), _top(everybody.pair(a, b), side)[0]
    w, m = everybody.pair(1, 0), change.pair(1, 0)

    def reach(who: Index, k: float, n: float) -> Float:
        constant, line, curve = (k * u + n * v[who] for u, v in zip(w, m, strict=True))
        return _top((constant, line, curve), side)

    return over(odds, off, Scope(top, limit, reach))
