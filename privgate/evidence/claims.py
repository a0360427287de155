"""The third question: what a claim of differential privacy is worth, given what a rerun was seen to do."""

from typing import Self

from pydantic import Field, model_validator

from privgate.evidence.membership import Estimate
from privgate.evidence.observation import Observation
from privgate.evidence.values import EvidenceModel, Number


class ClaimFact(EvidenceModel):
    """One line of facts about the guarantee."""

    name: str
    value: str


class GuaranteeBound(EvidenceModel):
    """One bound that follows from the guarantee, with its hypotheses in words."""

    name: str = Field(description="What is bounded.")
    epsilon: Number = Field(description="Of the guarantee that counts for this adversary, nats.")
    delta: Number
    prior: Number | None = Field(default=None, description="Share of members the bound assumes; null for any.")
    fpr: Number | None = Field(default=None, description="Rate of errors the bound is about; null if about none.")
    bound: Number = Field(description="No adversary achieves more; fraction unless the name says otherwise.")
    measured: Estimate | None = Field(
        default=None, description="Most that an attack of this run achieved over one model; null if none is comparable."
    )
    assumptions: tuple[str, ...] = ()


class TradeoffPoints(EvidenceModel):
    """Largest true-positive rate of any attack at each false-positive rate."""

    fpr: tuple[Number, ...] = Field(description="Ascending, fractions.")
    tpr: tuple[Number, ...] = Field(description="One an fpr, fractions.")

    @model_validator(mode="after")
    def _one_each(self) -> Self:
        if len(self.fpr) != len(self.tpr):
            raise ValueError("tpr needs one value an fpr")
        return self


class TradeoffPoint(EvidenceModel):
    """A test that was really carried out, for the chart of the trade-off."""

    name: str
    fpr: Number
    tpr: Number


class ManyRuns(EvidenceModel):
    """The audit by many trainings with and without one mislabelled record."""

    epsilon: Number = Field(description="Lower bound, nats.")
    trainings: int
    counted: int = Field(description="Trainings on which the fixed test was counted.")
    misses: int
    false_alarms: int
    fpr: Number
    tpr: Number


class OneRun(EvidenceModel):
    """The audit by one training with many mislabelled records, each included by a coin."""

    epsilon: Number = Field(description="Lower bound, nats.")
    canaries: int
    guesses: int
    right: int


class AuditRuns(EvidenceModel):
    """Both audits of a claim; they can contradict a guarantee and never show it."""

    many_runs: ManyRuns
    one_run: OneRun | None = Field(default=None, description="null for replace-one claims and without canaries.")
    delta: Number = Field(description="At which epsilon is bounded.")
    trainings: int = Field(description="Trainings made by both.")


class DeletionRow(EvidenceModel):
    """How many people may be erased at one confidence."""

    rho: Number = Field(description="Chance that every erased person stays hidden is at least this, fraction.")
    prior: Number = Field(description="Probability that a person was used at all, at most.")
    capacity: Number = Field(description="People; larger is better.")
    failure: Number = Field(default=0.0, description="Probability over the training with which it may not hold.")
    sentence: str = ""


class ClaimsPart(EvidenceModel):
    """The claim against what was observed, and what follows from the guarantee."""

    observation: Observation | None = Field(default=None, description="What a rerun did; null where none was needed.")
    facts: tuple[ClaimFact, ...] = ()
    bounds: tuple[GuaranteeBound, ...] = Field(default=(), description="Empty where no finite guarantee holds.")
    curve: TradeoffPoints | None = Field(default=None, description="null where no finite guarantee holds.")
    points: tuple[TradeoffPoint, ...] = Field(default=(), description="Tests carried out, for the same chart.")
    audit: AuditRuns | None = Field(default=None, description="null where no rule asks for one.")
    deletion: tuple[DeletionRow, ...] = Field(default=(), description="At the policy's prior.")
    deletion_by_prior: tuple[DeletionRow, ...] = ()
