"""The search of ``search``, step by step the same, compiled by numba: the extra ``trees``."""

from typing import Any

import numpy as np
from numba import njit


def _compile(function: Any) -> Any:
    try:
        return njit(cache=True, nogil=True)(function)
    except RuntimeError:  # nowhere to keep what is compiled: it is compiled in every process
        return njit(nogil=True)(function)


@_compile
def _active(start, low, high, a, b, kept, edges):
    """Collect the leaves that meet a box."""
    n, d = 0, len(a)
    for t in range(len(start) - 1):
        edges[t] = n
        for i in range(start[t], start[t + 1]):
            meets = True
            for f in range(d):
                if low[i, f] > b[f] or high[i, f] < a[f]:
                    meets = False
                    break
            if meets:
                kept[n] = i
                n += 1
    edges[len(start) - 1] = n
    return n


@_compile
def _descent(kept, edges, low, high, value, order, a, b, x, z):
    """Take each tree's best leaf that still meets the box x .. z, which starts as a .. b; return the sum."""
    d, total = len(a), 0.0
    for f in range(d):
        x[f] = a[f]
        z[f] = b[f]
    for t in order:
        leaf, best = -1, -np.inf
        for p in range(edges[t], edges[t + 1]):
            i = kept[p]
            if value[i] > best:
                fits = True
                for f in range(d):
                    if low[i, f] > z[f] or high[i, f] < x[f]:
                        fits = False
                        break
                if fits:
                    leaf, best = i, value[i]
        total += best
        for f in range(d):
            x[f] = max(x[f], low[leaf, f])
            z[f] = min(z[f], high[leaf, f])
    return total


@_compile
def _cut(kept, edges, low, high, value, a, b, top, work):
    """Return where to cut: the (feature, cell) whose smaller side's loss is largest."""
    found, at, best = -1, 0, -1.0
    left, right, before, after = work
    for f in range(len(a)):
        n = b[f] - a[f]
        if n <= 0:
            continue
        for c in range(n):
            left[c] = 0.0
            right[c] = 0.0
        moves = False
        for t in range(len(edges) - 1):
            flat = True
            for p in range(edges[t], edges[t + 1]):
                if low[kept[p], f] > a[f] or high[kept[p], f] < b[f]:
                    flat = False
                    break
            if flat:
                continue
            moves = True
            for c in range(n + 1):
                before[c] = -np.inf
                after[c] = -np.inf
            for p in range(edges[t], edges[t + 1]):
                i = kept[p]
                s, e = max(low[i, f], a[f]) - a[f], min(high[i, f], b[f]) - a[f]
                before[s] = max(before[s], value[i])
                after[e] = max(after[e], value[i])
            for c in range(1, n + 1):
                before[c] = max(before[c], before[c - 1])
            for c in range(n - 1, -1, -1):
                after[c] = max(after[c], after[c + 1])
            for c in range(n):
                left[c] += top[t] - before[c]
                right[c] += top[t] - after[c + 1]
        for c in range(n if moves else 0):
            gain = 20 * min(left[c], right[c]) + left[c] + right[c]
            if gain > best:
                found, at, best = f, a[f] + c, gain
    return found, at


@_compile
def _above(key, one, other):
    """Whether one box is looked at before the other: the larger bound, then the older."""
    return key[one] > key[other] or (key[one] == key[other] and one < other)


@_compile
def _push(heap, size, key, item):
    place = size
    heap[place] = item
    while place > 0 and _above(key, heap[place], heap[(place - 1) // 2]):
        up = (place - 1) // 2
        heap[place], heap[up] = heap[up], heap[place]
        place = up
    return size + 1


@_compile
def _pop(heap, size, key):
    item, size = heap[0], size - 1
    heap[0] = heap[size]
    place = 0
    while True:
        down = 2 * place + 1
        if down >= size:
            break
        if down + 1 < size and _above(key, heap[down + 1], heap[down]):
            down += 1
        if not _above(key, heap[down], heap[place]):
            break
        heap[place], heap[down] = heap[down], heap[place]
        place = down
    return item, size


@_compile
def search(start, low, high, value, last, order, nodes, slack, enough, beyond):
    """Return (upper, attained, cell, boxes looked at), in steps."""
    T, d, L = len(start) - 1, len(last), len(value)
    widest = int(last.max()) + 2
    work = (np.empty(widest), np.empty(widest), np.empty(widest), np.empty(widest))
    kept, edges = np.empty(L, dtype=np.int64), np.empty(T + 1, dtype=np.int64)
    some, ends = np.empty(L, dtype=np.int64), np.empty(T + 1, dtype=np.int64)
    x, z, cell = np.empty(d, dtype=np.int64), np.empty(d, dtype=np.int64), np.empty(d, dtype=np.int64)
    top = np.empty(T)
    room = min(nodes + 3, 1024)
    key, heap = np.empty(room), np.empty(room, dtype=np.int64)
    box = np.empty((room, 2, d), dtype=np.int32)
    box[0, 0], box[0, 1] = 0, last
    _active(start, low, high, box[0, 0], box[0, 1], kept, edges)
    best = _descent(kept, edges, low, high, value, order, box[0, 0], box[0, 1], x, z)
    cell[:] = x
    key[0] = 0.0
    for t in range(T):
        most = -np.inf
        for p in range(edges[t], edges[t + 1]):
            most = max(most, value[kept[p]])
        key[0] += most
    size, seen, pruned = _push(heap, 0, key, 0), 0, -np.inf
    while size > 0:
        bound = key[heap[0]]
        if bound <= best + slack or seen + 2 > nodes or bound <= enough or best > beyond:
            break
        item, size = _pop(heap, size, key)
        if seen + 3 > len(key):
            more = min(2 * len(key), nodes + 3)
            wider_key, wider_heap, wider = (
                np.empty(more),
                np.empty(more, dtype=np.int64),
                np.empty((more, 2, d), dtype=np.int32),
            )
            wider_key[: len(key)], wider_heap[: len(key)], wider[: len(key)] = key, heap, box
            key, heap, box = wider_key, wider_heap, wider
        a, b = box[item, 0].copy(), box[item, 1].copy()
        _active(start, low, high, a, b, kept, edges)
        for t in range(T):
            top[t] = -np.inf
            for p in range(edges[t], edges[t + 1]):
                top[t] = max(top[t], value[kept[p]])
        f, c = _cut(kept, edges, low, high, value, a, b, top, work)
        if f < 0:
            pruned = max(pruned, bound)
            continue
        for side in range(2):
            n, total = 0, 0.0
            for t in range(T):
                ends[t] = n
                most = -np.inf
                for p in range(edges[t], edges[t + 1]):
                    i = kept[p]
                    if (side == 0 and low[i, f] <= c) or (side == 1 and high[i, f] > c):
                        some[n] = i
                        n += 1
                        most = max(most, value[i])
                total += most
            ends[T] = n
            seen += 1
            box[seen, 0], box[seen, 1] = a, b
            if side == 0:
                box[seen, 1, f] = c
            else:
                box[seen, 0, f] = c + 1
            reached = _descent(some, ends, low, high, value, order, box[seen, 0], box[seen, 1], x, z)
            if reached > best:
                best = reached
                cell[:] = x
            key[seen] = total
            if total > best + slack:
                size = _push(heap, size, key, seen)
            else:
                pruned = max(pruned, total)
    upper = max(best, pruned)
    if size > 0:
        upper = max(upper, key[heap[0]])
    return upper, best, cell, seen
