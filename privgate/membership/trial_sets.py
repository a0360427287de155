"""On whom attacks are judged: all people, ties kept; those whose record is rare; and those alone with theirs.

An average misleads whoever is alone with a record, and who is alone says nothing of those who hold one twice. So a
lower limit on any of the three refuses, and upper limits on the first two approve. See docs/mathematics.md, 9.5.
"""

import math
from collections.abc import Mapping

import numpy as np

from privgate.arrays import Bool, Index
from privgate.evidence import Count
from privgate.membership import attacks
from privgate.membership.limits import Interval, find_worst
from privgate.run.coincidences import bound_rare
from privgate.run.pool import AttackPool

#: attack, class or group, set of people, number of the adversary
Place = tuple[str, str, str, int]

EVERYBODY, RARE, ALONE = "", "people with rare records", "people alone with their records"
#: people of the smaller side among those whose record is rare: to approve at a false-positive rate of 1 %
_LEAST_RARE = 400
#: people of either side alone with their records, without whom nothing is said of them
_LEAST_ALONE = 20


def find_sets(pool: AttackPool, first: Index) -> dict[str, Bool]:
    """Return the different sets of people, bool (U,) each; ``first`` (U,) is the pool row that stands for each."""
    holders, members = pool.holders[first], pool.members[first]
    sets = {EVERYBODY: np.ones(len(first), dtype=bool), RARE: holders <= _bound_rare(holders, members)}
    alone = holders == 1
    if sets[RARE].all():
        del sets[RARE]
    enough = min((alone & side).sum() for side in (members, ~members)) >= _LEAST_ALONE
    if enough and not any((alone == who).all() for who in sets.values()):
        sets[ALONE] = alone
    return sets


def _bound_rare(holders: Index, members: Bool) -> int:
    # the best of all attacks' lower limits, of two rules on three sets, can then pass a rate of 1 %
    refusing = math.ceil(math.log(0.05 / (12 * len(attacks.ALL))) / math.log(0.99))
    return bound_rare(holders, float(min(members.mean(), 1 - members.mean())), max(_LEAST_RARE, refusing))


def describe_sets(pool: AttackPool, first: Index) -> str:
    """Return on whom limits hold, one sentence; empty where everybody is alone with a record."""
    holders, members = pool.holders[first], pool.members[first]
    if (holders == 1).all():
        return ""
    most, sets = _bound_rare(holders, members), find_sets(pool, first)
    rare = f", and over people with records of {most} holders at most" if RARE in sets else ""
    some = Count(int((holders[members] == 1).sum()), int(members.sum()))
    apart = "" if ALONE in sets or most == 1 else ", too few to be looked at apart"
    all_ = int(members.sum())
    return f"limits hold over all people, ties kept{rare}; {some} of {all_} members are alone with theirs{apart}"


def join_sets(intervals: Mapping[Place, Interval]) -> tuple[Place, Interval]:
    """Return where a figure is largest, with the largest lower limit of all sets and the largest upper one of two."""
    place, worst = find_worst({k: v for k, v in intervals.items() if k[2] != ALONE})
    surest = max(intervals, key=lambda k: intervals[k].low)
    low = intervals[surest].low
    if low > worst.value:
        return surest, Interval(intervals[surest].value, low, worst.high)
    return place, Interval(worst.value, low, worst.high)
