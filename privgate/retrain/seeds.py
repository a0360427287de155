"""How many paired seeds a recipe needs, decided from what the controls see, before any unit is left out."""

import math
from dataclasses import dataclass

import numpy as np

from privgate.errors import MeasurementError
from privgate.retrain.choice import generator
from privgate.retrain.controls import DETERMINISTIC
from privgate.retrain.fit import Fit
from privgate.retrain.fleet import Fleet
from privgate.subject import Subject

#: fewer pairs have no power against a threshold, more hardly add any (mathematical reference, section 9.4)
LEAST, MOST = 10, 20


@dataclass(frozen=True)
class Seeds:
    """The seeds to use, and why.

    Parameters
    ----------
    seeds : tuple of (int or None)
        Paired; the recipe's own seed first. One entry where training does not depend on its seed.
    dependent : bool
        Whether another seed gives another model.
    moved_by : float
        Largest change of a probability at any training record between two seeds, nobody removed.
    message : str
        One sentence for the report.
    """

    seeds: tuple[int | None, ...]
    dependent: bool
    moved_by: float
    message: str


def choose(subject: Subject, fleet: Fleet, *, n_units: int | None = None, count: int | None = None) -> Seeds:
    """Return the paired seeds for a subject.

    Trains on everything with the recipe's seed and with another one. Where nothing moves, one seed says everything.
    Where predictions move, a single pair of runs would mistake the seed for the unit, so R >= 1 + log2(N / 0.05) pairs
    are used, without which no unit of N could be told from chance, within ``LEAST`` and ``MOST``. A recipe trained with
    differential privacy has no seed: its runs are independent.

    Parameters
    ----------
    subject : Subject
    fleet : Fleet
    n_units : int, optional
        Units that will be left out; all if absent.
    count : int, optional
        The operator's number of pairs, if training depends on its seed.

    Raises
    ------
    MeasurementError
        Training on everything fails.

    References
    ----------
    Mathematical reference, section 9.4 (sign-flip test, t limits).
    """
    own = subject.recipe.seed
    rng = generator(subject, "seeds")
    size = subject.data.n + (0 if subject.data.candidates is None else len(subject.data.candidates[1]))
    pool, nobody = np.arange(size, dtype=np.int64), np.zeros(0, dtype=np.int64)
    others = [int(s) for s in rng.choice(2**31, size=MOST, replace=False) if s != own]
    # without a recorded seed a second run is the other seed: equal runs use no randomness
    second = Fit(None, pool, left_out=nobody, repeat=1) if own is None else Fit(others[0], pool, left_out=nobody)
    answers = fleet.fits(subject, [Fit(own, pool, left_out=nobody), second], label="comparing seeds")
    bad = next((a.problem for a in answers if a.problem), "")
    if bad:
        raise MeasurementError(f"the recipe cannot be trained on its own complete data: {bad}")
    moved = float(np.abs(np.exp(answers[0].log_p) - np.exp(answers[1].log_p)).max())
    if moved <= DETERMINISTIC:
        return Seeds(
            (own,), dependent=False, moved_by=moved, message="training does not depend on its seed; one seed is enough"
        )
    pairs = count if count is not None else pairs_needed(len(subject.data.units) if n_units is None else n_units)
    seeds: tuple[int | None, ...] = (None,) * pairs if own is None else (own, *others)[:pairs]
    text = f"another seed moves predictions by up to {moved:.2g}; every unit is judged on {len(seeds)} paired seeds"
    if len(seeds) == 1:
        text = f"another seed moves predictions by up to {moved:.2g}; a single seed neither blocks nor approves"
    return Seeds(seeds, dependent=True, moved_by=moved, message=text)


def pairs_needed(n_units: int) -> int:
    """Return the number of paired seeds for ``n_units`` units; see ``choose``.

    >>> [pairs_needed(n) for n in (1, 100, 1000, 10**9)]
    [10, 12, 16, 20]
    """
    return min(MOST, max(LEAST, math.ceil(1 + math.log2(max(1, n_units) / 0.05))))
