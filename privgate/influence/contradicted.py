"""Answers must not contradict the verdict: members whom a model does not know are strangers to it, like candidates.

A recipe that knows its data by another way answers about members as it always did, whoever is left out: influence is
small, exactly, and members stand out all the same.
"""

from dataclasses import dataclass

import numpy as np

from privgate.arrays import Bool, Float
from privgate.errors import MeasurementError
from privgate.evidence import Precondition
from privgate.families import refit
from privgate.families.retrained import OPEN, Shown, Status
from privgate.influence import left_out, modes
from privgate.run import pool as pools
from privgate.run.run import Noted, Run

#: of a false alarm, half in each of two tests
LEVEL = 1e-3
#: people on either side without whom nothing is shown
LEAST = 20


@dataclass(frozen=True, eq=False)
class Answers:
    """How right models are about each person's own label or target, larger is better; one record a person.

    Parameters
    ----------
    without, with_ : float64 arrays of shape (U,)
        Of members who were left out: a model without them, and the one that knows them.
    members : float64 array of shape (M,)
        Of all members, by the model that knows them.
    others : float64 array of shape (C,)
        Of candidates, by the same model.
    """

    without: Float
    with_: Float
    members: Float
    others: Float


def of(run: Run) -> Noted:
    """Return the finding that members' answers contradict the measured influence, if they do.

    Members' answers by models without them and candidates' answers come from one distribution, if both are of one
    population, but for what a person's own record moves: they are compared by ranks, and the answers of the model that
    knows the members must differ to the same side. And members are answered better than candidates by what their own
    records change, on average over the people who were left out, and by no more than twice that.
    """
    made = _answers(run)
    if made is None or min(len(made.without), len(made.others), len(made.members)) < LEAST:
        return Noted()
    from scipy.stats import mannwhitneyu, norm

    moved = made.with_ - made.without
    # an answer without a person leans away from that person: what its record moves is no sign, whichever way it counts
    way = "greater" if made.without.mean() > made.others.mean() else "less"
    sides = (made.without, made.with_)
    ranks = max(2 * float(mannwhitneyu(side, made.others, alternative=way).pvalue) for side in sides)
    apart = abs(float(made.members.mean() - made.others.mean() - moved.mean())) - float(np.abs(moved).mean())
    parts = (made.members, made.others, moved)
    error = float(np.sqrt(sum(p.var(ddof=1) / len(p) for p in parts)))
    means = float(2 * norm.sf(apart / error)) if error > 0 else float(apart <= 0)
    if min(ranks, means) > LEVEL / 2:
        return Noted()
    text = (
        f"models that were trained without members answer about them otherwise than about candidates (on average "
        f"{made.without.mean():.2f} and {made.others.mean():.2f}), and leaving out explains {moved.mean():.2f}: the "
        "recipe may know its data by another way, or candidates are other people than members"
    )
    return Noted((Precondition("answers", "inconclusive", text, {"p_ranks": ranks, "p_means": means}),))


def _answers(run: Run) -> Answers | None:
    subject, found = run.subject, run.once(left_out.retrained)
    seed = run.once(left_out.found).seeds[:1]
    whole = run.once(modes.used) == "all" and not len(run.once(left_out.left)) and not run.averaged
    if subject.data.candidates is None or not whole:
        return None
    try:
        pool = pools.of(subject.data)
    except MeasurementError:
        return None  # nothing about candidates counts, and whoever asks about them is told
    n = subject.data.n
    right = _right(run, refit.full(subject, seed, run.fleet)[0], np.arange(len(pool.trial)))
    known = ~np.isin(found.status.astype(str), (Status.FAILED, Status.UNDEFINED, Status.SCREENED))
    if (open_ := np.isin(found.shown, OPEN)).any():  # who was refitted for a reason is like nobody else
        drawn = found.shown == Shown.DRAWN
        rate = drawn.sum() / max(1, int((found.shown != Shown.LIMITED).sum()))
        known &= drawn | ((found.shown == Shown.LIMITED) & (subject.generator("answers").random(len(open_)) < rate))
    own = np.minimum(found.row_query, n - 1)  # the first row of a unit is its own, others may lie beside records
    rows = _first(found.row_unit) & known[found.row_unit] & pool.trial[own]
    queries = found.row_query[rows]
    members = subject.data.units.first
    return Answers(
        _right(run, found.log_without[0][rows], queries),
        _right(run, found.log_with[0][rows], queries),
        right[members[pool.trial[members]]],
        right[n:][pool.trial[n:]],
    )


def _first(units: np.ndarray) -> Bool:
    """Return which rows are the first of their unit."""
    out = np.zeros(len(units), dtype=bool)
    out[np.unique(units, return_index=True)[1]] = True
    return out


def _right(run: Run, answers: Float, queries: np.ndarray) -> Float:
    """Return the probability of each row's own label, or how close a number comes to its target, shape (R,)."""
    subject = run.subject
    truth = subject.data.pool_labels[queries]
    if subject.task == "regression":
        mean, deviation = subject.scale
        return np.asarray(-np.abs(answers[:, 0] - (truth.astype(np.float64) - mean) / deviation))
    code = np.clip(np.searchsorted(subject.classes, truth), 0, len(subject.classes) - 1)
    return np.asarray(np.exp(answers[np.arange(len(queries)), code]))
