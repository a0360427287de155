"""What must hold before anything is measured: of stored files, of the data, and by the controls of the recipe."""

import math
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from dataclasses import replace
from functools import partial

from privgate import cases
from privgate.arrays import Compute, compute_here
from privgate.check import questions
from privgate.claims import accounting
from privgate.controls import depends, opened, reproduces, seeds, served, strangers
from privgate.controls.data_checks import check_data
from privgate.errors import MeasurementError
from privgate.evidence import Count, Measurement, Precondition, Request, SeedControl
from privgate.evidence.telling import SMALL_CELL
from privgate.evidence.verdict import Outcome
from privgate.file import measure as file
from privgate.influence import left_out
from privgate.membership import attack_measures
from privgate.policy import Policy
from privgate.policy.document_shape import WITHHELD
from privgate.policy.judging import REACHED
from privgate.run import pool
from privgate.run.needs import Need
from privgate.run.run import Run
from privgate.statistics.leakage import SEEDS_FOR_A_LIMIT
from privgate.statistics.roc import LOOKS
from privgate.subject import tasks
from privgate.subject.data import TrainingData
from privgate.subject.subject import Subject

#: preconditions without which no number about the model counts
STOPPERS = frozenset(
    ["task", "keys", "served", "reproduces", "depends_on_data", "opened_files", "remembers_nothing", "recorded_seed"]
)


def check_untrained(
    run: Run, policy: Policy, tell: Callable[[str], None] = lambda _: None
) -> tuple[list[Precondition], list[Precondition]]:
    """Return what is found before anything is trained, and what of it ends the run: no training takes that back."""
    in_file = _look_at_file(run, policy)
    judged = any(Need.LOOKED in r.about.needs and r.mode == "enforce" for r in policy.rules)
    first = [] if in_file is None or judged else [in_file]
    if in_file is not None and in_file.outcome == "failed":
        return first, [in_file]
    if (held := _look_at_recipe(run) or file.find_keys(run)) is not None:
        return [*first, held], [held]
    controls = _check_subject(run, policy)
    for p in controls:
        if p.outcome != "passed":
            tell(f"{p.name}: {p.message}")
    return [*first, *controls], [p for p in controls if p.outcome in ("failed", "inconclusive")]


def stopping(controls: Iterable[Precondition]) -> list[Precondition]:
    """Return those after which nothing is planned or measured."""
    return [p for p in controls if p.outcome in ("failed", "inconclusive") and p.name in STOPPERS]


def stop_attacks(run: Run, stopped: Iterable[Precondition]) -> list[Precondition]:
    """Return what of it ends attacks: they ask the stored model for exact answers, whatever else MLflow serves."""
    exact = run.subject.release.noise is None and not run.subject.release.alone
    return [p for p in stopped if not (p.name == "served" and exact and run.attacked)]


def _look_at_file(run: Run, policy: Policy) -> Precondition | None:
    """Return what a look at the stored files showed, a warning where these are stated to be out of reach."""
    if (seen := file.look_if_needed(run)) is None:
        return None
    text = f"the file {seen.bytes_said}"
    if not seen.least:
        return Precondition("file", "inconclusive" if seen.problem else "warned" if seen.most else "passed", text)
    waived = {w.rule for w in policy.waivers}
    rules = [r for r in policy.rules if Need.LOOKED in r.about.needs and r.mode == "enforce"]
    outcomes = [r.judge(questions.answer(run, r.request(), [])).outcome for r in rules if r.name not in waived]
    if rules and Outcome.FAILED not in outcomes:
        return Precondition("file", "warned", f"{text}; the policy's rules judge that")
    if run.limits.file_withheld or policy.file == WITHHELD:
        return Precondition("file", "warned", f"{text}; it is stated that nobody who may ask the model can get it")
    return Precondition("file", "failed", text)


def _look_at_recipe(run: Run) -> Precondition | None:
    """Return that the recipe itself holds records: training without a person is none then, and no number counts."""
    if not (seen := file.look(run, "look_at_recipe")).least:
        return None
    where = ", ".join(c.where for c in seen.carried)
    text = (
        f"the recipe's own source or parameters hold {Count(seen.least, seen.records)} records of the training data "
        f"({where}): leaving one out would not leave it unknown; let the training function take records from its "
        "arguments only"
    )
    return Precondition("recipe", "failed", text)


