"""Differential privacy: the guarantee, what it implies, and what was measured beside it."""

import math

from privgate.report import charts, reading
from privgate.report.attack_data import Curve, estimate, points, strength, thinned, title
from privgate.report.blocks import Block, Chart, Facts, Section, Table, Text
from privgate.report.reading import Doc
from privgate.report.text import number, percent, plain, real

_CLAIM = {
    "mechanism": "Mechanism",
    "epsilon": "Claimed epsilon",
    "delta": "Claimed delta",
    "adjacency": "Neighbours",
    "unit": "Protected unit",
    "sampling": "How batches are drawn",
    "noise_multiplier": "Noise multiplier",
    "sample_rate": "Sample rate",
    "steps": "Steps",
    "max_grad_norm": "Clipping norm",
    "accountant": "Accountant of the claim",
}
_WORDS = {
    "add_remove": "data sets that differ in one record added or removed",
    "replace_one": "data sets that differ in one record replaced",
    "poisson": "each record independently",
    "fixed_size": "fixed size",
    "shuffled": "shuffled, then cut into batches",
}


def section(doc: Doc) -> Section | None:
    """Return the claim, the bounds that follow with their hypotheses, and the measurements beside them."""
    bounds = reading.rows(reading.detail(doc).get("dp"))
    claim = reading.mapping(reading.mapping(reading.subject(doc).get("recipe")).get("dp"))
    if not bounds and not claim:
        return None
    blocks: list[Block] = []
    if claim:
        items = [(label, _claimed(claim[key])) for key, label in _CLAIM.items() if claim.get(key) not in (None, "")]
        blocks.append(Facts(items))
    measured = reading.rows(reading.detail(doc).get("dp_facts"))
    if measured:
        blocks.append(Facts([(plain(m.get("name"), 60), plain(m.get("value"), 160)) for m in measured]))
    if bounds:
        chart = _chart(bounds)
        if chart:
            blocks.append(chart)
        blocks.append(_table(bounds))
    blocks += _tradeoff(reading.detail(doc))
    blocks.append(
        Text(
            "Epsilon alone is not the guarantee: it holds for the neighbours, the unit and the sampling named, under "
            "the conditions listed."
        )
    )
    return Section("dp", "Differential privacy", blocks)


def _claimed(value: object) -> str:
    if isinstance(value, str) and math.isnan(real(value)):
        return _WORDS.get(value, plain(value, 80))
    return number(value)


def _is_fraction(row: Doc) -> bool:
    return str(row.get("unit", "fraction")) == "fraction" and 0 <= real(row.get("bound")) <= 1


def _chart(bounds: list[Doc]) -> Chart | None:
    both = [
        (plain(b.get("name"), 60), real(b.get("bound")), estimate(b.get("measured"))[0])
        for b in bounds
        if _is_fraction(b)
    ]
    both = [b for b in both if not math.isnan(b[2])][:10]
    if not both:
        return None
    title = "What is guaranteed and what was measured"
    broken = [b[0] for b in both if b[2] > b[1]]
    said = (
        f"{', '.join(broken)}: the measurement exceeds the bound, so the claim or its conditions do not hold"
        if broken
        else "Every measurement stays below its bound"
    )
    svg = charts.pairs("dp", title, "One line a bound: the bound as a ring, the measurement as a diamond.", rows=both,
                       first="bound", second="measured", xlabel="", percent=True)  # fmt: skip
    table = Table(
        title,
        ("Bound on", "Bound", "Measured"),
        [(n, percent(a), percent(b)) for n, a, b in both],
        (1, 2),
        "Numbers of this chart",
    )
    return Chart("dp", title, "", f"{said}.", svg, table)


def _tradeoff(detail: Doc) -> list[Block]:
    """Return what any attack can reach under the guarantee, with what attacks and audits did reach."""
    bound = reading.mapping(detail.get("dp_curve"))
    limit: Curve = [(real(f), real(t)) for f, t in zip(bound.get("fpr") or (), bound.get("tpr") or (), strict=False)]
    limit = [p for p in limit if p[0] > 0 and math.isfinite(p[1])]
    if len(limit) < 2:
        return []
    attacks = [a for a in reading.rows(detail.get("attacks")) if not a.get("problem") and points(a)]
    strongest = sorted(attacks, key=strength, reverse=True)[:2]
    drawn: list[tuple[str, Curve]] = [("no attack can exceed this", thinned(limit))]
    drawn += [(title(a), [p[:2] for p in points(a)]) for a in strongest]
    curves = [{"label": label, "points": curve} for label, curve in drawn]
    name = "What any attack can reach, and what these reached"
    over = [label for label, curve in drawn[1:] if any(_above(p, limit) for p in curve)]
    said = (
        f"{', '.join(over)}: single points lie above the bound; whether that is chance is judged by the audit"
        if over
        else "Nothing that was measured lies above the bound"
        if strongest
        else "The bound alone: no attack was run beside it"
    )
    svg = charts.roc("tradeoff", name, "Bound and attacks on two logarithmic axes.", curves=curves, floor=1e-4)
    rates = (0.001, 0.01, 0.1, 0.5)
    rows = [(label, *(_at(curve, f) for f in rates)) for label, curve in drawn]
    table = Table(
        name, ("Curve", *(f"Found at {percent(f)}" for f in rates)), rows, (1, 2, 3, 4), "Numbers of this chart"
    )
    return [Chart("tradeoff", name, "", f"{said}.", svg, table)]


def _above(point: tuple[float, ...], limit: Curve) -> bool:
    """Whether a measured point lies above the bound at the next larger rate that the bound was computed for."""
    fpr, tpr = point[:2]
    return tpr > min((q[1] for q in limit if q[0] >= fpr), default=1.0)


def _at(curve: Curve, fpr: float) -> str:
    below = [p[1] for p in curve if p[0] <= fpr]
    return percent(max(below)) if below else "too fine for the sample"


def _table(bounds: list[Doc]) -> Table:
    rows = []
    for b in bounds:
        show = percent if _is_fraction(b) else number
        value, low, high = estimate(b.get("measured"))
        told = "not measured" if math.isnan(value) else show(value)
        if math.isfinite(low) and math.isfinite(high):
            told = f"{told} ({show(low)} to {show(high)})"
        prior = percent(b["prior"]) if b.get("prior") is not None else "any"
        rows.append(
            (
                plain(b.get("name"), 80),
                number(b.get("epsilon")) if b.get("epsilon") is not None else "",
                number(b.get("delta")) if b.get("delta") is not None else "",
                prior,
                show(b.get("bound")),
                told,
                "; ".join(plain(a, 200) for a in b.get("assumptions") or ()) or plain(b.get("source"), 120),
            )
        )
    columns = ("Bound on", "Epsilon", "Delta", "Share of members assumed", "Bound", "Measured", "Holds if")
    return Table(
        "Bounds with their conditions", columns, rows, (1, 2, 3, 4, 5), f"All {len(rows)} bounds with their conditions"
    )
