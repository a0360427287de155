"""From ``bench-results.jsonl`` to ``results.md``: one table a bench, the last measurement of everything.

python tests/bench/results_table.py [bench-results.jsonl [tests/bench/results.md]]
"""

import json
import math
import sys
from pathlib import Path

from kept import machine

RESULTS = Path(__file__).with_name("results.md")
MEASURED = Path("bench-results.jsonl").absolute()  # a test may change the folder
#: where the ranges of all ratios are quoted, between two marks
QUOTED = Path(__file__).parents[2] / "docs" / "measuring.md"
MARKS = "<!-- ranges -->\n", "<!-- end of ranges -->\n"
#: what makes two lines measurements of the same thing
SAME = ("engine", "certificate", "attack", "model", "models", "case", "data", "n", "records", "kind", "units",
        "expectations")  # fmt: skip
#: benches with columns of their own: heading, (column, key or function)
LEAVE_ONE_OUT = ("leave-one-out", "exact maximum")
HEADINGS = {
    "leave-one-out": "Leave-one-out of everybody next to as many refits",
    "exact maximum": "The exact maximum alone (`--mode max`) next to as many refits",
    "check": "A whole `privgate check` in units of one training",
    "attack_scoring": "Scoring every record in every model",
    "shared_shadows": "Shared shadow models next to the 200,000 trainings of one set a record (wanted: for 64 models)",
}
FIRST = ("leave-one-out", "exact maximum", "check")


def note(**row):
    """Print what a bench has measured, and add it as a line to what all have."""
    line = json.dumps(row)
    print(line)
    with MEASURED.open("a", encoding="utf-8") as f:
        f.write(line + "\n")


def read(path):
    """Return the last line of each measurement, by bench, in the order in which they first appear."""
    found = {}
    for text in path.read_text(encoding="utf-8").splitlines():
        row = json.loads(text)
        topic = str(row.pop("bench", None) or row.pop("figure", None) or row.get("case") or row.get("what"))
        found.setdefault(topic, {})[tuple(row.get(k) for k in SAME)] = row
    return {topic: list(rows.values()) for topic, rows in found.items()}


def number(value, digits=3):
    """Return a number for people; nothing where there is none.

    >>> number(0.0481), number(12160.33), number(float("nan")), number(True), number(2.03e-8)
    ('0.0481', '12,160', '', 'yes', '2.0e-08')
    """
    if isinstance(value, bool):
        return "yes" if value else "**no**"
    if not isinstance(value, int | float):
        return "" if value is None else str(value).replace("|", "\\|")
    if math.isnan(value):
        return ""
    if value == int(value) and abs(value) < 1e15:
        return f"{int(value):,}"
    if abs(value) >= 100:
        return f"{value:,.0f}"
    return f"{value:.1e}" if abs(value) < 1e-3 else f"{value:.{digits}g}"


def table(heads, rows):
    """Return lines of a Markdown table without columns that are empty everywhere."""
    kept = [j for j in range(len(heads)) if any(row[j] for row in rows)]
    yield f"| {' | '.join(heads[j] for j in kept)} |"
    yield f"|{' --- |' * len(kept)}"
    for row in rows:
        yield f"| {' | '.join(row[j] for j in kept)} |"


def growth_of(found):
    """Return (engine, data) -> fitted exponents in n of the engine and of refits."""
    return {
        (r["engine"], r["data"]): f"{r['engine_exponent']:.2f} / {r['refits_exponent']:.2f}"
        for r in found.get("growth", ())
    }


def leave_one_out(rows, growth):
    """Return lines about engines next to refits."""
    heads = ("Engine", "Data", "n", "Seconds", "Refits, seconds", "of which timed", "Ratio",
             "Wanted", "Reached", "Largest PDTP error", "compared", "Handed on", "Ratio, these refitted",
             "Growth in n, engine / refits")  # fmt: skip
    keys = ("engine", "data", "n", "seconds", "refit_seconds", "refits_timed", "ratio",
            "wanted", "reached", "pdtp_error", "pdtp_compared", "handed_on", "ratio_with_refits")  # fmt: skip
    ordered = sorted(rows, key=lambda r: (r["engine"], r["data"], r["n"]))
    return table(
        heads, [[*(number(r.get(k)) for k in keys), growth.get((r["engine"], r["data"]), "")] for r in ordered]
    )


