"""What readers of fitted ensembles share: trees of a library as one table, and thresholds as questions meet them."""

from collections.abc import Sequence
from typing import Any

import numpy as np

from privgate.families.trees.branches import Tree
from privgate.families.trees.ensemble import Float, Index


class UnreadableError(ValueError):
    """Raised where a fitted model holds something that no theorem about its cells covers; says what."""


def joined(parts: Sequence[Tree], lost: list[Index] | None = None) -> dict[str, Any]:
    """Return trees, counted from 0, as one table; where missing values go is put into ``lost``."""
    sizes = np.array([len(p[0]) for p in parts])
    start = np.append(0, np.cumsum(sizes))
    shift = np.repeat(start[:-1], sizes)
    feature = np.concatenate([p[0] for p in parts]).astype(np.int32)
    children = [np.where(feature >= 0, np.concatenate([p[k] for p in parts]) + shift, 0) for k in (2, 3)]
    if lost is not None:
        lost.append(np.where(feature >= 0, np.concatenate([p[5] for p in parts]) + shift, 0).astype(np.int64))
    return {
        "start": start.astype(np.int32),
        "feature": feature,
        "cut": np.where(feature >= 0, np.concatenate([p[1] for p in parts]).astype(np.float64), 0.0),
        "left": children[0].astype(np.int32),
        "right": children[1].astype(np.int32),
        "value": np.concatenate([np.asarray(p[4], dtype=np.float64).reshape(len(p[0]), -1) for p in parts]),
    }


def at_most(threshold: Float) -> Float:
    """Return the largest number of single precision that is at most each threshold, -inf where there is none."""
    with np.errstate(over="ignore"):
        near = threshold.astype(np.float32)
    return np.where(near > threshold, np.nextafter(near, np.float32(-np.inf)), near).astype(np.float64)
