"""DSSE envelopes: an in-toto statement as bytes, what a signature is over, and how both are written.

References
----------
DSSE v1.0.2 (``PAE(type, body)``); in-toto Statement v1.
"""

import base64
import binascii
import hashlib
import json
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, Self

from privgate.documents import door, strict_json
from privgate.errors import StatementError

PAYLOAD_TYPE = "application/vnd.in-toto+json"
STATEMENT_TYPE = "https://in-toto.io/Statement/v1"


def pae(payload_type: str, body: bytes) -> bytes:
    """Return the bytes that a DSSE signature is over: type and body with their lengths."""
    kind = payload_type.encode()
    return b"DSSEv1 %d %s %d %s" % (len(kind), kind, len(body), body)


@dataclass(frozen=True)
class Envelope:
    """A signed payload.

    Parameters
    ----------
    payload : bytes
        What was signed.
    signatures : tuple of (key id, signature)
        At least one.
    payload_type : str
        Signed too.
    """

    payload: bytes
    signatures: tuple[tuple[str, bytes], ...]
    payload_type: str = PAYLOAD_TYPE

    @property
    def signed(self) -> bytes:
        """The bytes under the signatures."""
        return pae(self.payload_type, self.payload)

    @property
    def statement(self) -> dict[str, Any]:
        """The in-toto statement; believe it only after its signature was verified.

        Raises
        ------
        StatementError
            The payload is no in-toto statement.
        """
        try:
            value = strict_json.loads(self.payload)
        except ValueError as exc:
            raise StatementError(f"the statement's payload cannot be read: it {exc}") from exc
        if not isinstance(value, dict) or value.get("_type") != STATEMENT_TYPE or self.payload_type != PAYLOAD_TYPE:
            raise StatementError("the envelope holds no in-toto statement")
        return value

    def text(self) -> str:
        """Return the envelope as JSON on one line."""
        signatures = [{"keyid": k, "sig": base64.b64encode(s).decode()} for k, s in self.signatures]
        content = {
            "payload": base64.b64encode(self.payload).decode(),
            "payloadType": self.payload_type,
            "signatures": signatures,
        }
        return json.dumps(content, separators=(",", ":"))

    @classmethod
    def parse(cls, text: str) -> Self:
        """Return the envelope that ``text`` writes.

        Raises
        ------
        StatementError
            It is no envelope, or holds no signature.
        """
        try:
            raw = strict_json.loads(text)
            signatures = tuple((str(s["keyid"]), _bytes(s["sig"])) for s in raw["signatures"])
            made = cls(_bytes(raw["payload"]), signatures, str(raw["payloadType"]))
        except door.GARBLED as exc:
            raise StatementError(f"the statement is no DSSE envelope ({type(exc).__name__})") from exc
        if not signatures:
            raise StatementError("the statement carries no signature")
        return made


def _bytes(text: str) -> bytes:
    try:
        return base64.b64decode(text, validate=True)
    except binascii.Error as exc:
        raise ValueError("not base64") from exc


def payload(statement: Mapping[str, Any]) -> bytes:
    """Return a statement as bytes, always the same for the same statement."""
    return json.dumps(statement, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()


def payload_digest(body: bytes) -> str:
    """Return ``sha256:<hex>`` of a payload."""
    return "sha256:" + hashlib.sha256(body).hexdigest()
