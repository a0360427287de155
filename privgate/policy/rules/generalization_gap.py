"""The rule ``generalization_gap`` limits how much better the model does on its own data than on other people.

Limit ``max`` on the mean loss on candidates less the mean loss on training records. ``loss`` is ``zero_one`` (the gap
of accuracies, a fraction) or ``cross_entropy`` (nats, unbounded). With a loss in [0, 1] the gap equals the advantage of
the attack that calls records of small loss members (Yeom et al., 2020, theorem 2): a **lower bound** on the best
attack; a small gap does not mean that attacks fail (theorem 4), so this rule never stands alone for safety.

Request: ``generalization_gap(loss="zero_one" | "cross_entropy", scope="model" | "class" | "group", confidence=0.95,
group=<sensitive column>)``; ``group`` only where the policy names one. Fraction, or nats.

    - metric: generalization_gap
      max: 0.05
"""

from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from privgate.evidence import Measurement, Request
from privgate.policy.rules import reach
from privgate.policy.rules.base import Rule, wrong
from privgate.policy.rules.membership import WHO, Confidence
from privgate.verdict import Outcome


class GeneralizationGap(Rule):
    """The model may not do much better on its own data than on other people."""

    title = "Better on its own data than on other people"
    reaches = "-1 to 1 for zero_one, unlimited nats for cross_entropy; 0 where training data are treated like others"
    metric: Literal["generalization_gap"] = "generalization_gap"
    max: NonNegativeFloat = Field(description="Largest gap allowed: a fraction for zero_one, nats for cross_entropy.")
    loss: Literal["zero_one", "cross_entropy"] = Field(default="zero_one", description="Which loss the gap is of.")
    scope: Literal["model", "class", "group"] = Field(default="model", description="Over whom; the worst one counts.")
    group: str | None = Field(default=None, description="One sensitive column, for scope group; all of them if absent.")
    confidence: Confidence = Field(default=0.95, description="Of the limits that are compared with max.")

    @model_validator(mode="after")
    def _group_has_its_scope(self) -> Self:
        if self.group is not None and self.scope != "group":
            raise wrong("group", f"'group' belongs to scope 'group', not to {self.scope!r}")
        return self

    def request(self) -> Request:
        """Ask for the difference of mean losses."""
        options: dict[str, Any] = {"loss": self.loss, "scope": self.scope, "confidence": self.confidence}
        if self.group is not None:
            options["group"] = self.group
        return Request.of(self.metric, **options)

    def vacuous(self, facts: Mapping[str, Any] = reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        return reach.sureness(self.max) if self.loss == "zero_one" else reach.nats(self.max)

    def meaning(self, measurement: Measurement) -> str:
        """Return the gap in words."""
        if self.loss == "zero_one":
            gap = f"right at most {100 * measurement.high:.1f} percentage points more often"
        else:
            gap = f"better by at most {measurement.high:.3g} nats of loss"
        return (
            f"{WHO[self.scope]}, the model is {gap} on its own data than on others; a small gap is no proof of safety"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what would settle or lower the gap."""
        if measurement.problem:
            return "pass candidates=(X, y), people from the same population who were not trained on; see the message"
        if outcome is Outcome.FAILED:
            return "regularize, stop earlier or use more data; then check again"
        return "more candidates narrow the interval"

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that without other people there is no gap to measure."""
        if facts.get("candidates", 0) > 0:
            return ""
        return (
            f"rule {self.name!r} can never pass here: there are no candidates to compare with; pass "
            "TrainingData(..., candidates=(X, y)), people from the same population who were not trained on"
        )
