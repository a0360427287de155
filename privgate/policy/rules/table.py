"""The rule ``table`` runs a Great Expectations suite of yours over the per-unit table.

``suite`` is a JSON file beside the policy; its expectations speak about the columns of the per-unit table (pdtp,
dtp_lower, dtp_upper, error, noise_floor, seeds, engine, status, label). All must be met. A row minimum and not-null on
every column named are added, because an empty table and NaN meet almost any expectation; a missing column is an error,
not a violation. The judged number is the count of expectations that are not met. Where a person's
``pdtp`` is known up to an error, or as a mean over paired seeds, its lower and upper limits must meet the suite too.

Request: ``table(suite="<file>@sha256:<digest of its content>")``; the content comes with the policy. Expectations.

    - metric: table
      suite: units.json
"""

from collections.abc import Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt

from privgate.evidence import Measurement, Request
from privgate.policy.rules import reach
from privgate.policy.rules.base import Rule
from privgate.verdict import Outcome


class Table(Rule):
    """The per-unit table must meet every expectation of a suite."""

    title = "Expectations on the per-unit table"
    reaches = "0 (all expectations met) to their number"
    metric: Literal["table"] = "table"
    suite: str = Field(min_length=1, description="Great Expectations suite (JSON), relative to this file.")

    max: NonNegativeInt = Field(default=0, description="Expectations that may be violated.")

    def request(self) -> Request:
        """Ask how many expectations are violated."""
        return Request.of(self.metric, suite=self.suite)

    def sentence(self, measurement: Measurement, outcome: Outcome) -> str:
        """Return how many expectations of how many are met."""
        broken = measurement.detail.get("violated", [])
        names = f" ({'; '.join(str(v) for v in broken[:5])})" if broken else ""
        low, high = measurement.low, measurement.high
        count = f"{high:.0f}" if low == high else f"between {low:.0f} and {high:.0f}"
        return f"{count} of {measurement.n} expectations are not met{names}: {outcome.value}"

    def vacuous(self, facts: Mapping[str, Any] = reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        known = dict(facts.get("expectations") or {}).get(self.suite)
        if known is None or self.max < known:
            return ""
        return f"its suite has {known} expectations, and {self.max} of them may be violated"

    def meaning(self, measurement: Measurement) -> str:
        """Return what the suite is about."""
        del measurement
        return f"the numbers of all people in the data were compared with the suite {self.suite.partition('@')[0]}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name where to look."""
        del measurement, outcome
        return "compare the suite with records.parquet in the report's folder"
