"""The rule ``attribute_advantage`` limits how much oftener a sensitive feature of members is guessed than of others.

Limit ``max`` in [0, 1] on the share of members whose feature an adversary guesses, who knows all other features and the
target, less the same share of people outside (Yeom et al., 2020, definition 5): what the model tells of its members
*beyond* what it tells of everybody. Adversaries 4, 6 and 7 of that paper try every feature in ``sensitive=``; of a
classifier, inversion reads every label's confidence. **Blocks** if the lower confidence limit exceeds the limit,
**passes** if the upper limit is within it, else **inconclusive**. What is guessed without the model stands beside it.

Request: ``attribute_advantage(attribute=<sensitive column>, confidence=0.95)``; ``attribute`` only where the policy
names one. Fraction.

    - metric: attribute_advantage
      max: 0.2
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from privgate.evidence import Measurement
from privgate.policy.policy_part import Audit, Fraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.membership import Confidence, unsure
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import WAY_OUT, Rule, points
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "attribute_advantage",
    "A sensitive feature guessed oftener of members (no difference: 0)",
    reaches="0 (members' features are guessed as often as others') to 1 (all of members, none of others)",
    unit="fraction",
    guessing=0.0,
    worst=1.0,
    needs=frozenset({Need.CANDIDATES}),
    answers=ANY_ANSWERS,
)


class AttributeAdvantage(Rule):
    """A sensitive feature may not be guessed much oftener of members than of other people."""

    about = METRIC
    metric: Literal["attribute_advantage"] = "attribute_advantage"
    max: Fraction = Field(description="Largest difference of the two shares allowed; 0 is none.")
    attribute: str | None = Field(default=None, description="One sensitive column; all of them if absent.")
    confidence: Confidence = Field(default=0.95, description="Of the limits that are compared with max.")

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        return rule_reach.sureness(self.max)

    def meaning(self, measurement: Measurement) -> str:
        """Return the difference as percentage points."""
        what = "any sensitive feature" if self.attribute is None else f"{self.attribute!r}"
        return (
            f"who knows everything else about somebody guesses {what} {self.deciding(measurement, points)} "
            "oftener if that person was in the data; what the model tells about everybody is not counted"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what would settle or lower the number."""
        if measurement.problem:
            return (
                "pass sensitive=(column, …) and candidates=(X, y), people from the same population who were not "
                "trained on"
            )
        if outcome is Outcome.FAILED:
            return WAY_OUT
        return "more candidates narrow the interval"

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that without a sensitive feature there is nothing to infer."""
        if "sensitive" in facts and not facts["sensitive"]:
            return f"rule {self.name!r} can never approve here: no feature is sensitive; pass sensitive=(column, …)"
        return super().cannot_conclude(facts)

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add what a confidence and a limit cannot do."""
        yield from super().remarks(audit, suites)
        yield from unsure(self.confidence)
        if self.limit == self.about.guessing:
            yield "can never approve: the upper confidence limit lies above the difference seen"
