"""In a worker: functions that stand in for generators and seeds, and count how often training code derives randomness.

Python's and numpy's own are C functions or classes, of whose arguments a profile function sees nothing.
"""

import os
import random
import sys
from collections.abc import Callable
from types import FrameType, ModuleType
from typing import Any

import numpy as np

from privgate.lab.collusion.watch import Watch
from privgate.training.whose import asker, of_file

#: numpy's generators and seeds, each of which may be one record's
_GENERATORS = ("RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
#: bits that numpy draws for a generator before it is given its seed
_POOL = 128
#: where something stands in for something: the module or instance, the name there, and what it was
Plain = list[tuple[Any, str, Any]]


def put(seen: Watch) -> Plain:
    """Let functions that count stand in for what randomness is derived from, in recipes' modules too."""
    plain: Plain = []

    def replaced(home: Any, name: str, entropy: Callable[..., bool]) -> None:
        def tell(*args: Any, **kwargs: Any) -> None:
            if asker(sys._getframe(2)) == "own":  # noqa: SLF001  whose call this is
                unseeded = entropy(*args, **kwargs)
                seen.entropy += unseeded
                seen.draws += not unseeded

        real = getattr(home, name)
        made = _told(real, tell)
        homes = [home, *(m for m in list(sys.modules.values()) if _own(m))]
        for one, key in [(h, k) for h in homes for k, v in list(vars(h).items()) if v is real]:
            plain.append((one, key, real))
            setattr(one, key, made)

    for name in ("default_rng", "seed", *_GENERATORS):
        replaced(np.random, name, lambda *args, **named: not [v for v in (*args, *named.values()) if v is not None])
    # 3: from here over two functions of ours to who asks
    replaced(random, "_urandom", lambda *_: not _before_its_seed(sys._getframe(3)))  # noqa: SLF001  ditto
    replaced(os, "urandom", lambda *_: True)
    return plain


def taken_away(plain: Plain) -> None:
    """Put everything back."""
    for home, name, real in reversed(plain):
        setattr(home, name, real)


def _own(module: Any) -> bool:
    file = vars(module).get("__file__") if isinstance(module, ModuleType) else None
    return isinstance(file, str) and of_file(file) == "own"


def _told(real: Any, tell: Callable[..., None]) -> Any:
    """Return what stands in for a function, or a class, and tells of each call."""
    if not isinstance(real, type):

        def call(*args: Any, **kwargs: Any) -> Any:
            tell(*args, **kwargs)
            return real(*args, **kwargs)

        return call

    class Told(type):
        def __call__(cls, *args: Any, **kwargs: Any) -> Any:
            tell(*args, **kwargs)
            return real(*args, **kwargs)

        def __instancecheck__(cls, thing: Any) -> bool:
            return isinstance(thing, real)

        def __subclasscheck__(cls, kind: type) -> bool:
            return issubclass(kind, real)

    return Told(real.__name__, (real,), {})


def _before_its_seed(frame: FrameType | None) -> bool:
    """Whether numpy asks for the randomness that a generator starts from before it is given its seed."""
    return frame is not None and frame.f_code.co_name == "getrandbits" and bool(frame.f_locals.get("k") == _POOL)
