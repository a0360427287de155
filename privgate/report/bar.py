"""The one bar of page one: what was measured beside what is allowed, for the finding that decided."""

import math
from collections.abc import Iterable
from dataclasses import dataclass

from privgate.report import words
from privgate.report.sentences import say
from privgate.verdict import Finding


@dataclass(frozen=True, slots=True)
class Bar:
    """Places on a bar from 0 to 1000, and the same in words.

    Parameters
    ----------
    title, measured, allowed : str
        In words: whose figure, the figure, the limit.
    low, high, limit : int
        Where the figure's interval begins and ends, and where the limit stands.
    unlimited : bool
        The interval has no end: the bar runs off its scale.
    """

    title: str
    measured: str
    allowed: str
    low: int
    high: int
    limit: int
    unlimited: bool

    @property
    def sentence(self) -> str:
        """Return what the bar shows, for those who do not see it."""
        return say("measured_allowed", title=self.title, measured=self.measured, allowed=self.allowed)


def bar(findings: Iterable[Finding], title: str = "") -> Bar | None:
    """Return the bar of the first finding that has a finite limit and was measured; None without one."""
    for f in findings:
        if math.isfinite(f.limit) and not math.isnan(f.value) and not words.is_condition(f):
            return _bar(f, title or words.title(f))
    return None


def _bar(f: Finding, title: str) -> Bar:
    low, high = (f.value if math.isnan(v) else v for v in (f.low, f.high))
    ends = [abs(v) for v in (low, high, f.limit) if math.isfinite(v)]
    right = 1.25 * max(ends) or 1.0
    if f.unit == "fraction":
        right = min(1.0, right)
    place = [round(1000 * min(max(v, 0.0) / right, 1.0)) for v in (low, high, f.limit)]
    return Bar(title, words.measured(f), words.limit(f), place[0], place[1], place[2], math.isinf(high))
