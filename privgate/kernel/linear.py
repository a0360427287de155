"""How far two models' answers differ at any accepted question, where each score is a sum of one number a column.

Claim.  Tables hold what each choice of a column adds to every score, of the model with everybody and of that without a
person. A choice is a single value, or an end of a range on which every score is affine in the column. Then no released
answer differs by more than ``high``, and some answer differs by ``low``.

Why it is enough.  Both models' scores together lie in a constant plus the sum over columns of the hull of its choices.
So a linear function of them is largest at a choice of each column. Two classes: see ``softmax_release``, also for c.
More: ln p_y rises by t only if the sum over k of exp(a'_k) - exp(t + a_k) is at least e^t - 1; a_k is the score of k
less that of y. Each term is bounded as for two classes, and the terms' shares of e^t - 1 must sum to 1. One against the
rest: ln sigmoid(s_y) and the log of the sum change, each by a share of its score's change. Every c in [0, 1] is sound;
the coarse search may miss the tightest. docs/mathematics.md, section 6.1.

Axioms.  A feature errs by at most its radius, a sum by ``rounding.gamma`` in the coarsest type that the library uses,
and a released probability by at most ``_bound_release_error``.
"""

from dataclasses import dataclass, replace

import numpy as np

from privgate.kernel.assertion import Case, Float, Index, Limits, every
from privgate.kernel.rounding import DEEPEST, EPS, of_logarithm
from privgate.kernel.scores import log_shares

RELEASES = ("sigmoid", "softmax", "ovr", "number")
#: float32 and float64: unit roundoff, smallest number, log-odds where exp loses digits, size where a sum may overflow
SINGLE = (2.0**-24, 2.0**-148, 80.0, 1e38)
DOUBLE = (EPS, 2.0**-1073, DEEPEST, 1e307)
#: ln(c / (1 - c)) of the weights c that the search tries first, and its steps around the best c
_FIRST = np.r_[-np.inf, np.linspace(-14, 14, 29), np.inf]
_AROUND = np.linspace(-1, 1, 9)


@dataclass(frozen=True, eq=False)
class _Pair:
    """The scores of both models over the accepted questions; S scores a model, C choices of J columns."""

    first: Index  # (J,): the first choice of each column
    added: Float  # (C + 1, 2S): what each choice adds to the scores with and without the person; last row: intercepts
    refused: Float  # (C,): -inf where both models refuse a choice, else 0
    errors: Float  # (2S,): largest error of a score, the library's and this module's

    def largest(self, weights: Float) -> Float:
        """Return the largest value (…) that linear functions (…, 2S) of the scores take over all questions."""
        return self.largest_sum(weights @ self.added.T) + 2 * (np.abs(weights) @ self.errors)

    def largest_sum(self, values: Float) -> Float:
        """Return the largest sum (…) over all questions of one value a column, of (…, C + 1) values a choice."""
        each, rest = values[..., :-1] + self.refused, values[..., -1]
        return np.asarray(np.maximum.reduceat(each, self.first, axis=-1).sum(axis=-1) + rest)

    def scores(self, weights: Float) -> Float:
        """Return both models' scores (m, 2S), each row at the question where its linear function is largest."""
        each, best = weights @ self.added[:-1].T + self.refused, np.tile(self.added[-1], (len(weights), 1))
        for a, b in zip(self.first, np.append(self.first[1:], len(self.refused)), strict=True):
            best += self.added[a + each[:, a:b].argmax(axis=1)]
        return best


@dataclass(frozen=True, eq=False)
class _Release:
    """What the model releases of its scores."""

    kind: str
    features: int
    precision: tuple[float, float, float, float]
    floor: Float  # (K,): smallest released probability of each label; or empty

    @property
    def deepest(self) -> float:
        """The size of the logarithm of the smallest answer; infinite without a floor."""
        return float(-np.log(self.floor.min())) if len(self.floor) else np.inf


