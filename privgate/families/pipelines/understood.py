"""What is understood of a recipe before anything is measured: what its function fits, and what its first steps do."""

from typing import Any

from privgate.evidence import Precondition
from privgate.families.pipelines import recognised
from privgate.families.pipelines.seen_through import seen
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet


def understood(subject: Subject, fleet: Fleet) -> tuple[Precondition, ...]:
    """Look at a training function, and return what was found of it and of a pipeline's first steps."""
    looked = recognised.recognise(subject, fleet)
    found = seen(subject)
    said = [] if looked is None else [looked]
    if found.steps:
        detail: dict[str, Any] = {"steps": list(found.steps)}
        if pinned := [{"digest": e.digest, "public": e.public} for e in found.encoders]:
            detail["encoders"] = pinned
        said.append(Precondition("first_steps", "passed", found.words, detail))
    return tuple(said)
