"""Coins: what training draws besides its data. The registered model's own are judged, other ones are compared.

Whoever wrote the recipe chose the coins, and may have chosen the best of many. So the released answers stand beside
those of models with coins that nobody could choose: seeds drawn by the gate and, where the code draws without
reading its argument, orders of the records. Section 9.4 of docs/mathematics.md.
"""

import time
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass

import numpy as np
from numpy.random import Generator

from privgate.arrays import Float, Index
from privgate.evidence import Precondition
from privgate.run import changed
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

#: other coins at each look; the released ones stand out where none of the last number is as extreme: level 1 in 200
LOOKS = (19, 59, 199)
#: nats; beyond float64's range a log-probability carries nothing
FLOOR = -40.0


@dataclass(frozen=True)
class Coin:
    """Coins of one training.

    Parameters
    ----------
    seed : int or None
        Given to the training function.
    order : int
        Of the records; 0 for their own.
    """

    seed: int | None
    order: int = 0

    def fit(self, subject: Subject, rows: Index | None = None, *, left_out: Index | None = None) -> Fit:
        """Return the call with these coins, asked about the whole pool if no rows are named."""
        asked = changed.pool(subject) if rows is None else rows
        return Fit(self.seed, asked, left_out=changed.NOBODY if left_out is None else left_out, order=self.order)


def unknown(subject: Subject, purpose: str, fleet: Fleet | None) -> Generator:
    """Return what draws coins: in a run that is to be signed nobody knows them before, and can make no code for them.

    So it is where a ledger lasts: what it remembers of them serves the next run. Else they follow from the digest.
    """
    secret = fleet is not None and (fleet.signable or fleet.ledger.lasting)
    return fleet.drawn(subject, purpose) if fleet is not None and secret else subject.generator(purpose)


def others(subject: Subject, count: int, *, by: str, fleet: Fleet | None = None) -> list[Coin]:
    """Return so many other coins, drawn by the gate: seeds, orders of the records, or both at once."""
    own, rng = subject.recipe.seed, unknown(subject, "coins", fleet)
    drawn = dict.fromkeys(int(v) for v in rng.integers(1, 2**31, size=2 * count + 2) if v != own)
    return [Coin(own if by == "order" else v, 0 if by == "seed" else v) for v in list(drawn)[:count]]


def chosen(run: Run) -> str:
    """Return what to do where the released coins may have been chosen."""
    seen = run.seed_control
    first = "let the code draw from its argument seed, and " if seen is not None and seen.coins != "seed" else ""
    return f"the seed may have been chosen among many; {first}release a model with a seed that nobody picked"


def of(run: Run, count: int) -> list[Coin]:
    """Return other coins of a run whose training depends on its coins."""
    seen = run.seed_control
    return others(run.subject, count, by="seed" if seen is None else seen.coins, fleet=run.fleet)


# Whether the released answers stand out among those of models with other coins.


def stand_out(answers: Iterable[Float]) -> Float:
    """Return how far each model's answers lie from the others' at its most unusual answer, shape (M,).

    Parameters
    ----------
    answers : iterable of M float64 arrays of shape (D,), gone through three times
        Of M models about the same records; nats, or numbers. A larger value is more unusual.

    Notes
    -----
    Deviations of each answer over all M models, the median one added, measure it: whatever the coins do, the M values
    are exchangeable where the first coins were drawn like the others, and so is their order.
    """
    mean, scale = leakage.moments(answers)
    if (scale > 0).any():
        scale += np.median(scale[scale > 0])
    fixed = ~(scale > 0)
    scale[fixed] = np.inf
    return np.array([np.nan_to_num(np.abs(one - mean) / scale, copy=False).max() for one in answers])


def compared(run: Run) -> Precondition:
    """Return whether the released answers are as other coins give them; more coins only where they look unusual.

    "Inconclusive" with probability at most 1 in 200 for a seed that nobody chose; a budget that allows fewer coins
    makes it likelier. An order is no such draw, because the records' own order may mean something (time, labels):
    where it alone gives other coins, this is a warning. Code that reads its seed and draws besides is compared both
    ways, because its seed may be for show. Coins whose training fails are replaced by others.
    """
    found = [_standing(run, by) for by in _kinds(run)]
    return max(found, key=lambda one: ("passed", "warned", "inconclusive").index(one.outcome))


