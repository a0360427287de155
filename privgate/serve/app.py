"""Who may wake the reconciler: deliveries that MLflow signed, recently, and each once.

Waking is all they do: what a delivery says is never read, so a forged or lost one changes nothing but the moment.
"""

import base64
import hashlib
import hmac
import logging
import threading
import time
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from privgate.errors import PrivgateError
from privgate.guard.guard_config import AuditLog, Guard
from privgate.guard.guard_doctor import released
from privgate.guard.verifying import verify
from privgate.serve.reconciler import Reconciler
from privgate.serve.work import ServeCounts

#: seconds that a delivery may be old or ahead
WINDOW = 300
_MOST_REMEMBERED = 100_000  # requests of which a repetition is seen


class Deliveries:
    """Checks signatures as MLflow makes them, and remembers which deliveries came.

    Parameters
    ----------
    secret : bytes
        What the webhook was created with.
    """

    def __init__(self, secret: bytes) -> None:
        self._secret = secret
        self._seen: dict[str, float] = {}
        self._lock = threading.Lock()

    def refusal(self, headers: Mapping[str, str], body: bytes, *, now: float | None = None) -> str:
        """Return why a delivery does not count; empty if it does, and then it does not count again.

        Parameters
        ----------
        headers : mapping
            Case-insensitive or with lower-case names.
        body : bytes
            As received.
        now : float, optional
            Unix time, seconds.
        """
        moment = time.time() if now is None else now
        delivery = headers.get("x-mlflow-delivery-id", "")
        stamp = headers.get("x-mlflow-timestamp", "")
        if not delivery or not stamp.isascii() or not stamp.isdigit() or len(stamp) > 12:
            return "no delivery id or timestamp"
        signed = f"{delivery}.{stamp}.".encode() + body
        wanted = base64.b64encode(hmac.new(self._secret, signed, hashlib.sha256).digest())
        stated = headers.get("x-mlflow-signature", "").encode(errors="replace")
        if not hmac.compare_digest(b"v1," + wanted, stated):
            return "the signature is not valid"
        if abs(moment - int(stamp)) > WINDOW:
            return "the timestamp is too old or ahead"
        return self._once(delivery, moment)

    def _once(self, delivery: str, moment: float) -> str:
        with self._lock:
            # twice the window: a stamp may be a window ahead when it is first seen
            self._seen = {k: t for k, t in self._seen.items() if moment - t <= 2 * WINDOW}
            if delivery in self._seen:
                return "the delivery came before"
            if len(self._seen) >= _MOST_REMEMBERED:
                return "too many deliveries"
            self._seen[delivery] = moment
            return ""


# Does everything that is released still verify: what went around the gate, and what changed behind it.

logger = logging.getLogger(__name__)


@dataclass
class Swept:
    """What the last sweep found: -1 before the first, and where it could not be completed."""

    released: int = -1
    wrong: int = -1
    when: float = 0.0
    #: what did not verify then
    told: frozenset[str] = frozenset()


def sweep(client: Any, config: Path, into: Swept, audit: AuditLog | None = None) -> list[str]:
    """Verify statement and files of everything released, and return one sentence for each that does not verify.

    The audit log gets each sentence when it is new.

    Raises
    ------
    PrivgateError
        The registry cannot be listed or the configuration cannot be used; nothing is known then.
    """
    into.released = into.wrong = -1
    guard = Guard.load(config)
    wrong, seen = [], 0
    for uri, target in dict.fromkeys(released(client, guard)):
        seen += 1
        try:
            verify(uri, guard, target=target or None, tracking_uri=str(client.tracking_uri))
        except PrivgateError as exc:
            wrong.append(f"{uri}{f' as {target!r}' if target else ''} is released but does not verify: {exc}")
            logger.warning("%s", wrong[-1])
            if audit is not None and wrong[-1] not in into.told:
                audit.record("wrong", doing="sweep", model=uri, target=target, why=str(exc))
    into.released, into.wrong, into.when, into.told = seen, len(wrong), time.time(), frozenset(wrong)
    return wrong


