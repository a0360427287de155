"""What a version asks for, and who works on it: the value of one tag, so that one write changes both."""

import logging
import math
import threading
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, replace
from typing import Any, Self

from privgate.errors import PrivgateError, RegistryError, StatementError, UsageError
from privgate.guard.guard_config import Guard
from privgate.policy import Policy
from privgate.registry.client import answering
from privgate.serve.work import BY, Job, ServeSettings, Work

TAG = "privgate.request"


@dataclass(frozen=True)
class CheckRequest:
    """The value of the tag ``privgate.request``: ``policy[,alias][;holder;until;since]``.

    Parameters
    ----------
    policy : str
        Name of one of the operator's policies; empty for the first.
    target : str
        Alias to move when the version is approved; empty for none.
    holder : str
        Who works on it; empty for nobody.
    until : float
        When the holder's lease ends, Unix time, seconds.
    since : int
        When work on this request first began, Unix time, seconds; 0 if it has not. A result decided since then answers
        it, whoever began; asking again is a new request.
    """

    policy: str = ""
    target: str = ""
    holder: str = ""
    until: float = 0.0
    since: int = 0

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the request that a tag's value states.

        Raises
        ------
        UsageError
            The value means nothing.
        """
        asked, *lease = text.split(";")
        policy, _, target = (part.strip() for part in asked.partition(","))
        if not lease:
            return cls(policy, target)
        try:
            holder, until, since = lease
            return cls(policy, target, holder, float(until), int(since))
        except ValueError as exc:
            raise UsageError(f"tag {TAG} is {text[:100]!r}; write policy or policy,alias") from exc

    def text(self) -> str:
        """Return the tag's value."""
        asked = f"{self.policy},{self.target}" if self.target else self.policy
        return f"{asked};{self.holder};{self.until:.3f};{self.since}" if self.since else asked

    def held(self, now: float) -> bool:
        """Whether somebody works on it; NaN and infinity, which nobody of ours writes, hold nothing."""
        return bool(self.holder) and now < self.until < now + 86400

    def taken(self, holder: str, now: float, seconds: float) -> Self:
        """Return the request as ``holder`` works on it."""
        return replace(self, holder=holder, until=now + seconds, since=self.since or int(now))

    def free(self) -> Self:
        """Return the request as nobody works on it; that work began stays known."""
        return replace(self, holder="", until=0.0)


# How one of several reconcilers takes a request: the registry's tags know no compare-and-swap, so time decides.
#
# Fischer's algorithm (Lamport, "A fast mutual exclusion algorithm", 1987, section 2): read that nobody holds it, write
# one's name, wait longer than reading and writing may take, and hold it only if the name still stands. A write that
# came too late is noticed by its writer, who then waits as for somebody else's lease.


def read(client: Any, name: str, version: str) -> str | None:
    """Return the tag's value, or None where the version asks for nothing."""
    with answering(f"reading models:/{name}/{version}"):
        value = dict(client.get_model_version(name, version).tags).get(TAG)
    return None if value is None else str(value)


