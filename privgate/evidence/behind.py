"""What stands behind one number, by question: the fields that rules read beside value and interval.

Every field may be absent: a measurement that could not be taken has none of them, and no absence makes a pass.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Self

from pydantic import Field

from privgate.evidence.claims import AuditRuns
from privgate.evidence.values import Count, EvidenceModel, Json, Number, encode, hidden, told_count


class Behind(EvidenceModel):
    """What stands behind a measurement; only what was really set is written."""

    def payload(self) -> dict[str, Json]:
        """Return JSON values of what was set; infinities and NaN become text."""
        found: dict[str, Json] = encode(self.model_dump(exclude_unset=True))
        return found

    @classmethod
    def of(cls, detail: "Behind | None") -> Self:
        """Return ``detail`` if it speaks of this question, else one that says nothing."""
        return detail if isinstance(detail, cls) else cls()


@dataclass(frozen=True, slots=True)
class Expectation:
    """What became of one expectation; counts only.

    Parameters
    ----------
    name : str
        Its type and column, or the name that its author gave it in ``meta``.
    met : bool
        False also for an error.
    error : str
        Why it could not be evaluated; empty if it could.
    severity : {"critical", "warning", "info"}
        Its author's word.
    unexpected : int
        Records that violate it, where it speaks of records.
    percent : float
        The same as a percentage of the records it speaks of.
    """

    name: str
    met: bool
    error: str = ""
    severity: str = "critical"
    unexpected: Count = 0
    percent: Number = 0.0

    def __str__(self) -> str:
        if self.error:
            return f"{self.name}: {self.error}"
        if not self.unexpected:
            return self.name
        share = "" if hidden(self.unexpected) else f" ({self.percent:.3g} %)"  # the same count as a share
        return f"{self.name}: {told_count(self.unexpected)} records{share}"


class BehindInfluence(Behind):
    """Behind a number about the per-unit table."""

    claim: str = Field(default="", description="What a sample says about all units, one sentence.")
    over_limit: Mapping[str, Count] = Field(
        default_factory=dict, description="Limit of a rule on units, nats, to how many may be above it."
    )
    paired_seeds: int = Field(default=0, description="Seeds averaged over; 0 where training has no randomness.")
    unseen: Number | None = Field(
        default=None, description="Share of trainings that may be missing among the seeds, and that no limit covers."
    )
    registered_worst: Number | None = Field(
        default=None, description="Largest change with the registered seed alone, nats; nothing is judged by it."
    )
    registered_above: Count = Field(default=None, description="Units above the limit with that seed alone.")
    why_no_certificate: tuple[str, ...] = Field(default=(), description="Why no theorem bounds every answer.")
    not_computed: int = Field(
        default=0, description="Units that nobody was trained without, because the verdict was decided before."
    )
    decided_by: str = Field(default="", description="The broken rule that decided it; empty if all were measured.")
    violated: tuple[str, ...] = Field(default=(), description="Expectations of a suite that were not met, in words.")
    expectations: tuple[Expectation, ...] = Field(default=(), description="All expectations of the suite.")


class BehindMembership(Behind):
    """Behind a number about attacks, or about the loss on other people."""

    searched: int | None = Field(default=None, description="Attacks x thresholds x cells, all corrected for.")
    cells: int | None = Field(default=None, description="Classes or groups looked at.")
    cells_too_small_to_show: int | None = Field(default=None, description="Of these, judged and never named.")
    did_not_run: Mapping[str, str] = Field(default_factory=dict, description="Attack to why it did not run.")
    removed_candidates: Mapping[str, Count] = Field(
        default_factory=dict, description="Why candidates take no part in trials, to how many."
    )
    members: int | None = Field(default=None, description="Training people of the trials.")
    candidates: int | None = Field(default=None, description="Other people of the trials.")
    shadow_models: int = Field(default=0, description="Models on random halves behind the attacks.")
    targets: int | None = Field(default=None, description="Target models, for single records.")
    training_loss: Number | None = Field(default=None, description="Mean loss on training records.")


class BehindClaim(Behind):
    """Behind a number about differential privacy."""

    declared_only: bool = Field(default=False, description="Nobody observed the guarantee; the policy accepts that.")
    claimed_epsilon: Number | None = Field(default=None, description="The claim's own epsilon, nats.")
    library: str = Field(default="", description="Library seen at work; empty if none.")
    reruns: int = Field(default=0, description="Reruns that were observed.")
    replays: int = Field(default=0, description="Reruns on other records with the same noised gradients.")
    group: int | None = Field(default=None, description="Entries of one person that the guarantee covers together.")
    delta: Number | None = Field(default=None, description="Delta that the guarantee really has; 0 for pure ones.")
    rdp_epsilon: Number | None = Field(default=None, description="The same epsilon by Rényi accounting, nats.")
    accountant: str = Field(default="", description="How epsilon was recomputed.")
    epsilon: Number | None = Field(default=None, description="Epsilon behind a deletion capacity, nats.")
    failure: Number | None = Field(
        default=None, description="Probability over the training with which a deletion capacity may not hold."
    )
    sentence: str = Field(default="", description="A deletion capacity in words.")
    audit: AuditRuns | None = Field(default=None, description="The audit behind a lower bound on epsilon.")
