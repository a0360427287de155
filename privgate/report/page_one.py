"""Page one: the decision, a tile a question, two pictures, what could happen, what stays open, and who signs.

It holds at most 350 words and each number once; what it leaves out stands in the evidence below it.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from privgate.evidence import Count, Measurement, NextStep
from privgate.evidence.figures import figure, fold, number, percent, percent_at_most, sure
from privgate.evidence.measurement import BehindInfluence, BehindMembership
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.rules import about
from privgate.policy.rules.metric import QUESTIONS
from privgate.policy.rules.rule_base import WAY_OUT
from privgate.report import assertions, pictures, words
from privgate.report.assertions import Assertion
from privgate.report.report_schema import ComparedReport, ReportDocument, SubjectFacts
from privgate.report.sentences import say
from privgate.report.text import moment, plain, prose, whole
from privgate.report.words import WITHHELD, capital

#: outcome -> tone; each has a symbol of its own shape, because colour alone tells nothing in print
TONES: Mapping[str, str] = {
    Outcome.NOT_NEEDED: "watch",
    Outcome.PASSED: "good",
    Outcome.WARNED: "care",
    Outcome.INCONCLUSIVE: "open",
    Outcome.FAILED: "bad",
}
#: characters of the longest texts, which end with a whole clause
_ROOM = {"reason": 220, "step": 200, "tile": 130, "fact": 60}
#: conditions that say something of a question, whatever the policy asks
_LOOKED: Mapping[str, str] = {"file": "precondition:file", "claim": "precondition:dp_"}


@dataclass(frozen=True, slots=True)
class Bar:
    """A figure beside its limit: places from 0 to 1000."""

    #: where the figure's interval begins and ends, where it stands, and where the limit does
    low: int
    high: int
    value: int
    limit: int
    #: the interval has no end: the bar runs off its scale
    unlimited: bool


@dataclass(frozen=True, slots=True)
class Tile:
    """How one question was decided."""

    #: of ``QUESTIONS``
    question: str
    #: outcome of the question; ``not needed`` where the policy does not ask it
    outcome: Outcome
    title: str
    #: the outcome in a word or two, the figure, and its interval, limit, sample and confidence
    state: str
    value: str
    text: str
    bar: Bar | None = None

    @property
    def tone(self) -> str:
        """Name of colour and symbol."""
        return TONES[self.outcome]


def view(doc: ReportDocument) -> dict[str, Any]:
    """Return what page one says."""
    decision = words.decide(doc).text
    word = re.split(r"\W", decision, maxsplit=1)[0]
    shown = tiles(doc)
    asked = [t.question for t in shown if t.outcome is not Outcome.NOT_NEEDED and (t.question != "claim" or t.value)]
    return {
        "tone": "watch" if doc.observed else TONES[doc.outcome],
        "decision": capital(decision),
        "word": capital(word),
        "covers": decision.removeprefix(word).strip(),
        "subject": subject(doc.subject)
        + (say("owned", owner=owner) if (owner := plain(doc.context.owner, 40)) else ""),
        "reason": reason(doc),
        "facts": list(_facts(doc)),
        "next": steps(doc, _ROOM["step"])[0],
        "tiles": shown,
        "pictures": pictures.draw(doc),
        "harms": [(say(f"harm.{question}"), say(f"bad.{question}")) for question in asked],
        "open": list(_open(doc)),
        "signing": list(_signing(doc)),
    }


def subject(s: SubjectFacts | ComparedReport) -> str:
    """Return "credit, version 3"."""
    name = plain(s.name, 60) or say("subject.unnamed")
    return say("subject", name=name, version=plain(s.version, 20)) if s.version else name


def policy(doc: ReportDocument) -> str:
    """Return the policy's name and version."""
    name, version = plain(doc.policy.name, 40) or say("policy.unnamed"), plain(doc.policy.version, 20)
    return f"{name} v{version}" if version else name


