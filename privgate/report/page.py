"""The HTML report, and the overview of every production model: one file each, no scripts, nothing fetched."""

import math
from collections.abc import Iterable, Mapping
from datetime import UTC, datetime
from functools import cache
from pathlib import Path
from typing import Any
from urllib.parse import quote

from privgate.errors import SubjectError
from privgate.evidence.figures import fold, number
from privgate.evidence.verdict import Outcome
from privgate.report import page_one, two_reports, words
from privgate.report.report_schema import Comparison, ReportDocument, SubjectFacts, read
from privgate.report.sections import sections
from privgate.report.sentences import say
from privgate.report.text import moment, plain

_FOLDER = Path(__file__).parent / "templates"


@cache
def environment() -> Any:
    """Return the templates' environment: everything shown passes ``plain`` and is escaped."""
    from jinja2 import Environment, FileSystemLoader, StrictUndefined
    from markupsafe import Markup

    def shown(value: Any) -> Any:
        # sections have cut foreign text already; our own paragraphs are longer
        return value if isinstance(value, Markup) else plain(value, 4000)

    env = Environment(loader=FileSystemLoader(_FOLDER), autoescape=True, undefined=StrictUndefined, finalize=shown,
                      trim_blocks=True, lstrip_blocks=True)  # fmt: skip
    env.globals["style"] = Markup((_FOLDER / "style.css").read_text(encoding="utf-8"))  # noqa: S704  our own file
    env.globals["say"] = say
    env.filters["kind"] = lambda block: type(block).__name__
    env.filters["drawn"] = Markup  # only for drawings by privgate.report.charts, whose text matplotlib has escaped
    return env


def render(doc: ReportDocument | Comparison) -> str:
    """Return the report, or the comparison of two, as a self-contained HTML page."""
    if isinstance(doc, Comparison):
        page = environment().get_template("comparison.html")
        return str(page.render(title=two_reports.title(doc), parts=two_reports.blocks(doc)))
    told = {"front": page_one.view(doc), "sections": [*words.particulars(doc), *sections(doc)], "doc": doc}
    return str(environment().get_template("report.html").render(**told))


def index(rows: Iterable[Mapping[str, Any]], *, now: str = "") -> str:
    """Return one self-contained HTML page over many models, those that need attention first.

    Parameters
    ----------
    rows : iterable of mappings
        One a model version: ``document`` (its report, None without), ``name``, ``version``, ``alias``,
        ``href`` (relative address of its HTML report), ``problem`` (why its report could not be read, or does
        not belong to it). A report document by itself is a row too.
    now : str
        RFC 3339; what expires before it is marked. Without it nothing is marked and the page says so.
    """
    lines = sorted((_line(r, now) for r in rows), key=lambda r: (r["order"], r["model"], sorted(map(str, r.items()))))
    attention, models = sum(r["order"] < 2 for r in lines), "model version" if len(lines) == 1 else "model versions"
    state = f"; {number(attention)} not approved, expired or never checked" if attention else ", all approved"
    said = f"{number(len(lines))} {models}{state}." if lines else "No model version was found."
    told = {"lines": lines, "now": moment(now), "summary": said}
    return str(environment().get_template("index.html").render(**told))


def _line(row: Mapping[str, Any], now: str) -> dict[str, Any]:
    alone = "schema" in row
    given, problem, doc = row if alone else row.get("document"), plain(row.get("problem"), 200), None
    if given and not problem:
        try:
            doc = read(given)
        except SubjectError as exc:
            problem = plain(exc, 200)
    called = {k: str(row[k]) for k in ("name", "version") if row.get(k) and not alone}
    named = (doc.subject if doc else SubjectFacts()).model_copy(update=called)
    line = {"model": page_one.subject(named), "alias": plain(row.get("alias"), 40), "href": _href(row.get("href"))}
    if doc is None:
        state = "Report unusable" if problem else "Never checked"
        told = {"tone": "bad", "verdict": state, "note": problem, "order": 0}
        return {**line, **told, **dict.fromkeys(("policy", "expires", "worst", "checked"), "")}
    late = _late(doc.expires, now)
    released = doc.approved and not late
    return {
        **line,
        "tone": "bad" if late else "watch" if doc.observed else page_one.TONES[doc.outcome],
        "verdict": words.capital(words.decide(doc).text) + (", expired" if late else ""),
        "note": "",
        "order": 1 + released + (released and doc.outcome is Outcome.PASSED),
        "policy": plain(doc.policy.name, 40),
        "expires": moment(doc.expires) or "no statement",
        "worst": _worst(doc),
        "checked": moment(doc.decided_at) or "not recorded",
    }


def _worst(doc: ReportDocument) -> str:
    if not doc.units or not doc.units.worst:
        return "not measured"
    first = doc.units.worst[0]
    # what has no figure is the worst
    change = max((first.pdtp, first.dtp_lower), key=lambda v: math.inf if math.isnan(v) else v)
    return f"{plain(first.unit, 16)[:8]}: {fold(change)} ({number(change)} nats)"


def _late(expires: str, now: str) -> bool:
    """Whether a report's time is over; a date that cannot be read is over."""
    if not expires or not now:
        return False
    try:
        end, today = (datetime.fromisoformat(text) for text in (expires, now))
    except ValueError:
        return True
    end, today = (when if when.tzinfo else when.replace(tzinfo=UTC) for when in (end, today))
    return end <= today


def _href(value: Any) -> str:
    """Return a relative address, percent-encoded; anything with a scheme, host or way up is dropped."""
    text = str(value or "")
    if ":" in text or text.startswith(("/", "\\")) or ".." in text.split("/"):
        return ""
    return quote(text)
