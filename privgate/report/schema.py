"""The report document: what ``report.json`` holds, typed; its JSON Schema is generated from these models."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal, Self, get_args

from pydantic import AfterValidator, ConfigDict, Field, ValidationError, model_validator

from privgate.documents import strict_json
from privgate.errors import SubjectError
from privgate.evidence import AttackResult, Evidence, EvidenceDocument, NextStep
from privgate.evidence.telling import EvidenceModel, Json, Number, Part
from privgate.evidence.verdict import Decision, Finding, Outcome
from privgate.policy.judging import find_scope


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
    floor: tuple[Number, ...] = Field(default=(), description="Of each label; empty where there is none.")
    alone: bool = Field(default=False, description="Whether what is released decides, because nobody gets the file.")


class ColumnFacts(EvidenceModel):
    """What one column of a frame may hold."""

    name: str | int
    ends: tuple[Number, Number] | None = Field(default=None, description="Of a range of numbers.")
    values: tuple[str | int | float, ...] | None = Field(default=None, description="Of categories.")
    missing: bool = Field(default=False, description="Whether a value may be missing.")


class DomainFacts(EvidenceModel):
    """Which questions the endpoint accepts."""

    earlier = frozenset({"max_length", "norm"})
    categories: tuple[int, ...] | None = None
    box: tuple[tuple[Number, Number], ...] | None = Field(default=None, description="null where it is withheld.")
    columns: tuple[ColumnFacts, ...] | None = Field(default=None, description="Columns of a frame by name.")
    blocks: tuple[tuple[int, ...], ...] = Field(default=(), description="Columns of which at most one is not 0.")
    inferred: bool = Field(default=False, description="Read off the training data, which is a guess.")
    queries: int | None = Field(default=None, description="How many questions are listed; no other is answered.")
    withheld: str = Field(default="", description="What was left out of an inferred domain: values of single people.")

    @model_validator(mode="before")
    @classmethod
    def _refuse_limits(cls, given: Any) -> Any:
        if isinstance(given, Mapping) and any(given.get(key) is not None for key in cls.earlier):
            raise ValueError("an earlier version limited the length or norm of a question; check the model again")
        return given


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

    model_config = ConfigDict(frozen=True, extra="allow", defer_build=True)

    kind: str = ""
    fit: str | None = Field(default=None, description="Training function; null for an estimator.")
    estimator: Mapping[str, Json] | None = Field(default=None, description="Class and parameters.")
    params: Mapping[str, Json] = Field(default_factory=dict)
    public: Mapping[str, str] = Field(default_factory=dict, description="Parameters declared public, and their origin.")
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
    file: str = Field(default="", description="not downloadable, where the operator states it; empty otherwise.")
    people: Mapping[str, str] = Field(default_factory=dict, description="What was declared of whose records are.")
    theorems: tuple[str, ...] = Field(default=(), description="Those that bound every answer, without a training.")
    task: str = Field(default="", description="regression for models that predict numbers; empty for classifiers.")
    release: ReleaseFacts = ReleaseFacts()
    domain: DomainFacts | None = None
    recipe: RecipeFacts | None = None
    detail: Mapping[str, Json] = Field(default_factory=dict, description="How it was loaded.")

    @property
    def claim(self) -> ClaimFacts | None:
        """What its recipe claims of differential privacy."""
        return self.recipe.dp if self.recipe else None

    @property
    def public(self) -> Mapping[str, str]:
        """Parameters of its recipe that are declared public."""
        return self.recipe.public if self.recipe else {}


class PolicyFacts(EvidenceModel):
    """By what it was judged."""

    name: str
    version: str = ""
    digest: str = ""
    path: str = ""
    source: Json = Field(default=None, description="The resolved policy.")


class ContextFacts(EvidenceModel):
    """What whoever ran the check says about it; empty where nobody said."""

    earlier = frozenset({"accuracy", "accuracy_between", "accuracy_n"})
    data_name: str = Field(default="", description="What the training data are called.")
    data_source: str = Field(default="", description="Where they come from.")
    purpose: str = Field(default="", description="What the model is for.")
    owner: str = Field(default="", description="Who answers for it.")
    run_by: str = Field(default="", description="User who ran the check.")
    run_on: str = Field(default="", description="Host, or the workflow run, that ran it.")


class WaiverRow(EvidenceModel):
    """One waiver of the policy and what became of it."""

    rule: str
    status: str = Field(description="applied, not needed, above ceiling, expired, not yet, other model.")
    reason: str
    requester: str
    approver: str
    expires: str
    ceiling: Number


FigureName = Literal["pdtp", "dtp_lower", "dtp_upper"]
Quantile = Literal["0.1", "0.25", "0.5", "0.75", "0.9", "0.95", "0.99", "1.0"]


def _all_quantiles(quantiles: Mapping[Quantile, float]) -> Mapping[Quantile, float]:
    if missing := {"0.5", "0.99", "1.0"} - quantiles.keys():
        raise ValueError(f"needs the quantiles {', '.join(sorted(missing))}")
    return quantiles


Quantiles = Annotated[Mapping[Quantile, Number], AfterValidator(_all_quantiles)]


class FigureSummary(EvidenceModel):
    """One figure over all people."""

    earlier = frozenset({"edges", "counts", "unbounded"})
    quantiles: Quantiles = Field(description="Nats; of few people none, and NaN where few lie on one side.")


class WorstUnit(EvidenceModel):
    """One of the units with the largest figures, under its keyed hash (HMAC-SHA256); nats."""

    unit: str
    pdtp: Number
    dtp_lower: Number
    dtp_upper: Number
    error: Number
    noise_floor: Number
    seeds: int
    engine: str
    status: str


class UnitsSummary(EvidenceModel):
    """The per-person table as a reader may see it."""

    earlier = frozenset({"above"})
    n: int = Field(description="People in the table.")
    key_id: str = Field(description="Which key made the hashes; tells nothing about the key.")
    small_cell: int = Field(description="Counts from 1 to one less are suppressed.")
    figures: Mapping[FigureName, FigureSummary] = Field(description="Per figure; empty unless everybody was measured.")
    worst: tuple[WorstUnit, ...]
    next_worst: tuple[str, ...] = Field(
        default=(), description="Others of the worst, in no order: their figures would tell a small count."
    )
    close: Part = Field(default=None, description="People measured closely, where not all were.")
    everybody: bool = Field(default=True, description="Everybody was measured closely: there is a distribution.")

    @model_validator(mode="after")
    def _whole(self) -> Self:
        if self.everybody and (not self.worst or set(self.figures) != set(get_args(FigureName))):
            raise ValueError("needs every figure and the worst people where everybody was measured")
        return self


COMPARISON: Literal["privgate/comparison/v2"] = "privgate/comparison/v2"


class ComparedReport(EvidenceModel):
    """One side of a comparison."""

    name: str
    version: str
    outcome: Outcome
    decision: str
    decided_at: str
    policy: str


class RuleFigures(EvidenceModel):
    """What a rule said on one side."""

    value: Number
    low: Number
    high: Number
    outcome: Outcome
    limit: Number


class RuleChange(EvidenceModel):
    """One rule on both sides; null on the side that has no such rule."""

    rule: str
    title: str
    unit: str
    metric: str
    direction: Literal["max", "min"]
    limit: Number
    old: RuleFigures | None
    new: RuleFigures | None
    change: str


class QuantileShift(EvidenceModel):
    """Quantiles of one per-unit figure on both sides, nats."""

    old: Quantiles
    new: Quantiles


class Cause(EvidenceModel):
    """What may have caused a difference; changed is null where not both reports tell."""

    cause: str
    changed: bool | None
    old: str
    new: str


class Comparison(EvidenceModel):
    """What changed from one report to another."""

    model_config = ConfigDict(serialize_by_alias=True)

    version: Literal["privgate/comparison/v2"] = Field(alias="schema")
    old: ComparedReport
    new: ComparedReport
    summary: str = Field(default="", description="What changed, one sentence.")
    rules: tuple[RuleChange, ...]
    distribution: Mapping[FigureName, QuantileShift]
    causes: tuple[Cause, ...]


SCHEMA: Literal["privgate/report/v2"] = "privgate/report/v2"


class ReportDocument(EvidenceModel):
    """Everything that a report shows; HTML, Markdown and JUnit are rendered from this alone."""

    version: Literal["privgate/report/v2"] = Field(alias="schema")
    privgate: str = Field(description="Version that wrote it.")
    outcome: Outcome
    approved: bool
    observed: bool
    decision: str = Field(description="In a few words: approved, approved for direct queries only, refused, …")
    level: str = Field(pattern="^(DTP-.+)?$", description="Reached level, for example DTP-1; empty if none.")
    exit_code: Literal[0, 1, 5]
    decided_at: str = Field(description="RFC 3339, or empty.")
    expires: str = Field(description="RFC 3339, or empty.")
    waivers: tuple[WaiverRow, ...]
    next_steps: tuple[NextStep, ...]
    subject: SubjectFacts
    context: ContextFacts = ContextFacts()
    policy: PolicyFacts
    findings: tuple[Finding, ...]
    evidence: EvidenceDocument
    units: UnitsSummary | None = Field(description="null where no rule needed the per-person table.")
    comparison: Comparison | None = Field(description="null without a version to compare with.")

    @property
    def decided(self) -> Decision:
        """The decision: every surface prints it."""
        return Decision.from_findings(self.findings, scope=find_scope(self.findings), observed=self.observed)

    @property
    def conditions(self) -> list[Finding]:
        """Findings of what must hold before any figure counts, worst first."""
        return sorted(filter(is_condition, self.findings), key=badness)

    @property
    def rules(self) -> list[Finding]:
        """Findings of rules, worst first, otherwise in the policy's order."""
        return sorted((f for f in self.findings if not is_condition(f)), key=badness)

    @property
    def attacks(self) -> tuple[AttackResult, ...]:
        """All attacks that were tried."""
        return self.evidence.membership.attacks if self.evidence.membership else ()


