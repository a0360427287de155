"""One look at everything that asks for a check, and what follows from it; nothing is remembered but when to try again.

Each step leaves its mark in the registry, and the next look begins with the marks: a statement that counts needs no
check, a result decided since the work began needs no second one, an alias that is moved ends the request.
"""

import logging
import math
import secrets
import threading
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from privgate.errors import ExitCode, PrivgateError, RegistryError, StatementError, UsageError
from privgate.guard import times
from privgate.guard.audit_log import AuditLog
from privgate.guard.config import Guard
from privgate.guard.stored_statement import row_and_statement
from privgate.guard.trust import Terms, check
from privgate.guard.verifying import verify
from privgate.policy import Policy
from privgate.registry.client import answering
from privgate.registry.layout import path_part
from privgate.serve.checking import run_check
from privgate.serve.lease import LeaseFor
from privgate.serve.request import TAG, CheckRequest

logger = logging.getLogger(__name__)

CANDIDATE = "candidate"
#: file beside a report: what the check was started with
NONCE = "nonce"
PROBLEM_TAG = "privgate.problem"
#: who did it, in the audit log
BY = "privgate serve"
_FIRST_WAIT, _LONGEST_WAIT = 30.0, 3600.0
_ANSWERS: dict[int, bool] = {ExitCode.PASSED: True, ExitCode.FAILED: False, ExitCode.INCONCLUSIVE: False}


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
class _Job:
    """A request, resolved: the policy is one of the operator's and the one that the target is released by."""

    name: str
    version: str
    policy: Policy
    path: str
    target: str | None
    since: int

    @property
    def uri(self) -> str:
        return f"models:/{self.name}/{self.version}"