# Health, metrics and the webhook over HTTP, and the two loops behind them.

_LARGEST_BODY = 1 << 20  # bytes
_PATIENCE = 300.0  # seconds that the registry may take for one look, beside its longest command


class Loop(threading.Thread):
    """Does something again and again, woken or by time; an error of it is logged and never ends it.

    Parameters
    ----------
    act : callable
        What is done; may return the seconds until something is due again.
    every : float
        The most seconds between two times, unless woken.
    """

    def __init__(self, name: str, act: Callable[[], object], every: float) -> None:
        super().__init__(name=name, daemon=True)
        self.act, self.every = act, every
        self.woken = threading.Event()
        self.problem = ""
        self.fine_at = time.monotonic()

    def run(self) -> None:
        """Act until the process ends."""
        while True:
            self.woken.clear()
            due: object = None
            try:
                due = self.act()
            except PrivgateError as exc:
                self.problem = str(exc)
                logger.warning("%s: %s; trying again", self.name, exc)
            except Exception as exc:  # the loop is what must survive: the next look starts from the registry
                self.problem = type(exc).__name__
                logger.exception("%s: a bug in privgate; trying again", self.name)
            else:
                self.problem, self.fine_at = "", time.monotonic()
            self.woken.wait(min(self.every, max(due, 1.0)) if isinstance(due, float) else self.every)


def metrics(counts: ServeCounts, swept: Swept, loop: Loop) -> str:
    """Return the figures in Prometheus' text format."""
    lines = [
        ("privgate_requests_pending", "gauge", "", counts.pending),
        *(("privgate_checks_total", "counter", f'{{result="{k}"}}', n) for k, n in counts.checks.items()),
        ("privgate_signed_total", "counter", "", counts.signed),
        ("privgate_aliases_moved_total", "counter", "", counts.moved),
        ("privgate_problems_total", "counter", "", counts.problems),
        ("privgate_last_look_timestamp_seconds", "gauge", "", counts.looked),
        ("privgate_released", "gauge", "", swept.released),
        ("privgate_released_wrong", "gauge", "", swept.wrong),
        ("privgate_last_sweep_timestamp_seconds", "gauge", "", swept.when),
        ("privgate_up", "gauge", "", int(not loop.problem)),
    ]
    said: list[str] = []
    for name, kind, labels, value in lines:
        if f"# TYPE {name} {kind}" not in said:
            said.append(f"# TYPE {name} {kind}")
        said.append(f"{name}{labels} {value}")
    return "\n".join(said) + "\n"


def application(reconciler: Reconciler, loop: Loop, swept: Swept, deliveries: Deliveries | None) -> Any:
    """Return the ASGI application.

    Parameters
    ----------
    reconciler, loop, swept
        What is served about.
    deliveries : Deliveries, optional
        Without it, nobody wakes the reconciler and the webhook answers 404.
    """
    from fastapi import FastAPI, Request, Response

    app = FastAPI(docs_url=None, redoc_url=None, openapi_url=None)

    @app.get("/health")
    def health() -> Response:
        if not loop.is_alive():
            return Response("the reconciler ended\n", 503)
        work, now = reconciler.work, time.monotonic()
        if now - work.seen.moved_on > work.settings.seconds + loop.every + _PATIENCE:
            return Response("the queue does not move\n", 503)
        # the sentence of a problem may name addresses: it goes to the log, not to whoever asks
        return Response("looking failed; see the log\n", 503) if loop.problem else Response("ok\n")

    @app.get("/metrics")
    def figures() -> Response:
        return Response(metrics(reconciler.work.seen, swept, loop), media_type="text/plain; version=0.0.4")

    if deliveries is not None:

        @app.post("/webhook")
        async def webhook(request: Request) -> Response:
            body = b""
            async for part in request.stream():
                body += part
                if len(body) > _LARGEST_BODY:
                    return Response("too large\n", 413)
            if why := deliveries.refusal(request.headers, body):
                logger.warning("a webhook delivery was refused: %s", why)
                return Response("refused\n", 403)
            loop.woken.set()
            return Response("woken\n", 202)

    return app
