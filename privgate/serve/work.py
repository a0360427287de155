"""What one request needs: settings of the operator, and a check or a promotion in a process of its own."""

import contextlib
import logging
import os
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from privgate.errors import ExitCode, PolicyError, RegistryError, StatementError
from privgate.guard import statement
from privgate.guard.checks import Terms, check, row_and_statement
from privgate.guard.guard_config import AuditLog, Guard
from privgate.policy import Policy
from privgate.registry.addresses import VARIABLE as SOURCES
from privgate.registry.client import answering
from privgate.registry.layout import path_part

# What the operator of the server decided, what it has done, and one request as it is understood.

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
        More options of ``privgate check`` and ``privgate promote``.
    sign_command : str, optional
        Hands an approval to the signer; without one, an approval waits for a signature from elsewhere.
    candidate_target : str
        Alias to move for an approved candidate; empty for none.
    audit : AuditLog, optional
        Where checks that were begun, refusals, approvals and moved aliases are recorded.
    seconds : float
        Time of one command; then it is ended, and nothing is approved.
    """

    config: Path
    policies: Mapping[str, str]
    work: Path
    options: Sequence[str] = ()
    sign_command: str | None = None
    candidate_target: str = ""
    audit: AuditLog | None = None
    seconds: float = 86400.0


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


# One command in a process of its own: it checks, has signed and promotes, and this process does none of it.

#: what this process knows and untrusted training code must not find in its environment
_SECRETS = ("PRIVGATE_SIGNING_KEY", "PRIVGATE_WEBHOOK_SECRET")


def environment() -> dict[str, str]:
    """Return this process's environment without secrets of privgate's own, for work on anybody's word.

    Training data lie beside the registry or where the operator says: a recipe names no other address.
    """
    return {SOURCES: "", **{k: v for k, v in os.environ.items() if k not in _SECRETS}}


def _child(words: Sequence[str], log: Path, lost: threading.Event, seconds: float) -> tuple[int, str]:
    """Return privgate's exit code and last words; ``lost``, or the end of its time, ends it and all that it started."""
    end = time.monotonic() + seconds
    command = [sys.executable, "-m", "privgate.serve.child", *words]
    with log.open("wb") as out:
        process = subprocess.Popen(  # noqa: S603  our own command line, without a shell
            command,
            stdin=subprocess.PIPE,
            stdout=out,
            stderr=subprocess.STDOUT,
            env=environment(),
            start_new_session=True,
        )
        try:
            while process.poll() is None and not lost.is_set():
                if time.monotonic() > end:
                    return -signal.SIGKILL, f"it took more than {seconds:.0f} s (--check-seconds) and was ended"
                time.sleep(0.1)
        finally:
            _end(process)
    said = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return process.returncode, said[-1][:300] if said else ""


def _end(process: "subprocess.Popen[bytes]") -> None:
    """End what is left of a process's group, workers included."""
    with contextlib.suppress(ProcessLookupError, PermissionError):  # nobody is left
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()
    if process.stdin is not None:
        process.stdin.close()


# What one request needs: a check, or a promotion; each only where the registry has no mark of it.
#
# A result decided since the work began needs no second check, and a statement that counts needs no check at all.

logger = logging.getLogger(__name__)

_ANSWERS = {ExitCode.PASSED, ExitCode.UNSIGNED, ExitCode.FAILED, ExitCode.INCONCLUSIVE}


