"""The re-check of an engine whose answers are draws: real trainings must fall among them as draws of the same kind do.

Where training is random and an engine draws for itself, no answer equals a real training's. A real training without a
person and the engine's S answers without them are then S + 1 draws of one distribution: the real one's rank among them
is uniform, whatever the distribution, infinite answers included, and the mean difference is 0.
"""

from dataclasses import replace
from typing import Any

import numpy as np
from numpy.typing import NDArray

from privgate import digest
from privgate.evidence import Precondition
from privgate.families.engine import Engine
from privgate.families.recheck import RANDOM, WORST, at_random, choose, difference
from privgate.families.retrained import Float, Index, Retrained, Status
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: real trainings of each person who decides: the worst, and those near a limit
AGAIN = 3
#: of a false alarm in each of the tests
LEVEL = 5e-4
#: people compared, without whom nothing is shown
LEAST = 10


def compare(  # noqa: PLR0917  as ``recheck``, and what is estimated
    engine: Engine, subject: Subject, made: Retrained, fleet: Fleet, limits: tuple[float, ...], stated: str
) -> Precondition:
    """Compare an engine's draws with real trainings of chosen units.

    Parameters
    ----------
    made : Retrained
        Several seeds, independent of one another.
    stated : str
        What the engine estimates, for the message.

    Returns
    -------
    Precondition
        ``passed``, or ``warned`` if real trainings are no draws of the same kind: then nothing of it may be used.

    Notes
    -----
    Random people are trained without once, each with a seed of their own, and tested together: mean difference, mean
    rank and spread of the ranks, with errors counted over people *and* over the engine's draws, which people share.
    Whoever decides is trained without several times and tested alone, at a level divided by all people and labels:
    they were chosen because their estimates are large, and many are looked at.
    """
    chosen = choose(subject, made, limits, fleet=fleet)
    some = np.sort(at_random(subject, made, fleet=fleet))
    gone = made.status == Status.UNDEFINED
    deciding, dead = np.setdiff1d(chosen[~gone[chosen]], some), chosen[gone[chosen]]
    some = some[~gone[some]]
    rng = digest.generator(subject.training_digest, start=16)
    work = np.concatenate([some, np.repeat(deciding, AGAIN), dead])
    seeds = rng.integers(0, 2**31 - 1, len(work)).tolist()
    place = {int(k): np.flatnonzero(made.row_unit == k) for k in np.unique(work)}
    random = made.seeds[0] is None
    fits = [
        Fit(
            None if random else s,
            made.row_query[place[int(k)]],
            left_out=subject.data.units[int(made.units[k])],
            repeat=i if random else 0,
        )
        for i, (k, s) in enumerate(zip(work, seeds, strict=True))
    ]
    with fleet.afresh():
        got = fleet.fits(subject, fits, label=f"re-checking {engine.name}")
    failed = next((a.problem for a, k in zip(got, work, strict=True) if a.problem and k not in dead), "")
    if failed or len(some) < LEAST or len(made.seeds) < 3:
        why = failed or "too few people or seeds to compare"
        return _told(engine, made, "warned", f"{engine.name} could not be compared: {why}", len(fits), np.inf, 0.0, [])
    wrong = [
        f"unit {int(made.units[k])}"
        for k, a in zip(dead, got[len(work) - len(dead) :], strict=True)
        if difference(made, int(k), place[int(k)], a)
    ]
    own = np.array([place[int(k)][0] for k in some])
    label = np.zeros(len(some), dtype=np.int64)
    if subject.task == "classification":
        label = np.searchsorted(subject.classes, subject.data.pool()[1][made.row_query[own]])
    real = np.array([a.log_p[0, c] for a, c in zip(got, label, strict=False)])
    gap, allowed, odd = alike(made.log_without[:, own, label], real, rng)
    wrong += odd
    for i, k in enumerate(deciding):
        theirs = got[len(some) + i * AGAIN : len(some) + (i + 1) * AGAIN]
        if _apart(made, place[int(k)], theirs):
            wrong.append(f"unit {int(made.units[k])}")
    if wrong:
        text = f"{engine.name} and the training function differ by {gap:.3g} nats on average ({wrong[0]}); not used"
        return _told(engine, made, "warned", text, len(fits), gap, allowed, wrong)
    text = (
        f"{len(fits)} real trainings without {len(np.unique(work))} of {len(made.units)} people fall among "
        f"{engine.name}'s answers as draws of the same kind do: {gap:.2g} nats apart on average, where {allowed:.2g} "
        f"would be noticed; it estimates {stated}"
    )
    told = _told(engine, made, "passed", text, len(fits), gap, allowed, [])
    return replace(told, detail={**told.detail, "estimates": stated})


