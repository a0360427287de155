"""What an engine and the theorems will take, from their own first steps: a few people, then more, then a straight line.

An a-priori formula was wrong by up to 30,000 in either direction; a few people cost what the whole has in common (the
data read once, one factorisation) and show what each further person adds, and how many are handed on to refits.
"""

import time
from collections.abc import Callable
from dataclasses import dataclass, replace

import numpy as np

from privgate.families import bound as bounds
from privgate.families import complement
from privgate.families.engine import Declined, Engine
from privgate.families.networks import torch_nets
from privgate.families.retrained import Index, Retrained
from privgate.influence import leave_one_out, modes
from privgate.run.needs import Need
from privgate.run.run import Run

#: people of the first step; each further step has eight times as many, until one takes so long, seconds of CPU
FIRST, FACTOR, LONG = 8, 8, 0.15
#: seconds that a first step may take where each person costs a training
TRAINED = 1.0


@dataclass(frozen=True)
class Probe:
    """What everybody would take.

    Parameters
    ----------
    engine, theorems : float
        Seconds of CPU.
    handed_on : float
        Share of people whom the engine leaves to refits.
    """

    engine: float
    theorems: float
    handed_on: float


def of(run: Run, engine: Engine, units: Index, *, each: float = 0.0) -> Probe:
    """Return what an engine takes for some units, and the theorems with it; ``each`` is what one training takes."""
    cost = engine.cost(run.subject, units, run.seeds, mode=run.once(modes.used))
    theorems = bounds.applicable(run.subject, attacked=Need.SHADOWS in run.asked)[0]
    if torch_nets.recipe_of(run.subject) is not None:  # a few networks already train for as long as all of them
        return Probe(cost.cpu_seconds, 0.0, 0.0)
    shuffled = run.generator("planned").permutation(units)
    kept: list[tuple[Retrained, Index]] = []
    # what trains takes as long for each seed; one shows it
    seeds = run.seeds[:1] if engine.trains else run.seeds
    times = len(run.seeds) / len(seeds)

    def answer(some: Index) -> None:
        made, handed_on = engine.answers(replace(leave_one_out.asked(run, some), seeds=seeds))
        rounded = some[:0]
        if engine.complements:
            made, rounded = complement.as_released(made)
        kept.append((made, np.concatenate([handed_on, rounded])))

    try:
        first = FIRST if not engine.trains else int(np.clip(TRAINED / max(each, 1e-9), 1, FIRST))
        stated = np.inf if np.isnan(cost.cpu_seconds) else cost.cpu_seconds / times
        seconds, asked = _extrapolated(answer, shuffled, stated, first=first)
        seconds *= times
    except Declined:
        return Probe(cost.cpu_seconds, 0.0, 1.0)
    made, handed_on = kept[-1]
    limit = run.thresholds[-1] if run.thresholds else None
    spent = 0.0
    if theorems and len(made.units):

        def certify(some: Index) -> None:
            bounds.bound(run.subject, made.units[some], made.select(_mask(len(made.units), some)), limit=limit)

        spent, _ = _extrapolated(certify, np.arange(len(made.units)), np.inf, of=len(units))
    return Probe(seconds, spent, len(handed_on) / asked)


def _mask(size: int, some: Index) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    keep = np.zeros(size, dtype=bool)
    keep[some] = True
    return keep


def _extrapolated(
    work: Callable[[Index], None], units: Index, stated: float, *, of: int | None = None, first: int = FIRST
) -> tuple[float, int]:
    """Return seconds for all ``units`` (or for ``of`` like them), and how many were tried in the last step.

    Where the first step already takes long there is no second one: what is stated holds, or a line from nothing.
    """
    total, before, size = len(units) if of is None else of, (0, 0.0), first
    while True:
        some = np.sort(units[:size])
        started = time.process_time()
        work(some)
        now = (len(some), time.process_time() - started)
        if len(some) == len(units) or now[1] > LONG:
            break
        before, size = now, size * FACTOR
    if before[0] == 0 and len(some) < total:
        each = now[1] / len(some)
        return max(now[1], min(stated, each * total)), len(some)
    slope = max(0.0, (now[1] - before[1]) / max(1, now[0] - before[0]))
    return now[1] + slope * (total - now[0]), len(some)
