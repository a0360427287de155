"""Records that lie closer together than people do: jittered copies of a person, and windows over one series.

Leaving one of several copies out leaves the others, and the risk looks too small. Copies are looked for by distance.
Where people are spread evenly, the ratio of the distances to the m-th and the next neighbour has a known distribution:
``(r_m / r_(m+1))^(d m)`` is uniform in d dimensions. Copies leave a gap behind the last of them.
"""

from collections.abc import Callable
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float
from privgate.subject.containers import as_numbers
from privgate.subject.data import TrainingData

#: probability of such a gap for a person among people
GAP = 1e-3
#: share of people behind such a gap from which on they count as copies; and from which on most people are
FEW, MOST = 0.12, 0.5
#: copies of one record that are looked for, and the neighbours beyond them that tell the dimension
COPIES, BEYOND = 25, 60
#: people who are asked for their neighbours; columns that are compared
PEOPLE, COLUMNS = 2_000, 128
#: share of different values from which on equal ones are no chance
RARE = 0.5
#: pairs of columns whose values come again in other records, the share of records in which they do, and the columns
PAIRS, AGAIN, LAGS = 3, 0.5, 64


def copied(data: TrainingData) -> float:
    """Return the share of people who have others closer than people lie, in [0, 1]; 0 where there are no distances."""
    values = _measured(data)
    if values is None or len(values) < 30:
        return 0.0
    beyond = min(BEYOND, len(values) // 3)
    copies = min(COPIES, beyond // 2)
    from sklearn.neighbors import NearestNeighbors

    rng = np.random.default_rng(0)
    asked = values if len(values) <= PEOPLE else values[rng.permutation(len(values))[:PEOPLE]]
    distance = NearestNeighbors(n_neighbors=beyond + 1).fit(values).kneighbors(asked)[0][:, 1:]
    with np.errstate(divide="ignore", invalid="ignore"):
        local = 1.0 / np.log(distance[:, -1:] / distance[:, copies:-1]).mean(axis=1)
        dimension = float(np.clip(np.nanmedian(local), 1.0, values.shape[1]))
        order = np.arange(1, copies + 1)
        even = (distance[:, :copies] / distance[:, 1 : copies + 1]) ** (dimension * order)
    share = float((even < GAP).mean(axis=0).max())
    return share if share >= FEW else 0.0


def _measured(data: TrainingData) -> Float | None:
    """Return a record a person as ranks of its columns of many numbers, shape (units, d); None without two."""
    numbers = _columns(data.X)
    if numbers is None:
        return None
    first = numbers[data.units.first]
    n = len(first)
    wide = [j for j in range(first.shape[1]) if len(np.unique(first[:, j])) > RARE * n][:COLUMNS]
    if len(wide) < 2:
        return None
    first = np.unique(first[:, wide], axis=0)  # equal records are told by themselves
    ties = np.random.default_rng(0).random(first.shape)  # equal values stand in an order of their own a column
    order = np.argsort(np.lexsort((ties, first), axis=0), axis=0)
    return np.asarray(order / len(first), dtype=np.float64)


def _columns(X: Any) -> NDArray[np.float64] | None:
    """Return the columns of floats of a table, shape (n, d), a median for what is missing; None without any."""
    if hasattr(X, "tocsr"):
        return None
    if hasattr(X, "columns"):
        floats = [np.asarray(as_numbers(X.iloc[:, j])) for j in range(X.shape[1]) if X.iloc[:, j].dtype.kind == "f"]
        table = np.column_stack(floats) if floats else None
    elif hasattr(X, "shape") and np.asarray(X).dtype.kind == "f" and np.ndim(X) == 2:
        table = np.asarray(X, dtype=np.float64)
    else:
        table = None
    if table is None or not table.shape[1]:
        return None
    finite = np.where(np.isfinite(table), table, np.nan)
    keep = ~np.isnan(finite).all(axis=0)
    finite = finite[:, keep]
    return np.asarray(np.where(np.isnan(finite), np.nanmedian(finite, axis=0), finite)) if keep.any() else None


def windows(data: TrainingData) -> int:
    """Return how many pairs of columns show a series: numbers of one come again in the other, in the same records.

    Lags of one series stand in several columns of neighbouring windows, wherever these columns are, so that several
    pairs lead from a record to one and the same other record, oftener than numbers that columns share by rounding or by
    ranks. 0 for fewer than ``PAIRS``. Windows whose columns were scaled one by one are not seen.
    """
    table = _columns(data.X)
    if table is None or data.n < 20:
        return 0
    if data.numbers:
        table = np.column_stack([table, data.y.astype(np.float64)])
    rare = [j for j in range(min(table.shape[1], LAGS)) if len(np.unique(table[:, j])) > RARE * len(table)]
    asked = np.arange(min(len(table), PEOPLE))
    leads = {b: _leads(table[:, b]) for b in rare}
    met = [leads[b](table[asked, a]) for a in rare for b in rare if a != b]
    known = [m for m in met if (m >= 0).mean() >= AGAIN and (m[m >= 0] != asked[m >= 0]).mean() > RARE]
    if len(known) < PAIRS:
        return 0
    told = np.stack(known)
    from scipy.stats import binom

    # of many pairs some lead to the same record by chance: as many as three in four records have do not count
    enough = PAIRS - 1 + int(binom.ppf(0.75, len(told) - 1, 1.0 / len(table)))
    same = [(((told == m) & (m >= 0)).sum(axis=0) >= enough).mean() for m in told]
    return int(sum(share >= AGAIN for share in same))


def _leads(column: NDArray[np.float64]) -> Callable[[NDArray[np.float64]], NDArray[np.int64]]:
    """Return a function from numbers to the one record that has each of them in a column; -1 for none or several."""
    values, first, counts = np.unique(column, return_index=True, return_counts=True)

    def to(asked: NDArray[np.float64]) -> NDArray[np.int64]:
        place = np.minimum(np.searchsorted(values, asked), len(values) - 1)
        return np.where((values[place] == asked) & (counts[place] == 1), first[place], -1).astype(np.int64)

    return to
