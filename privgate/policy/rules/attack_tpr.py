"""The rule ``attack_tpr`` limits how many members an attack finds while it rarely accuses anybody else.

Limit ``max`` in [0, 1] on the true-positive rate at a false-positive rate of at most ``at_fpr`` (fractions). Two
thresholds, one for blocking and one for approving; a false-positive rate that the sample cannot resolve is
inconclusive. **Blocks** if the lower limit exceeds it, **passes** if the upper limit is within it.

Request: ``attack_tpr(at_fpr=…, attack=<catalogue key> | "any", scope="model" | "class" | "group" | "record",
confidence=0.95, level=…, group=<sensitive column>)``; the last two where the policy names them. Fraction.

    - metric: attack_tpr
      at_fpr: 0.01
      max: 0.05
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field

from privgate.evidence import Measurement
from privgate.evidence.figures import percent
from privgate.policy.policy_part import Audit, Fraction, OpenFraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.membership import ATTACKED, MembershipRule
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.statistics.roc import APPROVING, least_nonmembers

METRIC = Metric(
    "attack_tpr",
    "Members found at a low rate of false accusations",
    question="membership",
    reaches="at_fpr (guessing) to 1 (all members found)",
    unit="fraction",
    worst=1.0,
    needs=ATTACKED,
    answers=ANY_ANSWERS,
    limits_attacks=True,
    figure="TPR at an FPR",
)


class AttackTpr(MembershipRule):
    """No attack may find many members at a low rate of false accusations."""

    about = METRIC
    metric: Literal["attack_tpr"] = "attack_tpr"
    at_fpr: OpenFraction = Field(description="False-positive rate allowed to the attack; a fraction, 0.01 is 1 %.")
    max: Fraction = Field(description="Largest true-positive rate allowed; guessing reaches at_fpr.")

    def meaning(self, measurement: Measurement) -> str:
        """Return the rate in people."""
        return (
            f"{self.who()}, {self.what()} finds {self.deciding(measurement, percent)} of the members while wrongly "
            f"accusing {100 * self.at_fpr:g} % of everybody else"
        )

    @property
    def least(self) -> int:
        """Candidates without which no sample resolves the false-positive rate; models resolve that of one record."""
        if self.scope == "record":
            return 0
        looks = 1 if self.level is None else len(APPROVING)
        return least_nonmembers(self.at_fpr, alpha=(1 - self.confidence) / (2 * looks))

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        if self.at_fpr >= rule_reach.BLIND_RATE:
            return (
                f"whoever may accuse {100 * self.at_fpr:g} % of outsiders at most doubles the odds of an accusation, "
                "even if every member is found"
            )
        return super().vacuous(facts)

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that the sample cannot resolve the false-positive rate, or that guessing alone is above the limit."""
        count = facts.get("candidates", 0)
        if count and count < self.least:
            return (
                f"rule {self.name!r} can never approve here: {count} candidates cannot resolve a false-positive rate "
                f"of {self.at_fpr:g} at confidence {self.confidence:g}; at least {self.least} are needed"
            )
        return super().cannot_conclude(facts)

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add what no finite sample can show."""
        yield from super().remarks(audit, suites)
        if self.max <= self.at_fpr:
            yield f"can never approve: guessing finds {self.at_fpr:g} of the members, which reaches max {self.max:g}"
        if audit.min_candidates < self.least:
            yield (
                f"a false-positive rate of {self.at_fpr:g} is resolved by {self.least} candidates or more, but "
                f"audit.min_candidates is {audit.min_candidates}: fewer are always undecided; raise it"
            )