def ranges(rows):
    """Return lines with the range of each engine's ratios over data and sizes, none left out."""
    heads = ("Engine", "n", "To refits", "Those handed on refitted")
    engines = sorted({r["engine"] for r in rows})
    made = []
    for engine in engines:
        own = [r for r in rows if r["engine"] == engine]
        cells = [span([r[k] for r in own if number(r.get(k))]) for k in ("n", "ratio", "ratio_with_refits")]
        made.append([engine, *cells])
    return table(heads, made)


def span(values):
    """Return the smallest and the largest of some numbers.

    >>> span([3.14, 2000.0]), span([5]), span([])
    ('3.14 to 2,000', '5', '')
    """
    ends = [number(f(values)) for f in (min, max)] if values else []
    return " to ".join(dict.fromkeys(ends))


def whole_check(rows):
    """Return lines about a whole check."""
    heads = ("Model, data", "n", "Engine", "One training, seconds", "Check, seconds", "In trainings", "Seeds",
             "n x seeds trainings / check", "Trainings made", "Answered", "Handed on", "Verdict")  # fmt: skip
    keys = ("data", "n", "engine", "training_seconds", "seconds", "ratio", "seeds", "saved", "training_calls",
            "answered", "handed_on", "outcome")  # fmt: skip
    return table(heads, [[number(r.get(k)) for k in keys] for r in rows])


def anything(rows):
    """Return lines about a bench without columns of its own: every plain value."""
    keys = list(dict.fromkeys(k for r in rows for k, v in r.items() if not isinstance(v, list | dict)))
    if keys:
        yield from table([k.replace("_", " ") for k in keys], [[number(r.get(k)) for k in keys] for r in rows])
    for row in rows:
        for inner in (v for v in row.values() if isinstance(v, list) and v and isinstance(v[0], dict)):
            yield ""
            yield from anything(inner)
        for name, inner in row.items():
            if isinstance(inner, dict):
                yield ""
                yield f"{name}: " + "; ".join(f"{k} {v}" for k, v in inner.items())


def document(found):
    """Return the whole document."""
    lines = [
        "# Measured",
        "",
        "Made by `make bench` from `bench-results.jsonl`; edit neither. Seconds are processor time of one core, the",
        "full fit included; of whole checks they are by the clock, of one worker on a quiet core. Refits are timed on",
        "the stated number of units and extrapolated to all n. PDTP in nats,",
        "compared with real refits (logistic regression: with the exact minimiser) of the stated number of units.",
        "",
        f"Machine: {machine()}.",
    ]
    if rows := found.get("leave-one-out"):
        lines += ["", "## Each engine's ratios from the smallest to the largest", "", *ranges(rows)]
    growth = growth_of(found)
    topics = [t for t in FIRST if t in found] + [t for t in found if t not in (*FIRST, "growth")]
    for topic in topics:
        lines += ["", f"## {HEADINGS.get(topic, topic[:1].upper() + topic[1:])}", ""]
        if topic in LEAVE_ONE_OUT:
            lines += leave_one_out(found[topic], growth if topic == "leave-one-out" else {})
        else:
            lines += whole_check(found[topic]) if topic == "check" else anything(found[topic])
    return "\n".join(lines) + "\n"


def quoted(text, rows):
    """Return a document with the ranges between its marks."""
    before, _, rest = text.partition(MARKS[0])
    lines = "\n".join(ranges(rows))
    return f"{before}{MARKS[0]}\n{lines}\n\n{MARKS[1]}{rest.partition(MARKS[1])[2]}"


def main(source=MEASURED, target=RESULTS, quoting=QUOTED):
    """Write the document, and quote it."""
    path = Path(source)
    if not path.exists():
        sys.exit(f"{path} does not exist; `make bench` writes it")
    found = read(path)
    Path(target).write_text(document(found), encoding="utf-8")
    if rows := found.get("leave-one-out"):
        quoting.write_text(quoted(quoting.read_text(encoding="utf-8"), rows), encoding="utf-8")


if __name__ == "__main__":
    main(*sys.argv[1:])
