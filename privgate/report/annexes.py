"""Two annexes for lawyers, filled from this report: EDPB Opinion 28/2024 and AI Act, Annex IV. They conclude nothing.

Paraphrases in our words, to be checked by counsel against the official texts. What a report does not hold is said to be
missing, never left out.
"""

from collections.abc import Sequence

from privgate.policy.rules import about
from privgate.report import assertions, found_blocks, words
from privgate.report.assertions import Assertion
from privgate.report.blocks import TableBlock
from privgate.report.report_schema import ReportDocument
from privgate.report.sentences import say
from privgate.report.text import moment, plain
from privgate.verdict import Outcome

COUNSEL = "to be checked by counsel"
_NOTHING = "nothing in this report"


def edpb(doc: ReportDocument) -> TableBlock:
    """Return the evidence for and against each likelihood of Opinion 28/2024, paragraph 43, being insignificant."""
    rules = [a for a in assertions.of(doc) if not a.condition]
    queries = [a for a in rules if (m := about(a.finding.metric)).per_unit or m.limits_attacks]
    guaranteed = [a for a in rules if a.finding.metric.startswith("dp_")]
    tested = sorted(words.kinds_tested(doc))
    untested = [k for k in words.ATTACK_KINDS if k not in tested]
    rows = [
        (
            "Extracting personal data from the model itself (its file, its parameters)",
            _told(guaranteed, met=True),
            _join("the file was not judged: whoever holds it may learn more", _told(guaranteed, met=False)),
        ),
        (
            "Obtaining personal data, on purpose or not, by asking the model",
            _told(queries, met=True),
            _join(_told(queries, met=False), f"not tested: {', '.join(untested)}" if untested else ""),
        ),
        (
            "Means reasonably likely to be used (paragraphs 43 and 46)",
            _join(f"one query returns {found_blocks.released(doc.subject)}", _attackers(doc)),
            "other sources of knowledge about the people, and who can reach the service, are not known here",
        ),
        (
            "Structured tests against known attacks (paragraph 55)",
            f"attacks of these kinds ran: {', '.join(tested)}" if tested else _NOTHING,
            f"these kinds did not: {', '.join(untested)}" if untested else _NOTHING,
        ),
        (
            "Documentation that an authority can check (paragraph 58)",
            "digests of model, data, code and policy, and every figure with its conditions, stand in the trace",
            "the impact assessment, and advice of the data protection officer, are not part of this report",
        ),
    ]
    return TableBlock(
        f"EDPB Opinion 28/2024, likelihoods that are to be insignificant: evidence for and against; {COUNSEL}",
        ("Likelihood", "Evidence that it is insignificant", "Evidence that it is not, and what is missing"),
        rows,
        folded=f"Annex: EDPB Opinion 28/2024, evidence for and against ({COUNSEL})",
        printed=True,
    )


def annex_iv(doc: ReportDocument) -> TableBlock:
    """Return what this report gives to the technical documentation of AI Act, Annex IV, item by item."""
    c, s = doc.context, doc.subject
    recipe = s.recipe
    how = recipe and recipe.trained_by
    data = _join(*(v for k, v in found_blocks.facts(doc) if k in (say("fact.data"), say("fact.source"))))
    rows = [
        ("1(a) Purpose, provider, version", _join(plain(c.purpose, 200) or "purpose not stated",
         plain(c.owner, 80) or "provider not stated", f"{plain(s.name, 60)} {plain(s.version, 20)}".strip())),
        ("1(b) to (h) Interaction, hardware, instructions for use", _NOTHING),
        ("2(a) Methods and steps of development", f"trained by {plain(how, 120)}; see Model and release" if how
         else _NOTHING),
        ("2(b), (c) Design and architecture", "parameters under Model and release; the rest is not in this report"),
        ("2(d) Data: origin, scope, main characteristics", f"{data}; see Data and conditions"),
        ("2(e), (f) Human oversight, changes planned beforehand", _NOTHING),
        ("2(g) Validation and testing, with dated and signed reports", _join(
            f"policy {plain(doc.policy.name, 40)}, decided {moment(doc.decided_at) or 'at an unrecorded date'}",
            "signed in a separate step: verify the statement")),
        ("2(h) Cybersecurity", "attacks on confidentiality only; see Attacks" if words.attacks(doc) else _NOTHING),
        ("3 Capabilities, limits, accuracy, unintended outcomes", found_blocks.accuracy(doc).rstrip(".")),
        ("4 Appropriateness of the performance metrics", _NOTHING),
        ("5 Risk management (Article 9)", "risks to people in the training data only; see Risk of each person"),
        ("6 Changes through the life cycle", plain(doc.comparison.summary, 200) if doc.comparison else _NOTHING),
        ("7 to 9 Standards, declaration of conformity, monitoring after release", _NOTHING),
    ]  # fmt: skip
    return TableBlock(
        f"AI Act, Annex IV: what this report gives to the technical documentation; {COUNSEL}",
        ("Item", "What this report gives"),
        rows,
        folded=f"Annex: AI Act, Annex IV, technical documentation ({COUNSEL})",
        printed=True,
    )


def _told(found: Sequence[Assertion], *, met: bool) -> str:
    """Return each rule that was met, or was not, with its figures; a waived or doubtful rule speaks against."""
    said = [
        f"{a.asked}: {a.sentence}"
        for a in found
        if a.outcome is not Outcome.NOT_NEEDED and (a.outcome is Outcome.PASSED) is met
    ]
    return "; ".join(said) or _NOTHING


def _attackers(doc: ReportDocument) -> str:
    known = sorted({plain(a.threat_model, 120) for a in words.attacks(doc) if a.figures})
    return f"attackers were given: {'; '.join(known[:3])}" if known else ""


def _join(*parts: str) -> str:
    told = [p for p in parts if p and p != _NOTHING]
    return "; ".join(told) or _NOTHING
