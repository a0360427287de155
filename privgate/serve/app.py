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
from typing import Any

from privgate.errors import PrivgateError
from privgate.serve.reconciler import Reconciler

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


logger = logging.getLogger(__name__)

# Health and the webhook over HTTP, and the loop behind them.

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


def application(reconciler: Reconciler, loop: Loop, deliveries: Deliveries | None) -> Any:
    """Return the ASGI application.

    Parameters
    ----------
    reconciler, loop
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
        if now - work.moved_on > work.settings.seconds + loop.every + _PATIENCE:
            return Response("the queue does not move\n", 503)
        # the sentence of a problem may name addresses: it goes to the log, not to whoever asks
        return Response("looking failed; see the log\n", 503) if loop.problem else Response("ok\n")

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
