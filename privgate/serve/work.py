"""What one request needs: settings of the operator, a check in a process of its own, a signature, an alias."""

import contextlib
import logging
import os
import secrets
import shlex
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from privgate.errors import ExitCode, PolicyError, RegistryError, StatementError
from privgate.guard import statement
from privgate.guard.checks import Terms, check, row_and_statement
from privgate.guard.guard_config import AuditLog, Guard
from privgate.guard.verifying import verify
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


# One check in a process of its own, and one signature by a command of the operator's.

#: what this process knows and untrusted training code must not find in its environment
_SECRETS = ("PRIVGATE_SIGNING_KEY", "PRIVGATE_WEBHOOK_SECRET")


def environment() -> dict[str, str]:
    """Return this process's environment without secrets of privgate's own, for work on anybody's word.

    Training data lie beside the registry or where the operator says: a recipe names no other address.
    """
    return {SOURCES: "", **{k: v for k, v in os.environ.items() if k not in _SECRETS}}


def run_check(
    uri: str, policy: str, folder: Path, options: Sequence[str], lost: threading.Event, *, nonce: str = ""
) -> tuple[int, str]:
    """Run ``privgate check`` on ``uri`` and return its exit code and its last words.

    Parameters
    ----------
    uri, policy : str
        Exact version, and policy by name or file.
    folder : Path
        Where the report goes; what the process says goes to ``check.log`` there.
    options : sequence of str
        More options of ``privgate check``.
    lost : threading.Event
        Ends the check at once, with all its workers, when it is set.
    nonce : str
        Goes into the report; the signer is told it, training code in a box cannot find it.
    """
    folder.mkdir(parents=True, exist_ok=True)
    (folder / "report.json").unlink(missing_ok=True)  # an older report must not look like this check's
    command = [sys.executable, "-m", "privgate.serve.child", "check", uri, "--policy", policy]
    command += ["--report-dir", str(folder), "--quiet", f"--nonce={nonce}", *options]
    log = folder / "check.log"
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


def signer_for(command: str, *, timeout: float = 600.0) -> Callable[[Mapping[str, str]], None]:
    """Return a function that hands a report to the operator's signer command.

    Parameters
    ----------
    command : str
        Split as a shell would, run without one. In it stand for something: ``{out}`` the report's folder, ``{policy}``,
        ``{uri}`` models:/NAME/VERSION, ``{nonce}`` the check's, ``{model}``, ``{version}``, ``{target}`` MODEL@ALIAS.
        Part of a word may be such a name, a value never becomes two words.
    timeout : float
        Seconds.
    """
    words = shlex.split(command)

    def hand_over(values: Mapping[str, str]) -> None:
        filled = [_filled(word, values) for word in words]
        try:
            subprocess.run(  # noqa: S603  the operator's own command, without a shell
                filled, stdin=subprocess.DEVNULL, capture_output=True, timeout=timeout, check=True, env=environment()
            )
        except subprocess.CalledProcessError as exc:
            said = exc.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
            raise StatementError(f"the signer command ended with {exc.returncode}: {said[-1][:300]}") from exc
        except (OSError, subprocess.SubprocessError) as exc:
            raise StatementError(f"the signer command did not run ({type(exc).__name__}); run it by hand") from exc

    return hand_over


def _filled(word: str, values: Mapping[str, str]) -> str:
    for key, value in values.items():
        # one pass a name, and values hold no braces of names: model names come from the registry
        word = word.replace(f"{{{key}}}", value.replace("{", "").replace("}", ""))
    return word


# What one request needs: a check, a signature, an alias that is moved; each only where the registry has no mark of it.
#
# A result decided since the work began needs no second check, and a statement that counts needs no check at all.

logger = logging.getLogger(__name__)

