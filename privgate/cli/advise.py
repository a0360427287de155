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
def advise(*, uri: str, policy_name: str, as_json: bool, **settings: Any) -> int:
    """Search for a change of one parameter of the model URI that keeps the policy; print it as a diff of the recipe.

    The policy's rules measure each change, with cross-validated usefulness beside it. The most useful one that passes
    is checked again as a whole, with other randomness. Exit 0 if that approves it, or the model as it stands keeps the
    policy; else 1. What was trained is remembered: an interrupted search goes on.
    """
    from privgate import registry
    from privgate.advice.search import advise as search
    from privgate.cli import outputs
    from privgate.policy import Policy
    from privgate.run.run import Budget
    from privgate.training.fleet import Fleet

    policy, seconds = Policy.load(policy_name), options.duration(settings["budget"])
    outputs.ledger(settings["ledger"])
    subject = registry.load_subject(uri, tracking_uri=settings["tracking_uri"])
    quiet = settings["quiet"]
    with Fleet(
        jobs=settings["jobs"],
        ledger=settings["ledger"],
        signable=True,
        progress=None if quiet else lambda done, total, left: console.progress(done, total, left, fleet.activity),
    ) as fleet:
        advice = search(
            policy,
            subject,
            fleet=fleet,
            limits=Budget(shadow_models=options.count_shadow_models(policy), file_withheld=settings["file_withheld"]),
            seconds=seconds,
            tell=(lambda _: None) if quiet else console.note,
        )
    if as_json:
        click.echo(json.dumps(advice.payload(), indent=1))
    else:
        click.echo("\n".join(console.plain(line) for line in advice.lines))
    return 0 if advice.approved else 1
