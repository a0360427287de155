"""What a claim of differential privacy is worth, given what a rerun of its recipe was seen to do."""

from collections.abc import Mapping
from dataclasses import asdict, dataclass
from typing import Annotated, Any, Self

from pydantic import BeforeValidator, Field, TypeAdapter, model_validator

from privgate.evidence.attack_facts import Estimate
from privgate.evidence.telling import EvidenceModel, Number

# What a rerun of a recipe that claims differential privacy was seen to do.


#: what 0.1.0 saw beside what is seen now; its documents are read without
_EARLIER = frozenset((
    "unclipped_steps", "bypassed_updates", "noise_repeats", "noise_defect", "same_model_twice", "leaks", "rows",
    "copies", "replays", "by_number", "scales", "entered",
))  # fmt: skip


def drop_earlier(observation: Any) -> Any:
    """Return an observation of a document without what earlier versions alone saw."""
    if not isinstance(observation, Mapping):
        return observation
    return {name: value for name, value in observation.items() if name not in _EARLIER}


@dataclass(frozen=True, slots=True)
class Observation:
    """Sampling, noise and steps of a watched training; what earlier versions saw beside that is passed over.

    Parameters
    ----------
    library : {"opacus", "diffprivlib", ""}
        Which library was seen at work; empty if none, then nothing else is known.
    runs, records : int
        Trainings that were watched; training records that were handed to the recipe.
    steps, noiseless_steps : int
        Updates of the model, or releases, and those without noise, or with noise that anybody can draw again.
    noise_multiplier, noise_stated : float
        Standard deviation of the noise over the clipping norm, as added and as stated: smallest of all steps.
    noise_share, noise_error : float
        Deviation that was measured, as a share of the stated one, and its standard error.
    max_grad_norm : float
        Largest clipping norm of all steps.
    sampling : {"poisson", "shuffled", "unknown", ""}
        As drawn: "shuffled" if each epoch passes through the records once.
    sample_rate : float
        Expected share of the records in a batch.
    passes : int
        Passes over the records that were begun, where batches are shuffled; 0 where they are not.
    populations : tuple of int
        Records that batches were drawn from in each training; 0 where that is not known.
    spends : tuple of (epsilon, delta)
        What a budget accountant recorded.
    hazards : tuple of str
        What the libraries warned of, in words.
    leftovers : {"", "rerun", "stored"}
        Where gradients of single records hang on the network that training returns, or that is registered.
    problem : str
        Why the rerun could not be observed; then nothing else counts.
    """

    library: str = ""
    runs: int = 0
    records: int = 0
    steps: int = 0
    noiseless_steps: int = 0
    noise_multiplier: Number = float("nan")
    noise_stated: Number = float("nan")
    noise_share: Number = float("nan")
    noise_error: Number = float("nan")
    max_grad_norm: Number = float("nan")
    sampling: str = ""
    sample_rate: Number = float("nan")
    passes: int = 0
    populations: tuple[int, ...] = ()
    spends: tuple[tuple[float, float], ...] = ()
    hazards: tuple[str, ...] = ()
    leftovers: str = ""
    problem: str = ""

    def payload(self) -> dict[str, Any]:
        """Return JSON values; NaN stays a float."""
        return asdict(self)

    @classmethod
    def from_payload(cls, payload: Mapping[str, Any]) -> Self:
        """Return the observation that ``payload`` describes."""
        return TypeAdapter(cls).validate_python(drop_earlier(payload))


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
    observation: Annotated[Observation | None, BeforeValidator(drop_earlier)] = Field(
        default=None, description="What a rerun did; null where none was needed."
    )
    facts: tuple[ClaimFact, ...] = ()
    bounds: tuple[GuaranteeBound, ...] = Field(default=(), description="Empty where no finite guarantee holds.")
    curve: TradeoffPoints | None = Field(default=None, description="null where no finite guarantee holds.")
    points: tuple[TradeoffPoint, ...] = Field(default=(), description="Tests carried out, for the same chart.")
    audit: AuditRuns | None = Field(default=None, description="null where no rule asks for one.")
    deletion: tuple[DeletionRow, ...] = Field(default=(), description="At the prior that the policy states.")
