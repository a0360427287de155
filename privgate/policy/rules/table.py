"""The rule ``table`` runs a Great Expectations suite of yours over the per-person table.

``suite`` is a JSON file beside the policy; its expectations speak about the columns of the per-person table (pdtp,
dtp_lower, dtp_upper, error, noise_floor, seeds, engine, status, label). All must be met. A row minimum and not-null on
every column named are added, because an empty table and NaN meet almost any expectation; a missing column is an error,
not a violation. The judged number is the count of expectations that are not met. Where a person's
``pdtp`` is known up to an error, or as a mean over runs, its lower and upper limits must meet the suite too.

Request: ``table(suite="<file>@sha256:<digest of its content>")``; the content comes with the policy. Expectations.

    - metric: table
      suite: units.json
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal

from pydantic import Field, NonNegativeInt

from privgate.controls import suites as expectations
from privgate.evidence import COLUMNS, BehindInfluence, Measurement
from privgate.policy.policy_part import Audit
from privgate.policy.rules import rule_reach
from privgate.policy.rules.metric import Metric
from privgate.policy.rules.rule_base import Rule
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "table",
    "Expectations on the per-person table",
    question="influence",
    reaches="0 (all expectations met) to their number",
    unit="expectations",
    worst=math.inf,
    needs=frozenset({Need.LEAVE_ONE_OUT, Need.UPPER_LIMIT, Need.EVERYBODY}),
)


class Table(Rule):
    """The per-person table must meet every expectation of a suite."""

    about = METRIC
    files = ("suite",)
    metric: Literal["table"] = "table"
    suite: str = Field(min_length=1, description="Great Expectations suite (JSON), relative to this file.")

    max: NonNegativeInt = Field(default=0, description="Expectations that may be violated.")

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name the expectations that are not met."""
        del outcome
        broken = BehindInfluence.of(measurement.behind).violated
        return f"do not hold, of {measurement.n}{': ' if broken else ''}{'; '.join(broken[:5])}"

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        known = dict(facts.get("expectations") or {}).get(self.suite)
        if known is None or self.max < known:
            return ""
        return f"its suite has {known} expectations, and {self.max} of them may be violated"

    def meaning(self, measurement: Measurement) -> str:
        """Return what the suite is about."""
        del measurement
        return f"the numbers of all people in the data were compared with the suite {self.file}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name where to look."""
        del measurement, outcome
        return "compare the suite with records.parquet in the report's folder"

    @property
    def file(self) -> str:
        """Name of the suite's file."""
        return self.suite.partition("@")[0]

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add that the worst table would pass: nobody could be retrained, and every influence is unlimited."""
        yield from super().remarks(audit, suites)
        import pandas as pd

        if not (text := suites.get(self.suite, "")):
            return
        worst: dict[str, Any] = {"unit": "u", "label": "a", "engine": "refit", "seeds": 1}
        frame = pd.DataFrame(
            [{**dict.fromkeys(COLUMNS, float("inf")), **worst, "status": s} for s in ("failed", "undefined")]
        )
        found = expectations.evaluate(expectations.parse(text, self.file), frame, file=self.file)
        if not any(e.error for _, e in found) and sum(not e.met for _, e in found) <= self.max:
            said = "a table in which every influence is unlimited and nobody was retrained meets"
            yield f"cannot refuse: {said} {self.file}"
