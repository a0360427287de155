"""Page one: the decision, a tile a question, two pictures, what could happen, what stays open, and the signature.

It holds at most 350 words and each number once; the rest stands in the evidence below it.
"""

import math
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

from privgate.evidence import Count, Measurement, NextStep
from privgate.evidence.figures import CERTIFICATE, figure, fold, number, percent, percent_at_most, sure
from privgate.evidence.measurement import BehindInfluence, BehindMembership
from privgate.evidence.verdict import Finding, Outcome
from privgate.policy.judging import REACHED, met_for_everybody
from privgate.policy.rules import about
from privgate.policy.rules.metric import QUESTIONS
from privgate.policy.rules.rule_base import WAY_OUT
from privgate.report import assertions, charts
from privgate.report.assertions import Assertion
from privgate.report.schema import ComparedReport, ReportDocument, SubjectFacts
from privgate.report.text import capital, moment, plain, prose, say, stop, whole
from privgate.run.needs import Need

#: outcome -> tone; each has a symbol of its own shape, because colour alone tells nothing in print
TONES: Mapping[str, str] = dict(zip(Outcome, ("watch", "good", "care", "open", "bad"), strict=True))
#: characters of a tile's text, which ends with a whole clause
_ROOM = 130
#: conditions that say something of a question, whatever the policy asks
_LOOKED: Mapping[str, str] = {"file": "precondition:file", "claim": "precondition:dp_"}
#: what EDPB Opinion 28/2024 expects structured testing to cover, in our words
ATTACK_KINDS = ("membership inference", "attribute inference", "model inversion", "reconstruction",
                "training-data extraction")  # fmt: skip
#: what the policy says of a file that nobody can get
_WITHHELD = "not downloadable"


class Bar(NamedTuple):
    """Where a figure's interval begins and ends, where it stands, and where its limit does: places from 0 to 1000."""

    low: int
    high: int
    value: int
    limit: int
    #: the interval has no end: the bar runs off its scale
    unlimited: bool


class Tile(NamedTuple):
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
    decision, shown, owner = doc.decided.text, tiles(doc), plain(doc.context.owner, 40)
    word = re.split(r"\W", decision, maxsplit=1)[0]
    return {
        "tone": tone(doc),
        "decision": capital(decision),
        "word": capital(word),
        "covers": decision.removeprefix(word).strip(),
        "subject": subject(doc.subject) + (say("owned", owner=owner) if owner else ""),
        "reason": reason(doc),
        "facts": _facts(doc),
        "next": steps(doc, 200)[0],
        "tiles": shown,
        "pictures": charts.draw(doc),
        "harms": [_harm(t) for t in shown if t.question != "claim" or t.value],
        "open": list(_open(doc, shown)),
        "signing": _signing(doc),
    }


def tone(doc: ReportDocument) -> str:
    """Return the name of the decision's colour and symbol."""
    return "watch" if doc.observed else TONES[doc.outcome]


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
    every, spared = assertions.list_assertions(doc), f"precondition:{REACHED}"
    if not doc.outcome.releases:
        # conditions that block first, because no figure counts without them; what was not reached is no reason
        blocking = [a for a in every if a.outcome is doc.outcome]
        blocking.sort(key=lambda a: (a.finding.rule == spared, not a.condition))
        if not blocking:
            return say("reason.no_rule")
        a, failed = blocking[0], {Outcome.FAILED, Outcome.INCONCLUSIVE}
        if any(b.finding.rule == spared for b in every):
            failed = {Outcome.FAILED}
        others = [b.title for b in every if b.finding.rule != a.finding.rule and b.outcome in failed]
        key = f"reason.{a.outcome}" if a.measured else "reason.message"
        why = stop(whole(say(key, title=a.named, message=prose(a.finding.message)), 220))
        more = f" {say('reason.more', titles='; '.join(others[:2]))}" if others else ""
        return say("reason.refused") + why + more
    doubted = [a for a in every if a.outcome is Outcome.WARNED]
    warned = [a.named for a in doubted if not a.finding.waiver]
    sentences = [say("reason.scope")] if doc.decided.scope else []
    if doc.subject.release.floor:
        sentences += [_say_floor("reason", doc.subject.release.floor)]
        sentences += [say("reason.tried" if doc.attacks else "reason.untried")]
    sentences += [say("reason.warned", titles="; ".join(warned[:2]))] if warned else []
    waived = ((a.title, whole(prose(a.finding.waiver), 120)) for a in doubted if a.finding.waiver)
    return " ".join([*sentences, *(stop(say("reason.waived", title=title, why=why)) for title, why in waived)])


