"""The rule ``sensitivity`` limits how far leaving one person out moves a regressor's answer. Sensitivity is not DTP.

Limit ``max`` in residual deviations: the change of the answer, divided by the root mean square of what the model misses
records by that it was trained without. 0.5 means that the change hides in half of the model's usual error; somebody who
sees the answer blurred by that error tells "with" from "without" with advantage ``2 Phi(0.25) - 1``, 20 %. Nobody is
promised such a blur: who knows all other records and sees exact answers tells any change at all.

``over: own`` asks at each person's own features, ``over: beside`` at or beside them, moved by steps that are small
against each column's spread; where one rule asks so, all rules about people are measured so. ``over: domain`` asks at
every question of the declared domain, which only a theorem can bound (least squares and ridge: the change is linear in
the question). **Passes** if the upper limit is within ``max``, **fails** if a change that was seen exceeds it, else
**inconclusive**. A policy that enforces it refuses a classifier before anything is trained.

Request: ``sensitivity(over="own" | "beside" | "domain", aggregate="max" | "quantile" | "share_above", q=…,
threshold=…)``; ``q`` only with quantile and ``threshold`` (residual deviations) only with share_above. Residual
deviations, or a fraction for share_above.

    - metric: sensitivity
      max: 0.5
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeFloat

from privgate.evidence import Measurement
from privgate.policy.rules import rule_reach
from privgate.policy.rules.leave_one_out import LeaveOneOutRule, averaged
from privgate.policy.rules.metric import Metric
from privgate.policy.rules.rule_base import WAY_OUT
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "sensitivity",
    "How far one person moves a regressor's answer",
    measured_by="influence.measures:measure_sensitivity",
    question="influence",
    reaches="0 (no influence) to infinity; residual deviations, or a share of people",
    unit="residual deviations",
    worst=math.inf,
    needs=frozenset({Need.LEAVE_ONE_OUT}),
    per_unit=True,
    columns=("moved",),
    answers=frozenset({"numbers", "noisy numbers"}),
)


class Sensitivity(LeaveOneOutRule):
    """No answer of a regressor may move far when one person is left out, measured in its own usual error."""

    about = METRIC
    metric: Literal["sensitivity"] = "sensitivity"
    max: NonNegativeFloat = Field(description="Largest value allowed; residual deviations, or a fraction.")
    threshold: NonNegativeFloat | None = Field(
        default=None, description="In residual deviations, for aggregate share_above."
    )
    over: Literal["own", "beside", "domain"] = Field(
        default="own",
        description="own: asked at each person's own features. beside: at or beside them. domain: at every declared "
        "question.",
    )

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule: so large a shift is beyond doubt even behind the error."""
        del facts
        limit = (self.threshold or 0.0) if self.aggregate == "share_above" else self.max
        if why := rule_reach.nats(limit**2 / 2):
            return f"behind normal errors a shift of {limit:g} deviations is {why}"
        return rule_reach.share_of_people(self.covers)

    @property
    def beyond(self) -> str:
        """Whose answer moves further than the threshold."""
        whose = "for whom some answer moves" if self.over == "domain" else "whose own answer moves"
        whose = "whose answer, asked at or beside their record, moves" if self.over == "beside" else whose
        return f"{whose} by over {self.threshold or 0:g} times the usual error"

    def change(self, measurement: Measurement) -> str:
        """Return the shift in the model's own errors."""
        where = "an answer to a declared question moves" if self.over == "domain" else "the answer about them moves"
        where = "the answer about them, asked at or beside their record, moves" if self.over == "beside" else where
        limit = (
            f"{self.deciding(measurement, '{:.3g}'.format)} times the model's usual error"
            if math.isfinite(measurement.high) or self.broken(measurement)
            else f"by an amount that is not limited from above; seen is {measurement.low:.3g} times the usual error"
        )
        told = f"{averaged(measurement)}{self.who(measurement)}: without them, {where} {limit}"
        return f"{told}; this is not DTP and stops no attack"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what lowers the influence of single records on numbers."""
        if outcome is Outcome.FAILED:
            return f"{WAY_OUT}; the per-person table names the records that move answers most"
        if self.over == "domain" and math.isinf(measurement.high) and not measurement.problem:
            return (
                "only least squares and ridge on a declared domain of numbers are bounded at every question: declare "
                "TrainingData(..., domain=...), or judge over: own"
            )
        return super().advice(measurement, outcome)

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that without a theorem the rule over the domain can fail but never pass."""
        if self.over == "domain" and (why := facts.get("why_no_sensitivity_bound")):
            return f"rule {self.name!r} can never approve here: {why}"
        return super().cannot_conclude(facts)
