"""The rule ``deletion_capacity`` asks how many records can be erased before the model must be trained again.

Limit ``min`` in records. After m deletions everybody must still believe with probability at least ``rho`` that the
erased people were never in the data: m <= ln(1/rho) / ln(1 + e^eps p/(1-p)) (Thudi et al., 2022, corollary 2;
mathematical reference, section 7.3), where ``prior`` is p, the largest inclusion probability among the erased records.

Request: ``deletion_capacity(rho=…, prior=…, accept_declared_claims=False)``. Records; larger is better, so ``low`` is
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

from privgate.evidence import Measurement, Request
from privgate.rules import reach
from privgate.rules.base import OpenFraction
from privgate.rules.guarantee import GuaranteeRule


class DeletionCapacity(GuaranteeRule):
    """The model must be able to forget at least this many records without being trained again."""

    title = "Records that can be erased without retraining"
    reaches = "0 (no guarantee) to unlimited (learns nothing); records"
    direction = "min"
    metric: Literal["deletion_capacity"] = "deletion_capacity"
    min: PositiveInt = Field(description="Least number of records.")
    rho: OpenFraction = Field(description="Least probability that an erased person was never in the data.")
    prior: OpenFraction = Field(description="Largest inclusion probability among the erased records.")

    def request(self) -> Request:
        """Ask for the number of records."""
        options: dict[str, Any] = {"rho": self.rho, "prior": self.prior}
        return Request.of(self.metric, accept_declared_claims=self.accept_declared_claims, **options)

    def vacuous(self, facts: Mapping[str, Any] = reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        if self.min < 1:
            return "0 records can always be erased"
        # the weakest guarantee that still covers so many: m ln(1 + e^eps odds) = ln(1/rho)
        needed = math.expm1(-math.log(self.rho) / self.min) / (self.prior / (1 - self.prior))
        return reach.nats(math.log(needed)) if needed > 0 else ""

    def meaning(self, measurement: Measurement) -> str:
        """Return the capacity in records."""
        return (
            f"{measurement.low:.0f} records can be erased before a full retrain is due, if the requests do not depend "
            f"on membership and people are included independently, each with probability at most {self.prior:g}"
        )
