"""``privgate report`` and ``privgate compare``: render again from JSON alone, compare versions, list what is in use."""

import datetime as dt
from html import unescape
from pathlib import Path
from typing import Any

import click

from privgate.cli import outputs, shared
from privgate.documents import LARGE, DocumentError, strict_json
from privgate.errors import ExitCode, SubjectError, UsageError


class _RenderByDefault(click.Group):
    """``privgate report FILE`` renders; ``privgate report index`` is the only word that is no file."""

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        if args and args[0] not in self.commands:
            args = ["render", *args]
        return super().resolve_command(ctx, args)


@click.group(cls=_RenderByDefault, options_metavar="", subcommand_metavar="SOURCE [OPTIONS] | index [OPTIONS]")
def report() -> None:
    """Render SOURCE (a report.json) again, or write an index of all models in use."""


@report.command(hidden=True)
@click.argument("source", type=click.Path(dir_okay=False, path_type=Path))
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the HTML report.")
@click.option("--markdown", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write the summary.")
@click.option("--junit", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write JUnit XML.")
@click.option("--format", "form", type=click.Choice(shared.PRINTED), default=None, help="Print it instead.")
def render(*, source: Path, html: Path | None, markdown: Path | None, junit: Path | None, form: str | None) -> int:
    """Render SOURCE (a report.json) again; the same JSON gives the same bytes."""
    from privgate import report as rendering

    wanted = {"html": html, "markdown": markdown, "junit": junit}
    if not any(wanted.values()) and form is None:
        raise UsageError("say what to write: --html FILE, --markdown FILE, --junit FILE, or --format to print it")
    for kind, path in wanted.items():
        if path is not None:
            outputs.file(path, f"--{kind}")
    document = read(source)
    if form is not None:
        click.echo(rendering.render(document, form), nl=False)
    for kind, path in wanted.items():
        if path is not None:
            path.write_text(rendering.render(document, kind), encoding="utf-8")
            click.echo(f"wrote {path}", err=form is not None)
    return 0


@report.command()
@click.option("--alias", default="production", show_default=True, help="Which versions count as in use.")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), required=True, help="Page to write.")
@shared.tracking_uri
def index(*, alias: str, html: Path, tracking_uri: str | None) -> int:
    """Write one page over a registry: every model in use, its verdict, policy, expiry, worst unit, last check.

    Exit 0, or 4 where a report cannot be read.
    """
    from privgate import registry
    from privgate import report as rendering
    from privgate.cli.console import plain
    from privgate.report import schema

    outputs.file(html, "--html")
    rows = list(registry.in_use(alias, tracking_uri=tracking_uri))
    for row in rows:
        try:
            _ = row.get("document") and schema.read(row["document"])
        except SubjectError as exc:
            row["problem"] = str(exc)
    broken = [row for row in rows if "problem" in row]
    for row in broken:
        click.echo(f"x models:/{row['name']}/{row['version']}: {plain(row['problem'])}")
    now = dt.datetime.now(dt.UTC).isoformat(timespec="seconds")
    html.write_text(rendering.index(rows, now=now), encoding="utf-8")
    click.echo(f"wrote {html}: {len(rows)} models are @{alias}")
    return int(ExitCode.SUBJECT if broken else ExitCode.PASSED)


@click.command()
@click.argument("old")
@click.argument("new")
@click.option("--html", type=click.Path(dir_okay=False, path_type=Path), help="Write it as a page.")
@shared.tracking_uri
def compare(*, old: str, new: str, html: Path | None, tracking_uri: str | None) -> int:
    """Compare the reports of two versions (models:/name/3 models:/name/4) or two report.json files."""
    from privgate import report as rendering
    from privgate.cli.console import plain

    if html is not None:
        outputs.file(html, "--html")
    before, after = (_document(source, tracking_uri) for source in (old, new))
    found = rendering.compare(before, after)
    for line in rendering.render(found, "markdown").splitlines():
        click.echo(plain(unescape(line)))
    if html is not None:
        html.write_text(rendering.render(found, "html"), encoding="utf-8")
        click.echo(f"wrote {html}")
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
