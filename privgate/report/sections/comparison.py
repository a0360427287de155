"""What changed since another version: rules, risk of the people, and causes."""

import math
from typing import Any

from privgate.report import charts, reading, words
from privgate.report.blocks import Block, Chart, Section, Table, Text
from privgate.report.reading import Doc
from privgate.report.sections.units import NAMES
from privgate.report.text import number, plain, real

_QUANTILES = {"0.5": "half are below", "0.9": "90 % are below", "0.99": "99 % are below", "1.0": "the worst"}


def section(doc: Doc) -> Section | None:
    """Return the comparison stored in the document."""
    comparison = reading.mapping(doc.get("comparison"))
    return Section("comparison", "Since the other version", blocks(comparison)) if comparison else None


def blocks(comparison: Doc) -> list[Block]:
    """Return a comparison as blocks: summary, causes, rules, shift of the distribution."""
    old, new = versions(reading.mapping(comparison.get("old")), reading.mapping(comparison.get("new")))
    made: list[Block] = [Text(plain(comparison.get("summary")))] if comparison.get("summary") else []
    causes = reading.rows(comparison.get("causes"))
    if causes:
        rows = [
            (plain(c.get("cause"), 60), _changed(c.get("changed")), _short(c.get("old")), _short(c.get("new")))
            for c in causes
        ]
        made.append(Table("What may have caused the difference", ("Cause", "Changed", old, new), rows))
    rules = reading.rows(comparison.get("rules"))
    if rules:
        cells = [
            (words.title(r), _result(r, "old"), _result(r, "new"), words.limit(r), plain(r.get("change"), 60))
            for r in rules
        ]
        made.append(Table("Rule by rule", ("Rule", old, new, "Limit now", "Change"), cells))
        made += _rule_chart(rules, old, new)
    shifts = reading.mapping(comparison.get("distribution"))
    for name, pair in shifts.items():
        if name == "dtp_lower" and pair == shifts.get("pdtp"):
            continue  # the largest change seen is the direct one: one drawing says both
        made += _shift(name, reading.mapping(pair), old, new)
    return made


def _changed(value: Any) -> str:
    return {True: "changed", False: "same"}.get(value, "not known") if isinstance(value, bool) else "not known"


def versions(old: Doc, new: Doc) -> tuple[str, str]:
    """Return two different short names for the two sides."""
    before, now = (f"version {plain(s['version'], 20)}" if s.get("version") else "" for s in (old, new))
    if old.get("name") != new.get("name"):
        before, now = (f"{plain(s.get('name'), 30)} {v}".strip() for s, v in ((old, before), (new, now)))
    if before == now:
        before, now = f"{before} before".strip(), f"{now} now".strip()
    return before or "before", now or "now"


def _short(value: Any) -> str:
    return plain(value, 90)


def _result(rule: Doc, side: str) -> str:
    figures = reading.mapping(rule.get(side))
    if not figures:
        return "no such rule"
    result = words.RESULT.get(str(figures.get("outcome")), "Not decided")
    return f"{result}: {words.measured({**figures, 'unit': rule.get('unit', '')})}"


def _rule_chart(rules: list[Doc], old: str, new: str) -> list[Block]:
    """Return figures as shares of their limit, because rules have different units."""
    rows = []
    for r in rules:
        limit = real(r.get("limit"))
        pair = [real(reading.mapping(r.get(k)).get("value")) / limit if limit > 0 else math.nan for k in ("old", "new")]
        if all(math.isfinite(v) for v in pair):
            rows.append((words.title(r), pair[0], pair[1]))
    if not rows:
        return []
    title = "Each rule's figure as a share of its limit"
    over = sum(r[2] > 1 for r in rows)
    said = (
        f"{number(over)} of {len(rows)} figures of {new} lie beyond their limit at 100 %"
        if over
        else f"Every figure of {new} lies at or below 100 % of its limit"
    )
    svg = charts.pairs("rules-moved", title, "Ring before, diamond now.", rows=rows, first=old, second=new,
                       xlabel="share of the limit", limits=[1.0] * len(rows), percent=True)  # fmt: skip
    cells = [(n, f"{100 * a:.3g} %", f"{100 * b:.3g} %") for n, a, b in rows]
    return [
        Chart(
            "rules-moved",
            title,
            "",
            f"{said}.",
            svg,
            Table(title, ("Rule", old, new), cells, (1, 2), "Numbers of this chart"),
        )
    ]


def _shift(name: str, pair: Doc, old: str, new: str) -> list[Block]:
    a, b = reading.mapping(pair.get("old")), reading.mapping(pair.get("new"))
    rows = [(label, real(a.get(q)), real(b.get(q))) for q, label in _QUANTILES.items()]
    rows = [r for r in rows if math.isfinite(r[1]) and math.isfinite(r[2])]
    if not rows:
        return []
    title = f"Shift of {NAMES.get(name, plain(name, 40))}"
    worst = rows[-1]
    moved = "rose" if worst[2] > worst[1] else ("fell" if worst[2] < worst[1] else "stayed")
    said = f"{worst[0].capitalize()} {moved}: {number(worst[1])} nats before, {number(worst[2])} now"
    ident = f"shift-{''.join(c if c.isascii() and c.isalnum() else '-' for c in name)}"
    svg = charts.pairs(ident, title, "Quantiles: ring before, diamond now.", rows=rows, first=old, second=new,
                       xlabel="nats")  # fmt: skip
    cells = [(n, number(x), number(y)) for n, x, y in rows]
    table = Table(f"{title}, nats", ("Quantile", old, new), cells, (1, 2), "Numbers of this chart")
    return [Chart(ident, title, "", f"{said}.", svg, table)]
