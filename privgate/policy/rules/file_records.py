"""The rule ``file_records`` limits how many records of the training data stand in the model's file.

Whoever can download the file reads more than answers. Before anything is trained or opened the stored files are read as
bytes, and nothing of them is run: pickles, joblib, skops, boosters, archives of torch. Records are found
as they are, in fewer bits, scaled as usual scalers do, permuted, turned, packed or written as text. Models that are
their data (neighbours, kernels, in-context tables) are named.

Limit ``max`` is a number of records. **Fails** if more were found; **passes** if no more were found in what could be
read, which is never certain. With ``bound: upper`` what may hold one row a record leaves it **undecided**; fewer bytes
that nobody could read are a **warning**. With ``bound: lower`` both are.

Whoever runs a check may state that the file is not downloadable. Then this rule warns where it would block, and a guard
accepts that only if its own table says the same.

    - metric: file_records
      max: 0
"""

import math
from typing import Literal

from pydantic import Field, NonNegativeInt

from privgate.evidence import Measurement
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import STEPS, Facts, Rule
from privgate.run.needs import Need

METRIC = Metric(
    "file_records",
    "Training records in the file",
    measured_by="file.measure:count_records",
    question="file",
    reaches="0 (none was found) to all records",
    unit="",
    worst=math.nan,
    needs=frozenset({Need.LOOKED}),
    answers=ANY_ANSWERS,
)
_WITHOUT_CODE = "log the model without that file among its code_paths"


class FileRecords(Rule):
    """The model's file may hold no records of the training data, or few."""

    about = METRIC
    metric: Literal["file_records"] = "file_records"
    max: NonNegativeInt = Field(description="Most records.")
    bound: Literal["upper", "lower"] = Field(
        default="lower",
        description="lower: records that were found refuse, what could not be read is a warning. upper: what may hold "
        "one row a record is undecided.",
    )

    def vacuous(self, facts: Facts) -> str:
        return "the file may hold everybody" if 0 < (facts.get("n_records") or 0) <= self.max else ""

    def against_limit(self, measurement: Measurement) -> Finding:
        """Return the finding; unread bytes, too few for a row of each record, are a warning."""
        finding = super().against_limit(measurement)
        if finding.outcome is Outcome.INCONCLUSIVE and measurement.low <= self.limit < measurement.high < measurement.n:
            return self.finding(Outcome.WARNED, self.sentence(measurement.shown, Outcome.WARNED), measurement)
        return finding

    def sentence(self, measurement: Measurement, outcome: Outcome) -> str:
        if measurement.low or measurement.kind != "search":
            return super().sentence(measurement, outcome)
        none = f"none found in what could be read ({measurement.assumptions[0]}); at most {self.max} is allowed"
        more = f" (may hold records: {measurement.where})" if measurement.high else ""
        return f"{none}: {outcome.word}{more}"

    def meaning(self, measurement: Measurement) -> str:
        if math.isnan(measurement.high) or math.isnan(measurement.low):
            return ""
        if measurement.low:
            least = math.ceil(measurement.low)
            return f"whoever downloads the file reads at least {least} records of the training data in it"
        if measurement.high:
            return "no record was found in the file, but a part of it may hold some"
        return "no record was found in the file; that there is none is not certain"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        if outcome is Outcome.FAILED or self.broken(measurement):  # a rule that only warns warns of the same
            steps = ["log the model with another, invented input_example"] * ("input_example" in measurement.where)
            steps += ["store the pipeline without its fitted sampler"] * ("sampler" in measurement.where)
            steps += [_WITHOUT_CODE] * ("file code/" in measurement.where)
            if not steps or measurement.where.count("keeps its") > measurement.where.count("sampler"):
                steps += [STEPS["file"]]
            return "; ".join(steps)
        step = "store weights as torch's state_dict or scikit-learn's estimator, without what the message names"
        if "one row a record" in measurement.where:
            step = "leave that part out, or give a layer of weights another width than there are records"
        step = _WITHOUT_CODE if "file code/" in measurement.where else step
        return f"{step}; or the operator states that the file is not downloadable"
