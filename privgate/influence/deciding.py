"""People on whose remembered trainings a verdict rests: in a run that is to be signed they are left out afresh.

A random sample finds a ledger of which many entries are forged. Whoever forges one entry alone hides one person, most
likely somebody whom the model knows because this person is in its data. Who that may be is told by a few models that
this run trains itself, each without a part of the people that nobody knows before; beside them are those whose
remembered values decide: the largest, and the nearest to each limit.
"""

import contextlib
from collections.abc import Callable, Mapping
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import families
from privgate.errors import MeasurementError
from privgate.families import refit
from privgate.influence import leave_one_out, per_unit, sensitivity
from privgate.run import beyond
from privgate.run.run import Run
from privgate.training.fit import Fit

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: people of each kind
EACH = 6
#: parts of the people that are left out together
PARTS = 5


#: tables of people, and what of each a rule is decided by
TABLES: tuple[tuple[Callable[[Run], Mapping[str, Any]], tuple[str, ...]], ...] = (
    (per_unit.table, ("pdtp",)),
    (sensitivity.table, ("moved", "pdtp")),
)


def left_out_again(run: Run) -> int:
    """Train without these people once more, where what was remembered is compared; return how many there are."""
    if not (run.fleet.signable and run.fleet.freshness.recalled and run.made(leave_one_out.retrained)):
        return 0
    with run.fleet.afresh(), contextlib.suppress(MeasurementError):  # what fails now and is remembered, differs
        chosen, seeds = units(run), run.once(leave_one_out.retrained).seeds
        if len(chosen):
            families.answer(run.subject, chosen, seeds, run.fleet, engines=(refit.ENGINE,))
        return len(chosen)
    return 0


def units(run: Run) -> Index:
    """Return who decides among the people who were really left out, as positions in ``subject.data.units``."""
    found = run.once(leave_one_out.retrained)
    trained = np.flatnonzero(found.engine == "refit")
    told = [values[trained] for values in _told(run)]
    known = np.ones(len(trained), dtype=bool)
    for values in told:
        known &= np.isfinite(values)
    trained, told = trained[known], [values[known] for values in told]
    if not len(trained):
        return found.units[:0]
    likely = _moved_with_others(run, found.seeds[0])[found.units[trained]]
    orders = [-likely]
    for values in told:
        orders += [-values, *(np.abs(values - limit) for limit in run.thresholds)]
    chosen = [np.argsort(order, kind="stable")[:EACH] for order in orders]
    deciding: Index = found.units[trained[np.unique(np.concatenate(chosen)).astype(np.int64)]]
    return deciding


def _told(run: Run) -> list[Float]:
    """Return what the tables of people say that rules were decided by, each of shape (U,)."""
    made = [(run.once(table), columns) for table, columns in TABLES if run.made(table)]
    return [
        np.asarray(records[column], dtype=np.float64)
        for records, columns in made
        for column in columns
        if column in records
    ]


def _moved_with_others(run: Run, seed: int | None) -> Float:
    """Return how far answers about each person move where they are left out with a part of the others, shape (U,)."""
    subject, members = run.subject, run.subject.data.units
    told = np.exp if subject.task == "classification" else np.asarray  # a regressor answers in numbers
    order = beyond.drawn(subject, "parts", signable=True).permutation(len(members))
    parts = [
        np.sort(np.concatenate([members[int(u)] for u in part]))
        for part in np.array_split(order, min(PARTS, len(order)))
    ]
    whole = told(refit.full(subject, (seed,), run.fleet)[0])
    answers = run.fleet.fits(
        subject, [Fit(seed, rows, left_out=rows) for rows in parts], label="looking for who decides"
    )
    moved = np.zeros(subject.data.n)
    for rows, answer in zip(parts, answers, strict=True):
        if not answer.problem:
            moved[rows] = np.abs(told(answer.log_p) - whole[rows]).max(axis=1)
    return np.array([moved[rows].max() for rows in members])
