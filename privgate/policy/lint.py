"""What is allowed in a policy and yet probably not what its owner wants."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from datetime import date
from typing import Any

from privgate.policy.document import WARNING_DAYS
from privgate.policy.policy import Policy
from privgate.policy.rules.base import Rule
from privgate.policy.strict_yaml import Mark
from privgate.run import suites


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
    for name, text in policy.suites.items():
        file = name.partition("@")[0]
        suites.build(suites.parse(text, file), file)
    known = policy.facts(int((facts or {}).get("n_units") or 0))
    found = [
        Remark(*policy.places[rule.name], rule.name, text)
        for rule in policy.rules
        for text in (*_powerless(rule, known), *rule.remarks(policy.audit, policy.suites))
    ]
    if facts is not None:
        never = [(rule.name, rule.cannot_conclude(dict(facts))) for rule in policy.rules]
        found += [Remark(*policy.places[name], name, why) for name, why in never if why]
    found += [Remark(*_place(policy, "waivers", i), "waivers", text) for i, text in _waivers(policy, today)]
    found += [Remark(*_place(policy, "rules"), "rules", text) for text in _together(policy)]
    return sorted(found, key=lambda r: (r.file != policy.path.name, r.file, r.line))


def _place(policy: Policy, *place: str | int) -> Mark:
    return policy.mark(place)


def _powerless(rule: Rule, known: Mapping[str, Any]) -> Iterator[str]:
    if why := rule.vacuous(known):
        yield f"cannot fail: {why}; it counts for nothing (the metric reaches from {rule.about.reaches})"


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
    if all(r.about.shows_leaks_only or r.bound == "lower" for r in enforced):
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
