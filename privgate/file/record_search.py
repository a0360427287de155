"""Training records as numbers and as texts, found again in whatever a file holds, in any order of rows and columns."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import cached_property, partial
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float, Index
from privgate.file.contents import Array

#: units in the last place that arithmetic may have cost, and that six printed digits cost of single precision
CARRIED, PRINTED = 8, 64
#: seconds of processor time in which records are searched for in other forms; more for each 10^7 bytes of records, and
#: each 10^9 of the file
SECONDS = 10.0
#: numbers among which a record may begin anywhere; in larger arrays it is a row or a column
_FLAT = 1 << 20
#: letters of a text that is somebody's own, words by which it is looked up, and share of records that may have it
_LONG, _WORDS, _COMMON = 20, 8, 0.01
#: different texts of a column, and their share, below which they are categories; from which share on they are names
_CATEGORIES, _DISTINCT, _NAMES, _SHORT = 50, 0.1, 0.9, 8
#: letters that are compared one after the other with those of texts whose words were not met
_COMPARED = 1 << 32
#: bits by which the values of a row must be rarer than chance, if one row is found, and if several are
ALONE, TOGETHER = 40.0, 20.0
#: bits on average, where nearly all rows of a table are records
FEW, _MOST = 8.0, 0.9
#: times as many records as chance meets, and times that columns are moved to see what it meets
CHANCE, _DRAWN = 5, 3
#: records from which on an array with an entry each is noticed
MANY = 20
#: rows, and numbers of them, that are tried before a whole array is
_TRIED = 512
#: share of a column's numbers that are the records', where some of its rows are
_FITS = 0.1
#: places where a record may begin that are compared at a time
_WINDOWS = 100_000
#: what stands for a missing value, and for what whole numbers cannot hold
_MISSING, _NOT_THERE = np.pi * 1e30, 1e300


#: makes of some values of columns, and the columns' numbers, what a scaler or a print makes
_Form = Callable[[Float, Any], Float]


class Records:
    """Training records to be found again: the columns of numbers, ``table`` (n, d), and of texts, ``texts``, n each."""

    def __init__(self, table: Float, texts: list[list[str]]) -> None:
        self.table, self.texts = table, texts
        self.n, self.width = table.shape
        # of 80 MB of records all forms take 7 s
        self._until, self.cut = time.process_time() + SECONDS * (1 + table.nbytes / 1e7), False

    @classmethod
    def from_container(cls, X: Any) -> "Records":
        """Return the records of a container."""
        if isinstance(X, list):
            return cls(np.zeros((len(X), 0)), [[v if isinstance(v, str) else " ".join(map(str, v)) for v in X]])
        if hasattr(X, "tocsr"):
            return cls(_read_first_values(X.tocsr()), [])
        if hasattr(X, "select_dtypes"):
            numbers = X.select_dtypes(["number", "bool"]).to_numpy(dtype=np.float64, na_value=np.nan)
            texts = X.select_dtypes(exclude=["number", "bool"]).astype("string").fillna("")
            return cls(numbers, _join_texts([texts.iloc[:, j].tolist() for j in range(texts.shape[1])]))
        table = np.asarray(X)
        table = table.reshape(len(table), -1)
        if table.dtype.kind not in "biuf":
            return cls(np.zeros((len(table), 0)), _join_texts([list(map(str, c)) for c in table.T.tolist()]))
        return cls(table.astype(np.float64, copy=False), [])

    @property
    def late(self) -> bool:
        """Whether no time is left for other forms than the records as they are; asked where more would be."""
        self.cut |= time.process_time() > self._until
        return self.cut

    @cached_property
    def ordered(self) -> list[tuple[Index, Float]]:
        """The order of each column, and its numbers in it."""
        return [(order := np.argsort(column), column[order]) for column in self.table.T]

    @cached_property
    def _distinct(self) -> Float:
        return self.table[:, [len(np.unique(column)) >= _NAMES * self.n for column in self.table.T]]

    def has_in_one_column(self, a: Array) -> bool:
        """Return whether nearly all numbers of an array are values of one column that tells people apart."""
        dtype = np.float32 if a.text else np.result_type(a.values.dtype, np.float32)
        numbers, own = np.unique(a.values.astype(dtype)), self._distinct.T.astype(dtype)
        return len(numbers) >= MANY and any(  # not by chance: their neighbours are no values
            np.isin(numbers, column).mean() >= _NAMES > 2 * np.isin(numbers + 1, column).mean() for column in own
        )

    def find_rows(self, arrays: list[Array], may_be_scaled: Callable[[Array], bool]) -> list[Bool]:
        """Return which records each array holds, bool of shape (n,): as they are first, then as scalers make them."""
        held, alike = [np.zeros(self.n, dtype=bool) for _ in arrays], dict[tuple[Any, bool], list[int]]()
        for k, a in enumerate(arrays):
            if 2 <= self.width <= a.values.size and self.n >= 2:
                alike.setdefault((np.dtype(np.float32) if a.text else a.values.dtype, a.text), []).append(k)
        self._until += SECONDS * sum(a.values.nbytes for a in arrays) / 1e9
        for (dtype, text), some in alike.items():
            space = _RecordSpace(self, lambda values, _: values, dtype, ulps=PRINTED * text)
            for k in some:
                held[k] = space.find_in(arrays[k])
        for (dtype, text), some in alike.items():
            rest = [k for k in some if not held[k].any() and may_be_scaled(arrays[k])]
            for form in _scale(self.table, text=text) if rest else ():
                if self.late:
                    break
                space = _RecordSpace(self, form, dtype, ulps=PRINTED if text else CARRIED)
                for k in rest:
                    if not held[k].any() and not self.late:
                        held[k] = space.find_in(arrays[k])
        return held

    def find_texts(self, passages: list[str]) -> Bool:
        """Return which texts stand in passages, bool of shape (n,), whatever their case and what is between words."""
        held = np.zeros(self.n, dtype=bool)
        for place, column in enumerate(self.texts):
            common = Counter(filter(None, column))
            # categories, which an encoder keeps, are nobody's own
            if len(common) < min(_CATEGORIES, _DISTINCT * common.total()):
                continue
            named = self.width + len(self.texts) > 2 and len(common) >= max(MANY, _NAMES * common.total())
            least = _SHORT if named else _LONG  # names and addresses are short; so are pieces of writing
            own = {k: t for k, t in enumerate(column) if len(t) >= least and common[t] <= max(1.0, _COMMON * self.n)}
            mine = _find_words({k: _split_words(t) for k, t in own.items()}, passages) if own else []
            joined = "".join(p or "\n" for p in passages).casefold()
            rest = list(own.keys() - set(mine))[: _COMPARED // max(1, len(joined))]
            mine += [k for k in rest if own[k].casefold().strip() in joined]
            # of several columns, one row is what an imputer keeps: the most frequent value of each
            if len(self.texts) == 1 or place < len(self.texts) - 1 or len({column[k] for k in mine}) > 1:
                held[mine] = True
        return held


def _join_texts(columns: list[list[str]]) -> list[list[str]]:
    """Return columns of texts, and the texts of each row as one where it has several: they are a record together."""
    rows = [list(filter(None, row)) for row in zip(*columns, strict=True)]
    return [*columns, [" ".join(row) * (len(row) > 1) for row in rows]]


def _find_words(own: dict[int, list[str]], passages: list[str]) -> list[int]:
    """Return of which records the words stand one after another: looked up by their first ones, then compared."""
    stream = [word for p in passages for word in (_split_words(p) if p else [""])]
    starts = {tuple(words[:_WORDS]): list[int]() for words in own.values()}
    for size in {len(first) for first in starts}:
        for place, window in enumerate(zip(*(stream[k:] for k in range(size)), strict=False)):
            if window in starts:
                starts[window].append(place)
    return [
        k
        for k, words in own.items()
        if any(stream[place : place + len(words)] == words for place in starts[tuple(words[:_WORDS])])
    ]


def _split_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _scale(table: Float, *, text: bool) -> Iterator[_Form]:
    """Yield the four ways in which the usual scalers make records; for texts, with few decimals before."""
    for decimals in (4, 3, 2) if text else ():
        yield partial(_round, decimals=decimals)
    with np.errstate(all="ignore"):
        spread, low, high = np.nanstd(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0)
        quarter, half, three = np.nanpercentile(table, [25, 50, 75], axis=0)
        for middle, size in (
            (np.nanmean(table, axis=0), spread),
            (low, high - low),
            (half, three - quarter),
            (np.zeros_like(spread), spread),
        ):
            yield partial(_shift, middle=middle, size=np.where(size > 0, size, 1))


def _round(values: Float, _: Any, *, decimals: int) -> Float:
    return np.asarray(np.round(values, decimals))


def _shift(values: Float, columns: Any, *, middle: Float, size: Float) -> Float:
    return np.asarray((values - middle[columns]) / size[columns])


def _split_tables(values: NDArray[Any], width: int) -> Iterator[NDArray[Any]]:
    """Yield an array's rows as they may be meant: as they are, turned, or one number after another."""
    flat = values.ravel()
    if values.ndim >= 2:
        whole = values.reshape(len(values), -1)
        if whole.shape[1] >= 2:
            yield whole
        if len(whole) >= 2 and (len(whole) <= 4 * width or len(whole) == 1):
            yield whole.T
    if values.ndim != 2 or width not in values.shape:
        size = len(flat) // width * width
        if size >= 2 * width:
            yield flat[:size].reshape(width, -1).T


