"""What a report says of the subject, the policy and who asked: parts of the report document."""

from collections.abc import Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from privgate.evidence.values import EvidenceModel, Json, Number


class NoiseFacts(EvidenceModel):
    """Noise that the endpoint adds to every number."""

    kind: str
    scale: Number


class ReleaseFacts(EvidenceModel):
    """What one query to the deployed model returns."""

    form: Literal["probabilities", "rounded", "binned", "top_k", "label"] = "probabilities"
    step: Number = Field(default=0.01, description="Rounding step or bin width.")
    k: int = Field(default=1, description="Labels listed, for top_k.")
    temperature: Number = 1.0
    noise: NoiseFacts | None = Field(default=None, description="null for classifiers and exact numbers.")


class ColumnFacts(EvidenceModel):
    """What one column of a frame may hold."""

    name: str | int
    ends: tuple[Number, Number] | None = Field(default=None, description="Of a range of numbers.")
    values: tuple[str | int | float, ...] | None = Field(default=None, description="Of categories.")
    missing: bool = Field(default=False, description="Whether a value may be missing.")


class DomainFacts(EvidenceModel):
    """Which questions the endpoint accepts."""

    categories: tuple[int, ...] | None = None
    box: tuple[tuple[Number, Number], ...] | None = Field(default=None, description="null where it is withheld.")
    max_length: int | None = None
    norm: Number | None = None
    columns: tuple[ColumnFacts, ...] | None = Field(default=None, description="Columns of a frame by name.")
    blocks: tuple[tuple[int, ...], ...] = Field(default=(), description="Columns of which at most one is not 0.")
    inferred: bool = Field(default=False, description="Read off the training data, which is a guess.")
    queries: int | None = Field(default=None, description="How many questions are listed; no other is answered.")
    withheld: str = Field(default="", description="What was left out of an inferred domain: values of single people.")


class ClaimFacts(EvidenceModel):
    """A differential-privacy claim as its author states it."""

    mechanism: str
    adjacency: str | None = None
    epsilon: Number | None = None
    delta: Number | None = None
    noise_multiplier: Number | None = None
    sample_rate: Number | None = None
    steps: int | None = None
    max_grad_norm: Number | None = None
    accountant: str | None = None
    sampling: str | None = None
    unit: str = ""


class RecipeFacts(EvidenceModel):
    """What trains the model; a recipe document of its own, so more keys may stand here."""

    model_config = ConfigDict(frozen=True, extra="allow")

    kind: str = ""
    fit: str | None = Field(default=None, description="Training function; null for an estimator.")
    estimator: Mapping[str, Json] | None = Field(default=None, description="Class and parameters.")
    params: Mapping[str, Json] = Field(default_factory=dict)
    seed: Json = None
    dp: ClaimFacts | None = None

    @property
    def trained_by(self) -> str:
        """Name of what trains: a function or an estimator's class."""
        return self.fit or str((self.estimator or {}).get("class") or "")

    @property
    def settings(self) -> dict[str, Json]:
        """All parameters."""
        return {**((self.estimator or {}).get("params") or {}), **self.params}


class SubjectFacts(EvidenceModel):
    """What was judged."""

    name: str = ""
    version: str = ""
    uri: str = ""
    digests: Mapping[str, str] = Field(default_factory=dict)
    n_records: int = 0
    n_units: int = 0
    n_classes: int = 0
    n_candidates: int = 0
    task: str = Field(default="", description="regression for models that predict numbers; empty for classifiers.")
    release: ReleaseFacts = ReleaseFacts()
    domain: DomainFacts | None = None
    recipe: RecipeFacts | None = None
    detail: Mapping[str, Json] = Field(default_factory=dict, description="How it was loaded.")


class PolicyFacts(EvidenceModel):
    """By what it was judged."""

    name: str
    version: str = ""
    digest: str = ""
    path: str = ""
    source: Json = Field(default=None, description="The resolved policy.")


class ContextFacts(EvidenceModel):
    """What whoever ran the check says about it, and how well the model does its work; empty where nobody said."""

    data_name: str = Field(default="", description="What the training data are called.")
    data_source: str = Field(default="", description="Where they come from.")
    purpose: str = Field(default="", description="What the model is for.")
    owner: str = Field(default="", description="Who answers for it.")
    run_by: str = Field(default="", description="User who ran the check.")
    run_on: str = Field(default="", description="Host, or the workflow run, that ran it.")
    accuracy: Number | None = Field(default=None, description="Share of right answers about other people.")
    accuracy_between: tuple[Number, Number] | None = Field(
        default=None, description="Its range, where the share would tell how few answers are wrong, or right."
    )
    accuracy_n: int = Field(default=0, description="How many other people.")


class WaiverRow(EvidenceModel):
    """One waiver of the policy and what became of it."""

    rule: str
    status: str = Field(description="applied, not needed, above ceiling, expired, not yet, other model.")
    reason: str
    requester: str
    approver: str
    expires: str
    ceiling: Number