def is_condition(finding: Finding) -> bool:
    """Whether this is a precondition's finding, not a rule's."""
    return finding.rule.startswith("precondition:")


def badness(finding: Finding) -> int:
    """Return 0 for the worst outcome, larger for better ones."""
    return -finding.outcome.rank


def read(document: Any) -> ReportDocument:
    """Return a report that was read from JSON; ``SubjectError``: it is none of this version, or broken."""
    version = str(document.get("schema") if isinstance(document, Mapping) else f"a {type(document).__name__}")
    wrote = "pass the report.json that privgate wrote"
    if version != SCHEMA and version.startswith(SCHEMA.rpartition("/")[0]):
        raise SubjectError(
            f"another version of privgate wrote this: its schema is {version[:60]!r}, this version reads {SCHEMA!r}; "
            "render it with the version that wrote it, or check the model again"
        )
    if version != SCHEMA:
        raise SubjectError(f"not a report of privgate (schema {version[:60]!r}); {wrote}")
    try:
        report = ReportDocument.model_validate(document)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(str(p) for p in first["loc"])[:120]
        raise SubjectError(f"the report is broken: {place}: {first['msg'][:200]}; {wrote}") from exc
    with strict_json.reading("the report is broken", SubjectError):
        Evidence.from_payload(document["evidence"])
    return report
