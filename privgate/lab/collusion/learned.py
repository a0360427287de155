"""What a learner was given while it was watched: its rows as numbers, and their labels."""

from dataclasses import dataclass, field
from typing import Any

import numpy as np
from numpy.typing import NDArray

Float = NDArray[np.float64]
#: different rows that are kept; of more, the number alone
MOST_ROWS = 50_000
#: numbers in a table that is still looked at
MOST_NUMBERS = 2e8
#: as it is before the watch stands in for it
_GENERATOR = np.random.default_rng


@dataclass
class Learned:
    """Rows that one learner was given, and their labels.

    Parameters
    ----------
    rows : list of float32 arrays
        Different rows in the order of their first use; of more than ``MOST_ROWS`` a random sample.
    labels : list
        The label that came with each first use; None where none did.
    distinct, given : int
        Different rows in all, and rows with repetitions.
    """

    rows: list[NDArray[np.float32]] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    distinct: int = 0
    given: int = 0
    _known: dict[Any, int] = field(default_factory=dict)
    _last: list[int] = field(default_factory=list)
    _keys: list[bytes] = field(default_factory=list)
    _chance: np.random.Generator = field(default_factory=lambda: _GENERATOR(0))

    def add(self, table: NDArray[np.float32], labels: Any) -> None:
        """Note a batch; ``labels`` may be None, and come later by ``label``."""
        self.given += len(table)
        self._last = []
        for row in table:
            key = row.tobytes()
            at = self._known.get(key)
            if at is None:
                self.distinct += 1
                at = self._known[key] = self._kept(key, row)
            self._last.append(at)
        if labels is not None:
            self.label(labels)

    def _kept(self, key: bytes, row: NDArray[np.float32]) -> int:
        """Keep a new row, or a random sample of them all where they are many; return where, -1 for nowhere."""
        if len(self.rows) < MOST_ROWS:
            self.rows.append(row)
            self.labels.append(None)
            self._keys.append(key)
            return len(self.rows) - 1
        at = int(self._chance.integers(self.distinct))
        if at >= MOST_ROWS:
            return -1
        self._known[self._keys[at]] = -1
        self.rows[at], self.labels[at], self._keys[at] = row, None, key
        return at

    def label(self, labels: Any) -> bool:
        """Take the labels of the last batch; return whether there are as many."""
        values = flat_labels(labels)
        if values is None:
            return True
        if len(values) != len(self._last):
            return False
        for at, value in zip(self._last, values, strict=True):
            if at >= 0 and self.labels[at] is None:
                self.labels[at] = value
        return True


def as_rows(records: Any) -> NDArray[np.float32] | None:
    """Return records of any kind as rows of numbers, shape (n, d); None where they are none."""
    if hasattr(records, "detach"):
        try:
            records = records.detach().cpu().numpy()
        except (RuntimeError, TypeError):  # inside of a transform of torch, tensors have no values
            return None
    if np.prod(getattr(records, "shape", (0,)), dtype=np.float64) > MOST_NUMBERS:
        return None
    if hasattr(records, "toarray"):
        records = records.toarray()
    if hasattr(records, "columns"):
        records = np.column_stack([_column(records.iloc[:, j]) for j in range(records.shape[1])])
    try:
        table = np.asarray(records)
    except (TypeError, ValueError):
        return None
    if table.dtype.kind not in "biuf":
        return _texts(table)
    if table.ndim == 0:
        return None
    return np.array(table.reshape(len(table), -1), dtype=np.float32)


def _column(values: Any) -> Float:
    raw = np.asarray(values)
    return raw.astype(np.float64) if raw.dtype.kind in "biuf" else np.array([_code(v) for v in raw.tolist()])


def _texts(table: NDArray[Any]) -> NDArray[np.float32] | None:
    """Return a few numbers a text that are equal for equal texts."""
    if table.ndim == 0 or not len(table):
        return None
    flat = table.reshape(len(table), -1)
    return np.array([[_code(v) for v in row] for row in flat.tolist()], dtype=np.float32)


def _code(value: Any) -> float:
    import zlib

    return float(value) if isinstance(value, int | float) else float(zlib.crc32(str(value).encode()) % (1 << 20))


def flat_labels(labels: Any) -> list[Any] | None:
    """Return labels as a list; of one-hot rows the largest column; None where they are nothing of the kind."""
    if hasattr(labels, "detach"):
        try:
            labels = labels.detach().cpu().numpy()
        except (RuntimeError, TypeError):
            return None
    values = np.asarray(labels)
    if values.ndim == 2 and values.shape[1] > 1:
        values = values.argmax(axis=1)
    return None if values.ndim == 0 else list(values.reshape(len(values), -1)[:, 0].tolist())
