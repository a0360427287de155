"""What a policy means in plain words, and where each of its numbers comes from."""

from collections.abc import Iterator

from privgate.errors import UsageError
from privgate.policy.policy import Policy
from privgate.policy.problems import nearest
from privgate.policy.rules.base import Rule

_QUIET = frozenset({"metric", "id", "reason", "source"})
#: keys of every rule, told only where a file sets them
_USUAL = frozenset({"mode", "bound", "required"})


def explain(policy: Policy, rule: str | None = None) -> Iterator[str]:
    """Yield lines of text about one rule, or about all.

    Raises
    ------
    UsageError
        No rule has this id.
    """
    rules = {r.name: r for r in policy.rules}
    if rule is not None and rule not in rules:
        near = nearest(rule, rules)
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"policy {policy.name!r} has no rule {rule!r}{hint} it has {', '.join(rules)}")
    if rule is None:
        yield from _policy(policy)
    for name in rules if rule is None else [rule]:
        yield ""
        yield from _rule(policy, rules[name])


def _policy(policy: Policy) -> Iterator[str]:
    yield f"{policy.name} version {policy.version}"
    if policy.description:
        yield f"  {' '.join(policy.description.split())}"
    if policy.approves:
        yield f"  {' '.join(policy.approves.split())}"
    for base in policy.resolved["extends"]:
        yield f"  extends {base}"
    yield f"  digest {policy.digest}"
    yield f"  an approval lasts {policy.valid_days} days"
    if policy.file != "downloadable":
        yield f"  the file is {policy.file}: rules about it warn at most, and the policy's owner answers for that"
    for key, value in policy.audit.model_dump().items():
        mark = policy.mark_of("audit", key)
        if mark is not None:
            yield f"  audit.{key} = {value}  ({mark.file}:{mark.line}); less is inconclusive"
    for waiver in policy.waivers:
        yield (
            f"  waiver {waiver.key}: up to {waiver.ceiling:g} until {waiver.expires}, {waiver.reason} "
            f"(asked by {waiver.requester}, approved by {waiver.approver})"
        )


def _rule(policy: Policy, rule: Rule) -> Iterator[str]:
    yield f"{rule.name}: {rule.about.title}"
    yield f"  {_sentence(rule)}"
    yield f"  {rule.outcomes()}"
    yield f"  the metric reaches from {rule.about.reaches}"
    if why := rule.vacuous(policy.facts()):
        yield f"  CANNOT FAIL: {why}; it counts for nothing"
    for key in type(rule).model_fields:
        value = getattr(rule, key)
        mark = policy.origin(rule.name, key)
        if key in _QUIET or value is None or (key in _USUAL and mark is None):
            continue
        where = f"{mark.file}:{mark.line}" if mark else "default"
        about = type(rule).model_fields[key].description or ""
        yield f"  {key} = {str(value).partition('@')[0]}  ({where})  {about}".rstrip()
    if rule.reason:
        yield f"  reason: {' '.join(rule.reason.split())}"
    if rule.source:
        yield f"  source: {' '.join(rule.source.split())}"
    if rule.name in policy.never_waivable:
        yield "  may never be waived"


def _sentence(rule: Rule) -> str:
    return " ".join((type(rule).__doc__ or "").split("\n\n", maxsplit=1)[0].split())