def reason(doc: ReportDocument) -> str:
    """Return what an approval warns of or leaves out, and what blocked anything else: a sentence or two."""
    decided, every = deciding(doc), assertions.of(doc)
    if not decided:
        return say("reason.no_rule")
    if not doc.outcome.releases:
        a = decided[0]
        others = [
            b.asked
            for b in every
            if b.finding.rule != a.finding.rule and b.outcome in (Outcome.FAILED, Outcome.INCONCLUSIVE)
        ]
        key = f"reason.{a.outcome}" if a.measured else "reason.message"
        title = say("row.title", title=a.asked) if a.condition else a.asked
        said = say("reason.refused") + _stop(
            whole(say(key, title=title, message=prose(a.finding.message)), _ROOM["reason"])
        )
        return f"{said} {say('reason.more', titles='; '.join(others[:2]))}" if others else said
    doubted = [a for a in every if a.outcome is Outcome.WARNED]
    warned = [say("row.title", title=a.asked) if a.condition else a.asked for a in doubted if not a.finding.waiver]
    told = [say("reason.scope")] if words.decide(doc).scope else []
    told += [say("reason.warned", titles="; ".join(warned[:2]))] if warned else []
    waived = ((a.asked, whole(prose(a.finding.waiver), 120)) for a in doubted if a.finding.waiver)
    return " ".join([*told, *(_stop(say("reason.waived", title=title, why=why)) for title, why in waived)])


def deciding(doc: ReportDocument) -> list[Assertion]:
    """Return what decided, conditions that block first, because no figure counts without them."""
    every = assertions.of(doc)
    decided = [a for a in every if a.outcome is doc.outcome]
    if not doc.outcome.releases:
        return sorted(decided, key=lambda a: not a.condition)
    rules = [a for a in decided if not a.condition]
    return rules or [a for a in every if not a.condition and a.outcome is Outcome.PASSED] or decided


def _facts(doc: ReportDocument) -> Iterator[tuple[str, str]]:
    s, by = doc.subject, plain(doc.context.run_by, 30) or say("not_stated")
    people = s.n_units or s.n_records
    each = say("each.one" if people == s.n_records else "each.several", records=number(s.n_records))
    box = plain(doc.evidence.run.isolation, 60)
    apart = say("not_apart") if box in ("", "none") else say("apart")
    yield say("fact.people"), f"{number(people)}{each if people else ''}"
    yield say("fact.others"), number(s.n_candidates) if s.n_candidates else say("none")
    yield say("fact.checked_by"), f"{by}; {apart}"
    yield say("fact.policy"), policy(doc)
    yield say("fact.decided"), (moment(doc.decided_at) or say("undated"))[:10]


# A tile a question: how it was decided, its figure beside its limit, of how many, and how sure.


def tiles(doc: ReportDocument) -> list[Tile]:
    """Return one a question, the same four of every report."""
    every, measured = assertions.of(doc), {m.request.key: m for m in doc.evidence.measurements}
    return [_tile(doc, question, every, measured) for question in QUESTIONS]


def _tile(doc: ReportDocument, question: str, every: list[Assertion], measured: Mapping[str, Measurement]) -> Tile:
    asked = [a for a in every if not a.condition and about(a.finding.metric).question == question]
    judged = [a for a in asked if a.outcome is not Outcome.NOT_NEEDED]
    enforced = [a for a in judged if a.finding.mode == "enforce" and a.finding.applies]
    worst = max(enforced or judged, key=_weight, default=None)
    name = _LOOKED.get(question, "no condition")
    looked = next((a for a in every if a.finding.rule.startswith(name)), None)
    title = say(f"question.{question}")
    # a figure counts only where what it rests on holds: a claim that reruns contradict is not approved by its epsilon
    if looked and (looked.outcome.rank > worst.outcome.rank if worst else question == "file"):
        text = _stop(whole(capital(prose(looked.finding.message)), _ROOM["tile"]))
        m = measured.get(worst.finding.request) if worst and worst.measured else None
        shown = (_value(worst, m), text, _bar(worst.finding)) if worst and m else ("", text)
        return Tile(question, looked.outcome, worst.asked if worst and m else title, looked.result, *shown)
    if worst is None:
        claimed = doc.subject.recipe is not None and doc.subject.recipe.dp is not None
        why = asked[0].finding.message if asked else say("not_asked.claim" if question == "claim" else "not_asked")
        why = say("not_asked") if question == "claim" and claimed and not asked else why
        return Tile(question, Outcome.NOT_NEEDED, title, say("result.not needed"), "", _stop(capital(prose(why, 150))))
    f, m = worst.finding, measured.get(worst.finding.request)
    state = worst.result if enforced else say("result.only_warns", result=worst.result)
    if not worst.measured or m is None:
        text = _stop(whole(capital(prose(f.message)), _ROOM["tile"]))
        return Tile(question, worst.outcome, worst.asked, state, "", text)
    return Tile(question, worst.outcome, worst.asked, state, _value(worst, m), _told(worst, m), _bar(f))