class Lease:
    """A request that this reconciler works on; renewed by a thread, given up when it cannot be.

    Parameters
    ----------
    client : MlflowClient
        Of the registry.
    name, version : str
        The model version.
    holder : str
        Unique to this reconciler.
    seconds : float
        How long a lease lasts that is not renewed.
    settle : float
        Seconds to wait before a name that was written counts; a slower write does not count.
    """

    def __init__(self, client: Any, name: str, version: str, *, holder: str, seconds: float, settle: float) -> None:
        self.client, self.name, self.version = client, name, version
        self.holder, self.seconds, self.settle = holder, seconds, settle
        self.request = CheckRequest()
        self.free_at = 0.0
        self.lost = threading.Event()
        self._ended = threading.Event()
        self._thread: threading.Thread | None = None

    def take(self, asked: CheckRequest | None) -> bool:
        """Take the request if nobody holds it; ``asked`` is what is written where no tag stands (a candidate).

        Where it was not taken ``free_at`` says when to look again, Unix time.
        """
        begin = time.monotonic()
        text = read(self.client, self.name, self.version)
        found = asked if text is None else CheckRequest.parse(text)
        self.free_at = time.time() + self.seconds
        if found is None or found.held(time.time()):
            return False
        self.request = found.taken(self.holder, time.time(), self.seconds)
        self._write()
        if time.monotonic() - begin > self.settle / 2:
            # too late to know who else wrote. Whoever did sees that the name is not theirs any more, and gives up
            time.sleep(self.settle)
            self.release()
            self.free_at = time.time() + self.settle
            return False
        time.sleep(self.settle)
        if read(self.client, self.name, self.version) != self.request.text():
            return False
        self._thread = threading.Thread(target=self._renew, daemon=True)
        self._thread.start()
        return True

    def done(self) -> None:
        """Remove the request, which is answered; one that somebody wrote meanwhile stays."""
        self._stop()
        if not self.lost.is_set() and self._ours():
            with answering(f"removing the request of models:/{self.name}/{self.version}"):
                self.client.delete_model_version_tag(self.name, self.version, TAG)

    def release(self) -> None:
        """Let others, or a later look, work on it."""
        self._stop()
        if not self.lost.is_set() and self._ours():
            self.request = self.request.free()
            self._write()

    def _ours(self) -> bool:
        return read(self.client, self.name, self.version) == self.request.text()

    def _write(self) -> None:
        with answering(f"writing the request of models:/{self.name}/{self.version}"):
            self.client.set_model_version_tag(self.name, self.version, TAG, self.request.text())

    def _stop(self) -> None:
        self._ended.set()
        if self._thread is not None:
            self._thread.join()

    def _renew(self) -> None:
        while not self._ended.wait(self.seconds / 4):
            try:
                if not self._ours():
                    self.lost.set()  # somebody asked again, or took it
                    return
                self.request = self.request.taken(self.holder, time.time(), self.seconds)
                self._write()
            except RegistryError:
                # half a lease before the end: what depends on it needs time to stop
                if time.time() > self.request.until - self.seconds / 2:
                    self.lost.set()
                    return


LeaseFor = Callable[[str, str], Lease]


# One look at everything that asks for a check, and what follows from it; nothing is remembered but when to try again.
#
# Each step leaves its mark in the registry, and the next look begins with the marks: a statement that counts needs no
# check, a result decided since the work began needs no second one, an alias that is moved ends the request.

logger = logging.getLogger(__name__)

CANDIDATE = "candidate"
PROBLEM_TAG = "privgate.problem"
_FIRST_WAIT, _LONGEST_WAIT = 30.0, 3600.0  # seconds


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
        self.work = Work(client, settings)
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
        self.work.moved_on = time.monotonic()
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
        left = self.work.left(guard, job)
        # a candidate's alias stays when it is answered; nor does a statement move it: somebody may have withdrawn it
        if left in {"", "wait"} or self.work.counts(guard, job) if not text else job.since and left == "wait":
            return
        lease = self.lease_for(name, version)
        if not lease.take(None if text else request):
            # somebody was quicker, or the registry too slow to tell
            self._free_at = min(self._free_at, lease.free_at)
            return
        try:
            # somebody may have worked on it, or asked for something else, since we looked
            job = self._job(guard, name, version, lease.request)
            finished = self.work.do(guard, job, lease.lost)
        except BaseException:
            lease.release()
            raise
        if finished:
            lease.done()
            self._say(name, version, "")
        else:
            lease.release()

    def _job(self, guard: Guard, name: str, version: str, request: CheckRequest) -> Job:
        called, target = request.policy, request.target or None
        if not called and target is not None:  # the guard's own, where this server checks by it
            wanted = guard.terms(target, name).policy_digest
            called = next((c for c, p in self.settings.policies.items() if Policy.load(p).digest == wanted), "")
        called = called or next(iter(self.settings.policies))
        if called not in self.settings.policies:
            known = ", ".join(self.settings.policies)
            raise UsageError(f"the request names policy {called[:100]!r}; this server checks by {known}")
        path = self.settings.policies[called]
        policy = Policy.load(path)
        if target is not None:
            guard.demands(target, name, policy.digest)
        return Job(name, version, policy, path, target, request.since)

    def _put_off(self, name: str, version: str, asked: str, exc: PrivgateError) -> None:
        """Try again later, twice as late each time, and say why in a tag; asking anew is tried at once."""
        before = self._later.get((name, version), (0.0, _FIRST_WAIT / 2, ""))
        wait = min(2 * before[1], _LONGEST_WAIT)
        self._later[name, version] = (time.monotonic() + wait, wait, _what(asked))
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
