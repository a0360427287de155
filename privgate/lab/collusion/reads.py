"""In a worker: everything that training asks for beside its arguments.

Python's audit events tell of files, folders, sockets, processes and of looking at other frames; the environment's own
methods tell of variables. Who asked is read off the stack. Code in C that opens files by itself is not seen here: there
the bytes that the process read are counted.
"""

import os
import posix
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from types import FrameType
from typing import Any

from privgate.training.recognition import asker, importing, places, whose

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
    "marshal.loads": "runs bytes as code, which no source file shows",
    "code.__new__": "makes code while it runs, which no source file shows",
    "object.__getattr__": "looks at the variables of whoever called it",
}
#: of attributes that are looked up under an audit, those that lead to other frames
_FRAMES = ("tb_frame", "gi_frame", "cr_frame", "ag_frame")
#: Python's own files through which code asks for the same
_THROUGH = {
    "sys._getframe": ("inspect.py",),
    "sys.setprofile": ("cProfile.py", "profile.py", "threading.py"),
    "sys.settrace": ("trace.py", "bdb.py", "pdb.py", "threading.py"),
    "ctypes.dlopen": ("__init__.py", "util.py", "_endian.py"),
    "ctypes.dlsym": ("__init__.py", "util.py"),
    "ctypes.dlsym/handle": ("__init__.py", "util.py"),
    "exec": ("timeit.py", "code.py", "codeop.py", "doctest.py", "bdb.py", "profile.py", "cProfile.py", "trace.py"),
    "code.__new__": ("cloudpickle.py", "types.py"),
    "marshal.loads": ("pickle.py",),
}
#: what libraries may open below where they are installed, and what tells of the machine
_CODE = (".py", ".pyc", ".pyi", ".so", ".pyd", ".dylib", ".dll", ".pth", ".cfg", ".ini", ".toml")
_FACTS = ("METADATA", "RECORD", "VERSION", "entry_points.txt", "top_level.txt", "PKG-INFO", "direct_url.json")
_MACHINE = ("/proc/", "/sys/", "/dev/null", "/dev/urandom", "/dev/random", "/etc/localtime",
            "/usr/share/zoneinfo/")  # fmt: skip
#: programs by which libraries count cores and find compilers
_ABOUT_THE_MACHINE = ("lscpu", "uname", "ldconfig", "gcc", "cc", "sysctl", "nvidia-smi", "objdump", "ld")
_NOT_OWN = ("python", "library")
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

    def made(self, name: str) -> bool:
        """Whether training made this file, or a folder above it, itself."""
        return any(str(part) in self._made for part in (name, *Path(name).parents))

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
    if not who or seen.made(name) or _clearing_away(frame):
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


def _folder_made(seen: Reads, event: str, args: tuple[Any, ...], frame: FrameType | None) -> None:
    del event, frame
    if args and isinstance(args[0], str | bytes | os.PathLike) and not Path(os.fsdecode(args[0])).exists():
        seen._made.add(os.path.realpath(os.fsdecode(args[0])))  # noqa: SLF001  one class in two halves


def _clearing_away(frame: FrameType | None) -> bool:
    """Whether Python opens the folders that it is about to remove, by names within one another."""
    return frame is not None and frame.f_code.co_filename.endswith("/shutil.py") and "rmtree" in frame.f_code.co_name


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
    if args and isinstance(args[0], int):
        return  # a folder that is open already, as opening it has told
    name = os.fsdecode(args[0]) if args and isinstance(args[0], str | bytes) else "."
    if not importing(frame) and seen._counts(frame) == "own" and not seen.made(os.path.realpath(name)):  # noqa: SLF001  one class in two halves
        seen.note("folders", os.path.basename(name))  # noqa: PTH119  a name, no path


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
    if event == "object.__getattr__" and not (len(args) > 1 and args[1] in _FRAMES):
        return
    files = _THROUGH.get(event, ())
    while frame is not None and frame.f_code.co_filename.endswith(files) and whose(frame.f_code) in _NOT_OWN:
        frame = frame.f_back
    if frame is not None and whose(frame.f_code) == "own" and not importing(frame):
        seen.note("prying", _PRYING[event])


def _handler(event: str) -> Handler:
    if event in ("open", "sqlite3.connect"):
        return _opened
    if event in _PRYING:
        return _pried
    if event == "os.mkdir":
        return _folder_made
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

    def tell(key: Any) -> None:
        if asker(sys._getframe(2)) == "own" and not _temporary(sys._getframe(2)):  # noqa: SLF001  see above
            seen.note("environment", os.fsdecode(key))

    sys.addaudithook(hook)
    plain: Any = posix.environ
    environments: list[Any] = [os.environ, os.environb]
    tables = [e._data for e in environments]  # noqa: SLF001  the table below its methods
    told = _Told(tables[0], tell)
    posix.environ = _Told(plain, tell)
    for e in environments:
        e._data = told  # noqa: SLF001  ditto
    try:
        yield seen
    finally:
        alive[0] = False
        posix.environ = plain
        for e, table in zip(environments, tables, strict=True):
            e._data = table  # noqa: SLF001  ditto


def _temporary(frame: FrameType | None) -> bool:
    """Whether Python asks where temporary files go."""
    while frame is not None and whose(frame.f_code) == "python":
        if frame.f_code.co_filename.endswith("/tempfile.py"):
            return True
        frame = frame.f_back
    return False


class _Told(dict[Any, Any]):
    """The table below the environment, which tells who looks into it, by whichever door."""

    def __init__(self, plain: dict[Any, Any], tell: Callable[[Any], None]) -> None:
        super().__init__(plain)
        self._tell = tell

    def __getitem__(self, key: Any) -> Any:
        self._tell(key)
        return super().__getitem__(key)

    def get(self, key: Any, default: Any = None) -> Any:
        """Return one variable."""
        self._tell(key)
        return super().get(key, default)

    def __contains__(self, key: object) -> bool:
        self._tell(key)
        return super().__contains__(key)

    def __iter__(self) -> Iterator[Any]:
        self._tell("all of it")
        return super().__iter__()

    def __len__(self) -> int:
        self._tell("all of it")
        return super().__len__()

    def keys(self) -> Any:
        """Return all names."""
        self._tell("all of it")
        return super().keys()

    def values(self) -> Any:
        """Return all contents."""
        self._tell("all of it")
        return super().values()

    def items(self) -> Any:
        """Return names and contents."""
        self._tell("all of it")
        return super().items()

    def copy(self) -> dict[Any, Any]:
        """Return all of it."""
        self._tell("all of it")
        return dict(super().items())


def bytes_read() -> int:
    """Return how many bytes this process has read so far by any call; 0 where the system does not tell."""
    try:
        lines = Path("/proc/self/io").read_text(encoding="ascii").splitlines()
        return int(lines[0].partition(":")[2])
    except (OSError, ValueError, IndexError):
        return 0
