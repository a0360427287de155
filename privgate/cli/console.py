"""What the terminal shows: progress, plan, verdict."""

import math
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any

import click

from privgate.evidence import EvidenceDocument
from privgate.report.suppression import shown
from privgate.report.text import fold
from privgate.verdict import Finding, Outcome

_WORDS = {
    Outcome.PASSED: ("APPROVED", "green"),
    Outcome.WARNED: ("APPROVED, with warnings", "yellow"),
    Outcome.INCONCLUSIVE: ("INCONCLUSIVE: not approved", "yellow"),
    Outcome.FAILED: ("BLOCKED", "red"),
}
_MARKS = {Outcome.PASSED: "+", Outcome.WARNED: "!", Outcome.INCONCLUSIVE: "?", Outcome.FAILED: "x"}


def plain(text: str) -> str:
    """Return foreign text on one line without control characters: names must not move the cursor or forge log lines."""
    return "".join(c if c.isprintable() else "?" for c in text)


def progress(done: int, total: int, seconds_left: float, label: str = "retraining") -> None:
    """Draw one line of progress on stderr; a line every tenth where stderr is no terminal."""
    left = "" if not seconds_left > 0 else f", about {_span(seconds_left)} left"
    line = f"{label}: {done} of {total}{left}"
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[2K{line}", nl=done >= total, err=True)
    elif done >= total or done % max(1, total // 10) == 0:
        click.echo(line, err=True)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_document(document: Mapping[str, Any], where: Path) -> None:
    """Print the decision, one line a finding, worst first, and where the report is.

    Everything comes from the report document, in which people are keyed hashes: a CI log is read by many.
    """
    outcome = Outcome(document["outcome"])
    word, color = _WORDS[outcome]
    subject = document["subject"]
    what = plain(f"{subject['name']} version {subject['version']}" if subject["version"] else str(subject["name"]))
    click.secho(f"{word}  {what}  by policy {plain(str(document['policy']['name']))}", fg=color, bold=True)
    if document["approved"]:
        click.echo(f"  {plain(document['decision'])}")
    findings = [Finding.from_payload(f) for f in document["findings"]]
    for finding in sorted(findings, key=lambda f: -f.outcome.rank):
        if finding.outcome is Outcome.PASSED and finding.rule.startswith("precondition:"):
            continue
        click.echo(f"  {_MARKS[finding.outcome]} {plain(finding.title)}: {plain(finding.message)}")
        if finding.advice:
            click.echo(f"      {plain(finding.advice)}")
    for line in _how(document):
        click.echo(f"  {plain(line)}")
    click.echo(f"  report: {where}")


def _how(document: Mapping[str, Any]) -> Iterator[str]:
    """Yield how the figures were come by: the mode, which engine answered for how many, what another seed changes."""
    evidence = EvidenceDocument.model_validate(document["evidence"])
    run, influence = evidence.run, evidence.influence
    if run.mode and run.mode.note:
        yield run.mode.note
    if influence is None:
        return
    for share in influence.engines:
        why = "; ".join(f"{reason} ({shown(count)})" for reason, count in share.why.items())
        rest = "" if share.handed_on == 0 else f", {shown(share.handed_on)} handed on: {why}"
        yield f"{share.engine}: {shown(share.answered)} of {shown(share.asked)} people or records{rest}"
    if influence.noise and run.seeds and run.seeds.dependent:
        yield f"seed noise: with nobody removed, {_alone(influence.noise.median)}"
        yield f"people whose influence exceeds this noise: {shown(influence.noise.units_above)}"


def _alone(median: float) -> str:
    """Return what another seed alone does to the answer about the person in the middle."""
    who = "the model's answer about every second person"
    if math.isinf(median):
        return f"another seed alone turns some label in {who} from possible to impossible, or back"
    return f"another seed alone changes {who} by {fold(median)} ({median:.2g} nats) or more"


def note(text: str) -> None:
    """Say something on stderr before work starts."""
    click.echo(f"note: {plain(text)}", err=True)