def _facts(doc: ReportDocument) -> list[tuple[str, str]]:
    s = doc.subject
    people = s.n_units or s.n_records
    each = say("each.one" if people == s.n_records else "each.several", records=number(s.n_records))
    return [
        (say("fact.people"), f"{number(people)}{each if people else ''}"),
        (say("fact.others"), _others(doc)),
        (say("fact.checked_by"), _checked_by(doc, 30)),
        (say("fact.policy"), policy(doc)),
        (say("fact.decided"), (moment(doc.decided_at) or say("undated"))[:10]),
    ]


def _others(doc: ReportDocument) -> str:
    """Return how many candidates there are, and how many of them attacks were tried on: no third number stands here."""
    given, behind = doc.subject.n_candidates, [BehindMembership.read(m.behind) for m in doc.evidence.measurements]
    usable = max((b.candidates for b in behind if b.candidates is not None), default=given)
    every = number(given) if given else say("none")
    return every if usable == given else say("fact.usable", given=every, usable=number(usable))


def _checked_by(doc: ReportDocument, room: int, where: str = "") -> str:
    apart = say("not_apart" if plain(doc.evidence.run.isolation, 60) in ("", "none") else "apart")
    who = plain(doc.context.run_by, room) or say("not_stated")
    return say("ran.where" if where else "ran", who=who, where=where, apart=apart)


# A tile a question: how it was decided, its figure beside its limit, of how many, and how sure.


def tiles(doc: ReportDocument) -> list[Tile]:
    """Return one a question, the same four of every report."""
    every, measured = assertions.list_assertions(doc), {m.request.key: m for m in doc.evidence.measurements}
    return [_tile(doc, question, every, measured) for question in QUESTIONS]


def _tile(doc: ReportDocument, question: str, every: list[Assertion], measured: Mapping[str, Measurement]) -> Tile:
    rules = [a for a in every if not a.condition and about(a.finding.metric).question == question]
    judged = [a for a in rules if a.outcome is not Outcome.NOT_NEEDED]
    enforced = [a for a in judged if a.finding.mode == "enforce" and a.finding.applies]
    worst = max(enforced or judged, key=_weight, default=None)
    m = measured.get(worst.finding.request) if worst and worst.measured else None
    name = _LOOKED.get(question, "no condition")
    looked = next((a for a in every if a.finding.rule.startswith(name)), None)
    title = say(f"question.{question}")
    # a figure counts only where what it rests on holds: a claim that reruns contradict is not approved by its epsilon
    overruled = looked and (looked.outcome.rank > worst.outcome.rank if worst else question == "file")
    decides = looked if overruled else worst
    if decides is None:
        unclaimed = question == "claim" and doc.subject.claim is None
        why = rules[0].finding.message if rules else say("not_asked.claim" if unclaimed else "not_asked")
        return Tile(question, Outcome.NOT_NEEDED, title, say("result.not needed"), "", stop(capital(prose(why, 150))))
    state = decides.result if overruled or enforced else say("result.only_warns", result=decides.result)
    text = stop(whole(capital(prose(decides.finding.message)), _ROOM))
    if worst is None or m is None:
        return Tile(question, decides.outcome, title if overruled else decides.title, state, "", text)
    text = text if overruled else _describe_interval(worst, m)
    return Tile(question, decides.outcome, worst.title, state, _value(worst, m), text, _bar(worst.finding))


def _weight(a: Assertion) -> tuple[int, bool, float]:
    """Return what sorts rules of one question by what they say: the worst, what can approve, the least room."""
    f = a.finding  # the end of a figure that is judged, within its limit, as a share of the limit
    within = f.limit - f.high if f.direction == "max" else f.low - f.limit
    size = abs(f.limit - guessing(f))
    room = within / size if size > 0 else math.inf
    return a.outcome.rank, not about(f.metric).shows_leaks_only, math.inf if math.isnan(room) else -room


def _value(a: Assertion, m: Measurement) -> str:
    """Return the figure that a tile shows large: of a share of people the count, of others the point."""
    f, unit_name = a.finding, assertions.shown_unit(a.finding)
    if "share" in f.suffix and m.n and not math.isnan(f.value):
        return say("count", count=_count(f, m), total=number(m.n))
    if math.isnan(f.value):
        return a.value
    shown = fold(f.value) if unit_name == "nats" else figure(f.value, unit_name)
    return say("tile.seen", figure=shown) if f.value != f.high == math.inf else shown


