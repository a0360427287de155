"""The cost of a check before it starts: which engine answers, how many trainings, how long, how much memory."""

import time
from collections.abc import Callable, Iterable
from dataclasses import dataclass, replace

import numpy as np

from privgate.arrays import Index
from privgate.errors import MeasurementError
from privgate.evidence import TrainingPlan
from privgate.families import answering as families
from privgate.families import bound as bounds
from privgate.families import closed_form, recheck, refit
from privgate.families.engine import Cost, Declined, Engine
from privgate.families.retrained import Retrained
from privgate.influence import aggregate, indirect_queries, met_elsewhere, modes, other_coins
from privgate.influence import left_out as leave_one_out
from privgate.run import beside, changed
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.statistics.roc import APPROVING, LOOKS
from privgate.training import plan

# What an engine and the theorems will take, from their own first steps: a few people, then more, then a straight line.
#
# An a-priori formula was wrong by up to 30,000 in either direction; a few people cost what the whole has in common
# (the data read once, one factorisation) and show what each further person adds, and how many are handed on to refits.

#: people of the first step; each further step has eight times as many, until one takes so long, seconds of CPU
FIRST, FACTOR, LONG = 8, 8, 0.15
#: seconds that a first step may take where each person costs a training
TRAINED = 1.0


@dataclass(frozen=True)
class Probe:
    """What everybody would take.

    Parameters
    ----------
    engine, theorems : float
        Seconds of CPU.
    handed_on : float
        Share of people whom the engine leaves to refits.
    """

    engine: float
    theorems: float
    handed_on: float


def of(run: Run, engine: Engine, units: Index, *, each: float = 0.0) -> Probe:
    """Return what an engine takes for some units, and the theorems with it; ``each`` is what one training takes."""
    cost = engine.cost(run.subject, units, run.seeds, mode=run.once(modes.used))
    theorems = bounds.applicable(run.subject, attacked=Need.SHADOWS in run.asked)[0]
    shuffled = run.generator("planned").permutation(units)
    kept: list[tuple[Retrained, Index]] = []
    # what trains takes as long for each seed; one shows it
    seeds = run.seeds[:1] if engine.trains else run.seeds
    times = len(run.seeds) / len(seeds)

    def answer(some: Index) -> None:
        made, handed_on = engine.answers(replace(leave_one_out.asked(run, some), seeds=seeds))
        rounded = some[:0]
        if engine.complements:
            made, rounded = closed_form.as_released(made)
        kept.append((made, np.concatenate([handed_on, rounded])))

    try:
        first = FIRST if not engine.trains else int(np.clip(TRAINED / max(each, 1e-9), 1, FIRST))
        stated = np.inf if np.isnan(cost.cpu_seconds) else cost.cpu_seconds / times
        seconds, asked = _extrapolated(answer, shuffled, stated, first=first)
        seconds *= times
    except Declined:
        return Probe(cost.cpu_seconds, 0.0, 1.0)
    made, handed_on = kept[-1]
    limit = run.thresholds[-1] if run.thresholds else None
    spent = 0.0
    if theorems and len(made.units):

        def certify(some: Index) -> None:
            models = made.select(_mask(len(made.units), some)) if Need.EVERY_QUERY in run.asked else None
            bounds.bound(run.subject, made.units[some], models, limit=limit)

        spent, _ = _extrapolated(certify, np.arange(len(made.units)), np.inf, of=len(units))
    return Probe(seconds, spent, len(handed_on) / asked)


def _mask(size: int, some: Index) -> np.ndarray[tuple[int], np.dtype[np.bool_]]:
    keep = np.zeros(size, dtype=bool)
    keep[some] = True
    return keep


def _extrapolated(
    work: Callable[[Index], None], units: Index, stated: float, *, of: int | None = None, first: int = FIRST
) -> tuple[float, int]:
    """Return seconds for all ``units`` (or for ``of`` like them), and how many were tried in the last step.

    Where the first step already takes long there is no second one: what is stated holds, or a line from nothing.
    """
    total, before, size = len(units) if of is None else of, (0, 0.0), first
    while True:
        some = np.sort(units[:size])
        started = time.process_time()
        work(some)
        now = (len(some), time.process_time() - started)
        if len(some) == len(units) or now[1] > LONG:
            break
        before, size = now, size * FACTOR
    if before[0] == 0 and len(some) < total:
        each = now[1] / len(some)
        return max(now[1], min(stated, each * total)), len(some)
    slope = max(0.0, (now[1] - before[1]) / max(1, now[0] - before[0]))
    return now[1] + slope * (total - now[0]), len(some)


