"""Training records as numbers and as texts, to be found again in whatever a file holds."""

import re
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Bool, Float
from privgate.file.contents import Array
from privgate.file.record_space import RecordSpace

#: units in the last place that arithmetic may have cost, and that six printed digits cost of single precision
CARRIED, PRINTED = 8, 64
#: seconds of processor time in which records are searched for in other forms; more for each 10^7 bytes of records, and
#: each 10^9 of the file
SECONDS = 2.0
#: numbers among which a record may begin anywhere; in larger arrays it is a row or a column
_FLAT = 1 << 20
#: letters of a text that is somebody's own, words by which it is looked up, and share of records that may have it
_LONG, _WORDS, _COMMON = 20, 8, 0.01
#: letters that are compared one after the other with those of texts whose words were not met
_COMPARED = 1 << 32


class Records:
    """Training records, as numbers and as texts, to be found again.

    Parameters
    ----------
    table : float64 array of shape (n, d)
        Columns of numbers; d is 0 where there are none.
    texts : list of lists of str
        Columns of texts, n each; empty where there are none.
    """

    def __init__(self, table: Float, texts: list[list[str]]) -> None:
        self.table, self.texts = table, texts
        self.n, self.width = table.shape
        # of 80 MB of records all forms take 7 s
        self._until, self.cut = time.process_time() + SECONDS * (1 + table.nbytes / 1e7), False

    @classmethod
    def of(cls, X: Any) -> "Records":
        """Return the records of a container."""
        if isinstance(X, list):
            return cls(np.zeros((len(X), 0)), [[v if isinstance(v, str) else " ".join(map(str, v)) for v in X]])
        if hasattr(X, "tocsr"):
            return cls(_read_first_values(X.tocsr()), [])
        if hasattr(X, "select_dtypes"):
            numbers = X.select_dtypes(["number", "bool"]).to_numpy(dtype=np.float64, na_value=np.nan)
            others = X.select_dtypes(exclude=["number", "bool"])
            return cls(numbers, [others.iloc[:, j].astype(str).tolist() for j in range(others.shape[1])])
        table = np.asarray(X)
        table = table.reshape(len(table), -1)
        if table.dtype.kind not in "biuf":
            return cls(np.zeros((len(table), 0)), [list(map(str, c)) for c in table.T.tolist()])
        return cls(table.astype(np.float64), [])

    @property
    def late(self) -> bool:
        """Whether no time is left for other forms than the records as they are; asked where more would be."""
        self.cut |= time.process_time() > self._until
        return self.cut

    def find_rows(self, arrays: list[Array], may_be_scaled: Callable[[Array], bool]) -> list[Bool]:
        """Return which records each array holds, bool of shape (n,): as they are first, then as scalers make them."""
        held, alike = [np.zeros(self.n, dtype=bool) for _ in arrays], dict[tuple[Any, bool], list[int]]()
        for k, a in enumerate(arrays):
            if 2 <= self.width <= a.values.size and self.n >= 2:
                alike.setdefault((np.dtype(np.float32) if a.text else a.values.dtype, a.text), []).append(k)
        self._until += SECONDS * sum(a.values.nbytes for a in arrays) / 1e9
        for (dtype, text), some in alike.items():
            space = RecordSpace(self.table, dtype, ulps=PRINTED * text)
            for k in some:
                held[k] = self._match(arrays[k], space)
        for (dtype, text), some in alike.items():
            rest = [k for k in some if not held[k].any() and may_be_scaled(arrays[k])]
            for table in _change(self.table, text=text) if rest else ():
                if self.late:
                    break
                space = RecordSpace(table, dtype, ulps=PRINTED if text else CARRIED)
                for k in rest:
                    if not held[k].any() and not self.late:
                        held[k] = self._match(arrays[k], space)
        return held

    def _match(self, a: Array, space: RecordSpace) -> Bool:
        """Return which records an array holds in one form: as a table, or one number after another."""
        for table in _split_tables(a.values, self.width):
            if (mine := space.held(table)).any():
                return mine
        held = np.zeros(self.n, dtype=bool)
        if a.values.ndim == 1 and a.values.size <= _FLAT:
            for some in space.windows(a.values.ravel()):
                held |= space.held(some, straight=True)
        return held

    def find_texts(self, passages: list[str]) -> Bool:
        """Return which texts stand in passages, whatever their letters' case and what stands between words.

        Parameters
        ----------
        passages : list of str
            In the order in which they stand; an empty one ends a passage.

        Returns
        -------
        bool array of shape (n,)
        """
        held = np.zeros(self.n, dtype=bool)
        for column in self.texts:
            common = _count(column)
            own = {k: t for k, t in enumerate(column) if len(t) >= _LONG and common[t] <= max(1.0, _COMMON * self.n)}
            held |= self._find_words({k: _split_words(t) for k, t in own.items()}, passages)
            joined = "".join(p or "\n" for p in passages).casefold() if own else ""
            for k in [k for k in own if not held[k]][: _COMPARED // max(1, len(joined))]:
                held[k] = own[k].casefold().strip() in joined
        return held

    def _find_words(self, own: dict[int, list[str]], passages: list[str]) -> Bool:
        """Return of which records the words stand one after another: looked up by their first ones, then compared."""
        held, numbers = np.zeros(self.n, dtype=bool), dict[str, int]()
        for words in own.values():
            for word in words:
                numbers.setdefault(word, len(numbers) + 1)
        stream = np.array(
            [numbers.get(w, 0) for p in passages if own for w in (_split_words(p) if p else [""])], dtype=np.int64
        )
        coded = {k: np.array([numbers[w] for w in words], dtype=np.int64) for k, words in own.items()}
        for size in {min(len(c), _WORDS) for c in coded.values()}:
            some = {k: c for k, c in coded.items() if min(len(c), _WORDS) == size}
            if len(stream) < size:
                continue
            windows = np.lib.stride_tricks.sliding_window_view(stream, size) @ _MIX[:size]
            first = {k: int(c[:size] @ _MIX[:size]) for k, c in some.items()}
            at = np.flatnonzero(np.isin(windows, np.array(list(first.values()))))
            starts = dict[int, list[int]]()
            for place in at.tolist():
                starts.setdefault(int(windows[place]), []).append(place)
            for k, c in some.items():
                held[k] |= any(np.array_equal(stream[p : p + len(c)], c) for p in starts.get(first[k], ()))
        return held


#: by which the numbers of words one after another become one number
_MIX = 0x1E3779B97F4A7C15 ** np.arange(1, _WORDS + 1, dtype=np.int64)


def _split_words(text: str) -> list[str]:
    return re.findall(r"\w+", text.casefold())


def _count(texts: list[str]) -> dict[str, int]:
    """Return how many records have each text."""
    counts = dict[str, int]()
    for text in texts:
        counts[text] = counts.get(text, 0) + 1
    return counts


def _change(table: Float, *, text: bool) -> Iterator[Float]:
    """Yield the records scaled in four ways as the usual scalers do; for texts, with few decimals before."""
    for decimals in (4, 3, 2) if text else ():
        yield np.round(table, decimals)
    with np.errstate(all="ignore"):
        spread, low, high = np.nanstd(table, axis=0), np.nanmin(table, axis=0), np.nanmax(table, axis=0)
        yield (table - np.nanmean(table, axis=0)) / np.where(spread > 0, spread, 1)
        yield (table - low) / np.where(high > low, high - low, 1)
        quarter, half, three = np.nanpercentile(table, [25, 50, 75], axis=0)
        yield (table - half) / np.where(three > quarter, three - quarter, 1)
        yield table / np.where(spread > 0, spread, 1)


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
