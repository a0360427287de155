"""How one of several reconcilers takes a request: the registry's tags know no compare-and-swap, so time decides.

Fischer's algorithm (Lamport, "A fast mutual exclusion algorithm", 1987, section 2): read that nobody holds it, write
one's name, wait longer than reading and writing may take, and hold it only if the name still stands. A write that came
too late is noticed by its writer, who then waits as for somebody else's lease.
"""

import threading
import time
from collections.abc import Callable
from typing import Any

from privgate.errors import RegistryError
from privgate.registry.client import answering
from privgate.serve.request import TAG, CheckRequest


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
