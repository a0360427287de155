"""A worker of this machine: takes calls from its parent over one socket, makes them, answers in numbers or JSON."""

import gc
import multiprocessing
import os
import pickle
import socket
import sys
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

from privgate.training import worker
from privgate.training.sandbox import bubblewrap, wire


@dataclass(frozen=True)
class Call:
    """What a parent asks for."""

    #: comes back with the answer
    nonce: bytes
    #: of privgate's own, by name
    function: Callable[..., Any]
    arguments: tuple[Any, ...]
    named: dict[str, Any]


def main(descriptor: int, memory: int) -> None:
    """Serve calls in a sandbox until the parent closes its end."""
    bubblewrap.confine(memory)
    gc.set_threshold(20_000)  # of what is imported, nothing is garbage; looking through it is a tenth of the time
    sys.stdout = os.fdopen(os.dup(1), "w", buffering=1, errors="backslashreplace")  # it is ended without a warning
    worker.start(worker.WorkerSettings())
    with socket.socket(fileno=descriptor) as channel:
        _serve(channel)


def without_sandbox(channel: socket.socket, settings: worker.WorkerSettings) -> None:
    """Serve calls as the user who checks, until the parent closes its end."""
    multiprocessing.current_process().daemon = False  # the recipe may start processes of its own
    worker.start(settings)
    with channel:
        _serve(channel)


def _serve(channel: socket.socket) -> None:
    while (head := _receive(channel, wire.LENGTH.size)) is not None:
        if (body := _receive(channel, wire.LENGTH.unpack(head)[0])) is None:
            return
        call: Call = pickle.loads(body)  # noqa: S301  from the parent, which made this process
        result = call.function(*call.arguments, **call.named)
        channel.sendall(wire.frame(wire.encoded(call.nonce, result)))


def _receive(channel: socket.socket, size: int) -> bytes | None:
    parts = bytearray()
    while len(parts) < size:
        part = channel.recv(min(size - len(parts), 1 << 20))
        if not part:
            return None
        parts += part
    return bytes(parts)
