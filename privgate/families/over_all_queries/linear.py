"""Scores that are linear in the query: the largest change for any number of classes, from parameters."""

import numpy as np
from numpy.typing import NDArray

from privgate.families.over_all_queries import label_change
from privgate.families.over_all_queries.frontier import Points, largest_change, largest_change_of_hull
from privgate.families.over_all_queries.reach import Reach
from privgate.families.over_all_queries.separable import bound_nodes, changes

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 4_000_000
#: features up to which a worst question is looked for along each of them
_FEATURES = 200


def pair_ranges(bias: Float, weights: Float, reach: Reach) -> tuple[Float, Float]:
    """Return the (least, largest) ``score_k - score_l`` over the domain, each of shape (N, K, K)."""
    b = bias[:, :, None] - bias[:, None, :]
    w = weights[:, :, None, :] - weights[:, None, :, :]
    high = b + reach.maximum(w)
    return -np.swapaxes(high, 1, 2), high


def any_classes(with_: tuple[Float, Float], without: tuple[Float, Float], reach: Reach) -> tuple[Float, Float]:
    """Return (lower, upper) of the largest label change for N models, each of shape (N,), nats.

    Parameters
    ----------
    with_, without : (bias, weights) of shapes (N, K) and (N, K, d)
        Scores before the softmax; N may be 1 in ``with_``.
    reach : Reach

    Returns
    -------
    lower : float64 array of shape (N,)
        Attained at a query of the domain.
    upper : float64 array of shape (N,)
        The smaller of ODTP and of the bound by ranges; exact for two classes on a box of real numbers.

    References
    ----------
    docs/mathematics.md, sections 3.4 and 6.2.
    """
    shape = without[1].shape
    b, w = np.broadcast_to(with_[0], shape[:2]), np.broadcast_to(with_[1], shape)
    change_b, change_w = b - without[0], w - without[1]
    D = pair_ranges(change_b, change_w, reach)
    upper = np.minimum(D[1].max(axis=(1, 2)), bound_nodes(pair_ranges(b, w, reach), pair_ranges(*without, reach), D))
    lower = at_corners((b, w), without, reach)
    if shape[1] == 2 and (reach.stated == 1 or (reach.blocks and reach.stated == 2)):
        d = change_b[:, 0] - change_b[:, 1], change_w[:, 0] - change_w[:, 1]
        r = without[0][:, 1] - without[0][:, 0], without[1][:, 1] - without[1][:, 0]
        found, hull = two_classes(d, r, reach)
        lower, upper = np.maximum(lower, found), np.minimum(upper, hull)
    return lower, np.maximum(lower, upper)


def most_telling(with_: tuple[Float, Float], without: tuple[Float, Float], reach: Reach) -> Float:
    """Return the query that tells most of those at which lower bounds are looked for, shape (N, d).

    Arguments as in ``any_classes``; one unit at a time, meant for as many as are trained again.
    """
    found = []
    for k in range(len(without[1])):
        model = with_[0][min(k, len(with_[0]) - 1)], with_[1][min(k, len(with_[1]) - 1)]
        other = without[0][k], without[1][k]
        x = np.concatenate([_pair_queries(model, other, reach), _hull_queries(model, other, reach)])
        if reach.low is not None and reach.high is not None and reach.stated == 1 and not reach.whole:
            start = x[_value(model, other, x).argmax()][None]
            one = tuple(v[None] for v in model), tuple(v[None] for v in other)
            x = np.concatenate([x, uphill(one[0], one[1], reach.low, reach.high, start)[1]])
            if x.shape[1] <= _FEATURES:
                x = np.concatenate([x, _along_edges(model, other, x[_value(model, other, x).argmax()], reach)])
        x = x[reach.inside(x)]
        found.append(x[_value(model, other, x).argmax()] if len(x) else np.full(without[1].shape[2], np.nan))
    return np.array(found)


def _value(model: tuple[Float, Float], other: tuple[Float, Float], x: Float) -> Float:
    return changes(model[0] + x @ model[1].T, other[0] + x @ other[1].T)


def _pair_queries(model: tuple[Float, Float], other: tuple[Float, Float], reach: Reach) -> Float:
    """Return where each pair of classes changes most, and documents of one token."""
    change = model[1] - other[1]
    K, d = change.shape
    made = [reach.best(change[a] - change) for a in range(K)]
    if reach.length is not None:
        made += [np.zeros((1, d)), np.floor(reach.length) * np.eye(min(d, _FEATURES), d)]
    return np.concatenate(made)


