"""A process that imports what boxes need, once, and is forked into each box that bubblewrap has made.

Importing scikit-learn, skops and MLflow takes longer than most checks train, and each box would pay for it anew.
Bubblewrap makes the box as ever, around a program that only waits. The process that serves in it is forked from the
template and enters the namespaces of that program, before anything of the user's is loaded or shown to it.

The template lives outside, so what it may hold is little: it is started with the environment of a box, finds no module
of the user's, is told numbers and descriptors alone, and serves one process. Nothing of a subject is ever in it. Where
anything about it does not work, a box imports for itself.
"""

import contextlib
import ctypes
import fcntl
import functools
import json
import os
import selectors
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from privgate.errors import UsageError
from privgate.training import warm_libraries
from privgate.training.box import bubblewrap, inside

#: seconds for importing the libraries, and for entering a box
_START_SECONDS = 120.0
#: a home without settings or modules: in the host's /tmp, anybody could leave some
_NO_HOME = "/nonexistent"
#: in the order in which they are entered; what follows last is the namespace of users, where bubblewrap made one
_KINDS = ("ipc", "uts", "net", "pid", "cgroup", "mnt")
_PARENT = 0xB702  # what a namespace of users lies in
_REAPS_ORPHANS = 36  # option of prctl
_REQUEST = 1 << 16  # bytes

_ASKING = threading.Lock()
_templates: list["_Template"] = []
os.register_at_fork(after_in_child=_templates.clear)  # the parent's serves the parent


class Waiting:
    """A box around a program that waits: it repeats what it reads, and ends when nobody writes to it.

    Parameters
    ----------
    line : sequence of str
        Command line of the box.
    network : bool
        Whether it shares the host's network.
    """

    def __init__(self, line: Sequence[str], *, network: bool = False) -> None:
        about, told = os.pipe()
        streams = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "stderr": subprocess.DEVNULL, "bufsize": 0}
        with os.fdopen(about, "rb") as info:
            try:
                self.process = bubblewrap.start(
                    [line[0], "--info-fd", str(told), *line[1:]], ["cat"], told, network=network, **streams
                )
            finally:
                os.close(told)
            #: its first process, with which all others end; 0 where none was made
            self.first = int(json.loads(info.read())["child-pid"]) if self.answers() else 0

    def answers(self) -> bool:
        """Whether the program inside is there: then everything else is in its place, and the first process is ours."""
        asked, said = self.process.stdin, self.process.stdout
        if asked is None or said is None:
            return False
        with contextlib.suppress(OSError), selectors.DefaultSelector() as waiting:
            asked.write(b"\n")
            waiting.register(said, selectors.EVENT_READ)
            return bool(waiting.select(_START_SECONDS) and said.read(1))
        return False

    def end(self) -> None:
        """End it and everything inside."""
        self.process.kill()
        self.process.wait()


class _Template:
    """The template, seen from the process that checks."""

    def __init__(self, *, stored: bool) -> None:
        self.channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        code = f"from privgate.training.box.templates import serve; serve({theirs.fileno()}, stored={stored})"
        program, *rest = bubblewrap.python(code)
        self._box = Waiting(bubblewrap.line((), network=False))
        # code in a box reaches the file that its process was started from: it must be that of a box, which is read-only
        inside = Path(f"/proc/{self._box.first}/root{Path(program).resolve()}")
        with theirs, inside.open("rb") as own:
            if not self._box.answers():
                raise OSError("the box of the template ended")
            self.process = subprocess.Popen(  # noqa: S603  our own command line, without a shell
                [program, "-s", *rest],
                executable=f"/proc/self/fd/{own.fileno()}",
                stdin=self._box.process.stdin,  # the box lasts until the template has begun
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**bubblewrap.environment(), "HOME": _NO_HOME},
                pass_fds=(theirs.fileno(), own.fileno()),
                cwd="/",
                start_new_session=True,  # Ctrl-C is the parent's
            )
        if self._box.process.stdin:
            self._box.process.stdin.close()
        self.channel.settimeout(_START_SECONDS)


