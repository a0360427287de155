"""The command line: parse, call, print, exit. One file a command family, imported when it is called."""

import os
from importlib import import_module
from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

from privgate.version import __version__

#: command -> (module of privgate.cli, help line); the modules import MLflow and more, so they wait
COMMANDS: dict[str, tuple[str, str]] = {
    "init": ("config", "Write a configuration and a CI snippet to start from."),
    "demo": ("demo", "Run the gate on real data against a registry of its own."),
    "explain": ("catalogue", "Explain a rule, attack, policy or word; --list names them all."),
    "check": ("check", "Judge a model version by a policy; write and attach the report."),
    "adopt": ("check", "Give a version without a recipe one; older versions become a new one of the same bytes."),
    "promote": ("check", "Check a model version and move an alias to it if it is approved."),
    "report": ("report", "Render a report again, or compare two."),
    "advise": ("check", "Find a change of one parameter of a refused model that is approved."),
    "verify": ("verify", "Verify at deployment: the statement and every byte of the files; exit 0 or 4."),
    "guard": ("guard", "Guard a registry: serve, sign, revoke, doctor and keys."),
    "policy": ("catalogue", "Lint and explain policies."),
    "dp": ("dp", "Differential privacy: bounds, goals, deletions and audits."),
}

#: commands of 0.1 that stand below ``guard`` now
BELOW_GUARD = ("serve", "sign", "revoke", "doctor", "keys")
#: commands that train or read much: they say at once that they have begun
LONG = ("check", "adopt", "promote", "verify", "advise", "demo", "guard sign", "guard doctor")

#: groups of the help page
GROUPS: dict[str, tuple[str, ...]] = {
    "Start": ("init", "demo", "explain"),
    "Judge": ("check", "adopt", "promote", "report", "advise"),
    "Release and verify": ("verify", "guard"),
    "Prepare": ("policy", "dp"),
}


class _Lazy(click.Group):
    """A group whose commands are imported when they are called."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        del ctx
        return list(COMMANDS)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        del ctx
        if cmd_name not in COMMANDS:
            return None
        module, _ = COMMANDS[cmd_name]
        command: click.Command = getattr(import_module(f"privgate.cli.{module}"), cmd_name)
        return command

    def resolve_command(
        self, ctx: click.Context, args: list[str]
    ) -> tuple[str | None, click.Command | None, list[str]]:
        """Name the nearest command when one is not known, and say that a long one has begun."""
        from difflib import get_close_matches

        from privgate.cli import console

        if args and args[0] in BELOW_GUARD:
            args = ["guard", *(args if args[1:2] != ["init"] else ["keys", *args[2:]])]
            click.echo(f"note: `privgate {args[1]}` is now `privgate guard {args[1]}`", err=True)
        if args and args[0] not in COMMANDS and not args[0].startswith("-"):
            near = get_close_matches(args[0], COMMANDS, n=1)
            hint = f"; did you mean {near[0]!r}?" if near else ""
            raise click.UsageError(f"no command {args[0]!r}{hint}", ctx)
        quiet = os.environ.get("PRIVGATE_QUIET", "").lower() in {"1", "t", "true", "y", "yes", "on"}
        named = next((name for name in LONG if name.split() == args[: name.count(" ") + 1]), "")
        if named and not quiet and not {"--quiet", "--help", "-h"} & {*args}:
            given = [word for word in args[named.count(" ") + 1 :] if not word.startswith("-")]
            policy = f" by {args[args.index('--policy') + 1]}" if "--policy" in args[:-1] else ""
            console.begin(f"{named}: reading libraries, then {given[0] if given else 'what was named'}{policy}")
        return super().resolve_command(ctx, args)

    def format_commands(self, ctx: click.Context, formatter: click.HelpFormatter) -> None:
        """List the commands from the table, group by group, without importing any of them."""
        del ctx
        for title, names in GROUPS.items():
            with formatter.section(title):
                formatter.write_dl([(name, COMMANDS[name][1]) for name in names])

    def shell_complete(self, ctx: click.Context, incomplete: str) -> list[CompletionItem]:
        """Complete commands from the table, which takes no import."""
        if incomplete.startswith("-"):
            return super().shell_complete(ctx, incomplete)
        return [CompletionItem(n, help=text) for n, (_, text) in COMMANDS.items() if n.startswith(incomplete)]


@click.group("privgate", cls=_Lazy, context_settings={"help_option_names": ["-h", "--help"], "max_content_width": 100})
@click.version_option(__version__, message="privgate %(version)s")
@click.pass_context
def cli(ctx: click.Context, /, **_: Any) -> None:
    """Judge what a registered model gives away about the people in its training data, before it is released.

    Exit codes: 0 approved, 1 refused, 2 command line or policy unusable, 3 a bug in privgate. 4 model, data, registry
    or statement unreadable or wrong. 5 undecided, which releases nothing. 6 approved, not signed. 130 interrupted.

    Every option may stand as PRIVGATE_OPTION_NAME in the environment. Those of check, promote, advise, report, policy,
    dp and demo may stand in privgate.yaml.
    """
    from privgate.cli import config, console

    name = str(ctx.invoked_subcommand)
    command = cli.get_command(ctx, name)
    if command is None:
        return

    def every() -> dict[str, Any]:  # imports them all
        return {known: cli.get_command(ctx, known) for known in COMMANDS}

    settings, used = config.defaults(name, command, os.environ, Path(), every)
    ctx.default_map = {name: settings}
    if settings.get("quiet"):  # the file may ask for it
        console.end()
    if used:
        click.echo(f"note: {used}", err=True)
