"""Met at the released coins: whether a few other coins say the same, because the seed may have been chosen.

Retrying seeds until one passes succeeds in 64 % of 50 tries where 2 % of coins pass.
Section 9.4 of docs/mathematics.md.
"""

import numpy as np

from privgate.arrays import Float, Index
from privgate.evidence import Count, Precondition
from privgate.families import answering as families
from privgate.families.engine import DRAWN, Asked
from privgate.influence.modes import limits
from privgate.influence.other_coins import full, usable
from privgate.run import beside, coins
from privgate.run.run import Noted, Run
from privgate.statistics import leakage
from privgate.training.budget import order

#: people who are looked at closest: those whom models with so many other coins rank first
RANKED, FIRST = 5, 2
#: other coins of each of them, and how many of these may be above a limit
CLOSEST, ABOVE = 10, 1
#: that so many of them are above where no more than the allowed share of all is; one-sided
LEVEL = 0.003
#: what is said where nothing can be compared
FAILING = "at the released coins few people are above the limit, and with most other coins training fails"
#: parts of the people that are left out together to rank them
PARTS = 5


def wanted(run: Run) -> bool:
    """Return whether a look at other coins can matter; a theorem holds at all of them, a rehearsal judges nobody."""
    return run.at_coins and run.once(limits) is None and bool(run.people)


def trainings(run: Run) -> int:
    """Return how many trainings with other coins an approval takes beside the controls."""
    if not wanted(run):
        return 0
    shares = [share for _, share in run.people]
    closest = RANKED * PARTS + CLOSEST * (RANKED * FIRST + 1) if 0.0 in shares else 0
    return closest + (2 * min(DRAWN, run.n_units) if any(shares) else 0)


def glance(run: Run, high: Float, scale: float = 1.0) -> Noted:
    """Return the finding that other coins are above a limit which the released ones keep, if they are.

    Parameters
    ----------
    run : Run
    high : float64 array of shape (U,)
        Upper limits of people at the released coins, in the unit of the limits.
    scale : float
        That unit, in the answers' own.

    Notes
    -----
    Of rules on everybody the riskiest people are left out with ten other coins each; of rules on a share of people a
    random sample with one each. Of a rule that 1 % may exceed, more than three of 59 are found above with probability
    .003, and with .84 where one in ten people is above at other coins.
    """
    text = ""
    for limit, allowed in run.people:
        above = float((high > limit).mean()) if len(high) else 1.0
        if not text and above <= allowed + 1e-9:  # else this rule does not pass in any case
            text = _at_random(run, limit * scale, allowed) if allowed else _closest(run, limit * scale)
    if not text:
        return Noted()
    return Noted((Precondition("other_coins", "inconclusive", f"{text}: {coins.chosen(run)}"),))


def _closest(run: Run, limit: float) -> str:
    if (moved := _computed(run, coins.of(run, CLOSEST))) is None:
        drawn, people = usable(run, CLOSEST), _riskiest(run)
        if len(drawn) < CLOSEST:
            return FAILING
        moved = np.stack([_changes(run, people, [coin] * len(people)) for coin in drawn])
    above = (moved > limit).mean(axis=0).max(initial=0.0)
    if above * CLOSEST <= ABOVE:
        return ""
    return f"at the released coins nobody is above the limit, and with {above:.0%} of other coins the same person is"


def _computed(run: Run, drawn: list[coins.Coin]) -> Float | None:
    """Return everybody's change with each coin, shape (S, n_units), where a fast engine tells; None where none does."""
    subject, everybody = run.subject, np.arange(run.n_units, dtype=np.int64)
    seeds = tuple(coin.seed for coin in drawn)
    if any(coin.order for coin in drawn) or subject.task == "regression":
        return None
    if families.first(subject)[0].cost(subject, everybody, seeds).fits:
        return None
    near = run.once(beside.of_people)
    queries = near.queries(everybody)
    asked = Asked(near.asked, everybody, seeds, run.fleet, queries, limits=run.thresholds, rehearsed=True)
    made = families.answer(asked).retrained
    out = np.full((len(made.seeds), run.n_units), np.inf)
    known = ~np.isnan(made.log_without).any(axis=(0, 2))
    out[:, made.units] = 0.0
    rows = made.units[made.row_unit[known]]
    moved = leakage.largest_change(made.log_with[:, known], made.log_without[:, known])
    for s in range(len(out)):
        np.maximum.at(out[s], rows, moved[s])
    return out


def _at_random(run: Run, limit: float, allowed: float) -> str:
    from scipy.stats import binom

    count = min(DRAWN, run.n_units)
    # the order of the ledger's secret: whoever trains must not choose them
    people, drawn = np.sort(order(run.subject, run.fleet)[:count]), usable(run, count)
    if len(drawn) < count:
        return FAILING
    above = int((_changes(run, people, drawn) > limit).sum())
    if above <= binom.ppf(1 - LEVEL, count, allowed):
        return ""
    return (
        f"at the released coins few people are above the limit, and with other coins {Count(above, count)} of {count} "
        "people drawn at random are"
    )


def _riskiest(run: Run) -> Index:
    """Return those whom models with other coins rank first."""
    subject, size = run.subject, run.n_units
    parts = np.array_split(order(subject, run.fleet), min(PARTS, size))
    rows = [np.sort(np.concatenate([subject.data.units[int(u)] for u in part])) for part in parts]
    chosen: list[int] = []
    for coin in usable(run, RANKED):
        with_ = full(run, [coin], np.arange(subject.data.n, dtype=np.int64))[0]
        fits = [coin.fit(subject, r, left_out=r) for r in rows]
        moved = np.zeros(subject.data.n)
        for r, answer in zip(rows, run.fleet.fits(subject, fits, label="ranking people"), strict=True):
            if not np.isnan(with_[r]).any():
                moved[r] = np.inf if answer.problem else _change(run, with_[r][None], answer.log_p[None])
        ranked = np.argsort(-np.array([moved[r].max() for r in subject.data.units]), kind="stable")
        chosen += [int(u) for u in ranked[:FIRST]]
    return np.array(list(dict.fromkeys(chosen)), dtype=np.int64)


def _changes(run: Run, people: Index, drawn: list[coins.Coin]) -> Float:
    """Return the largest change of each person's own answer, each with a coin of its own, in the answers' unit."""
    near, out = run.once(beside.of_people), np.zeros(len(people))
    rows = [near.of_units(np.array([u]))[1] for u in people]
    members = [run.subject.data.units[int(u)] for u in people]
    fits = [coin.fit(near.asked, r, left_out=m) for coin, r, m in zip(drawn, rows, members, strict=True)]
    answers = run.fleet.fits(near.asked, fits, label="asking other coins")
    for k, (coin, r, answer) in enumerate(zip(drawn, rows, answers, strict=True)):
        with_ = full(run, [coin], r)[0]
        known = not np.isnan(with_).any()
        out[k] = np.inf if answer.problem else _change(run, with_[None], answer.log_p[None]).max() if known else 0.0
    return out


def _change(run: Run, with_: Float, without: Float) -> Float:
    if run.subject.task == "regression":
        return np.asarray(np.abs(with_ - without).max(axis=(0, 2)))
    return np.asarray(leakage.largest_change(with_, without).max(axis=0))
