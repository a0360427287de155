"""The rule ``pdtp`` limits how much the answer about a person depends on that person's own record.

Limit ``max`` in nats. The paper's practice where no certificate exists (Long et al., 2017, section 5): only the
questions at the units' own features are judged, so an approval reads "approved for direct queries only" and carries no
DTP level.

With ``over: beside`` each person is asked about at the own record and beside it: moved by steps that are small against
each column's spread. Some models answer at exactly a training record as if it was not there. Where one rule of a policy
asks so, the others about people are measured on the same questions, which can only tell more.

Where training draws, the figure is about this code at this seed: the registered model's own pair. Above the limit is
never met later; five other seeds refuse, or leave it open. A recipe without a recorded seed is judged on the mean over
runs.

Request: ``pdtp(over="own" | "beside", aggregate="max" | "quantile" | "share_above", q=…, threshold=…, sample=…)``;
``q`` only with quantile, ``threshold`` (nats) only with share_above, ``sample`` (random people who are enough) with
either, ``up_to`` (people to go on to, once, where the sample leaves ``limit`` open) with share_above. ``low`` and
``high`` are the aggregate less and plus its error; nats, or a fraction for share_above.

    - metric: pdtp
      max: 1.0
"""

import math
from typing import Literal

import numpy as np
from pydantic import Field

from privgate.evidence import Measurement
from privgate.policy.rules.leave_one_out import REACHES, LeaveOneOutRule, averaged, folds, own_pair
from privgate.policy.rules.metric import Metric
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "pdtp",
    "Influence of one person on the answer about that person",
    measured_by="influence.measures:measure_pdtp",
    question="influence",
    reaches=REACHES,
    unit="nats",
    worst=math.inf,
    needs=frozenset({Need.LEAVE_ONE_OUT}),
    per_unit=True,
    answers=frozenset({"probabilities", "noisy numbers"}),  # a regressor's answers have a density where noise is added
    columns=("pdtp",),
)


class Pdtp(LeaveOneOutRule):
    """The answer about a person may not depend much on that person's own record; direct queries only."""

    about = METRIC
    metric: Literal["pdtp"] = "pdtp"
    over: Literal["own", "beside"] | None = Field(
        default=None, description="own: asked at each person's own features. beside: asked at or beside them."
    )

    @property
    def beyond(self) -> str:
        """Whose answer about themselves changes more than the threshold."""
        own = "whose answer, asked at or beside their record," if self.over == "beside" else "whose own answer"
        return f"{own} changes more than {folds(self.threshold or 0)}"

    def change(self, measurement: Measurement) -> str:
        """Return the change of probability as a factor, and over what it is averaged."""
        if not np.isfinite(measurement.high) and not self.broken(measurement):
            bound = f"by an amount that is not limited from above; seen is {folds(measurement.low)}"
        else:
            bound = self.deciding(measurement, folds)
        told = f"{averaged(measurement)}{self.who(measurement)}: without this person"
        return (
            f"{told}, the probability of an answer about this person{self._asked_at} changes {bound}; other questions "
            f"were not judged{own_pair(measurement)}"
        )

    @property
    def _asked_at(self) -> str:
        return ", asked at or beside the record," if self.over == "beside" else ""

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Add that only direct queries were judged."""
        only = "questions at or beside the record" if self.over == "beside" else "direct queries"
        more = [f"approved for {only} only"] if outcome is Outcome.PASSED else []
        return "; ".join(filter(None, [super().remark(measurement, outcome), *more]))
