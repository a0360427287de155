"""What the rules of a policy ask of a run: limits on people, whom to draw, and what ends the work early."""

from collections.abc import Callable
from functools import partial

from privgate.evidence import Measurement, Request
from privgate.influence import proven
from privgate.policy import Policy
from privgate.policy.rules.base import Rule
from privgate.run.needs import Need
from privgate.verdict import Outcome


def unit_limits(policy: Policy) -> tuple[float, ...]:
    """Return the limits, in nats, that rules set on single units: where engines and certificates look closer."""
    limits = set()
    for rule in policy.rules:
        if rule.about.per_unit:
            threshold = rule.request().option("threshold")
            limits.add(float(rule.limit if threshold is None else threshold))
    return tuple(sorted(limits))


def breaks(policy: Policy) -> dict[Request, tuple[str, Callable[[Measurement], bool]]]:
    """Return the rules on units that block once they are broken: enforced ones that no waiver may excuse."""
    waived = {w.rule for w in policy.waivers}
    rules = [r for r in policy.rules if r.about.per_unit and r.mode == "enforce" and r.name not in waived]
    # two rules may ask the same: the stricter one is broken first
    rules.sort(key=lambda r: r.limit, reverse=True)
    return {r.request(): (r.name, partial(_broken, r)) for r in rules}


def _broken(rule: Rule, measurement: Measurement) -> bool:
    return rule.judge(measurement).outcome is Outcome.FAILED


def sample(policy: Policy) -> int | None:
    """Return how many random units are enough for every rule on leave-one-out; None where one needs everybody."""
    rules = [r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    asked = [r.request().option("sample") for r in rules]
    return None if not asked or None in asked else max(asked)


def up_to(policy: Policy) -> int | None:
    """Return to how many random units the sample may grow; None where it does not, or rules draw differently."""
    rules = [r.request() for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    drawn = {(r.option("sample"), r.option("up_to")) for r in rules}
    return drawn.pop()[1] if len(drawn) == 1 else None


def by_theorem(policy: Policy) -> bool:
    """Return whether limits on people are all that rules ask of leave-one-out, and nobody wants them all measured."""
    rules = [r for r in policy.rules if Need.LEAVE_ONE_OUT in r.about.needs]
    audit = policy.audit
    enough = audit.min_coverage == 0 and audit.min_units <= proven.SAMPLE and audit.min_seeds <= proven.SEEDS
    return enough and all(r.about.per_unit and Need.EVERYBODY not in r.about.needs for r in rules)
