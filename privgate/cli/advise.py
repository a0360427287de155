"""``privgate advise`` and ``privgate apply``: the cheapest change that is approved, made the next version."""

import json
from pathlib import Path
from typing import Any

import click

from privgate.cli import console, options, shared
from privgate.errors import UsageError
from privgate.training.isolation import WAYS

_FOLDER = click.Path(file_okay=False, path_type=Path)
_out = click.option(
    "--out", type=_FOLDER, default=Path("privgate-advice"), show_default=True, help="Folder of advice.json and .html."
)


@click.command()
@options.subject
@options.policy
@click.option("--measure", default="", help="Of usefulness: accuracy (usual), log_loss, auc; rmse of numbers.")
@click.option("--budget", default="30m", show_default=True, metavar="30m", help="Wall time of the search.")
@_out
@shared.jobs
@shared.ledger
@click.option("--shadow-models", type=click.IntRange(min=4), default=64, show_default=True)
@click.option("--isolation", type=click.Choice(WAYS), default="auto", show_default=True)
@click.option("--file-not-downloadable", "file_withheld", is_flag=True, help="As check was told it.")
@shared.quiet
@shared.as_json
def advise(*, uri: str, policy_name: str, out: Path, as_json: bool, **settings: Any) -> int:
    """Search for the cheapest change to the model URI that keeps the policy.

    It turns parameters, puts the learner into shards, coarsens answers, and leaves out the riskiest people last. The
    gate's rules measure each change, with cross-validated usefulness beside it. The best are checked again as a whole
    with other randomness. Exit 0 if one is approved there, or the model as it stands keeps the policy; else 1.
    What was trained is remembered: an interrupted search goes on.
    """
    from privgate import registry
    from privgate.advice import advice_page
    from privgate.advice.advice_search import Search
    from privgate.advice.apply import command
    from privgate.policy import Policy
    from privgate.run.run import Budget
    from privgate.training.fleet import Fleet

    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as exc:
        raise UsageError(f"--out {out} cannot be written: {exc.strerror}") from exc
    policy = Policy.load(policy_name)
    seconds = options.duration(settings["budget"])
    subject = registry.load_subject(uri, tracking_uri=settings["tracking_uri"])
    quiet = settings["quiet"]
    with Fleet(
        jobs=settings["jobs"],
        ledger=settings["ledger"],
        isolate=settings["isolation"],
        progress=None if quiet else lambda done, total, left: console.progress(done, total, left, fleet.activity),
    ) as fleet:
        found = Search(
            policy,
            subject,
            fleet,
            Budget(shadow_models=settings["shadow_models"], file_withheld=settings["file_withheld"]),
            measure=settings["measure"],
            seconds=seconds,
            tell=(lambda _: None) if quiet else console.note,
        ).advice()
    found.write(out / "advice.json")
    (out / "advice.html").write_text(advice_page.page(found), encoding="utf-8")
    click.echo(json.dumps(found.payload(), indent=1) if as_json else advice_page.text(found))
    if not as_json:
        click.echo("\n".join(console.plain(line) for line in advice_page.drawn(found)))
        click.secho(console.plain(advice_page.summary(found)), bold=True)
        for p in found.best[:3]:
            click.echo(console.plain(f"  {p.change.says}:"))  # apart: what others wrote is no part of a command
            click.echo(f"  {command(subject, p, str(out), settings['tracking_uri'])}")
        click.echo(f"  wrote {out / 'advice.json'} and advice.html")
    return 0 if found.points[0].passes or found.best else 1


@click.command()
@click.argument("number", type=click.IntRange(min=1))
@_out
@click.option("--name", default=None, help="Registered model that gets the version; the one judged if absent.")
@click.option("--store", default=None, metavar="FOLDER|URI", help="Where the training data are kept, as in log_model.")
@click.option("--to", "alias", default="production", show_default=True, metavar="ALIAS", help="Alias to ask for.")
@click.option("--check", "checks", is_flag=True, help="Go on: check the version, have it signed, and set the alias.")
@shared.tracking_uri
@click.argument("options", nargs=-1)
def apply(*, number: int, out: Path, alias: str, checks: bool, options: tuple[str, ...], **settings: Any) -> int:
    """Register change NUMBER of the last advice as a new version, and print the one command that releases it.

    That command checks the version like any other, has it signed and sets the alias; with --check it is run at once.
    OPTIONS after -- are its own, such as --config guard.yaml --sign-command CMD for a guarded registry.
    """
    from privgate.advice.advice_page import Advice
    from privgate.advice.apply import apply as made
    from privgate.advice.apply import changed_policy, typed
    from privgate.cli import cli

    advice = Advice.read(out / "advice.json")
    registered, info = made(advice, number, **settings)
    uri = f"models:/{registered}/{info.registered_model_version}"
    click.echo(console.plain(f"registered {uri}: {advice.points[number].change.says}"))
    if not advice.points[number].stands:
        click.echo("  no whole check has approved it: it was chosen by you")
    if why := changed_policy(advice):
        click.echo(console.plain(f"  {why}"))
    if not any(option.partition("=")[0] == "--sign-command" for option in options):
        click.echo("  a guarded registry wants --config guard.yaml and --sign-command CMD beside what comes next:")
    release = ["promote", uri, "--to", alias, "--policy", advice.policy, *options]
    click.echo(f"  {typed(['privgate', *release], settings['tracking_uri'])}")
    if not checks:
        return 0
    where = ["--tracking-uri", settings["tracking_uri"]] if settings["tracking_uri"] else []
    code: int = cli.main(args=[*release, *where], prog_name="privgate", standalone_mode=False)
    return code
