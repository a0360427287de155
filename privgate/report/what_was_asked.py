"""The questions that a release is: how each was decided and by what margin, and what an officer has to defend."""

import math
import re
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from privgate.evidence.figures import number
from privgate.policy.rules import about
from privgate.policy.rules.metric import QUESTIONS
from privgate.report import assertions, words
from privgate.report.assertions import Assertion
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import known, say
from privgate.report.text import moment, plain, prose
from privgate.verdict import Finding, Outcome

#: conditions that say something of a question, whatever the policy asks
_LOOKED: Mapping[str, str] = {"file": "precondition:file", "claim": "precondition:dp_"}


@dataclass(frozen=True, slots=True)
class Asked:
    """What page one says of one question."""

    #: of ``QUESTIONS``
    question: str
    #: ``approved``, ``refused``, ``undecided``, ``only_warned`` or ``not_asked``
    state: str
    #: the same in a sentence: the rule that decides it, and how far its figure is from its limit
    told: str
    decided_by: Assertion | None = None


def of(doc: ReportDocument) -> list[Asked]:
    """Return one a question; that of a claim only where differential privacy is claimed or a rule is about it."""
    every = assertions.of(doc)
    claimed = doc.subject.recipe is not None and doc.subject.recipe.dp is not None
    found = {q: [a for a in every if not a.condition and _judged(a, q)] for q in QUESTIONS}
    looked = {q: [a for a in every if a.finding.rule.startswith(name)] for q, name in _LOOKED.items()}
    return [_of(q, found[q], looked.get(q, [])) for q in QUESTIONS if q != "claim" or claimed or found[q]]


def otherwise(doc: ReportDocument) -> Iterator[str]:
    """Yield each rule whose question another rule answered, and that does not approve by itself."""
    for a in assertions.of(doc):
        if a.outcome is Outcome.NOT_NEEDED and a.measured:
            yield say("question.otherwise", rule=a.asked, value=a.value, limit=a.threshold)


def _judged(a: Assertion, question: str) -> bool:
    return about(a.finding.metric).question == question and a.outcome is not Outcome.NOT_NEEDED


def _of(question: str, found: list[Assertion], looked: list[Assertion]) -> Asked:
    name = say(f"question.{question}")
    enforced = [a for a in found if a.finding.mode == "enforce" and a.finding.applies]
    worst = max(enforced or found, key=lambda a: (a.outcome.rank, -room(a)), default=None)
    # a figure counts only where what it rests on holds: a claim that reruns contradict is not approved by its epsilon
    if looked and (looked[0].outcome.rank > worst.outcome.rank if worst else question == "file"):
        first, ended = looked[0], {Outcome.WARNED: "only_warned", Outcome.PASSED: "approved"}
        state = {Outcome.FAILED: "refused", **ended}.get(first.outcome, "undecided")
        return Asked(question, state, say("why.message", title=name, message=f"{prose(first.finding.message)}."), first)
    if worst is None:
        return Asked(question, "not_asked", say("question.not_asked", name=name))
    state = {Outcome.FAILED: "refused", Outcome.INCONCLUSIVE: "undecided"}.get(worst.outcome, "approved")
    state = state if enforced else "only_warned"
    key = "warned" if enforced and worst.outcome is Outcome.WARNED else state
    share = assertions.unit(worst.finding) == "fraction" and about(worst.finding.metric).guessing is None
    value = f"{worst.value} ({worst.asked})" if share else worst.value  # a share says nothing without of whom
    told = {"name": name, "value": value, "limit": worst.threshold, "margin": beside(worst)}
    return Asked(question, state, say(f"question.{key}", **told), worst)


def guessing(f: Finding) -> float:
    """Return what whoever guesses reaches: of the metric, or of the prior or false accusations that a rule asks for."""
    asked = re.search(r"(prior|at_fpr)=([\d.e-]+)", f.request)
    if asked is None or f.unit != "fraction":
        return about(f.metric).guessing or 0.0
    return max(float(asked[2]), 1 - float(asked[2])) if asked[1] == "prior" else float(asked[2])


def room(a: Assertion) -> float:
    """Return how far the safe end of a figure is within its limit, as a share of the limit; infinite where none is.

    Of an attack only what is above guessing counts. Negative: so far beyond the limit is the other end.
    """
    f, guess = a.finding, guessing(a.finding)
    within, beyond = (f.high, f.low) if f.direction == "max" else (f.low, f.high)
    whole, sign = abs(f.limit - guess), 1 if f.direction == "max" else -1
    if not (whole > 0 and math.isfinite(whole)):
        return math.inf
    left, over = sign * (f.limit - within), sign * (beyond - f.limit)
    if left >= 0 and math.isfinite(left):
        return left / whole
    return -over / whole if over > 0 else math.inf


def margin(a: Assertion) -> str:
    """Return how far a figure is from its limit, in words, rounded down; empty where that has no meaning."""
    f, share = a.finding, room(a)
    if share == -math.inf:
        return say("margin.unlimited")
    if math.isfinite(share):
        side = "_min" if f.direction == "min" else "_guess" if guessing(f) else ""
        told = math.floor(100 * abs(share))  # never told larger than it is
        if share < 0 and not told:
            return say("margin.beyond")
        return say(f"margin.{'left' if share >= 0 else 'over'}{side}", share=f"{number(told)} %")
    ends = (f.low, f.limit, f.high)
    both = a.measured and all(map(math.isfinite, ends)) and f.low <= f.limit <= f.high and f.low < f.high
    return say("margin.both") if both else ""


def smallest(found: list[Assertion]) -> Mapping[str, str]:
    """Return which rule has the smallest margin, and the margin; empty where none of them has one."""
    rooms = [(share, a) for a in found if a.measured and (share := room(a)) < math.inf]
    least = min(rooms, key=lambda known: known[0])[1] if rooms else None
    return {"rule": least.asked, "margin": margin(least)} if least else {}


def beside(a: Assertion) -> str:
    """Return a margin as the end of a sentence."""
    told = margin(a)
    return f", {told}" if told else ""


def template(doc: ReportDocument) -> list[Mapping[str, Any]]:
    """Return the questions as page one shows them."""
    tone = {"approved": "good", "refused": "bad", "undecided": "open", "only_warned": "care", "not_asked": "care"}
    return [{"tone": tone[a.state], "told": words.capital(a.told)} for a in of(doc)]


#: warnings and waivers that page one names one by one
LINES = 3
#: what only a person can say, left empty: harm, mitigations, advice, acceptance, signature
FIELDS = ("severity", "mitigations", "advice", "accepted", "signed")


def second_side(doc: ReportDocument) -> dict[str, Any]:
    """Return the second side of page one."""
    asked = of(doc)
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
        if least := smallest([a for a in told if a.outcome is Outcome.PASSED]):
            yield say("remains.margin", **least)
    titles = {a.finding.rule: a.asked for a in told}
    for w in [w for w in doc.waivers if w.status.startswith("applied")][:LINES]:
        by = {"approver": plain(w.approver, 40), "until": moment(w.expires)}
        yield say("remains.waived", rule=titles.get(w.rule, plain(w.rule, 40)), **by)
    if unasked := [say(f"question.{q.question}") for q in asked if q.state == "not_asked"]:
        yield say("remains.not_asked", names=", ".join(unasked))
