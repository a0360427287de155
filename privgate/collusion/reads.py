"""In a worker: everything that training asks for beside its arguments.

Python's audit events tell of files, folders, sockets, processes and of looking at other frames; the environment's own
methods tell of variables. Who asked is read off the stack. Code in C that opens files by itself is not seen here: there
the bytes that the process read are counted.
"""

import os
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from privgate.collusion.whose import asker, importing, places, whose

_NETWORK = ("socket.connect", "socket.getaddrinfo", "socket.gethostby", "socket.getnameinfo", "socket.sendto",
            "socket.sendmsg", "socket.bind", "socket.gethostname", "urllib.Request", "http.client.connect",
            "ftplib.", "smtplib.", "imaplib.", "poplib.", "telnetlib.", "nntplib.")  # fmt: skip
_PROCESSES = ("subprocess.Popen", "os.system", "os.exec", "os.posix_spawn", "os.spawn", "os.fork", "pty.spawn")
_FOLDERS = ("os.listdir", "os.scandir", "os.walk", "glob.glob", "pathlib.Path.glob", "pathlib.Path.rglob")
#: looking at what others hold, or at the watch itself: told only of whoever asks directly
_PRYING = {
    "sys._getframe": "looks at the variables of whoever called it",
    "sys._current_frames": "looks at the variables of other threads",
    "gc.get_objects": "looks at all objects of the process",
    "gc.get_referrers": "looks at objects that it was not given",
    "sys.setprofile": "switches the watch off",
    "sys.settrace": "switches a trace on",
    "sys.addaudithook": "watches the watch",
    "ctypes.dlopen": "calls C code past Python",
    "ctypes.dlsym": "calls C code past Python",
    "ctypes.dlsym/handle": "calls C code past Python",
    "exec": "runs text as code, which no source file shows",
}
#: what libraries may open below where they are installed, and what tells of the machine
_CODE = (".py", ".pyc", ".pyi", ".so", ".pyd", ".dylib", ".dll", ".pth", ".cfg", ".ini", ".toml")
_FACTS = ("METADATA", "RECORD", "entry_points.txt", "top_level.txt", "PKG-INFO", "direct_url.json")
_MACHINE = ("/proc/", "/sys/", "/dev/null", "/dev/urandom", "/dev/random", "/etc/localtime",
            "/usr/share/zoneinfo/")  # fmt: skip
#: programs by which libraries count cores and find compilers
_ABOUT_THE_MACHINE = ("lscpu", "uname", "ldconfig", "gcc", "cc", "sysctl", "nvidia-smi", "objdump", "ld")
#: bytes read without Python's knowledge that are no finding: headers of shared libraries, the machine's own facts
UNSEEN = 1 << 16
#: names of each kind that are kept
_SHOWN = 3


@dataclass
class Reads:
    """What was asked for, by kind, with a few names each.

    Parameters
    ----------
    by_kind : dict
        ``{"files": {name: times}, …}``; kinds are files, folders, network, processes, environment, prying.
    training : bool
        Whether the recipe is training or answering now; while it is only loaded, libraries load themselves.
    known_bytes : int
        Sizes of all files that Python opened.
    """

    by_kind: dict[str, dict[str, int]] = field(default_factory=dict)
    training: bool = False
    known_bytes: int = 0
    _made: set[str] = field(default_factory=set)
    _busy: threading.local = field(default_factory=threading.local)

    def note(self, kind: str, name: str) -> None:
        """Count one request."""
        names = self.by_kind.setdefault(kind, {})
        if name in names or len(names) < 50:
            names[name] = names.get(name, 0) + 1

    def payload(self) -> dict[str, dict[str, int]]:
        """Return JSON values: of each kind the first few names."""
        return {k: dict(list(v.items())[:_SHOWN]) for k, v in self.by_kind.items()}

    def hook(self, event: str, args: tuple[Any, ...]) -> None:
        """Take one of Python's audit events."""
        handle = _HANDLERS.get(event)
        if handle is None:
            handle = _HANDLERS[event] = _handler(event)
        if handle is _nothing or getattr(self._busy, "now", False):
            return
        self._busy.now = True
        try:
            handle(self, event, args, sys._getframe(2))  # noqa: SLF001  the only way to whom an audit event is due
        finally:
            self._busy.now = False

    def _counts(self, frame: FrameType | None) -> str:
        """Return whether the recipe's own code asks, or a library that it uses; empty if neither does."""
        who = asker(frame)
        return who if who == "own" or (who == "library" and self.training) else ""


Handler = Callable[[Reads, str, tuple[Any, ...], FrameType | None], None]


