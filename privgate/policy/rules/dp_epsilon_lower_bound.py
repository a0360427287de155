"""The rule ``dp_epsilon_lower_bound`` blocks when an attack proves that the claimed guarantee is broken.

An audit gives a lower bound on epsilon at ``confidence``. **Fails** if it exceeds the limit: the claim is broken. An
audit can never show that a guarantee holds, so passing means "not contradicted". ``max`` is a number in nats, or
``claim`` (the default): the epsilon that the recipe claims, at the claim's own delta.

Request: ``dp_epsilon_lower_bound(confidence=0.999, delta=…)``; ``delta`` only where the policy names one, otherwise the
claim's own. ``low`` is the lower bound, ``high`` infinite, ``behind.claimed_epsilon`` the claim (nats).

    - metric: dp_epsilon_lower_bound
      max: claim
"""

import math
from collections.abc import Iterator, Mapping
from typing import Any, Literal, Self

import numpy as np
from pydantic import Field, NonNegativeFloat, model_validator

from privgate.evidence import BehindClaim, Measurement
from privgate.policy.policy_part import Audit, OpenFraction
from privgate.policy.rules import rule_reach
from privgate.policy.rules.attacks import Confidence, unsure
from privgate.policy.rules.metric import ANY_ANSWERS, Metric
from privgate.policy.rules.rule_base import Rule, wrong
from privgate.run.needs import Need
from privgate.verdict import Finding, Outcome

METRIC = Metric(
    "dp_epsilon_lower_bound",
    "Audit of the guarantee",
    measured_by="claims.audit:measure_lower_bound",
    question="claim",
    reaches="0 (nothing found) to about the logarithm of the number of audited models; nats",
    unit="nats",
    answers=ANY_ANSWERS,
    worst=math.inf,
    needs=frozenset({Need.CLAIM, Need.AUDIT}),
    shows_leaks_only=True,
    written_as="epsilon",
)


class DpEpsilonLowerBound(Rule):
    """No audit may contradict the guarantee."""

    about = METRIC
    metric: Literal["dp_epsilon_lower_bound"] = "dp_epsilon_lower_bound"
    max: NonNegativeFloat | Literal["claim"] = Field(
        default="claim", description="Largest lower bound allowed, nats; claim: the epsilon that the recipe claims."
    )
    confidence: Confidence = Field(default=0.999, description="Of the lower bound; a false alarm has the rest.")
    delta: OpenFraction | None = Field(default=None, description="Of the audited guarantee; the claim's own if absent.")
    bound: Literal["lower"] = Field(default="lower", description="An audit gives lower bounds only.")

    @model_validator(mode="after")
    def _one_guarantee(self) -> Self:
        if self.max == "claim" and self.delta is not None:
            raise wrong("delta", "'delta' belongs to a numeric max; max 'claim' is judged at the claim's own delta")
        if self.max != "claim" and self.delta is None:
            raise wrong("max", "a numeric max needs the key 'delta'")
        return self

    @property
    def limit(self) -> float:
        """The number, or NaN where it is the claim, which only the measurement knows."""
        return float("nan") if self.max == "claim" else float(self.max)

    def loosened(self, parent: Rule) -> dict[str, str]:
        """Return what is weaker than in ``parent``; a number and a claim cannot be compared."""
        found = super().loosened(parent) if type(self) is type(parent) and self.comparable(parent) else {}
        if not found and not self.comparable(parent):
            found = {"max": f"is another question: the parent has {getattr(parent, 'max', None)!r}"}
        return found

    def comparable(self, parent: Rule) -> bool:
        """Whether both limits are numbers, or both are the claim."""
        return isinstance(parent, DpEpsilonLowerBound) and (self.max == "claim") == (parent.max == "claim")

    def against_limit(self, measurement: Measurement) -> Finding:
        """Return FAILED iff the lower bound exceeds the limit; PASSED iff it does not and both are known."""
        if measurement.problem:
            return self.finding(Outcome.INCONCLUSIVE, measurement.problem, measurement)
        claimed = BehindClaim.of(measurement.behind).claimed_epsilon
        limit = float("nan" if claimed is None else claimed) if self.max == "claim" else float(self.max)
        low = measurement.low
        if np.isnan(low) or np.isnan(limit):
            text = "neither the audit's bound nor the claim may be missing"
            return self.finding(Outcome.INCONCLUSIVE, text, measurement)
        judged = self.model_copy(update={"max": limit})
        if low <= limit and (why := rule_reach.nats(limit)):
            text = f"the claim of epsilon {limit:.4g} cannot be contradicted by any audit: {why}"
            return judged.finding(Outcome.INCONCLUSIVE, text, measurement)
        outcome = Outcome.FAILED if low > limit else Outcome.PASSED
        return judged.finding(outcome, judged.sentence(measurement, outcome), measurement)

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Say what an audit shows: a leak, never that there is none."""
        del measurement
        return "not contradicted, which shows no guarantee" if outcome is Outcome.PASSED else "the claim does not hold"

    def vacuous(self, facts: Mapping[str, Any] = rule_reach.NOTHING) -> str:
        """Return why no measurement could break this rule."""
        if self.max == "claim":
            return ""  # the claim is judged where it is known
        return super().vacuous(facts) or rule_reach.delta(self.delta or 0.0, int(facts.get("n_units") or 0))

    def meaning(self, measurement: Measurement) -> str:
        """Return what an audit can and cannot show."""
        return (
            f"attacks prove a leak of at least epsilon {measurement.low:.3g} (confidence {self.confidence:g}); "
            "no audit can prove that a guarantee holds"
        )

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what to look at first."""
        if outcome is Outcome.FAILED and not measurement.problem:
            return "look for gradients that are not clipped per record, noise that is not added, and reused seeds"
        if BehindClaim.of(measurement.behind).claimed_epsilon is not None:
            return "claim an epsilon so small that an audit can contradict it"
        return "state the claim with the recipe and give the audit models to look at"

    def cannot_conclude(self, facts: dict[str, Any]) -> str:
        """Say that there is no claim to audit."""
        return super().cannot_conclude(facts) if self.max == "claim" else ""

    def remarks(self, audit: Audit) -> Iterator[str]:
        """Add what a confidence cannot do."""
        yield from super().remarks(audit)
        yield from unsure(self.confidence)

    def outcomes(self) -> str:
        """Return what blocks; nothing else can happen."""
        return "refuses if the audit's lower bound exceeds the limit; otherwise the guarantee is not contradicted"
