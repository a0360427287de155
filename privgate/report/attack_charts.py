"""Charts of attacks, each with its sentence and its numbers."""

import math
import re
from collections.abc import Sequence

from privgate import digest
from privgate.evidence import AgainstPdtp, AttackResult, NullRuns
from privgate.evidence.figures import number, percent
from privgate.report import charts
from privgate.report.blocks import Block, Chart, TableBlock, Text
from privgate.report.charts import Curve, Ran, estimate, finds_most, thinned, title
from privgate.report.text import plain

#: curves drawn at once; more cannot be told apart
_CURVES = 4
_GROUPS = 12


def curves(ran: Sequence[Ran]) -> list[Block]:
    """Return the ROC curves of the strongest attacks, given strongest first."""
    drawn = [r for r in ran if r[1].roc][:_CURVES]
    if not drawn:
        return []
    most = finds_most(ran)
    if most and most[0][1].roc and most[0] not in drawn:
        drawn[-1] = most[0]
    name = "Members found against people wrongly accused"
    said = (
        f"The attack that finds most, {title(most[0][0])}, finds {most[2]} of the people in the data when "
        f"{percent(most[1])} of the candidates are wrongly accused"
        if most
        else f"The strongest attack is {title(drawn[0][0])}; the closer to the dotted line, the closer to guessing"
    )
    curves = [(title(a), thinned(f.roc)) for a, f in drawn]
    svg = charts.roc(
        "roc",
        name,
        "ROC curves on two logarithmic axes with the line of guessing.",
        curves=curves,
        floor=_floor(curves),
    )
    rows = [(label, *_at(points, (0.001, 0.01, 0.1, 0.5))) for label, points in curves]
    columns = ("Attack", *(f"Found at {percent(f)}" for f in (0.001, 0.01, 0.1, 0.5)))
    table = TableBlock("Points of the curves", columns, rows, (1, 2, 3, 4), "Numbers of this chart")
    return [Chart("roc", name, "", f"{said}.", svg, table)]


def _floor(drawn: Sequence[tuple[str, Curve]]) -> float:
    least = min((p[0] for _, points in drawn for p in points if p[0] > 0), default=0.01)
    return max(1e-4, 10.0 ** math.floor(math.log10(least)))


def _at(curve: Curve, fprs: tuple[float, ...]) -> list[str]:
    finest = min((p[0] for p in curve if p[0] > 0), default=1.0)
    return [
        percent(max((p[1] for p in curve if p[0] <= f), default=0.0)) if f >= finest else "too fine for the sample"
        for f in fprs
    ]


def groups(ran: Ran, *, drawn: bool = True) -> list[Block]:
    """Return one attack's accuracy for each label and group, as a chart or as its table alone."""
    attack, found = ran
    figures = [(_named(g.name), *estimate(g)) for g in (*found.classes, *found.groups)][:_GROUPS]
    if not figures:
        return []
    name = f"Accuracy of {title(attack)} by label and group"
    worst = max(figures, key=lambda f: f[1])
    ident = _ident("groups", attack)
    rows = [(n, *(percent(x) for x in numbers)) for n, *numbers in figures]
    table = TableBlock(name, ("Group", "Accuracy", "Low", "High"), rows, (1, 2, 3), "Numbers of this chart")
    if not drawn:
        return [TableBlock(table.caption, table.columns, table.rows, table.numeric, name)]
    svg = charts.groups(ident, name, "A line a group; the dashed line is guessing.", rows=figures, xlabel="accuracy",
                        reference=0.5, reference_text="guessing")  # fmt: skip
    return [Chart(ident, name, "", f"The group at greatest risk is {worst[0]} with {percent(worst[1])}.", svg, table)]


def _named(group: str) -> str:
    """Return a group's name; a column that has only a number is called one."""
    return plain(re.sub(r"^(\d+) = ", r"column \1 = ", group), 40)


def against_pdtp(found: AgainstPdtp) -> list[Block]:
    """Return the best attack's accuracy on each record over its PDTP: point estimates, from models that took turns."""
    rows = [p for p in found.points if math.isfinite(p[0]) and math.isfinite(p[1])]
    if len(rows) < 2:
        return []
    if len({r[0] for r in rows}) == 1:
        same = f"Records whose PDTP is finite all have the same, {number(rows[0][0])} nats"
        return [Text(f"{same}: attack accuracy is not set against it.")]
    title_ = "Attack accuracy on single records over their PDTP"
    said = (
        "No correlation could be computed"
        if found.pearson is None or math.isnan(found.pearson)
        else (
            f"Records that matter more are {'easier' if found.pearson > 0 else 'no easier'} to guess: "
            f"correlation {number(found.pearson)} over {number(found.n)} records"
        )
    )
    svg = charts.against_pdtp("attack-pdtp", title_, "Mean accuracy over mean PDTP, dotted line: guessing.", rows=rows)
    cells = [(number(x), percent(v)) for x, v in rows]
    table = TableBlock(f"{title_}; {plain(found.kind, 120)}", ("Mean PDTP, nats", "Mean accuracy"), cells, (0, 1),
                  "Numbers of this chart")  # fmt: skip
    return [Chart("attack-pdtp", title_, "", f"{said}.", svg, table)]


def false_alarms(found: NullRuns) -> list[Block]:
    """Return how often the limits alarmed where there was nothing to find."""
    said = (
        f"With labels that mean nothing, the limits alarmed in {number(found.alarms)} of {number(found.runs)} "
        f"runs; at most {percent(found.nominal)} is promised, and the true share lies between "
        f"{percent(found.low)} and {percent(found.high)}."
    )
    return [Text(said)]


def _ident(what: str, attack: AttackResult) -> str:
    """Return an id that no other attack on the page has; its name may hold anything."""
    named = [plain(v) for v in (attack.name, attack.title, attack.scope, "")]
    return f"{what}-{digest.of_json(named).removeprefix('sha256:')[:10]}"
