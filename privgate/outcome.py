"""How rules end, and what of many decides: every yes rests on this."""

from collections.abc import Iterable
from enum import StrEnum
from typing import Any


class Outcome(StrEnum):
    """How a rule, or a whole verdict, ended; ordered passed < warned < inconclusive < failed."""

    PASSED = "passed"
    WARNED = "warned"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"

    @property
    def rank(self) -> int:
        """0 for passed up to 3 for failed; larger is worse."""
        return list(Outcome).index(self)

    @property
    def releases(self) -> bool:
        """Whether a model with this outcome may be promoted."""
        return self in (Outcome.PASSED, Outcome.WARNED)


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome; nothing at all is inconclusive."""
    return max(outcomes, key=lambda o: o.rank, default=Outcome.INCONCLUSIVE)


def together(findings: Iterable[Any]) -> Outcome:
    """Return the worst outcome of ``Finding``s; where no rule was judged among them, inconclusive at best."""
    found = list(findings)
    judged = any(not f.rule.startswith("precondition:") for f in found)
    return worst([*(f.outcome for f in found), *([] if judged else [Outcome.INCONCLUSIVE])])


def approves(findings: Iterable[Any], *, observed: bool) -> bool:
    """Whether a model may be promoted on these findings."""
    return together(findings).releases and not observed
