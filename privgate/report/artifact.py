"""What was found in the model's file, for the section on the model; and whether answers or file were judged."""

from privgate.evidence import ArtifactPart
from privgate.policy.rules import about
from privgate.report.blocks import Block, Heading, TableBlock, Text
from privgate.report.schema import ReportDocument
from privgate.report.text import number, plain
from privgate.run.needs import Need

COLUMNS = ("What", "Where", "Records, at least", "Records, at most", "Beside")
#: what the policy says of a file that nobody can get
WITHHELD = "not downloadable"


def judged(doc: ReportDocument) -> str:
    """Return what of the file was judged, the end of a sentence about the answers."""
    ruled = any(Need.FILE in about(f.metric).needs for f in doc.findings)
    if doc.policy.source.get("file") == WITHHELD:
        return "not its file, which the policy states cannot be downloaded"
    if not ruled:
        return "not its file"
    part = doc.evidence.artifact
    if part is None or part.problem:
        return "its file was to be judged and could not be"
    return "and its file" if part.judged == "file" else "and what its file would carry (none is stored)"


def blocks(doc: ReportDocument) -> list[Block]:
    """Return what the file carries, and whether that decided anything."""
    part = doc.evidence.artifact
    if part is None:
        return []
    ruled = any(Need.FILE in about(f.metric).needs for f in doc.findings)
    made: list[Block] = [Heading("What the file itself carries"), Text(_said(part, ruled=ruled))]
    if part.carried:
        rows = [
            (plain(c.what, 90), plain(c.where, 60), *(_count(v) for v in (c.least, c.most, c.beside)))
            for c in part.carried
        ]
        made.append(TableBlock("Traces of single records", COLUMNS, rows, (2, 3, 4)))
    if part.unknown:
        text = "; ".join(plain(u, 160) for u in part.unknown)
        made.append(Text(f"Not walked, so that it may carry anybody: {text}."))
    return made


def _said(part: ArtifactPart, *, ruled: bool) -> str:
    what = "stored file" if part.judged == "file" else "model that the recipe trains (no file is stored)"
    decided = (
        "The rule artifact_records judges this."
        if ruled
        else "No rule judges this: an approval speaks of the model's answers, not of who can download its file."
    )
    if part.problem:
        return f"The {what} could not be walked ({plain(part.problem, 160)}), so that it may carry anybody. {decided}"
    low, high = _count(part.least), _count(part.most)
    span = low if low == high else f"{low} for certain, and at most {high},"
    return f"The {what} carries traces of their own of {span} of {number(part.records)} records. {decided}"


def _count(value: int | None) -> str:
    return "suppressed" if value is None else number(value)
