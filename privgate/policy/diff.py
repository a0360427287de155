"""Two versions of a policy: what they ask for differently, and which past verdicts would change."""

from collections.abc import Iterator
from dataclasses import dataclass
from datetime import date
from pathlib import Path
from typing import Any

from privgate.policy import fixtures
from privgate.policy.policy import Policy


@dataclass(frozen=True, slots=True)
class Change:
    """A past verdict under both policies.

    Parameters
    ----------
    report : str
        File of the report.
    old, new : str
        Outcomes.
    why : tuple of str
        Findings that differ, one sentence each.
    """

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
    for name in [*mine, *(n for n in theirs if n not in mine)]:
        if name not in theirs:
            yield f"rule {name}: removed"
        elif name not in mine:
            yield f"rule {name}: added"
        else:
            yield from _keys(f"rule {name}", mine[name].model_dump(), theirs[name].model_dump())
    for part in ("audit", "data"):
        yield from _keys(part, getattr(old, part).model_dump(), getattr(new, part).model_dump())
    before, after = ({k: p.resolved[k] for k in ("applies_to", "valid_days", "never_waivable")} for p in (old, new))
    before, after = {**before, "file": old.file}, {**after, "file": new.file}
    yield from _keys("policy", before, after)
    kept = {w.key: w for w in old.waivers}
    now = {w.key: w for w in new.waivers}
    yield from (f"waiver {k}: removed" for k in kept if k not in now)
    yield from (f"waiver {k}: added" for k in now if k not in kept)
    yield from (f"waiver {k}: changed" for k in now if k in kept and kept[k] != now[k])


def verdicts(old: Policy, new: Policy, reports: list[Path], today: date) -> Iterator[Change]:
    """Yield what each past report's evidence gives under both policies; nothing is measured again.

    What the new policy asks for and the past run did not measure is inconclusive, and says so.
    """
    for path in reports:
        evidence = fixtures.load_evidence(path)
        before, after = (fixtures.verdict(p, evidence, today) for p in (old, new))
        was = {f.rule: f for f in before.findings}
        why = [
            f"{f.rule}: {was[f.rule].outcome.value if f.rule in was else 'not asked'} -> {f.outcome.value}: {f.message}"
            for f in after.findings
            if f.rule not in was or was[f.rule].outcome != f.outcome
        ]
        why += [f"{name}: {f.outcome.value} -> not asked" for name, f in was.items() if name not in _names(after)]
        yield Change(str(path), before.outcome.value, after.outcome.value, tuple(why))


def _names(found: Any) -> set[str]:
    return {f.rule for f in found.findings}


def _keys(where: str, old: dict[str, Any], new: dict[str, Any]) -> Iterator[str]:
    for key in dict.fromkeys([*old, *new]):
        if old.get(key) != new.get(key) and key not in ("reason", "source"):
            yield f"{where}: {key}: {old.get(key)!r} -> {new.get(key)!r}"
