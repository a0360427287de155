"""Two classes: the largest change over the convex hull of what queries can reach.

Every feature offers two points (contribution to ``d``, contribution to ``r``). Own- and other-label changes grow in
``|d|`` and are monotone in ``r``, so their maximum over the hull lies on one monotone frontier of a zonotope, which
is a polyline of at most m edges.
"""

from collections.abc import Callable, Sequence
from dataclasses import dataclass

import numpy as np
from numpy.typing import NDArray

from privgate.families.over_all_queries.label_change import other_label, own_label

Float = NDArray[np.float64]

#: an edge is cut into this many pieces, as often as needed
_PIECES = 8
_ROUNDS = 14
#: what sums of some thousand terms may have lost, nats
_ROUNDING = 1e-11

Change = Callable[[Float, Float], Float]


@dataclass(frozen=True, eq=False)
class Points:
    """The two choices of every feature, for each of U units.

    Parameters
    ----------
    d0, r0 : float64 array of shape (U,)
        What does not depend on the query.
    first, second : pairs of float64 arrays of shape (U, m)
        ``(d, r)`` contributions of either choice; equal where a feature offers one value only.
    """

    d0: Float
    r0: Float
    first: tuple[Float, Float]
    second: tuple[Float, Float]


def largest_change(
    points: Points, *, hull_is_reachable: bool = False, blocks: Sequence[tuple[Float, Float]] = ()
) -> tuple[Float, Float]:
    """Return (lower, upper) of the largest label change, each of shape (U,), nats.

    Parameters
    ----------
    points : Points
    hull_is_reachable : bool
        Whether every point of the hull is a query (a box and linear scores); then ``lower`` is the hull's maximum too.
    blocks : sequence of (d, r), float64 arrays of shape (U, P)
        Features with P choices each, P of its own for each.

    Returns
    -------
    lower : float64 array of shape (U,)
        Attained at a vertex, which is a real query.
    upper : float64 array of shape (U,)
        Maximum over the hull.
    """
    both = (1, -1)
    return along(lambda a, b: _zonotope(points, a, b, blocks), hull_is_reachable=hull_is_reachable, signs_r=both)


def largest_label_change(points: Points, *, own: bool) -> tuple[Float, Float]:
    """Return (lower, upper) of the largest change of the own label, or of any other label; see above."""
    return along(lambda a, b: _zonotope(points, a, b), hull_is_reachable=False, signs_r=(1 if own else -1,))


def at_vertices(points: Points) -> Float:
    """Return the largest own-label change at a vertex, shape (U,): a real query, whatever else adds to ``r`` there."""
    found = [_clipped(own_label, sign)(*_zonotope(points, sign, 1)).max(axis=1) for sign in (1, -1)]
    return np.asarray(np.maximum(found[0], found[1]), dtype=np.float64)


def largest_change_of_hull(d: Float, r: Float, *, hull_is_reachable: bool = False) -> tuple[Float, Float]:
    """Return (lower, upper) over the convex hull of P given points, ``d`` and ``r`` of shape (U, P); see above."""
    return along(lambda sign_d, sign_r: _chain(d, r, sign_d, sign_r), hull_is_reachable=hull_is_reachable)


def along(
    walk: Callable[[int, int], tuple[Float, Float]], *, hull_is_reachable: bool, signs_r: tuple[int, ...] = (1, -1)
) -> tuple[Float, Float]:
    """Return (lower, upper) of the largest label change over hulls given by their monotone frontiers.

    Parameters
    ----------
    walk : callable
        ``walk(sign_d, sign_r)`` returns vertices (d, r), each of shape (U, P), from the best ``sign_d * d`` to the best
        ``sign_r * r``; repeated vertices do no harm.
    hull_is_reachable : bool
    signs_r : tuple of int
        1 for changes of the own label, which grow with ``r``; -1 for those of the others, which fall.

    References
    ----------
    docs/mathematics.md, section 3.2, Theorem 3.
    """
    runs: list[tuple[Float, Float, Change]] = []
    for sign_d in (1, -1):
        for sign_r in signs_r:
            change = own_label if sign_r == 1 else other_label
            runs.append((*walk(sign_d, sign_r), _clipped(change, sign_d)))
    lower = np.max([change(d, r).max(axis=1) for d, r, change in runs], axis=0)
    upper, best = lower.copy(), lower.copy()
    for d, r, at in runs:
        _along_edges(d, r, at, best, upper)
    return (best if hull_is_reachable else lower), upper