def _weight(a: Assertion) -> tuple[int, bool, float]:
    """Return what sorts rules of one question by what they say: the worst, what can approve, the least room."""
    return a.outcome.rank, not about(a.finding.metric).shows_leaks_only, -_room(a.finding)


def _value(a: Assertion, m: Measurement) -> str:
    """Return the figure that a tile shows large: of a share of people the count, of others the point."""
    f, unit = a.finding, assertions.unit(a.finding)
    if _is_share(f) and m.n and not math.isnan(f.value):
        return say("count", count=_count(f, m), total=number(m.n))
    if math.isnan(f.value):
        return a.value
    shown = fold(f.value) if unit == "nats" else figure(f.value, unit)
    return say("tile.seen", figure=shown) if f.value != f.high == math.inf else shown


def _count(f: Finding, m: Measurement) -> str:
    """Return how many people of all a share is; of a hidden count what its interval leaves, which is told as well."""
    count = Count(round(f.value * m.n), m.n)
    if not count.hidden or m.kind == "confidence":
        return str(count)
    low, high = max(count.ends[0], math.ceil(f.low * m.n - 1e-9)), min(count.ends[1], math.floor(f.high * m.n + 1e-9))
    return say("span", low=low, high=high) if low < high else str(count)


def _told(a: Assertion, m: Measurement) -> str:
    """Return interval, limit, sample and confidence; what the large figure says already is not repeated."""
    f, parts = a.finding, []
    if _is_share(f):
        least = m.request.option("threshold", math.nan)
        moved = about(f.metric).unit == "residual deviations"
        parts.append(say("tile.moved", times=number(least)) if moved else say("tile.share", factor=fold(least)))
        if f.low < f.high:
            parts.append(say("tile.beyond", share=percent_at_most(f.high)))
    elif f.low < f.high and math.isfinite(f.high) and not a.value.startswith(_value(a, m)):
        parts.append(a.value)
    elif math.isinf(f.high) and math.isfinite(f.low):
        parts.append(say("tile.no_limit"))
    parts.append(say("tile.limit", limit=a.threshold))
    if guess := guessing(f):
        parts.append(say("tile.guess", share=percent(guess)))
    return _stop("; ".join([*parts, *_sample(m), sure(m)]))


def _sample(m: Measurement) -> Iterator[str]:
    tried = BehindMembership.of(m.behind)
    if tried.members is not None and tried.candidates is not None:
        drawn = 0 < m.n < m.population and m.request.option("scope", "record") != "record"
        key = "tile.tried_drawn" if drawn else "tile.tried"
        yield say(key, members=number(tried.members), others=number(tried.candidates))
    elif m.n and m.population:
        drawn = BehindInfluence.of(m.behind).beyond is not None or m.confidence
        key = "tile.all" if m.n == m.population else "tile.drawn" if drawn else "tile.some"
        if key == "tile.some" and math.isfinite(m.high) and sure(m).startswith(say("sure.certificate")):
            key = "tile.theorem"
        yield say(key, count=number(m.n), total=number(m.population))


def _is_share(f: Finding) -> bool:
    return "share_above" in f.request or "of=share" in f.request


def _bar(f: Finding) -> Bar | None:
    if not math.isfinite(f.limit) or math.isnan(f.value):
        return None
    low, high = (f.value if math.isnan(v) else v for v in (f.low, f.high))
    ends = [abs(v) for v in (low, high, f.value, f.limit) if math.isfinite(v)]
    right = 1.25 * max(ends) or 1.0
    right = min(1.0, right) if f.unit == "fraction" else right
    start = guessing(f)  # whoever guesses has nothing of the model
    shares = ((v - start) / (right - start or 1.0) for v in (low, high, f.value, f.limit))
    places = [round(1000 * min(max(share, 0.0), 1.0)) for share in shares]
    return Bar(places[0], places[1], places[2], places[3], math.isinf(high))


