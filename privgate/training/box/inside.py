"""The worker in a box: takes calls from its parent over one socket, makes them, answers in numbers or JSON.

This is the one place where code of the user's runs, so whatever is to be watched about it (files read, randomness
drawn) is watched from here.
"""

import os
import pickle
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privgate.training import worker
from privgate.training.box import bubblewrap, wire


@dataclass(frozen=True)
class Call:
    """What a parent asks for.

    Parameters
    ----------
    nonce : bytes
        Comes back with the answer.
    function : callable
        Of privgate's own, by name.
    arguments : tuple
    named : dict
    """

    nonce: bytes
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]


def main(descriptor: int, memory: int, *, network: bool = False) -> None:
    """Serve calls until the parent closes its end."""
    bubblewrap.confine(memory, network=network)
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, errors="backslashreplace")  # a box is ended without a warning
    worker.start(worker.WorkerSettings())
    with socket.socket(fileno=descriptor) as channel:
        while (body := _received(channel)) is not None:
            call: Call = pickle.loads(body)  # noqa: S301  from the parent, which made this box
            made = call.function(*call.arguments, **call.named)
            channel.sendall(wire.frame(wire.encoded(call.nonce, made)))


def _received(channel: socket.socket) -> bytes | None:
    head = _exactly(channel, wire.LENGTH.size)
    return None if head is None else _exactly(channel, wire.LENGTH.unpack(head)[0])


def _exactly(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
