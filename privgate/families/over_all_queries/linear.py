"""Scores that are linear in the query: how far two lie apart, and questions at which a label changes much."""

import numpy as np
from numpy.typing import NDArray

from privgate.engines.count_questions import change as changes
from privgate.families.over_all_queries.reach import Reach

Float = NDArray[np.float64]

#: entries of the largest temporary array
_CHUNK = 4_000_000


def pair_ranges(bias: Float, weights: Float, reach: Reach) -> tuple[Float, Float]:
    """Return the (least, largest) ``score_k - score_l`` over the domain, each of shape (N, K, K)."""
    b = bias[:, :, None] - bias[:, None, :]
    w = weights[:, :, None, :] - weights[:, None, :, :]
    high = b + reach.maximum(w)
    return -np.swapaxes(high, 1, 2), high


def telling(with_: tuple[Float, Float], without: tuple[Float, Float], reach: Reach) -> Float:
    """Return a question for each of N models at which a label changes much, shape (N, d).

    Arguments are (bias, weights) of shapes (N, K) and (N, K, d); N may be 1 in ``with_``.

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
