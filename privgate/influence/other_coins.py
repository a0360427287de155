"""Whom the released coins show above a limit: whether other coins show it too, one person at a time.

Above at the released coins is never met later. Other coins show a person's influence, which refuses, or leave it open:
what one pair of trainings shows may be the coins' own noise, which another pair without that person would not repeat.
Section 9.4 of docs/mathematics.md.
"""

from collections.abc import Callable
from dataclasses import dataclass, field

import numpy as np
from numpy.typing import NDArray

from privgate.arrays import Float, Index
from privgate.run import beside, coins
from privgate.run.run import Run
from privgate.statistics import leakage
from privgate.training.fit import Answer

#: other coins after which a person's influence is looked for
LOOKS = (5, 10, 20, 40)
#: people followed at most; all tests of a run share ``LEVEL``
PEOPLE = 30
LEVEL = 0.05
#: what a number rests on where training draws
AT = "this code at these coins; what other coins give is not judged"
#: nats beyond a limit at which an answer is rare enough
RARE = 4.0
#: exchanges of with and without, by which a changed spread is told from chance
EXCHANGES = 20_000


@dataclass(eq=False)
class Followed:
    """What other coins showed of people so far: unit -> lower limit, in the unit of the answers; who is above."""

    lower: dict[int, float] = field(default_factory=dict)
    above: set[int] = field(default_factory=set)
    full: dict[coins.Coin, Callable[[], Answer]] = field(default_factory=dict)


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
    if not run.at_coins or not run.people:
        return low
    least = min(limit for limit, _ in run.people)
    if min(share for _, share in run.people) * len(units) >= PEOPLE:
        return np.where(low > least, 0.0, low)  # so few people break no rule: nobody is followed
    known, above = run.once(followed).lower, low > least
    stands = np.where(above, [known.get(int(u), 0.0) / scale for u in units], low)
    for k in np.argsort(-low, kind="stable")[: int(above.sum())]:
        if (enough is not None and enough(stands)) or len(known) >= _most(run):
            break
        unit = int(units[k])
        if unit not in known:
            known[unit] = lower(run, unit, limit=max(limit for limit, _ in run.people) * scale)
        stands[k] = known[unit] / scale
        if stands[k] > least:
            run.once(followed).above.add(unit)
    return stands


def most_trainings(run: Run) -> int:
    """Return how many trainings following people over other coins takes at most."""
    return (1 + _most(run)) * LOOKS[-1]


