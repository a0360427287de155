"""The rule ``dtp`` limits how much any answer to any question depends on one person.

Limit ``max`` in nats; 1 is DTP-1 of Long et al. (2017): no answer's probability changes more than e-fold (2.7) when one
person is left out. **Fails** if some unit's lower bound exceeds the limit, **passes** if every unit's upper bound
(a certificate) is within it, else **inconclusive**. Values at the records themselves (PDTP) never satisfy this rule.
DTP stops no attack by itself: a temperature, or clipping one model, lowers it and leaves every attack as it was
(section 12.4 of docs/mathematics.md); dtp-1-attacks judges the attacks beside it.

Request: ``dtp(aggregate="max" | "quantile" | "share_above", q=…, threshold=…)``; ``q`` only with quantile,
``threshold`` (nats) only with share_above; a random sample is enough for either. ``low`` is the
aggregate of ``dtp_lower`` less its error, ``high`` that of ``dtp_upper``; nats, or a fraction for share_above.

    - metric: dtp
      max: 1.0
"""

import math
from typing import Any, Literal

import numpy as np

from privgate.evidence import BehindInfluence, Measurement
from privgate.policy.rules.leave_one_out import REACHES, LeaveOneOutRule, averaged, folds, own_pair
from privgate.policy.rules.metric import Metric
from privgate.run.needs import Need
from privgate.verdict import Outcome

METRIC = Metric(
    "dtp",
    "Influence of one person on any answer",
    measured_by="influence.measures:measure_dtp",
    question="influence",
    reaches=REACHES,
    unit="nats",
    worst=math.inf,
    needs=frozenset({Need.LEAVE_ONE_OUT, Need.EVERY_QUERY}),
    per_unit=True,
    answers=frozenset({"probabilities", "noisy numbers"}),  # a regressor's answers have a density where noise is added
    columns=("dtp_lower", "dtp_upper"),
)


class Dtp(LeaveOneOutRule):
    """No answer to any question may depend much on one person; only a certificate can show it."""

    about = METRIC
    metric: Literal["dtp"] = "dtp"

    @property
    def beyond(self) -> str:
        """Who change an answer to some question more than the threshold."""
        return f"for whom some answer changes more than {folds(self.threshold or 0)}"

    def change(self, measurement: Measurement) -> str:
        """Return the change of probability as a factor."""
        if self.broken(measurement):
            said = f"without this person, an answer's probability changes {self.deciding(measurement, folds)}"
            return f"{averaged(measurement)}{self.who(measurement)}: {said}{own_pair(measurement)}"
        bound = (
            f"no answer's probability changes more than {folds(measurement.high)}"
            if np.isfinite(measurement.high)
            else "no limit on the change of answers is known"
        )
        seen = f"the largest change seen is {folds(measurement.low)}"
        if seeds := BehindInfluence.of(measurement.behind).paired_seeds:
            seen += f", averaged over {seeds} runs of training, not of this very model"
        # a temperature or a clipped model lowers DTP as far as one likes, and attacks lose nothing (section 12.4)
        # said of a limit that holds: where none does, nobody takes it for protection
        attacks = "; this stops no attack by itself" if np.isfinite(measurement.high) else ""
        return f"{self.who(measurement)}: without this person, {bound}; {seen}{own_pair(measurement)}{attacks}"

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name a way out where no theorem speaks about this kind of model."""
        if outcome is Outcome.INCONCLUSIVE and np.isinf(measurement.high) and not measurement.problem:
            if why := "; ".join(BehindInfluence.of(measurement.behind).why_no_certificate):
                return f"no certificate limits every answer here: {why}; or judge by pdtp-1 (direct queries only)"
            if measurement.n < measurement.population:
                return "of whoever was not left out nothing is known here: check without --max-retrains and --budget"
            return (
                "no certificate limits every answer of this model for every person: declare the domain, take a model "
                "that a certificate covers (`privgate list --all`), train in `privgate.models.Sharded`, or judge by "
                "share-1 or release-1"
            )
        return super().advice(measurement, outcome)

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that without a certificate this rule can fail but never pass."""
        if facts.get("certificates"):
            return ""
        none = "no certificate bounds this kind of model over all questions (networks and forests have none)"
        why = "; ".join(facts.get("why_no_certificate", ())) or none
        return (
            f"rule {self.name!r} can never approve here: {why}; so DTP may be shown to exceed the limit but never to "
            "be within it; policy pdtp-1 judges direct queries only"
        )
