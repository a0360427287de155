"""Questions that nobody's record is: where a bound over a whole domain is compared with real models.

Corners of the declared domain, constant columns at both ends, other people's values mixed, random points: what a
theorem covers and direct queries never ask.
"""

import itertools
from typing import Any

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate.families.over_all_queries import applies
from privgate.families.over_all_queries.reach import Reach
from privgate.subject.subject import Subject

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: domains of at most so many corners are asked at all of them
CORNERS = 64
#: random questions of each kind
RANDOM = 64
#: columns that are moved one by one
_COLUMNS = 16
#: features from which on fewer of them are
_WIDE = 2_000


def shared(subject: Subject, rng: Generator) -> Float:
    """Return questions that concern everybody, shape (Q, d); none where records are not tables of numbers."""
    X = applies.dense(subject.data.X)
    if X is None:
        return np.zeros((0, 0))
    mixed = np.column_stack([rng.choice(column, RANDOM) for column in X.T])
    reach = _reach(subject)
    if reach is None:
        return mixed
    d, made = X.shape[1], [mixed]
    if reach.low is not None and reach.high is not None:
        low, high = reach.low, reach.high
        if 2**d <= CORNERS:
            made.append(np.array(list(itertools.product(*zip(low, high, strict=True)))))
        else:
            ends = rng.random((CORNERS, d)) < 0.5
            ends[:2] = [[False], [True]]
            made.append(np.where(ends, high, low))
        made.append(low + (high - low) * rng.random((RANDOM, d)))
    limit = reach.length if reach.length is not None else reach.norm
    if limit is not None:
        made.append(np.zeros((1, d)))
        single = np.zeros((min(d, CORNERS), d))
        single[np.arange(len(single)), rng.permutation(d)[: len(single)]] = np.floor(limit)
        made.append(single)
        share = rng.dirichlet(np.full(d, 0.3), RANDOM)
        made.append(np.floor(limit * share) if reach.length is not None else limit * share)
    rows = np.concatenate(made)
    return np.floor(rows + 0.5) if reach.whole else rows


def around(subject: Subject, units: Index) -> tuple[Float, Index]:
    """Return each unit's own first record with constant columns, and single others, at the ends of the domain.

    Returns
    -------
    questions : float64 array of shape (Q, d)
    owner : int64 array of shape (Q,)
        Position in ``units``.
    """
    X, reach = applies.dense(subject.data.X), _reach(subject)
    if X is None or reach is None or reach.low is None or reach.high is None:
        return np.zeros((0, 0 if X is None else X.shape[1])), np.zeros(0, dtype=np.int64)
    own = X[[subject.data.units[int(u)][0] for u in units]]
    constant = np.asarray((X[0] == X).all(axis=0))
    columns = np.flatnonzero(constant)[: max(1, min(_COLUMNS, _WIDE // len(constant)))]
    made = []
    for end in (reach.low, reach.high):
        made.append(np.where(constant, end, own))
        made += [np.where(np.arange(len(constant)) == j, end, own) for j in columns]
    return np.concatenate(made), np.tile(np.arange(len(units)), len(made))


def asked(subject: Subject, rows: Float) -> tuple[Any, NDArray[np.bool_]]:
    """Return (questions as the recipe's kind of records, which of ``rows`` (Q, d) they are).

    Those that the records' number type cannot hold inside the declared domain are dropped.
    """
    like, reach = subject.data.X, _reach(subject)
    kind = np.asarray(like).dtype if not hasattr(like, "toarray") else like.dtype
    rows = _held(np.nan_to_num(rows), kind, reach)
    fine = np.asarray(np.isfinite(rows).all(axis=1)) & (True if reach is None else reach.inside(rows))
    made = _container(rows[fine], like)
    back = applies.dense(made)
    if back is None or not np.array_equal(back, rows[fine]):
        fine = np.zeros(len(rows), dtype=bool)
        made = _container(rows[fine], like)
    return made, fine


def alike(made: Any, X: Any) -> bool:
    """Return whether questions made up are of the kind of the records, so that beside them nothing is trained anew."""
    if hasattr(X, "dtypes") and hasattr(X, "iloc"):
        return list(made.dtypes) == list(X.dtypes)
    return getattr(made, "dtype", None) == getattr(X, "dtype", None) and type(made) is type(X)


def _held(rows: Float, kind: np.dtype[Any], reach: Reach | None) -> Float:
    """Return the nearest questions that a number type holds, inside a box if it holds any there."""
    if kind.kind in "iub":
        low, high = (0.0, 1.0) if kind.kind == "b" else (float(np.iinfo(kind).min), float(np.iinfo(kind).max))
        rows = np.clip(np.rint(rows), low, min(high, 2.0**53))
        if reach is not None and reach.low is not None and reach.high is not None:
            rows = np.clip(rows, np.ceil(reach.low), np.floor(reach.high))
        return rows
    short = rows.astype(kind)
    if reach is not None and reach.low is not None and reach.high is not None:
        # an end of the box may lie between two numbers of single precision
        short = np.where(short < reach.low, np.nextafter(short, kind.type(np.inf)), short)
        short = np.where(short > reach.high, np.nextafter(short, kind.type(-np.inf)), short)
    return short.astype(np.float64)


def _reach(subject: Subject) -> Reach | None:
    domain, X = subject.data.domain, subject.data.X
    if domain is None:
        return None
    made = Reach.of(domain, X.shape[1])
    return None if isinstance(made, str) else made


def _container(rows: Float, like: Any) -> Any:
    """Return rows in the kind of container, and of the types, that the recipe is given."""
    if hasattr(like, "iloc"):
        import pandas as pd

        return pd.DataFrame(rows, columns=like.columns).astype(like.dtypes.to_dict())
    if hasattr(like, "tocsr"):
        import scipy.sparse as sp

        return sp.csr_matrix(rows.astype(like.dtype))
    return rows.astype(np.asarray(like).dtype)