def _most(run: Run) -> int:
    """Return how many people are followed, within the operator's budget of trainings."""
    allowed = run.limits.max_retrains
    return PEOPLE if allowed is None else min(PEOPLE, allowed // (2 * LOOKS[-1]) + 1)


def usable(run: Run, count: int) -> list[coins.Coin]:
    """Return ``count`` other coins with which everybody's model can be trained; fewer where most cannot."""
    drawn, kept = coins.of(run, 2 * count), list[coins.Coin]()
    nobody = np.arange(1, dtype=np.int64)
    while len(kept) < count and drawn:
        fresh, drawn = drawn[: count - len(kept)], drawn[count - len(kept) :]
        kept += [c for c, known in zip(fresh, full(run, fresh, nobody), strict=True) if not np.isnan(known).any()]
    return kept


def lower(run: Run, unit: int, *, limit: float) -> float:
    """Return the lower limit of one person's influence over other coins; as soon as it is above ``limit``.

    Student's limit of the mean change, or one of a changed spread that an exchange of both sides does not give by
    chance; answers that are possible on one side alone, oftener than by chance, have no limit.
    """
    drawn, shown = coins.of(run, LOOKS[-1]), 0.0
    with_, without = list[Float](), list[Float]()
    near = run.once(beside.of_people)
    rows = near.of_units(np.array([unit]))[1]
    lost = np.full((len(rows), run.subject.width), np.nan)
    done = 0
    for count in LOOKS:
        fresh, done = drawn[done:count], count
        fits = [coin.fit(near.asked, rows, left_out=run.subject.data.units[unit]) for coin in fresh]
        answers = run.fleet.fits(near.asked, fits, label="asking other coins")
        for known, answer in zip(full(run, fresh, rows), answers, strict=True):
            if answer.lasting or not answer.problem:  # a worker that died says nothing about a person
                with_.append(known)
                without.append(lost if answer.problem else answer.log_p)
        if with_:
            shown = max(shown, _shown(run, np.stack(with_), np.stack(without), limit))
        if shown > limit or (count > LOOKS[0] and with_ and _hopeless(np.stack(with_), np.stack(without), limit)):
            break
    return shown


def full(run: Run, drawn: list[coins.Coin], rows: Index) -> list[Float]:
    """Return what models of everybody with these coins answer, trained once for all people."""
    kept, subject = run.once(followed).full, run.once(beside.of_people).asked
    missing = [c for c in drawn if c not in kept]
    made = run.fleet.each(subject, [coin.fit(subject) for coin in missing], label="asking other coins")
    kept.update(zip(missing, made, strict=True))
    bad = np.full((len(rows), subject.width), np.nan)
    return [bad if answer.problem else answer.log_p[rows] for answer in (kept[c]() for c in drawn)]


def _shown(run: Run, with_: Float, without: Float, limit: float) -> float:
    """Return the largest limit that these pairs of trainings show, each of shape (S, rows, labels).

    Infinite changes are infinite influence where they fall on one side oftener than chance lets them, and large finite
    ones otherwise; so are trainings that fail.
    """
    level = LEVEL / (3 * PEOPLE * len(LOOKS))  # for the mean, the spread, and what is infinite
    lost, missing = (np.asarray(np.isnan(side).any(axis=(1, 2))) for side in (with_, without))
    if _one_sided(lost[:, None], missing[:, None], level):
        return float("inf")
    fine = ~(lost | missing)
    with_, without = with_[fine], without[fine]
    if len(with_) < LOOKS[0]:
        return 0.0
    endless = False
    if run.subject.task == "classification":
        never = [np.isneginf(side).reshape(len(side), -1) for side in (with_, without)]
        endless = _one_sided(never[0], never[1], level / never[0].shape[1])
        # rare answers are brought nearer, which makes changes smaller: else one that is nearly 0 widens every limit
        with_, without = (np.maximum(side, -(limit + RARE)) for side in (with_, without))
    changes = with_ - without
    mean = leakage.mean_changes(changes, n_tests=changes.shape[1], confidence=1 - level)
    # few coins that all change alike show no deviation: what none of them may have shown is taken for no change
    missed = leakage.unseen(len(changes), alpha=level) * np.abs(changes).max(axis=(0, 2))
    low = np.minimum(mean.low, mean.value - missed)
    return float("inf") if endless else max(float(low.max()), _spread(run, with_, without, level))


def _hopeless(with_: Float, without: Float, limit: float) -> bool:
    """Return whether more coins would hardly show this person: mean and spread are clearly below ``limit``.

    It saves trainings and decides nothing. False where an answer is lost or infinite, because there more coins may.
    """
    if not (np.isfinite(with_).all() and np.isfinite(without).all()):
        return False
    changes = with_ - without
    mean = np.abs(changes.mean(axis=0)) + 2 * changes.std(axis=0, ddof=1) / np.sqrt(len(changes))
    apart = 2.0 * np.abs(with_.std(axis=0, ddof=1) - without.std(axis=0, ddof=1))
    return float(mean.max()) < limit and float(apart.max()) < limit / 2


def _one_sided(one: NDArray[np.bool_], other: NDArray[np.bool_], level: float) -> bool:
    """Return whether something happens on one side alone oftener than by chance, in some column: a sign test."""
    from scipy.stats import binomtest

    first, second = (one & ~other).sum(axis=0), (other & ~one).sum(axis=0)
    pairs = {(int(a), int(b)) for a, b in zip(first, second, strict=True) if a + b}
    return any(binomtest(a, a + b).pvalue <= level for a, b in pairs)


def _spread(run: Run, with_: Float, without: Float, level: float) -> float:
    """Return the lower limit of the change of spread, if an exchange of both sides does not give it by chance; else 0.

    Twice the difference of the standard deviations, with the error that leaving out one coin at a time shows.
    """
    from scipy.stats import t

    count, (one, other) = len(with_), (v.reshape(len(v), -1) for v in (with_, without))

    def change(keep: NDArray[np.bool_]) -> Float:
        return np.asarray(2.0 * np.abs(one[keep].std(axis=0, ddof=1) - other[keep].std(axis=0, ddof=1)))

    less = np.stack([change(np.arange(count) != k) for k in range(count)])
    error = np.sqrt((count - 1) * less.var(axis=0))
    quantile = float(t.ppf(1 - level / one.shape[1], count - 1))
    least = float((change(np.ones(count, dtype=bool)) - quantile * error).max())
    if least <= 0:
        return 0.0
    swap = run.generator("exchanges of with and without").random((EXCHANGES, count)) < 0.5
    # medians: a jump on one side moves a mean, and then every other pair tells the sides apart
    squares = [np.square(v - np.median(v, axis=0)) for v in (one, other)]
    total, apart = (squares[0] + squares[1]).sum(axis=0), squares[0] - squares[1]

    def ratio(signed: Float) -> Float:
        return np.asarray((np.abs(signed) / np.maximum(total, 1e-300)).max(axis=-1))

    seen, drawn = ratio(apart.sum(axis=0)), ratio((1.0 - 2.0 * swap) @ apart)
    p = (1 + int((drawn >= seen * (1 - 1e-12)).sum())) / (1 + EXCHANGES)
    return least if p <= level else 0.0
