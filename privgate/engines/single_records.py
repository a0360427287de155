"""What engines share that answer for units of one record: rows, blocks, vanishing classes, handing on."""

from collections.abc import Callable

import numpy as np
from numpy.typing import NDArray

from privgate.engines import design
from privgate.engines.counts import VANISHED, normalized
from privgate.retrain.retrained import Index, Retrained, Status
from privgate.subject import Subject

Float = NDArray[np.float64]

#: (record, query), each of shape (R,) -> (joint log-probabilities with, without (R, K), whether the row is sure (R,))
Joint = Callable[[Index, Index], tuple[Float, Float, NDArray[np.bool_]]]

#: rows handled at once
BLOCK = 4096


def leave_out(
    name: str,
    joint: Joint,
    *,
    subject: Subject,
    units: Index,
    seeds: tuple[int | None, ...],
    queries: tuple[Index, Index] | None,
    normalize: bool = True,
) -> tuple[Retrained, Index]:
    """Return exact answers for units of one record, and the units that are not sure, or have several records.

    Parameters
    ----------
    joint : callable
        Joint log-probabilities with and without a record at a query; log-probabilities where ``normalize`` is off.
    """
    units = np.asarray(units, dtype=np.int64)
    row_unit, row_query = design.unit_rows(subject, units) if queries is None else queries
    members = subject.data.units
    size = np.ones(len(units), dtype=np.int64)
    if subject.data.groups is not None:
        size = np.array([len(members[u]) for u in units], dtype=np.int64)
    record = units if subject.data.groups is None else np.array([members[u][0] for u in units], dtype=np.int64)
    K = len(subject.classes)
    counts = np.bincount(subject.label_codes, minlength=K)
    gone = (counts[subject.label_codes[record]] == 1) & (size == 1)
    with_, without = np.empty((len(row_query), K)), np.full((len(row_query), K), -np.inf)
    sure = (size == 1).copy()
    for begin in range(0, len(row_query), BLOCK):
        rows = slice(begin, begin + BLOCK)
        with np.errstate(divide="ignore", invalid="ignore", over="ignore"):
            full, rest, fine = joint(record[row_unit[rows]], row_query[rows])
        with_[rows] = normalized(full) if normalize else full
        alive = ~gone[row_unit[rows]]
        without[rows][alive] = normalized(rest[alive]) if normalize else rest[alive]
        fine = (fine & ~np.isnan(rest).any(axis=1)) | ~alive
        sure[row_unit[rows][~fine]] = False
    status = np.full(len(units), Status.EXACT, dtype=object)
    status[gone] = Status.UNDEFINED
    without[~sure[row_unit]] = -np.inf
    made = Retrained(
        units=units,
        seeds=seeds[:1],
        row_unit=row_unit,
        row_query=row_query,
        log_with=with_[None],
        log_without=without[None],
        error=np.zeros(len(units)),
        status=status,
        engine=np.full(len(units), name, dtype=object),
        reason={int(k): VANISHED for k in np.flatnonzero(gone)},
    )
    return (made, units[:0]) if sure.all() else (made.select(sure), units[~sure])
