"""``privgate advise``: the most useful change of one parameter that is approved."""

import json
from typing import Any

import click

from privgate.cli import console, options, shared


@click.command()
@options.subject
@options.policy
@click.option("--budget", default="30m", show_default=True, metavar="30m", help="Wall time of the search.")
@shared.jobs
@shared.ledger
@click.option("--file-not-downloadable", "file_withheld", is_flag=True, help="As check was told it.")
@shared.quiet
@shared.as_json
def advise(*, uri: str, as_json: bool, **settings: Any) -> int:
    """Search for a change of one parameter of the model URI that keeps the policy; print it as a diff of the recipe.

    The policy's rules measure each change, with cross-validated usefulness beside it. The most useful one that passes
    is checked again as a whole, with other randomness. Exit 0 if that approves it, or the model as it stands keeps the
    policy; else 1. What was trained is remembered: an interrupted search goes on.
    """
    from privgate.advice.search import advise as search
    from privgate.cli import outputs

    seconds = options.duration(settings["budget"])
    outputs.ledger(settings["ledger"])
    usual = {"budget": None, "seeds": None, "full": False, "isolation": "auto", "cluster": None, "time_limit": 3600.0}
    run = options.build(uri, settings | usual, writes=False)
    tell = (lambda _: None) if settings["quiet"] else console.note
    with run.fleet:
        advice = search(run.policy, run.subject, fleet=run.fleet, limits=run.limits, seconds=seconds, tell=tell)
    if as_json:
        click.echo(json.dumps(advice.payload(), indent=1))
    else:
        click.echo("\n".join(console.plain(line) for line in advice.lines))
    return 0 if advice.approved else 1
