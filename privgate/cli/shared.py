"""Options that several commands take, said once; light, because the verifier has them too."""

from pathlib import Path
from typing import Any

import click
from click.shell_completion import CompletionItem

#: formats of a report that a command prints
PRINTED = ("text", "json", "markdown", "junit", "cyclonedx", "modelcard")


def complete_policy(ctx: click.Context, param: click.Parameter, incomplete: str) -> list[Any]:
    """Complete shipped policies by name, and YAML files of the working folder."""
    del ctx, param
    from privgate.policy.problems import shipped

    names = [CompletionItem(name, help="shipped policy") for name in shipped()]
    names += [
        CompletionItem(str(p)) for pattern in ("*.yaml", "*.yml", "*/*.yaml") for p in sorted(Path().glob(pattern))
    ]
    return [item for item in names if str(item.value).startswith(incomplete)]


tracking_uri = click.option(
    "--tracking-uri", default=None, help="MLflow server or store; MLFLOW_TRACKING_URI if absent."
)
jobs = click.option("--jobs", type=click.IntRange(min=1), default=None, help="Worker processes; all cores if absent.")
ledger = click.option("--ledger", default=None, metavar="FOLDER|URL", help="Where results are remembered.")
quiet = click.option("--quiet", is_flag=True, help="No progress on stderr.")
as_json = click.option("--json", "as_json", is_flag=True, help="Print JSON.")