def _count(f: Finding, m: Measurement) -> str:
    """Return how many people of all a share is; of a hidden count what its interval leaves, which is told as well."""
    people = m.n + BehindInfluence.read(m.behind).not_computed  # the share is of all whom the decision spared, too
    count = Count(round(f.value * people), m.n)
    if not count.hidden or m.kind == "confidence":
        return str(count)
    (low, high), most = count.ends, math.floor(f.high * m.n + 1e-9)
    low, high = max(low, math.ceil(f.low * people - 1e-9)), min(high, most)
    return f"{low} to {high}" if low < high else str(count)


def _describe_interval(a: Assertion, m: Measurement) -> str:
    """Return interval, limit, sample and confidence; what the large figure says already is not repeated."""
    f, parts = a.finding, []
    if "share" in f.suffix:
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
    return stop("; ".join([*parts, *_sample(m), sure(m)]))


def _sample(m: Measurement) -> Iterator[str]:
    tried = BehindMembership.read(m.behind)
    if tried.members is not None and tried.candidates is not None:
        drawn = 0 < m.n < m.population
        key = "tile.tried_drawn" if drawn else "tile.tried"
        yield say(key, members=number(tried.members), others=number(tried.candidates))
    elif m.n and m.population:
        drawn = bool(BehindInfluence.read(m.behind).beyond is not None or m.confidence)
        key = "tile.all" if m.n == m.population else "tile.drawn" if drawn else "tile.some"
        if key == "tile.some" and math.isfinite(m.high) and sure(m).startswith(CERTIFICATE):
            key = "tile.theorem"
        yield say(key, count=number(m.n), total=number(m.population))


def _bar(f: Finding) -> Bar | None:
    if not math.isfinite(f.limit) or math.isnan(f.value):
        return None
    values = [f.value if math.isnan(v) else v for v in (f.low, f.high, f.value, f.limit)]
    right = 1.25 * max(abs(v) for v in values if math.isfinite(v)) or 1.0
    right = min(1.0, right) if f.unit == "fraction" else right
    start = guessing(f)  # whoever guesses has nothing of the model
    shares = ((v - start) / (right - start or 1.0) for v in values)
    low, high, value, limit = (round(1000 * min(max(share, 0.0), 1.0)) for share in shares)
    return Bar(low, high, value, limit, math.isinf(values[1]))


def guessing(f: Finding) -> float:
    """Return what a guess reaches: of the metric, or of the prior or false accusations that a rule asks for."""
    option = re.search(r"(prior|at_fpr)=([\d.e-]+)", f.request)
    if option is None or f.unit != "fraction":
        return about(f.metric).guessing or 0.0
    return max(float(option[2]), 1 - float(option[2])) if option[1] == "prior" else float(option[2])


# What to do next, what stays open, who signs.


def steps(doc: ReportDocument, room: int = 900) -> list[str]:
    """Return what to do next: what conditions ask that block, the gate's plan with effect and cost, rules' advice."""
    held = doc.conditions
    blocking = [f.advice or f.message.partition("; ")[2] for f in held if not f.outcome.releases]
    lines = [stop(capital(whole(prose(advice, 400), room))) for advice in blocking if advice]
    lines += [_step(step, room) for step in doc.next_steps]
    searched = any("advise" in line for line in lines)
    for text in dict.fromkeys(plain(f.advice, 400) for f in [*held, *doc.rules] if f.advice):
        if not (text.startswith(WAY_OUT) and searched):
            lines.append(stop(capital(whole(prose(text, 400), room))))
        searched |= text.startswith(WAY_OUT)
    lines = list(dict.fromkeys(lines))
    if doc.approved:
        kept = doc.evidence.run.remembered
        signed = doc.subject.version and (kept is None or kept.signable)
        key = "next.unsigned" if not signed else "next.release_until" if doc.expires else "next.release"
        return [say(key, until=moment(doc.expires)[:10]), *lines]
    return lines or [say("next.observed" if doc.outcome.releases else "next.read")]