def _hull_queries(model: tuple[Float, Float], other: tuple[Float, Float], reach: Reach) -> Float:
    """Return the corners of a box in the order in which the hull of (change, odds) of two classes passes them."""
    K, d = model[1].shape
    if K != 2 or d > _FEATURES or reach.low is None or reach.high is None or reach.stated > 1:
        return np.zeros((0, d))
    change = (model[1] - other[1])[0] - (model[1] - other[1])[1]
    odds = other[1][1] - other[1][0]
    turns = np.sort(np.arctan2(-change, odds) % np.pi)
    middle = (turns + np.append(turns[1:], turns[:1] + np.pi)) / 2
    angle = np.concatenate([middle, middle + np.pi])[:, None]
    return np.where(np.cos(angle) * change + np.sin(angle) * odds > 0, reach.high, reach.low)


def _along_edges(model: tuple[Float, Float], other: tuple[Float, Float], x: Float, reach: Reach) -> Float:
    """Return the best point on each edge of the box from ``x``, by ever finer grids, shape (d, d)."""
    d = len(x)
    low, high = np.array(reach.low), np.array(reach.high)
    best = np.repeat(x[None], d, axis=0)
    for _ in range(12):
        share = np.linspace(0, 1, 9)
        grid = np.repeat(best[:, None], len(share), axis=1)
        grid[np.arange(d), :, np.arange(d)] = low[:, None] + (high - low)[:, None] * share
        value = _value(model, other, grid.reshape(-1, d)).reshape(d, -1)
        top = value.argmax(axis=1)
        best = grid[np.arange(d), top]
        width = (high - low) / 8
        low, high = (np.clip(np.diag(best) + s * width, reach.low, reach.high) for s in (-1, 1))
    return best


def at_corners(with_: tuple[Float, Float], without: tuple[Float, Float], reach: Reach) -> Float:
    """Return the largest label change found, shape (N,), nats: where some pair of classes changes most, then uphill."""
    change = with_[1] - without[1]
    x = reach.best(change[:, :, None, :] - change[:, None, :, :])
    N, K = change.shape[:2]
    x = x.reshape(N, K * K, -1)
    s, r = ((v[0][:, None, :] + x @ np.swapaxes(v[1], 1, 2)).reshape(-1, K) for v in (with_, without))
    value = np.where(reach.inside(x), changes(s, r).reshape(N, K * K), 0.0)
    if reach.low is None or reach.high is None or reach.stated > 1 or reach.whole:
        return np.asarray(value.max(axis=1))
    return uphill(with_, without, reach.low, reach.high, x[np.arange(N), value.argmax(axis=1)])[0]


