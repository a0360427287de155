"""Differential privacy: the guarantee, what it implies, and what was measured beside it."""

import math
from collections.abc import Sequence

from privgate.evidence import ClaimsPart, GuaranteeBound
from privgate.evidence.figures import number, percent
from privgate.report import charts, words
from privgate.report.blocks import Block, Chart, Facts, Section, TableBlock, Text
from privgate.report.charts import Curve, estimate, ran, thinned, title
from privgate.report.report_schema import ReportDocument
from privgate.report.text import plain

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


def section(doc: ReportDocument) -> Section | None:
    """Return the claim, the bounds that follow with their hypotheses, and the measurements beside them."""
    part = doc.evidence.claims or ClaimsPart()
    claim = doc.subject.recipe and doc.subject.recipe.dp
    if not part.bounds and not claim:
        return None
    blocks: list[Block] = []
    if claim:
        stated = ((label, getattr(claim, key)) for key, label in _CLAIM.items())
        blocks.append(Facts([(label, _claimed(value)) for label, value in stated if value not in (None, "")]))
    if part.facts:
        blocks.append(Facts([(plain(f.name, 60), plain(f.value, 160)) for f in part.facts]))
    if part.bounds:
        blocks += [*_chart(part.bounds), _table(part.bounds)]
    alone = (
        "Epsilon alone is not the guarantee: it holds for the neighbours, the unit and the sampling named, under the "
        "conditions listed."
    )
    return Section("dp", "Differential privacy", [*blocks, *_tradeoff(doc, part), Text(alone)])


def _claimed(value: str | float) -> str:
    return _WORDS.get(value, plain(value, 80)) if isinstance(value, str) else number(value)


def _measured(bound: GuaranteeBound) -> tuple[float, float, float]:
    return estimate(bound.measured) if bound.measured else (math.nan, math.nan, math.nan)


def _chart(bounds: Sequence[GuaranteeBound]) -> list[Block]:
    """Return each bound beside what was measured; nothing where nothing was."""
    both = [(plain(b.name, 60), b.bound, _measured(b)[0]) for b in bounds if 0 <= b.bound <= 1]
    both = [b for b in both if not math.isnan(b[2])][:10]
    if not both:
        return []
    title = "What is guaranteed and what was measured"
    broken = [b[0] for b in both if b[2] > b[1]]
    said = "Every measurement stays below its bound"
    if broken:
        said = f"{', '.join(broken)}: the measurement exceeds the bound, so the claim or its conditions do not hold"
    svg = charts.pairs("dp", title, "One line a bound: the bound as a ring, the measurement as a diamond.", rows=both,
                       first="bound", second="measured", xlabel="", percent=True)  # fmt: skip
    rows = [(name, percent(bound), percent(most)) for name, bound, most in both]
    table = TableBlock(title, ("Bound on", "Bound", "Measured"), rows, (1, 2), "Numbers of this chart")
    return [Chart("dp", title, "", f"{said}.", svg, table)]


def _tradeoff(doc: ReportDocument, part: ClaimsPart) -> list[Block]:
    """Return what any attack can reach under the guarantee, with what attacks and audits did reach."""
    if part.curve is None:
        return []
    limit: Curve = [*zip(part.curve.fpr, part.curve.tpr, strict=True)]
    strongest = [r for r in ran(words.attacks(doc)) if r[1].roc][:2]
    drawn: list[tuple[str, Curve]] = [("no attack can exceed this", thinned(limit))]
    drawn += [(title(a), thinned(f.roc)) for a, f in strongest]
    name = "What any attack can reach, and what these reached"
    over = [label for label, curve in drawn[1:] if any(_above(p, limit) for p in curve)]
    said = (
        f"{', '.join(over)}: single points lie above the bound; whether that is chance is judged by the audit"
        if over
        else "Nothing that was measured lies above the bound"
        if strongest
        else "The bound alone: no attack was run beside it"
    )
    svg = charts.roc("tradeoff", name, "Bound and attacks on two logarithmic axes.", curves=drawn, floor=1e-4)
    rates = (0.001, 0.01, 0.1, 0.5)
    rows = [(label, *(_at(curve, f) for f in rates)) for label, curve in drawn]
    table = TableBlock(
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


def _table(bounds: Sequence[GuaranteeBound]) -> TableBlock:
    rows = []
    for b in bounds:
        show = percent if 0 <= b.bound <= 1 else number
        value, low, high = _measured(b)
        told = "not measured" if math.isnan(value) else show(value)
        if math.isfinite(low) and math.isfinite(high):
            told = f"{told} ({show(low)} to {show(high)})"
        prior = "any" if b.prior is None else percent(b.prior)
        conditions = "; ".join(plain(a, 200) for a in b.assumptions)
        rows.append((plain(b.name, 80), number(b.epsilon), number(b.delta), prior, show(b.bound), told, conditions))
    columns = ("Bound on", "Epsilon", "Delta", "Share of members assumed", "Bound", "Measured", "Holds if")
    return TableBlock(
        "Bounds with their conditions", columns, rows, (1, 2, 3, 4, 5), f"All {len(rows)} bounds with their conditions"
    )