def _step(step: NextStep, room: int) -> str:
    action, extra = capital(prose(step.action, 400)), ""
    for name, value in (("effect", prose(step.effect, 400)), ("cost", prose(step.cost, 400))):
        more = f"{extra}{'; ' if extra else ''}{say(f'next.{name}', value=value)}" if value else extra
        extra = more if len(action) + len(more) + 4 <= room else extra
    return stop(f"{whole(action, room)} ({extra})" if extra else whole(action, room))


def _harm(tile: Tile) -> tuple[str, str]:
    harm, bad = say(f"harm.{tile.question}"), say(f"bad.{tile.question}")
    return harm, say("bad.untested", bad=bad) if tile.outcome is Outcome.NOT_NEEDED else bad


def _open(doc: ReportDocument, shown: list[Tile]) -> Iterator[str]:
    """Yield what was not tested, in a few words each."""
    if doc.decided.scope:
        yield say("open.questions")
    # membership is among the kinds of attack
    yield from (t.title for t in shown if t.outcome is Outcome.NOT_NEEDED and t.question in {"influence", "file"})
    tested = kinds_tested(doc)
    if missing := [say(f"kind.{kind}") for kind in ATTACK_KINDS if kind not in tested]:
        yield ", ".join(missing)
    if _WITHHELD in (doc.policy.source.get("file"), doc.subject.file):
        yield say("open.file")
    if doc.subject.public:
        yield say("open.public", names=", ".join(plain(name, 30) for name in doc.subject.public))
    if _size(doc) == say("size.public"):
        yield say("open.size")
    yield say("open.others")


def kinds_tested(doc: ReportDocument) -> set[str]:
    """Return the kinds of attack that really ran; leave-one-out figures are no attack."""
    inferred = {"attribute inference", "model inversion"} if doc.evidence.attributes else set()
    return {a.kind for a in doc.attacks if a.figures} | inferred


def _signing(doc: ReportDocument) -> list[tuple[str, str]]:
    since, changed = say("sign.since"), say("sign.first")
    if doc.comparison:
        old, changed = doc.comparison.old, whole(stop(plain(doc.comparison.summary)), 120)
        since = since if old.outcome.releases else say("sign.since_version", version=plain(old.version, 20))
    blank = [(say("sign.advice"), ""), (say("sign.accepted"), ""), (say("sign.key"), say("unsigned"))]
    return [*blank, (since, changed)]


def verify(doc: ReportDocument) -> str:
    """Return the command that checks the statement attached to this version; its reader holds the configuration."""
    uri = doc.subject.uri
    named = doc.approved and uri and plain(uri, 120) == uri  # nobody signs what was not approved
    return f"privgate verify {shlex.quote(uri)} --config guard.yaml" if named else ""


# What page one has no room for: what was judged, warnings and waivers, and what no report shows.


def judged(doc: ReportDocument) -> dict[str, Any]:
    """Return the first section of the evidence: facts, and which people figures leave out."""
    return {"facts": facts(doc), "texts": list(dict.fromkeys(_hedges(doc)))}


def limits(doc: ReportDocument) -> list[str]:
    """Return the second section of the evidence: what the report does not show."""
    names = ("precondition:overlap", "precondition:same_population")
    unfit = [f for f in doc.conditions if f.rule in names and f.outcome is not Outcome.PASSED]
    sentences = [f"{capital(plain(f.message, 400)).rstrip('.')}." for f in unfit]
    public = "; ".join(f"{plain(name, 40)} ({plain(origin, 120)})" for name, origin in doc.subject.public.items())
    sentences += [say("limits.public", names=public)] if public else []
    sentences += [said] if (said := no_attack_limited(doc)) else []
    return [*sentences, *map(say, ("limits.attack", "limits.theorem", "limits.others", "limits.legal"))]


def _hedges(doc: ReportDocument) -> Iterator[str]:
    """Yield of which people and trainings the figures of influence do not speak."""
    for m in doc.evidence.measurements:
        b = BehindInfluence.read(m.behind)
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


def no_attack_limited(doc: ReportDocument) -> str:
    """Return that influence alone was limited, which stops no attack; empty where an enforced rule limits attacks."""
    rules = [(about(f.metric), f.mode) for f in doc.rules if f.outcome is not Outcome.NOT_NEEDED]
    limited = any(metric.limits_attacks and mode != "warn" for metric, mode in rules)
    if limited or not any(metric.per_unit for metric, _ in rules):
        return ""
    warmth = doc.subject.release.temperature
    where = "regression-1-attacks" if doc.subject.task == "regression" else "dtp-1-attacks"
    declared = "" if warmth == 1 else " " + say("limits.temperature", temperature=number(warmth))
    return say("limits.no_attack", policy=where) + declared


