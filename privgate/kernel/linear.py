"""How far two models differ at any accepted question, whose scores are sums of what single columns add.

Claim.  Of a model with everybody and of one without a person it is known what each choice of each column adds to every
score. Choices are the ends of a range, on which a score is affine in the column, and single values. Then no released
answer differs by more than ``high``, and some differs by ``low``.

Why it is enough.  Both models' scores together lie in a constant plus the sum over columns of the hull of its choices.
So a linear function of them is largest at a choice of each column. Two classes: see ``softmax_release``. More: label y
rises by t only if the sum over k of exp(a'_k) - exp(t + a_k) is at least e^t - 1, where a are scores less that of y.
Each term is bounded as for two classes, and the shares of e^t - 1 that they may reach must come to 1. One against the
rest: ln p_y moves by that of sigmoid(s_y) and of the sum, each by a share of the change of its score. Any c is sound;
a coarse search costs tightness. docs/mathematics.md, section 6.1.

Axioms.  A feature is off by at most its radius, a sum as ``rounding.gamma`` says in the coarsest type that is used, and
a released probability is the formula's up to what ``_lost`` names.
"""

from dataclasses import dataclass, replace

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import DEEPEST, EPS, of_logarithm
from privgate.kernel.scores import log_shares

RELEASES = ("sigmoid", "softmax", "ovr", "number")
#: of a type: unit roundoff, smallest number, log-odds at which exp loses digits, sizes at which a sum may overflow
SINGLE = (2.0**-24, 2.0**-148, 80.0, 1e38)
DOUBLE = (EPS, 2.0**-1073, DEEPEST, 1e307)
#: ln(c / (1 - c)) of the c that are tried first, and steps around the best of them
_FIRST = np.r_[-np.inf, np.linspace(-14, 14, 29), np.inf]
_AROUND = np.linspace(-1, 1, 9)
#: sums of accepted vectors are compared in float64
_HAIR = 1 + 1e-8


@dataclass(frozen=True, eq=False)
class _Pair:
    """Both models over the accepted questions; S scores each, C choices of J columns."""

    first: Index  # (J,): the first choice of each column
    ends: tuple[float, float]  # largest sum and norm of counts; infinite where a column's choices are free
    added: Float  # (C + 1, 2S): what each choice, and last what none, adds to the scores with and without the person
    gone: Float  # (C,): -inf where both models refuse a choice, else 0
    off: Float  # (2S,): how far a score is off, in the library and here

    def largest(self, weights: Float) -> Float:
        """Return the largest value over all questions of linear functions (…, 2S) of the scores, shape (…)."""
        return self.sums(weights @ self.added.T) + 2 * (np.abs(weights) @ self.off)

    def sums(self, values: Float) -> Float:
        """Return the largest sum that a question makes of values (…, C + 1) of choices and of no choice, shape (…)."""
        each, rest = values[..., :-1] + self.gone, values[..., -1]
        if np.isinf(self.ends).all():
            return np.asarray(np.maximum.reduceat(each, self.first, axis=-1).sum(axis=-1) + rest)
        zero = each[..., self.first]
        step = np.maximum(each[..., self.first + 1] - zero, 0.0)
        both = zip((step.max(axis=-1), np.linalg.norm(step, axis=-1)), self.ends, strict=True)
        most = np.minimum.reduce([end * _HAIR * v for v, end in both if end < np.inf])
        return np.asarray(zero.sum(axis=-1) + rest + most)

    def scores(self, weights: Float) -> Float:
        """Return both models' scores (m, 2S) at questions where linear functions (m, 2S) of them are largest."""
        each, best = weights @ self.added[:-1].T + self.gone, np.tile(self.added[-1], (len(weights), 1))
        for a, b in zip(self.first, np.append(self.first[1:], len(self.gone)), strict=True):
            best += self.added[a + each[:, a:b].argmax(axis=1)]
        return best


@dataclass(frozen=True, eq=False)
class _Released:
    """What is released of scores."""

    kind: str
    features: int
    precision: tuple[float, float, float, float]
    floor: Float  # (K,), or empty

    @property
    def deepest(self) -> float:
        """The size of the logarithm of the smallest answer; infinite without a floor."""
        return float(-np.log(self.floor.min())) if len(self.floor) else np.inf


