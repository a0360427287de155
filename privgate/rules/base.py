"""What a rule is, and the whole policy of doubt: every limit is judged against release."""

from abc import ABC, abstractmethod
from typing import Annotated, Any, ClassVar, Literal

import numpy as np
from pydantic import BaseModel, ConfigDict, Field

from privgate.evidence import Measurement, Request
from privgate.verdict import Finding, Outcome

Fraction = Annotated[float, Field(ge=0, le=1)]


class Rule(BaseModel, ABC):
    """One line of a policy: asks for a measurement and later judges it. Pure.

    Equality passes. NaN, a missing number, an interval on both sides of the limit: never a pass.
    """

    model_config = ConfigDict(extra="forbid", frozen=True, allow_inf_nan=False)

    #: plain name for the report
    title: ClassVar[str]
    #: "max" if larger is worse, "min" if smaller is worse
    direction: ClassVar[Literal["max", "min"]] = "max"

    metric: str
    id: str = Field(default="", description="Name of the rule in findings and waivers; the metric if empty.")
    mode: Literal["enforce", "warn"] = Field(default="enforce", description="A warn rule can at worst warn.")
    reason: str = Field(default="", description="Why this limit.")
    source: str = Field(default="", description="Where the limit comes from.")

    @property
    def name(self) -> str:
        """The rule's id."""
        return self.id or self.metric

    @property
    @abstractmethod
    def limit(self) -> float:
        """The number that the measurement is compared with."""

    @abstractmethod
    def request(self) -> Request:
        """Return what this rule needs to know."""

    @abstractmethod
    def meaning(self, measurement: Measurement) -> str:
        """Return what the number means for one person, in plain words."""

    def judge(self, measurement: Measurement) -> Finding:
        """Return the finding; see ``against_limit``."""
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
            outcome = Outcome.PASSED if good else (Outcome.FAILED if bad else Outcome.INCONCLUSIVE)
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
        return Finding(
            rule=self.name,
            title=self.title,
            outcome=outcome,
            message=message,
            meaning="" if measurement.problem else self.meaning(measurement),
            advice="" if outcome is Outcome.PASSED else self.advice(measurement, outcome),
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
