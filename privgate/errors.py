"""How things end: everything privgate raises on purpose, exit codes, how rules end, and what of many decides.

* PrivgateError                 no verdict could be reached            3
  + PolicyError                 the policy file cannot be used         2
  + UsageError                  the call cannot be used                2
  + SubjectError                model, data or recipe not resolved     4
    - DigestMismatchError       what was found is not what was named   4
  + RegistryError               MLflow refused or did not answer       4
  + StatementError              statement absent, stale or altered     4
  + MeasurementError            a number asked for has no value here   5

A failed policy is a ``Verdict``, never an exception.
Messages say what, which, and what to do; lower case, no full stop. Every yes rests on what decides here.
"""

from collections.abc import Iterable, Mapping
from dataclasses import replace
from enum import IntEnum, StrEnum
from typing import Any


class ExitCode(IntEnum):
    """How a privgate process ends; ``main`` alone turns one into ``sys.exit``."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INTERNAL = 3
    SUBJECT = 4
    INCONCLUSIVE = 5
    UNSIGNED = 6
    INTERRUPTED = 130


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


def worst(outcomes: Iterable[Outcome]) -> Outcome:
    """Return the worst outcome; nothing at all is inconclusive."""
    return max(outcomes, key=lambda o: o.rank, default=Outcome.INCONCLUSIVE)


def together(findings: Iterable[Any]) -> Outcome:
    """Return the worst outcome of ``Finding``s; where no rule was judged among them, inconclusive at best."""
    listed = list(findings)
    judged = any(not f.rule.startswith("precondition:") and f.outcome is not Outcome.NOT_NEEDED for f in listed)
    return worst([*(f.outcome for f in listed), *([] if judged else [Outcome.INCONCLUSIVE])])


def settled(findings: Iterable[Any], groups: Mapping[str, str]) -> list[Any]:
    """Return the findings; of a group of rules that ask one question one must be asked, and one met is enough."""
    listed = list(findings)
    for group in dict.fromkeys(groups.values()):
        mine = [k for k, f in enumerate(listed) if groups.get(f.rule) == group]
        released = [k for k in mine if listed[k].outcome.releases]
        met = [k for k in released if listed[k].outcome is Outcome.PASSED or listed[k].waiver]
        if met:
            by = listed[met[0]].rule
            for k in mine:
                if not listed[k].outcome.releases and listed[k].outcome is not Outcome.NOT_NEEDED:
                    said = f"not needed, because {by} approves; by itself {listed[k].outcome.word}: {listed[k].message}"
                    listed[k] = replace(listed[k], outcome=Outcome.NOT_NEEDED, message=said, advice="")
        elif mine and all(listed[k].outcome is Outcome.NOT_NEEDED for k in mine):
            said = f"no rule of {group!r} is about this model: undecided"
            listed[mine[-1]] = replace(listed[mine[-1]], outcome=Outcome.INCONCLUSIVE, message=said)
    return listed


def approves(findings: Iterable[Any], *, observed: bool) -> bool:
    """Whether a model may be promoted on these findings."""
    return together(findings).releases and not observed


_LONGEST = 10_000  # letters of a message


class PrivgateError(Exception):
    """The root of everything raised on purpose."""

    exit_code: ExitCode = ExitCode.INTERNAL

    def __str__(self) -> str:
        """Return the sentence; what it quotes of a foreign document may be as long as that."""
        text = super().__str__()
        return text if len(text) <= _LONGEST else f"{text[:_LONGEST]}… ({len(text)} characters)"


class PolicyError(PrivgateError):
    """The policy file cannot be used; nothing was trained."""

    exit_code = ExitCode.USAGE


class UsageError(PrivgateError):
    """A call that cannot be used as it is; nothing was trained."""

    exit_code = ExitCode.USAGE


class SubjectError(PrivgateError):
    """Model, data or recipe could not be read."""

    exit_code = ExitCode.SUBJECT


class DigestMismatchError(SubjectError):
    """What was found is not what was named."""


class RegistryError(PrivgateError):
    """The registry refused or did not answer."""

    exit_code = ExitCode.SUBJECT


class StatementError(PrivgateError):
    """A statement is absent, stale, forged or about something else."""

    exit_code = ExitCode.SUBJECT


class MeasurementError(PrivgateError):
    """A number that was asked for has no value here; becomes an inconclusive finding."""

    exit_code = ExitCode.INCONCLUSIVE


class PrivgateWarning(UserWarning):
    """What costs only time or is not compared; doubts about a verdict are findings."""
