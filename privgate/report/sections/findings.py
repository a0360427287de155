"""All findings, in full words, with their ids for engineers."""

from privgate.evidence.figures import number
from privgate.report import assertions, front, words
from privgate.report.blocks import Block, Heading, List, Section, TableBlock, Text
from privgate.report.report_schema import ReportDocument
from privgate.report.text import moment, plain, prose


def section(doc: ReportDocument) -> Section:
    """Return every rule's finding, worst first; what must hold before any figure counts has a section of its own."""
    told = [a for a in assertions.of(doc) if not a.condition]
    named = {a.finding.rule: a.asked for a in told}
    rows = [
        (a.asked, a.result, a.sentence, words.capital(prose(a.finding.meaning)), plain(a.finding.rule, 80),
         plain(a.finding.mode, 20))
        for a in told
    ]  # fmt: skip
    columns = ("Rule", "Result", "What was found", "What it means", "Id in the policy", "Mode")
    blocks: list[Block] = [TableBlock("Rules, worst first", columns, rows)] if rows else []
    if doc.waivers:
        listed = [
            (named.get(w.rule) or plain(w.rule, 80), plain(w.status, 40), plain(w.reason, 300), number(w.ceiling),
             *(plain(v, 300) for v in (w.requester, w.approver)), moment(w.expires))
            for w in doc.waivers
        ]  # fmt: skip
        heads = ("Rule", "Status", "Reason", "Up to", "Asked by", "Approved by", "Until")
        blocks.append(TableBlock("All waivers", heads, listed))
    full = front.steps(doc)
    if full != front.view(doc)["steps"]:
        blocks += [Heading("What to do next, in full"), List(full)]
    return Section("findings", "All findings", blocks or [Text("No rule was judged.")])
