"""What must hold before any number counts: no recorded seed behind a privacy claim, and the two controls."""

from privgate import families
from privgate.evidence import Precondition, SeedControl
from privgate.run import paired_seeds, recipe_controls, reproduction
from privgate.run.run import Run
from privgate.subject import tasks
from privgate.subject.subject import Subject


def static(subject: Subject) -> list[Precondition]:
    """Return what can be said without training anything."""
    recipe = subject.recipe.payload
    found = []
    if why := subject.recipe.asked(subject.data.y):
        found.append(Precondition("task", "inconclusive", f"{why}: {tasks.QUESTION}"))
    if recipe["dp"] is not None and recipe["seed"] is not None:
        message = (
            "the recipe claims differential privacy and records its seed: anybody who reads it can regenerate "
            "the noise and subtract it; log the recipe without a seed"
        )
        found.append(Precondition("recorded_seed", "failed", message))
    return found


def trained(run: Run) -> list[Precondition]:
    """Run the two controls, choose the paired seeds by what they say, and return the findings."""
    subject, fleet = run.subject, run.fleet
    with fleet.afresh():
        found = [reproduction.reproduces(subject, fleet)]
    if found[0].outcome not in ("passed", "warned"):
        return found  # the next control makes 70 trainings, and nothing is measured whatever it says
    run.registered_apart = reproduction.registered_apart(found[0])
    with fleet.afresh():
        found.append(recipe_controls.depends_on_data(subject, fleet))
    run.single_median = found[1].figure("single_median")
    if found[1].outcome in ("passed", "warned"):
        choose_seeds(run)
    return found


def remembered(run: Run) -> list[Precondition]:
    """Return whether what was remembered is what training gives; says nothing where nothing was trained twice."""
    fleet = run.fleet
    unsettled = fleet.spot_check()
    seen = fleet.freshness
    if not seen.compared:
        return []
    detail = {"compared": seen.compared, "different": seen.different, "noisy": seen.noisy}
    if seen.different:
        text = (
            f"{seen.different} of {seen.compared} remembered trainings are not what training gives now: the ledger was "
            "altered, or made on another kind of machine; check again with another --ledger"
        )
        return [Precondition("remembered", "failed", text, detail)]
    if unsettled:
        text = (
            f"{unsettled} remembered trainings that this run used are of a recipe that never repeats itself, so "
            "nothing shows that they were made; check again with another --ledger"
        )
        return [Precondition("remembered", "inconclusive", text, detail)]
    text = f"{seen.compared} remembered trainings were made afresh and agree"
    if seen.noisy:
        text = (
            f"{seen.compared} remembered trainings were made afresh; {seen.noisy} differ as two fresh ones do, so that "
            "nothing follows about them"
        )
    return [Precondition("remembered", "passed", text, detail)]


def trainings(run: Run) -> int:
    """Return how many trainings the controls make, seeds among them; ``choose_seeds`` has glanced at least."""
    seen = run.seed_control
    seeds = paired_seeds.fits(
        run.subject, dependent=seen is not None and seen.dependent, count=run.limits.seeds, drawn=_drawn(run)
    )
    return recipe_controls.trainings(run.subject, seeds)


def _drawn(run: Run) -> list[int]:
    """Return units whose refit some engine expects the seed to decide."""
    return sorted(
        {int(u) for e in families.of(run.subject) if not e.refusal(run.subject) for u in e.drawn(run.subject)}
    )


def choose_seeds(run: Run, *, glance: bool = False) -> SeedControl:
    """Set the run's paired seeds, one where training has no randomness, and return what was seen of seeds."""
    n_units = min(run.limits.max_retrains or run.n_units, run.sample or run.n_units)
    chosen = paired_seeds.choose(
        run.subject,
        run.fleet,
        n_units=min(n_units, run.n_units),
        count=run.limits.seeds,
        drawn=() if glance else _drawn(run),
        glance=glance,
    )
    run.seeds, run.more_seeds = chosen.seeds, chosen.more
    run.seed_control = SeedControl(
        dependent=chosen.dependent,
        paired=len(chosen.seeds) if chosen.dependent else 0,
        moved_by=chosen.moved_by,
        compared=chosen.compared,
        unread=chosen.unread,
        note=chosen.message,
    )
    return run.seed_control
