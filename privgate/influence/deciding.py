"""People on whose remembered trainings a verdict rests: in a run that is to be signed they are left out afresh.

A random sample finds a ledger of which many entries are forged. Whoever forges one entry alone hides one person, most
likely somebody whom the model knows because this person is in its data. Who that may be is told by a few models that
this run trains itself, each without a part of the people that nobody knows before; beside them are those whose
remembered values decide: the largest, and the nearest to each limit.
"""

import contextlib

import numpy as np
from numpy.typing import NDArray

from privgate import families
from privgate.errors import MeasurementError
from privgate.families import refit
from privgate.influence import leave_one_out
from privgate.run import beyond
from privgate.run.run import Run
from privgate.training.fit import Fit

Float = NDArray[np.float64]
Index = NDArray[np.int64]

#: people of each kind
EACH = 6
#: parts of the people that are left out together
PARTS = 5


def left_out_again(run: Run) -> int:
    """Train without these people once more, where what was remembered is compared; return how many there are."""
    if not (run.fleet.signable and run.fleet.freshness.recalled and run.made(leave_one_out.table)):
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
    told = np.asarray(run.once(leave_one_out.table)["pdtp"], dtype=np.float64)[trained]
    kept = np.isfinite(told)
    trained, told = trained[kept], told[kept]
    if not len(trained):
        return found.units[:0]
    likely = _moved_with_others(run, found.seeds[0])[found.units[trained]]
    orders = [-likely, -told, *(np.abs(told - limit) for limit in run.thresholds)]
    chosen = [np.argsort(order, kind="stable")[:EACH] for order in orders]
    deciding: Index = found.units[trained[np.unique(np.concatenate(chosen)).astype(np.int64)]]
    return deciding


def _moved_with_others(run: Run, seed: int | None) -> Float:
    """Return how far answers about each person move where they are left out with a part of the others, shape (U,)."""
    subject, members = run.subject, run.subject.data.units
    order = beyond.drawn(subject, "parts", signable=True).permutation(len(members))
    parts = [
        np.sort(np.concatenate([members[int(u)] for u in part]))
        for part in np.array_split(order, min(PARTS, len(order)))
    ]
    whole = np.exp(refit.full(subject, (seed,), run.fleet)[0])
    answers = run.fleet.fits(
        subject, [Fit(seed, rows, left_out=rows) for rows in parts], label="looking for who decides"
    )
    moved = np.zeros(subject.data.n)
    for rows, answer in zip(parts, answers, strict=True):
        if not answer.problem:
            moved[rows] = np.abs(np.exp(answer.log_p) - whole[rows]).max(axis=1)
    return np.array([moved[rows].max() for rows in members])