def expected(units: int, limits: int) -> int:
    """Return about how many real trainings are compared with the answers about so many units."""
    return min(units, RANDOM) + AGAIN * min(max(0, units - RANDOM), WORST * (1 + limits))


def alike(drawn: Float, real: Float, rng: np.random.Generator) -> tuple[float, float, list[str]]:
    """Return the mean difference in nats, what would be noticed, and which tests say that the draws are of two kinds.

    Parameters
    ----------
    drawn : float64 array of shape (S, m)
        The engine's draws, which people share in part.
    real : float64 array of shape (m,)
        One real training each, independent of one another.
    """
    from scipy.stats import t

    S, m = drawn.shape
    quantile = float(t.ppf(1 - LEVEL / 2, min(S, m) - 1))
    tie = rng.random((S + 1, m))  # equal answers take their order at random, which keeps ranks uniform
    below = ((drawn < real) | ((drawn == real) & (tie[:-1] < tie[-1]))).astype(np.float64)
    wrong = []
    mean = below.mean()
    error = np.sqrt(below.mean(axis=0).var(ddof=1) / m + below.mean(axis=1).var(ddof=1) / S)
    if abs(mean - 0.5) > quantile * error:
        wrong.append(f"real trainings rank at {mean:.3f} of the engine's draws where .5 is expected")

    def spread(table: NDArray[Any]) -> tuple[float, Float]:
        each = (table.mean(axis=0) - 0.5) ** 2 - (len(table) + 2) / (12 * len(table))
        return float(each.mean()), each

    far, each = spread(below)
    less = np.array([spread(np.delete(below, s, axis=0))[0] for s in range(S)])
    error = np.sqrt(each.var(ddof=1) / m + (S - 1) * less.var())
    if abs(far) > quantile * error:
        wrong.append("real trainings are spread otherwise than the engine's draws")
    fine = np.isfinite(drawn).all(axis=0) & np.isfinite(real)
    if fine.sum() < 2:
        return 0.0, np.inf, wrong
    apart = real[fine] - drawn[:, fine]
    gap = abs(float(apart.mean()))
    error = np.sqrt(apart.mean(axis=0).var(ddof=1) / fine.sum() + apart.mean(axis=1).var(ddof=1) / S)
    allowed = float(quantile * error)
    if gap > allowed + 1e-9:
        wrong.append(f"real trainings are {gap:.3g} nats from the engine's draws on average")
    return gap, allowed, wrong


def _apart(made: Retrained, rows: Index, got: list[Answer]) -> bool:
    """Whether a unit's real trainings have another mean than its draws, at a level divided by all units and labels."""
    from scipy.stats import t

    ours, theirs = made.log_without[:, rows], np.stack([a.log_p for a in got])
    endless = ~(np.isfinite(ours).all(axis=0) & np.isfinite(theirs).all(axis=0))
    # where an answer is 0 sometimes, probabilities are compared
    ours, theirs = (np.where(endless, np.exp(v), np.where(np.isfinite(v), v, 0.0)) for v in (ours, theirs))
    S, G = len(ours), len(theirs)
    pooled = ((S - 1) * ours.var(axis=0, ddof=1) + (G - 1) * theirs.var(axis=0, ddof=1)) / (S + G - 2)
    apart = np.abs(ours.mean(axis=0) - theirs.mean(axis=0))
    quantile = float(t.ppf(1 - LEVEL / (2 * len(made.units) * ours.shape[-1]), S + G - 2))
    return bool((apart > quantile * np.sqrt(pooled * (1 / S + 1 / G)) + 1e-9).any())


def _told(  # noqa: PLR0917  the fields of a re-check
    engine: Engine, made: Retrained, outcome: Any, text: str, fits: int, gap: float, allowed: float, wrong: list[str]
) -> Precondition:
    detail = {
        "engine": engine.name,
        "version": engine.version,
        "units_checked": fits,
        "units": len(made.units),
        "worst_difference": gap,
        "tolerance": allowed,
        "wrong": wrong[:10],
    }
    return Precondition(f"recheck_{engine.name}", outcome, text, detail)
