"""What the terminal shows: progress, plan, verdict."""

import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from privgate.report import terminal
from privgate.report.report_schema import read
from privgate.verdict import Outcome

_COLORS = {Outcome.PASSED: "green", Outcome.WARNED: "yellow", Outcome.INCONCLUSIVE: "yellow", Outcome.FAILED: "red"}
#: what the last line of progress was about, where stderr is no terminal
_phases: list[str] = []


def plain(text: str) -> str:
    """Return foreign text on one line without control characters: names must not move the cursor or forge log lines."""
    return "".join(c if c.isprintable() else "?" for c in text)


def progress(done: int, total: int, seconds_left: float, label: str = "retraining") -> None:
    """Draw one line of progress on stderr; where that is no terminal, one line a phase."""
    left = "" if not seconds_left > 0 else f", about {_span(seconds_left)} left"
    if sys.stderr.isatty():
        click.echo(f"\r\x1b[2K{label}: {done} of {total}{left}", nl=done >= total, err=True)
    elif _phases[-1:] != [label]:
        _phases[:] = [label]
        click.echo(f"{label}: {total} trainings{left}", err=True)


def _span(seconds: float) -> str:
    if seconds < 90:
        return f"{seconds:.0f} s"
    return f"{seconds / 60:.0f} min" if seconds < 5400 else f"{seconds / 3600:.1f} h"


def print_document(document: Mapping[str, Any], where: Path) -> None:
    """Print the decision, one line a finding, worst first, and where the report is.

    Everything comes from the report document, in which people are keyed hashes: a CI log is read by many.
    """
    doc = read(document)
    click.secho(plain(terminal.headline(doc)), fg=_COLORS[doc.outcome], bold=True)
    for line in terminal.lines(doc):
        click.echo(plain(line))
    click.echo(f"  report: {where}")


def print_decision(document: Mapping[str, Any], where: Path) -> None:
    """Print the decision, each warning, each rule that decided, and where the report is; see ``print_document``."""
    doc = read(document)
    click.secho(plain(terminal.headline(doc)), fg=_COLORS[doc.outcome], bold=True)
    for line in terminal.reasons(doc):
        click.echo(plain(line))
    click.echo(f"  report: {where}")


def note(text: str) -> None:
    """Say something on stderr before work starts."""
    click.echo(f"note: {plain(text)}", err=True)
