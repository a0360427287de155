"""The verdict: findings and the worst of them."""

import math
import re
import sys
from collections.abc import Callable, Iterable, Mapping
from dataclasses import asdict, dataclass, field, replace
from os import PathLike
from pathlib import Path
from typing import Annotated, Any, ClassVar, Self

from pydantic import Field

from privgate.errors import ExitCode, Outcome, approves, together, worst
from privgate.evidence.measurement import Evidence
from privgate.evidence.telling import Number, encode

__all__ = ["Finding", "Outcome", "Verdict", "together", "worst"]


@dataclass(frozen=True, slots=True)
class Finding:
    """One rule's, or one precondition's, outcome on one subject; a number that it has none of is NaN."""

    #: or ``precondition:<name>``
    rule: Annotated[str, Field(description="The rule's id in the policy, or the name of a condition.")]
    title: str
    outcome: Annotated[Outcome, Field(description="After mode and waiver were applied.")]
    message: Annotated[str, Field(description="What was measured against which limit, one sentence.")]
    meaning: Annotated[str, Field(description="What that means for a person in the data, in plain words.")] = ""
    advice: Annotated[str, Field(description="What would change the outcome; empty if approved.")] = ""
    metric: str = ""
    value: Number = float("nan")
    low: Number = float("nan")
    high: Number = float("nan")
    limit: Number = float("nan")
    direction: Annotated[str, Field(description="What the limit is: max or min.")] = "max"
    unit: str = ""
    request: Annotated[str, Field(description="Key of the measurement.")] = ""
    mode: Annotated[str, Field(description="enforce, or warn: it can at worst be warned.")] = "enforce"
    waiver: Annotated[str, Field(description="Why a failed finding counts as warned; empty if not waived.")] = ""
    line: Annotated[int, Field(description="Of the rule in the policy file; 0 if unknown.")] = 0
    applies: Annotated[bool, Field(description="false: not required, and about another kind of model.")] = True

    def payload(self) -> dict[str, Any]:
        """Return JSON values; infinities and NaN become text."""
        return {k: encode(v) for k, v in asdict(self).items()}

    @property
    def suffix(self) -> str:
        """What a figure's name ends with where names stand alone: a share or a quantile is no largest value.

        >>> Finding("pdtp", "", Outcome.PASSED, "", request="pdtp(aggregate=share_above, threshold=1.0)").suffix
        '_share_above'
        """
        match = re.search(r"[( ](?:aggregate=(share_above|quantile)|of=(share))[,)]", self.request)
        return f"_{match[1] or match[2]}" if match else ""


