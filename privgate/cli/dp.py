"""``privgate dp``: what a guarantee bounds, what achieves a goal, what an audit proves; no registry needed."""

import json
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any

import click

from privgate.cli import shared
from privgate.documents import DocumentError, strict_json
from privgate.errors import UsageError

if TYPE_CHECKING:
    from privgate.evidence import GuaranteeBound

ADJACENCY = click.Choice(["add_remove", "replace_one"])
CONFIDENCE = 0.999  # of an audit's bound


@click.group()
def dp() -> None:
    """Differential privacy: bounds on every attack, goals, deletions and audits."""


@dp.command()
@click.option("--epsilon", type=float, help="The guarantee, nats.")
@click.option("--delta", type=float, help="0 for a pure guarantee; 1e-5 for a goal if absent.")
@click.option("--prior", type=float, multiple=True, help="Of membership; .5 for attacks, several for deletions.")
@click.option("--fpr", type=float, multiple=True, help="False-positive rate for TPR and positive accuracy; repeatable.")
@click.option("--deletions", is_flag=True, help="Print how many deletion requests the guarantee covers instead.")
@click.option("--max-accuracy", type=float, help="Goal: largest accuracy of any attack.")
@click.option("--adjacency", type=ADJACENCY, default="add_remove", show_default=True, help="What neighbors differ in.")
@shared.as_json
def bounds(**o: Any) -> int:
    """Print every bound that a guarantee puts on attacks, each with its hypotheses in words.

    With --deletions, how many deletion requests it covers before the model must be trained again. With the goal
    --max-accuracy, the largest epsilon that achieves it.
    """
    goal = o["max_accuracy"] is not None
    if goal and (o["deletions"] or o["epsilon"] is not None):
        raise UsageError("pass one guarantee, or the goal --max-accuracy")
    if o["fpr"] and (goal or o["deletions"]):
        raise UsageError("--fpr says nothing about a goal or deletions here; leave it out")
    o["delta"] = 1e-5 if goal and o["delta"] is None else o["delta"]
    if o["delta"] is None or not (goal or o["epsilon"] is not None):
        raise UsageError("pass --epsilon and --delta, which is 0 for a pure guarantee")
    if o["deletions"]:
        return _print_deletions(o)
    if len(o["prior"]) > 1:
        raise UsageError(f"--prior is asked for once here, not {len(o['prior'])} times")
    o["prior"] = next(iter(o["prior"]), 0.5)
    return _print_goal(o) if goal else _print_bounds(o)


def _print_bounds(o: dict[str, Any]) -> int:
    from privgate.claims.bounds import list_bounds

    epsilon = o["epsilon"]
    inclusion = "independent" if o["adjacency"] == "add_remove" else "fixed_size"
    given = {"adjacency": o["adjacency"], "inclusion": inclusion, "fprs": o["fpr"]}
    rows = list_bounds(epsilon, o["delta"], o["prior"], **given)
    if o["as_json"]:
        table = [row.payload() for row in rows]
        click.echo(json.dumps({"epsilon": epsilon, "delta": o["delta"], "bounds": table}, indent=1))
        return 0
    click.secho(f"epsilon {epsilon:.4g}, delta {o['delta']:g}", bold=True)
    _print_table(rows)
    if o["delta"] > 0:
        click.echo(
            "no bound on positive accuracy holds without a false-positive rate when delta is above 0: rare tests\n"
            "may be certain; pass --fpr"
        )
    return 0


def _print_table(rows: Sequence["GuaranteeBound"]) -> None:
    """Print name, prior and bound in columns, hypotheses of all rows once, and those of some rows as notes."""
    common = [w for w in rows[0].assumptions if all(w in r.assumptions for r in rows)]
    notes = list(dict.fromkeys(w for r in rows for w in r.assumptions if w not in common))
    width = max(len(r.name) for r in rows)
    click.echo(f"  {'bound':<{width}}  {'prior':>6}  {'at most':>8}  note")
    for row in rows:
        marks = " ".join(f"[{notes.index(w) + 1}]" for w in row.assumptions if w not in common)
        prior = "any" if row.prior is None else f"{row.prior:g}"
        click.echo(f"  {row.name:<{width}}  {prior:>6}  {row.bound:>8.4f}  {marks}".rstrip())
    click.echo("These hold")
    for word in common:
        click.echo(f"  - {'for' if word.startswith('any') else 'if'} {word}")
    for k, word in enumerate(notes, start=1):
        click.echo(f"  [{k}] {word}")


def _print_goal(o: dict[str, Any]) -> int:
    from privgate.claims import bounds

    most, prior, delta = o["max_accuracy"], o["prior"], o["delta"]
    epsilon = bounds.epsilon_for_accuracy(most, prior, delta=delta)
    words = f"no attack right in more than {most:g} of cases at prior {prior:g}"
    if o["as_json"]:
        click.echo(json.dumps({"goal": words, "epsilon": epsilon, "delta": delta}, indent=1))
        return 0
    click.secho(words, bold=True)
    click.echo(f"  epsilon  {epsilon:.4f} at delta {delta:g}, {o['adjacency']}")
    noise = "Gaussian: Opacus' make_private_with_epsilon(target_epsilon=…) finds its deviation"
    if delta == 0:
        scale = "infinite" if epsilon == 0 else f"{1 / epsilon:.4g}"
        noise = f"not Gaussian: Laplace, for example, of scale {scale} times the sensitivity for one release"
    click.echo(f"  noise    {noise}")
    return 0


