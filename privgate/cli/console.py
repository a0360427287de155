"""What the terminal shows: notes, plan, verdict."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import click

from privgate.cli.heartbeat import progress, wrapped
from privgate.report import plain_formats
from privgate.report.report_schema import read
from privgate.verdict import Outcome

__all__ = ["note", "plain", "print_decision", "print_document", "progress", "say"]

_COLORS = {Outcome.PASSED: "green", Outcome.WARNED: "yellow", Outcome.INCONCLUSIVE: "yellow", Outcome.FAILED: "red"}


def plain(text: str) -> str:
    """Return foreign text on one line without control characters: names must not move the cursor or forge log lines."""
    return "".join(c if c.isprintable() else "?" for c in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line, in several where it has more than 100 characters."""
    click.echo(wrapped(plain(text)), err=err)


def print_document(document: Mapping[str, Any], where: Path) -> None:
    """Print the decision, one line a finding, worst first, and where the report is.

    Everything comes from the report document, in which people are keyed hashes: a CI log is read by many.
    """
    doc = read(document)
    click.secho(wrapped(plain(plain_formats.headline(doc))), fg=_COLORS[doc.outcome], bold=True)
    for line in plain_formats.lines(doc):
        say(line)
    click.echo(f"  report: {where}")


def print_decision(document: Mapping[str, Any], where: Path) -> None:
    """Print the decision, each warning, each rule that decided, and where the report is; see ``print_document``."""
    doc = read(document)
    click.secho(wrapped(plain(plain_formats.headline(doc))), fg=_COLORS[doc.outcome], bold=True)
    for line in plain_formats.reasons(doc):
        say(line)
    click.echo(f"  report: {where}")


def note(text: str) -> None:
    """Say something on stderr before work starts."""
    say(f"note: {text}", err=True)
