"""Who may wake the reconciler: deliveries that MLflow signed, recently, and each once.

Waking is all they do: what a delivery says is never read, so a forged or lost one changes nothing but the moment.
"""

import base64
import hashlib
import hmac
import threading
import time
from collections.abc import Mapping

#: seconds that a delivery may be old or ahead
WINDOW = 300
_MOST_REMEMBERED = 100_000


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
