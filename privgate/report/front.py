"""The one bar of page one: what was measured beside what is allowed, for the finding that decided."""

import math
import shlex
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from privgate.evidence import BehindInfluence, Measurement, NextStep
from privgate.evidence.figures import figure, limited_by, number, percent_at_most
from privgate.evidence.measurement import BehindMembership
from privgate.policy.rules import about
from privgate.policy.rules.rule_base import WAY_OUT
from privgate.report import assertions, what_was_asked, words
from privgate.report.assertions import Assertion
from privgate.report.report_schema import ComparedReport, ReportDocument, SubjectFacts, WaiverRow
from privgate.report.sentences import say
from privgate.report.text import clip, moment, plain, prose, whole
from privgate.report.words import capital
from privgate.verdict import Finding, Outcome


@dataclass(frozen=True, slots=True)
class Bar:
    """Places on a bar from 0 to 1000, and the same in words."""

    #: in words: whose figure, the figure, the limit
    title: str
    measured: str
    allowed: str
    #: where the figure's interval begins and ends, and where the limit stands
    low: int
    high: int
    limit: int
    #: the interval has no end: the bar runs off its scale
    unlimited: bool

    @property
    def sentence(self) -> str:
        """Return what the bar shows, for those who do not see it."""
        return say("measured_allowed", title=self.title, measured=self.measured, allowed=self.allowed)


def bar(deciding: Iterable[Assertion], title: str = "") -> Bar | None:
    """Return the bar of the first assertion that has a finite limit and was measured; None without one."""
    for a in deciding:
        if math.isfinite(a.finding.limit) and not math.isnan(a.finding.value) and not a.condition:
            return _bar(a, title or assertions.title(a.finding))
    return None


def _bar(a: Assertion, title: str) -> Bar:
    f = a.finding
    low, high = (f.value if math.isnan(v) else v for v in (f.low, f.high))
    ends = [abs(v) for v in (low, high, f.limit) if math.isfinite(v)]
    right = 1.25 * max(ends) or 1.0
    if f.unit == "fraction":
        right = min(1.0, right)
    start = what_was_asked.guessing(f)  # whoever guesses has nothing of the model
    place = [round(1000 * min(max(v - start, 0.0) / (right - start or 1.0), 1.0)) for v in (low, high, f.limit)]
    return Bar(title, a.value, a.threshold, place[0], place[1], place[2], math.isinf(high))


# Page one: what was decided, why, how sure, what next, and what it does not show.

#: rows of the rule table on page one; the full table is in the evidence
ROWS = 8
#: steps, waivers and changes on page one
LINES = 3
#: outcome -> (tone, symbol); the symbol's shape differs too, because colour alone tells nothing in print
_TONE: Mapping[str, str] = {
    Outcome.NOT_NEEDED: "watch",
    Outcome.PASSED: "good",
    Outcome.WARNED: "care",
    Outcome.INCONCLUSIVE: "open",
    Outcome.FAILED: "bad",
}


#: characters of both sides that are printed with room around them
_ROOMY = 3200
#: characters on page one, which is printed on both sides of one sheet
_ROOM = {"why": 420, "how_sure": 330, "measured": 80, "title": 120, "limit": 140, "note": 230,
         "steps": 260, "waivers": 160, "changes": 280, "fact": 120}  # fmt: skip