def bound(case: Case) -> Limits:
    """Return limits (U,) on what each person changes, in nats, or in standard deviations of a regressor's targets."""
    column, ranges = case.array("column", 1, "i"), case.array("ranges", 1, "i")
    with_, without, kind = case.array("with", 3), case.array("without", 4), case.setting("release", str)
    features, deviation = case.setting("features", int), case.setting("deviation", float, default=1.0)
    floor = case.array("floor", 1) if "floor" in case.arrays else np.zeros(0)
    (C,), (J,), S, sizes = column.shape, ranges.shape, with_.shape[-1], np.bincount(np.maximum(column, 0))
    every(
        (kind in RELEASES and features > 0 and deviation > 0, f"no release is {kind!r} of {features} features"),
        (C > 0 and S > 0 and with_.shape == (3, C + 1, S) == without.shape[1:], "tables of another shape"),
        (len(sizes) == J and bool(((np.diff(column) >= 0) & (np.diff(column) <= 1)).all()), "columns are not 0, 1, …"),
        (column[0] == 0 and bool((sizes > (ranges == 1)).all()), "a range without ends"),
        (not {"length", "norm"} & set(case.settings), "a length or norm limits nothing any more"),
        (kind == "number" or (S == 1) == (kind == "sigmoid"), "a label without a score"),
        (len(floor) in (0, max(S, 2)) and bool((floor > 0).all()), "'floor' is not one of each label"),
        (bool(floor.sum() <= 0.2) and not (kind == "number" and len(floor)), "floors of too much"),
    )
    release = _Release(kind, features, SINGLE if case.setting("single", bool) else DOUBLE, floor)
    first = np.searchsorted(column, np.arange(J))
    low, high = np.zeros(len(without)), np.full(len(without), np.inf)
    empty = _Pair(first, with_[0], np.zeros(C), np.zeros(2 * S))
    for k, other in enumerate(without):
        if (pair := _read_pair(np.stack([with_, other]), empty, ranges, release)) is not None:
            low[k], high[k] = _bound_change(pair, release)
    low *= case.setting("product", bool, default=True)  # else the endpoint may refuse the question that attains it
    return Limits.from_ends(low / deviation * (1 - 4 * EPS), high / deviation * (1 + 4 * EPS))


def _read_pair(tables: Float, pair: _Pair, ranges: Index, release: _Release) -> _Pair | None:
    """Return the pair over the questions that both models answer; None where one refuses what the other answers."""
    answered, first = np.asarray(np.isfinite(tables).all(axis=(1, 3))), pair.first
    known = answered[0]
    if (known != answered[1]).any() or not known[-1] or not np.logical_or.reduceat(known[:-1], first).all():
        return None
    if not (known[first] & known[first + 1] | (ranges == 0)).all():
        return None
    finite = np.where(np.isfinite(tables), tables, 0.0)
    added, size, radius = np.concatenate([finite[0], finite[1]], axis=-1)
    roundoff, tiny, _, overflow = release.precision
    pair = replace(pair, added=added, refused=np.where(known[:-1], 0.0, -np.inf))
    size_sum, radius_sum = pair.largest_sum(np.abs(size).T), pair.largest_sum(np.abs(radius).T)
    terms = (2 * release.features + 32) * roundoff
    error = 2 * radius_sum + terms / (1 - terms) * size_sum + 2.0**40 * tiny
    return replace(pair, errors=np.where((size_sum < overflow) & (terms < 0.5), error, np.inf))


def _bound_change(pair: _Pair, release: _Release) -> tuple[float, float]:
    """Return the lower and the upper limit of how far an answer changes, nats or the scores' unit."""
    S = len(pair.errors) // 2
    sides = before, after = np.split(np.eye(2 * S), 2)
    if not np.isfinite(pair.errors).all():
        return 0.0, release.deepest
    if release.kind == "number":
        weights, lost = np.concatenate([before - after, after - before]), 0.0
        high = float(pair.largest(weights).max()) * (1 + 8 * EPS)
    else:
        high, weights = _bound_largest_rise(pair, release.kind, before, after)
        lost = sum(_bound_release_error(pair, release, side) for side in sides)
        if len(release.floor) > 2:  # the divisor is at least 1 less the floors of all labels but one
            high -= float(np.log1p(release.floor.min() - release.floor.sum()))
        high = min(high + lost, release.deepest)
    if len(release.floor) or not np.isfinite(high):
        return 0.0, high
    z = pair.scores(weights)
    moved = np.abs(_release_scores(z[:, :S], release.kind) - _release_scores(z[:, S:], release.kind)).max()
    return max(0.0, float(moved) * (1 - 64 * EPS) - 4 * float(pair.errors.max()) - lost), high


