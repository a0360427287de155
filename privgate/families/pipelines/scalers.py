"""Scalers without each unit: mean and variance from sums, the ends from who holds them."""

from dataclasses import replace
from typing import Any

import numpy as np

from privgate.families.pipelines.carried import Carried, Flags, Float, NotCarried, Who, dense, numbers, unchanged

#: a variance below this share of the squared mean is rounding, which the library may or may not call 0
_CONSTANT = 1e-14


def standard(step: Any, before: Carried, who: Who) -> Carried:
    """Carry ``StandardScaler``: mean and variance without a unit from sums over it and over everybody."""
    if (before.a != 1).any() or before.b.any():
        raise NotCarried("a scaler behind a scaler is not carried along")
    c, M, n = numbers(before), before.M, who.n
    here = c[:n] - (mean := c[:n].mean(axis=0))
    count = n - np.array([len(m) for m in who.members], dtype=np.float64)[:, None]
    # filled values all move by g; those of the unit itself are gone
    filled = M[:n].sum(axis=0) - who.sums(M[:n].astype(np.float64))
    first = (here.sum(axis=0) - who.sums(here) + before.g * filled) / count
    at_filled = (here * M[:n]).sum(axis=0) - who.sums(here * M[:n])
    second = ((here**2).sum(axis=0) - who.sums(here**2) + 2 * before.g * at_filled + before.g**2 * filled) / count
    variance = second - first**2
    full = (here**2).mean(axis=0)
    U, d = before.a.shape
    flat = (c[:n] == c[0]).all(axis=0)
    if (~flat & (full <= _CONSTANT * mean**2)).any():
        raise NotCarried("a feature is constant but for rounding")
    otherwise = before.otherwise | (~flat & ~(variance > 1e-6 * full)).any(axis=1)
    otherwise |= (flat & (np.abs(before.g) > 0)).any(axis=1)
    scale, a = np.ones(d), np.ones((U, d))
    if step.with_std:
        scale = np.asarray(step.scale_, dtype=np.float64)
        a[:, ~flat] = np.sqrt(full / np.where(variance > 0, variance, full))[:, ~flat]
    b = -a * first / scale if step.with_mean else np.zeros((U, d))
    return _scaled(step, before, a, np.where(flat, 0.0, b), scale, otherwise)


def _scaled(step: Any, before: Carried, a: Float, b: Float, scale: Float, otherwise: Flags) -> Carried:  # noqa: PLR0917  what a scaler does
    """Return scaled features; ``a`` and ``b`` as multiples of the scaled feature, ``g`` divided like the values."""
    Z = dense(step.transform(before.raw))
    wild = ~(np.isfinite(a) & (a > 0.5) & (a < 2)).all(axis=1)
    return Carried(Z, Z, a, b, a * before.g / scale, before.M, otherwise | wild)


def extremes(step: Any, before: Carried, who: Who) -> Carried:
    """Carry ``MinMaxScaler`` and ``MaxAbsScaler``: an end moves only without who holds it."""
    if before.moved or getattr(step, "clip", False):
        raise NotCarried("a scaler that clips, or stands behind a step that learns, is not carried along")
    c, n = numbers(before), who.n
    ends = [-c, c] if type(step).__name__ == "MinMaxScaler" else [np.abs(c)]
    moves = np.zeros(len(who.members), dtype=bool)
    for values in ends:
        top = values[:n].max(axis=0)
        holders = (values[:n] == top).astype(np.float64)
        moves |= (who.sums(holders) >= holders.sum(axis=0)).any(axis=1)
    return unchanged(step.transform(before.raw), replace(before, otherwise=before.otherwise | moves))