def level(doc: ReportDocument) -> str:
    """Return the DTP level that was reached, such as ``"DTP-1"``; empty unless a ``dtp`` rule passed and all hold."""
    limits = [f.limit for f in met_for_everybody(doc.findings)]
    return f"DTP-{number(min(limits))}" if doc.approved and limits and not math.isnan(min(limits)) else ""


def facts(doc: ReportDocument) -> list[tuple[str, str]]:
    """Return what was judged, by which user, until when; what was not stated says so."""
    s, p, c = doc.subject, doc.policy, doc.context
    key = "records" if s.n_units in (0, s.n_records) else "records.people"
    counts = say(key, records=number(s.n_records), people=number(s.n_units)) if s.n_records else ""
    data = (plain(c.data_name, 60), counts, _people(s), short(s.digests.get("data")))
    limited = any(about(f.metric).per_unit and f.unit == "nats" for f in doc.rules)
    items = [
        ("fact.data", ", ".join(t for t in data if t)),
        ("fact.source", plain(c.data_source, 120) or say("not_stated")),
        ("fact.purpose", plain(c.purpose, 200) or say("not_stated")),
        ("fact.owner", plain(c.owner, 80) or say("not_stated")),
        ("fact.checked_by", _checked_by(doc, 60, plain(c.run_on, 80))),
        ("fact.judged", say("answers", release=released(s), file=_file(doc))),
        ("fact.model", short(s.digests.get("model") or s.digests.get("recipe"))),
        ("fact.policy", f"{plain(p.name, 40)}{f' {plain(p.version, 20)}' if p.version else ''}, {short(p.digest)}"),
        ("fact.level", plain(doc.level, 20) or (say("level.none") if limited else "")),
        ("fact.size", _size(doc)),
        ("fact.decided", moment(doc.decided_at) or say("undated")),
        ("fact.valid", moment(doc.expires) or say("no_statement")),
    ]
    return [(say(k), v) for k, v in items if v]


def _file(doc: ReportDocument) -> str:
    """Return what of the file was judged, the end of a sentence about the answers."""
    for who, stated in (("policy", doc.policy.source.get("file")), ("operator", doc.subject.file)):
        if stated == _WITHHELD:
            return say("file.withheld", who=say(f"file.{who}"))
    if not any(Need.LOOKED in about(f.metric).needs for f in doc.findings):
        return say("file.looked" if any(f.rule == "precondition:file" for f in doc.findings) else "file.not_judged")
    part = doc.evidence.artifact
    if part is None or part.problem:
        return say("file.unread")
    return say("file.judged" if part.judged == "file" else "file.would_be")


def released(s: SubjectFacts) -> str:
    """Return what a release hands out, in words; a regressor has no labels."""
    if s.task == "regression":
        return say("release.noisy" if s.release.noise else "release.numbers")
    if s.release.floor:
        return _say_floor("release", s.release.floor) + say("release.alone") * s.release.alone
    return say(f"release.{s.release.form}")


def _say_floor(where: str, floors: Sequence[float]) -> str:
    low, high = percent(min(floors)), percent(max(floors))
    return say(f"{where}.floor" if low == high else f"{where}.floors", low=low, high=high)


def _size(doc: ReportDocument) -> str:
    """Return whether a claim of differential privacy that was looked at takes the number of records as public."""
    claim = doc.subject.claim
    if claim is None or doc.evidence.claims is None:
        return ""
    adjacencies = [m.request.option("adjacency") for m in doc.evidence.measurements]
    return say("size.public" if "replace_one" in (claim.adjacency, *adjacencies) else "size.not_looked_at")


def short(digest: Any) -> str:
    """Return the first 16 hexadecimal digits of a digest, enough to compare by eye; all of them are in the trace."""
    text = plain(digest, 80)
    head, _, tail = text.partition(":")
    return f"{head} {tail[:16]}" if tail else text


def _people(subject: SubjectFacts) -> str:
    """Return what was declared about the owners of records, and by which user."""
    declared, by = (plain(subject.people.get(key, ""), 60) for key in ("declared", "by"))
    if not declared:
        return "" if subject.n_units < subject.n_records else say("people.undeclared")
    return say("people.declared", declared=declared, by=by or say("not_stated"))
