"""Tests of a policy without training, and what two versions of a policy would decide differently."""

import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import UTC, date, datetime
from pathlib import Path
from typing import Annotated, Any, Literal, Self

from pydantic import Field, ValidationError, model_validator

from privgate.documents import LARGE, strict_json
from privgate.errors import UsageError
from privgate.evidence import (
    BehindClaim,
    BehindInfluence,
    BehindMembership,
    Evidence,
    Measurement,
    Precondition,
    RunPart,
    SeedControl,
)
from privgate.evidence.verdict import Verdict
from privgate.policy.problems import read
from privgate.policy.resolved_policy import Policy
from privgate.policy.rules.rule_base import Part

Word = Literal["passed", "warned", "inconclusive", "failed"]


class Number(Part):
    """A measurement, as short as it can be written; ``value`` alone stands for an exact number."""

    value: float | None = None
    low: float | Literal["-inf"] | None = None
    high: float | Literal["inf"] | None = None
    kind: Literal["exact", "bound", "confidence", "point", "search"] = "exact"
    n: int = 1000
    population: int = 1000
    problem: str = ""
    applicable: bool = True
    behind: BehindInfluence | BehindMembership | BehindClaim | None = None


class Expected(Part):
    """The verdict that must come out; rules that are not named may end anyhow."""

    outcome: Word
    rules: dict[str, Word] = Field(default_factory=dict)


class Case(Part):
    """One case: ``evidence`` is a report.json or a payload, ``measurements`` are numbers by rule id.

    Enough effort stands behind these numbers unless the case says otherwise.
    """

    name: str
    evidence: str | None = None
    measurements: dict[str, Number] = Field(default_factory=dict)
    preconditions: dict[str, Word] = Field(default_factory=dict)
    subject: dict[str, Any] = Field(default_factory=dict)
    run: RunPart = Field(default_factory=RunPart)
    today: date | None = None
    expect: Expected

    @model_validator(mode="after")
    def _one_kind_of_evidence(self) -> Self:
        if (self.evidence is None) == (not self.measurements):
            raise ValueError("a case needs either 'evidence' (a file) or 'measurements' (numbers by rule)")
        return self


class Cases(Part):
    """A file of cases."""

    schema_: Literal["privgate/policy-test/v1"] = Field(alias="schema")
    cases: Annotated[tuple[Case, ...], Field(min_length=1)]


@dataclass(frozen=True, slots=True)
class Result:
    """What became of one case; ``wrong`` is empty if it came out as expected."""

    name: str
    wrong: tuple[str, ...]


def run(policy: Policy, path: Path) -> list[Result]:
    """Return one result a case of a file; ``UsageError``: the file, or evidence that it names, cannot be used."""
    tree = read(path)
    try:
        cases = Cases.model_validate_json(json.dumps(tree.value)).cases
    except ValidationError as exc:
        first = exc.errors(include_url=False)[0]
        raise UsageError(str(tree.problem(first["loc"], first["msg"].removeprefix("Value error, ")))) from exc
    return [_judged(policy, case, path.parent) for case in cases]


def load_evidence(path: Path) -> Evidence:
    """Return the evidence of a report.json, or of an evidence payload; without its per-person table.

    ``UsageError``: it cannot be read.
    """
    try:
        document = strict_json.read(path, LARGE)
        return Evidence.from_payload(document["evidence"] if "findings" in document else document)
    except OSError as exc:
        raise UsageError(f"{path}: cannot be read: {exc.strerror}") from exc
    except strict_json.GARBLED as exc:
        raise UsageError(f"{path}: is neither a report.json nor evidence: {strict_json.why(exc)}") from exc


def verdict(policy: Policy, evidence: Evidence, today: date | None = None) -> Verdict:
    """Return the verdict of a policy on evidence that is already there."""
    return Verdict({"name": policy.name}, policy.judge(evidence, today=today).findings, evidence)


