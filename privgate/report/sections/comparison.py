"""What changed since another version: rules, risk of the people, and causes."""

import math
from collections.abc import Mapping, Sequence

from privgate.evidence.figures import number
from privgate.report import charts
from privgate.report.assertions import interval, limit, title, unit
from privgate.report.blocks import Block, Chart, Section, TableBlock, Text
from privgate.report.report_schema import (
    ComparedReport,
    Comparison,
    QuantileShift,
    ReportDocument,
    RuleChange,
    RuleFigures,
)
from privgate.report.sections.units import NAMES
from privgate.report.sentences import say
from privgate.report.text import plain
from privgate.report.unit_rows import FigureName, Quantile

_QUANTILES: Mapping[Quantile, str] = {
    "0.5": "half are below",
    "0.9": "90 % are below",
    "0.99": "99 % are below",
    "1.0": "the worst",
}
_CHANGED = {True: "changed", False: "same", None: "not known"}


def section(doc: ReportDocument) -> Section | None:
    """Return the comparison stored in the document."""
    return Section("comparison", "Since the other version", blocks(doc.comparison)) if doc.comparison else None


def blocks(comparison: Comparison) -> list[Block]:
    """Return a comparison as blocks: summary, causes, rules, shift of the distribution."""
    old, new = versions(comparison.old, comparison.new)
    made: list[Block] = [Text(plain(comparison.summary))]
    rows = [(plain(c.cause, 60), _CHANGED[c.changed], _short(c.old), _short(c.new)) for c in comparison.causes]
    made.append(TableBlock("What may have caused the difference", ("Cause", "Changed", old, new), rows))
    rules = comparison.rules
    if rules:
        cells = [(title(r), _result(r, r.old), _result(r, r.new), limit(r), plain(r.change, 60)) for r in rules]
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


def _short(value: str) -> str:
    return plain(value, 90)


def _result(rule: RuleChange, figures: RuleFigures | None) -> str:
    if figures is None:
        return "no such rule"
    return f"{say(f'result.{figures.outcome}')}: {interval(figures, unit(rule), rule.direction)}"


def _rule_chart(rules: Sequence[RuleChange], old: str, new: str) -> list[Block]:
    """Return figures as shares of their limit, because rules have different units."""
    pairs = [(r, r.old.value / r.limit, r.new.value / r.limit) for r in rules if r.old and r.new and r.limit > 0]
    rows = [(title(r), a, b) for r, a, b in pairs if math.isfinite(a) and math.isfinite(b)]
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
    return [
        Chart(
            "rules-moved",
            heading,
            "",
            f"{said}.",
            svg,
            TableBlock(heading, ("Rule", old, new), cells, (1, 2), "Numbers of this chart"),
        )
    ]


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
    table = TableBlock(f"{title}, nats", ("Quantile", old, new), cells, (1, 2), "Numbers of this chart")
    return [Chart(ident, title, "", f"{said}.", svg, table)]