def _release_scores(scores: Float, kind: str) -> Float:
    """Return what is released of scores (m, S): log-probabilities in nats, or the numbers themselves."""
    if kind in ("number", "softmax"):
        return scores if kind == "number" else log_shares(scores)
    own = -np.logaddexp(0.0, -scores)
    if kind == "sigmoid":
        return np.concatenate([own, -np.logaddexp(0.0, scores)], axis=1)
    return np.asarray(own - np.logaddexp.reduce(own, axis=1, keepdims=True))


def _bound_largest_rise(pair: _Pair, kind: str, before: Float, after: Float) -> tuple[float, Float]:
    """Return the largest rise of a log-probability, nats, either way, and linear functions (m, 2S) that limit it."""
    S = len(before)
    y, k = np.nonzero(~np.eye(S, dtype=bool))
    if kind == "softmax":
        one, other = ((side[k] - side[y]).reshape(S, S - 1, 2 * S) for side in (before, after))
        risen, weights = _bound_rises(pair, np.concatenate([other, one]), np.concatenate([one, other]))
        return float(risen.max()), weights
    # rows of ln sigmoid(s), then of ln sigmoid(-s); each from the model without the person to that with, then back
    rows = np.concatenate([-after, -before, after, before])[:, None]
    risen, weights = _bound_rises(pair, rows, np.concatenate([-before, -after, before, after])[:, None])
    if kind == "sigmoid":
        return float(risen.max()), weights
    moved = before - after
    far = np.max([pair.largest(w) for w in (moved[y], -moved[k], moved[y] - moved[k])], axis=0)
    most = np.minimum(np.maximum(far, 0.0), risen[:S][y] + risen[S : 2 * S][k])
    return float(most.max()), moved[y] - moved[k]


def _bound_rises(pair: _Pair, before: Float, after: Float) -> tuple[Float, Float]:
    """Return upper limits (m,) of the rise of ln p_y, nats, and the linear functions (n, 2S) behind the largest.

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
        low, high = np.zeros(len(c)), np.maximum(peaks[..., 0], 0.0).max(axis=1)  # at this t every share is 0
        for _ in range(64):
            t = (low + high)[:, None, None] / 2
            share = np.exp(np.minimum((need - t * (1 - 8 * EPS)) / tried, 99)) / -np.expm1(-t)
            share = np.where(tried > 0, share, np.where(peaks < t, 0.0, np.inf))
            enough = share.min(axis=-1).sum(axis=-1) < 1 - 1e-12
            low, high = np.where(enough, low, t[:, 0, 0]), np.where(enough, t[:, 0, 0], high)
        best = np.take_along_axis(tried, share.argmin(axis=-1)[..., None], axis=-1)
        around = np.log(best) - np.log1p(-best) + width * _AROUND
    return high, (before - (1 - best) * after)[high.argmax()]


def _bound_release_error(pair: _Pair, release: _Release, side: Float) -> float:
    """Return the largest rounding error of one model's released log-probability, nats; infinite where exp loses digits.

    Of two classes the library computes the second's p and releases 1 - p for the first. A floor limits the error.
    """
    S, (roundoff, _, wall, _) = len(side), release.precision
    top, bottom = float(pair.largest(side).max()), float(pair.largest(-side).max())
    span, terms = {"sigmoid": max(top, bottom), "ovr": bottom}.get(release.kind, 0.0), 2 * S + 16.0
    if release.kind == "softmax":
        y, k = np.nonzero(~np.eye(S, dtype=bool))
        span, terms = float(pair.largest(side[k] - side[y]).max()), terms + 2 * max(top, bottom)
    if not len(release.floor) and span >= wall:
        return np.inf
    total = 8 * roundoff * (min(max(span, 0.0), release.deepest) + terms)
    if release.kind == "sigmoid":
        unfloored = 2 * roundoff * (2 + np.exp(min(top, DEEPEST)))
        total += float(of_logarithm(4 * roundoff / release.floor.min() if len(release.floor) else unfloored))
    return total
