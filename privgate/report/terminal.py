"""The report as a terminal shows it: the decision, one line a finding, worst first, and how the figures came about."""

import math
import re
from collections.abc import Iterator, Mapping

from privgate.report import words
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import fold, prose, shown
from privgate.verdict import Finding, Outcome

_MARKS: Mapping[str, str] = {Outcome.PASSED: "+", Outcome.WARNED: "!", Outcome.INCONCLUSIVE: "?", Outcome.FAILED: "x"}

#: of whom, or by which attack, as messages of rules name it before the limit
_WHERE = re.compile(r"\((?!exact\)|a point)[^()]*\)(?=; allowed)")
_MORE = re.compile(r": (?:passed|warned|inconclusive|failed)(\W.*)$")


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
    if doc.approved and doc.decision.casefold() != say(f"terminal.{doc.outcome}").casefold():
        yield f"  {prose(doc.decision)}"  # under a waiver, or while only observing
    yield from reasons(doc, advice=True)
    for step in doc.next_steps:
        yield f"  next: {prose(step.action)}"
        yield f"      {prose(step.effect)}; {prose(step.cost)}"
    yield from (f"  {prose(line)}" for line in _how(doc))


def reasons(doc: ReportDocument, *, advice: bool = False) -> Iterator[str]:
    """Yield a line a finding, worst first; a precondition that holds is not worth one."""
    named = words.titles(doc)
    for finding in sorted(doc.findings, key=words.badness):
        if finding.outcome is Outcome.PASSED and words.is_condition(finding):
            continue
        title = named.get(finding.rule) or words.title(finding)
        title = say("row.title", title=title) if words.is_condition(finding) else title
        yield f"  {_MARKS[finding.outcome]} {title}: {told(finding)}"
        if advice and finding.advice:
            yield f"      {prose(finding.advice)}"


def told(finding: Finding) -> str:
    """Return a finding in one line, in the units of the report: a factor, nats in brackets; else its own message."""
    if words.is_condition(finding) or words.measured(finding) == say("not_measured") or math.isnan(finding.limit):
        return prose(finding.message)
    # what a rule adds behind its figures: why a waiver does not apply, of whom nothing is known
    more = _MORE.search(finding.message)
    behind = more[1] if more else ""
    blank = " " if behind.startswith(" ") else ""
    waived = f" ({prose(finding.waiver)})" if finding.waiver else f"{blank}{prose(behind)}"
    where = _WHERE.search(finding.message)
    return say("terminal.told", measured=words.measured(finding), whose=f" {where[0]}" if where else "",
               limit=words.limit(finding), result=words.result(finding.outcome).lower(), waived=waived)  # fmt: skip


def _how(doc: ReportDocument) -> Iterator[str]:
    """Yield how the figures were come by: the mode, which engine answered for how many, what another seed changes."""
    run, influence = doc.evidence.run, doc.evidence.influence
    if run.mode and run.mode.note:
        yield run.mode.note
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
