"""What a check would cost, and what looking for a way out would, were it to block."""

from privgate.advice.steps import planned
from privgate.check.costs import costs
from privgate.policy import Policy
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet


def plan(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> list[str]:
    """Return what a check would cost in sentences, and what ``privgate advise`` would take if the check blocks."""
    found = costs(policy, subject, fleet=fleet, limits=limits)
    search = planned(policy, subject, found.planned, found.each, fleet.workers)
    return [*found.said, f"if it blocks: {search.action}: {search.effect}; {search.cost}"]
