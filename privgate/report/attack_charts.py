"""Charts of attacks, each with its sentence and its numbers."""

import math

from privgate import digest
from privgate.report import charts, reading
from privgate.report.attack_data import Curve, by_group, estimate, finds_most, points, strength, title, told
from privgate.report.blocks import Block, Chart, Table, Text
from privgate.report.reading import Doc
from privgate.report.text import number, percent, plain, real

#: curves drawn at once; more cannot be told apart
_CURVES = 4
_GROUPS = 12


def curves(ran: list[Doc]) -> list[Block]:
    """Return the ROC curves of the strongest attacks."""
    drawn = [a for a in sorted(ran, key=strength, reverse=True) if points(a)][:_CURVES]
    if not drawn:
        return []
    most = finds_most(ran)
    if most and points(most[0]) and not any(a is most[0] for a in drawn):
        drawn[-1] = most[0]
    floor = _floor(drawn)
    name = "Members found against people wrongly accused"
    said = (
        f"The attack that finds most, {title(most[0])}, finds {most[2]} of the people in the data when "
        f"{percent(most[1])} of the people outside it are wrongly accused"
        if most
        else f"The strongest attack is {title(drawn[0])}; the closer to the dotted line, the closer to guessing"
    )
    curves = [{"label": title(a), "points": points(a)} for a in drawn]
    svg = charts.roc(
        "roc", name, "ROC curves on two logarithmic axes with the line of guessing.", curves=curves, floor=floor
    )
    rows = [(title(a), *_at(points(a), (0.001, 0.01, 0.1, 0.5))) for a in drawn]
    columns = ("Attack", *(f"Found at {percent(f)}" for f in (0.001, 0.01, 0.1, 0.5)))
    table = Table("Points of the curves", columns, rows, (1, 2, 3, 4), "Numbers of this chart")
    return [Chart("roc", name, "", f"{said}.", svg, table)]


def _floor(drawn: list[Doc]) -> float:
    least = min((p[0] for a in drawn for p in points(a) if p[0] > 0), default=0.01)
    return max(1e-4, 10.0 ** math.floor(math.log10(least)))


def _at(curve: Curve, fprs: tuple[float, ...]) -> list[str]:
    finest = min((p[0] for p in curve if p[0] > 0), default=1.0)
    return [
        percent(max((p[1] for p in curve if p[0] <= f), default=0.0)) if f >= finest else "too fine for the sample"
        for f in fprs
    ]


def groups(attack: Doc, *, drawn: bool = True) -> list[Block]:
    """Return one attack's figure for each label and group, as a chart or as its table alone."""
    groups = by_group(attack)[:_GROUPS]
    figures = [(plain(g.get("group"), 40), *estimate(g.get("accuracy", g.get("auc")))) for g in groups]
    figures = [f for f in figures if not math.isnan(f[1])]
    if not figures:
        return []
    what = "Accuracy" if any("accuracy" in g for g in groups) else "AUC"
    name = f"{what} of {title(attack)} by label and group"
    worst = max(figures, key=lambda f: f[1])
    show = percent if what == "Accuracy" else number
    ident = _ident("groups", attack)
    rows = [
        (n, show(v), *(show(x) if math.isfinite(x) else "none" for x in (low, high))) for n, v, low, high in figures
    ]
    table = Table(name, ("Group", what, "Low", "High"), rows, (1, 2, 3), "Numbers of this chart")
    if not drawn:
        return [Table(table.caption, table.columns, table.rows, table.numeric, name)]
    svg = charts.groups(ident, name, "A line a group; the dashed line is guessing.", rows=figures,
                        xlabel=what.lower() if what == "Accuracy" else what, reference=0.5, reference_text="guessing",
                        percent=what == "Accuracy")  # fmt: skip
    return [Chart(ident, name, "", f"The group at greatest risk is {worst[0]} with {show(worst[1])}.", svg, table)]


def by_pdtp(attack: Doc) -> list[Block]:
    """Return one attack's accuracy on records of like PDTP."""
    found = [
        (real(r.get("pdtp_low")), real(r.get("pdtp_high")), *estimate(r.get("accuracy")), r.get("n"))
        for r in reading.rows(attack.get("by_pdtp"))
    ]
    found = [r for r in found if not any(math.isnan(v) for v in r[:3])]
    if len(found) < 2:
        return []
    name = f"Accuracy of {title(attack)} over PDTP"
    ident = _ident("pdtp", attack)
    rows = [((a + b) / 2, v, low, high) for a, b, v, low, high, _ in found]
    first, last = rows[0][1], rows[-1][1]
    said = f"Records of low PDTP are guessed right {percent(first)} of the time, those of high PDTP {percent(last)}"
    svg = charts.against_pdtp(
        ident, name, "Attack accuracy with intervals over PDTP; dotted line: guessing.", rows=rows
    )
    cells = [
        (
            f"{number(a)} to {number(b)}",
            percent(v),
            told({"value": v, "low": low, "high": high}),
            "suppressed" if n is None else number(n),
        )
        for a, b, v, low, high, n in found
    ]
    table = Table(name, ("PDTP, nats", "Accuracy", "With interval", "Records"), cells, (1, 3), "Numbers of this chart")
    return [Chart(ident, name, "", f"{said}.", svg, table)]


def all_by_pdtp(found: Doc) -> list[Block]:
    """Return the best attack's accuracy on each record over its PDTP: point estimates, from models that took turns."""
    rows = [(real(p[0]), real(p[1]), math.nan, math.nan) for p in found.get("points") or () if len(p) == 2]
    rows = [r for r in rows if math.isfinite(r[0]) and math.isfinite(r[1])]
    if len(rows) < 2:
        return []
    if len({r[0] for r in rows}) == 1:
        same = f"Records whose PDTP is finite all have the same, {number(rows[0][0])} nats"
        return [Text(f"{same}: attack accuracy is not set against it.")]
    title_ = "Attack accuracy on single records over their PDTP"
    pearson = real(found.get("pearson"))
    said = (
        "No correlation could be computed"
        if math.isnan(pearson)
        else (
            f"Records that matter more are {'easier' if pearson > 0 else 'no easier'} to guess: "
            f"correlation {number(pearson)} over {number(found.get('n'))} records"
        )
    )
    svg = charts.against_pdtp("attack-pdtp", title_, "Mean accuracy over mean PDTP, dotted line: guessing.", rows=rows)
    cells = [(number(x), percent(v)) for x, v, _, _ in rows]
    table = Table(f"{title_}; {plain(found.get('kind'), 120)}", ("Mean PDTP, nats", "Mean accuracy"), cells, (0, 1),
                  "Numbers of this chart")  # fmt: skip
    return [Chart("attack-pdtp", title_, "", f"{said}.", svg, table)]


def false_alarms(runs: Doc) -> list[Block]:
    """Return how often the limits alarmed where there was nothing to find."""
    if not runs.get("runs"):
        return []
    said = (
        f"With labels that mean nothing, the limits alarmed in {number(runs.get('alarms'))} of {number(runs['runs'])} "
        f"runs; at most {percent(runs.get('nominal'))} is promised, and the true share lies between "
        f"{percent(runs.get('low'))} and {percent(runs.get('high'))}."
    )
    return [Text(said)]


def _ident(what: str, attack: Doc) -> str:
    """Return an id that no other attack on the page has; its name may hold anything."""
    named = [plain(attack.get(k)) for k in ("name", "title", "scope", "where")]
    return f"{what}-{digest.of_json(named).removeprefix('sha256:')[:10]}"
