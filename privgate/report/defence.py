"""What an officer has to defend: what could happen to a person, which warnings count, what remains, and who signs."""

import re
from collections.abc import Iterator, Mapping
from typing import Any

from privgate.report import assertions, what_was_asked
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import known, say
from privgate.report.text import moment, plain
from privgate.report.what_was_asked import Asked
from privgate.verdict import Outcome

#: warnings and waivers that page one names one by one
LINES = 3
#: what only a person can say, left empty: harm, mitigations, advice, acceptance, signature
FIELDS = ("severity", "mitigations", "advice", "accepted", "signed")


def view(doc: ReportDocument) -> dict[str, Any]:
    """Return the second side of page one."""
    asked = what_was_asked.of(doc)
    return {
        "harms": [_harm(q) for q in asked],
        "weighed": list(_weighed(doc)) or [say("weighed.none")],
        "remains": list(_remains(doc, asked)),
        "mitigations": [say("mitigations.none")],
        "fields": [say(f"sign.{name}") for name in FIELDS],
    }


def _harm(q: Asked) -> Mapping[str, str]:
    """Return what could happen, how likely it is by the figure that decides the question, and how bad."""
    return {
        "what": say(f"harm.{q.question}"),
        "likely": say("likely.not_asked") if q.state == "not_asked" else _likely(q),
        "bad": say(f"bad.{q.question}"),
    }


def _likely(q: Asked) -> str:
    a = q.decided_by
    if a is not None and a.condition:
        return f"{a.consequence}."
    if a is None or not a.measured:
        return say("likely.unknown")
    # of some people only, whom its title names
    some = re.search(r"aggregate=quantile|scope=(?!model)|share_above|of=share", a.finding.request)
    key = "" if some else f"likely.{a.finding.metric}"
    at = a.threshold.removeprefix(assertions.limit(a.finding))  # an epsilon says nothing without its delta
    return say(key if known(key) else "likely.other", title=a.asked, value=a.value + at)


def _weighed(doc: ReportDocument) -> Iterator[str]:
    """Yield each warning, and why it refuses nothing."""
    warned = [a for a in assertions.of(doc) if a.outcome is Outcome.WARNED]
    for a in warned[:LINES]:
        if a.condition or a.finding.mode == "warn":
            figures = {"value": a.value, "limit": a.threshold}
            yield say("weighed.condition" if a.condition else "weighed.rule", rule=a.asked, **figures)
        else:  # what is enforced warns by a waiver, of doubt, or of a file that nobody gets: whoever judged says which
            why = plain(a.finding.waiver or a.finding.message, 200)
            yield say("why.message", title=a.asked, message=why if why[-1] in ".…" else f"{why}.")
    if len(warned) > LINES:
        yield say("weighed.more", count=len(warned) - LINES)


def _remains(doc: ReportDocument, asked: list[Asked]) -> Iterator[str]:
    """Yield which risk stays, and who accepted it by policy or waiver."""
    policy, told = plain(doc.policy.name, 40) or say("policy.unnamed"), assertions.of(doc)
    if not doc.approved:
        yield say("remains.refused")
    else:
        yield say("remains.limits", policy=policy)
        if least := what_was_asked.smallest([a for a in told if a.outcome is Outcome.PASSED]):
            yield say("remains.margin", **least)
    titles = {a.finding.rule: a.asked for a in told}
    for w in [w for w in doc.waivers if w.status.startswith("applied")][:LINES]:
        by = {"approver": plain(w.approver, 40), "until": moment(w.expires)}
        yield say("remains.waived", rule=titles.get(w.rule, plain(w.rule, 40)), **by)
    if unasked := [say(f"question.{q.question}") for q in asked if q.state == "not_asked"]:
        yield say("remains.not_asked", names=", ".join(unasked))
