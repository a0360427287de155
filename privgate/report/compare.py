"""Two reports side by side: rule by rule, the shift of risk, and which cause changed."""

import math
from collections.abc import Mapping
from typing import Any

from privgate.evidence.verdict import Finding
from privgate.report import assertions, page_one
from privgate.report.people import NAMES
from privgate.report.schema import (
    COMPARISON,
    Cause,
    ComparedReport,
    Comparison,
    Quantile,
    QuantileShift,
    RecipeFacts,
    ReportDocument,
    RuleChange,
    RuleFigures,
    read,
)
from privgate.report.text import plain, say, table


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return what changed from ``old``, the report of the version approved before, to ``new``, as JSON values.

    A change is called better or worse only if the two intervals do not overlap.
    """
    docs = read(old), read(new)
    before, after = ({f.rule: f for f in d.rules} for d in docs)
    # quantiles of each per-unit figure that both reports hold
    mine, other = (d.units.figures if d.units else {} for d in docs)
    sides = [
        ComparedReport(name=d.subject.name, version=d.subject.version, policy=d.policy.name, outcome=d.outcome,
                       decision=d.decided.text, decided_at=d.decided_at)
        for d in docs
    ]  # fmt: skip
    comparison = Comparison(
        schema=COMPARISON,
        old=sides[0],
        new=sides[1],
        rules=tuple(_rule(before.get(name), after.get(name)) for name in dict.fromkeys([*after, *before])),
        distribution={k: QuantileShift(old=mine[k].quantiles, new=other[k].quantiles) for k in mine if k in other},
        causes=tuple(_causes(*docs)),
    )
    return comparison.model_copy(update={"summary": _summary(comparison)}).payload()


def _rule(old: Finding | None, new: Finding | None) -> RuleChange:
    same = {k: getattr(new or old, k) for k in ("rule", "title", "unit", "metric", "direction", "limit")}
    before, now = (f and RuleFigures(**{k: getattr(f, k) for k in RuleFigures.model_fields}) for f in (old, new))
    return RuleChange(**same, old=before, new=now, change=_change(old, new))


def _change(old: Finding | None, new: Finding | None) -> str:
    if old is None or new is None:
        return "new rule" if old is None else "rule removed"
    if old.request != new.request:
        return "not comparable: another measurement"
    a, b = (old.low, old.high), (new.low, new.high)
    if any(math.isnan(x) for x in (*a, *b)):
        return "not comparable: not measured"
    if a == b:
        return "same"
    worse, better = b[0] > a[1], b[1] < a[0]
    if new.direction == "min":
        worse, better = better, worse
    return "worse" if worse else ("better" if better else "no clear change")


def _causes(old: ReportDocument, new: ReportDocument) -> list[Cause]:
    docs = (old, new)
    trained = [plain((d.subject.recipe or RecipeFacts()).trained_by, 120) or "not recorded" for d in docs]
    # the recipe's digest covers sources and parameters
    before, now = (d.subject.digests.get("recipe") for d in docs)
    changed: bool | None = None
    if before is not None and now is not None:
        if before == now:
            changed = False
        elif trained[0] != trained[1] or old.subject.recipe == new.subject.recipe:
            changed = True
        elif trained[1].startswith("sklearn."):  # it changes with its version only, which is the environment's
            changed = False
    causes = [Cause(cause="training code", changed=changed, old=trained[0], new=trained[1])]
    a, b = _identify(old), _identify(new)
    for cause in (cause for cause in _CAUSES if cause in a or cause in b):
        changed = a[cause] != b[cause] if cause in a and cause in b else None
        causes.append(Cause(cause=cause, changed=changed, old=_brief(cause, a, b), new=_brief(cause, b, a)))
    return causes


_CAUSES = ("training data", "hyperparameters", "seed", "differential-privacy claim", "release", "environment", "policy")


def _identify(doc: ReportDocument) -> dict[str, Any]:
    """Return what identifies each cause, as far as the report says; a recipe without seed or claim says null."""
    s, recipe, trace = doc.subject, doc.subject.recipe, doc.evidence.run.trace
    facts: dict[str, Any] = {"training data": s.digests.get("data"), "release": s.release.model_dump()}
    facts |= {"environment": trace and trace.versions, "policy": doc.policy.digest}
    known = {cause: value for cause, value in facts.items() if value}
    if recipe is not None:
        known |= {"hyperparameters": recipe.settings, "seed": recipe.seed}
        known |= {"differential-privacy claim": recipe.dp and recipe.dp.model_dump()}
    return known


def _brief(cause: str, mine: Mapping[str, Any], other: Mapping[str, Any]) -> str:
    """Return one side of a cause in few words: of two mappings only where they differ."""
    if (value := mine.get(cause)) is None:
        return "none" if cause in mine else "not recorded"
    if isinstance(value, Mapping):
        before = other.get(cause) or {}
        changes = {k: v for k, v in value.items() if k not in before or before[k] != v} or value
        return plain(", ".join(f"{k} = {v}" for k, v in changes.items()), 160) or "none"
    return page_one.short(value)


def _summary(comparison: Comparison) -> str:
    old, new = comparison.old, comparison.new
    version = f"Against version {plain(old.version, 20)} ({old.decision})"
    changed = [c.cause for c in comparison.causes if c.changed]
    unknown = [c.cause for c in comparison.causes if c.changed is None]
    sentence = f"{', '.join(changed)} changed" if changed else "no recorded cause changed"
    if unknown:
        sentence += f"; not recorded for both: {', '.join(unknown)}"
    by = {k: [plain(r.title or r.rule, 60) for r in comparison.rules if r.change == k] for k in ("worse", "better")}
    ends = [f"{k}: {', '.join(v)}" for k, v in by.items() if v] or ["no rule clearly better or worse"]
    moved = "" if old.outcome is new.outcome else f" The decision went from {old.decision} to {new.decision}."
    return f"{version}: {sentence}; {'; '.join(ends)}.{moved}"


def name_both(comparison: Comparison) -> str:
    """Return what is compared with what."""
    return f"{page_one.subject(comparison.new)} against {page_one.subject(comparison.old)}"


_QUANTILES: Mapping[Quantile, str] = {
    "0.5": "half are below", "0.9": "90 % are below", "0.99": "99 % are below", "1.0": "the worst",
}  # fmt: skip


def lay_out(comparison: Comparison) -> dict[str, Any]:
    """Return a comparison's summary and its tables: causes, rules, shift of the distribution."""
    old, new = _name_sides(comparison.old, comparison.new)
    changed = {True: "changed", False: "same", None: "not known"}
    causes = [(c.cause, changed[c.changed], c.old, c.new) for c in comparison.causes]
    rules = [(assertions.title(r), _result(r, r.old), _result(r, r.new), assertions.limit(r), r.change)
             for r in comparison.rules]  # fmt: skip
    shifts = [
        (f"{NAMES[name]}: {label}", pair.old[q], pair.new[q])
        for name, pair in comparison.distribution.items()
        # the largest change seen is often the direct one: its rows are then said once
        if name != "dtp_lower" or pair != comparison.distribution.get("pdtp")
        for q, label in _QUANTILES.items()
    ]
    tables = [
        table("What may have caused the difference", ("Cause", "Changed", old, new), causes),
        table("Rule by rule", ("Rule", old, new, "Limit now", "Change"), rules),
        table("How influence shifted, nats", ("People", old, new), shifts),
    ]
    return {"summary": plain(comparison.summary), "tables": [tables[0], *(t for t in tables[1:] if t.rows)]}


def _name_sides(old: ComparedReport, new: ComparedReport) -> tuple[str, str]:
    before, now = (f"version {plain(s.version, 20)}" if s.version else "" for s in (old, new))
    if old.name != new.name:
        before, now = (f"{plain(s.name, 30)} {v}".strip() for s, v in ((old, before), (new, now)))
    return (before or "before", now or "now") if before != now else (f"{before} before".strip(), f"{now} now".strip())


def _result(rule: RuleChange, figures: RuleFigures | None) -> str:
    if figures is None:
        return "no such rule"
    interval = assertions.interval(figures, assertions.shown_unit(rule), rule.direction)
    return f"{say(f'result.{figures.outcome}')}: {interval}"
