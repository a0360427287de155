"""Where a theorem limits everybody within the policy, a random sample of people is trained without, and no one else.

A theorem over all questions bounds the answer about a person as well, under every seed and in the mean over seeds. What
theorems of models in parts say (shards, trees drawn without looking) needs nobody's model; the sample is there to
contradict them: whoever of it changes by more than the theorem allows silences it, and then nothing is limited.
"""

import numpy as np
from numpy.typing import NDArray

from privgate import families
from privgate.families import bound as bounds
from privgate.run.needs import Need
from privgate.run.run import Run

Float = NDArray[np.float64]

#: how the sentence about it begins
CLAIM = "a theorem over all questions limits everybody's change"
#: people who are trained without all the same: if none of 59 contradicts, fewer than 5 % of all do (0.95^59 < 0.05)
SAMPLE = 59
#: the same in a search, which judges nobody
REHEARSED = 4
#: paired seeds of each of them: the theorem holds under every seed, and one that is broken need be seen once
SEEDS = 2
#: trainings up to which everybody's own value is worth having beside the theorem
WORTH = 1_000


def limits(run: Run) -> Float | None:
    """Return each person's limit by theorems, shape (n_units,), nats; None where everybody has to be measured.

    Before people were trained without, what theorems say; after that, what is left of it.
    """
    asked = run.limits
    if not (run.by_theorem and run.thresholds) or asked.full or asked.mode != "all" or not run.subject.release.exact:
        return None
    if not (asked.max_retrains is None and asked.budget_seconds is None):
        return None  # the operator says how many
    if run.subject.task != "classification" or _trainings(run) <= WORTH:
        return None
    before = _bounds(run)
    return before if before.max() <= min(run.thresholds) else None


def left(run: Run) -> Float | None:
    """Return ``limits`` as the models trained without the sample leave them."""
    if run.once(limits) is None:
        return None
    return _bounds(run)


def of(run: Run, units: NDArray[np.int64], low: Float, high: Float) -> tuple[Float, Float, Float]:
    """Return (low, high) of the measured units and high of the others; as they are where no theorem limits everybody.

    What was seen above a limit would disprove the theorem: the larger number is the safe one.
    """
    found = run.once(left)
    if found is None:
        return low, high, np.zeros(0)
    others = np.setdiff1d(np.arange(run.n_units), units)
    return low, np.maximum(np.minimum(high, found[units]), low), found[others]


def fewer_seeds(run: Run) -> None:
    """Leave the run as many paired seeds as contradicting a theorem takes, where one limits everybody."""
    if run.once(limits) is not None:
        run.seeds, run.more_seeds = run.seeds[:SEEDS], ()


def said(run: Run, *, after: bool = False) -> str:
    """Return what is known of whom, one sentence; empty where everybody has to be measured.

    ``after`` people were trained without, and no theorem was contradicted.
    """
    found = run.once(left if after else limits)
    if found is None or not np.isfinite(found).all():
        return ""
    return (
        f"{CLAIM} to {found.max():.4g} nats; {size(run)} people drawn at random are trained without, to contradict it"
    )


def size(run: Run) -> int:
    """Return how many people are trained without beside the theorem."""
    return REHEARSED if run.rehearsed else SAMPLE


def _bounds(run: Run) -> Float:
    everybody = np.arange(run.n_units, dtype=np.int64)
    attacked = Need.SHADOWS in run.asked
    return bounds.bound(run.subject, everybody, None, witness=run.witness, attacked=attacked, fleet=run.fleet)[0].upper


def _trainings(run: Run) -> int:
    everybody = np.arange(run.n_units, dtype=np.int64)
    seeds = run.more_seeds if run.more_seeds and Need.UPPER_LIMIT in run.asked else run.seeds
    return families.first(run.subject)[0].cost(run.subject, everybody, seeds).fits
