"""What a worker of this machine answers, as bytes, and how its parent reads them: nothing in them is unpickled.

A frame is its length (8 bytes), then the call's nonce (16 bytes), one byte that says what follows, and that: answers in
the ledger's own form, or JSON. In the other direction the parent, which the worker has to trust, sends pickles.
"""

import json
import struct
from collections.abc import Sequence
from typing import Any

import numpy as np

from privgate.training import ledger
from privgate.training.fit import Answer, failed

LENGTH = struct.Struct("<Q")
NONCE = 16  # bytes
#: bytes of JSON that are read at most
MOST_JSON = 1 << 24
_ENTRY = struct.Struct("<QB")
_COUNT = struct.Struct("<I")
#: what an answer takes beside its numbers: head and the sentence about a problem
_AROUND = 4096
_LONGEST_PROBLEM = 500  # letters


class GoneError(Exception):
    """The worker ended, hung, or answered what no worker of ours would."""


def frame(body: bytes) -> bytes:
    """Return a body with its length before it."""
    return LENGTH.pack(len(body)) + body


def encoded(nonce: bytes, result: Any) -> bytes:
    """Return what a call gave as a reply: answers, one answer, or a JSON value."""
    if isinstance(result, Answer):
        result = [result]
    if isinstance(result, list) and all(isinstance(a, Answer) for a in result):
        entries = (_ENTRY.pack(len(body := ledger.encode(a)), a.lasting) + body for a in result)
        return b"".join([nonce, b"A", _COUNT.pack(len(result)), *entries])
    return nonce + b"J" + json.dumps(result).encode()


def most_bytes(shapes: Sequence[tuple[int, int]]) -> int:
    """Return how long a reply with answers of these shapes may be."""
    return NONCE + 1 + _COUNT.size + sum(_ENTRY.size + _AROUND + 8 * rows * columns for rows, columns in shapes)


def answers(body: bytes, nonce: bytes, shapes: Sequence[tuple[int, int]]) -> list[Answer]:
    """Return the answers in a reply, as received without its length; ``GoneError`` where it is anything else.

    A reply written before the call does not know its ``nonce``. An answer without a problem has its shape.
    """
    _begin(body, nonce, b"A")
    try:
        (count,), at = _COUNT.unpack_from(body, NONCE + 1), NONCE + 1 + _COUNT.size
        if count != len(shapes):
            raise GoneError(f"{count} answers to {len(shapes)} calls")
        read = []
        for shape in shapes:
            size, lasting = _ENTRY.unpack_from(body, at)
            at += _ENTRY.size
            read.append(_answer(body[at : at + size], shape, lasting=bool(lasting)))
            at += size
    except (struct.error, ValueError, OverflowError) as exc:
        raise GoneError("a reply that is none") from exc
    if at != len(body):
        raise GoneError("more than a reply")
    return read


def json_value(body: bytes, nonce: bytes) -> Any:
    """Return the JSON value in a reply; ``GoneError`` where it is none."""
    _begin(body, nonce, b"J")
    try:
        return json.loads(body[NONCE + 1 :])
    except (ValueError, RecursionError) as exc:
        raise GoneError("a reply that is no JSON") from exc


def _begin(body: bytes, nonce: bytes, kind: bytes) -> None:
    if not body.startswith(nonce + kind):
        raise GoneError("a reply to another call")


def _answer(body: bytes, shape: tuple[int, int], *, lasting: bool) -> Answer:
    answer = ledger.decode(body)
    problem = "".join(c for c in answer.problem if c.isprintable())[:_LONGEST_PROBLEM]
    if not (np.isfinite(answer.seconds) and answer.seconds >= 0):
        raise GoneError("a time that is none")
    if problem and answer.log_p.size == 0:
        return failed(problem, lasting=lasting, seconds=answer.seconds)
    if problem or answer.log_p.shape != shape:
        raise GoneError(f"an answer of shape {answer.log_p.shape} instead of {shape}")
    if not (answer.log_p < np.inf).all():  # NaN as well
        raise GoneError("numbers that are no logarithms of probabilities")
    return answer