def _clipped(change: Change, sign: int) -> Change:
    """Return ``change`` where ``d`` has the sign of a run, else 0: the other sign has its own run."""
    return lambda d, r: change(sign * np.maximum(sign * d, 0.0), r)


def _zonotope(
    points: Points, sign_d: int, sign_r: int, blocks: Sequence[tuple[Float, Float]] = ()
) -> tuple[Float, Float]:
    """Walk the sum of all features' hulls: its edges are theirs, in the order of what they lose for what they gain."""
    (d1, r1), (d2, r2) = points.first, points.second
    a1, b1, a2, b2 = sign_d * d1, sign_r * r1, sign_d * d2, sign_r * r2
    second = (a2 > a1) | ((a2 == a1) & (b2 > b1))
    loss, gain = np.abs(a1 - a2), np.where(second, b1 - b2, b2 - b1)
    d = sign_d * points.d0 + np.maximum(a1, a2).sum(axis=1)
    r = sign_r * points.r0 + np.where(second, b2, b1).sum(axis=1)
    for block in blocks:
        walk_d, walk_r = _chain(*block, sign_d, sign_r)
        a, b = sign_d * walk_d, sign_r * walk_r
        d, r = d + a[:, 0], r + b[:, 0]
        loss = np.concatenate([loss, -np.diff(a, axis=1)], axis=1)
        gain = np.concatenate([gain, np.diff(b, axis=1)], axis=1)
    with np.errstate(divide="ignore", invalid="ignore"):
        slope = np.where(gain > 0, loss / gain, np.inf)  # a switch that gains nothing is never made
    order = np.argsort(slope, axis=1, kind="stable")
    steps = np.where(gain > 0, -loss, 0.0), np.where(gain > 0, gain, 0.0)
    walk_d, walk_r = (np.take_along_axis(step, order, axis=1).cumsum(axis=1) for step in steps)
    return sign_d * np.column_stack([d, d[:, None] + walk_d]), sign_r * np.column_stack([r, r[:, None] + walk_r])


def _chain(d: Float, r: Float, sign_d: int, sign_r: int) -> tuple[Float, Float]:
    """Walk the hull of points: from each vertex to the one that loses least ``d`` for what it gains in ``r``."""
    a, b = sign_d * d, sign_r * r
    row = np.arange(len(d))
    top = a.max(axis=1, keepdims=True)
    at = np.where(a == top, b, -np.inf).argmax(axis=1)
    vertices = [at]
    for _ in range(d.shape[1]):
        gain, loss = b - b[row, at][:, None], a[row, at][:, None] - a
        with np.errstate(divide="ignore", invalid="ignore"):
            slope = np.where(gain > 0, loss / gain, np.inf)
        least = slope.min(axis=1, keepdims=True)
        # the farthest of equally good points is the next vertex
        step = np.where((slope == least) & np.isfinite(slope), b, -np.inf)
        moves = np.isfinite(least[:, 0])
        if not moves.any():
            break
        at = np.where(moves, step.argmax(axis=1), at)
        vertices.append(at)
    index = np.column_stack(vertices)
    return np.take_along_axis(d, index, axis=1), np.take_along_axis(r, index, axis=1)


def _along_edges(d: Float, r: Float, change: Change, best: Float, upper: Float) -> None:
    """Raise ``best`` and ``upper``, in place, to the maximum over all edges of one frontier.

    The better corner of the rectangle around a piece bounds every point on it; along an edge the change is
    quasi-concave (Theorem 3), so its maximum lies next to the best sample.
    """
    if d.shape[1] < 2:
        return
    unit, edge = np.nonzero(change(d[:, :-1], r[:, 1:]) > best[:, None])
    d_a, d_b, r_a, r_b = d[unit, edge], d[unit, edge + 1], r[unit, edge], r[unit, edge + 1]
    t = np.linspace(0.0, 1.0, _PIECES + 1)
    row = np.arange(len(unit))
    for _ in range(_ROUNDS):
        dd, rr = d_a[:, None] + t * (d_b - d_a)[:, None], r_a[:, None] + t * (r_b - r_a)[:, None]
        value = change(dd, rr)
        top = value.argmax(axis=1)
        np.maximum.at(best, unit, value[row, top])
        left, right = np.maximum(top - 1, 0), np.minimum(top + 1, _PIECES)
        d_a, d_b, r_a, r_b = dd[row, left], dd[row, right], rr[row, left], rr[row, right]
    np.maximum.at(upper, unit, change(d_a, r_b) + _ROUNDING)
