"""The rule ``attack_accuracy`` limits how often a membership attack guesses right, where guessing alone gives 0.5.

Limit ``max`` in [0.5, 1], the balanced accuracy (TPR + TNR) / 2. **Blocks** if the lower confidence limit exceeds it
(Holm over all that was searched), **passes** if the upper limit is within it, else **inconclusive**.

Request: ``attack_accuracy(attack=<catalogue key> | "any", scope="model" | "class" | "group" | "record",
confidence=0.95, level=…, group=<sensitive column>)``; the last two where the policy names them. Fraction.

    - metric: attack_accuracy
      max: 0.6
      attack: any
      scope: model
"""

from typing import Annotated, Literal

from pydantic import Field

from privgate.evidence import Measurement
from privgate.evidence.figures import percent
from privgate.policy.rules.membership import ATTACKED, MembershipRule
from privgate.policy.rules.metric import ANY_ANSWERS, Metric

METRIC = Metric(
    "attack_accuracy",
    "Attack accuracy (guessing: 50 %)",
    question="membership",
    reaches="0.5 (guessing) to 1 (always right)",
    unit="fraction",
    guessing=0.5,
    worst=1.0,
    needs=ATTACKED,
    answers=ANY_ANSWERS,
    limits_attacks=True,
    figure="balanced accuracy",
)


class AttackAccuracy(MembershipRule):
    """No attack may be right much more often than guessing."""

    about = METRIC
    metric: Literal["attack_accuracy"] = "attack_accuracy"
    max: Annotated[float, Field(ge=0.5, le=1)] = Field(
        description="Largest balanced accuracy allowed; 0.5 is guessing."
    )

    def meaning(self, measurement: Measurement) -> str:
        """Return the accuracy as a percentage of right guesses."""
        return (
            f"{self.who()}, {self.what()} tells members from others in {self.deciding(measurement, percent)} of "
            "cases; tossing a coin is right in 50 %"
        )
