"""The report as a terminal shows it: the decision, one line a finding, worst first, and how the figures came about."""

import math
from collections import Counter
from collections.abc import Iterator, Mapping

from privgate.evidence.figures import fold
from privgate.report import assertions, what_was_asked, words
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import prose, shown
from privgate.report.words import capital
from privgate.verdict import Outcome

_MARKS: Mapping[str, str] = {
    Outcome.NOT_NEEDED: "-",
    Outcome.PASSED: "+",
    Outcome.WARNED: "!",
    Outcome.INCONCLUSIVE: "?",
    Outcome.FAILED: "x",
}


def render(doc: ReportDocument) -> str:
    """Return the whole text; it begins with the decision in capitals."""
    return "\n".join([headline(doc), *lines(doc)]) + "\n"


def headline(doc: ReportDocument) -> str:
    """Return the decision, about what, by which policy."""
    s = doc.subject
    what = prose(say("terminal.subject", name=s.name, version=s.version) if s.version else s.name)
    decision = say(f"terminal.{doc.outcome}")
    return say("terminal.head", decision=decision, subject=what, policy=prose(doc.policy.name))


def lines(doc: ReportDocument) -> Iterator[str]:
    """Yield what follows the headline; a precondition that holds is not worth a line."""
    if (doc.approved or doc.observed) and doc.decision.casefold() != say(f"terminal.{doc.outcome}").casefold():
        yield f"  {prose(doc.decision)}"  # under a waiver, or while only observing
    yield from _totals(doc)
    yield from reasons(doc, advice=True)
    unasked = [q.told for q in what_was_asked.of(doc) if q.state == "not_asked"]
    yield from (f"  {_MARKS[Outcome.NOT_NEEDED]} {capital(prose(told))}" for told in unasked)
    for step in doc.next_steps:
        yield f"  next: {prose(step.action)}"
        yield f"      {prose(step.effect)}; {prose(step.cost)}"
    yield from (f"  {prose(line)}" for line in _how(doc))


def _totals(doc: ReportDocument) -> Iterator[str]:
    """Yield how many rules ended how, and the margin that is smallest."""
    rules = [a for a in assertions.of(doc) if not a.condition and a.outcome is not Outcome.NOT_NEEDED]
    ended = Counter(a.outcome for a in rules)
    counts = {"approve": ended[Outcome.PASSED], "refuse": ended[Outcome.FAILED]}
    counts |= {"undecided": ended[Outcome.INCONCLUSIVE], "warn": ended[Outcome.WARNED]}
    yield f"  {say('terminal.total', rules=len(rules), **counts)}"
    if least := what_was_asked.smallest(rules):
        yield f"  {say('terminal.margin', **least)}"


def reasons(doc: ReportDocument, *, advice: bool = False) -> Iterator[str]:
    """Yield a line a finding, worst first; a precondition that holds is not worth one."""
    for a in sorted(assertions.of(doc), key=lambda a: words.badness(a.finding)):
        if (a.outcome is Outcome.PASSED and a.condition) or (a.outcome is Outcome.NOT_NEEDED and not a.measured):
            continue
        title = say("row.title", title=a.asked) if a.condition else a.asked
        yield f"  {_MARKS[a.outcome]} {title}: {a.sentence}"
        if advice and a.finding.advice:
            yield f"      {prose(a.finding.advice)}"


def _how(doc: ReportDocument) -> Iterator[str]:
    """Yield how the figures were come by: which engine answered for how many, what another seed changes."""
    run, influence = doc.evidence.run, doc.evidence.influence
    if influence is None:
        return
    for share in influence.engines:
        if share.asked is None:  # it was asked about a few, or about all but a few
            continue
        if share.answered is None:
            yield f"{share.engine}: part of {shown(share.asked)} people or records, {'; '.join(share.why)}"
            continue
        why = "; ".join(f"{reason} ({shown(count)})" for reason, count in share.why.items())
        rest = "" if share.handed_on == 0 else f", {shown(share.handed_on)} handed on: {why}"
        yield f"{share.engine}: {shown(share.answered)} of {shown(share.asked)} people or records{rest}"
    if influence.noise and run.seeds and run.seeds.dependent:
        yield f"seed noise: with nobody removed, {seed_alone(influence.noise.median)}"
        yield f"people whose influence exceeds this noise: {shown(influence.noise.units_above)}"


def seed_alone(median: float) -> str:
    """Return what another seed alone does to the answer about the person in the middle."""
    who = "the model's answer about every second person"
    if math.isinf(median):
        return f"another seed alone turns some label in {who} from possible to impossible, or back"
    return f"another seed alone changes {who} by {fold(median)} ({median:.2g} nats) or more"
