"""``privgate report``: render again from JSON alone."""

from pathlib import Path
from typing import Any

import click

from privgate.cli import outputs, shared
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import SubjectError, UsageError

_FILE = click.Path(dir_okay=False, path_type=Path)


@click.command()
@click.argument("source", metavar="[FILE|URI]", default="")
@click.option("--html", "page", type=_FILE, help="Write a page.")
@click.option("--format", "form", type=click.Choice(shared.PRINTED), help="Print it.")
@shared.tracking_uri
def report(*, source: str, page: Path | None, form: str | None, tracking_uri: str | None) -> int:
    """Render the report of a version again; the same JSON gives the same bytes.

    It is a report.json, or what is attached to models:/name/version. Exit 4 where it cannot be read.
    """
    from privgate import report as rendering

    if not source:
        raise UsageError("name one report: a report.json, or models:/name/version")
    if not (page or form):
        raise UsageError("say what to write: --html FILE, or --format to print it")
    if page is not None:
        outputs.file(page, "--html")
    document = _document(source, tracking_uri)
    if form is not None:
        click.echo(rendering.render(document, form), nl=False)
    if page is not None:
        page.write_text(rendering.render(document, "html"), encoding="utf-8")
        click.echo(f"wrote {page}", err=form is not None)
    return 0


def _document(source: str, tracking_uri: str | None) -> dict[str, Any]:
    if source.startswith("models:/"):
        from privgate import registry

        return registry.attached(source, tracking_uri=tracking_uri)
    return read(Path(source))


def read(source: Path) -> dict[str, Any]:
    """Return a report document from a file. ``SubjectError``: the file cannot be read, or is no JSON object."""
    try:
        document = strict_json.read(source, LARGE)
    except OSError as exc:
        raise SubjectError(f"{source} cannot be read: {exc.strerror}") from exc
    except DocumentError as exc:
        raise SubjectError(f"{source} {exc}") from exc
    if not isinstance(document, dict):
        raise SubjectError(f"{source} is no report: it holds a {type(document).__name__}, not an object")
    return document
