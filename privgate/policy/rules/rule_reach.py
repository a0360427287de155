"""What a metric can reach, and from where on a limit limits nobody: a rule that nothing can break is no rule.

A limit leaves somebody who guesses a certain sureness: odds of e^nats to one, or an accuracy, or a share of members
found beyond doubt. If that is enough to pick one person out of everybody alive, or if it is all that the metric can
reach, the rule **cannot fail**: it stands in the report, marked, and counts for nothing. Each function says why, or
returns an empty text.
"""

import math
from collections.abc import Mapping
from types import MappingProxyType
from typing import Any

#: people alive, rounded down: nobody can be one of more
PEOPLE = 8.0e9
#: a change of odds by this much turns one in all people alive into an even chance; nats (22.8)
NATS = math.log(PEOPLE)
#: a false-positive rate that multiplies the odds of an accusation at most twofold, even if every member is found
BLIND_RATE = 0.5
#: a delta at which everything about everybody may be published half of the time
HOPELESS_DELTA = 0.5
#: nothing is known of the subject
NOTHING: Mapping[str, Any] = MappingProxyType({})


def nats(limit: float) -> str:
    """Return why a limit on a change of odds or probability limits nobody."""
    if limit < NATS:
        return ""
    return f"a change of {limit:g} nats turns one in all people alive ({NATS:.1f} nats) into an even chance"


def sureness(limit: float, most: float = 1.0) -> str:
    """Return why a limit on an accuracy, rate or advantage, which is ``most`` at most, limits nobody."""
    if limit >= most:
        return f"{most:g} is the most that can be reached at all"
    return "" if most - limit >= 1 / PEOPLE else f"{limit:.12g} is {most:g} but for less than one in all people alive"


def share_of_people(covered: float) -> str:
    """Return why a rule that covers less than half of the people protects too few."""
    if covered >= 0.5:
        return ""
    return f"it limits {100 * covered:.3g} % of the people and leaves the other {100 * (1 - covered):.3g} % without any"


def delta(value: float, people: int = 0) -> str:
    """Return why a delta lets anything happen among so many people; 0 if their number is unknown.

    Publishing one random person's record breaks no (0, 1/n) guarantee, and publishing everything with probability
    delta no (0, delta) guarantee.
    """
    if value >= HOPELESS_DELTA:
        return f"with delta {value:g} all data may be published with that probability"
    if people and value * people >= 1:
        return f"with delta {value:g} one of {people} people may be published whole; delta must be below 1/{people}"
    return ""
