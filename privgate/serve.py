"""Automatic checks: whatever a registered model asks for is checked or promoted, each in a process with a clock.

A version asks by the tag ``privgate.request`` (policy, or policy and alias) or by the alias ``candidate``. The registry
holds all state, so a restart loses nothing: a statement that counts needs no check, a result decided since the work
began needs no second one, an alias that is moved ends the request.
"""

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import re
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from typing import Any, Self

from privgate.errors import ExitCode, PolicyError, PrivgateError, RegistryError, StatementError, UsageError
from privgate.guard import statement
from privgate.guard.audit_log import AuditLog
from privgate.guard.checks import check, row_and_statement
from privgate.guard.config import Guard, Terms
from privgate.policy import Policy
from privgate.registry.client import answering, list_pages
from privgate.registry.files import VARIABLE as SOURCES
from privgate.registry.files import path_part

logger = logging.getLogger(__name__)

TAG, PROBLEM_TAG, CANDIDATE = "privgate.request", "privgate.problem", "candidate"
#: seconds that a webhook's delivery may be old or ahead; bytes of it; seconds that the registry may take for one look
WINDOW, LARGEST_BODY, PATIENCE = 300, 1 << 20, 300.0
#: seconds until what failed is tried again, doubled each time
FIRST_WAIT, LONGEST_WAIT = 30.0, 3600.0
#: what this process knows and untrusted training code must not find in its environment
SECRETS = ("PRIVGATE_SIGNING_KEY", "PRIVGATE_WEBHOOK_SECRET")
_ANSWERS = {ExitCode.PASSED, ExitCode.UNSIGNED, ExitCode.FAILED, ExitCode.INCONCLUSIVE}


@dataclass(frozen=True)
class CheckRequest:
    """The tag ``privgate.request``: ``policy[,alias][;since]``, since when work on it goes on (Unix time), or 0."""

    policy: str = ""
    target: str = ""
    since: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the request that a tag's value states; ``UsageError`` where it means nothing."""
        wish, *rest = text.split(";")
        policy, _, target = (part.strip() for part in wish.partition(","))
        if not (len(rest) in {0, 1, 3} and all(re.fullmatch("[0-9]{1,12}", since) for since in rest[-1:])):
            raise UsageError(f"tag {TAG} is {text[:100]!r}; write policy or policy,alias")
        return cls(policy, target, int(rest[-1]) if rest else 0)

    def text(self) -> str:
        """Return the tag's value."""
        return f"{self.policy}{self.target and f',{self.target}'}{f';{self.since}' if self.since else ''}"


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


