"""Scores that are sums over features: the largest change for any number of classes, by bound and by search.

One unit at a time, any classes may change: people with several records, and the last word on single records.
"""

import heapq
from dataclasses import dataclass
from itertools import pairwise

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]

#: nodes taken off the heap at once: numpy's overhead is shared, few needless nodes are opened
_BATCH = 16


@dataclass(frozen=True, eq=False)
class Tables:
    """Scores ``s_c(x) = bias_c + sum_j table_j[c, x_j]`` with and without one unit.

    Parameters
    ----------
    bias, bias_without : float64 array of shape (K,)
    features, features_without : tuple of float64 arrays of shape (K, V_j)
        Columns are the values that the domain allows.
    """

    bias: Float
    bias_without: Float
    features: tuple[Float, ...]
    features_without: tuple[Float, ...]

    @property
    def queries(self) -> float:
        """Number of different queries."""
        return float(np.prod([float(f.shape[1]) for f in self.features]))

    @property
    def shape(self) -> tuple[int, ...]:
        """Number of allowed values of each feature."""
        return tuple(f.shape[1] for f in self.features)

    def log_odds(self) -> Float:
        """Return ODTP parts: max over queries of ``D_k - D_l``, shape (K, K); its maximum is ODTP."""
        change = self.bias - self.bias_without
        total = change[:, None] - change[None, :]
        for f, g in zip(self.features, self.features_without, strict=True):
            D = f - g
            total = total + (D[:, None, :] - D[None, :, :]).max(axis=2)
        return np.asarray(total)


def bound_nodes(s: tuple[Float, Float], r: tuple[Float, Float], D: tuple[Float, Float]) -> Float:
    """Return an upper bound of the largest label change over all queries whose pairwise scores lie in these ranges.

    Parameters
    ----------
    s, r, D : (low, high) pairs of float64 arrays of shape (N, K, K)
        Ranges of ``s_k - s_l`` with the unit, without it, and of ``(s_k - s'_k) - (s_l - s'_l)``.

    References
    ----------
    ``G_y = ln sum_k p_k exp(D_y - D_k)`` and ``-G_y = ln sum_k p'_k exp(D_k - D_y)``; for one changed class this is
    bound (B) of docs/mathematics.md, section 3.1.
    """
    best = np.zeros(len(D[1]))
    # rows y, columns k: how far label y can rise against k (with-model weights), or fall against it (without)
    for (low, high), lift in ((s, D[1]), (r, np.swapaxes(D[1], 1, 2))):
        # p_k <= 1 / (1 + sum_l exp(min(s_l - s_k))), p_y >= 1 / sum_l exp(max(s_l - s_y)); the diagonal is exp(0)
        log_p_max = -_log_sum(low, axis=1)
        log_p_min = -_log_sum(high, axis=1)
        gain = np.maximum(lift, 0.0)
        by_class = _log1p_sum(log_p_max[:, None, :] + _log_expm1(gain))
        rest = np.log(-np.expm1(np.minimum(log_p_min, -1e-300)))
        by_rest = _log1p_sum((rest + _log_expm1(gain.max(axis=2)))[..., None])
        best = np.maximum(best, np.minimum(by_class, by_rest).max(axis=1))
    return best


def root_bound(tables: Tables) -> float:
    """Return an upper bound of the largest label change over all queries, without search; nats."""
    if not tables.features:
        return float(changes(tables.bias[None], tables.bias_without[None])[0])
    s, r = tables.bias[None], tables.bias_without[None]
    return min(float(tables.log_odds().max()), float(_Search(tables).bounds(s, r, 0)[0]))


def _log_sum(a: Float, axis: int) -> Float:
    return np.asarray(np.logaddexp.reduce(a, axis=axis), dtype=np.float64)


def _log_expm1(a: Float) -> Float:
    """Return ln(e^a - 1) for a >= 0."""
    with np.errstate(divide="ignore"):
        return np.where(a > 30, a, np.log(np.expm1(np.minimum(a, 30.0))))


def _log1p_sum(a: Float) -> Float:
    """Return ln(1 + sum exp(a)) over the last axis, accurate for small sums."""
    total = np.logaddexp.reduce(a, axis=-1)
    return np.asarray(np.where(total > 30, np.logaddexp(0.0, total), np.log1p(np.exp(np.minimum(total, 30.0)))))


def changes(s: Float, r: Float) -> Float:
    """Return the largest label change of N queries from their scores with and without, each of shape (N, K)."""
    log_p = s - np.logaddexp.reduce(s, axis=1)[:, None]
    log_q = r - np.logaddexp.reduce(r, axis=1)[:, None]
    return np.asarray(np.abs(log_p - log_q).max(axis=1), dtype=np.float64)


