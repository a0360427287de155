"""Per-unit risk: how much each person's record matters, the worst first."""

import math
from collections.abc import Mapping, Sequence

from privgate.evidence import (
    SensitivityFigures,
)
from privgate.evidence.figures import fold, number, percent
from privgate.policy.rules import about
from privgate.report import charts, words
from privgate.report.blocks import Block, Chart, Facts, Section, TableBlock, Text, numbers
from privgate.report.report_schema import ReportDocument
from privgate.report.text import plain, shown
from privgate.report.unit_rows import AboveLimit, FigureName, FigureSummary, UnitsSummary, WorstUnit

#: figures of the per-person table, in words
NAMES: Mapping[FigureName, str] = {
    "pdtp": "PDTP, direct queries",
    "dtp_lower": "DTP, largest change seen",
    "dtp_upper": "DTP, upper limit by theorem",
}


def section(doc: ReportDocument) -> Section | None:
    """Return the distribution over units, the worst units under keyed hashes, and the noise floor."""
    units, influence = doc.units, doc.evidence.influence
    moved = number_blocks(influence.sensitivity) if influence is not None and influence.sensitivity else []
    if units is None:
        return Section("units", "Risk of each person", moved) if moved else None
    limit, figure = limit_of(doc)
    if not units.everybody:
        return Section("units", "Risk of each person", _of_some(doc, units, limit))
    figures = units.figures
    blocks: list[Block] = [*moved, Facts(_facts(units))]
    both: list[FigureName] = list(dict.fromkeys((figure, "pdtp")))
    # the largest change seen is often the direct one: one drawing then says both
    both = both[:1] if all(figures[n] == figures[both[0]] for n in both) else both
    blocks += [_histogram(name, figures[name], units, limit) for name in both]
    return Section("units", "Risk of each person", [*blocks, *_listed(units, limit)])


def _of_some(doc: ReportDocument, units: UnitsSummary, limit: float) -> list[Block]:
    """Return the worst of those who were measured before the verdict was decided."""
    coverage = doc.evidence.influence and doc.evidence.influence.coverage
    if coverage and coverage.not_computed:
        told = f"{number(coverage.n_measured)} of {number(coverage.n_units)} people or records were measured"
        first = f"The verdict was decided before everybody was measured: {told}, so no distribution is shown."
        return [Text(first), *_listed(units, limit)]
    return _listed(units, limit)


def _lie_above(row: AboveLimit) -> str:
    """Return how many lie above a limit, in words; a hidden count as its range."""
    if row.count is None:
        return "suppressed" if row.between is None else " to ".join(number(v) for v in row.between)
    return number(row.count)


def _listed(units: UnitsSummary, limit: float) -> list[Block]:
    """Return the worst with their figures, or the worst one and the names of the next."""
    if not units.worst:
        return []
    key = plain(units.key_id, 9)
    held = f"Names are keyed hashes (key {key}); its holder, the controller, finds the records in records.parquet."
    blocks: list[Block] = [_intervals(units.worst, limit)]
    if units.next_worst:
        told = ", ".join(plain(name, 20) for name in units.next_worst)
        why = "their figures would tell how few lie above a limit, or have none, so they stand in records.parquet only"
        blocks.append(Text(f"The next {len(units.next_worst)}, in no order: {told}; {why}."))
    return [*blocks, Text(held, "note")]


def limit_of(doc: ReportDocument) -> tuple[float, FigureName]:
    """Return the limit that rules set on single units, nats, and the figure to draw it on; NaN without one."""
    upper = doc.units and doc.units.figures.get("dtp_upper")
    everywhere: FigureName = "dtp_upper" if upper and any(upper.counts) else "dtp_lower"
    found = [f for f in words.rules(doc) if f.unit == "nats" and math.isfinite(f.limit)]
    for f in sorted(found, key=lambda f: about(f.metric).direct_only):
        if about(f.metric).per_unit:
            return f.limit, "pdtp" if about(f.metric).direct_only else everywhere
    return math.nan, "pdtp"


def _facts(units: UnitsSummary) -> list[tuple[str, str]]:
    told = [("People or records measured", number(units.n))]
    for name, figure in units.figures.items():
        middle, most = figure.quantiles["0.5"], figure.quantiles["1.0"]
        if math.isinf(middle):
            told.append((NAMES[name], "no limit known for most"))
        else:
            half = "half change nothing" if middle == 0 else f"half are below {_few(middle)}"
            told.append((NAMES[name], f"{half}, the worst is {_few(most)}"))
    above = ((f"{NAMES[row.figure]}: above {fold(row.limit)}", _lie_above(row)) for row in units.above)
    return [*told, *((name, f"{some} of {number(units.n)}") for name, some in above)]


def _few(nats: float) -> str:
    return "unlimited" if math.isinf(nats) else f"{fold(nats)} ({number(nats)} nats)"


