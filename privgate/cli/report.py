"""``privgate report``: render again from report.json alone."""

import json
from pathlib import Path

import click

from privgate.errors import SubjectError, UsageError


@click.command()
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the HTML report.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the summary.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write JUnit XML.")
def report(*, source: Path, html: Path | None, markdown: Path | None, junit: Path | None) -> int:
    """Render SOURCE (a report.json) again; the same JSON gives the same bytes."""
    from privgate import report as rendering

    try:
        document = json.loads(source.read_text(encoding="utf-8"))
    except OSError as exc:
        raise SubjectError(f"{source} cannot be read: {exc.strerror}") from exc
    except ValueError as exc:
        raise SubjectError(f"{source} is no JSON: {exc}") from exc
    wanted = {"html": html, "markdown": markdown, "junit": junit}
    if not any(wanted.values()):
        raise UsageError("say what to write: --html FILE, --markdown FILE or --junit FILE")
    for form, path in wanted.items():
        if path is not None:
            path.write_text(rendering.render(document, form), encoding="utf-8")
            click.echo(f"wrote {path}")
    return 0
