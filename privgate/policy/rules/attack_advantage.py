"""The rule ``attack_advantage`` limits an attack's true-positive rate less its false-positive rate; guessing has 0.

Limit ``max`` in [0, 1]. Advantage is 2 x balanced accuracy - 1 (Yeom et al., 2020, definition 4). **Blocks** if the
lower confidence limit exceeds it, **passes** if the upper limit is within it, else **inconclusive**.

Request: ``attack_advantage(attack=<catalogue key> | "any", scope="model" | "class" | "group" | "record",
confidence=0.95, level=…, group=<sensitive column>)``; the last two where the policy names them. Fraction.

    - metric: attack_advantage
      max: 0.2
"""

from typing import Literal

from pydantic import Field

from privgate.evidence import Measurement
from privgate.policy.policy_part import Fraction
from privgate.policy.rules.membership import ATTACKED, MembershipRule
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import points

METRIC = Metric(
    "attack_advantage",
    "Attack advantage (guessing: 0)",
    question="membership",
    reaches="0 (guessing) to 1 (all members flagged, nobody else)",
    unit="fraction",
    guessing=0.0,
    worst=1.0,
    needs=ATTACKED,
    answers=ANY_ANSWERS,
    limits_attacks=True,
    figure="TPR less FPR",
)


class AttackAdvantage(MembershipRule):
    """No attack may flag members much more often than others."""

    about = METRIC
    metric: Literal["attack_advantage"] = "attack_advantage"
    max: Fraction = Field(description="Largest TPR - FPR allowed; 0 is guessing.")

    def meaning(self, measurement: Measurement) -> str:
        """Return the advantage as percentage points."""
        return (
            f"{self.who()}, {self.what()} flags members {self.deciding(measurement, points)} more "
            "often than people who were not in the data"
        )
