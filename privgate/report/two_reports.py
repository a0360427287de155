"""Two reports side by side: rule by rule, the shift of risk, and which cause changed."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

from privgate.evidence.figures import number
from privgate.report import assertions, charts, page_one, words
from privgate.report.blocks import Block, Chart, Section, TableBlock, Text, numbers
from privgate.report.report_schema import (
    COMPARISON,
    Cause,
    ComparedReport,
    Comparison,
    QuantileShift,
    RecipeFacts,
    ReportDocument,
    RuleChange,
    RuleFigures,
    read,
)
from privgate.report.sentences import say
from privgate.report.text import plain
from privgate.report.unit_rows import FigureName, Quantile
from privgate.report.unit_section import NAMES
from privgate.verdict import Finding


def compare(old: Mapping[str, Any], new: Mapping[str, Any]) -> dict[str, Any]:
    """Return what changed from one report to another, as JSON values.

    Parameters
    ----------
    old, new : mapping
        Documents of ``document`` or ``report.json``; ``old`` is the version approved before.

    Returns
    -------
    dict
        ``schema``, ``old``, ``new``, ``summary``, ``rules``, ``distribution``, ``causes``; ``render`` shows it.
        A change is called better or worse only if the two intervals do not overlap.

    Raises
    ------
    SubjectError
        One of them is no report that this version reads.
    """
    a, b = read(old), read(new)
    before, after = ({f.rule: f for f in words.rules(d)} for d in (a, b))
    # quantiles of each per-unit figure that both reports hold
    mine, other = (d.units.figures if d.units else {} for d in (a, b))
    found = Comparison(
        schema=COMPARISON,
        old=_named(a),
        new=_named(b),
        rules=tuple(_rule(before.get(name), after.get(name)) for name in dict.fromkeys([*after, *before])),
        distribution={k: QuantileShift(old=mine[k].quantiles, new=other[k].quantiles) for k in mine if k in other},
        causes=tuple(_causes(a, b)),
    )
    return found.model_copy(update={"summary": _summary(found)}).payload()


def _named(doc: ReportDocument) -> ComparedReport:
    subject = {"name": doc.subject.name, "version": doc.subject.version, "policy": doc.policy.name}
    return ComparedReport(**subject, outcome=doc.outcome, decision=words.decide(doc).text, decided_at=doc.decided_at)


def _rule(old: Finding | None, new: Finding | None) -> RuleChange:
    told = {k: getattr(new or old, k) for k in ("rule", "title", "unit", "metric", "direction", "limit")}
    before, after = (
        f and RuleFigures(value=f.value, low=f.low, high=f.high, outcome=f.outcome, limit=f.limit) for f in (old, new)
    )
    return RuleChange(**told, old=before, new=after, change=_change(old, new))


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
    code = _code(old, new)
    found = [Cause(cause="training code", changed=code, old=_training(old), new=_training(new))]
    for label, key in _CAUSES:
        a, b = _cause(old, key), _cause(new, key)
        if a is not None or b is not None:
            changed = None if a is None or b is None else a != b
            found.append(Cause(cause=label, changed=changed, old=_brief(a, b), new=_brief(b, a)))
    return found


def _code(old: ReportDocument, new: ReportDocument) -> bool | None:
    """Return whether the training code changed, by the recipe's digest, which covers sources and parameters."""
    a, b = (d.subject.digests.get("recipe") for d in (old, new))
    if a is None or b is None:
        return None
    if a == b:
        return False
    if _training(old) != _training(new) or old.subject.recipe == new.subject.recipe:
        return True
    # a class of scikit-learn changes with its version only, which is the environment's
    return False if _training(new).startswith("sklearn.") else None


def _training(doc: ReportDocument) -> str:
    """Return the name of what trains: a function or an estimator's class."""
    return plain((doc.subject.recipe or RecipeFacts()).trained_by, 120) or "not recorded"


_CAUSES = (
    ("training data", "data"), ("hyperparameters", "params"), ("seed", "seed"), ("differential-privacy claim", "dp"),
    ("release", "release"), ("environment", "environment"), ("policy", "policy"),
)  # fmt: skip


def _cause(doc: ReportDocument, key: str) -> Any:
    """Return what identifies one cause; None if the report does not say."""
    s, recipe, trace = doc.subject, doc.subject.recipe, doc.evidence.run.trace
    if key == "data":
        return s.digests.get("data")
    if key == "release":
        return s.release.model_dump()
    if key == "environment":
        return trace and {"versions": trace.versions}
    if key == "policy":
        return doc.policy.digest or None
    if recipe is None:
        return None
    # a recipe without a seed or a claim says so: null is a value of its own there
    if key == "dp":
        return {"value": recipe.dp and recipe.dp.model_dump()}
    return {"value": recipe.seed if key == "seed" else recipe.settings}


def _brief(value: Any, other: Any) -> str:
    """Return one side of a cause in few words: of two mappings only where they differ."""
    if isinstance(value, Mapping) and set(value) == {"value"}:
        value, other = value["value"], (other or {}).get("value")
        if value is None:
            return "none"
    if isinstance(value, Mapping):
        before = other if isinstance(other, Mapping) else {}
        told = {k: v for k, v in value.items() if k not in before or before[k] != v} or value
        return plain(", ".join(f"{k} = {v}" for k, v in told.items()), 160) or "none"
    if value is None:
        return "not recorded"
    return words.short(value)


