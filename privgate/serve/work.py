"""What one request needs: a check, a signature, an alias that is moved; each only where the registry has no mark of it.

A result decided since the work began needs no second check, and a statement that counts needs no check at all.
"""

import logging
import secrets
import threading
from pathlib import Path
from typing import Any

from privgate.errors import ExitCode, RegistryError, StatementError
from privgate.guard import times
from privgate.guard.config import Guard
from privgate.guard.stored_statement import row_and_statement
from privgate.guard.trust import Terms, check
from privgate.guard.verifying import verify
from privgate.registry.client import answering
from privgate.registry.layout import path_part
from privgate.serve.checking import run_check
from privgate.serve.settings import BY, Job, ServeCounts, ServeSettings

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
            decided = times.when(tags.get("privgate.decided_at", ""))
        except StatementError:
            return None
        if decided.timestamp() < job.since or (times.now() - decided).days >= job.policy.valid_days:
            return None
        return tags.get("privgate.outcome") in {"passed", "warned"}

    def counts(self, guard: Guard, job: Job) -> bool:
        """Whether a statement lets the version be released as the target, as the guarded store asks."""
        row, text = row_and_statement(self.client, job.name, job.version)
        terms = Terms(guard.registry, job.policy.digest, job.policy.name, guard.accept_advisory)
        try:
            check(text, guard.trust, row, terms, target=job.target, now=times.now())
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
