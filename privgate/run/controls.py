"""What must hold before any number counts, and how many paired seeds a recipe needs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, replace
from typing import Literal

import numpy as np

from privgate.errors import MeasurementError
from privgate.evidence import Measurement, Precondition, Request, SeedControl
from privgate.families.refit import no_answers
from privgate.run import changed, coins, recipe_controls, reproduction
from privgate.run.recipe_controls import reads_no_seed
from privgate.run.reproduction import DETERMINISTIC
from privgate.run.run import Run
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT, label_changes
from privgate.subject import tasks
from privgate.subject.subject import Subject
from privgate.training.fit import Answer, Fit
from privgate.training.fleet import Fleet

# How many paired seeds a recipe needs, decided from what the controls see, before any unit is left out.

#: fewer pairs have no power against a threshold, more hardly add any (docs/mathematics.md, section 9.4)
LEAST, MOST = 10, 20
#: other seeds tried, each on all data and on data without one person, before training counts as free of its seed
TRIED = 10
#: how training that draws is judged, in the words of every report
AT = "judged is this code at these coins, no other"
#: nats; another seed that changes a probability by so much counts, however small the probability is
VISIBLE = 1e-3


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
        Largest change of a probability at any record between the recipe's own seed and another one.
    compared : int
        Seeds that were compared, the recipe's own among them.
    message : str
        One sentence for the report.
    coins : {"seed", "order", "both"}
        What gives other coins where training is ``dependent``; the order of records where a function draws by itself.
    more : tuple of (int or None)
        The seeds to go on with where an upper limit is wanted and no lower one has decided; see ``choose``.
    unread : bool
        No part of the estimator reads a seed, so that none was compared.
    """

    seeds: tuple[int | None, ...]
    dependent: bool
    moved_by: float
    compared: int
    message: str
    coins: Literal["seed", "order", "both"] = "seed"
    more: tuple[int | None, ...] = ()
    unread: bool = False


def choose(
    subject: Subject,
    fleet: Fleet,
    *,
    n_units: int | None = None,
    count: int | None = None,
    glance: bool = False,
) -> Seeds:
    """Return the seeds to judge a subject at, and whether its training depends on them.

    Trains with the recipe's seed and with ``TRIED`` others on everything, and with as many more on data without one
    person, a different one each: a seed that matters for a share q of all seeds and data sets is missed with
    probability (1 - q)^20, 5 % at q = .14. Where the code writes a seed of its own, another order of the records takes
    the place of another seed. Whether they matter or not, the recipe's own seed is used: it is the registered model's,
    and the verdict is about this code at these coins. A recipe without a seed (trained with differential privacy) has
    no coins that could be drawn again: its runs are independent, R >= 1 + log2(N / 0.05) of them with and without
    each person, within ``LEAST`` and ``MOST``, can block, and an upper limit needs ``SEEDS_FOR_A_LIMIT``. Where no
    part of an estimator reads a seed (``reads_no_seed``) nothing is compared, unless the operator asks for it.

    Parameters
    ----------
    subject : Subject
    fleet : Fleet
    n_units : int, optional
        Units that will be left out; all if absent.
    count : int, optional
        So many seeds are compared at least; the number of runs of a recipe without a seed.
    glance : bool
        For a plan: one other seed is tried, on everything.

    Raises
    ------
    MeasurementError
        Training on everything fails.

    References
    ----------
    docs/mathematics.md, section 9.4 (sign-flip test, t limits), section 15.
    """
    own, others = subject.recipe.seed, _others(subject, fleet, count)
    if count is None and reads_no_seed(subject.recipe):
        text = "no part of the estimator reads a seed; one is used"
        return Seeds((own,), dependent=False, moved_by=0.0, compared=1, message=text, unread=True)
    by_order = _order_moves(subject, fleet)
    tried = 1 if glance or by_order else _tried(count)
    people = [] if glance or by_order else changed.people(subject)
    moved, compared = _moved(subject, fleet, others[: 2 * tried], people)
    if moved <= DETERMINISTIC and by_order:
        text = f"another order of the records moves predictions by up to {by_order:.2g}, another seed does not; {AT}"
        return Seeds((own,), dependent=True, moved_by=by_order, compared=compared, message=text, coins="order")
    if moved <= DETERMINISTIC:
        where = ", on all data and with one person left out; one seed is used"
        if glance:
            where = " on all data, so one seed is used; where people are left out more are compared"
        text = f"{compared} seeds gave the same models{where}"
        return Seeds((own,), dependent=False, moved_by=moved, compared=compared, message=text)
    if own is not None:
        by: Literal["seed", "both"] = "both" if by_order else "seed"
        return Seeds((own,), dependent=True, moved_by=moved, compared=compared, message=_note(moved), coins=by)
    pairs = count if count is not None else pairs_needed(len(subject.data.units) if n_units is None else n_units)
    text = f"another run moves predictions by up to {moved:.2g}; everybody is judged on {pairs} runs with and without"
    more: tuple[int | None, ...] = ()
    if count is None:
        more = (None,) * SEEDS_FOR_A_LIMIT
        text += f", and on {SEEDS_FOR_A_LIMIT} where these do not refuse"
    elif pairs == 1:
        text = f"another run moves predictions by up to {moved:.2g}; a single run neither refuses nor approves"
    elif pairs < SEEDS_FOR_A_LIMIT:
        text += f", which can refuse; an approval needs {SEEDS_FOR_A_LIMIT}"
    return Seeds((None,) * pairs, dependent=True, moved_by=moved, compared=compared, message=text, more=more)


