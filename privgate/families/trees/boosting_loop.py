"""Histogram boosting without one record after another, compiled: the library's arithmetic, in its order.

Sums of gradients, the subtraction of a sibling's histogram, gains, ties, and which node is split next are those of
scikit-learn's HistGradientBoostingClassifier, so that scores agree to the last bit. What is saved is all that its
training does beside: one process, one copy of the records, bins that are shared by whoever does not move them, and
histograms of the bins that there are: one feature after another, in three blocks, of gradients, hessians and counts.
"""

from typing import Any

import numpy as np
from numba import njit, uintp

#: least sum of hessians on a side of a split
_LEAST_HESSIAN = 1e-3
#: relative slack behind which a split cannot be the best: its value is compared without a division first
_SLACK = 1 - 1e-12
#: a bound that no column's values reach in the library
_ALMOST_INFINITE = 1e300


@njit(cache=True, nogil=True)
def _edges(values: Any, out: int, most: int, cuts: Any, edges: Any) -> int:
    """Write upper ends of bins of a sorted column without position ``out``, and return how many there are."""
    n, distinct, last = len(values), 0, np.nan
    for p in range(n):
        if p != out and values[p] != last:
            distinct, last = distinct + 1, values[p]
    found = 0
    if distinct <= most:
        last = np.nan
        for p in range(n):
            if p == out or values[p] == last:
                continue
            if last == last:  # noqa: PLR0124  not the first
                edge = min((last + values[p]) / 2, _ALMOST_INFINITE)
                if found == 0 or edge != edges[found - 1]:
                    edges[found], found = edge, found + 1
            last = values[p]
        return found
    for j in range(len(cuts)):
        k = int(cuts[j])
        first = k + 1 if 0 <= out <= k else k
        edge = values[first]
        if cuts[j] > k:
            second = k + 2 if 0 <= out <= k + 1 else k + 1
            edge = values[second] - (values[second] - edge) * 0.5
        edge = min(edge, _ALMOST_INFINITE)
        if found == 0 or edge != edges[found - 1]:
            edges[found], found = edge, found + 1
    return found


@njit(cache=True, nogil=True)
def _bin(values: Any, order: Any, edges: Any, codes: Any) -> None:
    """Write the bin of every record of a column."""
    b = 0
    for p in range(len(values)):
        while b < len(edges) and values[p] > edges[b]:
            b += 1
        codes[order[p]] = b


@njit(cache=True, nogil=True)
def _gradients(raw: Any, label: Any, rows: Any, g: Any, h: Any) -> None:
    """Write the gradients and hessians of all trees of an iteration at the rows."""
    K = len(raw)
    if K == 1:
        for i in rows:
            r, y = raw[0, i], np.float64(label[i])
            if r > -37:
                e = np.exp(-r)
                g[0, i] = ((1 - y) - y * e) / (1 + e)
                h[0, i] = e / ((1 + e) * (1 + e))
            else:
                e = np.exp(r)
                g[0, i], h[0, i] = e - y, e
        return
    p = np.empty(K)
    for i in rows:
        top, total = raw[0, i], 0.0
        for k in range(1, K):
            top = max(top, raw[k, i])
        for k in range(K):
            p[k] = np.exp(raw[k, i] - top)
            total += p[k]
        for k in range(K):
            share = p[k] / total
            g[k, i] = share - (1.0 if label[i] == k else 0.0)
            h[k, i] = share * (1.0 - share)


@njit(cache=True, nogil=True)
def _sum(values: Any, n: int) -> Any:
    """Return the sum of at most 256 numbers in the order in which numpy adds them."""
    if n > 128:
        half = n // 2 - (n // 2) % 8
        return _sum(values, half) + _sum(values[half:], n - half)
    total, whole = 0.0, n - n % 8
    if n >= 8:
        r = values[:8].copy()
        for i in range(8, whole, 8):
            for j in range(8):
                r[j] += values[i + j]
        total = ((r[0] + r[1]) + (r[2] + r[3])) + ((r[4] + r[5]) + (r[6] + r[7]))
    else:
        whole = 0
    for i in range(whole, n):
        total += values[i]
    return total


@njit(cache=True, nogil=True)
def _fill(  # noqa: PLR0917  arrays that are there already
    H: Any, begin: Any, codes: Any, rows: Any, g: Any, h: Any, near: Any
) -> None:
    """Write the histograms of the rows."""
    for c in range(len(H)):
        H[c] = 0.0
    m, second, third = len(rows), uintp(begin[-1]), uintp(2 * begin[-1])
    for t in range(m):
        i = uintp(rows[t])
        near[0, t], near[1, t] = g[i], h[i]
    for f in range(len(codes)):
        column, at = codes[f], uintp(begin[f])
        for t in range(m):
            o = at + uintp(column[uintp(rows[t])])
            H[o] += near[0, t]
            H[o + second] += near[1, t]
            H[o + third] += 1.0