def _judged(policy: Policy, case: Case, folder: Path) -> Result:
    evidence = load_evidence(folder / case.evidence) if case.evidence else _build_evidence(policy, case)
    reached = verdict(policy, evidence, case.today or datetime.now(UTC).date())
    wrong = []
    if reached.outcome != case.expect.outcome:
        wrong.append(f"expected {case.expect.outcome}, got {reached.outcome}")
    findings = {f.rule: f for f in reached.findings}
    for rule, expected in case.expect.rules.items():
        if (finding := findings.get(rule)) is None:
            wrong.append(f"{rule}: no such rule; there are {', '.join(findings)}")
        elif finding.outcome != expected:
            wrong.append(f"{rule}: expected {expected}, got {finding.outcome}: {finding.message}")
    return Result(case.name, tuple(wrong))


def _build_evidence(policy: Policy, case: Case) -> Evidence:
    rules = {rule.name: rule for rule in policy.rules}
    measurements = {}
    for name, number in case.measurements.items():
        if name not in rules:
            raise UsageError(f"case {case.name!r}: no rule is called {name!r}; there are {', '.join(rules)}")
        request = rules[name].request()
        low, high, value = number.low, number.high, number.value
        ends = (_first(value, low, high), _first(low, value), _first(high, value))
        measurements[request] = Measurement(
            request, *ends, **{k: v for k, v in number if k not in ("low", "high", "value")}
        )
    before = tuple(Precondition(name, outcome, "given by the test") for name, outcome in case.preconditions.items())
    subject: Mapping[str, Any] = {"name": "test", "version": "1", "digests": {}, "n_candidates": 10**6, **case.subject}
    enough = {} if case.run.seeds is not None else {"seeds": SeedControl(dependent=False, compared=10**6)}
    return Evidence(subject, before, measurements, run=case.run.model_copy(update=enough))


def _first(*values: float | str | None) -> float:
    """Return the first number that was given, NaN where none was."""
    return next((float(v) for v in values if v is not None), float("nan"))


@dataclass(frozen=True, slots=True)
class Change:
    """The outcome of a past report under both policies, and the findings that differ, one sentence each."""

    report: str
    old: str
    new: str
    why: tuple[str, ...]

    @property
    def changed(self) -> bool:
        """Whether the outcome differs."""
        return self.old != self.new


def settings(old: Policy, new: Policy) -> Iterator[str]:
    """Yield one line for each rule or setting that differs."""
    mine, theirs = ({r.name: r for r in p.rules} for p in (old, new))
    for name in {**mine, **theirs}:
        if name not in theirs:
            yield f"rule {name}: removed"
        elif name not in mine:
            yield f"rule {name}: added"
        else:
            yield from _keys(f"rule {name}", mine[name].model_dump(), theirs[name].model_dump())
    for part in ("audit", "data"):
        yield from _keys(part, getattr(old, part).model_dump(), getattr(new, part).model_dump())
    named = ("applies_to", "valid_days", "never_waivable")
    before, after = ({**{k: p.resolved[k] for k in named}, "file": p.file} for p in (old, new))
    yield from _keys("policy", before, after)
    kept, now = ({w.key: w for w in p.waivers} for p in (old, new))
    yield from (f"waiver {k}: removed" for k in kept if k not in now)
    yield from (f"waiver {k}: added" for k in now if k not in kept)
    yield from (f"waiver {k}: changed" for k in now if k in kept and kept[k] != now[k])


def verdicts(old: Policy, new: Policy, reports: list[Path], today: date) -> Iterator[Change]:
    """Yield what each past report's evidence gives under both policies; nothing is measured again.

    What the new policy asks for and the past run did not measure is inconclusive, and says so.
    """
    for path in reports:
        evidence = load_evidence(path)
        before, after = (verdict(p, evidence, today) for p in (old, new))
        was = {f.rule: f for f in before.findings}
        why = [
            f"{f.rule}: {was[f.rule].outcome if f.rule in was else 'not asked'} -> {f.outcome}: {f.message}"
            for f in after.findings
            if f.rule not in was or was[f.rule].outcome != f.outcome
        ]
        named = {f.rule for f in after.findings}
        why += [f"{name}: {f.outcome} -> not asked" for name, f in was.items() if name not in named]
        yield Change(str(path), before.outcome, after.outcome, tuple(why))


def _keys(where: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key) and key not in ("reason", "source"):
            yield f"{where}: {key}: {old.get(key)!r} -> {new.get(key)!r}"