# The cost of a check before it starts: which engine answers, how many trainings, how long, how much memory.

#: seconds of CPU that an engine states, above which its first steps are timed in a check as well
MOMENT = 5.0


def first_engine(run: Run) -> Engine:
    """Return the first engine that answers for the subject; it may hand single units on."""
    return families.first(run.subject)[0]


def cost_of(run: Run, units: Index) -> Cost:
    """Return what the first engine that answers for the subject takes for some units, in the mode of this run."""
    return first_engine(run).cost(run.subject, units, run.seeds, mode=run.once(modes.used))


def make(run: Run, *, closely: bool = False, each: float = 0.0, broken: bool = False) -> tuple[TrainingPlan, list[str]]:
    """Return the plan as numbers and as sentences; a few trainings are timed, and remembered.

    Parameters
    ----------
    run : Run
        Its seeds and units are chosen already, or the recipe's own seed is assumed.
    closely : bool
        Whether an engine's first steps are timed even where it says that it takes a moment.
    each : float
        Seconds of one training, where a few were timed already.
    broken : bool
        Whether attacks with a few shadow models were seen to break a rule: then nobody is trained without.
    """
    said: list[str] = []
    each = each or seconds_each(run)
    found = TrainingPlan(retrains=0)
    spared = Need.LEAVE_ONE_OUT in run.asked and leave_one_out.spared(run)
    if Need.LEAVE_ONE_OUT in run.asked and not (broken and spared):
        found = _leave_one_out(run, said, closely=closely, each=each)
    shadows = 0
    if Need.SHADOWS in run.asked:
        shadows = most = run.limits.shadow_models
        steps = ""
        if run.attacked and not run.at_once:
            shadows, most = min(most, *APPROVING), min(most, max(LOOKS))
            steps = f", {min(LOOKS)} where one is far above its limit and {shadows} where all are far below"
        said.append(f"attacks: up to {most} shadow models on random halves of the pool{steps}")
        if broken:
            shadows = min(LOOKS)
            said.append(f"{shadows} shadow models already refuse by a rule on attacks: the check refuses")
        if spared:
            said.append(
                "attacks come first: where they break a rule, nobody is trained without, unless --full is given"
            )
    others = shadows + _differential_privacy(run, said)
    # a shadow model is trained on half of the pool, which is about as many people
    seconds = found.seconds + others * each / run.fleet.workers
    return found.model_copy(update={"retrains": found.retrains + others, "shadows": shadows, "seconds": seconds}), said


def _differential_privacy(run: Run, said: list[str]) -> int:
    """Return how many trainings the rules on differential privacy need."""
    from privgate.claims.audit import effort_of
    from privgate.claims.observe import RERUNS, is_known

    if run.subject.recipe.payload["dp"] is None:
        return 0
    count = 0
    if Need.RERUNS in run.asked:
        known = is_known(run.subject, run.fleet)
        count += 0 if known else RERUNS
        said.append(f"differential privacy: {'a training was watched before' if known else 'a training is watched'}")
    if Need.AUDIT in run.asked:
        trainings = effort_of(run).trainings
        count += trainings
        said.append(f"audit of the guarantee: {trainings} trainings")
    return count