def _order_moves(subject: Subject, fleet: Fleet) -> float:
    """Return the largest change of a probability by another order of the records, if it is one that counts; else 0.

    The gate sets the seed of an estimator. A function may draw without reading its argument: with a seed of its own, by
    positions of the records. Orders of additions move answers by less than ``VISIBLE``.
    """
    if not _may_draw_by_itself(subject):
        return 0.0
    calls = [changed.full(subject), coins.others(subject, 1, by="order", fleet=fleet)[0].fit(subject)]
    one, other = fleet.fits(subject, calls, label="comparing orders of the records")
    moved = 0.0 if one.problem or other.problem else _apart(subject, one, other)
    return moved if moved > VISIBLE else 0.0


def _may_draw_by_itself(subject: Subject) -> bool:
    return subject.recipe.seed is not None and not subject.recipe.is_estimator


def _tried(count: int | None) -> int:
    return max(TRIED, 0 if count is None else count - 1)


def _others(subject: Subject, fleet: Fleet, count: int | None) -> list[int]:
    wanted = 2 * _tried(count) + 1
    drawn = coins.unknown(subject, "seeds", fleet).choice(2**31, size=wanted, replace=False)
    return [int(s) for s in drawn if s != subject.recipe.seed]


def fits(subject: Subject, fleet: Fleet, *, dependent: bool, count: int | None = None) -> list[Fit]:
    """Return the calls that ``choose`` makes, where the first other seed shows dependence or where none does."""
    if count is None and reads_no_seed(subject.recipe):
        return []
    others = _others(subject, fleet, count)[: 2 * _tried(count)]
    everybody = [changed.full(subject), *(_other(subject, others, k, None) for k in range(len(others) // 2))]
    if _may_draw_by_itself(subject):
        everybody.insert(1, coins.others(subject, 1, by="order", fleet=fleet)[0].fit(subject))
    if dependent:
        return everybody[:3]
    return everybody + [f for pair in _left_out(subject, others, changed.people(subject)) for f in pair]


def _other(subject: Subject, others: list[int], position: int, gone: int | None) -> Fit:
    """Return the call with another seed; without a recorded one a further run is, because equal runs use none."""
    own = subject.recipe.seed
    rows = changed.NOBODY if gone is None else subject.data.units[gone]
    seed = None if own is None else others[position]
    return Fit(seed, changed.pool(subject), left_out=rows, repeat=position + 1 if own is None else 0)


def _left_out(subject: Subject, others: list[int], some: list[int]) -> list[tuple[Fit, Fit]]:
    """Return pairs without one of some people each: with the recipe's own seed, and with seeds not tried before."""
    half = len(others) // 2
    gone = [some[k % len(some)] for k in range(half)] if some else []
    return [(changed.without(subject, u), _other(subject, others, half + k, u)) for k, u in enumerate(gone)]


def _moved(subject: Subject, fleet: Fleet, others: list[int], people: list[int]) -> tuple[float, int]:
    """Return (largest change of a probability between seeds, seeds compared); stops at the first that moves enough.

    The first half of ``others`` is tried on everybody, the second without single people.
    """

    def compare(plain: list[Fit], again: list[Fit]) -> float:
        answers, count = fleet.each(subject, [*plain, *again], label="comparing seeds"), len(plain)
        pairs = zip(answers[:count], answers[count:], strict=True)
        return max((_apart(subject, one(), other()) for one, other in pairs), default=0.0)

    full = changed.full(subject)
    if bad := fleet.fits(subject, [full], label="comparing seeds")[0].problem:
        raise MeasurementError(no_answers(bad))
    moved, tried = 0.0, len(others) // 2
    for some in ([0], list(range(1, tried))):
        moved = max(moved, compare([full] * len(some), [_other(subject, others, k, None) for k in some]))
        if moved > DETERMINISTIC:
            return moved, some[-1] + 2
    # a tie that only the missing record makes, or a number of records that only then is odd
    pairs = _left_out(subject, others, people)
    moved = max(moved, compare([plain for plain, _ in pairs], [again for _, again in pairs]))
    return moved, tried + 1


def _apart(subject: Subject, one: Answer, other: Answer) -> float:
    """Return the largest change of a probability, above ``DETERMINISTIC`` where a tiny one changes by a visible factor.

    Risk is measured in nats: 1e-9 and 1e-7 are 4.6 apart. A training that fails for one seed only is moved by all.
    """
    if one.problem or other.problem:
        return 0.0 if one.problem and other.problem else 1.0
    gap = float(np.abs(subject.comparable(one.log_p) - subject.comparable(other.log_p)).max())
    if subject.task == "regression":
        return gap
    nats = float(np.abs(label_changes(one.log_p, other.log_p)).max())
    return max(gap, 2 * DETERMINISTIC) if nats > VISIBLE else gap


def pairs_needed(n_units: int) -> int:
    """Return the number of paired seeds for ``n_units`` units; see ``choose``.

    >>> [pairs_needed(n) for n in (1, 100, 1000, 10**9)]
    [10, 12, 16, 20]
    """
    return min(MOST, max(LEAST, math.ceil(1 + math.log2(max(1, n_units) / 0.05))))


# What must hold before any number counts: no recorded seed behind a privacy claim, and the two controls.


def static(subject: Subject) -> list[Precondition]:
    """Return what can be said without training anything."""
    recipe = subject.recipe.payload
    found = []
    if why := subject.recipe.asked(subject.data.y):
        found.append(Precondition("task", "inconclusive", f"{why}: {tasks.QUESTION}"))
    if recipe["dp"] is not None and recipe["seed"] is not None:
        message = (
            "the recipe claims differential privacy and records its seed: anybody who reads it can regenerate "
            "the noise and subtract it; log the recipe without a seed"
        )
        found.append(Precondition("recorded_seed", "failed", message))
    return found


def trained(run: Run) -> tuple[Run, list[Precondition]]:
    """Run the two controls, choose the paired seeds by what they say; return the run that knows it, and findings."""
    subject, fleet = run.subject, run.fleet
    found = [reproduction.reproduces(subject, fleet)]
    if found[0].outcome not in ("passed", "warned"):
        return run, found  # the next control makes 70 trainings, and nothing is measured whatever it says
    apart = reproduction.registered_apart(found[0])
    found.append(recipe_controls.depends_on_data(subject, fleet, people=not run.attacks_alone))
    run = replace(run, registered_apart=apart, single_median=found[1].figure("single_median"))
    if found[1].outcome not in ("passed", "warned"):
        return run, found
    noise = found[1].figure("between_two_trainings") or 0.0
    if (kept := recipe_controls.remembers_nothing(subject, fleet, noise)) is not None:
        found.append(kept)
        if kept.outcome != "passed":
            return run, found
    run = choose_seeds(run, glance=run.attacks_alone)
    if run.at_coins and not run.attacks_alone:
        found.append(coins.compared(run))
        run = replace(run, seed_control=_with_compared(run, found[-1]))
    return run, found


def compares_last(run: Run) -> bool:
    """Whether attacks alone are judged, of training that may read its seed: one other seed shows little of it."""
    seen = run.seed_control
    return run.attacks_alone and seen is not None and not seen.unread and run.subject.recipe.seed is not None


def last(run: Run, measured: Mapping[Request, Measurement]) -> tuple[Run, list[Precondition]]:
    """Compare the released answers with those of other coins where attacks alone are judged, and none is too strong.

    The seed may be the best of many, which models at that seed do not show. Who is refused anyway trains none of these,
    and nothing that was not compared may pass once the evidence is judged again.
    """
    if not compares_last(run):
        return run, []
    if run.attack_breaks(measured):
        text = "the released answers were not compared with those of other coins: an attack is too strong anyway"
        return run, [Precondition("coins", "inconclusive", text)]
    found = coins.compared(run)
    return replace(run, seed_control=_with_compared(run, found)), [found]


def _with_compared(run: Run, found: Precondition) -> SeedControl | None:
    seen, moved = run.seed_control, found.detail["moved_by"]
    told = {"compared": found.detail["coins"] + 1, "median": found.detail["median"], "floor": found.detail["floor"]}
    if seen is not None and not seen.dependent and moved > DETERMINISTIC:  # the one that was tried first is like it
        told |= {"dependent": True, "moved_by": moved, "note": _note(moved)}
    return None if seen is None else seen.model_copy(update=told)


def _note(moved: float) -> str:
    return f"another seed moves predictions by up to {moved:.2g}; {AT}"


def trainings(run: Run) -> int:
    """Return how many trainings the controls make, seeds among them; ``choose_seeds`` has glanced at least."""
    seen = run.seed_control
    people = not run.attacks_alone
    dependent = not people or (seen is not None and seen.dependent)
    seeds = fits(run.subject, run.fleet, dependent=dependent, count=run.limits.seeds)
    if run.at_coins and people:
        seeds += [coin.fit(run.subject) for coin in coins.first(run)]
    return recipe_controls.trainings(run.subject, seeds, people=people)


def choose_seeds(run: Run, *, glance: bool = False) -> Run:
    """Return the run with paired seeds, one where training has no randomness, and what was seen of them."""
    n_units = min(run.limits.max_retrains or run.n_units, run.sample or run.n_units)
    chosen = choose(
        run.subject,
        run.fleet,
        n_units=min(n_units, run.n_units),
        count=run.limits.seeds,
        glance=glance,
    )
    seen = SeedControl(
        dependent=chosen.dependent,
        paired=len(chosen.seeds) if chosen.dependent else 0,
        moved_by=chosen.moved_by,
        compared=chosen.compared,
        unread=chosen.unread,
        coins=chosen.coins,
        note=chosen.message,
    )
    return replace(run, seeds=chosen.seeds, more_seeds=chosen.more, seed_control=seen)
