"""Per-unit risk: how much each person's record matters, the worst first."""

import math
from typing import Any

from privgate.report import charts, reading, words
from privgate.report.blocks import Block, Chart, Facts, Section, Table, Text
from privgate.report.reading import Doc
from privgate.report.text import fold, number, plain, real

#: figures of the per-unit table, in words
NAMES = {
    "pdtp": "PDTP, direct queries",
    "dtp_lower": "DTP, largest change seen",
    "dtp_upper": "DTP, upper limit by theorem",
}


def section(doc: Doc) -> Section | None:
    """Return the distribution over units, the worst units under keyed hashes, and the noise floor."""
    units = reading.mapping(doc.get("units"))
    figures = reading.mapping(units.get("figures"))
    limit, figure = limit_of(doc)
    if "close" in units:
        return Section("units", "Risk of each person", _of_some(doc, units, limit))
    if not figures:
        return None
    blocks: list[Block] = [Facts(_facts(units, figures))]
    shown = [name for name in dict.fromkeys((figure, "pdtp")) if name in figures]
    # the largest change seen is often the direct one: one drawing then says both
    shown = shown[:1] if all(figures[n] == figures[shown[0]] for n in shown) else shown
    blocks += [_histogram(name, figures[name], units, limit) for name in shown]
    worst = reading.rows(units.get("worst"))
    if worst:
        blocks += [_intervals(worst, limit), _names(units)]
    return Section("units", "Risk of each person", blocks)


def _of_some(doc: Doc, units: Doc, limit: float) -> list[Block]:
    """Return the worst of those measured closely; a distribution over everybody does not exist in this mode."""
    mode = reading.mapping(reading.detail(doc).get("mode"))
    screened = mode.get("used") == "screen"
    told = f"{number(units.get('close'))} of {number(units.get('n'))} people or records were measured closely"
    rest = "the others were only ranked by shadow models" if screened else "the others are bounded by the largest value"
    note = "screened, not certified" if screened else "the exact maximum only"
    blocks: list[Block] = [Text(f"{note.capitalize()}: {told}; {rest}, so no distribution is shown.")]
    worst = reading.rows(units.get("worst"))
    return [*blocks, _intervals(worst, limit), _names(units)] if worst else blocks


def _names(units: Doc) -> Text:
    key = plain(units.get("key_id"), 9)
    said = f"Names are keyed hashes (key {key}); its holder, the controller, finds the records in records.parquet."
    return Text(said, "note")


def limit_of(doc: Doc) -> tuple[float, str]:
    """Return the limit that rules set on single units, nats, and the figure to draw it on; NaN without one."""
    for metric, figure in (("dtp", "dtp_upper"), ("pdtp", "pdtp")):
        for f in words.rules(doc):
            if f.get("metric") == metric and f.get("unit") == "nats" and math.isfinite(real(f.get("limit"))):
                unbounded = figure == "dtp_upper" and not _bounded(doc)
                return real(f["limit"]), "dtp_lower" if unbounded else figure
    return math.nan, "pdtp"


def _bounded(doc: Doc) -> bool:
    upper = reading.mapping(reading.mapping(reading.mapping(doc.get("units")).get("figures")).get("dtp_upper"))
    return any(upper.get("counts") or ())


def _facts(units: Doc, figures: Doc) -> list[tuple[str, str]]:
    told = [("People or records measured", number(units.get("n")))]
    for name, figure in figures.items():
        q = reading.mapping(reading.mapping(figure).get("quantiles"))
        middle, most = real(q.get("0.5")), real(q.get("1.0"))
        if math.isinf(middle):
            told.append((NAMES.get(name, name), "no limit known for most"))
        else:
            told.append((NAMES.get(name, name), f"half are below {_few(middle)}, the worst is {_few(most)}"))
    for row in reading.rows(units.get("above")):
        count = row.get("count")
        shown = f"1 to {number(real(units.get('small_cell', 10)) - 1)}" if count is None else number(count)
        name = NAMES.get(str(row.get("figure")), str(row.get("figure")))
        told.append((f"{name}: above {fold(row.get('limit'))}", f"{shown} of {number(units.get('n'))}"))
    return told


def _few(nats: float) -> str:
    return "unlimited" if math.isinf(nats) else f"{fold(nats)} ({number(nats)})"