#: file beside a report: what the check was started with
NONCE = "nonce"
_ANSWERS: dict[int, bool] = {ExitCode.PASSED: True, ExitCode.FAILED: False, ExitCode.INCONCLUSIVE: False}


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
        self.client, self.settings, self.seen = client, settings, ServeCounts()

    def do(self, guard: Guard, job: Job, lost: threading.Event) -> bool:
        """Do what is left to do; return whether the request is answered."""
        if not self.counts(guard, job):
            folder = self.settings.work / f"{path_part(job.name)}-{job.version}-{path_part(job.policy.name)}"
            approved = self.result(job)
            # a report is signed only from our own folder: anybody who may write artifacts could have attached one
            kept = (folder / "report.json").is_file() and (folder / NONCE).is_file()
            if approved and self.settings.sign is not None and not kept:
                approved = None
            if approved is None:
                approved = self._check(job, folder, lost)
            if not approved:
                return True
            if self.settings.sign is None:
                return job.target is None  # with an alias asked for, the request waits for a signer elsewhere
            self._sign(guard, job, folder)
        if lost.is_set():
            raise RegistryError(f"{job.uri} was given up: its lease was lost")
        if job.target is not None:
            self._move(guard, job, job.target)
        return True

    def _check(self, job: Job, folder: Path, lost: threading.Event) -> bool:
        logger.info("checking %s", job.uri)
        self._record("asked", job, "check")
        where = ["--tracking-uri", str(self.client.tracking_uri)]
        nonce = secrets.token_hex(16)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NONCE).write_text(nonce, encoding="ascii")
        code, said = run_check(job.uri, job.path, folder, [*where, *self.settings.options], lost, nonce=nonce)
        approved = _ANSWERS.get(code)
        self.seen.checks["problem" if approved is None else "approved" if approved else "blocked"] += 1
        if lost.is_set():
            raise RegistryError(f"the check of {job.uri} was given up: its lease was lost")
        if approved is None:
            raise RegistryError(f"the check of {job.uri} ended with {code}: {said}")
        if not approved:
            self._record("refused", job, "check", why=f"the check ended with {code}: {said}")
        return approved

    def _sign(self, guard: Guard, job: Job, folder: Path) -> None:
        if self.settings.sign is None:
            raise StatementError("no signer is configured")
        target = f"{job.name}@{job.target or 'production'}"
        named = {"out": str(folder), "policy": job.path, "model": job.name, "version": job.version, "target": target}
        # what to sign comes from here and not from the report
        named |= {"uri": job.uri, "nonce": (folder / NONCE).read_text(encoding="ascii")}
        self.settings.sign(named)
        self.seen.signed += 1
        if not self.counts(guard, job):
            raise StatementError("the signer command ended well, but no statement counts")
        self._record("approved", job, "sign")

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
        terms = replace(asked, policy_digest=job.policy.digest, policy=job.policy.name)
        try:
            check(text, guard.trust, row, terms, target=job.target, now=statement.now())
        except StatementError:
            return False
        return True

    def _move(self, guard: Guard, job: Job, target: str) -> None:
        with answering(f"reading aliases of {job.name}"):
            present = dict(self.client.get_registered_model(job.name).aliases).get(target)
        if present is not None and int(present) >= int(job.version):
            return  # never back: a later version was released meanwhile, and going back is a person's decision
        verify(job.uri, guard, target=target, tracking_uri=str(self.client.tracking_uri))
        with answering(f"setting alias {target!r} of {job.name} to version {job.version}"):
            self._record("asked", job, "move")
            self.client.set_registered_model_alias(job.name, target, job.version)
        self._record("released", job, "move")
        self.seen.moved += 1
        logger.info("%s is now @%s", job.uri, target)

    def _record(self, event: str, job: Job, doing: str, *, why: str = "") -> None:
        """Append to the audit log; what cannot be recorded is not done."""
        if self.settings.audit is not None:
            said = {"doing": doing, "model": job.name, "version": job.version, "target": job.target or "", "by": BY}
            self.settings.audit.record(event, **said, policy=job.policy.digest, why=why)
