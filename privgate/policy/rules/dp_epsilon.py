"""The rule ``dp_epsilon`` limits the differential-privacy guarantee that the recipe was observed to give.

Limit ``max`` on epsilon in nats at ``delta``. An independent accountant recomputes epsilon from the sampling, clipping,
noise and steps of a rerun; ``accept_declared_claims`` lets a claim count that nobody observed.

Request: ``dp_epsilon(delta=1e-5, accept_declared_claims=False, adjacency="add_remove" | "replace_one")``; ``adjacency``
only where the policy names one, otherwise the claim's own. ``behind.declared_only`` is true where nothing was
observed and the policy accepts that, ``behind.delta`` the delta that the guarantee really has (0 for pure ones).
Epsilon is for one person, whose records are a group where there are several. Nats.

    - metric: dp_epsilon
      max: 8
      delta: 1e-5
"""

import math
from collections.abc import Mapping
from typing import Any, Literal

import numpy as np
from pydantic import Field, PositiveFloat

from privgate.evidence import BehindClaim, Measurement
from privgate.evidence.figures import fold
from privgate.policy.policy_part import OpenFraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.guarantee import GUARANTEED, GuaranteeRule, way
from privgate.policy.rules.metric import ANY_ANSWERS, Metric

METRIC = Metric(
    "dp_epsilon",
    "Privacy claim",
    measured_by="claims.epsilon:measure_epsilon",
    question="claim",
    reaches="0 (learns nothing) to infinity (no guarantee); nats",
    unit="nats",
    answers=ANY_ANSWERS,
    worst=math.inf,
    needs=GUARANTEED,
    limits_attacks=True,
    written_as="epsilon",
)


class DpEpsilon(GuaranteeRule):
    """The guarantee must be at least this strong."""

    tightens = {"delta": "down"}  # noqa: RUF012  declared ClassVar in the base class
    about = METRIC
    metric: Literal["dp_epsilon"] = "dp_epsilon"
    max: PositiveFloat = Field(description="Largest epsilon allowed; nats.")
    delta: OpenFraction = Field(default=1e-5, description="At this delta; well below 1 / number of records.")
    adjacency: Literal["add_remove", "replace_one"] | None = Field(
        default=None, description="Which neighboring data sets the limit speaks of; the claim's own if absent."
    )

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        return super().vacuous(facts) or rule_reach.delta(self.delta, int(facts.get("n_units") or 0))

    def meaning(self, measurement: Measurement) -> str:
        """Return epsilon as a change of odds."""
        if not np.isfinite(measurement.high):
            return "no guarantee limits what one person's data can shift"
        # a guarantee may hold at a smaller delta than the policy asks for, a pure one at none
        held = BehindClaim.of(measurement.behind).delta
        delta = self.delta if held is None else held
        but = f", except with probability about {delta:g}" if delta > 0 else ""
        whose = "the guarantee lets one person's data" if self.broken(measurement) else "one person's data can"
        times = self.deciding(measurement, fold)
        return (
            f"whatever anybody else knows, {whose} shift the odds of any guess about that person {times}{but}, as far "
            f"as training reaches people's data only through {way(measurement)}"
        )
