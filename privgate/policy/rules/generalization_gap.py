"""The rule ``generalization_gap`` limits how much better the model does on its own data than on other people.

Limit ``max`` on the mean loss on candidates less the mean loss on training records. ``loss`` is ``zero_one`` (the gap
of accuracies, a fraction) or ``cross_entropy`` (nats, unbounded). With a loss in [0, 1] the gap equals the advantage of
the attack that calls records of small loss members (Yeom et al., 2020, theorem 2): a **lower bound** on the best
attack; a small gap does not mean that attacks fail (theorem 4), so this rule never stands alone for safety.

Request: ``generalization_gap(loss="zero_one" | "cross_entropy", scope="model" | "class" | "group", confidence=0.95,
group=<sensitive column>)``; ``group`` only where the policy names one. Fraction, or nats.

    - metric: generalization_gap
      max: 0.05
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, ClassVar, Literal

from pydantic import Field, NonNegativeFloat

from privgate.evidence import Measurement
from privgate.policy.policy_part import Audit
from privgate.policy.rules import rule_reach
from privgate.policy.rules.membership import CandidatesRule
from privgate.policy.rules.metric import Metric
from privgate.policy.rules.rule_base import WAY_OUT, points
from privgate.run.needs import Need

METRIC = Metric(
    "generalization_gap",
    "Better on its training data than on candidates",
    question="membership",
    reaches="-1 to 1 for zero_one, unlimited nats for cross_entropy; 0 where training data are treated like others",
    unit="",
    worst=math.nan,
    needs=frozenset({Need.CANDIDATES}),
    shows_leaks_only=True,
)


class GeneralizationGap(CandidatesRule):
    """The model may not do much better on its own data than on other people."""

    about = METRIC
    lower_it: ClassVar[str] = WAY_OUT
    narrow_it: ClassVar[str] = "more candidates narrow the interval"
    metric: Literal["generalization_gap"] = "generalization_gap"
    max: NonNegativeFloat = Field(description="Largest gap allowed: a fraction for zero_one, nats for cross_entropy.")
    loss: Literal["zero_one", "cross_entropy"] = Field(default="zero_one", description="Which loss the gap is of.")
    scope: Literal["model", "class", "group"] = Field(default="model", description="Over whom; the worst one counts.")

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        del facts
        return rule_reach.sureness(self.max) if self.loss == "zero_one" else rule_reach.nats(self.max)

    def meaning(self, measurement: Measurement) -> str:
        """Return the gap in words."""
        if self.loss == "zero_one":
            gap = f"right {self.deciding(measurement, points)} more often"
        else:
            gap = f"better by {self.deciding(measurement, '{:.3g}'.format)} nats of loss"
        return f"{self.who()}, the model is {gap} on its own data than on others; a small gap is no proof of safety"

    def remarks(self, audit: Audit, suites: Mapping[str, str]) -> Iterator[str]:
        """Add that no gap of a sample is surely 0."""
        yield from super().remarks(audit, suites)
        if self.max == 0:
            yield "can never approve: the upper confidence limit of a gap lies above 0"
