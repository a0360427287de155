"""What is allowed in a policy and yet probably not what its owner wants."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from privgate.evidence import COLUMNS
from privgate.policy.document import WARNING_DAYS
from privgate.policy.policy import Policy
from privgate.policy.rules.attack_accuracy import AttackAccuracy
from privgate.policy.rules.attack_advantage import AttackAdvantage
from privgate.policy.rules.attack_tpr import AttackTpr
from privgate.policy.rules.base import Rule
from privgate.policy.rules.dp_epsilon_lower_bound import DpEpsilonLowerBound
from privgate.policy.rules.generalization_gap import GeneralizationGap
from privgate.policy.rules.guarantee import GuaranteeRule
from privgate.policy.rules.leave_one_out import LeaveOneOutRule
from privgate.policy.rules.membership import least_non_members
from privgate.policy.rules.table import Table
from privgate.policy.strict_yaml import Mark
from privgate.run import suites

#: below this an interval misses the truth so often that somebody should say why
LEAST_CONFIDENCE = 0.9
#: a rule about fewer people than this leaves out more than exceptions
ALMOST_ALL = 0.9


@dataclass(frozen=True, slots=True)
class Remark:
    """One thing to look at.

    Parameters
    ----------
    file : str
    line : int
        Counted from 1.
    rule : str
        Id of the rule, or the policy's key.
    text : str
        What, and what to do.
    """

    file: str
    line: int
    rule: str
    text: str

    def __str__(self) -> str:
        return f"{self.file}:{self.line}: {self.rule}: {self.text}"


def lint(policy: Policy, *, today: date, facts: Mapping[str, Any] | None = None) -> list[Remark]:
    """Return remarks in the order of the file.

    Parameters
    ----------
    policy : Policy
        It has been loaded, so it can be used; what is looser than its parent was refused then.
    today : date
        For waivers.
    facts : mapping, optional
        What is known of a model before training (see ``Rule.cannot_conclude``); nothing is said about it if absent.

    Raises
    ------
    PolicyError
        A suite that the policy names holds an expectation that does not exist.
    """
    known = policy.facts(int((facts or {}).get("n_units") or 0))
    found = [
        Remark(*policy.places[rule.name], rule.name, text)
        for rule in policy.rules
        for text in _rule(rule, policy, known)
    ]
    if facts is not None:
        never = [(rule.name, rule.cannot_conclude(dict(facts))) for rule in policy.rules]
        found += [Remark(*policy.places[name], name, why) for name, why in never if why]
    found += [Remark(*_place(policy, "waivers", i), "waivers", text) for i, text in _waivers(policy, today)]
    found += [Remark(*_place(policy, "rules"), "rules", text) for text in _together(policy)]
    for name, text in policy.suites.items():
        file = name.partition("@")[0]
        suites.build(suites.parse(text, file), file)
    found += [
        Remark(*policy.places[rule.name], rule.name, why)
        for rule in policy.rules
        if isinstance(rule, Table) and (why := _met_by_the_worst(rule, policy))
    ]
    return sorted(found, key=lambda r: (r.file != policy.path.name, r.file, r.line))


def _place(policy: Policy, *place: str | int) -> Mark:
    return policy.mark(place)


def _rule(rule: Rule, policy: Policy, known: Mapping[str, Any]) -> Iterator[str]:
    if why := rule.vacuous(known):
        yield f"cannot fail: {why}; it counts for nothing (the metric reaches from {rule.reaches})"
    if rule.mode == "enforce" and not rule.reason:
        yield "no 'reason' says why this limit; somebody will have to defend it"
    if rule.mode == "enforce" and not rule.source:
        yield "no 'source' says where this limit comes from"
    if rule.bound == "lower" and rule.metric != "dp_epsilon_lower_bound":
        yield "bound 'lower': doubt only warns, so a measurement with a wide interval is released"
    if isinstance(rule, AttackAccuracy | AttackAdvantage | AttackTpr) and rule.attack != "any":
        yield f"only the attack {rule.attack!r} is judged, and some answers blind it; 'any' judges the best of all"
    if isinstance(rule, LeaveOneOutRule) and 0.5 <= rule.covers < ALMOST_ALL:
        yield f"{100 * (1 - rule.covers):.3g} % of the people in the data are left without any limit"
    confidence = getattr(rule, "confidence", 1.0)
    if confidence < LEAST_CONFIDENCE:
        yield f"confidence {confidence:g}: the truth lies outside in {100 * (1 - confidence):.3g} % of releases"
    if not rule.required:
        yield "'required: false': a model that this does not apply to is released without this number"
    if isinstance(rule, GuaranteeRule) and rule.accept_declared_claims:
        yield "ACCEPT_DECLARED_CLAIMS: a guarantee that nobody observed counts; the approval rests on its author's word"
    yield from _unreachable(rule, policy)


def _met_by_the_worst(rule: Table, policy: Policy) -> str:
    """Return that a suite lets the worst table pass: nobody could be retrained, and every influence is unlimited."""
    import pandas as pd

    text = policy.suites.get(rule.suite, "")
    file = rule.suite.partition("@")[0]
    if not text:
        return ""
    worst: dict[str, Any] = {"unit": "u", "label": "a", "engine": "refit", "seeds": 1}
    frame = pd.DataFrame(
        [{**dict.fromkeys(COLUMNS, float("inf")), **worst, "status": s} for s in ("failed", "undefined")]
    )
    found = suites.run(suites.parse(text, file), frame, file=file)
    if any(e.error for e in found) or sum(not e.met for e in found) > rule.max:
        return ""
    return f"cannot fail: a table in which every influence is unlimited and nobody was retrained meets {file}"


def _unreachable(rule: Rule, policy: Policy) -> Iterator[str]:
    """Yield settings under which a rule can never pass on any finite sample."""
    guessing = {AttackAccuracy: 0.5, AttackAdvantage: 0.0}.get(type(rule))
    if guessing is not None and rule.limit == guessing:
        yield "can never pass: guessing reaches this limit, and the upper confidence limit lies above guessing"
    if isinstance(rule, GeneralizationGap) and rule.max == 0:
        yield "can never pass: the upper confidence limit of a gap lies above 0"
    if isinstance(rule, AttackTpr):
        if rule.max <= rule.at_fpr:
            yield f"can never pass: guessing finds {rule.at_fpr:g} of the members, which reaches max {rule.max:g}"
        least = least_non_members(rule.at_fpr, rule.confidence)
        if policy.audit.min_candidates < least:
            yield (
                f"a false-positive rate of {rule.at_fpr:g} is resolved by {least} candidates or more, but "
                f"audit.min_candidates is {policy.audit.min_candidates}: fewer are always inconclusive; raise it"
            )


def _waivers(policy: Policy, today: date) -> Iterator[tuple[int, str]]:
    for i, waiver in enumerate(policy.waivers):
        days = (waiver.expires - today).days
        if days < 0:
            yield i, f"waiver {waiver.key} expired on {waiver.expires} and does not apply; remove it"
        elif waiver.granted > today:
            yield i, f"waiver {waiver.key} begins on {waiver.granted} and does not apply yet"
        elif days <= WARNING_DAYS:
            yield i, f"waiver {waiver.key} ends in {days} days, on {waiver.expires}"


def _together(policy: Policy) -> Iterator[str]:
    enforced = [r for r in policy.rules if r.mode == "enforce"]
    if all(isinstance(r, DpEpsilonLowerBound | GeneralizationGap) or r.bound == "lower" for r in enforced):
        yield (
            "nothing enforced here can show that a model is safe: an audit, a gap and 'bound: lower' block only what "
            "is proved, and release on doubt"
        )
    asked: dict[str, str] = {}
    for rule in enforced:
        key = rule.request().key
        if key in asked:
            yield f"rules {asked[key]!r} and {rule.name!r} ask the same question; only the stricter limit matters"
        asked.setdefault(key, rule.name)