@njit(cache=True, nogil=True)
def _subtract(H: Any, sibling: Any) -> None:
    for c in range(len(H)):
        H[c] -= sibling[c]


@njit(cache=True, nogil=True)
def _best(  # noqa: PLR0917  numbers in registers
    H: Any, begin: Any, value: float, G: float, S: float, n: float, l2: float, least: float, split: Any
) -> None:
    """Write gain, feature, bin, and what lies on the left of a node's best split; a gain of -1 where there is none."""
    extra, now, top, beat = l2 + 1e-15, G * value, -1.0, 0.0
    split[0], second, third = -1.0, uintp(begin[-1]), uintp(2 * begin[-1])
    for f in range(len(begin) - 1):
        lg, lh, lc, at = 0.0, 0.0, 0.0, uintp(begin[f])
        for b in range(begin[f + 1] - begin[f] - 1):
            o = at + uintp(b)
            lg += H[o]
            lh += H[o + second]
            lc += H[o + third]
            if lc < least:
                continue
            if n - lc < least:
                break
            rg, rh = G - lg, S - lh
            left, right = lh + extra, rh + extra
            if lg * lg * right + rg * rg * left < beat * (left * right):
                continue
            if lh < _LEAST_HESSIAN or rh < _LEAST_HESSIAN:
                continue
            vl, vr = -lg / (lh + l2 + 1e-15), -rg / (rh + l2 + 1e-15)
            gain = now - lg * vl
            gain -= rg * vr
            if gain > top and gain > 0.0:
                top, beat = gain, (lg * lg / left + rg * rg / right) * _SLACK
                split[0], split[1], split[2], split[3], split[4] = gain, f, b, lg, lh


@njit(cache=True, nogil=True)
def _push(heap: Any, size: int, node: int, gain: Any) -> None:
    """Python's heapq, which decides between nodes of equal gain."""
    at = size
    while at > 0 and gain[node, 0] > gain[heap[(at - 1) >> 1], 0]:
        heap[at] = heap[(at - 1) >> 1]
        at = (at - 1) >> 1
    heap[at] = node


@njit(cache=True, nogil=True)
def _pop(heap: Any, size: int, gain: Any) -> int:
    top, last, at, child = heap[0], heap[size - 1], 0, 1
    size -= 1
    while child < size:
        if child + 1 < size and not gain[heap[child], 0] > gain[heap[child + 1], 0]:
            child += 1
        heap[at] = heap[child]
        at, child = child, 2 * child + 1
    _push(heap, at, last, gain)
    return int(top)


@njit(cache=True, nogil=True)
def _part(place: Any, other: Any, column: Any, at: int) -> int:
    """Put the records up to a bin first, in their order, and return how many there are."""
    x, w = 0, 0
    for i in place:
        if column[i] <= at:
            place[x] = i
            x += 1
        else:
            other[w] = i
            w += 1
    place[x:] = other[:w]
    return x