@dataclass
class Server:
    """Looks at the registry and does the next thing for each version that asks; the client has no right to sign."""

    client: Any
    #: the guard's configuration, read at every look
    config: Path
    #: name -> what ``--policy`` takes: a tag is written by anybody, and must not name files. The first is the default
    policies: Mapping[str, str]
    #: where reports lie until they are signed; only the checking user writes it
    work: Path
    #: more options of ``privgate check`` and ``privgate promote``
    options: Sequence[str] = ()
    #: hands an approval to the signer; without one, an approval waits for a signature from elsewhere
    sign_command: str | None = None
    #: alias to move for an approved candidate; empty for none
    candidate_target: str = ""
    audit: AuditLog | None = None
    #: of one command; then it is ended, and nothing is approved
    seconds: float = 86400.0
    #: when something was last begun or done, by the clock that never goes back
    moved_on: float = field(default_factory=time.monotonic)
    #: (name, version, request) that failed -> (not before, wait)
    later: dict[tuple[str, str, str], tuple[float, float]] = field(default_factory=dict)

    def look(self) -> float:
        """Look once; return the seconds until something is due that failed before, infinity if nothing is."""
        guard, requests = Guard.load(self.config), self._list_requests()
        self.later = {k: v for k, v in self.later.items() if requests.get(k[:2]) == k[2]}
        # the oldest version first, so that an alias is moved forward
        for (name, version), text in sorted(requests.items(), key=lambda item: (item[0][0], int(item[0][1]))):
            if time.monotonic() < self.later.get((name, version, text), (0.0, 0.0))[0]:
                continue
            try:
                self._attend(guard, name, version, text)
            except PrivgateError as exc:
                self._put_off(name, version, text, exc)
        self.moved_on = time.monotonic()
        return min((when for when, _ in self.later.values()), default=float("inf")) - time.monotonic()

    def _list_requests(self) -> dict[tuple[str, str], str]:
        """Return (name, version) -> the tag's value of everything that asks; of candidates an empty value."""
        requests: dict[tuple[str, str], str] = {}
        with answering("listing candidates"):
            for model in list_pages(self.client.search_registered_models):
                if (version := dict(model.aliases or {}).get(CANDIDATE)) is not None:
                    requests[str(model.name), str(version)] = ""
        with answering("listing requests"):
            for row in list_pages(self.client.search_model_versions, f"tags.`{TAG}` LIKE '%'"):
                requests[str(row.name), str(row.version)] = str(dict(row.tags)[TAG])
        return requests

    def _attend(self, guard: Guard, name: str, version: str, text: str) -> None:
        request = CheckRequest.parse(text) if text else CheckRequest(target=self.candidate_target)
        job = self._resolve(guard, name, version, request)
        step = self.choose_step(guard, job)
        # a candidate's alias stays when it is answered; nor does a statement move it: somebody may have withdrawn it
        if step in {"", "wait"} or self.counts(guard, job) if not text else job.since and step == "wait":
            return
        if not request.since:  # that work began is written first: whoever goes on from here makes no second check
            request = replace(request, since=int(time.time()))
            self._write_tag(name, version, TAG, request.text())
        if self.answer(guard, replace(job, since=request.since)):
            if self._read_tags(name, version).get(TAG) == request.text():  # else somebody asked again meanwhile
                with answering(f"removing the request of models:/{name}/{version}"):
                    self.client.delete_model_version_tag(name, version, TAG)
            self._write_tag(name, version, PROBLEM_TAG, "")

    def _resolve(self, guard: Guard, name: str, version: str, request: CheckRequest) -> Job:
        policies, called, target = self.policies, request.policy, request.target or None
        if not called and target is not None:  # the guard's own, where this server checks by it
            wanted = guard.terms(target, name).policy_digest
            called = next((c for c, p in policies.items() if Policy.load(p).digest == wanted), "")
        called = called or next(iter(policies))
        if called not in policies:
            known = ", ".join(policies)
            raise UsageError(f"the request names policy {called[:100]!r}; this server checks by {known}")
        policy = Policy.load(policies[called])
        if target is not None:
            guard.demands(target, name, policy.digest)
        return Job(name, version, policy, policies[called], target, request.since)

    def _put_off(self, name: str, version: str, text: str, exc: PrivgateError) -> None:
        """Try again later, twice as late each time, and say why in a tag; asking anew is tried at once."""
        wait = min(2 * self.later.get((name, version, text), (0.0, FIRST_WAIT / 2))[1], LONGEST_WAIT)
        logger.warning("models:/%s/%s: %s; again in %.0f s", name, version, exc, wait)
        try:
            text = self._read_tags(name, version).get(TAG, "")  # it may say since when
            self._append("refused", "attend", name, version, why=str(exc))
            self._write_tag(name, version, PROBLEM_TAG, str(exc)[:500])
        except (RegistryError, StatementError) as unsaid:
            logger.warning("%s", unsaid)
        self.later[name, version, text] = (time.monotonic() + wait, wait)

    def _read_tags(self, name: str, version: str) -> dict[str, str]:
        with answering(f"reading models:/{name}/{version}"):
            return dict(self.client.get_model_version(name, version).tags)

    def _write_tag(self, name: str, version: str, key: str, value: str) -> None:
        if self._read_tags(name, version).get(key, "") != value:
            with answering(f"writing to models:/{name}/{version}"):
                self.client.set_model_version_tag(name, version, key, value)

    def choose_step(self, guard: Guard, job: Job) -> str:
        """Return the command that is to run, ``wait`` for a signature from elsewhere, or nothing."""
        counts = self.counts(guard, job)
        result = True if counts else self.result(job)
        if result is None:
            return "promote" if job.target else "check"
        if not result or job.target is None or self._read_alias(job) > int(job.version):
            return ""  # not back: going back to an earlier version is a person's decision
        return "promote" if counts or self.sign_command else "wait"

    def answer(self, guard: Guard, job: Job) -> bool:
        """Run the command that is to run; return whether the request is answered."""
        step, counted = self.choose_step(guard, job), self.counts(guard, job)
        if step in {"", "wait"}:
            return not step
        logger.info("%s: %s", job.uri, step)
        self._record("asked", step, job)
        self.moved_on = time.monotonic()
        code, words = self._run(step, job)
        self.moved_on = time.monotonic()
        if code not in _ANSWERS:
            raise RegistryError(f"privgate {step} {job.uri} ended with {code}: {words}")
        if code != ExitCode.PASSED:
            self._record("refused", step, job, why=f"privgate {step} ended with {code}: {words}")
        elif step == "promote":
            self._confirm_promotion(guard, job, signed=not counted)
        return code != ExitCode.UNSIGNED

    def _run(self, step: str, job: Job) -> tuple[int, str]:
        folder = self.work / f"{path_part(job.name)}-{job.version}-{path_part(job.policy.name)}"
        folder.mkdir(parents=True, exist_ok=True)
        if self.result(job) is None:  # asked anew: an older report is not gone on from
            (folder / "report.json").unlink(missing_ok=True)
        words = [step, job.uri, f"--policy={job.path}", f"--report-dir={folder}", "--quiet"]
        words += [f"--tracking-uri={self.client.tracking_uri}", *self.options]
        if step == "promote":
            words += [f"--to={job.target}", "--forward-only", f"--config={self.config}"]
            words += [f"--sign-command={self.sign_command}"] if self.sign_command else []
        return run_command(words, folder / "check.log", self.seconds)

    def _confirm_promotion(self, guard: Guard, job: Job, *, signed: bool) -> None:
        """Note what the registry has of a promotion that ended well; its word alone is nothing."""
        held = self._read_alias(job)
        if held > int(job.version):
            self._record("refused", "promote", job, why=f"version {held} was released meanwhile")
            return
        if held < int(job.version) or not self.counts(guard, job):
            raise StatementError(f"the promotion of {job.uri} ended well, but no statement counts for @{job.target}")
        if signed:
            self._record("approved", "sign", job)
        self._record("released", "promote", job)
        logger.info("%s is now @%s", job.uri, job.target)

    def _read_alias(self, job: Job) -> int:
        """Return the version that has the alias; 0 if none has."""
        with answering(f"reading aliases of {job.name}"):
            return int(dict(self.client.get_registered_model(job.name).aliases).get(str(job.target), 0))

    def result(self, job: Job) -> bool | None:
        """Return whether the attached result approves; None if there is none under this policy since work began."""
        # the tags are display: a forged one spares a check, and without a statement nothing follows from that
        tags = self._read_tags(job.name, job.version)
        # the last tag that a check attaches; without it the attaching was interrupted
        if tags.get("privgate.policy_digest") != job.policy.digest or "privgate.findings" not in tags:
            return None
        with contextlib.suppress(StatementError):
            decided = statement.when(tags.get("privgate.decided_at", ""))
            if decided.timestamp() >= job.since and (statement.now() - decided).days < job.policy.valid_days:
                return tags.get("privgate.outcome") in {"passed", "warned"}
        return None

    def counts(self, guard: Guard, job: Job) -> bool:
        """Whether a statement lets the version be released as the target, as the guarded store asks."""
        row, text = row_and_statement(self.client, job.name, job.version)
        try:
            terms = guard.terms(job.target, job.name)
        except PolicyError:  # nothing is released as that: what counts is whether it was checked and signed
            advisory, unboxed = guard.accept_advisory, guard.accept_unboxed
            terms = Terms(guard.registry, "", accept_advisory=advisory, accept_unboxed=unboxed)
        terms = replace(terms, policy_digest=job.policy.digest, policy=job.policy.name)
        with contextlib.suppress(StatementError):
            check(text, guard.trust, row, terms, target=job.target, now=statement.now())
            return True
        return False

    def _record(self, event: str, doing: str, job: Job, *, why: str = "") -> None:
        self._append(event, doing, job.name, job.version, target=job.target or "", policy=job.policy.digest, why=why)

    def _append(self, event: str, doing: str, name: str, version: str, **more: str) -> None:
        if self.audit is not None:  # what cannot be recorded is not done
            self.audit.record(event, doing=doing, model=name, version=version, by="privgate guard serve", **more)


