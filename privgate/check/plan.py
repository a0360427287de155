"""The cost of a check before it starts: which engine answers, how many trainings, how long, how much memory."""

import numpy as np

from privgate import families
from privgate.errors import MeasurementError
from privgate.evidence import TrainingPlan
from privgate.families import screen
from privgate.families.engine import Cost, Engine
from privgate.families.retrained import Index
from privgate.influence import leave_one_out, modes
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.training import plan


def first_engine(run: Run) -> Engine:
    """Return the first engine that answers for the subject; it may hand single units on."""
    return families.first(run.subject)[0]


def cost_of(run: Run, units: Index) -> Cost:
    """Return what the first engine that answers for the subject takes for some units, in the mode of this run."""
    return first_engine(run).cost(run.subject, units, run.seeds, mode=run.once(modes.used))


def make(run: Run) -> tuple[TrainingPlan, list[str]]:
    """Return the plan as numbers and as sentences; a few trainings are timed, and remembered.

    Parameters
    ----------
    run : Run
        Its seeds and units are chosen already, or the recipe's own seed is assumed.
    """
    said: list[str] = []
    found = _leave_one_out(run, said) if Need.LEAVE_ONE_OUT in run.asked else TrainingPlan(retrains=0)
    shadows = 0
    if Need.SHADOWS in run.asked:
        shadows = run.limits.shadow_models
        said.append(f"attacks: up to {run.limits.shadow_models} shadow models on random halves of the pool")
    watched = _differential_privacy(run, said)
    return found.model_copy(update={"retrains": found.retrains + shadows + watched, "shadows": shadows}), said


def _differential_privacy(run: Run, said: list[str]) -> int:
    """Return how many trainings the rules on differential privacy need."""
    from privgate.privacy_claims.measure_audit import AuditEffort
    from privgate.privacy_claims.observe import RERUNS, is_remembered

    if run.subject.recipe.payload["dp"] is None:
        return 0
    count = 0
    if Need.RERUNS in run.asked:
        known = is_remembered(run.subject, run.fleet)
        count += 0 if known else RERUNS
        said.append(f"differential privacy: {RERUNS} reruns {'were watched before' if known else 'are watched'}")
    if Need.AUDIT in run.asked:
        trainings = AuditEffort().trainings
        count += trainings
        said.append(f"audit of the guarantee: {trainings} trainings")
    return count


def _leave_one_out(run: Run, said: list[str]) -> TrainingPlan:
    """Return the trainings that leave units out or rank them, and say so."""
    engine, n = first_engine(run), run.n_units
    sample = run.once(leave_one_out.chosen_units)
    cost = cost_of(run, sample)
    if run.limits.mode == "max":
        said.append(modes.note(run))
    if run.limits.precision == "mixed" and "mixed" in engine.precisions:
        said.append(modes.HALF)
    said += [f"{name} does not answer here: {why}" for name, why in families.first(run.subject)[1].items()]
    pairs = "" if len(run.seeds) == 1 else f", {len(run.seeds)} paired seeds each"
    more = leave_one_out.worth_more_seeds(run)
    if more:
        pairs += f", {len(run.more_seeds)} where these do not block"
    said.append(f"leave-one-out: {len(sample)} of {n} units by {engine.name}{pairs}")
    if cost.fits == 0:
        memory = f", about {cost.memory_bytes / 2**20:.0f} MiB" if cost.memory_bytes else ""
        said.append(
            f"no retraining but the re-check of about 65 units; about {max(cost.cpu_seconds, 0.1):.1f} s{memory}"
        )
        return TrainingPlan(retrains=0, seconds=cost.cpu_seconds)
    ranking = 0
    if run.once(modes.used) == "screen":
        sample = sample[: screen.retrained(len(sample))]
        ranking = screen.MODELS
        said.append(f"ranking: {screen.MODELS} shadow models; then the {len(sample)} people at the top are retrained")
    left_out = len(sample) * len(run.seeds)
    planned = TrainingPlan(retrains=left_out + ranking, leave_one_out=left_out, ranking=ranking)
    try:
        fits = plan.leave_out_fits(run.subject, np.asarray(sample), run.seeds)
        estimate = plan.estimate(run.subject, fits, run.fleet)
    except MeasurementError as exc:
        said.append(f"the cost is unknown: {exc}")
        return planned
    # a shadow model is trained on half of the data: it takes one training at most
    seconds = estimate.wall_seconds + ranking * estimate.seconds_each / estimate.workers
    said.append(estimate.sentence)
    if more:
        least = plan.span(len(sample) * len(run.more_seeds) * estimate.seconds_each / estimate.workers)
        said.append(
            f"where the first {len(run.seeds)} seeds do not block: {len(sample) * len(run.more_seeds)} retrains in "
            f"all, about {least} on {estimate.workers} workers"
        )
    elif run.more_seeds and Need.UPPER_LIMIT in run.asked:
        said.append(
            f"{len(run.more_seeds)} seeds, which an approval needs, are not within the budget: it can block, and end "
            f"inconclusive at best; give --seeds {len(run.more_seeds)} to measure fewer people on all of them"
        )
    return planned.model_copy(update={"seconds": seconds})
