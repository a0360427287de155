"""The rule ``robust_advantage`` limits what the distance to the nearest wrong answer tells about membership.

Training against perturbations moves the boundary away from training records. Where that does not generalize, a person
whose record the model is wrong about only far away was probably in the data (Yeom et al., 2020, section 6). Measured
are their Adversary 8, which calls members whom the model is right about within a ``radius`` (largest change of one
feature; that which tells most of a shadow model if absent), and their Adversary 9, which weighs the distances in three
norms as one shadow model's members and others have them. The advantage of Adversary 8 is the **robust generalization
error** where the search finds every wrong answer (theorem 8).

Distances are exact for linear models and single trees, by projected gradient descent for networks of torch, and along
random directions for anything else. The adversary has the model; a third of the candidates train its shadow model.
``max`` limits the larger advantage, 0 to 1, guessing 0: an approval needs the whole interval below. It is a lower bound
on the best attack.

Request: ``robust_advantage(radius=<number>, confidence=0.95)``; ``radius`` only where the policy names one. Fraction.

    - metric: robust_advantage
      max: 0.2
"""

from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, PositiveFloat

from privgate.evidence import Measurement
from privgate.policy.policy_part import Audit, Fraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.membership import Confidence, unsure
from privgate.policy.rules.metric import Metric
from privgate.policy.rules.rule_base import Rule, points
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "robust_advantage",
    "Members told by how far the nearest wrong answer is",
    reaches="0 (members' records lie no farther from a wrong answer than others') to 1 (all of them, none of others)",
    unit="fraction",
    guessing=0.0,
    worst=1.0,
    needs=frozenset({Need.CANDIDATES}),
)


class RobustAdvantage(Rule):
    """Members may not be told from others by the distance to the nearest wrong answer."""

    about = METRIC
    metric: Literal["robust_advantage"] = "robust_advantage"
    max: Fraction = Field(description="Largest advantage allowed; 0 is none.")
    radius: PositiveFloat | None = Field(
        default=None, description="Adversary 8: change of every feature at once that answers must stand."
    )
    confidence: Confidence = Field(default=0.95, description="Of the limits that are compared with max.")

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        return rule_reach.sureness(self.max)

    def meaning(self, measurement: Measurement) -> str:
        """Return the advantage as percentage points."""
        return (
            "who has the model and somebody's record, and looks how far the nearest wrong answer is, calls members "
            f"{self.deciding(measurement, points)} more of the training people than of others"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what would settle or lower the number."""
        if measurement.problem:
            return "pass candidates=(X, y), people from the same population who were not trained on"
        if outcome is Outcome.FAILED:
            return "train against smaller perturbations, regularize, or stop earlier; then check again"
        return "more candidates narrow the interval"

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add what a confidence and a limit cannot do."""
        yield from super().remarks(audit, suites)
        yield from unsure(self.confidence)
        if self.limit == self.about.guessing:
            yield "can never approve: the upper confidence limit lies above the advantage seen"
