"""What must hold before anything is measured: the data's own checks, the policy's, and the controls of the recipe."""

from collections.abc import Iterable

from privgate.evidence import Precondition
from privgate.policy import Policy
from privgate.run import controls, serving
from privgate.run.preconditions import preconditions as data_preconditions
from privgate.run.run import Run

#: preconditions without which no number about the model counts
STOPPERS = ("task", "served", "reproduces", "depends_on_data", "recorded_seed")


def checked(run: Run, policy: Policy) -> list[Precondition]:
    """Return data checks, then the controls: cheap ones first, training last, and no training after a failure."""
    subject = run.subject
    found = list(subject.detail.get("preconditions", ()))
    found += data_preconditions(subject.data)
    found += policy.check_data(subject.data)
    found += controls.static(subject)
    if not any(p.outcome == "failed" for p in found):
        found += serving.preconditions(subject, run.fleet)
    if not any(stops(p) for p in found):
        found += controls.trained(run)
    ways = serving.apart(found)
    run.registered_apart = (run.registered_apart[0] + ways, run.registered_apart[1] + ways)
    return found


def stops(precondition: Precondition) -> bool:
    """Return whether no training can change the verdict any more for the better."""
    doubted = precondition.name in STOPPERS and precondition.outcome == "inconclusive"
    return precondition.outcome == "failed" or doubted


def stopping(found: Iterable[Precondition]) -> list[Precondition]:
    """Return those after which nothing is planned or measured."""
    return [p for p in found if p.name in STOPPERS and stops(p)]
