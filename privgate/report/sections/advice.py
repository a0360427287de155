"""Risk against usefulness of the changes that were measured in this check, beside the model as it stands."""

import math

from privgate.evidence.figures import number, percent
from privgate.report import charts
from privgate.report.blocks import Chart, Section, TableBlock
from privgate.report.report_schema import ReportDocument


def section(doc: ReportDocument) -> Section | None:
    """Return the changes that were measured; a planned search is no point."""
    found = [(s, s.measured) for s in doc.next_steps if s.measured is not None]
    if not found:
        return None
    now, measure = found[0][1], found[0][1].measure
    title = "What would be approved, and what it costs"
    points = [(now.of_limit_now, now.useful_now), *((m.of_limit, m.useful) for _, m in found)]
    changes = ["the model as it stands", *(s.action for s, _ in found)]
    costs = ["", *(s.cost for s, _ in found)]
    rows = [(str(i), changes[i], _risk(x), number(y), costs[i]) for i, (x, y) in enumerate(points)]
    columns = ("No.", "Change", "Risk, of the limit", f"Usefulness ({measure})", "Cost")
    if not all(math.isfinite(v) for p in points for v in p):
        return Section("advice", title, [TableBlock(title, columns, rows, (2, 3))])
    said = (
        f"{changes[1]}: {measure} {number(now.useful_now)} becomes {number(points[1][1])}, and the risk "
        f"{_risk(points[1][0])} of its limit. No whole check has looked at it: privgate advise tries more, and checks "
        "the best as a whole"
    )
    svg = charts.tradeoff("advice", title, "Usefulness over risk.", points=points, ylabel=f"{measure}, cross-validated")
    table = TableBlock(title, columns, rows, (2, 3), "Numbers of this chart")
    return Section("advice", title, [Chart("advice", title, "", f"{said}.", svg, table)])


def _risk(of_limit: float) -> str:
    return percent(of_limit) if math.isfinite(of_limit) else "unknown"
