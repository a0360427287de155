"""Attacks: what somebody with access to the model finds out, and which attacks were not tried."""

import math
from typing import Any

from privgate.report import charts, reading, words
from privgate.report.blocks import Block, Chart, Heading, List, Section, Table
from privgate.report.reading import Doc
from privgate.report.text import number, percent, plain, real

#: curves drawn at once; more cannot be told apart
_CURVES = 4
_GROUPS = 12


def section(doc: Doc) -> Section | None:
    """Return the attacks that ran with their figures and curves, and those that could not run."""
    attacks = reading.rows(reading.detail(doc).get("attacks"))
    if not attacks:
        return None
    ran = [a for a in attacks if not a.get("problem")]
    blocks: list[Block] = []
    if ran:
        blocks.append(_table(ran))
        blocks += _curves(ran)
        blocks += [b for a in ran for b in _groups(a)]
        blocks += [b for a in ran for b in _by_pdtp(a)]
        blocks.append(_methods(ran))
    failed = [a for a in attacks if a.get("problem")]
    if failed:
        blocks += [
            Heading("Could not run"),
            List([f"{title(a)}: {plain(a['problem'], 240)}" for a in failed]),
        ]
    tested = words.kinds_tested(doc)
    rows = [(k.capitalize(), "tested" if k in tested else "not tested") for k in words.ATTACK_KINDS]
    blocks.append(Table("Kinds of attack", ("Kind", "In this run"), rows))
    return Section("attacks", "Attacks", blocks)


def title(attack: Doc) -> str:
    """Return an attack's plain name, with the class or group it speaks about."""
    where = plain(attack.get("where"), 40)
    return f"{plain(attack.get('title') or attack.get('name'), 60)}{f', {where}' if where else ''}"


def estimate(value: Any) -> tuple[float, float, float]:
    """Return (value, low, high) of a figure given as a number or with its interval; NaN where absent."""
    if isinstance(value, dict):
        return real(value.get("value")), real(value.get("low")), real(value.get("high"))
    return real(value), math.nan, math.nan


def told(value: Any, *, fraction: bool = True) -> str:
    """Return a figure with its interval in words."""
    x, low, high = estimate(value)
    show = percent if fraction else number
    if math.isnan(x):
        return "not measured"
    return (
        f"{show(x)} ({show(low)} to {show(high)})"
        if math.isfinite(low) and math.isfinite(high)
        else f"{show(x)}, no interval"
    )


def at_fpr(attack: Doc) -> list[tuple[float, str]]:
    """Return (fpr, true-positive rate in words), ascending in fpr."""
    given = attack.get("tpr_at_fpr")
    found = []
    if isinstance(given, dict):
        found = [(real(f), told(t)) for f, t in given.items()]
    elif isinstance(given, list):
        for row in given:
            if isinstance(row, dict):
                point = {"value": row.get("tpr"), "low": row.get("low"), "high": row.get("high")}
                unresolved = row.get("resolvable") is False
                found.append((real(row.get("fpr")), "not resolvable with this sample" if unresolved else told(point)))
            elif isinstance(row, list | tuple) and len(row) >= 2:
                found.append((real(row[0]), told(row[1])))
    return sorted(f for f in found if not math.isnan(f[0]))


def _table(ran: list[Doc]) -> Table:
    fprs = sorted({f for a in ran for f, _ in at_fpr(a)})[:3]
    rows = []
    for a in sorted(ran, key=_strength, reverse=True):
        rates = dict(at_fpr(a))
        rows.append(
            (
                title(a),
                plain(a.get("scope"), 20) or "model",
                told(a.get("auc"), fraction=False).removesuffix(", no interval"),
                told(a.get("accuracy")),
                *(rates.get(f, "not measured") for f in fprs),
            )
        )
    columns = ("Attack", "Against", "AUC (0.5 is guessing)", "Accuracy (50 % is guessing)",
               *(f"Found at {percent(f)} false accusations" for f in fprs))  # fmt: skip
    return Table("What each attack achieved, strongest first", columns, rows)


def _strength(attack: Doc) -> float:
    auc = estimate(attack.get("auc"))[0]
    accuracy = estimate(attack.get("accuracy"))[0]
    return max(v for v in (auc, accuracy, 0.0) if not math.isnan(v))


