"""The questions that a release is: which were met and by how much, and which nobody asked."""

import math
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from privgate.policy.rules import about
from privgate.policy.rules.metric import QUESTIONS
from privgate.report import assertions, words
from privgate.report.assertions import Assertion
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import prose
from privgate.verdict import Outcome

#: what was looked at before anything was trained, whatever the policy asks
_LOOKED = "precondition:file"


@dataclass(frozen=True, slots=True)
class Asked:
    """What page one says of one question.

    Parameters
    ----------
    question : str
        Of ``QUESTIONS``.
    state : str
        ``met``, ``broken``, ``open`` or ``not_asked``.
    told : str
        The same in a sentence: the rule that decides it, and how far its figure is from its limit.
    """

    question: str
    state: str
    told: str


def of(doc: ReportDocument) -> list[Asked]:
    """Return one a question; that of a claim only where differential privacy is claimed or a rule is about it."""
    told = [a for a in assertions.of(doc) if not a.condition]
    claimed = doc.subject.recipe is not None and doc.subject.recipe.dp is not None
    kept = [q for q in QUESTIONS if q != "claim" or claimed or any(_judged(a, q) for a in told)]
    looked = [a for a in assertions.of(doc) if a.finding.rule == _LOOKED]
    return [_of(q, [a for a in told if _judged(a, q)], looked if q == "file" else []) for q in kept]


def not_met_by_itself(doc: ReportDocument) -> Iterator[str]:
    """Yield each rule that was not needed, because another one answered its question, and is not met by itself."""
    for a in assertions.of(doc):
        if a.outcome is Outcome.NOT_NEEDED and a.measured:
            yield say("question.otherwise", rule=a.asked, value=a.value, limit=a.threshold)


def _judged(a: Assertion, question: str) -> bool:
    return about(a.finding.metric).question == question and a.outcome is not Outcome.NOT_NEEDED


def _of(question: str, found: list[Assertion], looked: list[Assertion]) -> Asked:
    name = say(f"question.{question}")
    enforced = [a for a in found if a.finding.mode == "enforce" and a.finding.applies]
    if not enforced and looked:
        first = looked[0]
        state = {Outcome.FAILED: "broken", Outcome.INCONCLUSIVE: "open"}.get(first.outcome, "met")
        return Asked(question, state, f"{name}: {prose(first.finding.message)}.")
    if not enforced:
        return Asked(question, "not_asked", say("question.not_asked", name=name))
    worst = max(enforced, key=lambda a: (a.outcome.rank, -_room(a)))
    state = "broken" if worst.outcome is Outcome.FAILED else ("met" if worst.outcome.releases else "open")
    key = "warned" if worst.outcome is Outcome.WARNED else state
    room = say("question.room", room=percent(_room(worst))) if state == "met" and _room(worst) < math.inf else ""
    told = {"name": name, "value": worst.value, "limit": worst.threshold, "room": room}
    return Asked(question, state, say(f"question.{key}", **told))


def _room(a: Assertion) -> float:
    """Return how far the safe end of a figure is from its limit, as a share of the limit; infinite where it has none.

    Of an attack's accuracy only what is above guessing counts.
    """
    f, guess = a.finding, about(a.finding.metric).guessing or 0.0
    end, limit = (f.high, f.limit) if f.direction == "max" else (f.low, f.limit)
    whole = abs(limit - guess)
    return abs(limit - end) / whole if math.isfinite(end) and whole > 0 and math.isfinite(limit) else math.inf


def percent(share: float) -> str:
    """Return a margin, rounded down: it is never told larger than it is."""
    return f"{math.floor(100 * min(share, 1.0))} %"


def template(doc: ReportDocument) -> list[Mapping[str, Any]]:
    """Return the questions as page one shows them."""
    tone = {"met": "good", "broken": "bad", "open": "open", "not_asked": "care"}
    return [{"tone": tone[a.state], "told": words.capital(a.told)} for a in of(doc)]
