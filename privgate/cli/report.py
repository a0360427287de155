"""``privgate report``: render again from JSON alone, compare versions."""

from html import unescape
from pathlib import Path
from typing import Any

import click
from click.core import ParameterSource

from privgate.cli import outputs, shared
from privgate.documents import LARGE, strict_json
from privgate.errors import SubjectError, UsageError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("source", metavar="[FILE|URI]", default="")
@click.option("--html", "page", type=_FILE, help="Write a page.")
@click.option("--format", "form", type=click.Choice(shared.PRINTED), help="Print it.")
@click.option("--compare", "old", metavar="FILE|URI", help="Compare with this report of an earlier version.")
@shared.tracking_uri
def report(*, source: str, page: Path | None, form: str | None, old: str | None, tracking_uri: str | None) -> int:
    """Render the report of a version again; the same JSON gives the same bytes.

    It is a report.json, or what is attached to models:/name/version. With --compare it is the later one of two,
    and tells what changed. Exit 4 where a report cannot be read.
    """
    from privgate import report as rendering
    from privgate.cli.console import plain

    if not source:
        step = "name the later report behind the earlier one" if old else "name one report"
        raise UsageError(f"{step}: a report.json, or models:/name/version")
    if not (page or form or old):
        raise UsageError("say what to write: --html FILE, or --format to print it")
    if page is not None:
        outputs.file(page, "--html")
    if old is not None and click.get_current_context().get_parameter_source("form") is not ParameterSource.COMMANDLINE:
        form = None  # settings say it for checks
    document = _document(source, tracking_uri)
    if old is not None:
        document["comparison"] = rendering.compare(_document(old, tracking_uri), document)
    if form is not None:
        click.echo(rendering.render(document, form), nl=False)
    for line in rendering.differences(document["comparison"]) if old is not None and form in (None, "text") else ():
        click.echo(plain(unescape(line)))
    if page is not None:
        page.write_text(rendering.render(document, "html"), encoding="utf-8")
        click.echo(f"wrote {page}", err=form is not None)
    return 0


def _document(source: str, tracking_uri: str | None) -> dict[str, Any]:
    if source.startswith("models:/"):
        from privgate.registry.attachments import attached

        return attached(source, tracking_uri=tracking_uri)
    return read(Path(source))


def read(source: Path) -> dict[str, Any]:
    """Return a report document from a file. ``SubjectError``: the file cannot be read, or is no JSON object."""
    with strict_json.reading(f"{source} cannot be read", SubjectError):
        document = strict_json.read(source, LARGE)
    if not isinstance(document, dict):
        raise SubjectError(f"{source} is no report: it holds a {type(document).__name__}, not an object")
    return document