def view(doc: ReportDocument) -> dict[str, Any]:
    """Return what page one says, as text short enough for both sides of one sheet of paper."""
    told, held = assertions.of(doc), words.preconditions(doc)
    unheld = [f for f in held if f.outcome is not Outcome.PASSED]
    rows = [a for a in told if a.outcome is not (Outcome.PASSED if a.condition else Outcome.NOT_NEEDED)]
    shown = sorted(rows, key=lambda a: words.badness(a.finding))[:ROWS]
    changed, titles, room = changes(doc), {a.finding.rule: a.asked for a in told}, _ROOM
    page: dict[str, Any] = {
        "tone": "watch" if doc.observed else _TONE[doc.outcome],
        "decision": capital(words.decision(doc)),
        "subject": subject(doc.subject),
        "sentence": sentence(doc),
        "questions": what_was_asked.template(doc),
        "why": whole(why(doc), room["why"]),
        "how_sure": whole(how_sure(doc), room["how_sure"]),
        "accuracy": words.accuracy(doc),
        "bar": bar(deciding(doc)),
        "facts": [(k, clip(v, room["fact"])) for k, v in words.facts(doc)],
        "rows": [{k: (whole if k == "note" else clip)(v, room.get(k, 80)) for k, v in row(a).items()} for a in shown],
        "more": max(0, len(rows) - ROWS),
        "held": _held(held, unheld),
        "steps": steps(doc, room["steps"])[:LINES],
        "waivers": [waiver(w, titles, room["waivers"]) for w in doc.waivers[:LINES]],
        "changes": whole(changed, room["changes"]) or say("history.none"),
        "changes_since": _since(doc),
        **what_was_asked.second_side(doc),
        "not_shown": [
            *what_was_asked.otherwise(doc),
            *_candidates(held),
            *_public(doc),
            *filter(None, [words.no_attack_limited(doc)]),
            *_not_tested(doc),
            *words.not_shown(),
        ],
        "verify": verify(doc),
    }
    return {**page, "density": "roomy" if sum(len(text) for text in _texts(page)) <= _ROOMY else ""}


def _texts(value: Any) -> Iterator[str]:
    if isinstance(value, str):
        yield value
    elif isinstance(value, Mapping | list | tuple):
        for part in value.values() if isinstance(value, Mapping) else value:
            yield from _texts(part)


def subject(s: SubjectFacts | ComparedReport) -> str:
    """Return "credit, version 3"."""
    name = plain(s.name, 60) or say("subject.unnamed")
    return say("subject", name=name, version=plain(s.version, 20)) if s.version else name


def sentence(doc: ReportDocument) -> str:
    """Return the verdict as one sentence that needs no knowledge of the field."""
    rules = words.asked(doc)
    met = sum(f.outcome is Outcome.PASSED for f in rules)
    broken = sum(f.outcome is Outcome.FAILED for f in rules)
    told = {"policy": plain(doc.policy.name, 40) or say("policy.unnamed"), "rules": len(rules)}
    if doc.observed:
        return say("sentence.observed")
    if not rules:
        return say("sentence.no_rule", **told)
    if doc.outcome is Outcome.INCONCLUSIVE:
        return say("sentence.open", **told)
    if doc.outcome is Outcome.FAILED:
        if not broken:
            return say("sentence.condition", **told)
        key = "sentence.broken" if broken > 1 else "sentence.one_broken"
        return say("sentence.only_broken" if len(rules) == 1 else key, broken=broken, **told)
    if met < len(rules):
        return say("sentence.not_enforced", broken=len(rules) - met, **told)
    said = [say("sentence.all_met" if met > 1 else "sentence.one_met", **told)]
    said += [say("sentence.conditions")] if doc.outcome is Outcome.WARNED else []
    said += [say(f"sentence.{only}")] if (only := words.direct_only(doc)) else []
    return " ".join(said)


def deciding(doc: ReportDocument) -> list[Assertion]:
    """Return what decided: whatever is as bad as the verdict."""
    told = assertions.of(doc)
    rules, decided = [a for a in told if not a.condition], [a for a in told if a.outcome is doc.outcome]
    if doc.outcome is Outcome.WARNED and not any(a.outcome is Outcome.WARNED for a in rules):
        # only conditions warn: the rules that were met carry the decision
        return [a for a in rules if a.outcome is Outcome.PASSED] or decided
    return [a for a in decided if not a.condition] or decided


def why(doc: ReportDocument, *, count_others: bool = True) -> str:
    """Return the reason: the finding that decided, with its numbers and what they mean for a person."""
    decided = deciding(doc)
    if not decided:
        return say("why.none")
    a = decided[0]
    key = "why.measured" if a.measured and a.threshold else "why.message"
    figures = {"value": a.value, "limit": capital(a.threshold), "margin": what_was_asked.beside(a)}
    # the title of a condition says what should be so
    asked = say("row.title", title=a.asked) if a.condition else a.asked
    told = say(key, title=asked, message=prose(a.finding.message), **figures)
    others = ""
    if len(decided) > 1 and count_others:
        n = len(decided) - 1
        met, more = ("why.other_met", "why.one_more") if n == 1 else ("why.others_met", "why.more")
        others = " " + say(met if a.outcome is Outcome.PASSED else more, count=n)
    return f"{_stop(told)}{others}"