def _check_subject(run: Run, policy: Policy) -> list[Precondition]:
    """Return findings on the data, the recipe's words, and what MLflow serves."""
    subject, data, recipe = run.subject, run.subject.data, run.subject.recipe.payload
    controls = [*subject.detail.get("preconditions", ()), *check_data(data)]
    compute = partial(run.fleet.compute, subject)
    controls += _check_candidates(data, compute, wanted=Need.CANDIDATES in run.needs)
    controls += [check_people(policy, subject), *policy.check_data(data, compute)]
    if why := subject.recipe.unclear_task(data.y):
        controls.append(Precondition("task", "inconclusive", f"{why}: {tasks.QUESTION}"))
    if recipe["dp"] is not None and recipe["seed"] is not None:
        message = (
            "the recipe claims differential privacy and records its seed: anybody who reads it can regenerate "
            "the noise and subtract it; log the recipe without a seed"
        )
        controls.append(Precondition("recorded_seed", "failed", message))
    if not run.limits.full and (why := too_few(policy, run)):
        controls.append(Precondition("people", "inconclusive", f"{why}; --full measures it all the same"))
    if Need.CLAIM in run.needs and recipe["dp"] is not None and not accounting.has_accountant():
        controls.append(Precondition("dp_extra", "inconclusive", accounting.MISSING_LIBRARY))
    if not any(p.outcome == "failed" for p in controls):
        controls += served.check_served(subject, run.fleet)
    return controls


def _check_candidates(
    data: TrainingData, compute: Compute = compute_here, *, wanted: bool = True
) -> list[Precondition]:
    """Return whether candidates are new, and of the members' population: a forest says that if a rule wants it."""
    if data.candidates is None or not len(data.candidates[1]):
        return strangers.check_candidates(data)
    people = pool.built(data, compute)
    if wanted:
        return strangers.check_candidates(data, people.shift(), people.copies)
    text = "no rule is about candidates, so that their population was not looked at"
    copies = strangers.check_candidates(data, None, people.copies)[0]
    return [copies, Precondition("same_population", "passed", text, {"auc": None})]


def check_people(policy: Policy, subject: Subject) -> Precondition:
    """Return whether the owner of each record was declared; nothing guesses it."""
    name, data = "people_declared", subject.data
    if data.people_declared:
        by = f", as {data.declared_by} declared" if data.declared_by else ""
        return Precondition(name, "passed", f"whose each record is: {data.people_declared}{by}")
    step = f"run `privgate adopt {subject.uri} --one-record-each`, or with `--groups COLUMN`"
    if not subject.uri:
        step = "pass TrainingData(..., one_record_each=True), or groups=…"
    if policy.data.people_declared:
        return Precondition(name, "inconclusive", f"nobody declared whose each record is; {step}")
    return Precondition(name, "warned", f"each record was taken for a person; {step}")


def too_few(policy: Policy, run: Run) -> str:
    """Return why the people at hand can never decide a rule that must pass, whatever is trained; empty if they can."""
    data, people = run.subject.data, policy.audit.min_candidates
    for rule in (r for r in policy.rules if r.binding and not r.either):
        if rule.about.per_unit and len(data.units) < policy.audit.min_units:
            return f"the policy wants {policy.audit.min_units} people, and the data hold {len(data.units)}: give more"
        if Need.SHADOWS not in rule.about.needs:
            continue
        try:
            candidates = pool.built(data)
        except MeasurementError as exc:
            return str(exc)
        if candidates.copied:
            return candidates.copied
        least, usable = max(pool.LEAST, people, getattr(rule, "least", 0)), int(candidates.trial[data.n :].sum())
        if usable < least:
            given = data.pool_size - data.n
            some, enough = Count(usable, given), "many more"
            if usable >= SMALL_CELL:
                enough = f"about {math.ceil(given * least / usable / 100) * 100:,} instead of {given:,}"
            return f"rule {rule.name!r} needs {least} candidates, and {some} are usable: give {enough}"
    return ""


def check(run: Run, policy: Policy, tell: Callable[[str], None]) -> tuple[Run, list[Precondition], list[Precondition]]:
    """Return the run that knows what controls found, what was found, and what of it ends the run."""
    controls, stopped = check_untrained(run, policy, tell)
    if not stop_attacks(run, stopped):
        run, more = control_training(run)
        controls, stopped = [*controls, *more], [*stopped, *stopping(more)]
    if not run.attacked:  # nothing asks the model once more
        run.fleet.close_model()
    near, far = (cases.apart([(p.name, p.detail) for p in controls], every=every) for every in (False, True))
    return replace(run, registered_apart=(near, far)), controls, stopped