def _leave_one_out(run: Run, said: list[str], *, closely: bool, each: float) -> TrainingPlan:
    """Return the trainings that leave units out, rank or re-check them, and say so."""
    modes.fewer_seeds(run)
    engine, sample = first_engine(run), run.once(leave_one_out.chosen_units)
    if run.limits.mode == "max":
        said.append(modes.note(run))
    said += [f"{name} does not answer here: {why}" for name, why in families.first(run.subject)[1].items()]
    said += [why] if (why := modes.said(run, run.once(modes.limits))) else []
    pairs = "" if len(run.seeds) == 1 else f", {len(run.seeds)} runs each"
    more = leave_one_out.worth_more_seeds(run)
    if more:
        pairs += f", {len(run.more_seeds)} where these do not refuse"
    said.append(f"leave-one-out: {len(sample)} of {run.n_units} people by {engine.name}{pairs}")
    if elsewhere := met_elsewhere.trainings(run):
        said.append(
            f"training draws: {elsewhere} trainings with other coins where these keep the limits, and up to "
            f"{other_coins.most_trainings(run)} where some people are above"
        )
    if leave_one_out.worth_more_people(run):
        people = min(run.up_to or 0, run.n_units)
        drawn = max([2 * len(sample), *(aggregate.second(r, run.n_units) for r in run.breaks)])
        further = (people if engine.trains else min(drawn, people)) - len(sample)
        said.append(
            f"where these people leave a limit open: {people} people in all, once; that takes about {further} "
            f"trainings more, {plan.span(further * each / run.fleet.workers)}"
        )
    searched = _searched(run, said) + elsewhere
    if cost_of(run, sample).fits == 0 or (closely and engine.trains and engine.name != "refit"):
        found = _computed(run, engine, sample, said, closely=closely, each=each)
        return found.model_copy(update={"retrains": found.retrains + searched})
    ranking = 0
    if run.once(modes.used) == "screen":
        sample = sample[: refit.retrained(len(sample))]
        ranking = refit.MODELS
        said.append(f"ranking: {refit.MODELS} shadow models; then the {len(sample)} people at the top are retrained")
    elif run.breaks and not run.limits.full:
        ranking = modes.FOLDS
        said.append(
            f"riskiest first: {ranking} trainings rank people, and nobody is trained without after a rule refuses; a "
            f"model far above its limit takes about {ranking + max(1, 2 * run.fleet.workers)} of these trainings"
        )
    left_out = len(sample) * len(run.seeds)
    made = left_out - _shared(run, sample) + ranking + searched
    planned = TrainingPlan(retrains=made, leave_one_out=left_out, ranking=ranking)
    try:
        fits = plan.leave_out_fits(run.subject, np.asarray(sample), run.seeds)
        estimate = plan.estimate(run.subject, fits, run.fleet, recalled=run.rehearsed, each=each if closely else 0.0)
    except MeasurementError as exc:
        said.append(f"the cost is unknown: {exc}")
        return planned
    # a shadow model is trained on half of the data: it takes one training at most
    seconds = estimate.wall_seconds + (ranking + searched) * estimate.seconds_each / estimate.workers
    said.append(estimate.sentence)
    if more:
        least = plan.span(len(sample) * len(run.more_seeds) * estimate.seconds_each / estimate.workers)
        said.append(
            f"where the first {len(run.seeds)} runs do not refuse: {len(sample) * len(run.more_seeds)} retrains in "
            f"all, about {least} (workers: {estimate.workers})"
        )
    elif run.more_seeds and Need.UPPER_LIMIT in run.asked:
        said.append(
            f"{len(run.more_seeds)} runs, which an approval needs, are not within the budget: it can refuse, and end "
            f"undecided at best; give --seeds {len(run.more_seeds)} to measure fewer people on all of them"
        )
    return planned.model_copy(update={"seconds": seconds})


def _computed(run: Run, engine: Engine, sample: Index, said: list[str], *, closely: bool, each: float) -> TrainingPlan:
    """Return what an engine that calls no training function leaves to it: its re-check, and whom it hands on."""
    stated = cost_of(run, sample).cpu_seconds
    found = Probe(stated, 0.0, 0.0)
    if closely or stated > MOMENT:
        found = of(run, engine, sample, each=each)
    cost = engine.cost(run.subject, sample, run.seeds, mode=run.once(modes.used))
    expected = recheck.expected(len(sample), len(run.thresholds), run.drawn)
    checked = cost.fits if engine.real else expected
    if shared := _shared(run, sample):  # and the model of everybody with them
        checked -= round(shared * (checked - 1) / len(sample)) + 1
    handed_on = round(found.handed_on * len(sample))
    left_out = handed_on * len(run.seeds)
    few = f"no retraining {'by the recipe ' * engine.trains}but the re-check of about {checked - 1} people"
    said.append(
        f"{f'at most {checked} retrains' if engine.real else few}; {engine.name} takes about "
        f"{plan.span(max(found.engine, 0.1))} of CPU"
        + (f", theorems {plan.span(max(found.theorems, 0.1))}" if found.theorems else "")
        + (f", about {cost.memory_bytes / 2**20:.0f} MiB" if cost.memory_bytes >= 2**20 else "")
    )
    if handed_on:
        said.append(
            f"about {handed_on} people are handed on to refits, {left_out} trainings, riskiest first; none if the "
            "others make a rule refuse"
        )
    trained = checked + left_out
    if each:
        busy = plan.span(trained * each)
        wall = plan.span(trained * each / run.fleet.workers)
        said.append(f"{trained} x {plan.span(each)} = {busy} of training, about {wall} (workers: {run.fleet.workers})")
    seconds = found.engine + found.theorems + trained * each / run.fleet.workers
    return TrainingPlan(retrains=trained, leave_one_out=left_out, seconds=seconds)


