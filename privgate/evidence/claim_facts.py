"""What a claim of differential privacy is worth, given what a rerun of its recipe was seen to do."""

import math
from typing import Self

from pydantic import Field, model_validator

from privgate.evidence.attack_facts import Estimate
from privgate.evidence.telling import EvidenceModel, Number


class Observation(EvidenceModel):
    """Sampling, noise and steps of a watched training; what earlier versions saw beside that is passed over."""

    earlier = frozenset((
        "unclipped_steps", "bypassed_updates", "noise_repeats", "noise_defect", "same_model_twice", "leaks", "rows",
        "copies", "replays", "by_number", "scales", "entered",
    ))  # fmt: skip
    library: str = Field(default="", description="opacus or diffprivlib; empty if none was seen at work.")
    runs: int = Field(default=0, description="Trainings that were watched.")
    records: int = Field(default=0, description="Training records that were handed to the recipe.")
    steps: int = Field(default=0, description="Updates of the model, or releases.")
    noiseless_steps: int = Field(default=0, description="Of these, without noise, or with noise that can be redrawn.")
    noise_multiplier: Number = Field(default=math.nan, description="Deviation over the clipping norm as added; least.")
    noise_stated: Number = Field(default=math.nan, description="The same as stated.")
    noise_share: Number = Field(default=math.nan, description="Deviation that was measured over the stated one.")
    noise_error: Number = Field(default=math.nan, description="Its standard error.")
    max_grad_norm: Number = Field(default=math.nan, description="Largest clipping norm of all steps.")
    sampling: str = Field(default="", description="poisson, shuffled (each epoch passes through once) or unknown.")
    sample_rate: Number = Field(default=math.nan, description="Expected share of the records in a batch.")
    passes: int = Field(default=0, description="Times that shuffled batches went through the records.")
    populations: tuple[int, ...] = Field(default=(), description="Records that each training drew from; 0: not known.")
    spends: tuple[tuple[float, float], ...] = Field(default=(), description="(epsilon, delta) by a budget accountant.")
    hazards: tuple[str, ...] = Field(default=(), description="What the libraries warned of.")
    leftovers: str = Field(default="", description="Gradients of records on a network: rerun (returned) or stored.")
    problem: str = Field(default="", description="Why it could not be observed; then nothing else counts.")


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
        default=None, description="Most that an attack achieved here; null: none comparable."
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

    @property
    def epsilon(self) -> float:
        """The better of both lower bounds, nats."""
        return max(self.many_runs.epsilon, 0.0 if self.one_run is None else self.one_run.epsilon)


class DeletionRow(EvidenceModel):
    """How many people may be erased at one confidence."""

    earlier = frozenset({"sentence"})
    rho: Number = Field(description="Chance that every erased person stays hidden is at least this, fraction.")
    prior: Number = Field(description="Probability that a person was used at all, at most.")
    capacity: Number = Field(description="People; larger is better.")
    failure: Number = Field(default=0.0, description="Probability over the training with which it may not hold.")


class ClaimsPart(EvidenceModel):
    """The claim against what was observed, and what follows from the guarantee."""

    earlier = frozenset({"deletion_by_prior"})
    observation: Observation | None = Field(default=None, description="What a rerun did; null where none was needed.")
    facts: tuple[ClaimFact, ...] = ()
    bounds: tuple[GuaranteeBound, ...] = Field(default=(), description="Empty where no finite guarantee holds.")
    curve: TradeoffPoints | None = Field(default=None, description="null where no finite guarantee holds.")
    points: tuple[TradeoffPoint, ...] = Field(default=(), description="Tests carried out, for the same chart.")
    audit: AuditRuns | None = Field(default=None, description="null where no rule asks for one.")
    deletion: tuple[DeletionRow, ...] = Field(default=(), description="At the prior that the policy states.")