def environment(*secret: str) -> dict[str, str]:
    """Return this process's environment for work on anybody's word: no secrets, no sources but the operator's."""
    return {SOURCES: "", **{k: v for k, v in os.environ.items() if k not in (*SECRETS, *secret)}}


def run_command(words: Sequence[str], log: Path, seconds: float) -> tuple[int, str]:
    """Return privgate's exit code and last words; the end of its time ends it and all that it started."""
    command = [sys.executable, "-m", "privgate.serve", *words]
    with log.open("wb") as out:
        process = Popen(command, stdin=PIPE, stdout=out, stderr=STDOUT, env=environment(), start_new_session=True)  # noqa: S603  our own command line, without a shell
        try:
            process.wait(timeout=seconds)
        except TimeoutExpired:
            return -signal.SIGKILL, f"it took more than {seconds:.0f} s (--check-seconds) and was ended"
        finally:  # of its group, workers included, nobody stays
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(process.pid, signal.SIGKILL)
            process.communicate()
    lines = [line for line in log.read_text(encoding="utf-8", errors="replace").splitlines() if line.strip()]
    return process.returncode, lines[-1][:300] if lines else ""


def run_as_child() -> None:
    """Run the command line, which ends when its starter does: however that ends, kill -9 included, stdin ends then."""
    if not os.fork():  # a thread would wait for code that holds the interpreter
        while os.read(0, 1):
            pass
        os.killpg(os.getpgid(0), signal.SIGKILL)
    runpy.run_module("privgate", run_name="__main__", alter_sys=True)


