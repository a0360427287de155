"""``privgate policy``: lint and explain. Nothing is trained here."""

import click

from privgate.cli import shared
from privgate.cli.console import plain
from privgate.errors import ExitCode
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
    from privgate.policy.resolved_policy import explain as tell

    for line in tell(Policy.load(name), rule):
        click.echo(plain(line))
    return int(ExitCode.PASSED)
