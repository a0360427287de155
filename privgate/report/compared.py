"""What changed from one report to another: a document of its own, and a part of the report's."""

from collections.abc import Mapping
from typing import Literal

from pydantic import ConfigDict, Field

from privgate.evidence.values import EvidenceModel, Number
from privgate.report.unit_figures import FigureName, Quantiles
from privgate.verdict import Outcome

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
