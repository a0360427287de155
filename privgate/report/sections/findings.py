"""All findings, in full words, with their ids for engineers."""

from privgate.report import front, words
from privgate.report.blocks import Block, Heading, List, Section, TableBlock
from privgate.report.schema import ReportDocument
from privgate.report.text import moment, number, plain, prose


def section(doc: ReportDocument) -> Section:
    """Return every finding of the verdict, worst first."""
    rows = [
        (
            words.title(f),
            words.RESULT[f.outcome],
            prose(f.message),
            prose(f.meaning),
            plain(f.rule, 80),
            plain(f.mode, 20),
        )
        for f in sorted([*words.preconditions(doc), *words.rules(doc)], key=words.badness)
    ]
    columns = ("Finding", "Result", "Message", "What it means", "Id in the policy", "Mode")
    blocks: list[Block] = [TableBlock("Preconditions and rules, worst first", columns, rows)]
    if doc.waivers:
        told = [
            (*(plain(v, 300) for v in (w.rule, w.status, w.reason)), number(w.ceiling),
             *(plain(v, 300) for v in (w.requester, w.approver)), moment(w.expires))
            for w in doc.waivers
        ]  # fmt: skip
        heads = ("Rule", "Status", "Reason", "Up to", "Asked by", "Approved by", "Until")
        blocks.append(TableBlock("All waivers", heads, told))
    if doc.next_steps or not doc.approved:
        blocks += [Heading("What to do next, in full"), List(front.steps(doc))]
    return Section("findings", "All findings", blocks)
