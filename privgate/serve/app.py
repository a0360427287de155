"""Health, metrics and the webhook over HTTP, and the two loops behind them."""

import logging
import threading
import time
from collections.abc import Callable
from typing import Any

from privgate.errors import PrivgateError
from privgate.serve.reconciler import Reconciler
from privgate.serve.settings import ServeCounts
from privgate.serve.sweeper import Swept
from privgate.serve.webhook import Deliveries

logger = logging.getLogger(__name__)

_LARGEST_BODY = 1 << 20


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
