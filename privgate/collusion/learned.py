"""In a worker: what learners of libraries are given while training code runs, and how often it draws by record.

A profile function sees every call of ``fit``, of a network, a loss or a data set's constructor with its arguments. Rows
and labels are kept as numbers; what a learner hands on to another inside of it is its own affair.
"""

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
from numpy.typing import NDArray

from privgate.collusion.unchanged import Left, learner
from privgate.training.whose import asker, of_file, whose

Float = NDArray[np.float64]

#: different rows that are kept; of more, the number alone
MOST_ROWS = 50_000
#: numbers in a table that is still looked at
MOST_NUMBERS = 2e8
_FITS = ("fit", "fit_transform", "fit_predict", "partial_fit", "fit_resample")
_RECORDS = ("X", "x", "data", "X_train", "features", "exog", "inputs")
_LABELS = ("y", "Y", "label", "y_train", "target", "targets", "endog", "labels")
_DATA_SETS = ("xgboost.core", "lightgbm.basic", "catboost.core")
_LOSSES = ("cross_entropy", "nll_loss", "binary_cross_entropy", "binary_cross_entropy_with_logits", "mse_loss",
           "l1_loss", "smooth_l1_loss", "huber_loss", "multi_margin_loss", "soft_margin_loss")  # fmt: skip
#: by which the labels of a data set are put in the place of others
_RELABELS = ("set_label", "set_info", "set_float_info", "set_float_info_npy2d", "set_field")
#: numpy's generators and seeds, each of which may be one record's
_GENERATORS = ("RandomState", "SeedSequence", "PCG64", "PCG64DXSM", "MT19937", "Philox", "SFC64")
#: bits that numpy draws for a generator before it is given its seed
_POOL = 128
#: as it is before the watch stands in for it
_GENERATOR = np.random.default_rng
#: C functions that make numbers out of records
_HASHES = ("_hashlib", "_blake2", "_sha1", "_sha2", "_sha256", "_sha512", "_sha3", "_md5", "_hmac", "zlib", "binascii")


@dataclass
class Learned:
    """Rows that one learner was given, and their labels.

    Parameters
    ----------
    rows : list of float32 arrays
        Different rows in the order of their first use; of more than ``MOST_ROWS`` a random sample.
    labels : list
        The label that came with each first use; None where none did.
    distinct, given : int
        Different rows in all, and rows with repetitions.
    """

    rows: list[NDArray[np.float32]] = field(default_factory=list)
    labels: list[Any] = field(default_factory=list)
    distinct: int = 0
    given: int = 0
    _known: dict[Any, int] = field(default_factory=dict)
    _last: list[int] = field(default_factory=list)
    _keys: list[bytes] = field(default_factory=list)
    _chance: np.random.Generator = field(default_factory=lambda: _GENERATOR(0))

    def add(self, table: NDArray[np.float32], labels: Any) -> None:
        """Note a batch; ``labels`` may be None, and come later by ``label``."""
        self.given += len(table)
        self._last = []
        for row in table:
            key = row.tobytes()
            at = self._known.get(key)
            if at is None:
                self.distinct += 1
                at = self._known[key] = self._kept(key, row)
            self._last.append(at)
        if labels is not None:
            self.label(labels)

    def _kept(self, key: bytes, row: NDArray[np.float32]) -> int:
        """Keep a new row, or a random sample of them all where they are many; return where, -1 for nowhere."""
        if len(self.rows) < MOST_ROWS:
            self.rows.append(row)
            self.labels.append(None)
            self._keys.append(key)
            return len(self.rows) - 1
        at = int(self._chance.integers(self.distinct))
        if at >= MOST_ROWS:
            return -1
        self._known[self._keys[at]] = -1
        self.rows[at], self.labels[at], self._keys[at] = row, None, key
        return at

    def label(self, labels: Any) -> bool:
        """Take the labels of the last batch; return whether there are as many."""
        values = flat_labels(labels)
        if values is None:
            return True
        if len(values) != len(self._last):
            return False
        for at, value in zip(self._last, values, strict=True):
            if at >= 0 and self.labels[at] is None:
                self.labels[at] = value
        return True


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
    _inside: threading.local = field(default_factory=threading.local)
    _network: Learned | None = None
    _known: dict[CodeType, "Handler | None"] = field(default_factory=dict)

    def profile(self, frame: FrameType, event: str, arg: Any) -> None:
        """Take one event of the interpreter; what cannot be looked at must not end the watch, as an error would."""
        try:
            self._take(frame, event, arg)
        except Exception as exc:  # noqa: BLE001  arguments are the watched code's own objects, and may do anything
            self.unreadable.add(f"{frame.f_code.co_name} ({type(exc).__name__})")

    def _take(self, frame: FrameType, event: str, arg: Any) -> None:
        if event == "call":
            code = frame.f_code
            if code not in self._known:
                self._known[code] = _handler(frame)
            handle = self._known[code]
            if handle is not None:
                handle(self, frame)
        elif event == "return":
            if getattr(self._inside, "frame", None) is frame:
                self._inside.frame = None
                trained = frame.f_locals.get("self")
                if frame.f_code.co_name in _FITS and learner(trained):
                    self.left.note(trained)
        elif event == "c_call" and whose(frame.f_code) == "own":
            self._called(arg)

    def _called(self, function: Any) -> None:
        """Take a call of a C function by the recipe's own code."""
        if function in (sys.getprofile, sys.gettrace):
            self.pried.add("looks for a watch")
        elif function is _thread.start_new_thread:
            self.pried.add("starts a thread past the watch")
        elif _derives(function):
            self.draws += 1

    def enter(self, frame: FrameType) -> bool:
        """Return whether a learner is called from outside of every other one, and mark that one is at work."""
        if getattr(self._inside, "frame", None) is not None:
            return False
        self._inside.frame = frame
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