@njit(cache=True, nogil=True)
def _train(  # noqa: C901, PLR0912, PLR0915, PLR0917  one training, as the library's grower reads
    rows: Any, codes: Any, label: Any, start: Any, begin: Any, first: int, setting: Any, asked: Any, H: Any
) -> Any:
    """Return the scores (Q, K) at the questions, given by their bins (Q, d), of a training on the rows."""
    turns, leaves, rate, l2, least, deepest, bins = setting
    K, n, m = len(start), len(label), len(rows)
    raw, told = np.empty((K, n)), np.empty((len(asked), K))
    for k in range(K):
        raw[k], told[:, k] = start[k], start[k]
    g, h = np.empty((K, n), np.float32), np.empty((K, n), np.float32)
    N = 2 * leaves
    split, value = np.empty((N, 5)), np.empty(N)
    G, S = np.empty(N), np.empty(N)
    a, z, depth, slot = np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64), np.empty(N, np.int64)
    heap, place, other, some = np.empty(N, np.int64), np.empty(m, np.int32), np.empty(m, np.int32), np.zeros((2, 256))
    near = np.empty((2, m))
    final, lies = np.empty(N, np.bool_), np.empty(len(asked), np.int64)
    for _turn in range(turns):
        _gradients(raw, label, rows, g, h)
        for k in range(K):
            place[:] = rows
            lies[:] = 0
            _fill(H[0], begin, codes, place, g[k], h[k], near)
            some[0, :first], some[1, :first] = H[0, :first], H[0, begin[-1] : begin[-1] + first]
            G[0], S[0] = _sum(some[0], bins), _sum(some[1], bins)
            a[0], z[0], depth[0], slot[0], value[0] = 0, m, 0, 0, 0.0
            nodes, size, held, final[0] = 1, 0, 1, True
            if m >= 2 * least and S[0] >= _LEAST_HESSIAN:
                _best(H[0], begin, 0.0, G[0], S[0], m, l2, least, split[0])
                if split[0, 0] > 0:
                    size, heap[0] = 1, 0
            while size and held < leaves:
                q = _pop(heap, size, split)
                size, final[q], f, at = size - 1, False, int(split[q, 1]), int(split[q, 2])
                x = a[q] + _part(place[a[q] : z[q]], other, codes[f], at)
                left, right = nodes, nodes + 1
                nodes, held = nodes + 2, held + 1
                a[left], z[left], a[right], z[right] = a[q], x, x, z[q]
                G[left], S[left] = split[q, 3], split[q, 4]
                G[right], S[right] = G[q] - G[left], S[q] - S[left]
                for c in (left, right):
                    depth[c], final[c] = depth[q] + 1, True
                    value[c] = -G[c] / (S[c] + l2 + 1e-15)
                for j in range(len(asked)):
                    if lies[j] == q:
                        lies[j] = left if asked[j, f] <= at else right
                if held == leaves or depth[left] == deepest or max(x - a[q], z[q] - x) < 2 * least:
                    continue
                small, large = (left, right) if x - a[q] < z[q] - x else (right, left)
                slot[small], slot[large] = held - 1, slot[q]
                _fill(H[slot[small]], begin, codes, place[a[small] : z[small]], g[k], h[k], near)
                if z[large] - a[large] >= 2 * least:
                    _subtract(H[slot[large]], H[slot[small]])
                for c in (left, right):
                    if z[c] - a[c] >= 2 * least:
                        _best(H[slot[c]], begin, value[c], G[c], S[c], z[c] - a[c], l2, least, split[c])
                        if split[c, 0] > 0:
                            _push(heap, size, c, split)
                            size += 1
            for q in range(nodes):
                value[q] *= rate
                if final[q]:
                    for i in place[a[q] : z[q]]:
                        raw[k, i] += value[q]
            for j in range(len(asked)):
                told[j, k] += value[lies[j]]
    return told


@njit(cache=True, nogil=True)
def scores(  # noqa: PLR0917  what the docstring lists
    records: Any, bounds: Any, questions: Any, columns: Any, label: Any, starts: Any, cuts: Any, begin: Any,
    setting: Any,
) -> Any:  # fmt: skip
    """Return raw scores at questions of models without single records, one model after another.

    Parameters
    ----------
    records : int64 array of shape (U,)
        Who is left out; -1 is nobody.
    bounds : int64 array of shape (U + 1,)
        Model u is asked ``questions[bounds[u]:bounds[u + 1]]``, shape (Q, d).
    columns : (values, order, rank, crowded)
        Each column sorted, shape (d, n); the records in that order; where each record stands in it; which columns have
        more values than bins.
    label : int64 array of shape (n,)
    starts : float64 array of shape (U, K)
        Scores before the first tree, K = 1 for two classes.
    cuts : float64 array of shape (max_bins - 1,)
        Where percentiles lie among the sorted values that are left; between two of them where they end in .5.
    begin : int64 array of shape (d + 1,)
        Where each column's bins begin in a histogram; where they end is last.
    setting : (iterations, leaves, learning rate, l2, least records of a leaf, deepest, bins of a sum)

    Returns
    -------
    float64 array of shape (Q, K)
    """
    values, order, rank, crowded = columns
    d, n = values.shape
    most, codes = setting[6] - 1, np.empty((d, n), np.uint8)
    edges, count, own = np.empty((d, 256)), np.zeros(d, np.int64), np.ones(d, np.bool_)
    H = np.zeros((setting[1] + 1, 3 * begin[-1]))
    told, asked = np.empty((len(questions), starts.shape[1])), np.empty((len(questions), d), np.int64)
    for u in range(len(records)):
        out = records[u]
        for f in range(d):
            p = rank[f, out] if out >= 0 else -1
            v = values[f]
            alone = p >= 0 and (p == 0 or v[p - 1] != v[p]) and (p == n - 1 or v[p + 1] != v[p])
            moves = crowded[f] or alone
            if own[f] or moves:
                count[f] = _edges(v, p, most, cuts, edges[f])
                _bin(v, order[f], edges[f, : count[f]], codes[f])
            own[f] = moves
            for j in range(bounds[u], bounds[u + 1]):
                asked[j, f] = np.searchsorted(edges[f, : count[f]], questions[j, f])
        rows = np.empty(n - (out >= 0), np.int32)
        t = 0
        for i in range(n):
            if i != out:
                rows[t] = i
                t += 1
        some = slice(bounds[u], bounds[u + 1])
        told[some] = _train(rows, codes, label, starts[u], begin, count[0] + 1, setting, asked[some], H)
    return told