def guessing(f: Finding) -> float:
    """Return what whoever guesses reaches: of the metric, or of the prior or false accusations that a rule asks for."""
    asked = re.search(r"(prior|at_fpr)=([\d.e-]+)", f.request)
    if asked is None or f.unit != "fraction":
        return about(f.metric).guessing or 0.0
    return max(float(asked[2]), 1 - float(asked[2])) if asked[1] == "prior" else float(asked[2])


def _room(f: Finding) -> float:
    """Return how far the end of a figure that is judged is within its limit, as a share of the limit."""
    end = f.high if f.direction == "max" else f.low
    size = abs(f.limit - guessing(f))
    within = (f.limit - end if f.direction == "max" else end - f.limit) / size if size > 0 else math.inf
    return -math.inf if math.isnan(within) else within


# What to do next, what stays open, who signs.


def steps(doc: ReportDocument, room: int = 900) -> list[str]:
    """Return what to do next: what conditions ask that block, the gate's plan with effect and cost, rules' advice."""
    held = words.preconditions(doc)
    blocking = [f.advice or f.message.partition("; ")[2] for f in held if not f.outcome.releases]
    lines = [_stop(capital(whole(prose(advice, 400), room))) for advice in blocking if advice]
    lines += [_step(step, room) for step in doc.next_steps]
    searched = any("advise" in line for line in lines)
    for text in dict.fromkeys(plain(f.advice, 400) for f in [*held, *words.rules(doc)] if f.advice):
        if not (text.startswith(WAY_OUT) and searched):
            lines.append(_stop(capital(whole(prose(text, 400), room))))
        searched |= text.startswith(WAY_OUT)
    lines = list(dict.fromkeys(lines))
    if lines and not doc.approved:
        return lines
    kept = doc.evidence.run.remembered
    if doc.approved and not (doc.subject.version and (kept is None or kept.signable)):
        return [say("next.unsigned"), *lines]
    if doc.approved:
        return [say("next.release_until" if doc.expires else "next.release", until=moment(doc.expires)[:10]), *lines]
    return [say("next.observed" if doc.outcome.releases else "next.read")]


def _step(step: NextStep, room: int) -> str:
    action, extra = capital(prose(step.action, 400)), ""
    for name, value in (("effect", prose(step.effect, 400)), ("cost", prose(step.cost, 400))):
        more = f"{extra}{'; ' if extra else ''}{say(f'next.{name}', value=value)}" if value else extra
        extra = more if len(action) + len(more) + 4 <= room else extra
    return _stop(f"{whole(action, room)} ({extra})" if extra else whole(action, room))


def _open(doc: ReportDocument) -> Iterator[str]:
    """Yield what was not tested, in a few words each."""
    if words.decide(doc).scope:
        yield say("open.questions")
    yield from (t.title for t in tiles(doc) if t.outcome is Outcome.NOT_NEEDED and t.question != "claim")
    tested = words.kinds_tested(doc)
    if missing := [say(f"kind.{kind}") for kind in words.ATTACK_KINDS if kind not in tested]:
        yield ", ".join(missing)
    if any(stated == WITHHELD for stated in (doc.policy.source.get("file"), doc.subject.file)):
        yield say("open.file")
    if doc.subject.recipe is not None and doc.subject.recipe.public:
        yield say("open.public", names=", ".join(plain(name, 30) for name in doc.subject.recipe.public))
    if words.size_is_public(doc):
        yield say("open.size")
    yield say("open.others")


def _signing(doc: ReportDocument) -> Iterator[tuple[str, str]]:
    yield say("sign.advice"), ""
    yield say("sign.accepted"), ""
    yield say("sign.key"), say("unsigned")
    old = doc.comparison and doc.comparison.old
    if doc.comparison and old:
        approved = old.outcome.releases
        since = say("sign.since") if approved else say("sign.since_version", version=plain(old.version, 20))
        yield since, whole(_stop(plain(doc.comparison.summary)), 120)
    else:
        yield say("sign.since"), say("sign.first")


def verify(doc: ReportDocument) -> str:
    """Return the command that checks the statement attached to this version; its reader holds the configuration."""
    uri = doc.subject.uri
    named = doc.approved and uri and plain(uri, 120) == uri  # nobody signs what was not approved
    return f"privgate verify {shlex.quote(uri)} --config guard.yaml" if named else ""


def _stop(text: str) -> str:
    text = text.rstrip()
    return text if not text or text[-1] in ".!?…]" else f"{text}."
