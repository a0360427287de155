"""In a worker: what learners of libraries are given while training code runs, and how often it draws by record.

A profile function sees every call of ``fit``, of a network, a loss or a data set's constructor with its arguments. Rows
and labels are kept as numbers; what a learner hands on to another inside of it is its own affair.
"""

import _thread
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType
from typing import Any

from privgate.lab.collusion import stand_ins
from privgate.lab.collusion.calls import FITS, Handler, handler
from privgate.lab.collusion.unchanged import learner
from privgate.lab.collusion.watch import Watch
from privgate.training.whose import whose

#: C functions that make numbers out of records
_HASHES = ("_hashlib", "_blake2", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_md5", "_hmac", "zlib", "binascii")


@dataclass
class Profile:
    """The interpreter's profile function for one watch."""

    watch: Watch
    _known: dict[CodeType, Handler | None] = field(default_factory=dict)

    def take(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take one event of the interpreter; what cannot be looked at must not end the watch, as an error would."""
        try:
            self._look(frame, event, arg)
        except Exception as exc:  # noqa: BLE001  arguments are the watched code's own objects, and may do anything
            self.watch.unreadable.add(f"{frame.f_code.co_name} ({type(exc).__name__})")

    def _look(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code not in self._known:
                self._known[code] = handler(frame)
            handle = self._known[code]
            if handle is not None:
                handle(self.watch, frame)
        elif event == "return":
            if self.watch.left_by(frame):
                trained = frame.f_locals.get("self")
                if frame.f_code.co_name in FITS and learner(trained):
                    self.watch.left.note(trained)
        elif event == "c_call" and whose(frame.f_code) == "own":
            self._called(arg)

    def _called(self, function: Any) -> None:
        """Take a call of a C function by the recipe's own code."""
        if function in (sys.getprofile, sys.gettrace):
            self.watch.pried.add("looks for a watch")
        elif function is _thread.start_new_thread:
            self.watch.pried.add("starts a thread past the watch")
        elif _derives(function):
            self.watch.draws += 1


def _derives(function: Any) -> bool:
    """Whether a C function hashes, or seeds a generator."""
    owner, name = getattr(function, "__self__", None), getattr(function, "__name__", "")
    if name in ("digest", "hexdigest", "manual_seed") or (name == "hash" and owner is not None):
        return True
    return getattr(owner, "__name__", "") in _HASHES and name not in ("hexlify", "unhexlify")


@contextmanager
def watched() -> Iterator[Watch]:
    """Note what learners are given and how often randomness is derived, in all threads that start from here."""
    seen = Watch()
    profile = Profile(seen)
    plain = stand_ins.put(seen)
    before = sys.getprofile()
    threading.setprofile(profile.take)
    sys.setprofile(profile.take)
    try:
        yield seen
    finally:
        if sys.getprofile() != profile.take:
            seen.pried.add("switches the watch off")
        sys.setprofile(before)
        threading.setprofile(None)
        stand_ins.taken_away(plain)
