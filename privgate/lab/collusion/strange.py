"""What a learner was given while it was watched: its rows as numbers, and their labels."""

from collections.abc import Iterator
from dataclasses import asdict, dataclass, field, replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index

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


# Whether what a learner was given are the records that training was given, and their labels.

Table = NDArray[np.float32]

#: rows of either side whose distances are looked at
MOST = 1_500
#: rows times records of which distances are taken
MOST_PAIRS = 30_000_000
#: a row is far if it is farther from every record than this many times what one record is from its nearest other
FAR, OF_ALL = 1.25, 0.995
#: a number may differ by this share of a column's range and be the same: single precision, other order of sums
SAME = 1e-4
#: a row is nobody's if it is no record, far from all of them, or near to one with another label, beyond this share
SHARE = 0.01
#: of rows that are no records, so many are apart where they are other people's (half of those are, by definition)
OTHERS = 0.35
#: share of rows that must be records, or near to one, for a scale to be the learner's
KNOWN_EXACTLY, KNOWN = 0.04, 0.2
#: rows by which a scale is chosen
FEW = 200
#: columns are of one kind if so many of them reach half of the widest one's range
ONE_KIND = 0.5


@dataclass(frozen=True)
class Compared:
    """One learner's rows beside the records.

    Parameters
    ----------
    name : str
        The learner.
    records, distinct : int
        Records that training was given, and different rows that the learner was given.
    exact, far, relabelled : int
        Of the rows looked at: records to the last digits, far from every record, records with another label.
    apart : int
        Of the rows looked at: no records, and as far from the nearest one as half of the records are from another.
    moved : int
        Of the rows looked at: near to a record and labelled otherwise than it.
    unlike : int
        Of the rows looked at: records whose targets, numbers or many, do not go with those that they have.
    usual_moved : float
        Share of records that are labelled otherwise than their nearest other record.
    looked : int
        Rows looked at; 0 where rows and records cannot be compared, as after transformations unknown here.
    """

    name: str
    records: int
    distinct: int
    exact: int = 0
    far: int = 0
    relabelled: int = 0
    apart: int = 0
    moved: int = 0
    unlike: int = 0
    usual_moved: float = 0.0
    looked: int = 0

    @property
    def found(self) -> str:
        """What is wrong, in words; empty if nothing is."""
        if not self.looked:
            return ""
        share = self.distinct / self.looked
        if self.far > max(1, SHARE * self.looked):
            return (
                f"{self.name} was given about {self.far * share:.0f} rows that are no records and like none "
                f"({self.distinct} different rows, {self.records} records)"
            )
        if self.relabelled > max(1, SHARE * self.looked):
            return f"{self.name} was given about {self.relabelled * share:.0f} records with another label than theirs"
        near = self.looked - self.exact - self.far
        usual = self.usual_moved * near
        if near and self.moved > max(2.0, usual + 5 * np.sqrt(usual + 1) + SHARE * self.looked):
            return (
                f"{self.name} was given about {self.moved * share:.0f} rows near to a record and with another label "
                f"({self.distinct} different rows, {self.records} records)"
            )
        return ""

    @property
    def unknown(self) -> str:
        """Why nothing can be said; empty if something can."""
        if self.looked and self.apart > max(1, SHARE * self.looked, OTHERS * (self.looked - self.exact)):
            rows = self.apart * self.distinct / self.looked
            return (
                f"{self.name} was given about {rows:.0f} rows as unlike every record as other people's are: changed "
                "far, or somebody's who was not handed over"
            )
        if self.looked and self.unlike > max(1, SHARE * self.looked):
            return f"{self.name} was given about {self.unlike * self.distinct / self.looked:.0f} targets not their own"
        if self.looked or self.distinct <= self.records:
            return ""
        return (
            f"{self.name} was given {self.distinct} different rows for {self.records} records, changed in a way that "
            "cannot be followed"
        )

    def payload(self) -> dict[str, Any]:
        """Return JSON values."""
        return {**asdict(self), "found": self.found, "unknown": self.unknown}


