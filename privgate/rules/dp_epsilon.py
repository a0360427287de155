"""The rule ``dp_epsilon`` limits the differential-privacy guarantee that the recipe was observed to give.

Limit ``max`` on epsilon in nats at ``delta``. An independent accountant recomputes epsilon from the sampling, clipping,
noise and steps of a rerun; ``accept_declared_claims`` lets a claim count that nobody observed.

Request: ``dp_epsilon(delta=1e-5, accept_declared_claims=False, adjacency="add_remove" | "replace_one")``; ``adjacency``
only where the policy names one, otherwise the claim's own. ``detail["declared_only"]`` is true where nothing was
observed and the policy accepts that. Nats.

    - metric: dp_epsilon
      max: 8
      delta: 1e-5
"""

from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from privgate.evidence import Measurement, Request
from privgate.rules.base import OpenFraction
from privgate.rules.guarantee import GuaranteeRule, way


class DpEpsilon(GuaranteeRule):
    """The guarantee must be at least this strong."""

    tightens = {"delta": "down"}  # noqa: RUF012  declared ClassVar in the base class
    title = "Differential-privacy guarantee"
    metric: Literal["dp_epsilon"] = "dp_epsilon"
    max: PositiveFloat = Field(description="Largest epsilon allowed; nats.")
    delta: OpenFraction = Field(default=1e-5, description="At this delta; well below 1 / number of records.")
    adjacency: Literal["add_remove", "replace_one"] | None = Field(
        default=None, description="Which neighboring data sets the limit speaks of; the claim's own if absent."
    )

    def request(self) -> Request:
        """Ask for the recomputed epsilon."""
        options: dict[str, Any] = {"delta": self.delta, "accept_declared_claims": self.accept_declared_claims}
        if self.adjacency is not None:
            options["adjacency"] = self.adjacency
        return Request.of(self.metric, **options)

    def meaning(self, measurement: Measurement) -> str:
        """Return epsilon as a change of odds."""
        if not np.isfinite(measurement.high):
            return "no guarantee limits what one record can shift"
        return (
            f"whatever anybody else knows, one record can shift the odds of any guess about it at most "
            f"{np.exp(min(measurement.high, 700)):.3g}-fold, except with probability about {self.delta:g}, "
            f"as far as training reaches its records only through {way(measurement)}"
        )