def telling(with_: tuple[Float, Float], without: tuple[Float, Float], reach: Reach) -> Float:
    """Return a question for each of N models at which a label changes much, shape (N, d); ``any_classes`` has the rest.

    Where some pair of classes changes most, and on a box of numbers uphill from there.
    """
    N, K, d = without[1].shape
    found, step = np.empty((N, d)), max(1, _CHUNK // (K * K * d))
    for k in range(0, N, step):
        other = tuple(v[k : k + step] for v in without)
        model = tuple(np.broadcast_to(v, o.shape) for v, o in zip(with_, other, strict=True))
        change = model[1] - other[1]
        x = reach.best(change[:, :, None, :] - change[:, None, :, :]).reshape(len(change), K * K, d)
        s, r = ((v[0][:, None, :] + x @ np.swapaxes(v[1], 1, 2)).reshape(-1, K) for v in (model, other))
        value = np.where(reach.inside(x), changes(s, r).reshape(len(change), -1), -1.0)
        start = x[np.arange(len(change)), value.argmax(axis=1)]
        if reach.low is not None and reach.high is not None and reach.stated == 1 and not reach.whole:
            value, start = uphill(model, other, reach.low, reach.high, start)  # type: ignore[arg-type]  # pairs
        found[k : k + step] = start
    return found


def uphill(
    with_: tuple[Float, Float], without: tuple[Float, Float], low: Float, high: Float, start: Float, *, steps: int = 40
) -> tuple[Float, Float]:
    """Return the largest label change (N,) on the way of projected ascent from ``start`` (N, d) in a box, and where."""
    x, best, where = start, np.zeros(len(start)), start
    row = np.arange(len(start))
    for length in np.geomspace(0.5, 0.005, steps):
        logs, mean = [], []
        for bias, weights in (with_, without):
            score = bias + np.einsum("nkd,nd->nk", weights, x, optimize=True)
            log_p = score - np.logaddexp.reduce(score, axis=1)[:, None]
            logs.append(log_p)
            mean.append(np.einsum("nk,nkd->nd", np.exp(log_p), weights, optimize=True))
        change = logs[0] - logs[1]
        label = np.abs(change).argmax(axis=1)
        where = np.where((np.abs(change)[row, label] > best)[:, None], x, where)
        best = np.maximum(best, np.abs(change)[row, label])
        slope = (with_[1][row, label] - mean[0]) - (without[1][row, label] - mean[1])
        slope = slope * (np.sign(change[row, label])[:, None] * (high - low))
        size = np.abs(slope).max(axis=1, keepdims=True)
        x = np.clip(
            x + length * (high - low) * np.divide(slope, size, out=np.zeros_like(slope), where=size > 0), low, high
        )
    return best, where


def two_classes(d: tuple[Float, Float], r: tuple[Float, Float], reach: Reach) -> tuple[Float, Float]:
    """Return (lower, upper) from ``d(x) = d[0] + d[1] . x`` and ``r(x)`` alike, of shapes (N,) and (N, D).

    On a box of real numbers every point of the hull is a query and the two are equal.
    """
    if reach.low is not None and reach.high is not None:
        if reach.blocks:
            return _one_hot(d, r, reach)
        low, high = (d[1] * reach.low, r[1] * reach.low), (d[1] * reach.high, r[1] * reach.high)
        return largest_change(Points(d[0], r[0], low, high), hull_is_reachable=not reach.whole)
    if reach.length is not None:
        whole = np.floor(reach.length)
        corners = [np.column_stack([v[0], v[0][:, None] + reach.length * v[1]]) for v in (d, r)]
        real = [np.column_stack([v[0], v[0][:, None] + whole * v[1]]) for v in (d, r)]
        lower = label_change.largest(real[0], real[1]).max(axis=1)
        return lower, largest_change_of_hull(corners[0], corners[1])[1]
    return np.zeros(len(d[0])), np.full(len(d[0]), np.inf)


def _one_hot(d: tuple[Float, Float], r: tuple[Float, Float], reach: Reach) -> tuple[Float, Float]:
    """Return ``two_classes`` over a box with one-hot blocks: a block is one feature, none or one of its columns."""
    if reach.low is None or reach.high is None:
        raise TypeError("blocks are sides of a box")
    single = np.ones(len(reach.low), dtype=bool)
    single[np.concatenate(reach.blocks)] = False
    low, high = reach.low[single], reach.high[single]
    w = d[1][:, single], r[1][:, single]
    points = Points(d[0], r[0], (w[0] * low, w[1] * low), (w[0] * high, w[1] * high))
    none = np.zeros((len(d[0]), 1))
    blocks = [tuple(np.concatenate([none, v[1][:, b]], axis=1) for v in (d, r)) for b in reach.blocks]
    return largest_change(points, blocks=blocks)  # type: ignore[arg-type]  # pairs


def one_class(d: tuple[Float, Float], rho: Float, lam: Float, reach: Reach) -> tuple[Float, Float]:
    """Return (lower, upper) of the largest label change when one class's scores change, each of shape (N,), nats.

    Parameters
    ----------
    d : (constant, weights) of shapes (N,) and (N, D)
        Change of the own class's score minus the common change of the others.
    rho, lam : float64 arrays of shapes (N, C) and (N, C, D)
        Log-odds of each of the C other classes against the own class, without the unit.
    reach : Reach

    References
    ----------
    docs/mathematics.md, sections 3.1 (B), 3.2 and 3.3.
    """
    d_high, d_low = d[0] + reach.maximum(d[1]), d[0] - reach.maximum(-d[1])
    r_high = np.logaddexp.reduce(rho + reach.maximum(lam), axis=1)
    r_low = np.logaddexp.reduce(rho - reach.maximum(-lam), axis=1)
    upper = np.minimum(np.maximum(d_high, -d_low), label_change.from_ranges(d_low, d_high, r_low, r_high))
    lower = np.zeros(len(rho))
    for sign in (1, -1):
        x = reach.best(sign * d[1])
        at = label_change.largest(
            d[0] + np.einsum("nd,nd->n", d[1], x), np.logaddexp.reduce(rho + np.einsum("ncd,nd->nc", lam, x), axis=1)
        )
        lower = np.maximum(lower, np.where(reach.inside(x), at, 0.0))
    if rho.shape[1] == 1 and reach.stated == 1:
        found, hull = two_classes(d, (rho[:, 0], lam[:, 0]), reach)
        lower, upper = np.maximum(lower, found), np.minimum(upper, hull)
    elif reach.length is not None and reach.stated == 1:
        # documents of one token only: any of them may be the worst
        whole = np.floor(reach.length)
        r = np.logaddexp.reduce(rho[:, :, None] + whole * lam, axis=1)
        lower = np.maximum(lower, label_change.largest(d[0][:, None] + whole * d[1], r).max(axis=1))
    return lower, np.maximum(lower, upper)
