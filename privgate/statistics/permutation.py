"""An exact test by permutation of whether two sets of runs are one sample."""

from functools import cache
from itertools import combinations

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]


@cache
def _splits(size: int) -> Float:
    """Return all ways to split 2 m runs in halves, as signs of shape (C(2 m, m) / 2, 2 m); the first m runs first."""
    chosen = [c for c in combinations(range(2 * size), size) if 0 in c]
    sign = -np.ones((len(chosen), 2 * size))
    np.put_along_axis(sign, np.array(chosen), 1.0, axis=1)
    return sign


def permutation_p(runs: Float) -> float:
    """Return the exact p-value of "both halves of the runs are one sample", by the distance of their means.

    Parameters
    ----------
    runs : float64 array of shape (2 m, D)
        m runs of one side, then m of the other.

    Returns
    -------
    float
        At least ``2 / C(2 m, m)``; uniform or larger where both sides are exchangeable.
    """
    sign = _splits(len(runs) // 2)
    centred = runs - runs.mean(axis=0)
    distance = np.square(sign @ centred).sum(axis=1)
    return float(np.mean(distance >= distance[0] * (1 - 1e-12)))  # the first split is the true one
