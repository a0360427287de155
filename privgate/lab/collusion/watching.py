"""In a worker: what was seen of one training, and which learner is at work."""

import _thread
import os
import random
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from types import CodeType, FrameType, ModuleType
from typing import Any

import numpy as np

from privgate.lab.collusion.held import Left, learner
from privgate.lab.collusion.strange import Learned, as_rows
from privgate.training.recognition import asker, of_file, whose


@dataclass
class Watch:
    """What was seen of one training."""

    learners: dict[str, Learned] = field(default_factory=dict)
    draws: int = 0
    entropy: int = 0
    steps: int = 0
    asked: int = 0
    unreadable: set[str] = field(default_factory=set)
    pried: set[str] = field(default_factory=set)
    left: Left = field(default_factory=Left)
    #: what the network was given last, whose labels the loss brings
    network: Learned | None = None
    _inside: threading.local = field(default_factory=threading.local)

    def enter(self, frame: FrameType) -> bool:
        """Return whether a learner is called from outside of every other one, and mark that one is at work."""
        if getattr(self._inside, "frame", None) is not None:
            return False
        self._inside.frame = frame
        return True

    def leave(self) -> None:
        """Mark that no learner is at work any more."""
        self._inside.frame = None

    def left_by(self, frame: FrameType) -> bool:
        """Return whether a frame that ends is the learner at work, and mark that it is no more."""
        if getattr(self._inside, "frame", None) is not frame:
            return False
        self.leave()
        return True

    def note(self, name: str, records: Any, labels: Any) -> Learned | None:
        """Keep what a learner was given."""
        table = as_rows(records)
        if table is None:
            self.unreadable.add(name)
            return None
        key = f"{name} of {table.shape[1]}"
        if key not in self.learners:
            self.learners[key] = Learned()
        learner = self.learners[key]
        learner.add(table, labels)
        return learner


# In a worker: functions that stand in for generators and seeds, and count how often training code derives randomness.
#
# Python's and numpy's own are C functions or classes, of whose arguments a profile function sees nothing.

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


# In a worker: which calls of libraries' code are looked at while training code runs, and what each of them tells.

#: what a learner is trained by
FITS = ("fit", "fit_transform", "fit_predict", "partial_fit", "fit_resample")
_RECORDS = ("X", "x", "data", "X_train", "features", "exog", "inputs")
_LABELS = ("y", "Y", "label", "y_train", "target", "targets", "endog", "labels")
_DATA_SETS = ("xgboost.core", "lightgbm.basic", "catboost.core")
_LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss",
           "l1_loss", "smooth_l1_loss", "huber_loss", "multi_margin_loss", "soft_margin_loss")  # fmt: skip
#: by which the labels of a data set are put in the place of others
_RELABELS = ("set_label", "set_info", "set_float_info", "set_float_info_npy2d", "set_field")
#: what is done with such a call
Handler = Callable[[Watch, FrameType], None]


def handler(frame: FrameType) -> Handler | None:
    """Return what to do when this code is called; None for nearly all of it."""
    code, module = frame.f_code, str(frame.f_globals.get("__name__", ""))
    kind = whose(code)
    if kind == "python":
        return _drawn if (module, code.co_name) == ("random", "seed") else None
    if kind == "own":
        return None
    if (module, code.co_name) == ("joblib.hashing", "hash"):
        return _drawn
    if module == "pandas.core.util.hashing":
        return _hashed
    if module in _DATA_SETS and code.co_name in _RELABELS:
        return _relabelled
    if module == "torch.nn.modules.module":
        return _network if code.co_name == "_call_impl" else None
    if module == "torch.nn.functional":
        return _loss if code.co_name in _LOSSES else None
    if module == "torch.random":
        return _drawn if code.co_name == "manual_seed" else None
    if (module, code.co_name) in {("torch._tensor", "backward"), ("torch.autograd", "grad")}:
        return _step
    if code.co_name == "__init__" and module in _DATA_SETS and {"data", "label"} <= set(code.co_varnames):
        return _fitted
    return _fitted if code.co_name in FITS and module.partition(".")[0] != "torch" else None


def _fitted(watch: Watch, frame: FrameType) -> None:
    if not watch.enter(frame):
        return
    held = frame.f_locals
    records = next((held[n] for n in _RECORDS if held.get(n) is not None), None)
    labels = next((held[n] for n in _LABELS if held.get(n) is not None), None)
    name = type(held.get("self", held.get("estimator"))).__name__
    if records is None:
        if not any(n in held for n in _RECORDS):
            watch.leave()  # no learner of records
        return
    watch.note(name, records, labels)


def _network(watch: Watch, frame: FrameType) -> None:
    import torch

    if not watch.enter(frame):
        return
    if not torch.is_grad_enabled():
        watch.network = None  # a loss that follows teaches nothing
        return
    held = frame.f_locals
    args = held.get("args") or tuple((held.get("kwargs") or {}).values())
    module = held.get("self")
    loss = type(module).__module__ == "torch.nn.modules.loss"
    if loss:
        watch.leave()  # a loss calls its function
        return
    first = next((a for a in args if hasattr(a, "detach")), None)
    if first is not None and first.ndim:
        watch.asked += 1
        watch.network = watch.note("network", first, None)


def _loss(watch: Watch, frame: FrameType) -> None:
    if watch.network is not None and not watch.network.label(frame.f_locals.get("target")):
        watch.unreadable.add("a loss of other rows than the network's")


def _step(watch: Watch, frame: FrameType) -> None:
    del frame
    watch.steps += 1


def _drawn(watch: Watch, frame: FrameType) -> None:
    if asker(frame.f_back) == "own":
        watch.draws += 1


def _hashed(watch: Watch, frame: FrameType) -> None:
    """Count what pandas hashes at once."""
    if asker(frame.f_back) == "own":
        held = frame.f_locals
        watch.draws += len(next((held[n] for n in ("obj", "vals") if held.get(n) is not None), ()))


def _relabelled(watch: Watch, frame: FrameType) -> None:
    if frame.f_back is not None and whose(frame.f_back.f_code) == "own":
        watch.unreadable.add("a data set that is labelled anew")


# In a worker: what learners of libraries are given while training code runs, and how often it draws by record.
#
# A profile function sees every call of ``fit``, of a network, a loss or a data set's constructor with its arguments.
# Rows and labels are kept as numbers; what a learner hands on to another inside of it is its own affair.

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
    plain = put(seen)
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
        taken_away(plain)