def control_training(run: Run) -> tuple[Run, list[Precondition]]:
    """Run the controls of the recipe, and choose its seeds; return the run that knows it, and findings.

    Attacks look once before most of them: what so few shadow models refuse, no control takes back.
    """
    subject, fleet = run.subject, run.fleet
    controls = [reproduces.check_reproduces(subject, fleet)]
    if controls[-1].outcome != "passed":
        return run, controls  # nothing is measured whatever the others say
    if not run.limits.full and attack_measures.look_first(run):
        people = ", single people" if Need.LEAVE_ONE_OUT in run.needs else ""
        return run, [*controls, not_reached("attacks", f"whether training uses its data, other seeds{people}")]
    controls.append(depends.check_depends_on_data(subject, fleet))
    found = controls[-1].detail
    by_record, noise = (float(found.get(key) or 0.0) for key in ("moved_by_record", "between_two_trainings"))
    run = replace(run, moved_by_record=by_record)
    for check in (opened.check_opened_files, partial(depends.check_remembers_nothing, noise=noise)):
        if controls[-1].outcome != "passed":
            return run, controls
        if (condition := check(subject, fleet)) is not None:
            controls.append(condition)
    if controls[-1].outcome != "passed":
        return run, controls
    return choose_seeds(run), controls


def choose_seeds(run: Run) -> Run:
    """Return the run that knows at which seeds it judges, and what was seen of them."""
    chosen, control = seeds.choose_seeds(run.subject, run.fleet, count=run.limits.seeds)
    return replace(run, seeds=chosen, seed_control=control)


def not_reached(by: str, what: str) -> Precondition:
    """Return that a rule refuses before other things were looked at: evidence that is judged again must not pass."""
    text = f"a rule on {by} blocks, so this was not reached: {what}. --full looks at it all the same"
    return Precondition(REACHED, "inconclusive", text)


def try_people_first(run: Run) -> Run:
    """Return the run that knows whether people refuse, where so many seem above a limit that they come first."""
    with suppress(MeasurementError):  # where people are asked for, it says why
        if left_out.expects_refusal(run):
            return replace(run, refused=bool(run.compute(left_out.leave_out).decided_by))
    return run


def compare_seeds(run: Run, measured: Mapping[Request, Measurement]) -> tuple[Run, list[Precondition]]:
    """Compare the released answers with those at other seeds, unless an attack or people refuse already.

    The seed may be the best of many, which models at that seed do not show. A refused model trains none of these.
    """
    if run.refused:
        return run, [not_reached("people", "more shadow models, other seeds")]
    seen, refuses = run.seed_control, "attacks" if run.attack_breaks(measured) else ""
    alone = run.attacked and Need.LEAVE_ONE_OUT not in run.needs  # nobody is left out
    if seen is None or seen.unread or run.subject.recipe.seed is None or not (run.at_seed or alone):
        return run, []
    if not refuses and Need.LEAVE_ONE_OUT in run.needs:
        with suppress(MeasurementError):  # where people are asked for, it says why
            refuses = "people" if run.compute(left_out.leave_out).decided_by else ""
    if refuses and not run.limits.full:
        return run, [not_reached(refuses, "other seeds")]
    control = seeds.compare_released(run.subject, run.fleet, by=seen.coins, count=run.limits.seeds)
    facts = {"compared": control.detail["coins"] + 1} | {k: control.detail[k] for k in ("median", "floor")}
    moved = control.detail["moved_by"]
    if not seen.dependent and moved > reproduces.DETERMINISTIC:  # it was like the first
        facts |= {"dependent": True, "moved_by": moved, "note": seeds.describe_dependence(moved)}
    return replace(run, seed_control=seen.model_copy(update=facts)), [control]


def foresee_seeds(run: Run) -> Run:
    """Return the run as if training drew wherever it may, which is all that a plan knows of seeds."""
    own, noisy = run.subject.recipe.seed, reproduces.draws_noise(run.subject)
    runs = SEEDS_FOR_A_LIMIT if run.limits.seeds is None else run.limits.seeds
    unread = run.limits.seeds is None and seeds.reads_no_seed(run.subject.recipe)
    control = SeedControl(dependent=noisy or not (unread or own is None), unread=unread)
    return replace(run, seeds=(None,) * runs if noisy else (own,), seed_control=control)


def count_first_look(run: Run) -> int:
    """Return how many trainings a check makes whose first look at attacks refuses; 0 where there is none so early."""
    again = reproduces.RUNS if reproduces.draws_noise(run.subject) else 2
    elsewhere = 0 if run.subject.model is None else 1
    return again + elsewhere + min(LOOKS) if run.attacked and not (run.at_once or run.limits.full) else 0


def count_trainings(run: Run) -> int:
    """Return how many trainings the controls make at most, seeds among them, as far as is known of these."""
    unread = run.limits.seeds is None and seeds.reads_no_seed(run.subject.recipe)
    fits = [] if unread else [fit for _, *two in seeds.list_pairs(run.subject, run.fleet) for fit in two]
    if run.at_seed and run.seed_control is not None:
        fits += seeds.list_compared(run.subject, run.fleet, by=run.seed_control.coins)
    return depends.count_trainings(run.subject, fits)
