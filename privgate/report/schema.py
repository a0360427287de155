"""The report document: what ``report.json`` holds, typed; its JSON Schema is generated from these models."""

import json
from collections.abc import Mapping
from typing import Any, Literal, TypeVar

from pydantic import Field, ValidationError
from pydantic.json_schema import GenerateJsonSchema

from privgate.errors import SubjectError
from privgate.evidence import EvidenceDocument, NextStep
from privgate.evidence.values import EvidenceModel
from privgate.report.compared import COMPARISON, Comparison
from privgate.report.facts import ContextFacts, PolicyFacts, SubjectFacts, WaiverRow
from privgate.report.unit_figures import UnitsSummary
from privgate.verdict import Finding, Outcome

T = TypeVar("T", bound=EvidenceModel)
SCHEMA: Literal["privgate/report/v2"] = "privgate/report/v2"


class ReportDocument(EvidenceModel):
    """Everything that a report shows; HTML, Markdown and JUnit are rendered from this alone."""

    version: Literal["privgate/report/v2"] = Field(alias="schema")
    privgate: str = Field(description="Version that wrote it.")
    outcome: Outcome
    approved: bool
    observed: bool
    decision: str = Field(description="In a few words: approved, approved for direct queries only, blocked, …")
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
    units: UnitsSummary | None = Field(description="null where no rule needed the per-unit table.")
    comparison: Comparison | None = Field(description="null without a version to compare with.")


def read(document: Any) -> ReportDocument:
    """Return a report that was read from JSON.

    Raises
    ------
    SubjectError
        It is no report, another version of privgate wrote it, or a value is missing or of the wrong kind.
    """
    _known(document, SCHEMA, "a report")
    return _checked(ReportDocument, document)


def read_comparison(document: Any) -> Comparison:
    """Return a comparison that was read from JSON; raises as ``read`` does."""
    _known(document, COMPARISON, "a comparison")
    return _checked(Comparison, document)


def _known(document: Any, schema: str, what: str) -> None:
    found = document.get("schema") if isinstance(document, Mapping) else f"a {type(document).__name__}"
    if found == schema:
        return
    if isinstance(found, str) and found.startswith(schema.rpartition("/")[0]):
        raise SubjectError(
            f"another version of privgate wrote this: its schema is {found[:60]!r}, this version reads {schema!r}; "
            "render it with the version that wrote it, or check the model again"
        )
    raise SubjectError(f"not {what} of privgate (schema {str(found)[:60]!r}); pass the report.json that privgate wrote")


def _checked(model: type[T], document: Any) -> T:
    try:
        return model.model_validate(document)
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        place = ".".join(str(p) for p in first["loc"])[:120]
        raise SubjectError(
            f"the report is broken: {place}: {first['msg'][:200]}; pass the report.json that privgate wrote"
        ) from exc


class _Untitled(GenerateJsonSchema):
    """A schema without the titles that only repeat the names of fields."""

    def field_title_should_be_set(self, schema: Any) -> bool:
        del schema
        return False


def generate() -> str:
    """Return the JSON Schema of ``report.json``, one definition a line: ``privgate/schemas/report-v2.json``."""
    told = ReportDocument.model_json_schema(mode="serialization", schema_generator=_Untitled)
    defined = ",\n".join(f"  {json.dumps(name)}: {json.dumps(told['$defs'][name])}" for name in sorted(told["$defs"]))
    rest = ",\n".join(f" {json.dumps(key)}: {json.dumps(value)}" for key, value in told.items() if key != "$defs")
    head = ' "$schema": "https://json-schema.org/draft/2020-12/schema",\n "$id": "urn:privgate:schema:report:v2"'
    return f'{{\n{head},\n{rest},\n "$defs": {{\n{defined}\n }}\n}}\n'