def _certainty(m: Measurement) -> str:
    """Return the key of what makes a figure certain: a theorem where one spoke, else what was counted in full."""
    return "sure.proof" if m.kind == "bound" and limited_by(m) == "by certificate" else "sure.exact"


def how_sure(doc: ReportDocument) -> str:
    """Return how certain the deciding figures are, and for how many of all units they speak."""
    keys = {a.finding.request for a in deciding(doc)}
    found = [m for m in doc.evidence.measurements if m.request.key in keys and not m.problem]
    if not found:
        return say("sure.none")
    levels = sorted({m.confidence for m in found if m.confidence is not None})
    certain = [m for m in found if m.confidence is None and m.kind in ("exact", "bound")]
    told: list[str] = [
        *dict.fromkeys(say("sure.below" if m.low < m.high == math.inf else _certainty(m)) for m in certain)
    ]
    if levels:
        told.append(say("sure.interval", level=number(100 * levels[0])))
    told += dict.fromkeys(say("sure.searched", of=m.assumptions[0]) for m in found if m.kind == "search")
    if any(m.kind == "point" for m in found):
        told.append(say("sure.point"))
    told += dict.fromkeys(line for m in found for line in _tried(doc, m))
    if counted := [m for m in found if m.n and about(m.request.metric).question in ("influence", "file")]:
        least = min(counted, key=lambda m: m.n / max(m.population, 1))
        part, limited = least.n < least.population, BehindInfluence.of(least.behind)
        key = "sure.some" if part else "sure.all_estimated" if limited.beyond else "sure.all"
        who = say("sure.records" if about(least.request.metric).question == "file" else "sure.people")
        told.append(say(key, count=number(least.n), total=number(least.population), who=who))
        told += dict.fromkeys(line for m in counted for line in _behind(m))
        if part and not limited.not_computed:  # else the reason was said
            coverage = doc.evidence.influence and doc.evidence.influence.coverage
            claim = capital(plain(coverage.claim, 200)) if coverage else ""
            told.append(_stop(claim) or say("sure.unknown"))
    return " ".join(told)


def _behind(m: Measurement) -> Iterator[str]:
    """Yield of which people and trainings a figure of influence does not speak."""
    b = BehindInfluence.of(m.behind)
    if b.beyond and math.isfinite(m.high):
        yield say("sure.beyond", share=percent_at_most(b.beyond), level=number(100 * (m.confidence or 0)))
    if b.own_coins and b.followed and m.unit != "fraction" and m.low < m.value < math.inf:
        yield say("sure.own_above", figure=figure(m.value, m.unit))
    elif b.own_coins:
        yield say("sure.own_coins")
    if b.paired_seeds:
        yield say("sure.seeds", count=b.paired_seeds)
    if b.not_computed:
        yield say("sure.stopped")


def _tried(doc: ReportDocument, m: Measurement) -> Iterator[str]:
    """Yield how many people attacks were tried on: copies among the candidates, and whoever was not drawn, were not."""
    b = BehindMembership.of(m.behind)
    if b.members is not None and b.candidates is not None:
        people = number(doc.subject.n_units or doc.subject.n_records)
        yield say("sure.tried", members=number(b.members), people=people, candidates=number(b.candidates))
        if 0 < m.n < m.population and m.request.option("scope", "record") != "record":
            yield say("sure.drawn")


def row(a: Assertion) -> dict[str, str]:
    """Return one line of the rule table."""
    waived = say("row.waived", waiver=plain(a.finding.waiver)) if a.finding.waiver else ""
    return {
        "tone": _TONE[a.outcome],
        "result": say("result.waived", result=a.result) if waived else a.result,
        # the title of a condition says what should be so, beside a result that says that it is not
        "title": say("row.title", title=a.asked) if a.condition else a.asked,
        "measured": "—" if a.condition else a.value,
        "limit": say("row.condition") if a.condition else a.threshold + what_was_asked.beside(a),
        # why there is no figure; of a condition, what was found
        "note": waived or ("" if a.measured else _stop(a.consequence)),
    }


