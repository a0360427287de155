"""The rule ``deletion_capacity`` asks how many people can be erased before the model must be trained again.

Limit ``min`` in people, each with all records. After m deletions everybody must still believe with probability at least
``rho`` that the erased people were never in the data: m <= ln(1/rho) / ln(1 + e^eps p/(1-p)) (Thudi et al., 2022,
corollary 2; docs/mathematics.md, section 7.3), where ``prior`` is p, the largest inclusion probability among
the erased people.

Request: ``deletion_capacity(rho=…, prior=…, accept_declared_claims=False)``. People; larger is better, so ``low`` is
what counts.

    - metric: deletion_capacity
      min: 10
      rho: 0.9
      prior: 0.01
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, PositiveInt

from privgate.evidence import BehindClaim, Measurement
from privgate.policy.policy_part import OpenFraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.guarantee import GUARANTEED, GuaranteeRule
from privgate.policy.rules.metric import Metric

METRIC = Metric(
    "deletion_capacity",
    "People who can be erased without retraining",
    question="influence",
    reaches="0 (no guarantee) to unlimited (learns nothing); people",
    unit="people",
    direction="min",
    worst=0.0,
    needs=GUARANTEED,
)


class DeletionCapacity(GuaranteeRule):
    """The model must be able to forget at least this many people without being trained again."""

    about = METRIC
    metric: Literal["deletion_capacity"] = "deletion_capacity"
    min: PositiveInt = Field(description="Least number of people.")
    rho: OpenFraction = Field(description="Least probability that an erased person was never in the data.")
    prior: OpenFraction = Field(description="Largest inclusion probability among the erased people.")

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        if self.min < 1:
            return "erasing nobody is always possible"
        # the weakest guarantee that still covers so many: m ln(1 + e^eps odds) = ln(1/rho)
        needed = math.expm1(-math.log(self.rho) / self.min) / (self.prior / (1 - self.prior))
        return rule_reach.nats(math.log(needed)) if needed > 0 else ""

    def meaning(self, measurement: Measurement) -> str:
        """Return the capacity in people, with its prior and its exception."""
        return (
            f"{measurement.low:.0f} people, each used with probability at most {self.prior:g}, can be erased before a "
            f"full retrain is due{self._exception(measurement)}, if requests do not depend on membership or model and "
            "people are included independently"
        )

    @staticmethod
    def _exception(measurement: Measurement) -> str:
        failure = BehindClaim.of(measurement.behind).failure
        return f" (except with probability {failure:g})" if failure else ""
