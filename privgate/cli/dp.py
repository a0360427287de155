"""``privgate dp``: what a guarantee bounds, and what achieves a goal; no registry needed."""

import json
from collections.abc import Mapping
from typing import Any

import click

from privgate.cli import shared
from privgate.errors import UsageError

ADJACENCY = click.Choice(["add_remove", "replace_one"])


#: the mechanism of a goal where no option says it
SOLVED: Mapping[str, Any] = {"sample_rate": 0.01, "steps": 1000, "sampling": "poisson", "delta": 1e-5}


@click.group()
def dp() -> None:
    """Differential privacy: bounds on every attack, goals and deletions."""


@dp.command()
@click.option("--epsilon", type=float, help="The guarantee, nats.")
@click.option("--delta", type=float, help="0 for a pure guarantee; 1e-5 for a goal if absent.")
@click.option("--prior", type=float, multiple=True, help="Of membership; .5 for attacks, several for deletions.")
@click.option("--fpr", type=float, multiple=True, help="False-positive rate for TPR and positive accuracy; repeatable.")
@click.option("--deletions", is_flag=True, help="Print how many deletion requests the guarantee covers instead.")
@click.option("--max-accuracy", type=float, help="Goal: largest accuracy of any attack.")
@click.option("--sample-rate", type=float, help="Of a goal: share of the records in a step; .01 if absent.")
@click.option("--steps", type=int, help="Of a goal: number of noised steps; 1000 if absent.")
@click.option(
    "--sampling",
    type=click.Choice(["poisson", "shuffled", "unknown"]),
    help="Of a goal: how batches are drawn; poisson if absent.",
)
@click.option("--adjacency", type=ADJACENCY, default="add_remove", show_default=True, help="What neighbors differ in.")
@shared.as_json
def bounds(**o: Any) -> int:
    """Print every bound that a guarantee puts on attacks, each with its hypotheses in words.

    With --deletions, how many deletion requests it covers before the model must be trained again. With the goal
    --max-accuracy, the largest epsilon and the least noise that achieve it.
    """
    goal = o["max_accuracy"] is not None
    if goal and (o["deletions"] or o["epsilon"] is not None):
        raise UsageError("pass one guarantee, or the goal --max-accuracy")
    if idle := next((n for n in SOLVED if not goal and n != "delta" and o[n] is not None), ""):
        raise UsageError(f"--{idle.replace('_', '-')} is of a goal; it says nothing about a stated guarantee")
    if o["fpr"] and (goal or o["deletions"]):
        raise UsageError("--fpr says nothing about a goal or deletions here; leave it out")
    o |= {name: value for name, value in SOLVED.items() if goal and o[name] is None}
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
        rows = value if isinstance(value, list) else [value]
        for row in rows:
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
    from privgate.claims.accounting import Mechanism, find_noise_multiplier

    most, prior, delta = o["max_accuracy"], o["prior"], o["delta"]
    epsilon = bounds.epsilon_for_accuracy(most, prior, delta=delta)
    words = f"no attack right in more than {most:g} of cases at prior {prior:g}"
    drawn = {k: o[k] for k in ("sample_rate", "steps", "sampling", "adjacency")}
    noise = find_noise_multiplier(epsilon, delta, Mechanism(1.0, **drawn)) if delta > 0 else None
    answer = {"goal": words, "epsilon": epsilon, "delta": delta, "noise_multiplier": noise, **drawn}
    if noise is None:
        answer["note"] = "a pure guarantee needs other noise than Gaussian: Laplace of 1/epsilon times the sensitivity"
    _tell(words, answer, o)
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