def first(run: Run) -> list[Coin]:
    """Return the other coins that are compared in any case."""
    return [c for by in _kinds(run) for c in others(run.subject, LOOKS[0], by=by, fleet=run.fleet)]


def _kinds(run: Run) -> tuple[str, ...]:
    seen = run.seed_control
    return ("seed",) if seen is None else ("seed", "order") if seen.coins == "both" else (seen.coins,)


def _standing(run: Run, by: str) -> Precondition:
    """Return whether released answers stand out among those of other seeds, or of other orders of the records."""
    subject, looks = run.subject, _looks(run)
    drawn = others(subject, 2 * looks[-1], by=by, fleet=run.fleet)
    answers, above, begun = _Compared(run), 0, 0
    answers.add([Coin(subject.recipe.seed)])
    trained = len(answers)  # a released model that cannot be trained again stands out
    began = time.monotonic()
    for count in looks:
        if _too_long(run, (time.monotonic() - began) * (count + 1) / (len(answers) or 1), first=count == looks[0]):
            break
        while len(answers) <= count and begun < len(drawn):
            begun, fresh = begun + count + 1 - len(answers), drawn[begun : begun + count + 1 - len(answers)]
            answers.add(fresh)
        extreme = stand_out(answers)
        above = int((extreme[1:] >= extreme[0]).sum()) if trained else 0
        if above:  # one is enough for chance
            break
    count, floor = len(answers) - trained, np.zeros(1)
    if len(answers) > 1:
        floor = np.nan_to_num(np.sqrt(2.0) * leakage.moments(answers, ddof=1)[1], nan=np.inf)
    moved = leakage.widest(map(np.exp, answers) if subject.task == "classification" else answers) if count else 0.0
    detail = {"coins": count, "as_unusual": above, "moved_by": moved}
    detail |= {"median": float(np.median(floor)), "floor": float(floor.max())}
    if count < LOOKS[0]:
        text = f"only {count} models with other coins could be trained, too few to compare the released answers with"
        return Precondition("coins", "inconclusive", text, detail)
    if above:
        text = f"the released answers are as usual as those of {count} models with other coins"
        return Precondition("coins", "passed", text, detail)
    text = f"the released answers are further from the usual than those of all {count} models with other coins"
    if by == "seed" and count < LOOKS[-1]:
        text += "; there was no budget for more, with which one ordinary seed in twenty looks so"
    return Precondition("coins", "inconclusive" if by == "seed" else "warned", f"{text}: {chosen(run)}", detail)


def _looks(run: Run) -> tuple[int, ...]:
    """Return how many other coins are compared at each look; a budget of trainings ends it sooner."""
    wanted, most = run.limits.seeds, run.limits.max_retrains
    looks = LOOKS if wanted is None else (max(LOOKS[0], wanted), *(k for k in LOOKS if k > wanted))
    return looks if most is None else (looks[0], *(k for k in looks[1:] if k <= most))


def _too_long(run: Run, seconds: float, *, first: bool) -> bool:
    """Return whether a further look takes longer than the budget; the first one is always taken."""
    return not first and run.limits.budget_seconds is not None and seconds > run.limits.budget_seconds


class _Compared:
    """What models answer about the data, shape (D,) each, one by one; those that cannot be trained miss."""

    def __init__(self, run: Run) -> None:
        self._run, self._known = run, list[Callable[[], Answer]]()

    def add(self, coins: list[Coin]) -> None:
        """Train models with these coins."""
        subject = self._run.subject
        made = self._run.fleet.each(subject, [coin.fit(subject) for coin in coins], label="comparing coins")
        self._known += [read for read in made if not read().problem]

    def __len__(self) -> int:
        return len(self._known)

    def __iter__(self) -> Iterator[Float]:
        subject = self._run.subject
        for read in self._known:
            own = read().log_p[: subject.data.n].ravel()
            yield np.maximum(own, FLOOR) if subject.task == "classification" else own