def bound(case: Case) -> Limits:
    """Return the limits of the case's people, (U,), in nats or in deviations of a regressor's targets."""
    column, ranges = case.array("column", 1, "i"), case.array("ranges", 1, "i")
    with_, without, kind = case.array("with", 3), case.array("without", 4), case.setting("release", str)
    features, deviation = case.setting("features", int), case.setting("deviation", float, default=1.0)
    length, norm = (case.setting(name, float, default=0.0) for name in ("length", "norm"))
    floor = case.array("floor", 1) if "floor" in case.arrays else np.zeros(0)
    (C,), (J,), S, sizes = column.shape, ranges.shape, with_.shape[-1], np.bincount(np.maximum(column, 0))
    two = bool((sizes == 2).all())
    every(
        (kind in RELEASES and features > 0 and deviation > 0, f"no release is {kind!r} of {features} features"),
        (C > 0 and S > 0 and with_.shape == (3, C + 1, S) == without.shape[1:], "tables of another shape"),
        (len(sizes) == J and bool(((np.diff(column) >= 0) & (np.diff(column) <= 1)).all()), "columns are not 0, 1, …"),
        (column[0] == 0 and bool((sizes > (ranges == 1)).all()), "a range without ends"),
        (min(length, norm) >= 0 and (max(length, norm) == 0 or two), "counts from 0 to 1 are needed"),
        (kind == "number" or (S == 1) == (kind == "sigmoid"), "a label without a score"),
        (len(floor) in (0, max(S, 2)) and bool((floor > 0).all()), "'floor' is not one of each label"),
        (bool(floor.sum() <= 0.2) and not (kind == "number" and len(floor)), "floors of too much"),
    )
    released = _Released(kind, features, SINGLE if case.setting("single", bool) else DOUBLE, floor)
    first, ends = np.searchsorted(column, np.arange(J)), (length or np.inf, norm or np.inf)
    low, high = np.zeros(len(without)), np.full(len(without), np.inf)
    unread = _Pair(first, ends, with_[0], np.zeros(C), np.zeros(2 * S))
    for k, other in enumerate(without):
        if (pair := _read_pair(np.stack([with_, other]), unread, ranges, released)) is not None:
            low[k], high[k] = _limits(pair, released)
    low *= case.setting("product", bool, default=True)  # else questions made of choices may be refused
    return Limits.from_ends(low / deviation * (1 - 4 * EPS), high / deviation * (1 + 4 * EPS))


def _read_pair(tables: Float, pair: _Pair, ranges: Index, released: _Released) -> _Pair | None:
    """Return both models over the questions that both answer; None where one refuses what the other answers."""
    answered, first = np.asarray(np.isfinite(tables).all(axis=(1, 3))), pair.first
    known = answered[0]
    if (known != answered[1]).any() or not known[-1] or not np.logical_or.reduceat(known[:-1], first).all():
        return None
    if not (known[first] & known[first + 1] | (ranges == 0)).all():
        return None
    finite = np.where(np.isfinite(tables), tables, 0.0)
    added, size, radius = np.concatenate([finite[0], finite[1]], axis=-1)
    roundoff, tiny, _, overflow = released.precision
    pair = replace(pair, added=added, gone=np.where(known[:-1], 0.0, -np.inf))
    most, apart = pair.sums(np.abs(size).T), pair.sums(np.abs(radius).T)
    terms = (2 * released.features + 32) * roundoff
    off = 2 * apart + terms / (1 - terms) * most + 2.0**40 * tiny
    return replace(pair, off=np.where((most < overflow) & (terms < 0.5), off, np.inf))


def _limits(pair: _Pair, released: _Released) -> tuple[float, float]:
    """Return how far an answer surely moves, and how far at most."""
    S = len(pair.off) // 2
    sides = before, after = np.split(np.eye(2 * S), 2)
    if not np.isfinite(pair.off).all():
        return 0.0, released.deepest
    if released.kind == "number":
        weights, lost = np.concatenate([before - after, after - before]), 0.0
        high = float(pair.largest(weights).max()) * (1 + 8 * EPS)
    else:
        high, weights = _risen(pair, released.kind, before, after)
        lost = sum(_lost(pair, released, side) for side in sides)
        if len(released.floor) > 2:  # what makes the sum 1 is no less than 1 without the floors of all labels but one
            high -= float(np.log1p(released.floor.min() - released.floor.sum()))
        high = min(high + lost, released.deepest)
    if len(released.floor) or np.isfinite(pair.ends).any() or not np.isfinite(high):
        return 0.0, high
    z = pair.scores(weights)
    moved = np.abs(_answers(z[:, :S], released.kind) - _answers(z[:, S:], released.kind)).max()
    return max(0.0, float(moved) * (1 - 64 * EPS) - 4 * float(pair.off.max()) - lost), high