def _summary(found: Comparison) -> str:
    old, new = found.old, found.new
    version = f"Against version {plain(old.version, 20)} ({old.decision})"
    changed = [c.cause for c in found.causes if c.changed]
    unknown = [c.cause for c in found.causes if c.changed is None]
    told = f"{', '.join(changed)} changed" if changed else "no recorded cause changed"
    if unknown:
        told += f"; not recorded for both: {', '.join(unknown)}"
    by = {k: [plain(r.title or r.rule, 60) for r in found.rules if r.change == k] for k in ("worse", "better")}
    ends = [f"{k}: {', '.join(v)}" for k, v in by.items() if v] or ["no rule clearly better or worse"]
    moved = "" if old.outcome is new.outcome else f" The decision went from {old.decision} to {new.decision}."
    return f"{version}: {told}; {'; '.join(ends)}.{moved}"


def title(comparison: Comparison) -> str:
    """Return what is compared with what."""
    return f"{page_one.subject(comparison.new)} against {page_one.subject(comparison.old)}"


_QUANTILES: Mapping[Quantile, str] = {
    "0.5": "half are below", "0.9": "90 % are below", "0.99": "99 % are below", "1.0": "the worst",
}  # fmt: skip
_CHANGED = {True: "changed", False: "same", None: "not known"}


def section(doc: ReportDocument) -> Section | None:
    """Return the comparison stored in the document."""
    return Section("comparison", "Since the other version", blocks(doc.comparison)) if doc.comparison else None


def blocks(comparison: Comparison) -> list[Block]:
    """Return a comparison as blocks: summary, causes, rules, shift of the distribution."""
    old, new = versions(comparison.old, comparison.new)
    made: list[Block] = [Text(plain(comparison.summary))]
    rows = [(plain(c.cause, 60), _CHANGED[c.changed], plain(c.old, 90), plain(c.new, 90)) for c in comparison.causes]
    made.append(TableBlock("What may have caused the difference", ("Cause", "Changed", old, new), rows))
    rules = comparison.rules
    if rules:
        cells = [
            (assertions.title(r), _result(r, r.old), _result(r, r.new), assertions.limit(r), plain(r.change, 60))
            for r in rules
        ]
        made.append(TableBlock("Rule by rule", ("Rule", old, new, "Limit now", "Change"), cells))
        made += _rule_chart(rules, old, new)
    shifts = comparison.distribution
    for name, pair in shifts.items():
        if name == "dtp_lower" and pair == shifts.get("pdtp"):
            continue  # the largest change seen is the direct one: one drawing says both
        made += _shift(name, pair, old, new)
    return made


def versions(old: ComparedReport, new: ComparedReport) -> tuple[str, str]:
    """Return two different short names for the two sides."""
    before, now = (f"version {plain(s.version, 20)}" if s.version else "" for s in (old, new))
    if old.name != new.name:
        before, now = (f"{plain(s.name, 30)} {v}".strip() for s, v in ((old, before), (new, now)))
    if before == now:
        before, now = f"{before} before".strip(), f"{now} now".strip()
    return before or "before", now or "now"


def _result(rule: RuleChange, figures: RuleFigures | None) -> str:
    if figures is None:
        return "no such rule"
    return f"{say(f'result.{figures.outcome}')}: {assertions.interval(figures, assertions.unit(rule), rule.direction)}"


def _rule_chart(rules: Sequence[RuleChange], old: str, new: str) -> list[Block]:
    """Return figures as shares of their limit, because rules have different units."""
    pairs = [(r, r.old.value / r.limit, r.new.value / r.limit) for r in rules if r.old and r.new and r.limit > 0]
    rows = [(assertions.title(r), a, b) for r, a, b in pairs if math.isfinite(a) and math.isfinite(b)]
    if not rows:
        return []
    heading = "Each rule's figure as a share of its limit"
    over = sum(r[2] > 1 for r in rows)
    said = (
        f"{number(over)} of {len(rows)} figures of {new} lie beyond their limit at 100 %"
        if over
        else f"Every figure of {new} lies at or below 100 % of its limit"
    )
    svg = charts.pairs("rules-moved", heading, "Ring before, diamond now.", rows=rows, first=old, second=new,
                       xlabel="share of the limit", limits=[1.0] * len(rows), percent=True)  # fmt: skip
    cells = [(n, f"{100 * a:.3g} %", f"{100 * b:.3g} %") for n, a, b in rows]
    return [Chart("rules-moved", heading, f"{said}.", svg, numbers(heading, ("Rule", old, new), cells))]


def _shift(name: FigureName, pair: QuantileShift, old: str, new: str) -> list[Block]:
    rows = [(label, pair.old[q], pair.new[q]) for q, label in _QUANTILES.items()]
    rows = [r for r in rows if math.isfinite(r[1]) and math.isfinite(r[2])]
    if not rows:
        return []
    title = f"Shift of {NAMES[name]}"
    worst = rows[-1]
    moved = "rose" if worst[2] > worst[1] else ("fell" if worst[2] < worst[1] else "stayed")
    said = f"{worst[0].capitalize()} {moved}: {number(worst[1])} nats before, {number(worst[2])} now"
    ident = f"shift-{name.replace('_', '-')}"
    svg = charts.pairs(ident, title, "Quantiles: ring before, diamond now.", rows=rows, first=old, second=new,
                       xlabel="nats")  # fmt: skip
    cells = [(n, number(x), number(y)) for n, x, y in rows]
    return [Chart(ident, title, f"{said}.", svg, numbers(f"{title}, nats", ("Quantile", old, new), cells))]
