"""What a rule is, and the whole policy of doubt: every limit is judged against release."""

from abc import ABC, abstractmethod
from collections.abc import Mapping
from dataclasses import replace
from typing import Annotated, Any, ClassVar, Literal, Self

import numpy as np
from pydantic import BaseModel, ConfigDict, Field
from pydantic_core import PydanticCustomError

from privgate.evidence import Measurement, Request
from privgate.policy.rules.reach import NOTHING
from privgate.verdict import Finding, Outcome

Fraction = Annotated[float, Field(ge=0, le=1)]
OpenFraction = Annotated[float, Field(gt=0, lt=1)]


def wrong(key: str, text: str) -> PydanticCustomError:
    """Return the error to raise in a validator that looks at several keys; ``key`` is the one to point at."""
    return PydanticCustomError("privgate", "{text}", {"key": key, "text": text})


#: words that change no judgement
_PROSE = frozenset({"id", "reason", "source"})
#: fields with two values each, (weak, strict)
_STRICTER: dict[str, tuple[Any, Any]] = {
    "mode": ("warn", "enforce"),
    "bound": ("lower", "upper"),
    "required": (False, True),
    "accept_declared_claims": (True, False),
}


class Rule(BaseModel, ABC):
    """One line of a policy: asks for a measurement and later judges it. Pure.

    Equality passes. NaN, a missing number, an interval on both sides of the limit: never a pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False, strict=True)

    #: plain name for the report
    title: ClassVar[str]
    #: "max" if larger is worse, "min" if smaller is worse
    direction: ClassVar[Literal["max", "min"]] = "max"
    #: fields, beside the limit, that a policy which extends another may raise ("up") or lower ("down");
    #: a field that is not listed belongs to the question and must stay as it is
    tightens: ClassVar[Mapping[str, Literal["up", "down"]]] = {}

    #: smallest, guessing and largest value of the metric, one phrase for people
    reaches: ClassVar[str]

    metric: str
    id: str = Field(default="", description="Name of the rule in findings and waivers; the metric if empty.")
    mode: Literal["enforce", "warn"] = Field(default="enforce", description="A warn rule can at worst warn.")
    bound: Literal["upper", "lower"] = Field(
        default="upper",
        description="upper: only a whole interval within the limit passes. lower: only a whole interval beyond the "
        "limit blocks, and doubt is a warning.",
    )
    required: bool = Field(
        default=True,
        description="false: where the measurement does not apply to a model, the rule is shown as not applicable "
        "(a warning, never a pass) instead of inconclusive.",
    )
    reason: str = Field(default="", description="Why this limit.")
    source: str = Field(default="", description="Where the limit comes from.")

    @property
    def name(self) -> str:
        """The rule's id."""
        return self.id or self.metric

    @property
    def limit(self) -> float:
        """The number that the measurement is compared with: the field that is named like the direction."""
        return float(getattr(self, self.direction))

    @abstractmethod
    def request(self) -> Request:
        """Return what this rule needs to know."""

    @abstractmethod
    def meaning(self, measurement: Measurement) -> str:
        """Return what the number means for one person, in plain words."""

    @abstractmethod
    def vacuous(self, facts: Mapping[str, Any] = NOTHING) -> str:
        """Return why no measurement could break this rule, so that it limits nobody; empty if one could.

        Parameters
        ----------
        facts : mapping
            What is known of subject and suites: ``n_units``, and ``expectations`` (suite -> how many it has).
        """

    def with_limit(self, limit: float) -> Self:
        """Return the same rule with another limit, as a waiver's ceiling needs it."""
        return self.model_copy(update={self.direction: limit})

    def judge(self, measurement: Measurement) -> Finding:
        """Return the finding; see ``against_limit``."""
        if measurement.request != self.request():
            text = f"measured was {measurement.request.key}, asked was {self.request().key}"
            return self.finding(Outcome.INCONCLUSIVE, text, measurement)
        if not self.required and measurement.detail.get("applicable") is False:
            said = f"not applicable: {measurement.problem or 'no reason given'}"
            return replace(self.finding(Outcome.WARNED, said, measurement), applies=False)
        return self.against_limit(measurement)

    def against_limit(self, measurement: Measurement) -> Finding:
        """Return PASSED iff the whole interval is good, FAILED iff all of it is bad, else INCONCLUSIVE.

        A point estimate is never conclusive by itself; ``problem`` is always inconclusive.
        """
        if measurement.problem:
            return self.finding(Outcome.INCONCLUSIVE, measurement.problem, measurement)
        low, high = measurement.low, measurement.high
        if self.direction == "min":
            good, bad = low >= self.limit, high < self.limit
        else:
            good, bad = high <= self.limit, low > self.limit
        if np.isnan(low) or np.isnan(high) or measurement.kind == "point":
            outcome = Outcome.INCONCLUSIVE
        else:
            doubt = Outcome.WARNED if self.bound == "lower" else Outcome.INCONCLUSIVE
            outcome = Outcome.PASSED if good else (Outcome.FAILED if bad else doubt)
        return self.finding(outcome, self.sentence(measurement, outcome), measurement)

    def sentence(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return measured value, interval and limit in one sentence."""
        word = {"max": "at most", "min": "at least"}[self.direction]
        unit = f" {measurement.unit}" if measurement.unit else ""
        low, high = measurement.low, measurement.high
        span = f"{low:.4g}" if low == high else f"between {low:.4g} and {high:.4g}"
        if measurement.kind == "point":
            span = f"about {measurement.value:.4g} (a point estimate, no limit can be given)"
        where = f" ({measurement.where})" if measurement.where else ""
        return f"{span}{unit}{where}; allowed is {word} {self.limit:.4g}: {outcome.value}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return what would change the outcome; empty if it passed."""
        del measurement, outcome
        return ""

    def finding(self, outcome: Outcome, message: str, measurement: Measurement) -> Finding:
        """Return a finding of this rule, its mode applied."""
        if self.mode == "warn" and outcome.rank > Outcome.WARNED.rank:
            outcome = Outcome.WARNED
        stopped = "stopped_by" in measurement.detail  # the precondition's own message says what to do
        return Finding(
            rule=self.name,
            title=self.title,
            outcome=outcome,
            message=message,
            meaning="" if measurement.problem else self.meaning(measurement),
            advice="" if outcome is Outcome.PASSED or stopped else self.advice(measurement, outcome),
            metric=self.metric,
            value=measurement.value,
            low=measurement.low,
            high=measurement.high,
            limit=self.limit,
            direction=self.direction,
            unit=measurement.unit,
            request=measurement.request.key,
            mode=self.mode,
        )

    def loosened(self, parent: "Rule") -> dict[str, str]:
        """Return ``field -> why it is not a tightening`` for all in which this rule is weaker than ``parent``."""
        if type(self) is not type(parent):
            return {
                "metric": f"is another question: the parent has {parent.metric!r}; give a new rule an id of its own"
            }
        found: dict[str, str] = {}
        for name in type(parent).model_fields:
            old, new = getattr(parent, name), getattr(self, name)
            if old == new or name in _PROSE:
                continue
            allowed = self._direction_of(name)
            if allowed == "down" and new > old:
                found[name] = f"may only be lowered: the parent has {old!r}"
            elif allowed == "up" and new < old:
                found[name] = f"may only be raised: the parent has {old!r}"
            elif isinstance(allowed, tuple) and new == allowed[0]:
                found[name] = f"may not be weakened: the parent has {old!r}"
            elif allowed is None:
                found[name] = f"is another question: the parent has {old!r}; give a new rule an id of its own"
        return found

    def judged(self) -> dict[str, Any]:
        """Return everything about the rule that changes a judgement."""
        return {k: v for k, v in self.model_dump().items() if k not in _PROSE}

    def _direction_of(self, name: str) -> str | tuple[Any, Any] | None:
        if name == self.direction:
            return "down" if self.direction == "max" else "up"
        if name == "confidence":
            # a wider interval passes less; but where only a proof blocks, it also blocks less
            return "up" if self.bound == "upper" else "down"
        return _STRICTER.get(name) or self.tightens.get(name)

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Return why this rule can never pass for such a subject, before anything is trained; empty if it can.

        Parameters
        ----------
        facts : dict
            What is known before training: ``certificates`` (names that apply), ``n_units``, ``candidates`` (count),
            ``dp`` (whether there is a claim), ``probabilities`` (whether the model gives any).
        """
        del facts
        return ""
