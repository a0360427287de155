"""What a policy means in plain words, and what is allowed in it and yet probably not wanted."""

from collections.abc import Iterator

from privgate.errors import UsageError
from privgate.policy.problems import nearest
from privgate.policy.resolved_policy import Policy
from privgate.policy.rules.metric import QUESTIONS
from privgate.policy.rules.rule_base import Rule

#: keys of every rule that explanations leave out, and those that they tell only where a file sets them
_QUIET, _USUAL = ("metric", "id", "reason", "source"), ("mode", "bound", "required")


def explain(policy: Policy, rule: str | None = None) -> Iterator[str]:
    """Yield lines of text about one rule, or about all; ``UsageError``: no rule has this id."""
    rules = {r.name: r for r in policy.rules}
    if rule is None:
        yield from _policy(policy)
    elif rule not in rules:
        near = nearest(rule, rules)
        hint = f"; did you mean {near!r}?" if near else ""
        raise UsageError(f"policy {policy.name!r} has no rule {rule!r}{hint}; it has {', '.join(rules)}")
    for name in rules if rule is None else [rule]:
        yield ""
        yield from _rule(policy, rules[name])


def _policy(policy: Policy) -> Iterator[str]:
    yield f"{policy.name} version {policy.version}"
    yield from (f"  {' '.join(text.split())}" for text in (policy.description, policy.approves) if text)
    yield from (f"  extends {base}" for base in policy.resolved["extends"])
    yield f"  digest {policy.digest}"
    yield f"  {questions(policy)}"
    yield f"  an approval lasts {policy.valid_days} days"
    if policy.file != "downloadable":
        yield f"  the file is {policy.file}: rules about it warn at most, and the policy's owner answers for that"
    for key, field in type(policy.audit).model_fields.items():
        value = getattr(policy.audit, key)
        if value != field.default:
            yield f"  audit.{key} = {value}  ({_where(policy, 'audit', key)}); less is undecided"
    for waiver in policy.waivers:
        yield (
            f"  waiver {waiver.key}: up to {waiver.ceiling:g} until {waiver.expires}, {waiver.reason} "
            f"(asked by {waiver.requester}, approved by {waiver.approver})"
        )


def _where(policy: Policy, *place: str | int) -> str:
    mark = policy.mark_of(*place)
    return f"{mark.file}:{mark.line}" if mark else "inherited"


def questions(policy: Policy) -> str:
    """Return which questions of a release a policy enforces, and which it does not ask."""
    enforced = {r.about.question for r in policy.rules if r.mode == "enforce"}
    ours = ", ".join(QUESTIONS[q] for q in QUESTIONS if q in enforced) or "none of the questions of a release"
    others = ", ".join(QUESTIONS[q] for q in QUESTIONS if q not in enforced)
    return f"asks about {ours}{others and f'; does not ask about {others}'}"


def _rule(policy: Policy, rule: Rule) -> Iterator[str]:
    yield f"{rule.name}: {rule.about.title}"
    yield f"  {rule.purpose()}"
    yield f"  {rule.outcomes()}"
    yield f"  the metric reaches from {rule.about.reaches}"
    if why := rule.vacuous({}):
        yield f"  CANNOT REFUSE: {why}; it counts for nothing"
    for key, field in type(rule).model_fields.items():
        value = getattr(rule, key)
        if key in _QUIET or value is None or (key in _USUAL and value == field.default):
            continue
        where = _where(policy, "rules", policy.rules.index(rule), key)
        shown = "default" if where == "inherited" and value == field.default else where
        yield f"  {key} = {str(value).partition('@')[0]}  ({shown})  {field.description or ''}".rstrip()
    for key in ("reason", "source"):
        if text := " ".join(getattr(rule, key).split()):
            yield f"  {key}: {text}"
    if rule.name in policy.never_waivable:
        yield "  may never be waived"