def _held(held: Sequence[Finding], unheld: Sequence[Finding]) -> str:
    if not held:
        return say("held.none")
    key = "held.some" if unheld else "held.all"
    return say(key, held=len(held) - len(unheld), count=len(held))


def steps(doc: ReportDocument, room: int = 900) -> list[str]:
    """Return what to do next: the gate's plan with effect and cost as far as there is room, else each rule's advice."""
    lines = [_step(step, room) for step in doc.next_steps]
    advice = [plain(f.advice, 400) for f in [*words.preconditions(doc), *words.rules(doc)] if f.advice]
    searched = any("advise" in line for line in lines)
    for text in dict.fromkeys(advice):
        if not (text.startswith(WAY_OUT) and searched):
            lines.append(_stop(capital(whole(prose(text, 400), room))))
        searched |= text.startswith(WAY_OUT)
    if lines:
        return lines
    kept = doc.evidence.run.remembered
    if doc.approved and not (doc.subject.version and (kept is None or kept.signable)):
        return [say("next.unsigned")]
    if doc.approved:
        return [say("next.release_until" if doc.expires else "next.release", until=moment(doc.expires))]
    return [say("next.observed" if doc.outcome.releases else "next.read")]


def _step(step: NextStep, room: int) -> str:
    action, extra = capital(prose(step.action, 400)), ""
    for name, value in (("effect", prose(step.effect, 400)), ("cost", prose(step.cost, 400))):
        more = f"{extra}{'; ' if extra else ''}{say(f'next.{name}', value=value)}" if value else extra
        extra = more if len(action) + len(more) + 4 <= room else extra
    return _stop(f"{whole(action, room)} ({extra})" if extra else whole(action, room))


def waiver(w: WaiverRow, named: Mapping[str, str], room: int = 600) -> str:
    """Return one waiver as a sentence; where there is little room, its reason is cut and nothing else."""
    told = {"rule": named.get(w.rule, plain(w.rule, 40)), "status": plain(w.status, 40),
            "approver": plain(w.approver, 40), "until": moment(w.expires)}  # fmt: skip
    left = room - len(say("waiver.told", reason="", **told))
    return _stop(say("waiver.told", reason=clip(plain(w.reason, 300), max(30, left)), **told))


def changes(doc: ReportDocument) -> str:
    """Return what changed since the last approved version, in one sentence; empty without a comparison."""
    return _stop(plain(doc.comparison.summary)) if doc.comparison else ""


def _since(doc: ReportDocument) -> str:
    old = doc.comparison and doc.comparison.old
    if not old:
        return say("history")
    return say("since.approved") if old.outcome.releases else say("since.version", version=plain(old.version, 20))


def _candidates(held: Sequence[Finding]) -> list[str]:
    """Return what makes the people that attacks are judged by unfit for it: said here, however many rules there are."""
    names = ("precondition:near_overlap", "precondition:same_population")
    told = [plain(f.message, 220) for f in held if f.rule in names and f.outcome is not Outcome.PASSED]
    return [_stop(capital(t)) for t in told]


def _public(doc: ReportDocument) -> list[str]:
    """Return which parameters of the training are declared to owe nothing to the people in the data."""
    stated = {} if doc.subject.recipe is None else doc.subject.recipe.public
    told = [f"{plain(name, 40)} ({plain(origin, 120)})" for name, origin in stated.items()]
    return [say("limits.public", names="; ".join(told))] if told else []


def _not_tested(doc: ReportDocument) -> list[str]:
    tested = words.kinds_tested(doc)
    missing = [k for k in words.ATTACK_KINDS if k not in tested]
    return [say("not_tested", kinds=", ".join(say(f"kind.{k}") for k in missing))] if missing else []


def verify(doc: ReportDocument) -> str:
    """Return the command that checks the statement attached to this version; its reader holds the configuration."""
    uri = doc.subject.uri
    named = doc.approved and uri and plain(uri, 120) == uri  # nobody signs what was not approved
    return f"privgate verify {shlex.quote(uri)} --config guard.yaml" if named else ""


def _stop(text: str) -> str:
    text = text.rstrip()
    return text if not text or text[-1] in ".!?…]" else f"{text}."
