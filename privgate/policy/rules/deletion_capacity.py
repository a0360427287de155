"""The rule ``deletion_capacity`` asks how many people can be erased before the model must be trained again.

Limit ``min`` in people, each with all records. Two questions:

With ``epsilon`` and ``delta`` (Sekhari et al., 2021; docs/mathematics.md, section 7.3a): after ``min`` deletions the
model is still (epsilon, delta)-close to one that was trained without these people. Nothing is assumed about who was
drawn.

With ``rho`` and ``prior`` (Thudi et al., 2022, corollary 2; section 7.3): everybody must still believe with probability
at least ``rho`` that the erased people were never used. ``prior`` is the largest probability with which they were. It
counts only where the recipe is seen to draw its training set with at most that probability.

Request: ``deletion_capacity(epsilon=…, delta=…, accept_declared_claims=False)``, or with ``rho`` and ``prior``. People;
larger is better, so ``low`` is what counts.

    - metric: deletion_capacity
      min: 5
      epsilon: 4
      delta: 1.0e-5
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, PositiveFloat, PositiveInt, model_validator

from privgate.evidence import BehindClaim, Measurement
from privgate.policy.policy_part import OpenFraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.guarantee import GUARANTEED, GuaranteeRule
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import wrong

METRIC = Metric(
    "deletion_capacity",
    "People who can be erased without retraining",
    measured_by="claims.capacity:count_deletions",
    question="claim",
    reaches="0 (no guarantee) to unlimited (learns nothing); people",
    unit="people",
    direction="min",
    answers=ANY_ANSWERS,
    worst=0.0,
    needs=GUARANTEED,
)


class DeletionCapacity(GuaranteeRule):
    """The model must be able to forget at least this many people without being trained again."""

    about = METRIC
    metric: Literal["deletion_capacity"] = "deletion_capacity"
    min: PositiveInt = Field(description="Least number of people.")
    epsilon: PositiveFloat | None = Field(
        default=None, description="How close the model is to one trained without the erased people; nats."
    )
    delta: OpenFraction | None = Field(default=None, description="At this delta; well below 1 / number of records.")
    rho: OpenFraction | None = Field(
        default=None, description="Least probability that an erased person was never in the data."
    )
    prior: OpenFraction | None = Field(
        default=None,
        description="Largest inclusion probability among the erased people.",
    )

    @model_validator(mode="after")
    def _one_question(self) -> Self:
        given = {name for name in ("epsilon", "delta", "rho", "prior") if getattr(self, name) is not None}
        if given not in ({"epsilon", "delta"}, {"rho", "prior"}):
            raise wrong(
                next(iter(sorted(given)), "min"),
                "deletion_capacity needs 'epsilon' and 'delta' (no prior), or 'rho' and 'prior' (a drawn training set)",
            )
        return self

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        if self.min < 1:
            return "no capacity is below 0"
        if self.epsilon is not None and self.delta is not None:
            # the weakest guarantee that still covers so many
            return rule_reach.nats(self.epsilon / self.min) or rule_reach.delta(
                self.delta, int(facts.get("n_units") or 0)
            )
        # m ln(1 + e^eps odds) = ln(1/rho)
        rho, prior = self.rho or 0.5, self.prior or 0.5
        needed = math.expm1(-math.log(rho) / self.min) / (prior / (1 - prior))
        return rule_reach.nats(math.log(needed)) if needed > 0 else ""

    def meaning(self, measurement: Measurement) -> str:
        """Return the capacity in people, with what was stated and its exception."""
        if self.prior is None:
            return (
                f"after {measurement.low:.0f} people are erased, the model is within epsilon {self.epsilon:g} at delta "
                f"{self.delta:g} of one that never saw them, if requests do not depend on the model"
            )
        return (
            f"{measurement.low:.0f} people can be erased before a full retrain is due, at the stated rho {self.rho:g} "
            f"and the stated prior {self.prior:g}, with which the recipe draws its training set"
            f"{self._exception(measurement)}, if requests do not depend on membership or model"
        )

    @staticmethod
    def _exception(measurement: Measurement) -> str:
        failure = BehindClaim.of(measurement.behind).failure
        return f" (except with probability {failure:g})" if failure else ""