def points(attack: Doc) -> list[tuple[float, ...]]:
    """Return an ROC as tuples of fractions, at most 200 of them."""
    given = [
        tuple(real(v) for v in p) for p in attack.get("roc") or () if isinstance(p, list | tuple) and len(p) in (2, 4)
    ]
    given = [p for p in given if not any(math.isnan(v) for v in p)]
    step = max(1, -(-len(given) // 200))
    return [p for i, p in enumerate(given) if i % step == 0 or i == len(given) - 1]


def _curves(ran: list[Doc]) -> list[Block]:
    drawn = [a for a in sorted(ran, key=_strength, reverse=True) if points(a)][:_CURVES]
    if not drawn:
        return []
    floor = _floor(drawn)
    best = drawn[0]
    name = "Members found against people wrongly accused"
    low = [(f, t) for f, t in at_fpr(best) if t[0].isdigit()]
    said = (
        f"The strongest attack, {title(best)}, finds {low[0][1]} of the people in the data when "
        f"{percent(low[0][0])} of the people outside it are wrongly accused"
        if low
        else f"The strongest attack is {title(best)}; the closer to the dotted line, the closer to guessing"
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


def _at(curve: list[tuple[float, ...]], fprs: tuple[float, ...]) -> list[str]:
    finest = min((p[0] for p in curve if p[0] > 0), default=1.0)
    return [
        percent(max((p[1] for p in curve if p[0] <= f), default=0.0)) if f >= finest else "too fine for the sample"
        for f in fprs
    ]


def _groups(attack: Doc) -> list[Block]:
    groups = reading.rows(attack.get("by"))[:_GROUPS]
    figures = [(plain(g.get("group"), 40), *estimate(g.get("accuracy", g.get("auc")))) for g in groups]
    figures = [f for f in figures if not math.isnan(f[1])]
    if not figures:
        return []
    what = "Accuracy" if any("accuracy" in g for g in groups) else "AUC"
    name = f"{what} of {title(attack)} by label and group"
    worst = max(figures, key=lambda f: f[1])
    show = percent if what == "Accuracy" else number
    ident = f"groups-{plain(attack.get('name'), 30)}"
    svg = charts.groups(_ident(ident), name, "A line a group; the dashed line is guessing.", rows=figures,
                        xlabel=what.lower() if what == "Accuracy" else what, reference=0.5, reference_text="guessing",
                        percent=what == "Accuracy")  # fmt: skip
    rows = [
        (n, show(v), *(show(x) if math.isfinite(x) else "none" for x in (low, high))) for n, v, low, high in figures
    ]
    table = Table(name, ("Group", what, "Low", "High"), rows, (1, 2, 3), "Numbers of this chart")
    return [Chart(ident, name, "", f"The group at greatest risk is {worst[0]} with {show(worst[1])}.", svg, table)]


def _by_pdtp(attack: Doc) -> list[Block]:
    found = [
        (real(r.get("pdtp_low")), real(r.get("pdtp_high")), *estimate(r.get("accuracy")), r.get("n"))
        for r in reading.rows(attack.get("by_pdtp"))
    ]
    found = [r for r in found if not any(math.isnan(v) for v in r[:3])]
    if len(found) < 2:
        return []
    name = f"Accuracy of {title(attack)} over PDTP"
    ident = _ident(f"pdtp-{plain(attack.get('name'), 30)}")
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


def _methods(ran: list[Doc]) -> Block:
    rows = [
        (
            title(a),
            plain(a.get("threat_model"), 200),
            " / ".join(
                f"{number(a[k])} {w}"
                for k, w in (("n_members", "in"), ("n_nonmembers", "out"), ("n_shadows", "shadow models"))
                if a.get(k)
            ),
            _self_test(a.get("self_test")),
            plain(a.get("source"), 160),
        )
        for a in ran
    ]
    columns = ("Attack", "What the attacker knows", "Sample", "Self-test", "Source")
    return Table("How the attacks were run", columns, rows, folded="How the attacks were run, with sources")


def _self_test(value: Any) -> str:
    if isinstance(value, dict):
        if value.get("problem"):
            return f"failed: {plain(value['problem'], 120)}"
        return f"AUC {number(value.get('planted'))} on a planted leak, {number(value.get('blind'))} on none"
    return plain(value, 120) or "none recorded"


def _ident(text: str) -> str:
    return "".join(c if c.isascii() and c.isalnum() else "-" for c in text)
