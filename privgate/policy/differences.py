"""What two policies decide differently of models that were checked already; nothing is measured again."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from privgate.documents import LARGE, strict_json
from privgate.errors import UsageError
from privgate.evidence import Evidence
from privgate.evidence.verdict import Verdict
from privgate.policy.resolved_policy import Policy


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
        before, after = (Verdict({}, p.judge(evidence, today=today).findings, evidence) for p in (old, new))
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