def _read_first_values(X: Any) -> Float:
    """Return the first values of each row of a sparse table, shape (n, 8); rows with fewer hold NaN."""
    values = np.full((X.shape[0], 8), np.nan)
    for k in range(8):
        has = X.indptr[:-1] + k < X.indptr[1:]
        values[has, k] = X.data[X.indptr[:-1][has] + k]
    return values


class _RecordSpace:
    """Records as they may have been written, to be looked up; ``ulps`` allow for rounding by print and arithmetic."""

    def __init__(self, records: Records, form: _Form, dtype: Any, *, ulps: int) -> None:
        self.table, self.form, self.dtype = records.table, form, np.dtype(dtype)
        self.near = float(np.finfo(dtype).eps) * ulps if self.dtype.kind == "f" else 0.0
        #: whether some record stands whole
        self.whole = self.dtype.kind == "f" or (self._write(self.table) != _NOT_THERE).all(axis=1).any()
        #: the order of each column's values, and the values
        self.ordered = [self._sort(j, *ordered) for j, ordered in enumerate(records.ordered)]
        self.values = [v[np.append(True, v[1:] != v[:-1])] for _, v in self.ordered]
        #: below these, a column's values are rounded as if they were as large
        self.small = [1e-3 * np.abs(v[np.abs(v) < 1e30]).max(initial=0.0) for v in self.values]
        #: the columns, those of the most different values first
        self.rarest = sorted(range(len(self.values)), key=lambda j: -len(self.values[j]))

    @np.errstate(all="ignore")
    def _write(self, values: Float, columns: Any = slice(None)) -> Float:
        formed = self.form(values, columns)
        written = _plain(formed.astype(self.dtype))
        if self.dtype.kind != "f":
            written[written != formed] = _NOT_THERE  # what whole numbers cannot hold
        return written

    def _sort(self, j: int, order: Index, values: Float) -> tuple[Index, Float]:
        written = self._write(values, j)
        if (written[1:] >= written[:-1]).all():
            return order, written
        again = np.argsort(written)
        return order[again], written[again]

    @cached_property
    def every(self) -> Float:
        """The values of all columns, in order."""
        return np.sort(np.concatenate(self.values), kind="stable")  # which merges what is in order

    def _measure_bits(self, written: Float, columns: list[int]) -> Float:
        """Return how rare the values of rows are together, in bits; what cannot be told from one counts with it."""
        bits = np.zeros(len(written))
        for own, j in zip(written.T, columns, strict=True):
            column, off = self.ordered[j][1], self.near * np.maximum(np.abs(own), self.small[j])
            inside = np.searchsorted(column, own + off, side="right") - np.searchsorted(column, own - off, side="left")
            bits -= np.log2(inside / len(column))
        return bits

    def _meet(self, columns: list[int], theirs: NDArray[np.int64], shifts: Index) -> tuple[Index, int]:
        """Return which records are among rows of theirs, and how many of these are records; columns are moved first."""
        theirs = theirs[(theirs >= 0).all(axis=1)]
        first = max(range(len(columns)), key=lambda c: len(self.values[columns[c]]))
        order, written = self.ordered[columns[first]]
        sought = self.values[columns[first]][np.unique(theirs[:, first])]
        begin, end = np.searchsorted(written, sought), np.searchsorted(written, sought, side="right")
        size = end - begin
        places = np.repeat(begin - size.cumsum() + size, size) + np.arange(size.sum())
        mine, moved = (order[places] + shifts[first]) % len(order), list(zip(columns, shifts, strict=True))
        for c, (j, shift) in enumerate(moved):
            mine = mine[np.isin(self._encode(j, mine - shift), theirs[:, c])]
        codes = np.column_stack([self._encode(j, mine - shift) for j, shift in moved])
        # 64 bits of each row: two others have the same once in 10^19 pairs
        mix = 0x1E3779B97F4A7C15 ** np.arange(1, len(columns) + 1, dtype=np.int64)
        own, rows = codes @ mix, theirs @ mix
        return mine[np.isin(own, rows)], int(np.isin(rows, own).sum())

    def _encode(self, j: int, records: Index) -> Index:
        return np.searchsorted(self.values[j], self._write(self.table[records, j], j))

    def find_in(self, a: Array) -> Bool:
        """Return which records an array holds, shape (n,): as a table, or one number after another."""
        width, held = len(self.values), np.zeros(len(self.table), dtype=bool)
        for table in _split_tables(a.values, width):
            some = _plain(table[:: max(1, len(table) // _TRIED), : min(4 * width, 256)])
            if self._share(some.ravel()[np.arange(_TRIED) * 40503 % some.size]) >= 0.05:
                pairs = self._match_columns(some)
                if (mine := self._find_rows(table, pairs, straight=False)).any():
                    return mine
        if a.values.ndim == 1 and width <= a.values.size <= _FLAT and self.whole:
            flat = _plain(a.values)
            start = np.arange(len(flat) - width + 1)
            for j in self.rarest:
                start = start[self._code(j, flat[start + j]) >= 0]
            for k in range(0, len(start), _WINDOWS):
                table = flat[start[k : k + _WINDOWS, None] + np.arange(width)]
                held |= self._find_rows(table, [(j, j) for j in self.rarest], straight=True)
        for wide in (width + 1, width + 2):  # printed with other numbers beside, and before the first row
            if a.text and a.values.ndim == 1 and a.values.size >= 2 * wide and not held.any():
                held = self.find_in(replace(a, values=a.values[a.values.size % wide :].reshape(-1, wide)))
        return held

    def _find_rows(self, table: NDArray[Any], pairs: list[tuple[int, int]], *, straight: bool) -> Bool:
        """Return which records are rows of a table, by pairs of columns; its rows are whole ones where ``straight``."""
        seen, width = np.zeros(len(self.table), dtype=bool), len(self.values)
        if len(pairs) < 2:
            return seen
        columns = [j for _, j in pairs]
        theirs = np.column_stack([self._code(j, _plain(table[:, c])) for c, j in pairs])
        still = np.zeros(len(columns), dtype=np.int64)
        held, rows = self._meet(columns, theirs, still)
        # the same numbers with each column moved by itself: what they meet, they meet by chance
        few = straight and len(theirs) < 8 * width  # too few to be moved: the records are
        if few:
            held = held[[len(set(r)) > min(2, width - 1) for r in self._write(self.table[held]).tolist()]]
        if not len(held):
            return seen
        chance = 0
        for _ in range(_DRAWN):  # nobody who wrote the file can know by how many rows
            most = max(len(seen) if few else len(theirs), len(columns))
            shifts = np.random.default_rng().choice(most, len(columns), replace=False)
            if few:
                chance += len(self._meet(columns, theirs, shifts % len(seen))[0])
            else:
                moved = np.column_stack([np.roll(c, k) for k, c in zip(shifts, theirs.T, strict=True)])
                chance += len(self._meet(columns, moved, still)[0])
        if CHANCE * chance > _DRAWN * len(held):
            return seen
        some = self._write(self.table[held][:, columns], columns)
        bits = self._measure_bits(some, columns)
        if not (rows >= MANY and rows >= _MOST * len(table) and bits.mean() >= FEW):
            own = (bits >= TOGETHER) & (some != some[:, :1]).any(axis=1)  # one number again and again says nothing
            held = held[own if own.sum() >= 2 or (own & (bits >= ALONE)).any() else []]
        seen[held] = True
        return seen

    def _match_columns(self, some: Float) -> list[tuple[int, int]]:
        """Return (column of the table, column of the records) that hold the same values, each used once."""
        free = set(range(len(self.values)))
        pairs = []
        for c in range(some.shape[1]):
            fits = self._share(some[:, c])
            if fits < 0.5 and fits < _FITS + self._share(1.001 * some[:, c]):  # what chance meets
                continue
            order = [c] if c in free else []
            order += [j for j in free if j != c and len(self.values[j]) >= MANY][:64]
            best, fits = -1, _FITS
            for j in order:
                if (share := (self._code(j, some[:, c]) >= 0).mean()) > fits:
                    best, fits = j, share
                if share >= 0.5:
                    break
            if best >= 0:
                pairs.append((c, best))
                free.discard(best)
        return pairs

    def _share(self, column: Float) -> float:
        return float((self._place(self.every, column, max(self.small)) >= 0).mean())

    def _code(self, j: int, column: Float) -> NDArray[np.int64]:
        return self._place(self.values[j], column, self.small[j])

    @np.errstate(all="ignore")
    def _place(self, own: Float, column: Float, small: float) -> NDArray[np.int64]:
        at = np.clip(np.searchsorted(own, column), 0, len(own) - 1)
        if self.near:
            before = np.maximum(at - 1, 0)
            at = np.where(np.abs(own[before] - column) < np.abs(own[at] - column), before, at)
        off = self.near * np.maximum(np.abs(column), small)
        return np.where(np.abs(own[at] - column) <= off, at, -1).astype(np.int64)


@np.errstate(all="ignore")
def _plain(values: NDArray[Any]) -> Float:
    return np.asarray(np.nan_to_num(values.astype(np.float64), nan=_MISSING))
