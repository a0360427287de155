"""What the operator of the server decided, what it has done, and one request as it is understood."""

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from privgate.guard.audit_log import AuditLog
from privgate.policy import Policy

#: who did it, in the audit log
BY = "privgate serve"


@dataclass(frozen=True)
class ServeSettings:
    """What the operator decided.

    Parameters
    ----------
    config : Path
        The guard's configuration, read at every look.
    policies : mapping of name -> what ``--policy`` takes
        Requests may name these only: a tag is written by anybody, and must not name files. The first is the default.
    work : Path
        Where reports lie until they are signed; only the checking user writes it.
    options : sequence of str
        More options of ``privgate check``.
    sign : callable, optional
        Hands a report to the signer; without one, work stops after the check.
    candidate_target : str
        Alias to move for an approved candidate; empty for none.
    audit : AuditLog, optional
        Where checks that were begun, refusals, approvals and moved aliases are recorded.
    """

    config: Path
    policies: Mapping[str, str]
    work: Path
    options: Sequence[str] = ()
    sign: Callable[[Mapping[str, str]], None] | None = None
    candidate_target: str = ""
    audit: AuditLog | None = None


@dataclass
class ServeCounts:
    """What happened since the start, for the metrics endpoint."""

    checks: dict[str, int] = field(default_factory=lambda: dict.fromkeys(("approved", "blocked", "problem"), 0))
    signed: int = 0
    moved: int = 0
    problems: int = 0
    pending: int = 0
    looked: float = 0.0

    def looked_now(self, pending: int) -> None:
        """Note a look that was completed."""
        self.pending, self.looked = pending, time.time()


@dataclass(frozen=True)
class Job:
    """A request, resolved: the policy is one of the operator's and the one that the target is released by."""

    name: str
    version: str
    policy: Policy
    path: str
    target: str | None
    since: int

    @property
    def uri(self) -> str:
        """What MLflow calls the version."""
        return f"models:/{self.name}/{self.version}"
