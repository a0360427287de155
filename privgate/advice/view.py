"""Advice for people: a table for the terminal, and one page with risk against usefulness for the browser."""

import math
from collections.abc import Iterator
from html import escape

from privgate.advice.picture import picture
from privgate.advice.point import Point, Tried

_STYLE = (
    "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color:#1c1c1c;"
    "background:#fff}table{border-collapse:collapse;width:100%}td,th{text-align:left;padding:.3rem .6rem;"
    "border-bottom:1px solid #ddd;vertical-align:top}td.n{text-align:right;font-variant-numeric:tabular-nums}"
    ".best td{font-weight:600}svg{display:block;width:100%;max-width:52rem;height:auto;margin:1rem 0}"
)


def summary(advice: Tried) -> str:
    """Return in a sentence or two what came out."""
    present = advice.points[0]
    if present.passes:
        return "The model as it stands keeps every rule in the search; check it."
    if not advice.best:
        return (
            f"No change that was tried keeps {advice.policy}; the nearest is {_nearest(advice)}. "
            "More time, another policy or another kind of model is needed."
        )
    found = advice.best[0]
    cost = f"{advice.measure} {present.useful:.4f} becomes {found.useful:.4f}" if not math.isnan(found.useful) else ""
    if not math.isnan(found.confirmed_useful):
        cost += f" ({found.confirmed_useful:.4f} on folds that the search did not choose by)"
    says, saw = found.change.says, f"{found.confirmed_value:.3g}, and the search saw {found.value:.3g}"
    return (
        f"{says[:1].upper()}{says[1:]}: {_number(found)} where {found.limit:g} is allowed; the model as it stands has "
        f"{_number(present)}; {cost}. A whole check with other randomness agrees: {saw}; it was chosen among "
        f"{len(advice.points) - 1} candidates."
    )


def _nearest(advice: Tried) -> str:
    known = [p for p in advice.points[1:] if not math.isnan(p.of_limit) and not p.change.games]
    if not known:
        return "unknown: nothing could be measured"
    least = min(known, key=lambda p: p.of_limit)
    return f"{least.change.says!r} with {_number(least)} of {least.limit:g}"


def _number(point: Point) -> str:
    if math.isnan(point.of_limit):
        return "an undecided risk"
    value = f"{point.value:.3g}" if math.isfinite(point.value) else "without limit,"
    return f"{value}{' ' + point.unit if point.unit and math.isfinite(point.value) else ''}"


def _rows(advice: Tried) -> Iterator[tuple[str, ...]]:
    for p in advice.points:
        again = "" if math.isnan(p.confirmed_value) else f" at {p.confirmed_value:.3g}"
        result = p.outcome + (f", a whole check: {p.confirmed}{again}" if p.confirmed else "")
        other = "" if math.isnan(p.confirmed_useful) else f", other folds {p.confirmed_useful:.4f}"
        useful = "" if math.isnan(p.useful) else f"{p.useful:.4f} ± {p.useful_error:.4f}{other}"
        risk = "unknown" if math.isnan(p.of_limit) else f"{_number(p)} of {p.limit:g}"
        why = f" ({p.why})" if math.isnan(p.of_limit) and p.why else ""
        yield str(p.number), result, risk, useful, f"{p.trainings} in {p.seconds:.0f} s", f"{p.change.says}{why}"


def text(advice: Tried) -> str:
    """Return a table for the terminal."""
    head = ("no", "result", "risk of limit", advice.measure, "trainings", "change")
    rows = [head, *_rows(advice)]
    widths = [max(len(r[i]) for r in rows) for i in range(len(head) - 1)]
    lines = ["  ".join([*(c.ljust(w) for c, w in zip(r, widths, strict=False)), r[-1]]) for r in rows]
    games = [f"{p.number}: not advised: {p.change.games}" for p in advice.points if p.change.games]
    return "\n".join([*lines, *games, *(f"not tried: {left}" for left in advice.left)])


def html(advice: Tried) -> str:
    """Return the summary, the picture and the table, as HTML."""
    best = {p.number for p in advice.best[:1]}
    head = "".join(f"<th scope=col>{escape(c)}</th>" for c in ("", "result", "risk", advice.measure, "took", "change"))
    body = "".join(
        f"<tr{' class=best' if int(r[0]) in best else ''}>" + "".join(f"<td>{escape(c)}</td>" for c in r) + "</tr>"
        for r in _rows(advice)
    )
    notes = "".join(
        f"<p>{p.number} is not advised: {escape(p.change.games)}.</p>" for p in advice.points if p.change.games
    ) + "".join(f"<p>Not tried: {escape(left)}.</p>" for left in advice.left)
    return f"<p>{escape(summary(advice))}</p>{picture(advice)}<table><tr>{head}</tr>{body}</table>{notes}"


def page(advice: Tried) -> str:
    """Return ``html`` as a page of its own: no scripts, nothing fetched."""
    title = escape(f"Advice for {advice.uri or 'a local model'} by {advice.policy}")
    return (
        f'<!doctype html><html lang="en"><head><meta charset="utf-8"><title>{title}</title>'
        f'<meta name="viewport" content="width=device-width"><style>{_STYLE}</style></head>'
        f"<body><main><h1>{title}</h1>{html(advice)}</main></body></html>"
    )
