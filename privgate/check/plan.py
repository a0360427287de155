"""The cost of a check before it starts: which engine answers, how many trainings, how long, how much memory."""

from collections.abc import Iterable

import numpy as np

from privgate import families
from privgate.errors import MeasurementError
from privgate.evidence import TrainingPlan
from privgate.families import screen
from privgate.families.engine import Cost, Engine
from privgate.families.retrained import Index
from privgate.influence import leave_one_out, modes
from privgate.run.run import Bench
from privgate.training import plan

#: metrics answered by leaving units out, and by training on subsets
LEAVE_ONE_OUT = ("dtp", "pdtp", "table")
SHADOWS = ("attack_accuracy", "attack_advantage", "attack_tpr")

#: metrics that follow from watching reruns of a recipe that claims differential privacy
GUARANTEES = ("dp_epsilon", "dp_attack_accuracy_bound", "deletion_capacity")


def first_engine(bench: Bench) -> Engine:
    """Return the first engine that answers for the subject; it may hand single units on."""
    return families.first(bench.subject)[0]


def cost_of(bench: Bench, units: Index) -> Cost:
    """Return what the first engine that answers for the subject takes for some units, in the mode of this run."""
    return first_engine(bench).cost(bench.subject, units, bench.seeds, mode=bench.once(modes.used))


def make(bench: Bench, metrics: Iterable[str]) -> tuple[TrainingPlan, list[str]]:
    """Return the plan as numbers and as sentences; a few trainings are timed, and remembered.

    Parameters
    ----------
    bench : Bench
        Its seeds and units are chosen already, or the recipe's own seed is assumed.
    metrics : iterable of str
        What the policy's rules ask for.
    """
    wanted = set(metrics)
    said: list[str] = []
    found = _leave_one_out(bench, said) if wanted & set(LEAVE_ONE_OUT) else TrainingPlan(retrains=0)
    shadows = 0
    if wanted & set(SHADOWS):
        shadows = bench.limits.shadow_models
        said.append(f"attacks: up to {bench.limits.shadow_models} shadow models on random halves of the pool")
    watched = _differential_privacy(bench, wanted, said)
    return found.model_copy(update={"retrains": found.retrains + shadows + watched, "shadows": shadows}), said


def _differential_privacy(bench: Bench, wanted: set[str], said: list[str]) -> int:
    """Return how many trainings the rules on differential privacy need."""
    from privgate.privacy_claims.measure_audit import Effort
    from privgate.privacy_claims.observe import RERUNS, is_remembered

    if bench.subject.recipe.payload["dp"] is None:
        return 0
    count = 0
    if wanted & set(GUARANTEES):
        known = is_remembered(bench.subject, bench.fleet)
        count += 0 if known else RERUNS
        said.append(f"differential privacy: {RERUNS} reruns {'were watched before' if known else 'are watched'}")
    if "dp_epsilon_lower_bound" in wanted:
        trainings = Effort().trainings
        count += trainings
        said.append(f"audit of the guarantee: {trainings} trainings")
    return count


def _leave_one_out(bench: Bench, said: list[str]) -> TrainingPlan:
    """Return the trainings that leave units out or rank them, and say so."""
    engine, n = first_engine(bench), bench.n_units
    sample = bench.once(leave_one_out.chosen_units)
    cost = cost_of(bench, sample)
    if bench.limits.mode == "max":
        said.append(modes.note(bench))
    if bench.limits.precision == "mixed" and "mixed" in engine.precisions:
        said.append(modes.HALF)
    said += [f"{name} does not answer here: {why}" for name, why in families.first(bench.subject)[1].items()]
    pairs = "" if len(bench.seeds) == 1 else f", {len(bench.seeds)} paired seeds each"
    more = leave_one_out.worth_more_seeds(bench)
    if more:
        pairs += f", {len(bench.more_seeds)} where these do not block"
    said.append(f"leave-one-out: {len(sample)} of {n} units by {engine.name}{pairs}")
    if cost.fits == 0:
        memory = f", about {cost.memory_bytes / 2**20:.0f} MiB" if cost.memory_bytes else ""
        said.append(
            f"no retraining but the re-check of about 65 units; about {max(cost.cpu_seconds, 0.1):.1f} s{memory}"
        )
        return TrainingPlan(retrains=0, seconds=cost.cpu_seconds)
    ranking = 0
    if bench.once(modes.used) == "screen":
        sample = sample[: screen.retrained(len(sample))]
        ranking = screen.MODELS
        said.append(f"ranking: {screen.MODELS} shadow models; then the {len(sample)} people at the top are retrained")
    left_out = len(sample) * len(bench.seeds)
    planned = TrainingPlan(retrains=left_out + ranking, leave_one_out=left_out, ranking=ranking)
    try:
        fits = plan.leave_out_fits(bench.subject, np.asarray(sample), bench.seeds)
        estimate = plan.estimate(bench.subject, fits, bench.fleet)
    except MeasurementError as exc:
        said.append(f"the cost is unknown: {exc}")
        return planned
    # a shadow model is trained on half of the data: it takes one training at most
    seconds = estimate.wall_seconds + ranking * estimate.seconds_each / estimate.workers
    said.append(estimate.sentence)
    if more:
        least = plan.span(len(sample) * len(bench.more_seeds) * estimate.seconds_each / estimate.workers)
        said.append(
            f"where the first {len(bench.seeds)} seeds do not block: {len(sample) * len(bench.more_seeds)} retrains in "
            f"all, about {least} on {estimate.workers} workers"
        )
    elif bench.more_seeds and "pdtp" in bench.asked:
        said.append(
            f"{len(bench.more_seeds)} seeds, which an approval needs, are not within the budget: it can block, and end "
            f"inconclusive at best; give --seeds {len(bench.more_seeds)} to measure fewer people on all of them"
        )
    return planned.model_copy(update={"seconds": seconds})