def refuse_delivery(secret: bytes, headers: Mapping[str, str], body: bytes, now: float | None = None) -> str:
    """Return why a webhook's delivery is not MLflow's own of these minutes; empty if it is. It only wakes."""
    delivery, stamp = (headers.get(f"x-mlflow-{name}", "") for name in ("delivery-id", "timestamp"))
    if not delivery or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12:
        return "no delivery id or timestamp"
    signed = hmac.new(secret, f"{delivery}.{stamp}.".encode() + body, hashlib.sha256).digest()
    stated = headers.get("x-mlflow-signature", "").encode(errors="replace")
    if not hmac.compare_digest(b"v1," + base64.b64encode(signed), stated):
        return "the signature is not valid"
    late = abs((time.time() if now is None else now) - int(stamp)) > WINDOW
    return "the timestamp is too old or ahead" if late else ""


class Loop(threading.Thread):
    """Looks again and again, woken or at most every so many seconds; an error is logged and never ends it."""

    def __init__(self, look: Callable[[], float], every: float) -> None:
        super().__init__(name="looking", daemon=True)
        self.look, self.every, self.woken, self.problem = look, every, threading.Event(), ""

    def run(self) -> None:
        """Look until the process ends."""
        while True:
            self.woken.clear()
            due = self.every
            try:
                due, self.problem = self.look(), ""
            except PrivgateError as exc:
                self.problem = str(exc)
                logger.warning("%s; trying again", exc)
            except Exception as exc:  # the loop is what must survive: the next look starts from the registry
                self.problem = type(exc).__name__
                logger.exception("a bug in privgate; trying again")
            self.woken.wait(min(self.every, max(due, 1.0)))


def make_application(server: Server, loop: Loop, secret: bytes | None) -> Any:
    """Return the ASGI application; without a secret nobody wakes the loop, and the webhook answers 404."""
    from fastapi import FastAPI, Request, Response

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    def health() -> Response:
        if not loop.is_alive():
            return Response("the loop ended\n", 503)
        if time.monotonic() - server.moved_on > server.seconds + loop.every + PATIENCE:
            return Response("the queue does not move\n", 503)
        # the sentence of a problem may name addresses: it goes to the log, not to whoever asks
        return Response("looking failed; see the log\n", 503) if loop.problem else Response("ok\n")

    @app.post("/webhook")
    async def webhook(request: Request) -> Response:
        if secret is None:
            return Response("no webhook\n", 404)
        body = b""
        async for part in request.stream():
            body += part
            if len(body) > LARGEST_BODY:
                return Response("too large\n", 413)
        if why := refuse_delivery(secret, request.headers, body):
            logger.warning("a webhook delivery was refused: %s", why)
            return Response("refused\n", 403)
        loop.woken.set()
        return Response("woken\n", 202)

    return app


if __name__ == "__main__":
    run_as_child()