def _shared(run: Run, sample: Index) -> int:
    """Return how many people the controls leave out whose models answer here too: those that are small are kept."""
    people = [u for u in changed.people(run.subject) if u in set(sample.tolist())]
    if run.subject.recipe.seed not in run.seeds or not people:
        return 0
    return len(people) * run.fleet.keeps(run.subject, changed.without(run.subject, people[0]))


def _searched(run: Run, said: list[str]) -> int:
    """Return how many trainings the search for questions takes that tell more, where no theorem bounds every answer."""
    if Need.EVERY_QUERY not in run.asked or bounds.applicable(run.subject)[0]:
        return 0
    rounds = indirect_queries.QueryEffort().rounds if run.subject.data.effective_domain is not None else 1
    count = rounds * (min(indirect_queries.UNITS, run.n_units) + 1) * len(run.seeds[: indirect_queries.SEEDS])
    said.append(
        f"questions that tell more are searched for the riskiest {indirect_queries.UNITS} people: {count} trainings"
    )
    return count


def seconds_each(run: Run) -> float:
    """Return how long one training takes, from those that are remembered; 0 where there are none."""
    known = [changed.full(run.subject, repeat=r) for r in range(2)]
    known += [changed.without(run.subject, u) for u in changed.people(run.subject)]
    return plan.remembered_seconds(run.subject, known, run.fleet)


def alternatives(
    run: Run, planned: TrainingPlan, judge: Callable[[str], tuple[Run, tuple[str, ...]]], names: Iterable[str]
) -> list[str]:
    """Return which shipped policies could approve this subject, and what each would cost at most.

    Parameters
    ----------
    run : Run
        Seeds are chosen.
    planned : TrainingPlan
        What ``make`` said of it: how many people its engine hands on.
    judge : callable
        Name of a policy -> the run that it asks for, and what it can never conclude.
    names : iterable of str
    """
    each, said = seconds_each(run), list[str]()
    handed_on = planned.leave_one_out / len(run.seeds) if Need.LEAVE_ONE_OUT in run.asked else 0.0
    for name in names:
        other, never = judge(name)
        if never:
            continue
        other = replace(other, seeds=run.seeds, more_seeds=run.more_seeds, seed_control=run.seed_control)
        made = trainings(other, handed_on)
        took = f", {plan.span(made * each / run.fleet.workers)} (workers: {run.fleet.workers})" if each else ""
        said.append(f"{name} could approve this model: up to {made} trainings beside the controls{took}")
    return said or ["no shipped policy could approve this model as it is"]


def trainings(run: Run, handed_on: float = 0.0) -> int:
    """Return how many trainings an approval would take beside the controls; so many people are handed on to refits."""
    count = run.limits.shadow_models if Need.SHADOWS in run.asked else 0
    if Need.LEAVE_ONE_OUT not in run.asked:
        return count
    sample = run.once(leave_one_out.chosen_units)
    chosen = run.more_seeds if leave_one_out.worth_more_seeds(run) else run.seeds
    seeds = len(chosen)
    if beside.costs_no_fits(run):
        return count + recheck.expected(len(sample), len(run.thresholds), run.drawn) + round(handed_on * seeds)
    return count + modes.FOLDS + len(sample) * seeds + met_elsewhere.trainings(run)