def _answers(scores: Float, kind: str) -> Float:
    """Return what is released of scores (m, S): logarithms of probabilities, or numbers."""
    if kind in ("number", "softmax"):
        return scores if kind == "number" else log_shares(scores)
    own = -np.logaddexp(0.0, -scores)
    if kind == "sigmoid":
        return np.concatenate([own, -np.logaddexp(0.0, scores)], axis=1)
    return np.asarray(own - np.logaddexp.reduce(own, axis=1, keepdims=True))


def _risen(pair: _Pair, kind: str, before: Float, after: Float) -> tuple[float, Float]:
    """Return how far the logarithm of a probability rises at most, either way, and functions (m, 2S) largest there."""
    S = len(before)
    y, k = np.nonzero(~np.eye(S, dtype=bool))
    if kind == "softmax":
        one, other = ((side[k] - side[y]).reshape(S, S - 1, 2 * S) for side in (before, after))
        risen, weights = _rises(pair, np.concatenate([other, one]), np.concatenate([one, other]))
        return float(risen.max()), weights
    # of ln sigmoid(s) and, behind them, of ln sigmoid(-s): from the model without the person to that with it, and back
    rows = np.concatenate([-after, -before, after, before])[:, None]
    risen, weights = _rises(pair, rows, np.concatenate([-before, -after, before, after])[:, None])
    if kind == "sigmoid":
        return float(risen.max()), weights
    moved = before - after
    far = np.max([pair.largest(w) for w in (moved[y], -moved[k], moved[y] - moved[k])], axis=0)
    most = np.minimum(np.maximum(far, 0.0), risen[:S][y] + risen[S : 2 * S][k])
    return float(most.max()), moved[y] - moved[k]


def _rises(pair: _Pair, before: Float, after: Float) -> tuple[Float, Float]:
    """Return upper limits (m,) of how far ln p_y rises, and the functions that show the largest.

    Rows (m, n, 2S) of ``before`` and ``after`` give the score of each other label k less that of y.
    """
    around = np.broadcast_to(_FIRST, (*before.shape[:2], len(_FIRST)))
    tried, peaks = np.zeros((2, *before.shape[:2], 0))
    for width in (1, 1 / 4, 1 / 16, 0):
        c = np.round(2.0**40 / (1 + np.exp(-around))) / 2.0**40  # so that 1 - c is exact
        largest = pair.largest(before[..., None, :] - (1 - c)[..., None] * after[..., None, :])
        tried, peaks = np.concatenate([tried, c], axis=-1), np.concatenate([peaks, largest], axis=-1)
        entropy = -sum(np.where(v > 0, v * np.log(v), 0.0) for v in (tried, 1 - tried))
        need = peaks - entropy + 64 * EPS * (np.abs(peaks) + 2)
        low, high = np.zeros(len(c)), np.maximum(peaks[..., 0], 0.0).max(axis=1)  # there all shares are 0
        for _ in range(64):
            t = (low + high)[:, None, None] / 2
            share = np.exp(np.minimum((need - t * (1 - 8 * EPS)) / tried, 99)) / -np.expm1(-t)
            share = np.where(tried > 0, share, np.where(peaks < t, 0.0, np.inf))
            enough = share.min(axis=-1).sum(axis=-1) < 1 - 1e-12
            low, high = np.where(enough, low, t[:, 0, 0]), np.where(enough, t[:, 0, 0], high)
        best = np.take_along_axis(tried, share.argmin(axis=-1)[..., None], axis=-1)
        around = np.log(best) - np.log1p(-best) + width * _AROUND
    return high, (before - (1 - best) * after)[high.argmax()]


def _lost(pair: _Pair, released: _Released, side: Float) -> float:
    """Return how far one model's released log-probability is off, nats; infinite where digits are lost.

    Of two classes that of the second is computed, and 1 - p released. Below a floor no digit counts.
    """
    S, (roundoff, _, wall, _) = len(side), released.precision
    top, bottom = float(pair.largest(side).max()), float(pair.largest(-side).max())
    span, terms = {"sigmoid": max(top, bottom), "ovr": bottom}.get(released.kind, 0.0), 2 * S + 16.0
    if released.kind == "softmax":
        y, k = np.nonzero(~np.eye(S, dtype=bool))
        span, terms = float(pair.largest(side[k] - side[y]).max()), terms + 2 * max(top, bottom)
    if not len(released.floor) and span >= wall:
        return np.inf
    total = 8 * roundoff * (min(max(span, 0.0), released.deepest) + terms)
    if released.kind == "sigmoid":
        unfloored = 2 * roundoff * (2 + np.exp(min(top, DEEPEST)))
        total += float(of_logarithm(4 * roundoff / released.floor.min() if len(released.floor) else unfloored))
    return total
