"""``privgate dp``: what a guarantee bounds, what achieves a goal, what an audit proves; no registry needed."""

import json
from collections.abc import Mapping
from typing import Any

import click

from privgate.cli import shared
from privgate.documents import strict_json
from privgate.errors import UsageError

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


def _tell(title: str, answer: Mapping[str, Any], o: Mapping[str, Any]) -> None:
    """Print an answer as JSON, or line by line under its title: a list's items have a line each."""
    if o["as_json"]:
        click.echo(json.dumps(answer, indent=1))
        return
    click.secho(title, bold=True)
    for name, value in answer.items():
        for row in value if isinstance(value, list) else [value]:
            told = ", ".join(f"{k} {_write(v)}" for k, v in row.items()) if isinstance(row, dict) else _write(row)
            click.echo(f"  {name.replace('_', ' ')}: {told}")


def _write(value: Any) -> str:
    return f"{value:.4g}" if isinstance(value, float) else f"{value}"


def _print_bounds(o: dict[str, Any]) -> int:
    from privgate.claims.bounds import list_bounds

    inclusion = "independent" if o["adjacency"] == "add_remove" else "fixed_size"
    given = {"adjacency": o["adjacency"], "inclusion": inclusion, "fprs": o["fpr"]}
    rows = list_bounds(o["epsilon"], o["delta"], o["prior"], **given)
    answer: dict[str, Any] = {"epsilon": o["epsilon"], "delta": o["delta"]}
    if o["as_json"]:
        answer["bounds"] = [row.payload() for row in rows]
    else:
        common = [word for word in rows[0].assumptions if all(word in row.assumptions for row in rows)]
        for row in rows:
            own = "; ".join(["prior any" if row.prior is None else f"prior {row.prior:g}",
                             *(word for word in row.assumptions if word not in common)])  # fmt: skip
            answer[row.name] = f"at most {row.bound:.4f} ({own})"
        answer["if"] = common
    if o["delta"] > 0:
        answer["note"] = "no bound on positive accuracy holds without a false-positive rate: pass --fpr"
    _tell("what the guarantee limits", answer, o)
    return 0


def _print_goal(o: dict[str, Any]) -> int:
    from privgate.claims import bounds

    most, prior, delta = o["max_accuracy"], o["prior"], o["delta"]
    epsilon = bounds.epsilon_for_accuracy(most, prior, delta=delta)
    words = f"no attack right in more than {most:g} of cases at prior {prior:g}"
    noise = "Gaussian noise: Opacus' make_private_with_epsilon(target_epsilon=…) finds its deviation"
    if delta == 0:
        noise = "other noise than Gaussian: Laplace of 1/epsilon times the sensitivity, for example"
    _tell(words, {"goal": words, "epsilon": epsilon, "delta": delta, "adjacency": o["adjacency"], "note": noise}, o)
    return 0


def _print_deletions(o: dict[str, Any]) -> int:
    from privgate.claims.capacity import RHOS, deletion_capacity, group_capacity

    if o["adjacency"] != "add_remove":
        raise UsageError("--deletions counts people who are removed; it needs --adjacency add_remove")
    epsilon, delta, priors = o["epsilon"], o["delta"], o["prior"] or (0.0001, 0.001, 0.01, 0.1)
    most_delta = 1e-5 if delta else 0.0
    close = {e: group_capacity(epsilon, delta, most_epsilon=e, most_delta=most_delta).people for e in (1, 4)}
    people = [(rho, p, deletion_capacity(epsilon, p, rho, delta=delta).people) for rho in RHOS for p in priors]
    answer = {"epsilon": epsilon, "delta": delta, "without_prior": {f"epsilon {e}": n for e, n in close.items()}}
    answer["capacity"] = [{"rho": rho, "prior": p, "capacity": n} for rho, p, n in people]
    answer["if"] = "requests depend on neither membership nor model; inclusion is independent, at most at the prior"
    if delta:
        answer["note"] = "except for models of total probability 0.001: with delta above 0 no statement holds for all"
    _tell("how many people can go before the model must be trained again", answer, o)
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
    from privgate.cli.check import import_named
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
    answer: dict[str, Any] = {"epsilon_at_least": audited.epsilon, "confidence": CONFIDENCE, "broken": broken}
    if not broken:
        answer["note"] = "no audit can show that a claim holds"
    _tell(f"what attacks prove at delta {o['delta']:g}", {**answer, **audited.payload()}, o)
    return int(broken)


def _params(text: str) -> dict[str, Any]:
    with strict_json.reading("--params", UsageError):
        given = strict_json.loads(text)
    if not isinstance(given, dict):
        raise UsageError("--params must be a JSON object, for example '{\"epochs\": 3}'")
    return given
