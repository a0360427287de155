"""Questions at which a person's absence may show most, where scores are sums over features; the kernel puts them.

A label falls far where its odds against another class fall far and that class is likely. So questions are sought along
the frontier of (fall of the odds, odds against it), feature by feature, then by changing one feature at a time.
"""

from collections.abc import Callable
from typing import NamedTuple

import numpy as np

from privgate.arrays import Float, Index

#: how much the odds weigh against their fall, along the frontier
WEIGHTS = (0.0, 0.003, 0.01, 0.03, 0.06, 0.1, 0.15, 0.2, 0.3, 0.45, 0.7, 1.0, 2.0, 5.0)
#: places tried on each side of a box, and how often around the best so far
PLACES, ROUNDS = 9, 5
#: rounds of changing one feature at a time
_TURNS = 2


class Tables(NamedTuple):
    """Scores ``bias + sum_j cells[cell of feature j]`` with everybody and without each of U people.

    Parameters
    ----------
    bias, bias_without : float64 arrays of shapes (1, K) and (U, K)
    cells, cells_without : float64 arrays of shapes (1 or U, K, C) and (U, K, C)
        ``-inf`` in neither; cells that may not be asked about are left out.
    start : int64 array of shape (d,)
        First cell of each feature.
    """

    bias: Float
    bias_without: Float
    cells: Float
    cells_without: Float
    start: Index

    def scores(self, chosen: Index) -> tuple[Float, Float]:
        """Return the scores (U, K) with and without each of the people at the cells (U, d) chosen for them."""
        at = chosen[:, None, :]
        with_ = np.take_along_axis(np.broadcast_to(self.cells, self.cells_without.shape), at, axis=2)
        without = np.take_along_axis(self.cells_without, at, axis=2)
        return self.bias + with_.sum(axis=2), self.bias_without + without.sum(axis=2)


def change(with_: Float, without: Float) -> Float:
    """Return the largest change of a label's log-probability between scores (…, K), shape (…,); 0 for NaN."""
    logs = [z - np.logaddexp.reduce(z, axis=-1, keepdims=True) for z in (with_, without)]
    return np.asarray(np.nan_to_num(np.abs(logs[0] - logs[1]).max(axis=-1), nan=0.0, posinf=np.inf))


def best(tables: Tables, first: Index | None = None) -> tuple[Index, Float]:
    """Return the cells (U, d) at which most was found to change, and how much, (U,); it starts from ``first``."""
    S, R, start = tables.cells, tables.cells_without, tables.start
    U, K, C = R.shape
    found = np.tile(start, (U, 1)) if first is None else first
    value = change(*tables.scores(found))
    feature = np.repeat(np.arange(len(start)), np.diff(np.append(start, C)))
    for a in range(K):
        for b in set(range(K)) - {a}:
            falls = (S[:, a] - S[:, b]) - (R[:, a] - R[:, b])
            for sign, odds in ((1, R[:, b] - R[:, a]), (-1, S[:, b] - S[:, a])):
                for weight in WEIGHTS:
                    worth = sign * falls + weight * odds
                    worth = np.where(np.isnan(worth), -np.inf, worth)
                    top = np.maximum.reduceat(worth, start, axis=1)[:, feature]
                    places = np.where(worth == top, np.arange(C), C)
                    chosen = np.minimum.reduceat(places, start, axis=1)
                    found, value = _better(tables, found, value, chosen)
    return _around(tables, found)


def _around(tables: Tables, found: Index) -> tuple[Index, Float]:
    """Return the best questions on the way of changing one feature at a time, and how much they tell."""
    value = change(*tables.scores(found))
    for _ in range(_TURNS):
        for j in range(len(tables.start)):
            found, value = _turned(tables, found, value, j)
    return found, value


def _turned(tables: Tables, found: Index, value: Float, j: int) -> tuple[Index, Float]:
    """Return the best questions that differ from ``found`` in one feature at most."""
    begin, end = (int(v) for v in np.append(tables.start, tables.cells_without.shape[2])[j : j + 2])
    if end - begin == 1:
        return found, value
    own, scores = found[:, None, j, None], []
    for total, cells in zip(tables.scores(found), (tables.cells, tables.cells_without), strict=True):
        here = np.take_along_axis(np.broadcast_to(cells, tables.cells_without.shape), own, axis=2)
        scores.append((total[:, :, None] - here + cells[:, :, begin:end]).transpose(0, 2, 1))
    told = change(scores[0], scores[1])
    chosen = found.copy()
    chosen[:, j] = begin + told.argmax(axis=1)
    return _better(tables, found, value, chosen)


def _better(tables: Tables, found: Index, value: Float, chosen: Index) -> tuple[Index, Float]:
    other = change(*tables.scores(chosen))
    more = other > value
    return np.where(more[:, None], chosen, found), np.where(more, other, value)


def in_box(scored: Callable[[Float], Tables], low: Float, high: Float, *, whole: bool) -> tuple[Float, Float]:
    """Return questions (U, d) of a box and how much they tell, (U,): the ends first, then around the best.

    ``scored(x)`` returns the tables at places ``x`` (1 or U, d, P) of each feature, P cells a feature.
    """
    share = np.linspace(0.0, 1.0, PLACES)
    x, around = (low[:, None] + (high - low)[:, None] * share)[None], (high - low) / (PLACES - 1)
    for turn in range(ROUNDS):
        x = np.clip(np.rint(x) if whole else x, low[:, None], high[:, None])
        tables = scored(x)
        places = np.broadcast_to(x.reshape(len(x), -1), (len(tables.cells_without), x[0].size))
        # the place around which is looked is the middle one
        middle = None if turn == 0 else np.tile(tables.start + PLACES // 2, (len(places), 1))
        chosen, value = best(tables, middle)
        question = np.take_along_axis(places, chosen, axis=1)
        x = question[:, :, None] + around[:, None] * np.linspace(-1, 1, PLACES)
        around = around / (PLACES - 1) * 2
    return question, value
