"""Training records as numbers and as texts, found again in whatever a file holds, in any order of rows and columns."""

import re
import time
from collections import Counter
from collections.abc import Callable, Iterator
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
            return cls(np.zeros((len(X), 0)), [list(map(str, X))])
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
        ordered = np.sort(self.table, axis=0)
        for (dtype, text), some in alike.items():
            for number, form in enumerate(_list_forms(self.table, text=text)):
                rest = [k for k in some if not held[k].any() and (not number or may_be_scaled(arrays[k]))]
                if not rest or (number and self.late):
                    break
                last = float(np.finfo(dtype).eps) if dtype.kind == "f" else 0.0
                near = last * (PRINTED if text else CARRIED * min(number, 1))
                written = _Written(self.table, ordered, partial(_write, form=form, dtype=dtype), near)
                for k in rest:
                    held[k] |= not (number and self.late) and written.find_in(arrays[k])
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


def _list_forms(table: Float, *, text: bool) -> Iterator[tuple[Float, Float, int]]:
    """Yield (middle, size, decimals): records as they are, printed with few decimals, and as the usual scalers do."""
    none = np.zeros(table.shape[1])
    yield none, none + 1, 99
    with np.errstate(all="ignore"):
        spread, low, high = np.nanstd(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0)
        quarter, half, three = np.nanpercentile(table, [25, 50, 75], axis=0)
        yield from ((none, none + 1, decimals) for decimals in ((4, 3, 2) if text else ()))
        for middle, size in (
            (np.nanmean(table, axis=0), spread),
            (low, high - low),
            (half, three - quarter),
            (none, spread),
        ):
            yield middle, np.where(size > 0, size, 1), 99


@np.errstate(all="ignore")
def _write(values: Float, columns: Any, *, form: tuple[Float, Float, int], dtype: Any) -> Float:
    """Return values of columns in a form and in a type of numbers, as float64."""
    middle, size, decimals = form
    formed = (values - middle[columns]) / size[columns]
    formed = np.round(formed, decimals) if decimals < 99 else formed
    written = _plain(formed.astype(dtype))
    if dtype.kind != "f":
        written[written != formed] = _NOT_THERE  # what whole numbers cannot hold
    return written


def _split_tables(values: NDArray[Any], width: int) -> Iterator[NDArray[Any]]:
    """Yield an array's rows as they may be meant: as they are, turned, or one number after another."""
    flat, whole = values.ravel(), values.reshape(len(values), -1)
    if values.ndim >= 2 and whole.shape[1] >= 2:
        yield whole
    if values.ndim >= 2 and (len(whole) == 1 or 2 <= len(whole) <= 4 * width):
        yield whole.T
    size = len(flat) // width * width
    if size >= 2 * width and (values.ndim != 2 or width not in values.shape):
        yield flat[:size].reshape(width, -1).T


def _read_first_values(X: Any) -> Float:
    """Return the first values of each row of a sparse table, shape (n, 8); rows with fewer hold NaN."""
    values = np.full((X.shape[0], 8), np.nan)
    for k in range(8):
        has = X.indptr[:-1] + k < X.indptr[1:]
        values[has, k] = X.data[X.indptr[:-1][has] + k]
    return values


