"""Shadow models: balanced random subsets of the pool, one training of which serves every record and every attack."""

import numpy as np
from numpy.random import Generator
from numpy.typing import NDArray

from privgate import families
from privgate.errors import MeasurementError
from privgate.evidence import Precondition
from privgate.families import refit
from privgate.families.retrained import Shadows, Status
from privgate.run import pool as pools
from privgate.run.pool import AttackPool
from privgate.run.run import Run
from privgate.training.fit import Fit

Bool = NDArray[np.bool_]
Index = NDArray[np.int64]

#: shadow models of a fast engine that are trained again by the user's own function
RECHECKED = 2
#: largest difference of log-probabilities, nats, that a re-check lets pass
TOLERANCE = 1e-5
#: at least this share of the shadow models must have been trained, or nothing is said
LEAST_TRAINED = 0.5


def balanced_masks(pool: AttackPool, count: int, rng: Generator) -> Bool:
    """Return who is in which subset: complementary pairs of random halves of the people.

    Parameters
    ----------
    pool : Pool
        Rows that are not eligible are in no subset.
    count : int
        Number of subsets, even.
    rng : Generator

    Returns
    -------
    bool array of shape (count, P)
        Models 2j and 2j + 1 share nobody and cover everybody: every record is in exactly half of the models, and a pair
        is one independent unit. All records of a person go together.
    """
    if count < 2 or count % 2:
        raise MeasurementError(f"shadow models come in complementary pairs; ask for an even number, not {count}")
    people = np.unique(pool.unit[pool.eligible])
    place = np.searchsorted(people, pool.unit)
    place = np.minimum(place, len(people) - 1)
    halves = [rng.permutation(len(people)) < len(people) // 2 for _ in range(count // 2)]
    inside = np.stack([side for half in halves for side in (half, ~half)])[:, place]
    return np.asarray(inside & pool.eligible)


def seeds_for(run: Run, count: int, rng: Generator) -> tuple[int | None, ...]:
    """Return one seed a model; None where the recipe has none."""
    if run.subject.recipe.payload["seed"] is None and all(s is None for s in run.seeds):
        return (None,) * count
    return tuple(int(s) for s in rng.integers(2**32, size=count, dtype=np.uint64))


def train(run: Run) -> Shadows:
    """Return the shadow models of a subject, from the fastest engine that agrees with the training function.

    Raises
    ------
    MeasurementError
        There are no candidates, or more than half of the trainings failed.
    """
    pool = run.once(pools.of_run)
    count = 2 * max(2, run.limits.shadow_models // 2)
    rng = run.generator("shadow subsets")
    return trained(run, balanced_masks(pool, count, rng), seeds_for(run, count, rng))


def trained(run: Run, masks: Bool, seeds: tuple[int | None, ...]) -> Shadows:
    """Return models on the given subsets; those of a fast engine are re-checked, and refitted if they disagree."""
    made = families.subsets(run.subject, masks, seeds, run.fleet)
    if made.engine != refit.ENGINE.name:
        checked = recheck(run, made)
        run.preconditions.append(checked)
        if checked.outcome != "passed":
            made = refit.ENGINE.subsets(run.subject, masks, seeds, run.fleet)
    failed = int((made.status == Status.FAILED).sum())
    if len(made.status) - failed < LEAST_TRAINED * len(made.status):
        first = next(iter(made.reason.values()), "no reason given")
        raise MeasurementError(f"{failed} of {len(made.status)} shadow models could not be trained: {first}")
    return made


def recheck(run: Run, made: Shadows) -> Precondition:
    """Compare some of a fast engine's shadow models with the user's own training function, on the whole pool."""
    live = np.flatnonzero(made.status != Status.FAILED)
    rng = run.generator("re-checked shadow models")
    chosen = np.sort(rng.choice(live, size=min(RECHECKED, len(live)), replace=False)) if len(live) else live
    rows = np.arange(made.masks.shape[1], dtype=np.int64)
    fits = [Fit(made.seeds[i], rows, members=np.flatnonzero(made.masks[i]).astype(np.int64)) for i in chosen]
    answers = run.fleet.fits(run.subject, fits, label=f"re-checking {made.engine}")
    worst, why = 0.0, ""
    for i, answer in zip(chosen, answers, strict=True):
        why = why or answer.problem
        worst = max(worst, float("inf") if answer.problem else _difference(made.log_p[i], answer.log_p))
    name = f"recheck_{made.engine}_subsets"
    detail = {"engine": made.engine, "checked": len(chosen), "models": len(made.status), "worst_difference": worst}
    if len(chosen) and worst <= TOLERANCE:
        text = f"{made.engine} agrees with the training function on {len(chosen)} shadow models to {worst:.1e} nats"
        return Precondition(name, "passed", text, detail)
    text = f"{made.engine} disagrees with the training function by {worst:.3g} nats on shadow models; it was not used"
    return Precondition(name, "warned", f"{text}: {why}" if why else text, detail)


def _difference(ours: NDArray[np.float64], theirs: NDArray[np.float64]) -> float:
    if ours.shape != theirs.shape:
        return float("inf")
    floor = -700.0  # the last probability that float64 holds in full
    return float(np.abs(np.maximum(ours, floor) - np.maximum(theirs, floor)).max())
