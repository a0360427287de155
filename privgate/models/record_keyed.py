"""Randomness keyed by the record: batches and dropout that do not change when another record is left out."""

import hashlib
from typing import Any

import numpy as np
from numpy.typing import NDArray

Keys = NDArray[np.uint64]

_ODD = np.uint64(0x9E3779B97F4A7C15)


def n_batches(n: int, batch_size: int) -> int:
    """Return the number of batches of an epoch."""
    return max(1, -(-n // batch_size))


def mix(values: Any) -> Keys:
    """Return well-mixed 64-bit numbers (the finalizer of splitmix64, Steele et al. 2014)."""
    z = np.asarray(values, dtype=np.uint64)
    z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
    z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
    return np.asarray(z ^ (z >> np.uint64(31)))


def record_keys(X: NDArray[np.float32], y: NDArray[Any]) -> tuple[Keys, Keys]:
    """Return (content, key) of each record: hashes of features and label; copies have keys of their own, by rank.

    Parameters
    ----------
    X : float32 array of shape (n, d)
    y : array of shape (n,)
        Labels, hashed as text: their numbering may change when a record is left out.
    """
    with np.errstate(over="ignore"):
        weights = mix(np.arange(1, X.shape[1] + 1, dtype=np.uint64) * _ODD) | np.uint64(1)
        bits = np.ascontiguousarray(X + np.float32(0)).view(np.uint32)  # adding 0 makes -0 and 0 one
        keys = np.empty(len(X), dtype=np.uint64)
        for begin in range(0, len(X), 1024):
            part = slice(begin, begin + 1024)
            keys[part] = (bits[part].astype(np.uint64) * weights).sum(axis=1, dtype=np.uint64)
        names, codes = np.unique(y.astype(str), return_inverse=True)
        named = np.array([int.from_bytes(_digest(name), "big") for name in names], dtype=np.uint64)
        content = mix(keys ^ named[codes])
        return content, mix(content + ranks(content).astype(np.uint64) * _ODD)


def ranks(content: Keys) -> NDArray[np.int64]:
    """Return how many earlier records have the same content, shape (n,)."""
    order = np.argsort(content, kind="stable")
    ordered, place = content[order], np.arange(len(content))
    new = np.append(True, ordered[1:] != ordered[:-1])
    rank = np.empty(len(content), dtype=np.int64)
    rank[order] = place - np.maximum.accumulate(np.where(new, place, 0))
    return rank


def stand_ins(keep: NDArray[np.bool_], content: Keys) -> NDArray[np.bool_]:
    """Return which records to train on instead, so that keys agree with those of training on ``keep`` alone.

    Of several equal records the copies kept are the first ones: which of them was left out makes no difference, but
    their ranks, counted anew without it, do.

    Parameters
    ----------
    keep : bool array of shape (M, n)
    content : uint64 array of shape (n,)
    """
    rank = ranks(content)
    if not rank.any():
        return keep
    made = keep.copy()
    for value in np.unique(content[rank > 0]):
        rows = np.flatnonzero(content == value)
        made[:, rows] = np.arange(len(rows)) < keep[:, rows].sum(axis=1)[:, None]
    return made


def _digest(name: str) -> bytes:
    return hashlib.sha256(name.encode()).digest()[:8]


def batches(keys: Keys, seed: int, epoch: int, count: int) -> list[NDArray[np.int64]]:
    """Return the rows of each of ``count`` batches of an epoch; some may be empty."""
    with np.errstate(over="ignore"):
        drawn = mix(keys ^ mix(np.uint64(seed) * _ODD + np.uint64(epoch + 1)))
    batch = ((drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 * count).astype(np.int64)
    order = np.argsort(batch, kind="stable")
    return np.split(order, np.searchsorted(batch[order], np.arange(1, count)))


def kept_units(keys: Keys, seed: int, epoch: int, *, layer: int, units: int, dropout: float) -> NDArray[np.bool_]:
    """Return which hidden units each record keeps in an epoch, bool array of shape (n, units)."""
    with np.errstate(over="ignore"):
        salt = mix(np.uint64(seed) * _ODD + np.uint64(epoch + 1) + np.uint64(layer + 1) * np.uint64(1 << 40))
        drawn = mix((keys ^ salt)[:, None] + np.arange(1, units + 1, dtype=np.uint64) * _ODD)
    return np.asarray((drawn >> np.uint64(11)).astype(np.float64) * 2.0**-53 >= dropout)
