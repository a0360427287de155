"""``privgate dp audit``: a lower bound on the ε of a training function, from attacks on real trainings."""

import json
from typing import Any

import click

from privgate.cli import outputs, shared
from privgate.documents import DocumentError, strict_json
from privgate.errors import UsageError

ADJACENCY = click.Choice(["add_remove", "replace_one"])


@click.command()
@click.argument("training")
@click.option("--data", "data", required=True, metavar="PKG.MODULE:FUNCTION", help="Returns the TrainingData.")
@click.option("--params", default="{}", help="JSON: keyword arguments of the training function.")
@click.option("--epsilon", type=float, default=None, help="The claim that is audited.")
@click.option("--delta", type=float, required=True)
@click.option("--adjacency", type=ADJACENCY, required=True, help="What neighbors of the claim differ in.")
@click.option(
    "--runs", type=click.IntRange(min=2), default=80, show_default=True, help="Counted trainings of each kind."
)
@click.option(
    "--tuning", type=click.IntRange(min=2), default=20, show_default=True, help="Trainings that fix the test."
)
@click.option(
    "--canaries", type=click.IntRange(min=0), default=200, show_default=True, help="For the single run; 0: none."
)
@click.option("--confidence", type=float, default=0.999, show_default=True)
@shared.jobs
@click.option("--ledger", default="none", show_default=True, help="Where trainings are remembered.")
@shared.as_json
def audit(*, training: str, data: str, **o: Any) -> int:
    """Prove a lower bound on the epsilon of TRAINING, a function pkg.module:fit(X, y, *, seed, ...).

    Exit code 1 if the bound is above --epsilon: the claim is broken. A small bound shows nothing.
    """
    from privgate.privacy_claims import audit as audits
    from privgate.run.run import Run
    from privgate.subject.claim import Claim
    from privgate.subject.data import TrainingData
    from privgate.subject.recipe import Recipe
    from privgate.subject.subject import Subject
    from privgate.training.fleet import Fleet

    claim = Claim("stated", adjacency=o["adjacency"], epsilon=o["epsilon"] or 0.0, delta=o["delta"])
    recipe = Recipe(_imported(training), params=_params(o["params"]), dp=claim)
    effort = audits.AuditEffort(o["tuning"], o["runs"], o["canaries"])
    outputs.ledger(o["ledger"])
    with Fleet(jobs=o["jobs"], ledger=o["ledger"]) as fleet:
        run = Run(Subject.local(recipe, TrainingData.from_loader(data)), fleet)
        found = audits.audited(run, claim, delta=o["delta"], confidence=o["confidence"], effort=effort)
    broken = o["epsilon"] is not None and found.epsilon > o["epsilon"]
    answer = {
        "epsilon_at_least": found.epsilon,
        "confidence": found.confidence,
        "broken": broken,
        **found.runs.payload(),
    }
    if o["as_json"]:
        click.echo(json.dumps(answer, indent=1))
        return int(broken)
    many, single = found.runs.many_runs, found.runs.one_run
    click.secho(
        f"epsilon is at least {found.epsilon:.4g} at delta {o['delta']:g} (confidence {o['confidence']:g})", bold=True
    )
    click.echo(
        f"  many runs  {many.counted} counted trainings: {many.misses} misses, {many.false_alarms} false "
        f"alarms: {many.epsilon:.4g}"
    )
    if single is not None:
        click.echo(f"  one run    {single.right} of {single.guesses} guesses right: {single.epsilon:.4g}")
    if broken:
        click.secho(f"  the claim of {o['epsilon']:g} is contradicted", fg="red")
    elif o["epsilon"] is not None:
        click.echo(f"  the claim of {o['epsilon']:g} is not contradicted; no audit can show that it holds")
    return int(broken)


def _imported(reference: str) -> Any:
    from importlib import import_module

    module, _, name = reference.partition(":")
    try:
        return getattr(import_module(module), name)
    except (ImportError, AttributeError, ValueError) as exc:
        raise UsageError(f"{reference!r} cannot be imported: {exc}; name it as 'pkg.module:function'") from exc


def _params(text: str) -> dict[str, Any]:
    try:
        found = strict_json.loads(text)
    except DocumentError as exc:
        raise UsageError(f"--params {exc}") from exc
    if not isinstance(found, dict):
        raise UsageError("--params must be a JSON object, for example '{\"epochs\": 3}'")
    return found
