"""``privgate demo``: five models on real data in a real registry, judged; those that pass are promoted."""

import json
import math
import os
import sys
import time
import webbrowser
from pathlib import Path
from typing import Any

import click

from privgate.cli import console, options, outputs
from privgate.errors import ExitCode
from privgate.verdict import Verdict

#: what page one says of the demonstration
STATED = {
    "data_name": "UCI Adult, a sample",
    "data_source": "Becker and Kohavi (1996), UCI Machine Learning Repository, CC BY 4.0",
    "purpose": "demonstration: predict whether income exceeds 50,000 dollars",
}


def announce(text: str) -> None:
    """Print what is said before work starts."""
    click.echo(f"  {console.plain(text)}")


def influence(nats: Any) -> str:
    """Return what a unit's largest influence means."""
    value = float(nats)
    if math.isinf(value):
        return "without it some answer turns from possible to impossible, or back"
    return f"without it some answer's probability changes {math.exp(value):.2f}-fold ({value:.2f} nats)"


@click.command()
@click.option("--folder", type=click.Path(file_okay=False, path_type=Path), default=Path(".demo"), show_default=True)
@click.option("--open", "opened", is_flag=True, help="Open the approved boosted model's report in a browser.")
def demo(*, folder: Path, opened: bool) -> int:
    """Register five models trained on a sample of UCI Adult in a registry below FOLDER, and judge each by a policy."""
    from privgate.demo.recipes import recipes

    verdicts = demonstrate(folder)
    due = {name: shown.approved for name, shown in recipes().items()}
    wrong = [name for name, verdict in verdicts.items() if verdict.approved is not due[name]]
    if wrong:
        click.secho(f"{', '.join(wrong)}: another decision was due; please report it with the report", fg="red")
        return int(ExitCode.INTERNAL)
    promoted = [name for name, approved in due.items() if approved]
    attacks = {
        a.name for v in verdicts.values() if v.evidence.membership for a in v.evidence.membership.attacks if a.figures
    }
    told = f"as it should be: {len(promoted)} models are @production, {len(due) - len(promoted)} were blocked"
    click.secho(f"{told}, {len(attacks)} attacks were run", fg="green", bold=True)
    if opened:
        click.echo(show(folder.expanduser().resolve() / "reports" / promoted[-1] / "report.html"))
    return int(ExitCode.PASSED)


def show(page: Path) -> str:
    """Open a page in a browser; return what to say about it. No browser is no error."""
    graphical = sys.platform in ("darwin", "win32") or any(os.environ.get(v) for v in ("DISPLAY", "WAYLAND_DISPLAY"))
    try:
        # in a terminal alone, a browser of text would take the terminal over
        done = (graphical or bool(os.environ.get("BROWSER"))) and webbrowser.open(page.as_uri())
    except (webbrowser.Error, OSError):
        done = False
    return f"opened in your browser: {page}" if done else f"no browser could be opened; open {page} yourself"


def demonstrate(folder: Path) -> dict[str, Verdict]:
    """Run the demonstration below ``folder`` and print what a user should look at; return the verdicts."""
    from privgate import registry, report
    from privgate.advice.evaluate import evaluate
    from privgate.demo import adult
    from privgate.demo.recipes import recipes
    from privgate.evaluation.context import with_context
    from privgate.policy import Policy
    from privgate.training import isolation
    from privgate.training.fleet import Fleet

    folder = outputs.folder(folder, "--folder").resolve()
    store = registry.local_registry(folder)
    started = time.perf_counter()
    data = adult.load()
    if why := isolation.missing():
        click.echo(f"training code runs without a box: {why}")
    click.echo(f"UCI Adult, {data.n} training records, {len(data.candidates[1])} candidates; registry {store}\n")
    verdicts: dict[str, Verdict] = {}
    for name, shown in recipes().items():
        click.secho(f"{name}: {shown.what}", bold=True)
        policy = Policy.load(shown.policy)
        info = registry.log_model(
            shown.recipe, data, registered_model_name=name, tracking_uri=store, store=folder / "data"
        )
        uri = f"models:/{name}/{info.registered_model_version}"
        subject = registry.load_subject(uri, tracking_uri=store)
        fleet = Fleet(ledger=folder / "ledger")
        verdict = evaluate(policy, subject, fleet=fleet, limits=shown.limits, announce=announce)
        verdict = with_context(verdict, subject, fleet, STATED)
        place = folder / "reports" / name
        report.write(verdict, place, hash_key=options.hash_key(str(folder / "hash.key")))
        document = json.loads((place / "report.json").read_text(encoding="utf-8"))
        console.print_document(document, place / "report.html")
        for unit in (document["units"] or {"worst": []})["worst"][:3]:
            click.echo(f"  among the riskiest: record {unit['unit']}, {influence(unit['dtp_lower'])}")
        registry.attach(subject, place, verdict, tracking_uri=store)
        if verdict.approved:
            registry.promote(subject, "production", tracking_uri=store)
            click.echo(f"  {uri} is now @production")
        else:
            click.echo(f"  {uri} was not promoted (exit code {int(verdict.exit_code)})")
        click.echo("")
        verdicts[name] = verdict
    click.echo(f"done in {time.perf_counter() - started:.0f} s; reports: {folder / 'reports'}/*/report.html")
    click.echo(
        f"MLflow UI: mlflow ui --backend-store-uri {store}   (model version -> source model -> artifacts -> privgate)"
    )
    return verdicts
