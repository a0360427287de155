"""Imputers without each unit: how the mean, the median or the most frequent value of a column changes."""

from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.families.pipelines.carried import Carried, Flags, Float, Index, NotCarried, Who, dense
from privgate.families.pipelines.encoders import codes
from privgate.models.columns import is_missing, split


def imputer(step: Any, before: Carried, who: Who) -> Carried:
    """Carry ``SimpleImputer``: filled values move with what they are filled by."""
    if before.moved or step.add_indicator:
        raise NotCarried("an imputer behind a step that learns, or one that adds columns, is not carried along")
    _, columns = split(before.raw)
    made = dense(step.transform(before.raw))
    if made.shape[1] != len(columns):
        raise NotCarried("an imputer that drops columns is not carried along")
    M = np.column_stack([[_is_nan(v) for v in c.tolist()] for c in columns]).astype(bool)
    if not (isinstance(step.missing_values, float) and np.isnan(step.missing_values)):
        raise NotCarried("an imputer of another value than NaN is not carried along")
    U = len(who.members)
    g, otherwise = np.zeros((U, len(columns))), before.otherwise.copy()
    for j, column in enumerate(columns):
        held = ~M[:, j]
        if step.strategy == "constant":
            continue
        if not M[:, j].any():
            continue
        if step.strategy == "mean":
            g[:, j] = _mean_without(column, held, who)
        elif step.strategy == "median":
            g[:, j] = _median_without(column, held, who)
        elif step.strategy == "most_frequent":
            otherwise |= _mode_changes(column, held, who, step.statistics_[j])
        else:
            raise NotCarried("an imputer with a function of its own is not carried along")
    gone = who.sums((~M[: who.n]).astype(np.float64)) >= (~M[: who.n]).sum(axis=0)
    otherwise |= gone.any(axis=1)  # a column that nobody else fills is dropped, or filled by another rule
    otherwise |= ~np.isfinite(g).all(axis=1)
    ones = np.ones_like(g)
    return Carried(None, made, ones, 0 * ones, np.nan_to_num(g), M, otherwise)


def _is_nan(value: Any) -> bool:
    """Whether the library's imputers take a value for missing: they leave None alone."""
    return value is not None and is_missing(value)


def _mean_without(column: NDArray[Any], held: Flags, who: Who) -> Float:
    """Return how the mean of the values that are there changes without each unit."""
    x = np.where(held, column, 0).astype(np.float64)[: who.n]
    here = held[: who.n]
    centre = x[here].mean()
    own = who.sums(np.column_stack([np.where(here, x - centre, 0.0), here]))
    rest = (x[here] - centre).sum()
    with np.errstate(divide="ignore", invalid="ignore"):
        return np.asarray((rest - own[:, 0]) / (here.sum() - own[:, 1]) - rest / here.sum())


def _median_without(column: NDArray[Any], held: Flags, who: Who) -> Float:
    """Return how the median of the values that are there changes without each unit."""
    x = np.where(held, column, np.nan).astype(np.float64)[: who.n]
    here = np.flatnonzero(held[: who.n])
    order = here[np.argsort(x[here], kind="stable")]
    place, value = np.full(who.n, -1), x[order]
    place[order] = np.arange(len(order))
    full, out = float(np.median(value)), np.zeros(len(who.members))
    for u, rows in enumerate(who.members):
        own = place[rows]
        own = own[own >= 0]
        if not len(own):
            continue
        left = len(order) - len(own)
        if not left:
            out[u] = np.nan
            continue
        middle = [(left - 1) // 2, left // 2]
        at = [_nth(np.sort(own), k) for k in middle]
        out[u] = (value[at[0]] + value[at[1]]) / 2 - full
    return out


def _nth(removed: Index, k: int) -> int:
    """Return the position of the k-th that remains, from sorted positions that are removed."""
    for r in removed:
        if r > k:
            break
        k += 1
    return k


def _mode_changes(column: NDArray[Any], held: Flags, who: Who, mode: Any) -> Flags:
    """Return without whom another value may be the most frequent: who holds no less of it than its lead."""
    _, counts = codes(column, who.n, held)
    order = np.sort(counts)
    lead = order[-1] - (order[-2] if len(order) > 1 else 0)
    mine = held[: who.n] & np.array([v == mode for v in column[: who.n].tolist()], dtype=bool)
    lost = who.sums(mine[:, None].astype(np.float64))[:, 0]
    return np.asarray((lost > 0) & (lost >= lead))
