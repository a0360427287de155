"""``privgate demo``: three models on real data in a real registry, judged; those that pass are promoted."""

import json
import time
from pathlib import Path
from typing import Any

import click

from privgate.cli import console, options, outputs
from privgate.errors import ExitCode
from privgate.evidence.verdict import Verdict

#: what page one says of the demonstration
STATED = {
    "data_name": "UCI Adult, a sample",
    "data_source": "Becker and Kohavi (1996), UCI Machine Learning Repository, CC BY 4.0",
    "purpose": "demonstration: predict whether income exceeds 50,000 dollars",
}


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(".demo"), show_default=True)
def demo(*, folder: Path) -> int:
    """Register three models trained on a sample of UCI Adult in a registry below FOLDER, and judge each by a policy."""
    from privgate.demo.recipes import recipes

    verdicts = demonstrate(folder)
    due = {name: shown.approved for name, shown in recipes().items()}
    wrong = [name for name, verdict in verdicts.items() if verdict.approved is not due[name]]
    if wrong:
        click.secho(f"{', '.join(wrong)}: another decision was due; please report it with the report", fg="red")
        return int(ExitCode.INTERNAL)
    promoted = [name for name, approved in due.items() if approved]
    parts = [v.evidence.membership for v in verdicts.values() if v.evidence.membership]
    attacks = {a.name for part in parts for a in part.attacks if a.figures}
    ending = f"As it should be: {len(promoted)} models are @production, {len(due) - len(promoted)} is refused"
    click.secho(f"{ending}, {len(attacks)} attacks were run.", fg="green", bold=True)
    return int(ExitCode.PASSED)


def demonstrate(folder: Path) -> dict[str, Verdict]:
    """Run the demonstration below ``folder`` and print what a user should look at; return the verdicts."""
    from privgate.training import isolation

    folder = outputs.folder(folder, "--folder").resolve()
    started = time.perf_counter()
    if why := isolation.missing():
        click.echo(f"Training code runs without a box: {why}.")
    from privgate import registry
    from privgate.demo import adult
    from privgate.demo.recipes import recipes
    from privgate.training.fleet import Fleet

    def progress(done: int, total: int, seconds: float) -> None:
        console.progress(done, total, seconds, fleet.activity)

    store, data = registry.local_registry(folder), adult.load(800)
    click.echo(f"UCI Adult: {data.n} people to train on, {len(data.candidates[1])} others; registry {store}")
    # one fleet, because starting its workers takes longer than all trainings
    with Fleet(ledger=folder / "ledger", progress=progress) as fleet:
        verdicts = {name: _judged(name, shown, data, folder, store, fleet=fleet) for name, shown in recipes().items()}
    click.echo(f"\nDone in {time.perf_counter() - started:.0f} s. MLflow's page: mlflow ui --backend-store-uri {store}")
    return verdicts


def _judged(name: str, shown: Any, data: Any, folder: Path, store: str, *, fleet: Any) -> Verdict:
    """Register one model, check it, print the decision, and promote it if it is approved."""
    from privgate import registry, report
    from privgate.advice.search import evaluate
    from privgate.evaluation.notebook import load_hash_key, with_context
    from privgate.policy import Policy

    click.echo(f"\n{name}: {shown.what}")
    info = registry.log_model(shown.recipe, data, registered_model_name=name, tracking_uri=store, store=folder / "data")
    uri, place = f"models:/{name}/{info.registered_model_version}", folder / "reports" / name
    subject = registry.load_subject(uri, tracking_uri=store)
    fleet.calls = fleet.recalled = 0
    verdict = evaluate(Policy.load(shown.policy), subject, fleet=fleet)
    verdict = with_context(verdict, STATED)
    report.write(verdict, place, hash_key=load_hash_key(str(folder / "hash.key")))
    options.print_decision(json.loads((place / "report.json").read_text(encoding="utf-8")), place / "report.html")
    registry.attach(subject, place, verdict, tracking_uri=store)
    if verdict.approved:
        registry.promote(subject, "production", tracking_uri=store)
        click.echo(f"  {uri} is now @production")
    else:
        click.echo(f"  {uri} was not promoted (exit code {int(verdict.exit_code)})")
    return verdict
