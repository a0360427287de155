"""Everything privgate raises on purpose, and the exit codes.

* PrivgateError                 no verdict could be reached            3
  + PolicyError                 the policy file cannot be used         2
  + UsageError                  the call cannot be used                2
  + SubjectError                model, data or recipe not resolved     4
    - DigestMismatchError       what was found is not what was named   4
  + RegistryError               MLflow refused or did not answer       4
  + StatementError              statement absent, stale or altered     4
  + MeasurementError            a number asked for has no value here   5

A failed policy is a ``Verdict``, never an exception.
Messages say what, which, and what to do; lower case, no full stop.
"""

from enum import IntEnum


class ExitCode(IntEnum):
    """How a privgate process ends; nobody but ``main`` turns one into ``sys.exit``."""

    PASSED = 0
    FAILED = 1
    USAGE = 2
    INTERNAL = 3
    SUBJECT = 4
    INCONCLUSIVE = 5
    UNSIGNED = 6
    INTERRUPTED = 130


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
