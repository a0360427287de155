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
import json
import os
import signal
import socket
import subprocess
import sys
import threading
import traceback
from collections.abc import Mapping, Sequence
from pathlib import Path

from privgate.training import warm_libraries
from privgate.training.box import bubblewrap, inside

#: seconds for importing the libraries, and for entering a box
_START_SECONDS = 120.0
#: a home without settings or modules: in the host's /tmp, anybody could leave some
_NO_HOME = "/nonexistent"
#: in the order in which they are entered; what follows last is the namespace of users, where bubblewrap made one
_KINDS = ("ipc", "uts", "net", "pid", "cgroup", "mnt")
_PARENT = 0xB702  # what a namespace of users lies in
_DIE_WITH_PARENT = 1  # option of prctl
_REQUEST = 1 << 16  # bytes

_ASKING = threading.Lock()
_templates: list["_Template"] = []
os.register_at_fork(after_in_child=_templates.clear)  # the parent's serves the parent


class _Template:
    """The template, seen from the process that checks."""

    def __init__(self) -> None:
        self.channel, theirs = socket.socketpair(type=socket.SOCK_SEQPACKET)
        code = f"from privgate.training.box.templates import serve; serve({theirs.fileno()})"
        program, *rest = bubblewrap.python(code)
        with theirs:
            self.process = subprocess.Popen(  # noqa: S603  our own command line, without a shell
                [program, "-s", *rest],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                env={**bubblewrap.environment(), "HOME": _NO_HOME},
                pass_fds=(theirs.fileno(),),
                cwd="/",
                start_new_session=True,  # Ctrl-C is the parent's
            )
        self.channel.settimeout(_START_SECONDS)


def begin() -> None:
    """Start the template, which imports beside whatever this process does next."""
    with _ASKING:
        if sys.platform == "linux" and not _templates:
            _templates.append(_Template())


def entered(process: int, descriptors: Sequence[int], memory: int, *, network: bool) -> bool:
    """Have a process forked that serves in the box of ``process``; False where it cannot be.

    Parameters
    ----------
    process : int
        In the box, ours, and waiting.
    descriptors : sequence of int
        The channel by which it is asked, and where it prints.
    memory : int
        As for ``inside.main``.
    network : bool
        As for ``inside.main``.
    """
    begin()
    said = json.dumps([memory, network, bubblewrap.environment()]).encode()
    with _ASKING, contextlib.ExitStack() as opened:
        template = _templates[0]
        with contextlib.suppress(OSError):
            spaces = _spaces(process)
            for each in spaces:
                opened.callback(os.close, each)
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


def serve(descriptor: int) -> None:
    """Import the libraries; then fork a process into each box that is asked for, until the parent is gone."""
    ctypes.CDLL(None).prctl(_DIE_WITH_PARENT, signal.SIGKILL, 0, 0, 0)  # while it imports, too
    warm_libraries.begin()
    with socket.socket(fileno=descriptor) as asked:
        while True:
            said, given, _, _ = socket.recv_fds(asked, _REQUEST, len(_KINDS) + 4)
            if not said:
                return
            memory, network, environment = json.loads(said)
            number = os.fork()
            if not number:
                _enter(given, environment, memory, network=network)
            status = os.waitpid(number, 0)[1]
            for each in given:
                os.close(each)
            asked.send(b"\1" if status else b"\0")


def _enter(given: Sequence[int], environment: Mapping[str, str], memory: int, *, network: bool) -> None:
    """Enter a box's namespaces and fork once more: only a child is in the box's namespace of processes."""
    status = 1
    try:
        channel, printed, *spaces = given
        libc = ctypes.CDLL(None, use_errno=True)
        if any(libc.setns(space, 0) for space in spaces):
            raise OSError(ctypes.get_errno(), "the box cannot be entered")
        if not os.fork():
            _begin(channel, printed, environment, memory, network=network)
        status = 0
    finally:
        os._exit(status)


def _begin(channel: int, printed: int, environment: Mapping[str, str], memory: int, *, network: bool) -> None:
    """Hold nothing but the channel and where to print, and serve; never comes back."""
    try:
        os.setsid()
        os.chdir(bubblewrap.HOME)
        for standard in (1, 2):
            os.dup2(printed, standard)
        os.closerange(3, channel)
        os.closerange(channel + 1, os.sysconf("SC_OPEN_MAX"))
        os.environ.clear()
        os.environ.update(environment)
        inside.main(channel, memory, network=network)
    except BaseException:  # noqa: BLE001  as Python itself would
        traceback.print_exc()
    finally:
        os._exit(0)