def _print_deletions(o: dict[str, Any]) -> int:
    from privgate.claims.capacity import RHOS, deletion_capacity, group_capacity

    if o["adjacency"] != "add_remove":
        raise UsageError("--deletions counts people who are removed; it needs --adjacency add_remove")
    epsilon, delta, priors = o["epsilon"], o["delta"], o["prior"] or (0.0001, 0.001, 0.01, 0.1)
    most_delta = 1e-5 if delta else 0.0
    people_covered = {(r, p): deletion_capacity(epsilon, p, r, delta=delta).people for r in RHOS for p in priors}
    close = {e: group_capacity(epsilon, delta, most_epsilon=e, most_delta=most_delta).people for e in (1, 4)}
    if o["as_json"]:
        rows = [{"rho": r, "prior": p, "capacity": people} for (r, p), people in people_covered.items()]
        answer = {"epsilon": epsilon, "delta": delta, "capacity": rows}
        click.echo(json.dumps({**answer, "without_prior": {f"epsilon {e}": m for e, m in close.items()}}, indent=1))
        return 0
    click.secho(f"deletion requests covered, epsilon {epsilon:g} at delta {delta:g}, add/remove", bold=True)
    within = " at delta 1e-05" if delta else ""
    for e, people in close.items():
        click.echo(f"  {people:,} stay within epsilon {e}{within} of a model that never saw them, whoever was drawn")
    click.echo("or, where the training set is drawn from a pool, as likely as rho never used (Thudi et al.):")
    click.echo(f"  {'rho':<7}" + "".join(f"{f'p = {p:g}':>12}" for p in priors))
    for r in RHOS:
        click.echo(f"  {r:<7g}" + "".join(f"{people_covered[r, p]:>12,}" for p in priors))
    click.echo("p is the largest probability with which a person of the pool was used; requests must depend neither on")
    click.echo("membership nor on the model; inclusion is independent and the training size not published")
    if delta:
        click.echo("except for models of total probability 0.001: with delta above 0 no statement holds for all")
    return 0


@dp.command()
@click.argument("training")
@click.option("--data", required=True, metavar="PKG.MODULE:FUNCTION", help="Returns the TrainingData.")
@click.option("--params", default="{}", help="JSON: keyword arguments of the training function.")
@click.option("--epsilon", type=float, help="The claim that is audited.")
@click.option("--delta", type=float, required=True)
@click.option("--adjacency", type=ADJACENCY, required=True, help="What neighbors of the claim differ in.")
@click.option("--runs", type=click.IntRange(8), default=80, show_default=True, help="Counted trainings of each kind.")
@click.option("--canaries", type=click.IntRange(0), default=200, show_default=True, help="For the single run; 0: none.")
@shared.jobs
@shared.as_json
def audit(*, training: str, data: str, **o: Any) -> int:
    """Prove a lower bound on the epsilon of TRAINING, a function pkg.module:fit(X, y, *, seed, ...).

    Exit code 1 if the bound is above --epsilon: the claim is broken. A small bound shows nothing.
    """
    from privgate.claims import audit as audits
    from privgate.cli.adopt import import_named
    from privgate.run.run import Run
    from privgate.subject.claim import Claim
    from privgate.subject.data import TrainingData
    from privgate.subject.recipe import Recipe
    from privgate.subject.subject import Subject
    from privgate.training.fleet import Fleet

    claim = Claim("stated", adjacency=o["adjacency"], epsilon=o["epsilon"] or 0.0, delta=o["delta"])
    recipe = Recipe(import_named(training, "TRAINING"), params=_params(o["params"]), dp=claim)
    effort = audits.AuditEffort(o["runs"] // 4, o["runs"], o["canaries"])
    with Fleet(jobs=o["jobs"], ledger="none") as fleet:
        run = Run(Subject.local(recipe, TrainingData.from_loader(data)), fleet)
        audited = audits.audit_claim(run, claim, delta=o["delta"], confidence=CONFIDENCE, effort=effort)
    broken = o["epsilon"] is not None and audited.epsilon > o["epsilon"]
    if o["as_json"]:
        answer = {"epsilon_at_least": audited.epsilon, "confidence": CONFIDENCE, "broken": broken}
        click.echo(json.dumps({**answer, **audited.payload()}, indent=1))
        return int(broken)
    many, single = audited.many_runs, audited.one_run
    said = f"epsilon is at least {audited.epsilon:.4g} at delta {o['delta']:g} (confidence {CONFIDENCE:g})"
    click.secho(said, bold=True)
    counted = f"{many.counted} counted trainings: {many.misses} misses, {many.false_alarms} false alarms"
    click.echo(f"  many runs  {counted}: {many.epsilon:.4g}")
    if single is not None:
        click.echo(f"  one run    {single.right} of {single.guesses} guesses right: {single.epsilon:.4g}")
    if broken:
        click.secho(f"  the claim of {o['epsilon']:g} is contradicted", fg="red")
    elif o["epsilon"] is not None:
        click.echo(f"  the claim of {o['epsilon']:g} is not contradicted; no audit can show that it holds")
    return int(broken)


def _params(text: str) -> dict[str, Any]:
    try:
        given = strict_json.loads(text)
    except DocumentError as exc:
        raise UsageError(f"--params {exc}") from exc
    if not isinstance(given, dict):
        raise UsageError("--params must be a JSON object, for example '{\"epochs\": 3}'")
    return given
