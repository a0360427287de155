"""Candidates as they were measured: risk and usefulness of each, and which of them nobody beats in both."""

import math
from collections.abc import Sequence
from typing import Literal, Self

from pydantic import BaseModel, ConfigDict, model_validator

from privgate.advice.change import Change
from privgate.evidence import Number
from privgate.version import __version__


class Point(BaseModel):
    """One candidate.

    Parameters
    ----------
    number : int
        What ``privgate apply`` calls it; 0 is the model as it stands.
    change : Change
    outcome : str
        Of the search; says nothing final.
    rule, value, limit, unit, of_limit, why
        See ``probe.Risk``.
    useful, useful_error : float
        Cross-validated measure and its standard error; larger is better; NaN where it was not needed or failed.
    trainings : int
        What it took.
    seconds : float
        Wall time.
    recipe, data : str
        Digests of what was measured; empty where nothing could be made.
    confirmed : str
        Outcome of a whole check with other randomness; empty where none was made.
    confirmed_value : float
        The same rule's number there: what searching flattered is the difference.
    confirmed_useful : float
        Usefulness on other folds than those that the candidate was chosen by.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    number: int
    change: Change
    outcome: Literal["passed", "warned", "inconclusive", "failed"]
    rule: str = ""
    value: Number = math.nan
    limit: Number = math.nan
    unit: str = ""
    of_limit: Number = math.nan
    why: str = ""
    useful: Number = math.nan
    useful_error: Number = math.nan
    trainings: int = 0
    seconds: float = 0.0
    recipe: str = ""
    data: str = ""
    confirmed: str = ""
    confirmed_value: Number = math.nan
    confirmed_useful: Number = math.nan

    @property
    def passes(self) -> bool:
        """Whether the search found every rule kept."""
        return self.outcome in ("passed", "warned")

    @property
    def stands(self) -> bool:
        """Whether a whole check with other randomness agreed."""
        return self.passes and self.confirmed in ("passed", "warned")


class Tried(BaseModel):
    """What was tried for one subject under one policy.

    Parameters
    ----------
    uri : str
        The model version; empty for a local subject.
    policy, policy_digest : str
    recipe, data : str
        Digests of what the search started from.
    measure : str
        Of usefulness.
    points : tuple of Point
        The first is the model as it stands.
    left : tuple of str
        What was not tried, and why.
    """

    model_config = ConfigDict(frozen=True, extra="forbid")

    schema_: Literal["privgate/advice/v1"] = "privgate/advice/v1"
    version: str = __version__
    uri: str
    policy: str
    policy_digest: str
    recipe: str
    data: str
    measure: str
    points: tuple[Point, ...]
    left: tuple[str, ...] = ()

    @model_validator(mode="after")
    def _numbered(self) -> Self:
        if [p.number for p in self.points] != list(range(len(self.points))) or not self.points:
            raise ValueError("candidates are numbered from 0, the model as it stands, and each once")
        return self

    @property
    def best(self) -> tuple[Point, ...]:
        """Candidates that pass, a whole check agreeing, the most useful first, and no gaming among them."""
        good = [p for p in self.points[1:] if p.stands and not p.change.games]
        return tuple(sorted(good, key=lambda p: (-_finite(p.useful, -math.inf), p.of_limit)))


def front(points: Sequence[Point]) -> list[Point]:
    """Return the points that no other beats in risk and usefulness at once, the least risky first."""
    known = [p for p in points if not math.isnan(p.of_limit) and not math.isnan(p.useful)]
    found: list[Point] = []
    for p in sorted(known, key=lambda p: (p.of_limit, -p.useful)):
        if not found or p.useful > found[-1].useful:
            found.append(p)
    return found


def _finite(value: float, otherwise: float) -> float:
    return value if math.isfinite(value) else otherwise