def _nothing(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    del seen, event, args, frame


def _opened(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    del event
    path, mode, flags = (*args, None, None, 0)[:3]
    if not isinstance(path, str | bytes | os.PathLike):
        return  # a descriptor that is open already
    who = seen._counts(frame)  # noqa: SLF001  one class in two halves
    name = os.path.realpath(os.fsdecode(path))
    with suppress(OSError):
        seen.known_bytes += Path(name).stat().st_size
    writes = bool(int(flags or 0) & (os.O_WRONLY | os.O_CREAT | os.O_TRUNC)) or any(c in str(mode) for c in "wax")
    if not who or name in seen._made:  # noqa: SLF001  its own record of the run
        return
    if writes:
        if not Path(name).exists():
            seen._made.add(name)  # noqa: SLF001  what training writes it may read again
            return
        if name.startswith("/dev/"):
            return
    if importing(frame) and name.endswith(_CODE):
        return
    if name in map(os.path.realpath, sys.path) and (importing(frame) or not Path(name).exists()):
        return  # where modules are looked for
    if name.endswith(".py") and _showing_source(frame, name):
        return
    if who == "library" and (name.startswith(_MACHINE) or _of_a_library(name)):
        return
    seen.note("files", os.path.basename(name))  # noqa: PTH119  a name, no path


def _showing_source(frame: FrameType | None, name: str) -> bool:
    """Whether Python reads the source of a loaded module, for a warning or a traceback."""
    while frame is not None and whose(frame.f_code) == "python":
        if frame.f_code.co_filename.endswith(("/linecache.py", "/inspect.py")):
            return _running(frame, name) or any(getattr(m, "__file__", "") == name for m in list(sys.modules.values()))
        frame = frame.f_back
    return frame is not None and whose(frame.f_code) == "library" and name.endswith(".py")


def _running(frame: FrameType | None, name: str) -> bool:
    while frame is not None and os.path.realpath(frame.f_code.co_filename) != name:
        frame = frame.f_back
    return frame is not None


def _of_a_library(name: str) -> bool:
    return name.startswith(places()) and (name.endswith((*_CODE, *_FACTS)) or ".so." in name)


def _listed(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    del event
    if not importing(frame) and seen._counts(frame) == "own":  # noqa: SLF001  one class in two halves
        seen.note("folders", os.path.basename(os.fsdecode(args[0])) if args and isinstance(args[0], str) else "")  # noqa: PTH119  a name, no path


def _networked(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    del args
    if seen._counts(frame):  # noqa: SLF001  one class in two halves
        seen.note("network", event)


def _started(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    who = seen._counts(frame)  # noqa: SLF001  one class in two halves
    program = str(args[0]) if args and isinstance(args[0], str) else event
    name = os.path.basename(program)  # noqa: PTH119  a name, no path
    if who == "own" or (who == "library" and name not in _ABOUT_THE_MACHINE):
        seen.note("processes", name)


def _pried(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    del args
    if frame is not None and whose(frame.f_code) == "own":
        seen.note("prying", _PRYING[event])


def _handler(event: str) -> Handler:
    if event in ("open", "sqlite3.connect"):
        return _opened
    if event in _PRYING:
        return _pried
    groups = ((_NETWORK, _networked), (_PROCESSES, _started), (_FOLDERS, _listed))
    return next((handle for names, handle in groups if event.startswith(names)), _nothing)


_HANDLERS: dict[str, Handler] = {}


@contextmanager
def watched() -> Iterator[Reads]:
    """Note what the process's code asks for; in a process that ends soon, because an audit hook stays."""
    seen = Reads()
    alive = [True]

    def hook(event: str, args: tuple[Any, ...]) -> None:
        if alive[0]:
            seen.hook(event, args)

    class_: Any = type(os.environ)
    plain_item, plain_iter = class_.__getitem__, class_.__iter__

    def item(self: Any, key: Any) -> Any:
        if asker(sys._getframe(1)) == "own":  # noqa: SLF001  see above
            seen.note("environment", str(key))
        return plain_item(self, key)

    def every(self: Any) -> Any:
        if asker(sys._getframe(1)) == "own":  # noqa: SLF001  see above
            seen.note("environment", "all of it")
        return plain_iter(self)

    sys.addaudithook(hook)
    class_.__getitem__, class_.__iter__ = item, every
    try:
        yield seen
    finally:
        alive[0] = False
        class_.__getitem__, class_.__iter__ = plain_item, plain_iter


def bytes_read() -> int:
    """Return how many bytes this process has read so far by any call; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(lines[0].partition(":")[2])
    except (OSError, ValueError, IndexError):
        return 0
