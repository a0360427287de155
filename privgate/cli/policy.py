"""``privgate policy``: lint, explain, schema. Nothing is trained here."""

from pathlib import Path

import click

from privgate.cli import shared
from privgate.cli.console import plain
from privgate.errors import ExitCode, UsageError
from privgate.policy import Policy


@click.group()
def policy() -> None:
    """Work with policy files; nothing is trained."""


@policy.command()
@click.argument("name", shell_complete=shared.complete_policy)
def lint(*, name: str) -> int:
    """Check that the policy NAME (a shipped name, or a file) and its suites can be used; exit 2 where they cannot."""
    from privgate.controls import suites

    loaded = Policy.load(name)
    for suite, text in loaded.suites.items():
        file = suite.partition("@")[0]
        suites.build(suites.parse(text, file), file)
    click.echo(plain(f"{loaded.name} version {loaded.version} can be used; {loaded.digest}"))
    return int(ExitCode.PASSED)


@policy.command()
@click.argument("name", shell_complete=shared.complete_policy)
@click.argument("rule", required=False)
def explain(*, name: str, rule: str | None) -> int:
    """Say in plain words what the policy NAME, or one RULE of it, means, and where each number comes from."""
    from privgate.policy.explain import explain as tell

    for line in tell(Policy.load(name), rule):
        click.echo(plain(line))
    return int(ExitCode.PASSED)


@policy.command()
@click.option("--output", type=click.Path(dir_okay=False, path_type=Path), default=None, help="Write it to a file.")
def schema(*, output: Path | None) -> int:
    """Print the JSON Schema of policy files; name it in a file's first line and an editor completes the rest."""
    from privgate.policy import document_shape as made

    if output is None:
        click.echo(made.text(), nl=False)
        return int(ExitCode.PASSED)
    try:
        output.write_text(made.text(), encoding="utf-8")
    except OSError as exc:
        raise UsageError(f"{output}: cannot be written: {exc.strerror}") from exc
    click.echo(f"put this in the first line of a policy:\n# yaml-language-server: $schema={output}")
    return int(ExitCode.PASSED)
