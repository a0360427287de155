"""Framework mapping: which section speaks to which legal or voluntary requirement, in our words."""

from privgate.report import annexes, found_blocks, front, words
from privgate.report.blocks import Code, Section, TableBlock, Text
from privgate.report.report_schema import ReportDocument
from privgate.report.text import moment, plain

# (framework and article, our paraphrase of what it expects, section, key whose absence means "not in this run")
_ROWS = (
    (
        "EDPB Opinion 28/2024, paragraph 43",
        "The chance of getting anybody's data out of the model, on purpose or not, is judged for each person",
        "Risk of each person",
        "units",
    ),
    (
        "EDPB Opinion 28/2024, paragraphs 43 and 46",
        "Means reasonably likely to be used, and the context in which the model is released, are considered",
        "Model and release; Attacks",
        "subject",
    ),
    (
        "EDPB Opinion 28/2024, paragraph 55",
        "Structured tests against known kinds of attack; passing them is evidence against those attacks only",
        "Attacks",
        "attacks",
    ),
    (
        "EDPB Opinion 28/2024, paragraph 58",
        "Documentation lets an authority check, among others, size of data against size of model",
        "Model and release",
        "subject",
    ),
    (
        "EDPB Opinion 28/2024, paragraph 134",
        "Claims about a model are supported by evidence",
        "Trace; Methods and sources",
        "subject",
    ),
    (
        "AI Act, Annex IV (2)(g)",
        "Tests are documented, dated and signed by those responsible",
        "What was judged; Trace",
        "signature",
    ),
    (
        "AI Act, Article 15(5)",
        "Attacks on confidentiality are prevented, detected and answered",
        "Attacks; Differential privacy",
        "attacks",
    ),
    ("AI Act, Articles 10 and 11", "Data governance and technical documentation", "Data and conditions", "subject"),
    ("GDPR, Article 35(7)", "Risks to people and measures against them are assessed", "The paragraph below", "subject"),
    ("GDPR, Article 17", "Erasure on request", "Deletion capacity", "deletion"),
    (
        "GDPR, Article 25",
        "Data protection by design and by default",
        "Rules: limits set before the model was seen",
        "subject",
    ),
    ("NIST AI RMF, MEASURE 2.10", "Privacy risk is examined and documented", "The whole report", "subject"),
    ("NIST AI 600-1, MS-2.10-001", "Red-teaming for training data and membership", "Attacks", "attacks"),
    (
        "NIST SP 800-226",
        "A guarantee names epsilon, delta, unit, neighbours and accountant, not epsilon alone",
        "Differential privacy",
        "dp",
    ),
    (
        "ISO/IEC 42001, Annex A.6.2",
        "Verification, documentation and event logs of an AI system",
        "Findings; Trace",
        "subject",
    ),
)


def section(doc: ReportDocument) -> Section:
    """Return the table and a paragraph for an impact assessment."""
    claims, recipe = doc.evidence.claims, doc.subject.recipe
    here = {
        "subject": True,
        "units": doc.units is not None,
        "attacks": bool(words.attacks(doc)),
        "dp": bool(claims and claims.bounds) or bool(recipe and recipe.dp),
        "deletion": bool(claims and claims.deletion),
        "signature": False,  # a report is written before anybody signs it
    }
    rows = [(source, expects, where if here[key] else "not in this run") for source, expects, where, key in _ROWS]
    note = (
        f"Paraphrased, not quoted; {annexes.COUNSEL} against the official texts. The tables map evidence to "
        "requirements and assert no conformity."
    )
    return Section(
        "frameworks",
        "Framework mapping",
        [
            annexes.edpb(doc),
            annexes.annex_iv(doc),
            TableBlock("Requirements and where this report speaks to them", ("Source", "What it expects", "Where"),
                  rows, folded=f"{len(rows)} requirements and where this report speaks to them"),
            Text(note, "note"),
            Code("Paragraph for a data protection impact assessment (GDPR, Article 35(7))", paragraph(doc)),
        ],
    )  # fmt: skip


def paragraph(doc: ReportDocument) -> str:
    """Return risks and measures in one paragraph, ready to paste."""
    decided = moment(doc.decided_at) or "an unrecorded date"
    tested = sorted(words.kinds_tested(doc))
    attacks = f"Attacks tried: {', '.join(tested)}." if tested else "No attack was tried in this run."
    return (
        f"Before release, the influence of single people on the model {front.subject(doc.subject)} was measured on "
        f"{decided} under the policy {plain(doc.policy.name, 40)}. Decision: {words.decision(doc)}. "
        f"{front.why(doc, count_others=False)} {front.how_sure(doc)} {attacks} "
        f"The measurement covers {found_blocks.counts(doc.subject) or 'the training data named'}. "
        "Remaining risk: attacks that were not tried, and conditions of theorems that may not hold in operation."
    )
