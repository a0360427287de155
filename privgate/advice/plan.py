"""What a check would cost, and what looking for a way out would, were it to block."""

from privgate.advice.steps import planned
from privgate.check import gate
from privgate.policy import Policy
from privgate.run.run import Budget
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet


def plan(policy: Policy, subject: Subject, *, fleet: Fleet, limits: Budget) -> list[str]:
    """Return the sentences of ``gate.plan``, and what ``privgate advise`` would take if the check blocks."""
    costs = gate.costs(policy, subject, fleet=fleet, limits=limits)
    search = planned(policy, subject, costs.planned, costs.each, fleet.workers)
    return [*costs.said, f"if it blocks: {search.action}: {search.effect}; {search.cost}"]
