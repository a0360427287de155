"""The rule ``artifact_records`` limits of how many records the model's file itself carries a trace of their own.

Every other rule judges what a model *answers*. Whoever can download the file reads more: training records kept by
k-nearest neighbours, support vectors and kernel methods, leaves that one record made, names in vocabularies, a row of
weights for each person, values at the ends of a scaler, arrays with one entry a record. Before anything is retrained
the stored model is opened in a worker, everything that pickling would write is walked, and compared with the training
data to the last bit; files beside the model are read as numbers and words.

Limit ``max`` is a number of records, or with ``of: share`` a share of them. **Fails** if traces of more records were
found for certain; **passes** if no more than that are even possible; what cannot be walked may carry everybody and is
**inconclusive**. Sums over several records (means, coefficients, counts of ten) are no trace: what can be computed back
from them is what ``dtp`` and attacks are about.

A policy whose ``file`` is ``not downloadable`` states that nobody who may ask the model can get its file. Then this
rule warns where it would block, and the report says that the answers were judged and the file was not.

Request: ``artifact_records(of="records" | "share")``. Records, or a fraction.

    - metric: artifact_records
      max: 0
"""

import math
from collections.abc import Mapping
from typing import Any, Literal, Self

from pydantic import Field, NonNegativeFloat, model_validator

from privgate.evidence import Measurement
from privgate.evidence.figures import percent
from privgate.policy.rules import rule_reach
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import Rule, wrong
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "artifact_records",
    "Records that the file itself carries",
    question="file",
    reaches="0 (the file carries no trace of any single record) to all records",
    unit="",
    worst=math.nan,
    needs=frozenset({Need.FILE}),
    answers=ANY_ANSWERS,
)


class ArtifactRecords(Rule):
    """The model's file may carry traces of few single records, or of none."""

    about = METRIC
    metric: Literal["artifact_records"] = "artifact_records"
    max: NonNegativeFloat = Field(description="Most records, or largest share of them; 0 is none.")
    of: Literal["records", "share"] = Field(default="records", description="What max counts.")

    @model_validator(mode="after")
    def _a_share_is_one(self) -> Self:
        if self.of == "share" and self.max > 1:
            raise wrong("max", f"{self.max:g} is no share; write it between 0 and 1, or count of: records")
        return self

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no file could break this rule: everybody may be in it."""
        people = 1 if self.of == "share" else facts.get("n_records")
        return "the file may carry everybody" if people and self.max >= people else ""

    def meaning(self, measurement: Measurement) -> str:
        """Return what whoever holds the file reads in it."""
        if math.isnan(measurement.high):
            return ""
        if not measurement.high:
            return "whoever downloads the file finds no record in it, nor anything that one record alone made"
        low, high = (percent(v) if self.of == "share" else f"{v:.0f}" for v in (measurement.low, measurement.high))
        most = f"at least {low}" if self.broken(measurement) else f"{low} for certain and at most {high}"
        span = low if low == high else most
        return f"whoever downloads the file finds traces of their own of {span} of the records in it"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what takes records out of a file."""
        del measurement
        if outcome is Outcome.FAILED:
            return (
                "ask for larger leaves (min_samples_leaf), replace neighbours and kernels by a model that keeps no "
                "records, set a minimal frequency for words and categories (min_df, min_frequency), delete arrays with "
                "one entry a record; or state in the policy that the file is not downloadable"
            )
        return "the report names what could not be walked; store the model by its library's own flavor"
