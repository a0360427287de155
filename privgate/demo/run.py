"""Register three models on real data in a real registry, judge each by DTP-1, promote the one that passes."""

import json
import os
import time
from pathlib import Path

import click

from privgate import report
from privgate.cli import console, options
from privgate.demo import adult
from privgate.policy import Policy
from privgate.recipe import Recipe
from privgate.retrain.fleet import Fleet
from privgate.verdict import Verdict


def recipes() -> dict[str, tuple[str, Recipe]]:
    """Return name -> (what it shows, recipe)."""
    from sklearn.naive_bayes import CategoricalNB
    from sklearn.tree import DecisionTreeClassifier

    sizes = list(adult.SIZES)
    return {
        "income-smoothed": (
            "naive Bayes, smoothing 5: expected to pass",
            Recipe(CategoricalNB(alpha=5.0, min_categories=sizes), seed=7),
        ),
        "income-laplace": (
            "the same with Laplace smoothing (1): one rare value tells too much",
            Recipe(CategoricalNB(alpha=1.0, min_categories=sizes), seed=7),
        ),
        "income-tree": ("a fully grown decision tree: it remembers people", Recipe(DecisionTreeClassifier(), seed=7)),
    }


def demonstrate(folder: Path) -> dict[str, Verdict]:
    """Run the demonstration below ``folder`` and print what a user should look at; return the verdicts."""
    from privgate import gate, registry

    folder = folder.resolve()
    store = registry.local_registry(folder)
    os.environ.setdefault("MLFLOW_DISABLE_AUTO_LOGGING", "true")
    started = time.perf_counter()
    data, policy = adult.load(), Policy.load("dtp-1")
    click.echo(f"UCI Adult, {data.n} training records, {len(data.candidates[1])} candidates; registry {store}\n")
    verdicts: dict[str, Verdict] = {}
    for name, (what, recipe) in recipes().items():
        click.secho(f"{name}: {what}", bold=True)
        info = registry.log_model(recipe, data, registered_model_name=name, tracking_uri=store)
        uri = f"models:/{name}/{info.registered_model_version}"
        subject = registry.load_subject(uri, tracking_uri=store)
        verdict = gate.evaluate(policy, subject, fleet=Fleet(ledger=folder / "ledger", progress=console.progress))
        place = folder / "reports" / name
        report.write(verdict, place, hash_key=options.hash_key(str(folder / "hash.key")))
        document = json.loads((place / "report.json").read_text(encoding="utf-8"))
        console.print_document(document, place / "report.html")
        for unit in (document["units"] or {"worst": []})["worst"][:3]:
            click.echo(f"  riskiest: {unit['unit']}  influence on any answer at least {unit['dtp_lower']} nats")
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
