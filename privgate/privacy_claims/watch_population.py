"""What batches are drawn from, entry by entry, and whose record each entry is."""

import hashlib
import random
from math import comb
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.privacy_claims.watch_released import leaves
from privgate.privacy_claims.watch_transcript import restore, states

#: the entry is the same whatever the records are
NOBODY = -1
#: the entry depends on several people
MIXED = -2
#: the entry changed for some of its owner's changes only
UNCLEAR = -3


class Population:
    """The entries of a data set that a loader draws from.

    Parameters
    ----------
    dataset : torch data set
    """

    def __init__(self, dataset: Any) -> None:
        self.dataset = dataset
        self.entries: list[str] | None = None
        self.samplers: list[Any] = []
        self.changed = False

    def look(self) -> None:
        """Read all entries, before the first step."""
        if self.entries is None:
            self.entries = _read(self.dataset)

    def look_again(self) -> None:
        """Compare with what is there when the training is over."""
        self.changed = self.entries is not None and _read(self.dataset) != self.entries


def _read(dataset: Any) -> list[str] | None:
    """Return a digest of every entry, None for what has no entries; random changes are the same in each reading."""
    import torch
    from torch.utils.data import TensorDataset

    if type(dataset) is TensorDataset:
        columns = [t.detach().cpu().contiguous().numpy() for t in dataset.tensors]
        return [_digest(*(np.ascontiguousarray(c[i]).tobytes() for c in columns)) for i in range(len(dataset))]
    try:
        size = len(dataset)
    except TypeError:
        return None
    before, found = states(), []
    for i in range(size):
        torch.manual_seed(0)
        np.random.seed(0)  # noqa: NPY002  the user's generator
        random.seed(0)
        found.append(_digest(repr(sorted(leaves(dataset[i]).items())).encode()))
    restore(before)
    return found


def _digest(*parts: bytes) -> str:
    made = hashlib.sha256()
    for part in parts:
        made.update(str(len(part)).encode() + b":" + part)
    return made.hexdigest()


def codes(units: int) -> NDArray[np.bool_]:
    """Return one word a unit, all different and of one weight, shape (units, L).

    Whatever depends on two units changes with the union of their words, which is heavier than any word.
    """
    length = 2
    while comb(length, length // 2) < 4 * units:
        length += 1
    rng = np.random.default_rng(0)
    words = np.zeros((0, length), dtype=bool)
    while len(words) < units:
        order = np.argsort(rng.random((2 * units, length)), axis=1)
        words = np.unique(np.concatenate([words, order < length // 2]), axis=0)
    chosen: NDArray[np.bool_] = words[rng.permutation(len(words))[:units]]
    return chosen


def owners(changed: NDArray[np.bool_], words: NDArray[np.bool_]) -> NDArray[np.int64]:
    """Return the unit that each entry comes from, or ``NOBODY``, ``MIXED``, ``UNCLEAR``.

    Parameters
    ----------
    changed : bool array of shape (entries, L)
        Whether the entry changed when the units with this bit were replaced.
    words : bool array of shape (units, L)
    """
    known = {word.tobytes(): unit for unit, word in enumerate(words)}
    weight = int(words[0].sum())
    found = np.full(len(changed), MIXED, dtype=np.int64)
    for i, pattern in enumerate(changed):
        if not pattern.any():
            found[i] = NOBODY
        elif pattern.tobytes() in known:
            found[i] = known[pattern.tobytes()]
        elif pattern.sum() < weight:
            found[i] = UNCLEAR
    return found