Handler = Callable[[Watch, FrameType], None]


def as_rows(records: Any) -> NDArray[np.float32] | None:
    """Return records of any kind as rows of numbers, shape (n, d); None where they are none."""
    if hasattr(records, "detach"):
        try:
            records = records.detach().cpu().numpy()
        except (RuntimeError, TypeError):  # inside of a transform of torch, tensors have no values
            return None
    if np.prod(getattr(records, "shape", (0,)), dtype=np.float64) > MOST_NUMBERS:
        return None
    if hasattr(records, "toarray"):
        records = records.toarray()
    if hasattr(records, "columns"):
        records = np.column_stack([_column(records.iloc[:, j]) for j in range(records.shape[1])])
    try:
        table = np.asarray(records)
    except (TypeError, ValueError):
        return None
    if table.dtype.kind not in "biuf":
        return _texts(table)
    if table.ndim == 0:
        return None
    return np.array(table.reshape(len(table), -1), dtype=np.float32)


def _column(values: Any) -> Float:
    raw = np.asarray(values)
    return raw.astype(np.float64) if raw.dtype.kind in "biuf" else np.array([_code(v) for v in raw.tolist()])


def _texts(table: NDArray[Any]) -> NDArray[np.float32] | None:
    """Return a few numbers a text that are equal for equal texts."""
    if table.ndim == 0 or not len(table):
        return None
    flat = table.reshape(len(table), -1)
    return np.array([[_code(v) for v in row] for row in flat.tolist()], dtype=np.float32)


def _code(value: Any) -> float:
    import zlib

    return float(value) if isinstance(value, int | float) else float(zlib.crc32(str(value).encode()) % (1 << 20))


def flat_labels(labels: Any) -> list[Any] | None:
    """Return labels as a list; of one-hot rows the largest column; None where they are nothing of the kind."""
    if hasattr(labels, "detach"):
        try:
            labels = labels.detach().cpu().numpy()
        except (RuntimeError, TypeError):
            return None
    values = np.asarray(labels)
    if values.ndim == 2 and values.shape[1] > 1:
        values = values.argmax(axis=1)
    return None if values.ndim == 0 else list(values.reshape(len(values), -1)[:, 0].tolist())


def _handler(frame: FrameType) -> Handler | None:
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
    return _fitted if code.co_name in _FITS and module.partition(".")[0] != "torch" else None


def _fitted(watch: Watch, frame: FrameType) -> None:
    if not watch.enter(frame):
        return
    held = frame.f_locals
    records = next((held[n] for n in _RECORDS if held.get(n) is not None), None)
    labels = next((held[n] for n in _LABELS if held.get(n) is not None), None)
    name = type(held.get("self", held.get("estimator"))).__name__
    if records is None:
        if not any(n in held for n in _RECORDS):
            watch._inside.frame = None  # noqa: SLF001  one class in two halves: no learner of records
        return
    watch.note(name, records, labels)


def _network(watch: Watch, frame: FrameType) -> None:
    import torch

    if not watch.enter(frame):
        return
    if not torch.is_grad_enabled():
        watch._network = None  # noqa: SLF001  one class in two halves: a loss that follows teaches nothing
        return
    held = frame.f_locals
    args = held.get("args") or tuple((held.get("kwargs") or {}).values())
    module = held.get("self")
    loss = type(module).__module__ == "torch.nn.modules.loss"
    if loss:
        watch._inside.frame = None  # noqa: SLF001  one class in two halves: a loss calls its function
        return
    first = next((a for a in args if hasattr(a, "detach")), None)
    if first is not None and first.ndim:
        watch.asked += 1
        watch._network = watch.note("network", first, None)  # noqa: SLF001  the watch of this very process


def _loss(watch: Watch, frame: FrameType) -> None:
    if watch._network is not None and not watch._network.label(frame.f_locals.get("target")):  # noqa: SLF001  one class in two halves
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
    plain: list[tuple[Any, str, Any]] = []

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
    before = sys.getprofile()
    threading.setprofile(seen.profile)
    sys.setprofile(seen.profile)
    try:
        yield seen
    finally:
        if sys.getprofile() != seen.profile:
            seen.pried.add("switches the watch off")
        sys.setprofile(before)
        threading.setprofile(None)
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