class Reconciler:
    """Looks at the registry and does the next thing for each version that asks.

    Parameters
    ----------
    client : MlflowClient
        Of the registry, without rights to sign.
    settings : Settings
        The operator's.
    lease_for : callable
        (name, version) -> ``Lease``.
    """

    def __init__(self, client: Any, settings: ServeSettings, lease_for: LeaseFor) -> None:
        self.client, self.settings, self.lease_for = client, settings, lease_for
        self.counts = ServeCounts()
        self._later: dict[tuple[str, str], tuple[float, float, str]] = {}  # -> (not before, wait, what was asked)
        self._free_at = math.inf  # Unix time when the first lease ends that kept us from a request

    def look(self) -> float:
        """Look once; return the seconds until something is due that could not be done now, infinity if nothing is.

        Raises
        ------
        PrivgateError
            The registry does not answer, or the configuration cannot be used; look again later.
        """
        guard = Guard.load(self.settings.config)
        asking = dict(self._asking())
        self._free_at = math.inf
        self._later = {k: v for k, v in self._later.items() if k in asking}
        # the oldest version first, so that an alias is moved forward
        for (name, version), asked in sorted(asking.items(), key=lambda item: (item[0][0], int(item[0][1]))):
            wait = self._later.get((name, version))
            if wait is not None and time.monotonic() < wait[0] and wait[2] == _what(asked):
                continue
            try:
                self._attend(guard, name, version, asked)
            except PrivgateError as exc:
                self._put_off(name, version, asked, exc)
            else:
                self._later.pop((name, version), None)
        self.counts.looked_now(len(asking))
        now, put_off = time.monotonic(), min((when for when, _, _ in self._later.values()), default=math.inf)
        return min(put_off - now, self._free_at - time.time())

    def _asking(self) -> Iterator[tuple[tuple[str, str], str]]:
        """Give (name, version) and the tag's value of everything that asks, candidates with an empty value."""
        found: dict[tuple[str, str], str] = {}
        with answering("listing candidates"):
            for model in _pages(self.client.search_registered_models):
                version = dict(model.aliases or {}).get(CANDIDATE)
                if version is not None:
                    found[str(model.name), str(version)] = ""
        with answering("listing requests"):
            for held in _pages(self.client.search_model_versions, f"tags.`{TAG}` LIKE '%'"):
                found[str(held.name), str(held.version)] = str(dict(held.tags)[TAG])
        yield from found.items()

    def _attend(self, guard: Guard, name: str, version: str, text: str) -> None:
        request = CheckRequest.parse(text) if text else CheckRequest(target=self.settings.candidate_target)
        if request.held(time.time()):
            self._free_at = min(self._free_at, request.until)
            return
        job = self._job(guard, name, version, request)
        if self._answered(guard, job) if not text else self._waits_for_a_signer(guard, job):
            return
        lease = self.lease_for(name, version)
        if not lease.take(None if text else request):
            # somebody was quicker, or the registry too slow to tell
            self._free_at = min(self._free_at, lease.free_at)
            return
        try:
            # somebody may have worked on it, or asked for something else, since we looked
            job = self._job(guard, name, version, lease.request)
            finished = self._work(guard, job, lease.lost)
        except BaseException:
            lease.release()
            raise
        if finished:
            lease.done()
            self._say(name, version, "")
        else:
            lease.release()

    def _job(self, guard: Guard, name: str, version: str, request: CheckRequest) -> _Job:
        called = request.policy or next(iter(self.settings.policies))
        if called not in self.settings.policies:
            known = ", ".join(self.settings.policies)
            raise UsageError(f"the request names policy {called[:100]!r}; this server checks by {known}")
        path, target = self.settings.policies[called], request.target or None
        policy = Policy.load(path)
        if target is not None and guard.terms(target).policy_digest != policy.digest:
            raise UsageError(f"the guard releases as {target!r} by policy {guard.terms(target).policy!r}; ask for that")
        return _Job(name, version, policy, path, target, request.since)

    def _answered(self, guard: Guard, job: _Job) -> bool:
        """Whether a candidate needs nothing: its alias stays when it is answered, so the result must tell.

        A statement that counts moves no alias by itself: somebody may have withdrawn the release.
        """
        if self._counts(guard, job):
            return True
        result = self._result(job)
        return result is False or (result is True and self.settings.sign is None)

    def _waits_for_a_signer(self, guard: Guard, job: _Job) -> bool:
        """Whether there is nothing to do until somebody else signs."""
        waiting = job.since and job.target is not None and self.settings.sign is None and self._result(job)
        return bool(waiting) and not self._counts(guard, job)

    def _work(self, guard: Guard, job: _Job, lost: threading.Event) -> bool:
        """Do what is left to do; return whether the request is answered."""
        if not self._counts(guard, job):
            folder = self.settings.work / f"{path_part(job.name)}-{job.version}-{path_part(job.policy.name)}"
            approved = self._result(job)
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

    def _check(self, job: _Job, folder: Path, lost: threading.Event) -> bool:
        logger.info("checking %s", job.uri)
        self._record("asked", job, "check")
        where = ["--tracking-uri", str(self.client.tracking_uri)]
        nonce = secrets.token_hex(16)
        folder.mkdir(parents=True, exist_ok=True)
        (folder / NONCE).write_text(nonce, encoding="ascii")
        code, said = run_check(job.uri, job.path, folder, [*where, *self.settings.options], lost, nonce=nonce)
        approved = _ANSWERS.get(code)
        self.counts.checks["problem" if approved is None else "approved" if approved else "blocked"] += 1
        if lost.is_set():
            raise RegistryError(f"the check of {job.uri} was given up: its lease was lost")
        if approved is None:
            raise RegistryError(f"the check of {job.uri} ended with {code}: {said}")
        if not approved:
            self._record("refused", job, "check", why=f"the check ended with {code}: {said}")
        return approved

    def _sign(self, guard: Guard, job: _Job, folder: Path) -> None:
        if self.settings.sign is None:
            raise StatementError("no signer is configured")
        target = f"{job.name}@{job.target or 'production'}"
        named = {"out": str(folder), "policy": job.path, "model": job.name, "version": job.version, "target": target}
        # what to sign comes from here and not from the report
        named |= {"uri": job.uri, "nonce": (folder / NONCE).read_text(encoding="ascii")}
        self.settings.sign(named)
        self.counts.signed += 1
        if not self._counts(guard, job):
            raise StatementError("the signer command ended well, but no statement counts")
        self._record("approved", job, "sign")

    def _result(self, job: _Job) -> bool | None:
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

    def _counts(self, guard: Guard, job: _Job) -> bool:
        """Whether a statement lets the version be released as the target, as the guarded store asks."""
        row, text = row_and_statement(self.client, job.name, job.version)
        terms = Terms(guard.registry, job.policy.digest, job.policy.name, guard.accept_advisory)
        try:
            check(text, guard.trust, row, terms, target=job.target, now=times.now())
        except StatementError:
            return False
        return True

    def _move(self, guard: Guard, job: _Job, target: str) -> None:
        with answering(f"reading aliases of {job.name}"):
            present = dict(self.client.get_registered_model(job.name).aliases).get(target)
        if present is not None and int(present) >= int(job.version):
            return  # never back: a later version was released meanwhile, and going back is a person's decision
        verify(job.uri, guard, target=target, tracking_uri=str(self.client.tracking_uri))
        with answering(f"setting alias {target!r} of {job.name} to version {job.version}"):
            self._record("asked", job, "move")
            self.client.set_registered_model_alias(job.name, target, job.version)
        self._record("released", job, "move")
        self.counts.moved += 1
        logger.info("%s is now @%s", job.uri, target)

    def _record(self, event: str, job: _Job, doing: str, *, why: str = "") -> None:
        """Append to the audit log; what cannot be recorded is not done."""
        if self.settings.audit is not None:
            said = {"doing": doing, "model": job.name, "version": job.version, "target": job.target or "", "by": BY}
            self.settings.audit.record(event, **said, policy=job.policy.digest, why=why)

    def _put_off(self, name: str, version: str, asked: str, exc: PrivgateError) -> None:
        """Try again later, twice as late each time, and say why in a tag; asking anew is tried at once."""
        before = self._later.get((name, version), (0.0, _FIRST_WAIT / 2, ""))
        wait = min(2 * before[1], _LONGEST_WAIT)
        self._later[name, version] = (time.monotonic() + wait, wait, _what(asked))
        self.counts.problems += 1
        logger.warning("models:/%s/%s: %s; again in %.0f s", name, version, exc, wait)
        try:
            if self.settings.audit is not None:
                said = {"doing": "attend", "model": name, "version": version, "by": BY}
                self.settings.audit.record("refused", **said, why=str(exc))
            self._say(name, version, str(exc))
        except (RegistryError, StatementError) as later:
            logger.warning("%s", later)

    def _say(self, name: str, version: str, text: str) -> None:
        said = text[:500]
        with answering(f"writing to models:/{name}/{version}"):
            if dict(self.client.get_model_version(name, version).tags).get(PROBLEM_TAG, "") != said:
                self.client.set_model_version_tag(name, version, PROBLEM_TAG, said)


def _what(asked: str) -> str:
    return asked.split(";", 1)[0]


def _pages(search: Callable[..., Any], *query: str) -> Iterator[Any]:
    token = None
    while True:
        page = search(*query, max_results=1000, page_token=token)
        yield from page
        token = page.token
        if not token:
            return