def compared(name: str, seen: Learned, X: Table | None, y: list[Any], *, numeric: bool = True) -> Compared:
    """Return how the rows and labels that a learner was given compare with records ``X`` and labels ``y``.

    Of records that are no numbers (not ``numeric``) only whether they are records is told.
    """
    rows, labels, distinct = seen.rows, seen.labels, seen.distinct
    records = len(y)
    plain = Compared(name, records, distinct)
    if X is None or not rows or len(rows[0]) < X.shape[1]:
        return plain
    looked = max(FEW, min(MOST, MOST_PAIRS // records))
    some = np.linspace(0, len(rows) - 1, min(looked, len(rows))).astype(np.int64)
    table = np.stack([rows[int(i)] for i in some])
    given = [labels[int(i)] for i in some]
    # columns that were made of others stand behind the records' own, or before them
    sides = [table] if table.shape[1] == X.shape[1] else [table[:, : X.shape[1]], table[:, -X.shape[1] :]]
    table, chosen = next(((t, c) for t in sides if (c := _scaled(t, X)) is not None), (table, None))
    if chosen is None:
        return plain
    scaled, spread = chosen, _spread(chosen)
    at = matching(table, scaled, spread)
    if not numeric:  # texts and categories have no distances: what is no record is somebody's, or changed
        return replace(plain, exact=int((at >= 0).sum()), apart=int((at < 0).sum()), looked=len(table))
    unit, others = scaled / spread, table[at < 0] / spread
    known = unit[np.linspace(0, records - 1, min(2 * MOST, records)).astype(np.int64)]
    known_y = [y[int(i)] for i in np.linspace(0, records - 1, min(2 * MOST, records)).astype(np.int64)]
    usual_away, usual_at = nearest(known, known, itself=True)
    limit = _limit(known)
    away, near_to = nearest(others, known)
    far = away > limit
    names = translation([given[int(i)] for i in np.flatnonzero(at >= 0)], [y[int(a)] for a in at[at >= 0]])
    changed = [
        given[int(i)] is not None and names.get(y[int(at[i])]) != given[int(i)]
        for i in np.flatnonzero(at >= 0)
        if y[int(at[i])] in names
    ]
    # equal records may have different labels by themselves
    twins = records - len({row.tobytes() for row in scaled})
    near_given = [given[int(i)] for i in np.flatnonzero(at < 0)]
    moved = sum(
        bool(not far[i] and g is not None and names.get(known_y[int(near_to[i])], g) != g)
        for i, g in enumerate(near_given)
    )
    wrong = float(np.mean([known_y[i] != known_y[int(j)] for i, j in enumerate(usual_at)])) if len(known) > 1 else 0.0
    told = {v for v in given if v is not None}
    named = len(set(map(str, y))) <= max(50, records // 5) and len(told) <= 2 * len(set(map(str, y))) + 2
    return Compared(
        name,
        records,
        distinct,
        unlike=0
        if named
        else max(
            0, unordered([given[int(i)] for i in np.flatnonzero(at >= 0)], [y[int(a)] for a in at[at >= 0]]) - twins
        ),
        exact=int((at >= 0).sum()),
        far=int(far.sum()),
        apart=int((away > np.median(usual_away)).sum()),
        relabelled=max(0, sum(changed) - twins) if named else 0,
        moved=moved if named else 0,
        usual_moved=wrong,
        looked=len(table),
    )


def scales(X: Table) -> Iterator[Table]:
    """Yield the records as they are and as they are scaled in practice."""
    X64 = X.astype(np.float64)

    def over(a: Any, b: Any) -> Table:
        return np.asarray((X64 - a) / np.where(np.asarray(b) > 0, b, 1.0), dtype=np.float32)

    yield X
    low, high, mean, deviation = X64.min(axis=0), X64.max(axis=0), X64.mean(axis=0), X64.std(axis=0)
    yield over(mean, deviation)
    yield over(low, high - low)
    yield over(X64.mean(), X64.std())
    for top in dict.fromkeys((float(X64.max()), 255.0, 16.0, 100.0)):
        yield over(0.0, top)
        yield over(top / 2, top / 2)
    yield over(X64.min(), X64.max() - X64.min())
    yield over(mean, 1.0)
    yield over(mean, deviation * np.sqrt(len(X) / max(1, len(X) - 1)))  # torch's and pandas' deviation
    yield over(0.0, np.linalg.norm(X64, axis=1)[:, None])


def _scaled(table: Table, X: Table) -> Table | None:
    """Return the records in the scale in which most rows are records, or else near to some; None in no known one."""
    few = table[np.linspace(0, len(table) - 1, min(FEW, len(table))).astype(np.int64)]
    known = np.linspace(0, len(X) - 1, min(2 * MOST, len(X))).astype(np.int64)
    best: tuple[float, Table] | None = None
    for scaled in scales(X):
        spread = _spread(scaled)
        exact = float((matching(few, scaled[known], spread) >= 0).mean()) * len(X) / len(known)
        usual = _limit(scaled[known] / spread)
        near = float((nearest(few / spread, scaled[known] / spread)[0] <= usual).mean())
        fits = exact + (1.0 if exact >= KNOWN_EXACTLY else 0.0) + near / 2
        if (exact >= KNOWN_EXACTLY or near >= KNOWN) and (best is None or fits > best[0]):
            best = fits, scaled
        if exact >= 1.0:
            break
    return None if best is None else best[1]


def _spread(records: Table) -> NDArray[np.float64]:
    """Return the unit of each column: its range, or one for all where columns are of a kind, as pixels are."""
    spread = np.ptp(records.astype(np.float64), axis=0)
    told = spread[spread > 0]
    if len(told) and (told >= told.max() / 2).mean() >= ONE_KIND:
        return np.full(len(spread), told.max())
    return np.where(spread > 0, spread, 1.0)


def _limit(unit: Any) -> float:
    """Return from which distance on a row is like no record."""
    some = unit[np.linspace(0, len(unit) - 1, min(MOST, len(unit))).astype(np.int64)]
    return FAR * float(np.quantile(nearest(some, some, itself=True)[0], OF_ALL)) if len(some) > 1 else np.inf


def matching(rows: Table, records: Table, spread: NDArray[np.float64]) -> Index:
    """Return which record each row is, to ``SAME`` of every column's unit; -1 where it is none."""
    _, which = nearest(rows / spread, records / spread)
    with np.errstate(invalid="ignore"):
        apart = np.abs(np.nan_to_num(rows) - np.nan_to_num(records[which])) / spread
    return np.where((apart <= SAME).all(axis=1), which, -1)


def nearest(rows: NDArray[Any], records: NDArray[Any], *, itself: bool = False) -> tuple[NDArray[np.float64], Index]:
    """Return how far the nearest record is, and which; with ``itself``, the nearest other one."""
    away, which = np.empty(len(rows)), np.empty(len(rows), dtype=np.int64)
    records64 = np.nan_to_num(records.astype(np.float64))
    square = (records64**2).sum(axis=1)
    for start in range(0, len(rows), 256):
        part = np.nan_to_num(rows[start : start + 256].astype(np.float64))
        d = (part**2).sum(axis=1)[:, None] + square[None] - 2 * part @ records64.T
        if itself:
            d[np.arange(len(part)), start + np.arange(len(part))] = np.inf
        which[start : start + 256] = d.argmin(axis=1)
        away[start : start + 256] = np.sqrt(np.maximum(d.min(axis=1), 0.0))
    return away, which


def unordered(given: list[Any], own: list[Any]) -> int:
    """Return how many targets must change so that those given rise, or fall, with the records' own ones.

    Scaling and logarithms keep the order of numbers. Names of many kinds have none: they must be the same ones.
    """
    pairs = [(o, g) for o, g in zip(own, given, strict=True) if g is not None]
    if not all(isinstance(v, int | float) for pair in pairs for v in pair):
        names = translation([g for _, g in pairs], [o for o, _ in pairs])
        return sum(names[o] != g for o, g in pairs)
    return min(len(pairs) - _rising([(float(o), sign * float(g)) for o, g in pairs]) for sign in (1, -1))


def _rising(pairs: list[tuple[float, float]]) -> int:
    """Return the length of the longest part that does not fall."""
    from bisect import bisect_right

    ends: list[float] = []
    slack = 1e-6 * max((abs(g) for _, g in pairs), default=0.0)
    for _, g in sorted(pairs):
        at = bisect_right(ends, g + slack)
        ends[at : at + 1] = [max(g, ends[at - 1]) if at else g]
    return len(ends)


def translation(given: list[Any], own: list[Any]) -> dict[Any, Any]:
    """Return which label of the learner's stands for each label of the records: the most frequent one."""
    counts: dict[Any, dict[Any, int]] = {}
    for g, o in zip(given, own, strict=True):
        if g is not None:
            inner = counts.setdefault(o, {})
            inner[g] = inner.get(g, 0) + 1
    return {o: max(inner, key=inner.__getitem__) for o, inner in counts.items()}