def _histogram(name: str, figure: Doc, units: Doc, limit: float) -> Chart:
    edges = [real(e) for e in figure["edges"]]
    counts = [None if c is None else int(c) for c in figure["counts"]]
    unbounded = figure.get("unbounded")
    small = int(units.get("small_cell", 10))
    title = f"{NAMES.get(name, name)}: how many people have which figure"
    shown = f"1 to {small - 1}"
    rows = [
        (f"{number(a)} to {number(b)}", "suppressed" if c is None else number(c))
        for a, b, c in zip(edges, edges[1:], counts, strict=False)
        if c is None or c > 0
    ]
    if unbounded is None or unbounded:
        rows.append(("no upper limit known", "suppressed" if unbounded is None else number(unbounded)))
    svg = charts.histogram(
        f"hist-{name.replace('_', '-')}",
        title,
        f"Histogram with a logarithmic count axis. Cells of {shown} are suppressed and hatched.",
        edges=edges,
        counts=counts,
        unbounded=unbounded,
        small_cell=small,
        limit=limit,
    )
    table = Table(f"{title}, nats", ("Change, nats", "People or records"), rows, (1,), "Numbers of this chart")
    return Chart(f"hist-{name}", title, "", _reading(name, figure, units, limit), svg, table)


def _reading(name: str, figure: Doc, units: Doc, limit: float) -> str:
    q = reading.mapping(figure.get("quantiles"))
    middle, tail, most = (real(q.get(k)) for k in ("0.5", "0.99", "1.0"))
    said = f"Half of all people change an answer by less than {fold(middle)}" if math.isfinite(middle) else ""
    said += f", 99 % by less than {fold(tail)}" if said and math.isfinite(tail) else ""
    bounds = "no limit is known for some people" if math.isinf(most) else f"the worst is {fold(most)}"
    said = f"{said}; {bounds}" if said else "For most people no limit is known"
    above = [r for r in reading.rows(units.get("above")) if r.get("figure") == name and real(r.get("limit")) == limit]
    if above:
        count = above[0].get("count")
        many = "fewer than 10 people lie" if count is None else ("nobody lies" if not count else f"{number(count)} lie")
        said += f"; {many} above the limit of {fold(limit)}"
    return f"{said}."


def _intervals(worst: list[Doc], limit: float) -> Chart:
    rows: list[dict[str, Any]] = [
        {
            "unit": plain(w.get("unit"), 20)[:8],
            "pdtp": real(w.get("pdtp")),
            "low": real(w.get("dtp_lower", w.get("pdtp"))),
            "high": real(w.get("dtp_upper", "inf")),
            "noise": real(w.get("noise_floor", 0)),
        }
        for w in worst
    ]
    finite = [v for r in rows for v in (r["pdtp"], r["low"], r["high"]) if math.isfinite(v)]
    top = 1.12 * max([*finite, limit] if math.isfinite(limit) else finite, default=1.0) or 1.0
    for r in rows:
        # what has no figure is drawn at the far end, never at 0
        r.update({k: math.inf if math.isnan(r[k]) else r[k] for k in ("pdtp", "low", "high")})
        r["low"] = min(r["low"], top)
    title = f"The {len(rows)} people whose records matter most"
    open_ended = sum(math.isinf(r["high"]) for r in rows)
    noisy = [r for r in rows if r["pdtp"] <= r["noise"]]
    said = f"The record that matters most changes a direct answer {fold(max(r['pdtp'] for r in rows))}"
    said += (
        f"; for {open_ended} of these {len(rows)} no theorem limits the change over all questions"
        if open_ended
        else ("; every one of these is limited over all questions by a theorem")
    )
    said += f"; {len(noisy)} cannot be told from the noise of training" if noisy else ""
    svg = charts.intervals("worst", title, "Interval plot: one line a person, PDTP as a dot, DTP as a band.",
                           rows=rows, limit=limit, top=top)  # fmt: skip
    columns = (
        "Keyed hash",
        "PDTP",
        "DTP at least",
        "DTP at most",
        "Numerical error",
        "Noise floor",
        "Seeds",
        "Engine",
        "Status",
    )
    cells = [
        (
            plain(w.get("unit"), 20),
            *(number(w.get(k)) for k in ("pdtp", "dtp_lower", "dtp_upper", "error", "noise_floor", "seeds")),
            plain(w.get("engine"), 40),
            plain(w.get("status"), 20),
        )
        for w in worst
    ]
    table = Table(f"{title}, figures in nats", columns, cells, (1, 2, 3, 4, 5, 6), "Numbers of this chart")
    return Chart("worst", title, "", f"{said}.", svg, table)
