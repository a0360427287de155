"""What rules about differential privacy have in common: whether a claim that nobody observed counts."""

from collections.abc import Iterator

from pydantic import Field

from privgate.evidence import BehindClaim, Measurement
from privgate.policy.policy_part import Audit
from privgate.policy.rules.rule_base import Rule, next_step
from privgate.run.needs import Need
from privgate.verdict import Outcome

#: what numbers that follow from a guarantee rest on
GUARANTEED = frozenset({Need.CLAIM, Need.RERUNS})


def way(measurement: Measurement) -> str:
    """Return what a guarantee counts."""
    behind = BehindClaim.of(measurement.behind)
    if behind.declared_only:
        return "what is declared"
    if behind.library == "diffprivlib":
        return "what the budget accountant counted"
    return "optimizer steps only"


class GuaranteeRule(Rule):
    """A limit on something that follows from the recipe's differential-privacy guarantee.

    The guarantee is recomputed from the parameters that a rerun of the recipe was seen to use. A claim that is only
    declared is inconclusive, unless the policy says ``accept_declared_claims: true``.
    """

    accept_declared_claims: bool = Field(
        default=False,
        description="true: a guarantee counts although nobody observed it; the approval rests on its author's word.",
    )

    def remark(self, measurement: Measurement, outcome: Outcome) -> str:
        """Say aloud that the number rests on a claim nobody observed, where the policy accepts that."""
        del outcome
        if self.accept_declared_claims and BehindClaim.of(measurement.behind).declared_only:
            return "DECLARED ONLY: accept_declared_claims is set and nobody observed this guarantee"
        return ""

    def advice(self, measurement: Measurement, outcome: Outcome) -> str:
        """Name what would settle or lower the number."""
        del outcome  # a rule that only warns warns of the same
        if not measurement.applicable:
            return next_step("claim")
        if measurement.problem:
            return "" if measurement.stopped_by else next_step("guarantee")
        if self.broken(measurement):
            return "add noise, sample smaller batches or train fewer steps; then check again"
        return "let the check observe a rerun of the recipe, so that the guarantee can be recomputed"

    def remarks(self, audit: Audit) -> Iterator[str]:
        """Add that a claim counts which nobody observed."""
        yield from super().remarks(audit)
        if self.accept_declared_claims:
            yield (
                "ACCEPT_DECLARED_CLAIMS: a guarantee that nobody observed counts; the approval rests on its author's "
                "word"
            )
