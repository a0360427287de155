"""Splits that are no single threshold, as several: categories as runs of numbers, missing values as a feature more."""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.trees.ensemble import Ensemble, Float, Index

#: (node, feature, cuts, children between them, child of a missing value): what lies up to cut k goes to child k
Run = tuple[int, int, Float, Index, int]
#: a tree: feature, cut, left, right, value, child of a missing value
Tree = tuple[NDArray[Any], ...]


def with_runs(tree: Tree, runs: list[Run]) -> Tree:
    """Return a tree whose categorical nodes are chains of thresholds; children may be reached in several ways.

    Parameters
    ----------
    tree : Tree
        What stands at the nodes of ``runs`` is replaced.
    runs : list of Run
        Of each categorical node: one child more than cuts.
    """
    columns = [list(np.asarray(c).tolist()) for c in tree]
    feature, cut, left, right, value, lost = columns
    for node, f, cuts, children, missing in runs:
        at = np.flatnonzero(np.diff(children))  # the same child on both sides needs no cut
        ends, goes = np.asarray(cuts)[at].tolist(), [*np.asarray(children)[at].tolist(), int(children[-1])]
        here = node
        for k, end in enumerate(ends or [0.0]):
            last = k + 1 >= len(ends)
            after = goes[-1] if last else len(feature)
            row = (f, end, goes[k], after, 0.0, missing)
            for column, entry in zip(columns, row, strict=True):
                column[here] = entry
            if not last:
                here = after
                for column in columns:
                    column.append(0)
    return tuple(np.asarray(c) for c in (feature, cut, left, right, value, lost))


def with_missing(ensemble: Ensemble, lost: Index, missing: NDArray[np.bool_]) -> Ensemble:
    """Return the same ensemble about twice the features: whether one is missing comes after all of them.

    A node first asks whether its feature is missing, then what it asked before; so cells stay boxes.

    Parameters
    ----------
    ensemble : Ensemble
    lost : int64 array of shape (N,)
        Where a missing value goes at each node.
    missing : bool array of shape (d,)
        Which features may be missing.
    """
    d, N = len(missing), len(ensemble.feature)
    asked = np.flatnonzero((ensemble.feature >= 0) & missing[np.maximum(ensemble.feature, 0)])
    moved = N + np.arange(len(asked))
    feature, cut = np.append(ensemble.feature, ensemble.feature[asked]), np.append(ensemble.cut, ensemble.cut[asked])
    left, right = np.append(ensemble.left, ensemble.left[asked]), np.append(ensemble.right, ensemble.right[asked])
    feature[asked] += np.int32(d)
    cut[asked], left[asked], right[asked] = 0.0, moved, lost[asked]
    value = np.concatenate([ensemble.value, np.zeros((len(asked), ensemble.value.shape[1]))])
    start = np.append(ensemble.start[:-1], len(feature)).astype(np.int32)
    return replace(ensemble, start=start, feature=feature, cut=cut, left=left, right=right, value=value, width=d)


def single(question: Float, d: int) -> Float:
    """Return a question of twice the features as one that the library is asked."""
    if len(question) == d:
        return question
    return np.where(question[d:] > 0, np.nan, question[:d])