class _Written:
    """Records as they may have been written, to be looked up; ``near`` allows for rounding by print and arithmetic."""

    def __init__(self, table: Float, ordered: Float, write: Callable[[Float, Any], Float], near: float) -> None:
        self.table, self.write, self.near = table, write, near
        #: of each column, in order: the values, each once, and as often as they are
        self.columns = [np.sort(write(column, j), kind="stable") for j, column in enumerate(ordered.T)]
        self.values = [v[np.append(True, v[1:] != v[:-1])] for v in self.columns]
        #: below these, a column's values are rounded as if they were as large
        self.small = [1e-3 * np.abs(v[np.abs(v) < 1e30]).max(initial=0.0) for v in self.values]

    @cached_property
    def every(self) -> Float:
        """The values of all columns, in order."""
        return np.sort(np.concatenate(self.values), kind="stable")  # which merges what is in order

    def find_in(self, a: Array) -> Bool:
        """Return which records an array holds, shape (n,): as a table, or one number after another."""
        width, flat = len(self.values), a.values.ravel()
        held = next((h for t in _split_tables(a.values, width) if (h := self._find_in_table(t)).any()), None)
        if held is None and a.values.ndim == 1 and width <= flat.size <= _FLAT:
            held, numbers = np.zeros(len(self.table), dtype=bool), _plain(flat)
            start, rarest = np.arange(len(flat) - width + 1), sorted(range(width), key=lambda j: -len(self.values[j]))
            for j in rarest:
                start = start[self._code(j, numbers[start + j]) >= 0]
            for k in range(0, len(start), _WINDOWS):
                table = numbers[start[k : k + _WINDOWS, None] + np.arange(width)]
                held |= self._find_rows(table, [(j, j) for j in rarest])
        for wide in (width + 1, width + 2):  # printed with other numbers beside, and before the first row
            if a.text and a.values.ndim == 1 and flat.size >= 2 * wide and not np.any(held):
                held = self._find_in_table(flat[flat.size % wide :].reshape(-1, wide))
        return np.zeros(len(self.table), dtype=bool) if held is None else held

    def _find_in_table(self, table: NDArray[Any]) -> Bool:
        some = _plain(table[:: max(1, len(table) // _TRIED), : min(4 * len(self.values), 256)])
        likely = self._share(some.ravel()[np.arange(_TRIED) * 40503 % some.size]) >= 0.05
        return self._find_rows(table, self._match_columns(some) if likely else [])

    @np.errstate(over="ignore")
    def _match_columns(self, some: Float) -> list[tuple[int, int]]:
        """Return (column of the table, column of the records) that hold the same values, each used once."""
        free, pairs = set(range(len(self.values))), list[tuple[int, int]]()
        for c, column in enumerate(some.T):
            order = [j for j in free if j != c and len(self.values[j]) >= MANY][:64]
            best, fits = -1, min(0.5, _FITS + self._share(1.001 * column))  # what chance meets
            for j in [c, *order] if c in free else order:
                if (share := float((self._code(j, column) >= 0).mean())) > fits:
                    best, fits = j, share
                if fits == share >= 0.5:
                    break
            if best >= 0:
                pairs.append((c, best))
                free.discard(best)
        return pairs

    def _find_rows(self, table: NDArray[Any], pairs: list[tuple[int, int]]) -> Bool:
        """Return which records are rows of a table, by pairs of its columns and theirs."""
        seen, columns = np.zeros(len(self.table), dtype=bool), [j for _, j in pairs]
        if len(pairs) < 2:
            return seen
        theirs = np.column_stack([self._code(j, _plain(table[:, c])) for c, j in pairs])
        theirs = theirs[(theirs >= 0).all(axis=1)]
        # 64 bits of each row: two others have the same once in 10^19 pairs
        mix = 0x1E3779B97F4A7C15 ** np.arange(1, len(columns) + 1, dtype=np.int64)
        rows, own = theirs @ mix, [np.searchsorted(self.values[j], self.write(self.table[:, j], j)) for j in columns]
        mixed = sum(codes * m for codes, m in zip(own, mix, strict=True))
        held = np.flatnonzero(np.isin(mixed, rows))
        # the records with each column moved by itself: what they meet, they meet by chance
        chance, n = 0, len(seen)
        for _ in range(_DRAWN if len(held) else 0):  # nobody who wrote the file can know by how many rows
            shifts = np.random.default_rng().choice(max(n, len(columns)), len(columns), replace=False)
            moved = sum(np.roll(codes, k) * m for codes, k, m in zip(own, shifts, mix, strict=True))
            chance += int(np.isin(moved, rows).sum())
        if not len(held) or CHANCE * chance > _DRAWN * len(held):
            return seen
        some = self.write(self.table[held][:, columns], columns)
        bits, most = self._measure_bits(some, columns), np.isin(rows, mixed).sum()
        if not (most >= MANY and most >= _MOST * len(table) and bits.mean() >= FEW):
            alone = (bits >= TOGETHER) & (some != some[:, :1]).any(axis=1)  # one number again and again says nothing
            held = held[alone if alone.sum() >= 2 or (alone & (bits >= ALONE)).any() else []]
        seen[held] = True
        return seen

    def _measure_bits(self, written: Float, columns: list[int]) -> Float:
        """Return how rare the values of rows are together, in bits; what cannot be told from one counts with it."""
        bits = np.zeros(len(written))
        for own, j in zip(written.T, columns, strict=True):
            column, off = self.columns[j], self.near * np.maximum(np.abs(own), self.small[j])
            inside = np.searchsorted(column, own + off, side="right") - np.searchsorted(column, own - off, side="left")
            bits -= np.log2(inside / len(column))
        return bits

    def _share(self, column: Float) -> float:
        return float((self._place(self.every, column, max(self.small)) >= 0).mean())

    def _code(self, j: int, column: Float) -> Index:
        return self._place(self.values[j], column, self.small[j])

    @np.errstate(all="ignore")
    def _place(self, own: Float, column: Float, small: float) -> Index:
        at = np.clip(np.searchsorted(own, column), 0, len(own) - 1)
        if self.near:
            before = np.maximum(at - 1, 0)
            at = np.where(np.abs(own[before] - column) < np.abs(own[at] - column), before, at)
        off = self.near * np.maximum(np.abs(column), small)
        return np.where(np.abs(own[at] - column) <= off, at, -1).astype(np.int64)


@np.errstate(all="ignore")
def _plain(values: NDArray[Any]) -> Float:
    return np.asarray(np.nan_to_num(values.astype(np.float64), nan=_MISSING))