class Work:
    """Does the next thing for a request.

    Parameters
    ----------
    client : MlflowClient
        Of the registry, without rights to sign.
    settings : ServeSettings
        The operator's.
    """

    def __init__(self, client: Any, settings: ServeSettings) -> None:
        self.client, self.settings = client, settings
        #: when something was last begun or done, by the clock that never goes back
        self.moved_on = time.monotonic()

    def do(self, guard: Guard, job: Job, lost: threading.Event) -> bool:
        """Do what is left to do; return whether the request is answered."""
        what, counted = self.left(guard, job), self.counts(guard, job)
        if what in {"", "wait"}:
            return not what
        logger.info("%s: %s", job.uri, what)
        self._record("asked", job, what)
        self.moved_on = time.monotonic()
        code, said = self._run(what, job, lost)
        self.moved_on = time.monotonic()
        if code not in _ANSWERS:
            why = "was given up: its lease was lost" if lost.is_set() else f"ended with {code}: {said}"
            raise RegistryError(f"privgate {what} {job.uri} {why}")
        if code != ExitCode.PASSED:
            self._record("refused", job, what, why=f"privgate {what} ended with {code}: {said}")
        elif what == "promote":
            self._promoted(guard, job, signed=not counted)
        return code != ExitCode.UNSIGNED

    def left(self, guard: Guard, job: Job) -> str:
        """Return the command that is left to run, ``wait`` for a signature from elsewhere, or nothing."""
        counts = self.counts(guard, job)
        result = True if counts else self.result(job)
        if result is None:
            return "promote" if job.target else "check"
        if not result or job.target is None or self._held(job) > int(job.version):
            return ""  # not back: going back to an earlier version is a person's decision
        return "promote" if counts or self.settings.sign_command else "wait"

    def _run(self, what: str, job: Job, lost: threading.Event) -> tuple[int, str]:
        folder = self.settings.work / f"{path_part(job.name)}-{job.version}-{path_part(job.policy.name)}"
        folder.mkdir(parents=True, exist_ok=True)
        if self.result(job) is None:  # asked anew: an older report is not gone on from
            (folder / "report.json").unlink(missing_ok=True)
        words = [what, job.uri, f"--policy={job.path}", f"--report-dir={folder}", "--quiet"]
        words += [f"--tracking-uri={self.client.tracking_uri}", *self.settings.options]
        if what == "promote":
            words += [f"--to={job.target}", "--forward-only", f"--config={self.settings.config}", "--sign-timeout=600"]
            words += [f"--sign-command={self.settings.sign_command}"] if self.settings.sign_command else []
        return _child(words, folder / "check.log", lost, self.settings.seconds)

    def _promoted(self, guard: Guard, job: Job, *, signed: bool) -> None:
        """Note what the registry has of a promotion that ended well; its word alone is nothing."""
        held = self._held(job)
        if held > int(job.version):
            self._record("refused", job, "promote", why=f"version {held} was released meanwhile")
            return
        if held < int(job.version) or not self.counts(guard, job):
            raise StatementError(f"the promotion of {job.uri} ended well, but no statement counts for @{job.target}")
        if signed:
            self._record("approved", job, "sign")
        self._record("released", job, "promote")
        logger.info("%s is now @%s", job.uri, job.target)

    def _held(self, job: Job) -> int:
        """Return the version that has the alias; 0 if none has."""
        with answering(f"reading aliases of {job.name}"):
            return int(dict(self.client.get_registered_model(job.name).aliases).get(str(job.target), 0))

    def result(self, job: Job) -> bool | None:
        """Return whether the attached result approves; None if there is none under this policy since work began.

        The tags are display: a forged one spares a check, and without a statement nothing follows from that.
        """
        with answering(f"reading {job.uri}"):
            tags = dict(self.client.get_model_version(job.name, job.version).tags)
        # the last tag that a check attaches; without it the attaching was interrupted
        if tags.get("privgate.policy_digest") != job.policy.digest or "privgate.findings" not in tags:
            return None
        try:
            decided = statement.when(tags.get("privgate.decided_at", ""))
        except StatementError:
            return None
        if decided.timestamp() < job.since or (statement.now() - decided).days >= job.policy.valid_days:
            return None
        return tags.get("privgate.outcome") in {"passed", "warned"}

    def counts(self, guard: Guard, job: Job) -> bool:
        """Whether a statement lets the version be released as the target, as the guarded store asks."""
        row, text = row_and_statement(self.client, job.name, job.version)
        try:
            asked = guard.terms(job.target, job.name)
        except PolicyError:  # nothing is released as that: what counts is whether it was checked and signed
            asked = Terms(guard.registry, "", accept_advisory=guard.accept_advisory)
            asked = replace(asked, accept_unboxed=guard.accept_unboxed)
        terms = replace(asked, policy_digest=job.policy.digest, policy=job.policy.name)
        try:
            check(text, guard.trust, row, terms, target=job.target, now=statement.now())
        except StatementError:
            return False
        return True

    def _record(self, event: str, job: Job, doing: str, *, why: str = "") -> None:
        """Append to the audit log; what cannot be recorded is not done."""
        if self.settings.audit is not None:
            said = {"doing": doing, "model": job.name, "version": job.version, "target": job.target or "", "by": BY}
            self.settings.audit.record(event, **said, policy=job.policy.digest, why=why)
