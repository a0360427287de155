"""How rules end, and what of many decides: every yes rests on this."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, replace
from enum import StrEnum
from typing import Any, Self


class Outcome(StrEnum):
    """How a rule, or a whole verdict, ended; ordered not needed < passed < warned < inconclusive < failed.

    ``not needed`` is no yes: the rule is about another kind of model, or another one answered its question.
    """

    NOT_NEEDED = "not needed"
    PASSED = "passed"
    WARNED = "warned"
    INCONCLUSIVE = "inconclusive"
    FAILED = "failed"

    @property
    def word(self) -> str:
        """The same for people: approved, approved with a warning, undecided, refused or not needed."""
        return _WORDS.get(self, self.value)

    @property
    def rank(self) -> int:
        """0 for passed up to 3 for failed, -1 for not needed; larger is worse."""
        return list(Outcome).index(self) - 1

    @property
    def releases(self) -> bool:
        """Whether a model with this outcome may be promoted."""
        return self in (Outcome.PASSED, Outcome.WARNED)


#: what people read in place of a stored value; docs/reference.md
_WORDS: Mapping[Outcome, str] = {
    Outcome.PASSED: "approved",
    Outcome.WARNED: "approved with a warning",
    Outcome.INCONCLUSIVE: "undecided",
    Outcome.FAILED: "refused",
}


#: of which questions an approval speaks: all that rules ask, those at or near people's own records, those at them alone
SCOPES = ("", "beside", "direct")
#: the decision in words, which a translator translates
WORDS: Mapping[str, str] = {
    "decision.passed": "approved",
    "decision.warned": "approved",
    "decision.inconclusive": "undecided",
    "decision.failed": "refused",
    "decision.observed": "observed only, nothing enforced (the rules would say {decision})",
    "covers.direct": "{decision} for questions about a person's own record only",
    "covers.beside": "{decision} for questions at or beside a person's own record only",
    "warnings.one": "{decision}, with 1 warning",
    "warnings.some": "{decision}, with {count} warnings",
}


@dataclass(frozen=True, slots=True)
class Decision:
    """What was decided: page, terminal, tag, metrics and summaries print these four facts, and decide nothing."""

    outcome: Outcome
    #: of ``SCOPES``
    scope: str
    #: rules and conditions that warn, waived ones among them
    warnings: int
    #: nothing was enforced
    observed: bool

    @classmethod
    def of(cls, findings: Iterable[Any], *, scope: str, observed: bool) -> Self:
        """Return the decision on ``Finding``s; only an approval has a scope and warnings."""
        made = list(findings)
        outcome = together(made)
        warnings = sum(f.outcome is Outcome.WARNED for f in made)
        return cls(outcome, scope, warnings, observed) if outcome.releases else cls(outcome, "", 0, observed)

    @property
    def text(self) -> str:
        """The decision in one line, lower case: outcome, scope, warnings, and whether it is enforced."""
        said = WORDS[f"decision.{self.outcome}"]
        said = WORDS[f"covers.{self.scope}"].format(decision=said) if self.scope else said
        if self.warnings:
            key = "warnings.one" if self.warnings == 1 else "warnings.some"
            said = WORDS[key].format(decision=said, count=self.warnings)
        return WORDS["decision.observed"].format(decision=said) if self.observed else said


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome; nothing at all is inconclusive."""
    return max(outcomes, key=lambda o: o.rank, default=Outcome.INCONCLUSIVE)


def together(findings: Iterable[Any]) -> Outcome:
    """Return the worst outcome of ``Finding``s; where no rule was judged among them, inconclusive at best."""
    found = list(findings)
    judged = any(not f.rule.startswith("precondition:") and f.outcome is not Outcome.NOT_NEEDED for f in found)
    return worst([*(f.outcome for f in found), *([] if judged else [Outcome.INCONCLUSIVE])])


def settled(findings: Iterable[Any], groups: Mapping[str, str]) -> list[Any]:
    """Return the findings; in a group of rules that ask one question, one that is met is enough.

    ``groups`` names the group of each rule that belongs to one. A group of which none was asked is inconclusive.
    """
    found = list(findings)
    for group in dict.fromkeys(groups.values()):
        mine = [k for k, f in enumerate(found) if groups.get(f.rule) == group]
        met = [k for k in mine if found[k].outcome is Outcome.PASSED or (found[k].waiver and found[k].outcome.releases)]
        if met:
            by = found[met[0]].rule
            for k in mine:
                if not found[k].outcome.releases and found[k].outcome is not Outcome.NOT_NEEDED:
                    said = f"not needed, because {by} approves; by itself {found[k].outcome.word}: {found[k].message}"
                    found[k] = replace(found[k], outcome=Outcome.NOT_NEEDED, message=said, advice="")
        elif mine and all(found[k].outcome is Outcome.NOT_NEEDED for k in mine):
            said = f"no rule of {group!r} is about this model: undecided"
            found[mine[-1]] = replace(found[mine[-1]], outcome=Outcome.INCONCLUSIVE, message=said)
    return found


def approves(findings: Iterable[Any], *, observed: bool) -> bool:
    """Whether a model may be promoted on these findings."""
    return together(findings).releases and not observed