def _histogram(name: FigureName, figure: FigureSummary, units: UnitsSummary, limit: float) -> Chart:
    edges, counts, unbounded, small = figure.edges, figure.counts, figure.unbounded, units.small_cell
    title = f"{NAMES[name]}: how many people have which figure"
    rows = [
        (f"{number(a)} to {number(b)}", shown(c))
        for a, b, c in zip(edges, edges[1:], counts, strict=False)
        if c is None or c > 0
    ]
    if unbounded is None or unbounded:
        rows.append(("no upper limit known", shown(unbounded)))
    desc = f"Histogram with a logarithmic count axis. Ranges are joined until none holds 1 to {small - 1} people."
    svg = charts.histogram(f"hist-{name.replace('_', '-')}", title, desc, edges=edges, counts=counts,
                           unbounded=unbounded, limit=limit)  # fmt: skip
    table = numbers(f"{title}, nats", ("Change, nats", "People or records"), rows)
    return Chart(f"hist-{name}", title, _reading(name, figure, units, limit), svg, table)


def _reading(name: FigureName, figure: FigureSummary, units: UnitsSummary, limit: float) -> str:
    middle, tail, most = (figure.quantiles[k] for k in ("0.5", "0.99", "1.0"))
    said = f"Half of all people change an answer by less than {fold(middle)}" if math.isfinite(middle) else ""
    said = "Half of all people change no answer" if middle == 0 else said
    said += f", 99 % by less than {fold(tail)}" if said and math.isfinite(tail) else ""
    bounds = "no limit is known for some people" if math.isinf(most) else f"the worst is {fold(most)}"
    said = f"{said}; {bounds}" if said else "For most people no limit is known"
    above = [r for r in units.above if r.figure == name and r.limit == limit]
    if above:
        many = "nobody lies" if above[0].count == 0 else f"{_lie_above(above[0])} lie"
        said += f"; {many} above the limit of {fold(limit)}"
    return f"{said}."


def _intervals(worst: Sequence[WorstUnit], limit: float) -> Chart:
    finite = [v for w in worst for v in (w.pdtp, w.dtp_lower, w.dtp_upper) if math.isfinite(v)]
    top = 1.12 * max([*finite, limit] if math.isfinite(limit) else finite, default=1.0) or 1.0
    rows = []
    for w in worst:  # what has no figure is drawn at the far end, never at 0
        pdtp, low, high = (math.inf if math.isnan(v) else v for v in (w.pdtp, w.dtp_lower, w.dtp_upper))
        rows.append(charts.Line(plain(w.unit, 20)[:8], pdtp, low, high, w.noise_floor))
    several = f"The {len(rows)} people whose records matter most"
    title = several if len(rows) > 1 else "The person whose record matters most"
    most, each = max(r.pdtp for r in rows), "each of these" if len(rows) > 1 else "it"
    changed = f"changes a direct answer {fold(most)}" if math.isfinite(most) else "makes a direct answer impossible"
    # all that are listed lie on one side of infinity: of a mixture only the first is listed
    theorem = "no theorem limits" if math.isinf(rows[0].high) else "a theorem limits"
    over = f"for {each} {theorem} the change over all questions"
    if all(math.isinf(r.low) for r in rows):
        over = f"over all questions the change has no limit for {each}"
    said = f"The record that matters most {changed}; {over}"
    if all(r.pdtp <= r.noise for r in rows):
        said += "; none of this can be told from the noise of training"
    svg = charts.intervals("worst", title, "Interval plot: one line a person, PDTP as a dot, DTP as a band.",
                           rows=rows, limit=limit, top=top)  # fmt: skip
    columns = ("Keyed hash", "PDTP", "DTP at least", "DTP at most", "Numerical error", "Noise floor", "Seeds", "Engine",
               "Status")  # fmt: skip
    cells = [
        (plain(w.unit, 20),
         *(number(v) for v in (w.pdtp, w.dtp_lower, w.dtp_upper, w.error, w.noise_floor, w.seeds)),
         plain(w.engine, 40), plain(w.status, 20))
        for w in worst
    ]  # fmt: skip
    table = TableBlock(f"{title}, figures in nats", columns, cells, (1, 2, 3, 4, 5, 6), "Numbers of this chart")
    return Chart("worst", title, f"{said}.", svg, table)


NOT_DTP = (
    "Sensitivity is not DTP: it says how far an answer moves when one person is left out, as a share of what the model "
    "usually errs by. It bounds no probability and stops no attack by itself."
)


def number_blocks(figures: SensitivityFigures) -> list[Block]:
    """Return residual deviations and sensitivity, with what they do not say."""
    inside, outside = figures.residual_inside, figures.residual_outside
    everywhere = (
        f"no limit known: {plain(figures.why_no_domain, 200)}"
        if figures.over_domain is None
        else f"at most {number(figures.over_domain)} residual deviations, by theorem"
    )
    apart = number(outside / inside) if inside else "unlimited"
    most = number(figures.most)
    own = f"half are below {number(figures.median)}, 99 % below {number(figures.p99)}, the worst is {most}"
    items = [
        ("Residual deviation on training records", number(inside)),
        ("Residual deviation on records left out, the unit of sensitivity", number(outside)),
        ("Errs more on records left out than on training records by a factor of", apart),
        ("Sensitivity, asked about the person's own record", own),
        ("Sensitivity, over every question of the declared domain", everywhere),
    ]
    if figures.noise:
        items.append(("Released", plain(figures.noise, 120)))
    if figures.noise_advantage is not None:
        advantage = "Advantage of anybody on one noisy answer about the person, at most"
        items.append((advantage, percent(figures.noise_advantage)))
    return [Text(NOT_DTP, "note"), Facts(items, wide=True)]
