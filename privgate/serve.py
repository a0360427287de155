"""Automatic checks: whatever a registered model asks for is checked or promoted, each in a process with a clock.

A version asks by the tag ``privgate.request``, policy or policy and alias. The registry holds all state: a request is
removed when it is answered, and a restart begins again with what is still asked for.
"""

import base64
import contextlib
import hashlib
import hmac
import logging
import os
import runpy
import signal
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from subprocess import PIPE, STDOUT, Popen, TimeoutExpired
from typing import Any

from privgate.errors import ExitCode, PrivgateError, RegistryError, UsageError
from privgate.guard.config import Guard
from privgate.policy import Policy
from privgate.registry.client import answering, list_pages
from privgate.registry.files import VARIABLE as SOURCES
from privgate.registry.files import path_part

logger = logging.getLogger(__name__)

TAG, PROBLEM_TAG = "privgate.request", "privgate.problem"
#: seconds that a webhook's delivery may be old or ahead; bytes of it; seconds that the registry may take for one look
WINDOW, LARGEST_BODY, PATIENCE = 300, 1 << 20, 300.0
#: seconds until what failed is tried again, doubled each time
FIRST_WAIT, LONGEST_WAIT = 30.0, 3600.0
#: what this process knows and untrusted training code must not find in its environment
SECRETS = ("PRIVGATE_SIGNING_KEY", "PRIVGATE_WEBHOOK_SECRET")
_ANSWERS = {ExitCode.PASSED, ExitCode.UNSIGNED, ExitCode.FAILED, ExitCode.INCONCLUSIVE}


@dataclass
class Server:
    """Looks at the registry and answers each version that asks; the client has no right to sign."""

    client: Any
    #: the guard's configuration, read at every look
    config: Path
    #: name -> what ``--policy`` takes: a tag is written by anybody, and must not name files. The first is the default
    policies: Mapping[str, str]
    #: where reports lie until they are signed; only the checking user writes it
    work: Path
    #: more options of ``privgate check`` and ``privgate promote``
    options: Sequence[str] = ()
    #: hands an approval to the signer; without one, whoever signs an approval asks again
    sign_command: str | None = None
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
                self.answer(guard, name, version, text)
            except (PrivgateError, ValueError) as exc:  # of a name that no command line takes
                self._put_off(name, version, text, exc)
        self.moved_on = time.monotonic()
        return min((when for when, _ in self.later.values()), default=float("inf")) - time.monotonic()

    def _list_requests(self) -> dict[tuple[str, str], str]:
        with answering("listing requests"):
            rows = list(list_pages(self.client.search_model_versions, f"tags.`{TAG}` LIKE '%'"))
        return {(str(row.name), str(row.version)): str(dict(row.tags)[TAG]) for row in rows}

    def answer(self, guard: Guard, name: str, version: str, text: str) -> None:
        """Run the command that a request needs, and remove the request; ``PrivgateError``: it has to be tried again."""
        words = self.choose_command(guard, name, version, text)
        uri = f"models:/{name}/{version}"
        folder = self.work / f"{path_part(name)}-{version}"
        folder.mkdir(parents=True, exist_ok=True)
        logger.info("%s: %s", uri, words[0])
        self.moved_on = time.monotonic()
        code, said = run_command([*words, f"--report-dir={folder}"], folder / "check.log", self.seconds)
        self.moved_on = time.monotonic()
        logger.info("%s: %s ended with %d: %s", uri, words[0], code, said)
        if code not in _ANSWERS:
            raise RegistryError(f"privgate {words[0]} {uri} ended with {code}: {said}")
        unsigned = "approved, but not signed; sign it and ask again" if code == ExitCode.UNSIGNED else ""
        self._write_tag(name, version, PROBLEM_TAG, unsigned)
        if self._read_tags(name, version).get(TAG) == text:  # else somebody asked again meanwhile
            with answering(f"removing the request of {uri}"):
                self.client.delete_model_version_tag(name, version, TAG)

    def choose_command(self, guard: Guard, name: str, version: str, text: str) -> list[str]:
        """Return the command for a request ``policy[,alias]``, by one of the operator's policies."""
        policies = self.policies
        called, _, target = (part.strip() for part in text.partition(";")[0].partition(","))  # behind it wrote 0.1.0
        if not called and target:  # the guard's own, where this server checks by it
            wanted = guard.terms(target, name).policy_digest
            called = next((c for c, p in policies.items() if Policy.load(p).digest == wanted), "")
        called = called or next(iter(policies))
        if called not in policies:
            raise UsageError(f"the request names policy {called[:100]!r}; this server checks by {', '.join(policies)}")
        words = [f"models:/{name}/{version}", f"--policy={policies[called]}", "--quiet"]
        words += [f"--tracking-uri={self.client.tracking_uri}", *self.options]
        if not target:
            return ["check", *words]
        guard.demands(target, name, Policy.load(policies[called]).digest)
        words += [f"--to={target}", "--forward-only", f"--config={self.config}"]
        return ["promote", *words, *([f"--sign-command={self.sign_command}"] if self.sign_command else [])]

    def _put_off(self, name: str, version: str, text: str, exc: Exception) -> None:
        """Try again later, twice as late each time, and say why in a tag; asking anew is tried at once."""
        wait = min(2 * self.later.get((name, version, text), (0.0, FIRST_WAIT / 2))[1], LONGEST_WAIT)
        logger.warning("models:/%s/%s: %s; again in %.0f s", name, version, exc, wait)
        self.later[name, version, text] = (time.monotonic() + wait, wait)
        try:
            self._write_tag(name, version, PROBLEM_TAG, str(exc)[:500])
        except RegistryError as unsaid:
            logger.warning("%s", unsaid)

    def _read_tags(self, name: str, version: str) -> dict[str, str]:
        with answering(f"reading models:/{name}/{version}"):
            return dict(self.client.get_model_version(name, version).tags)

    def _write_tag(self, name: str, version: str, key: str, value: str) -> None:
        if self._read_tags(name, version).get(key, "") != value:
            with answering(f"writing to models:/{name}/{version}"):
                self.client.set_model_version_tag(name, version, key, value)


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
