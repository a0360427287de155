"""What a claim of differential privacy is worth, given what a rerun of its recipe was seen to do."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Any, Self

from pydantic import Field, TypeAdapter, model_validator

from privgate.evidence.attack_facts import Estimate
from privgate.evidence.telling import EvidenceModel, Number

# What a rerun of a recipe that claims differential privacy was seen to do.


@dataclass(frozen=True, slots=True)
class Observation:
    """Sampling, clipping, noise and steps of one or more reruns; the worst of them.

    Parameters
    ----------
    library : {"opacus", "diffprivlib", ""}
        Which library was seen at work; empty if none, then nothing else is known.
    runs, records : int
        Training records are those handed to the recipe.
    steps : int
        Noised releases of one run, batches that came out empty included.
    noise_multiplier : float
        Smallest of all steps: standard deviation of the noise really added, over the clipping norm.
    noiseless_steps, unclipped_steps : int
        Steps whose sum was released without noise, or was not the sum of clipped gradients.
    max_grad_norm : float
        Largest clipping norm of all steps.
    sampling : {"poisson", "shuffled", "unknown", ""}
        As drawn: "shuffled" if each epoch passes through the records once.
    sample_rate : float
        Expected share of the records in a batch; raised where batches were larger than it explains.
    passes : int
        Passes over the records that were begun, where batches are shuffled; 0 where they are not.
    bypassed_updates : int
        Updates of a model by an optimizer, or with gradients, that no mechanism released.
    noise_repeats, same_model_twice : bool
        Noise of one run or step came again in another; two reruns without a seed answered the same queries identically.
    noise_defect : str
        Why the steps are not what they look like, in words.
    spends : tuple of (epsilon, delta)
        What a budget accountant recorded in one run.
    hazards : tuple of str
        What the libraries warned of, or what weakens the guarantee, in words.
    leaks : tuple of str
        How records reach the model beside the noised steps, in words.
    rows, copies : int
        Most entries that one person has in what batches are drawn from, and as a multiple of that person's records.
    replays : int
        Reruns on other records with the same noised gradients or releases; 0 if nothing was compared.
    by_number : str
        What follows the number of records, or why that was not looked at, in words.
    scales : tuple of (steps, numbers, ratio, moved)
        Steps whose noise has another deviation when somebody leaves, the ratio, and how many deviations the sum moves.
    entered : float
        Sum of epsilon over mechanisms whose input one record changes, where more than was spent.
    leftovers : {"", "rerun", "stored"}
        Where gradients of single records hang on the network that training returns, or that is registered.
    problem : str
        Why the rerun could not be observed; then nothing else counts.
    """

    library: str = ""
    runs: int = 0
    records: int = 0
    steps: int = 0
    noise_multiplier: Number = float("nan")
    noiseless_steps: int = 0
    max_grad_norm: Number = float("nan")
    unclipped_steps: int = 0
    sampling: str = ""
    sample_rate: Number = float("nan")
    passes: int = 0
    bypassed_updates: int = 0
    noise_repeats: bool = False
    noise_defect: str = ""
    same_model_twice: bool = False
    spends: tuple[tuple[float, float], ...] = ()
    hazards: tuple[str, ...] = ()
    leaks: tuple[str, ...] = ()
    rows: int = 0
    copies: int = 0
    replays: int = 0
    by_number: str = ""
    scales: tuple[tuple[int, int, float, float], ...] = ()
    entered: float = 0.0
    leftovers: str = ""
    problem: str = ""

    @property
    def broken(self) -> str:
        """Why no finite ε holds for what was seen, in words; empty if one may."""
        if self.noise_repeats:
            return f"the noise repeats ({self.runs} reruns): whoever reruns the training can subtract it"
        if self.same_model_twice:
            return f"{self.runs} reruns without a seed gave the same model: the noise is not random"
        if self.noiseless_steps:
            return f"{self.noiseless_steps} of {self.steps} steps got no noise"
        if self.unclipped_steps:
            return f"gradients of single records were not clipped in {self.unclipped_steps} of {self.steps} steps"
        if self.bypassed_updates:
            return f"{self.bypassed_updates} updates of the model bypassed the noised gradients"
        return self.noise_defect or next(iter(self.leaks), "")

    def payload(self) -> dict[str, Any]:
        """Return JSON values; NaN stays a float."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Return the observation that ``payload`` describes."""
        return TypeAdapter(cls).validate_python(dict(payload))


# The third question: what a claim of differential privacy is worth, given what a rerun was seen to do.


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
