"""What must hold before any number counts: no recorded seed behind a privacy claim, and the two controls."""

from privgate.evidence import Precondition
from privgate.measure.bench import Bench
from privgate.retrain import controls
from privgate.subject import Subject


def static(subject: Subject) -> list[Precondition]:
    """Return what can be said without training anything."""
    recipe = subject.recipe.payload
    found = []
    if recipe["dp"] is not None and recipe["seed"] is not None:
        message = (
            "the recipe claims differential privacy and records its seed: anybody who reads it can regenerate "
            "the noise and subtract it; log the recipe without a seed"
        )
        found.append(Precondition("recorded_seed", "failed", message))
    return found


def trained(bench: Bench) -> list[Precondition]:
    """Run the two controls, choose the paired seeds by what they say, and return the findings."""
    found = [controls.reproduces(bench.subject, bench.fleet), controls.depends_on_data(bench.subject, bench.fleet)]
    bench.seeds = (bench.subject.recipe.payload["seed"],)
    return found