def begin(*, stored: bool = True) -> None:
    """Start the template, which imports beside whatever this process does next; see ``warm_libraries.begin``."""
    with _ASKING, contextlib.suppress(OSError, ValueError, KeyError, UsageError):
        if sys.platform == "linux" and not _templates:
            _templates.append(_Template(stored=stored))


def entered(box: Waiting, descriptors: Sequence[int], memory: int, *, network: bool) -> bool:
    """Have a process forked that serves in a box; False where it cannot be.

    Parameters
    ----------
    box : Waiting
    descriptors : sequence of int
        The channel by which it is asked, and where it prints.
    memory : int
        As for ``inside.main``.
    network : bool
        As for ``inside.main``.
    """
    begin(stored="mlflow" in sys.modules)  # where it is not, no stored model was found with it
    said = json.dumps([memory, network, bubblewrap.environment()]).encode()
    with _ASKING, contextlib.ExitStack() as opened:
        if not (_templates and box.first):
            return False
        template = _templates[0]
        with contextlib.suppress(OSError):
            spaces = _spaces(box.first)
            for each in spaces:
                opened.callback(os.close, each)
            if not box.answers():  # its number may be another process's by now
                return False
            socket.send_fds(template.channel, [said], [*descriptors, *spaces])
            if template.channel.recv(1) == b"\0":
                return True
        template.process.kill()  # whatever it still says would be about another box
    return False


def _spaces(process: int) -> list[int]:
    """Return the namespaces of a process in which this one is not, in the order in which they are entered."""
    own, its = Path("/proc/self/ns"), Path(f"/proc/{process}/ns")
    apart = [kind for kind in (*_KINDS, "user") if (own / kind).readlink() != (its / kind).readlink()]
    found = [os.open(its / kind, os.O_RDONLY | os.O_CLOEXEC) for kind in apart]
    if "user" in apart:  # it lies in a second one, in which no third can be made; all others belong to the second
        found.insert(0, fcntl.ioctl(found[-1], _PARENT))
    return found


# In the template.


def serve(descriptor: int, *, stored: bool) -> None:
    """Import the libraries; then fork a process into each box that is asked for, until the parent is gone."""
    with Path(os.devnull).open("rb") as nothing:
        os.dup2(nothing.fileno(), 0)
    warm_libraries.begin(stored=stored)
    # a namespace of processes ends once all in it are reaped; whoever is first outside may never do so in a container
    ctypes.CDLL(None).prctl(_REAPS_ORPHANS, 1, 0, 0, 0)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the system reaps them
    with socket.socket(fileno=descriptor) as asked:
        while True:
            said, given, _, _ = socket.recv_fds(asked, _REQUEST, len(_KINDS) + 4)
            if not said:
                return
            memory, network, environment = json.loads(said)
            if not os.fork():
                _enter(asked, given, environment, memory, network=network)
            for each in given:
                os.close(each)


def _enter(
    asked: socket.socket, given: Sequence[int], environment: Mapping[str, str], memory: int, *, network: bool
) -> None:
    """Enter a box's namespaces, fork once more, and say how it went: only a child is in its namespace of processes."""
    said = b"\1"
    try:
        channel, printed, *spaces = given
        libc = ctypes.CDLL(None, use_errno=True)
        if any(libc.setns(space, 0) for space in spaces):
            raise OSError(ctypes.get_errno(), "the box cannot be entered")
        if not os.fork():
            _begin(channel, printed, environment, memory, network=network)
        said = b"\0"
    finally:
        asked.send(said)
        os._exit(0)


def _begin(channel: int, printed: int, environment: Mapping[str, str], memory: int, *, network: bool) -> None:
    """Hold nothing but the channel and where to print, and serve; never comes back."""
    try:
        signal.signal(signal.SIGCHLD, signal.SIG_DFL)
        os.setsid()
        os.chdir(bubblewrap.HOME)
        for standard in (1, 2):
            os.dup2(printed, standard)
        os.closerange(3, channel)
        os.closerange(channel + 1, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        # what the user's code forks must not pass for this process when that has died
        os.register_at_fork(after_in_child=functools.partial(os.close, channel))
        inside.main(channel, memory, network=network)
    except BaseException:  # noqa: BLE001  as Python itself would
        traceback.print_exc()
    finally:
        os._exit(0)
