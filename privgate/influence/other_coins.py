"""Whom the released coins show above a limit: whether other coins show it too, one person at a time.

Above at the released coins is never met later. Other coins show a person's influence, which refuses, or leave it open:
what one pair of trainings shows may be the coins' own noise, which another pair without that person would not repeat.
Section 9.4 of docs/mathematics.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np

from privgate.arrays import Float, Index
from privgate.run import coins
from privgate.run.run import Run
from privgate.statistics import leakage

#: other coins after which a person's influence is looked for
LOOKS = (5, 10, 20, 40)
#: people followed at most; all tests of a run share ``LEVEL``
PEOPLE = 30
LEVEL = 0.05
#: what a number rests on where training draws
AT = "this code at these coins; what other coins give is not judged"
#: exchanges of with and without, by which a changed spread is told from chance
EXCHANGES = 20_000


@dataclass(eq=False)
class Followed:
    """What other coins showed of people so far: unit -> lower limit, in the unit of the answers; who is above."""

    lower: dict[int, float] = field(default_factory=dict)
    above: set[int] = field(default_factory=set)
    full: dict[coins.Coin, Float] = field(default_factory=dict)


def followed(run: Run) -> Followed:
    """Return what is known so far of one run; filled as people are followed."""
    del run
    return Followed()


def told(run: Run) -> dict[str, bool]:
    """Return for evidence that a number is about the released coins, and of whom other coins were asked."""
    if not run.at_coins:
        return {}
    seen = run.once(followed)
    return {"own_coins": True, "followed": bool(seen.lower), "shown": bool(seen.above)}


def settled(
    run: Run, units: Index, low: Float, enough: Callable[[Float], bool] | None = None, scale: float = 1.0
) -> Float:
    """Return the lower limits that stand once other coins were asked about people above a limit, shape (U,).

    Parameters
    ----------
    run : Run
    units : int64 array of shape (U,)
    low : float64 array of shape (U,)
        Lower limits at the released coins; larger is worse.
    enough : callable, optional
        Of such limits: whether nobody else has to be followed, because a rule is broken for certain.
    scale : float
        Unit of ``low``, in the answers' own.

    Notes
    -----
    Who is above no limit keeps its value: that is what this code does at these coins. Who is above one, and not shown
    by other coins, may be without influence: 0.
    """
    if not (run.at_coins and run.thresholds):
        return low
    known, above = run.once(followed).lower, low > min(run.thresholds)
    stands = np.where(above, [known.get(int(u), 0.0) / scale for u in units], low)
    for k in np.argsort(-low, kind="stable")[: int(above.sum())]:
        if (enough is not None and enough(stands)) or len(known) >= PEOPLE or run.late():
            break
        unit = int(units[k])
        if unit not in known:
            known[unit] = lower(run, unit, limit=max(run.thresholds) * scale)
        stands[k] = known[unit] / scale
        if stands[k] > min(run.thresholds):
            run.once(followed).above.add(unit)
    return stands


def lower(run: Run, unit: int, *, limit: float) -> float:
    """Return the lower limit of one person's influence over other coins; as soon as it is above ``limit``.

    Student's limit of the mean change, or a change of spread that an exchange of both sides does not give by chance;
    a person without whom some coins make an answer possible that others make impossible has no limit.
    """
    drawn, shown = coins.of(run, LOOKS[-1]), 0.0
    with_, without = list[Float](), list[Float]()
    rows = run.subject.data.units[unit]
    for count in LOOKS:
        fresh = drawn[len(with_) : count]
        with_ += full(run, fresh, rows)
        fits = [coin.fit(run.subject, rows, left_out=rows) for coin in fresh]
        answers = run.fleet.fits(run.subject, fits, label="asking other coins")
        without += [np.full((len(rows), run.subject.width), np.nan) if a.problem else a.log_p for a in answers]
        shown = max(shown, _shown(run, np.stack(with_), np.stack(without)))
        if shown > limit:
            break
    return shown


def full(run: Run, drawn: list[coins.Coin], rows: Index) -> list[Float]:
    """Return what models of everybody with these coins answer, trained once for all people."""
    kept, subject = run.once(followed).full, run.subject
    missing = [c for c in drawn if c not in kept]
    fits = [coin.fit(subject) for coin in missing]
    for coin, answer in zip(missing, run.fleet.fits(subject, fits, label="asking other coins"), strict=True):
        bad = np.full((subject.data.n, subject.width), np.nan)
        kept[coin] = bad if answer.problem else answer.log_p[: subject.data.n]
    return [kept[c][rows] for c in drawn]


def _shown(run: Run, with_: Float, without: Float) -> float:
    fine = ~np.isnan(with_).any(axis=(1, 2))
    with_, without = with_[fine], without[fine]
    if np.isnan(without).any():
        return float("inf")  # a model without the person that some coins do not give
    if len(with_) < LOOKS[0]:
        return 0.0
    numbers = run.subject.task == "regression"
    change = with_ - without if numbers else leakage.label_changes(with_, without)
    level = LEVEL / (2 * PEOPLE * len(LOOKS))  # half for the mean, half for the spread
    mean = leakage.mean_changes(change, n_tests=with_.shape[1], confidence=1 - level)
    return max(float(mean.low.max()), _spread(run, with_, without, level))


def _spread(run: Run, with_: Float, without: Float, level: float) -> float:
    """Return the least change of spread with any one coin left out, if chance does not give it; else 0."""
    if not (np.isfinite(with_).all() and np.isfinite(without).all()):
        return 0.0  # infinities are in the mean
    count = len(with_)
    each = np.arange(count)
    least = min(float(leakage.spread_change(with_[each != k], without[each != k]).max()) for k in each)
    if least <= 0:
        return 0.0
    swap = run.generator("exchanges of with and without").random((EXCHANGES, count)) < 0.5
    # medians: a jump on one side moves a mean, and then every other pair tells the sides apart
    centred = with_ - np.median(with_, axis=0), without - np.median(without, axis=0)
    squares = [np.square(c).reshape(count, -1) for c in centred]
    total, apart = squares[0] + squares[1], squares[0] - squares[1]

    def ratio(signed: Float) -> Float:
        return np.asarray((np.abs(signed) / np.maximum(total.sum(axis=0), 1e-300)).max(axis=-1))

    seen = ratio(apart.sum(axis=0))
    drawn = ratio((1.0 - 2.0 * swap) @ apart)
    p = (1 + int((drawn >= seen * (1 - 1e-12)).sum())) / (1 + EXCHANGES)
    return least if p <= level else 0.0