class _Search:
    """Best-first branch and bound over features; every leaf is a real query."""

    def __init__(self, tables: Tables) -> None:
        spread = [np.ptp(f - g, axis=0).max() for f, g in zip(tables.features, tables.features_without, strict=True)]
        self.order = np.argsort(spread)[::-1]  # features that can change most are decided first
        self.f = [tables.features[j] for j in self.order]
        self.g = [tables.features_without[j] for j in self.order]
        self.bias = (tables.bias, tables.bias_without)
        K = len(tables.bias)
        zero = np.zeros((K, K))
        # ranges of what is still undecided after the first k features
        self.rest = [[(zero, zero)] for _ in range(3)]
        for f, g in zip(self.f[::-1], self.g[::-1], strict=True):
            for kept, table in zip(self.rest, (f, g, f - g), strict=True):
                pair = table[:, None, :] - table[None, :, :]
                kept.append((kept[-1][0] + pair.min(axis=2), kept[-1][1] + pair.max(axis=2)))
        for kept in self.rest:
            kept.reverse()

    def bounds(self, s: Float, r: Float, depth: int) -> Float:
        ranges = []
        for partial, kept in zip((s, r, s - r), self.rest, strict=True):
            pair = partial[:, :, None] - partial[:, None, :]
            ranges.append((pair + kept[depth][0], pair + kept[depth][1]))
        return bound_nodes(ranges[0], ranges[1], ranges[2])

    def children(self, s: Float, r: Float, depth: int) -> tuple[Float, Float]:
        f, g = self.f[depth], self.g[depth]
        K = f.shape[0]
        return (s[:, None, :] + f.T[None]).reshape(-1, K), (r[:, None, :] + g.T[None]).reshape(-1, K)

    def run(self, lower: float, budget: int, gap: float) -> tuple[float, float, NDArray[np.int64] | None, int]:
        depth_of_leaf = len(self.f)
        s, r = self.bias[0][None], self.bias[1][None]
        heap: list[tuple[float, int, int, Float, Float, tuple[int, ...]]] = []
        count, opened, best_query = 0, 1, None
        heap.append((-float(self.bounds(s, r, 0)[0]), 0, 0, s[0], r[0], ()))
        while heap and -heap[0][0] > lower + gap and opened < budget:
            depth = -heap[0][1]
            batch: list[tuple[float, int, int, Float, Float, tuple[int, ...]]] = []
            while heap and len(batch) < _BATCH and -heap[0][1] == depth and -heap[0][0] > lower + gap:
                batch.append(heapq.heappop(heap))
            s, r = self.children(np.array([b[3] for b in batch]), np.array([b[4] for b in batch]), depth)
            width = self.f[depth].shape[1]
            opened += len(s)
            value = changes(s, r) if depth + 1 == depth_of_leaf else self.bounds(s, r, depth + 1)
            if depth + 1 == depth_of_leaf:
                top = int(value.argmax())
                if value[top] > lower:
                    lower = float(value[top])
                    best_query = (*batch[top // width][5], top % width)
                continue
            for i in np.flatnonzero(value > lower + gap):
                count += 1
                path = (*batch[i // width][5], int(i % width))
                # deeper nodes first among equals: a leaf early prunes much
                heapq.heappush(heap, (-float(value[i]), -(depth + 1), count, s[i], r[i], path))
        upper = max(lower + gap, -heap[0][0]) if heap else lower + gap
        query = None
        if best_query is not None:
            query = np.empty(depth_of_leaf, dtype=np.int64)
            query[self.order] = best_query
        return lower, upper, query, opened


def search(
    tables: Tables, *, lower: float = 0.0, budget: int = 20_000, gap: float = 1e-11
) -> tuple[float, float, NDArray[np.int64] | None, int]:
    """Return (lower, upper, query, nodes): the largest label change, to ``gap`` if the budget of nodes allows.

    Parameters
    ----------
    tables : Tables
    lower : float
        A change already found at a real query, nats.
    budget : int
        Nodes to open; when it is spent, ``upper`` is the largest bound still open.
    gap : float
        Difference between the two at which the search stops, nats.

    Returns
    -------
    lower, upper : float
        Nats; ``upper - lower <= gap`` iff the search finished.
    query : int64 array of shape (m,) or None
        Column of each feature at the query found; None if none beat the given ``lower``.
    nodes : int

    References
    ----------
    docs/mathematics.md, section 3.1, bound (D).
    """
    if not tables.features:
        value = float(changes(tables.bias[None], tables.bias_without[None])[0])
        return max(value, lower), max(value, lower), None, 1
    return _Search(tables).run(lower, budget, gap)


def offsets(sizes: Float | NDArray[np.int64]) -> NDArray[np.int64]:
    """Return where each feature's cells start when features lie one after the other."""
    return np.array([a for a, _ in pairwise([0, *np.cumsum(sizes).tolist()])], dtype=np.int64)