#: of which questions an approval speaks: all that rules ask, those at or near people's own records, those at them alone
SCOPES = ("", "beside", "direct")


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided: page, terminal, tag, metrics and summaries print these four facts, and decide nothing."""

    outcome: Outcome
    #: of ``SCOPES``
    scope: str
    #: rules and conditions that warn, waived ones among them
    warnings: int
    #: nothing was enforced
    observed: bool

    @classmethod
    def from_findings(cls, findings: Iterable[Finding], *, scope: str, observed: bool) -> Self:
        """Return the decision on findings; only an approval has a scope and warnings."""
        judged = list(findings)
        outcome = together(judged)
        warnings = sum(f.outcome is Outcome.WARNED for f in judged)
        return cls(outcome, scope, warnings, observed) if outcome.releases else cls(outcome, "", 0, observed)

    @property
    def text(self) -> str:
        """The decision in one line, lower case: outcome, scope, warnings, and whether it is enforced."""
        said = Outcome.PASSED.word if self.outcome.releases else self.outcome.word
        if self.scope:
            said += f" for questions {'about' if self.scope == 'direct' else 'at or beside'} a person's own record only"
        if self.warnings:
            said += f", with {self.warnings} warning{'s' if self.warnings > 1 else ''}"
        return f"observed only, nothing enforced (the rules would say {said})" if self.observed else said


@dataclass(frozen=True, eq=False, repr=False)
class Verdict:
    """What was decided, and everything it rests on.

    ``policy`` holds its name, version, digest, path and resolved source. ``findings`` are preconditions first, then one
    a rule. ``observed``: the operator only observes, so nothing is signed as approved, nothing promoted. ``detail`` has
    JSON values added after judging: decided_at, expires, waivers listed, comparison.
    """

    policy: Mapping[str, Any]
    findings: tuple[Finding, ...]
    evidence: Evidence
    observed: bool = False
    detail: Mapping[str, Any] = field(default_factory=dict)

    #: what writes and draws a verdict lies on floors above; the package root hangs it in here (privgate/__init__.py)
    doors: ClassVar[dict[str, Callable[..., Any]]] = {}

    def __repr__(self) -> str:
        """Return one line: outcome, about what, by which policy, and what decided."""
        about = self.evidence.subject
        what = f"{about.get('name') or 'local model'} {about.get('version') or ''}".strip()
        decided = [f.rule for f in self.findings if f.outcome is self.outcome]
        named = ", ".join(decided[:3]) + (f" and {len(decided) - 3} more" if len(decided) > 3 else "")
        by = self.policy.get("name", "?")
        return f"<Verdict {self.decision.text}: {what} by policy {by}; {named or 'no rule was judged'}>"

    def _repr_html_(self) -> str:
        """Return what a notebook shows: one row a rule, and one a condition that does not hold."""
        return str(self._door("overview")(self))

    def report(self, path: str | PathLike[str], **stated: Any) -> list[Path]:
        """Write the report and return the files: a page where ``path`` ends in .html, else a folder with every format.

        ``stated`` is what page one says (``purpose``, ``owner``, ``data_name``, ``data_source``), and ``hash_key`` and
        ``baseline`` as in ``privgate.report.write``.
        """
        return list(self._door("report")(self, path, **stated))

    def plot(self) -> Any:
        """Return a drawing of how much each person's record matters; ``MeasurementError``: nobody was measured."""
        return self._door("plot")(self)

    def _door(self, name: str) -> Callable[..., Any]:
        if name not in self.doors:
            _ = sys.modules["privgate"].Verdict  # the package root hangs the doors in when it is asked for this name
        return self.doors[name]

    @property
    def outcome(self) -> Outcome:
        """The worst finding; no rules judged is inconclusive."""
        return together(self.findings)

    @property
    def decision(self) -> Decision:
        """What every surface shows: outcome, scope, warnings, and whether it is enforced."""
        return Decision.from_findings(self.findings, scope=str(self.detail.get("scope", "")), observed=self.observed)

    @property
    def limits(self) -> dict[str, list[float]]:
        """Request -> limits of the rules that judge it: what is told of a number lies on their side of them."""
        limits: dict[str, list[float]] = {}
        for f in self.findings:
            limits.setdefault(f.request, []).append(float(f.limit))
        return limits

    def said(self, f: Finding) -> Finding:
        """Return a finding with its figures as they may be told; NaN where nothing says of how many people they are."""
        measurement = next((m for m in self.evidence.measurements.values() if m.request.key == f.request), None)
        if measurement is None:
            return f if f.unit == "nats" else replace(f, value=math.nan, low=math.nan, high=math.nan)
        own = replace(measurement, value=f.value, low=f.low, high=f.high).against(*self.limits[f.request]).shown
        return replace(f, value=own.value, low=own.low, high=own.high)

    def shown_values(self) -> dict[str, Any]:
        """Return findings and evidence as JSON values that may be told."""
        audit = dict((self.policy.get("source") or {}).get("audit") or {})
        least = math.ceil((audit.get("min_coverage") or 0) * int(self.evidence.subject.get("n_units") or 0))
        # by either rounding of the product
        floors = [*(v for v in audit.values() if isinstance(v, int)), least - 1, least]
        findings = [self.said(f).payload() for f in self.findings]
        return {"findings": findings, "evidence": self.evidence.payload(floors, self.limits)}

    @property
    def approved(self) -> bool:
        """Whether the model may be promoted on this verdict."""
        return approves(self.findings, observed=self.observed)

    @property
    def exit_code(self) -> ExitCode:
        """0 approved or only observed, 1 blocked, 5 inconclusive."""
        if self.observed or self.outcome.releases:
            return ExitCode.PASSED
        return ExitCode.FAILED if self.outcome is Outcome.FAILED else ExitCode.INCONCLUSIVE

    @property
    def records(self) -> Any:
        """The per-person table as a DataFrame, one row a unit in the data's order."""
        import pandas as pd

        return pd.DataFrame(dict(self.evidence.records))
