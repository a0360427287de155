"""The policy as it is judged: resolved, frozen, named by digest; and what it means in plain words."""

from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from dataclasses import replace
from datetime import UTC, date, datetime
from functools import cached_property
from pathlib import Path
from typing import Any, Self

from pydantic import PrivateAttr

from privgate import digest
from privgate.arrays import Compute, compute_here
from privgate.controls import suites
from privgate.controls.suites import Data
from privgate.errors import settled
from privgate.evidence import Evidence, Precondition
from privgate.evidence.verdict import Finding
from privgate.policy import problems, read
from privgate.policy.document_shape import Document
from privgate.policy.judging import Judged, judge
from privgate.policy.problems import Mark, PolicyFileError
from privgate.policy.rules.metric import QUESTIONS
from privgate.policy.rules.rule_base import Rule

Confirm = Callable[[Sequence[Finding]], Sequence[Finding]]


class Policy(Document):
    """A policy file with everything it extends; ``Policy.load`` is the door: it is never built from anything else."""

    _source: read.Resolved[Self] = PrivateAttr()

    @classmethod
    def load(cls, name_or_path: str | Path) -> Self:
        """Return a shipped policy by name, or a policy file: what contains a separator or ends in .yaml or .yml.

        ``PolicyError``: the file cannot be used; the message names line, column, key and what was expected.
        """
        path = problems.find(name_or_path)
        source = read.resolve(path, str(name_or_path) if path == Path(name_or_path) else path.name, cls)
        policy = source.document
        policy._source = source  # noqa: SLF001  its own class
        if why := policy.powerless({}):
            raise PolicyFileError(source.tree.problem(("rules",), why, "a limit that a measurement can break"))
        return policy

    @property
    def path(self) -> Path:
        """The file."""
        return self._source.files[0]

    @property
    def files(self) -> tuple[Path, ...]:
        """Every file that the policy rests on: its own, what it extends, and the suites that they name."""
        return self._source.files

    @property
    def suites(self) -> Mapping[str, str]:
        """``file@sha256:<digest> -> JSON text`` of every Great Expectations suite that the policy names."""
        return self._source.suites

    def mark_of(self, *place: str | int) -> Mark | None:
        """Return the place that a value comes from; None where it is a default."""
        return self._source.tree.marks.get(place)

    @cached_property
    def resolved(self) -> dict[str, Any]:
        """JSON values of the policy with everything it extends and every default written out."""
        said = self.model_dump(mode="json", by_alias=True)
        # what says nothing changes no digest
        if not self.data.people_declared:
            del said["data"]["people_declared"]
        for key, nothing in (("approves", ""), ("file", "downloadable")):
            if said[key] == nothing:
                del said[key]
        said["rules"] = [
            {k: v for k, v in r.items() if v or k not in ("when", "either", "over", "level")} for r in said["rules"]
        ]
        # of a key that went; digests of before stay
        every = [{"models": ["*"], "aliases": ["*"]}]
        return {**said, "extends": list(self._source.chain), "applies_to": every}

    @cached_property
    def digest(self) -> str:
        """Digest of the resolved policy: the same wherever it is stored."""
        return digest.of_json(self.resolved)

    def asked_of(self, holds: Collection[str]) -> Self:
        """Return the policy with those rules alone that are asked of a model of which ``holds`` holds."""
        return self.model_copy(update={"rules": tuple(r for r in self.rules if not r.unasked(holds))})

    def check_data(self, data: Data, compute: Compute = compute_here) -> list[Precondition]:
        """Return what the policy demands of the data; ``PolicyError``: an expectation or its arguments are unknown."""
        least = self.data.min_rows
        conditions = []
        if least > 1:
            enough = data.n >= least
            text = f"{data.n} records, at least {least} are asked for"
            conditions.append(Precondition("min_rows", "passed" if enough else "failed", text, {"rows": data.n}))
        for name in self.data.suite:
            file = name.partition("@")[0]
            suite = suites.parse(self.suites[name], file)
            conditions.append(suites.check(data, suite, compute, file=file, min_rows=least))
        return conditions

    def judge(self, evidence: Evidence, *, today: date | None = None, confirm: Confirm | None = None) -> Judged:
        """Return the findings, what became of every waiver, and until when an approval would hold.

        Waivers are those of ``today``, in UTC if absent. ``confirm`` looks at the findings once more, before those that
        answer one question are put together.
        """
        facts = {key: int(evidence.subject.get(key) or 0) for key in ("n_units", "n_records")}
        judged = judge(self, evidence, facts=facts, today=today or datetime.now(UTC).date())
        findings = judged.findings if confirm is None else confirm(judged.findings)
        return replace(judged, findings=tuple(settled(findings, self.groups)))


#: keys of every rule that explanations leave out, and those that they tell only where a file sets them
_QUIET, _USUAL = ("metric", "id", "reason", "source"), ("mode", "bound", "required")


def explain(policy: Policy) -> Iterator[str]:
    """Yield lines of text about a policy, then about each of its rules."""
    yield f"{policy.name} version {policy.version}"
    yield from (f"  {' '.join(text.split())}" for text in (policy.description, policy.approves) if text)
    yield from (f"  extends {base}" for base in policy.resolved["extends"])
    yield f"  digest {policy.digest}"
    yield f"  {questions(policy)}"
    yield f"  an approval lasts {policy.valid_days} days"
    if policy.file != "downloadable":
        yield f"  the file is {policy.file}: rules about it warn at most, and the policy's owner answers for that"
    for key, field in type(policy.audit).model_fields.items():
        value = getattr(policy.audit, key)
        if value != field.default:
            yield f"  audit.{key} = {value}  ({_where(policy, 'audit', key)}); less is undecided"
    for waiver in policy.waivers:
        yield (
            f"  waiver {waiver.key}: up to {waiver.ceiling:g} until {waiver.expires}, {waiver.reason} "
            f"(asked by {waiver.requester}, approved by {waiver.approver})"
        )
    for rule in policy.rules:
        yield ""
        yield from _rule(policy, rule)


def _where(policy: Policy, *place: str | int) -> str:
    mark = policy.mark_of(*place)
    return f"{mark.file}:{mark.line}" if mark else "inherited"


def questions(policy: Policy) -> str:
    """Return which questions of a release a policy enforces, and which it does not ask."""
    enforced = {r.about.question for r in policy.rules if r.mode == "enforce"}
    ours = ", ".join(QUESTIONS[q] for q in QUESTIONS if q in enforced) or "none of the questions of a release"
    others = ", ".join(QUESTIONS[q] for q in QUESTIONS if q not in enforced)
    return f"asks about {ours}{others and f'; does not ask about {others}'}"


def _rule(policy: Policy, rule: Rule) -> Iterator[str]:
    yield f"{rule.name}: {rule.about.title}"
    yield f"  {rule.purpose()}"
    yield f"  {rule.outcomes()}"
    yield f"  the metric reaches from {rule.about.reaches}"
    if why := rule.vacuous({}):
        yield f"  CANNOT REFUSE: {why}; it counts for nothing"
    for key, field in type(rule).model_fields.items():
        value = getattr(rule, key)
        if key in _QUIET or value is None or (key in _USUAL and value == field.default):
            continue
        where = _where(policy, "rules", policy.rules.index(rule), key)
        shown = "default" if where == "inherited" and value == field.default else where
        yield f"  {key} = {str(value).partition('@')[0]}  ({shown})  {field.description or ''}".rstrip()
    for key in ("reason", "source"):
        if text := " ".join(getattr(rule, key).split()):
            yield f"  {key}: {text}"
    if rule.name in policy.never_waivable:
        yield "  may never be waived"
