"""What code in a box may not ask the kernel: what no training needs, and ways out of boxes have been made of.

A filter in the kernel's own small language (seccomp, BPF), which every process started later inherits. On machines of
another kind than these two the namespaces stand alone.
"""

import ctypes
import errno
import os
import platform
import re
import resource
import shutil
import struct
import subprocess
import sys
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path
from typing import Any

from privgate.errors import UsageError
from privgate.subject.sources import is_library
from privgate.training.task_limits import ONE_THREAD, limit_memory

#: (x86_64, aarch64): numbers of the system calls that are refused
_REFUSED: Mapping[str, tuple[int, int]] = {
    "ptrace": (101, 117), "pivot_root": (155, 41), "mount": (165, 40), "umount2": (166, 39),
    "kexec_load": (246, 104), "add_key": (248, 217), "request_key": (249, 218), "keyctl": (250, 219),
    "unshare": (272, 97), "perf_event_open": (298, 241), "open_by_handle_at": (304, 265), "setns": (308, 268),
    "process_vm_readv": (310, 270), "process_vm_writev": (311, 271), "bpf": (321, 280),
    "userfaultfd": (323, 282), "io_uring_setup": (425, 425), "open_tree": (428, 428), "move_mount": (429, 429),
    "fsopen": (430, 430), "fsconfig": (431, 431), "fsmount": (432, 432), "fspick": (433, 433),
    "pidfd_getfd": (438, 438), "mount_setattr": (442, 442),
}  # fmt: skip
#: (x86_64, aarch64): what makes sockets, and the kinds that a namespace of networks holds: all others reach the host,
#: the machine that it runs on, or the kernel's own services
_SOCKET, _SOCKETPAIR = (41, 198), (53, 199)
_UNIX, _INTERNET = 1, (2, 10, 16)  # address families of Linux
_CLONE, _CLONE3 = (56, 220), 435  # system calls of x86-64 and arm64
#: machine -> (column above, what the kernel calls the machine)
_MACHINES: Mapping[str, tuple[int, int]] = {"x86_64": (0, 0xC000003E), "aarch64": (1, 0xC00000B7)}
_NEW_NAMESPACES = 0x7E020000  # mount, cgroup, uts, ipc, user, pid, net
_OTHER_ABI = 0x40000000  # bit of x32's system calls

_LOAD, _IF_EQUAL, _IF_AT_LEAST, _IF_ANY_BIT, _RETURN = 0x20, 0x15, 0x35, 0x45, 0x06  # instructions of seccomp's filter
_ALLOW, _FAIL = 0x7FFF0000, 0x00050000  # what a filter returns
_AT_NUMBER, _AT_MACHINE, _AT_FLAGS = 0, 4, 16  # bytes into what a filter reads


def _filter(*, network: bool) -> bytes:
    """Return the filter's instructions for this machine, 8 bytes each; empty where there is none.

    With the host's ``network``, its own sockets are refused: they reach services by names that no folder hides.
    """
    if platform.machine() not in _MACHINES:
        return b""
    column, machine = _MACHINES[platform.machine()]
    fail = _step(_RETURN, _FAIL | errno.EPERM)
    steps = [_step(_LOAD, _AT_MACHINE), _step(_IF_EQUAL, machine, 1, 0), fail]
    steps += [_step(_LOAD, _AT_NUMBER), _step(_IF_AT_LEAST, _OTHER_ABI, 0, 1), fail]
    for numbers in _REFUSED.values():
        steps += [_step(_IF_EQUAL, numbers[column], 0, 1), fail]
    # its flags lie in memory, where a filter cannot look; libraries then use the older call
    steps += [_step(_IF_EQUAL, _CLONE3, 0, 1), _step(_RETURN, _FAIL | errno.ENOSYS)]
    steps += [_step(_IF_EQUAL, _CLONE[column], 0, 3), _step(_LOAD, _AT_FLAGS)]
    steps += [_step(_IF_ANY_BIT, _NEW_NAMESPACES, 0, 1), fail]
    for number, kinds in ((_SOCKET, _INTERNET if network else (*_INTERNET, _UNIX)), (_SOCKETPAIR, (_UNIX,))):
        steps += [_step(_LOAD, _AT_NUMBER), _step(_IF_EQUAL, number[column], 0, len(kinds) + 3)]
        steps += [_step(_LOAD, _AT_FLAGS)]
        steps += [_step(_IF_EQUAL, kind, len(kinds) - at, 0) for at, kind in enumerate(kinds)]
        steps += [fail, _step(_RETURN, _ALLOW)]
    return b"".join([*steps, _step(_RETURN, _ALLOW)])


def _step(code: int, value: int, then: int = 0, otherwise: int = 0) -> bytes:
    return struct.pack("<HBBI", code, then, otherwise, value)


# Is bubblewrap here and does it work; and the command line that makes a box.

#: whom training code runs as
NOBODY = 65534
#: bytes of one file inside, and of ``/tmp`` and of ``/dev/shm`` a core, which workers share; both are memory
SCRATCH = 1 << 30
#: the only folder to write to inside, empty at first
HOME = "/tmp"  # noqa: S108  not this host's
_TRY_SECONDS = 60.0  # seconds for the first box
_MISSING = "bubblewrap is not installed (Debian and Ubuntu: apt-get install bubblewrap)"

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
#: how hosts are found and trusted
_NAMES = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates")
#: variables that change what training computes or how it prints, and say nothing about who runs it
_KEPT = ("LANG", "LANGUAGE", "TZ", "PYTHONHASHSEED", "PYTHONUTF8", "CUDA_VISIBLE_DEVICES",
         "CUBLAS_WORKSPACE_CONFIG")  # fmt: skip


@dataclass(frozen=True)
class Installed:
    """The version of bubblewrap, empty if boxes cannot be made here; and why not, one sentence."""

    version: str = ""
    why: str = ""


@cache
def find_bubblewrap() -> Installed:
    """Return whether boxes can be made here; one is made to see, once in a process."""
    program = shutil.which("bwrap")
    if program is None:
        return Installed(why=_MISSING)
    try:
        kinds = [f"/proc/self/ns/{kind}" for kind in ("mnt", "net", "pid")]
        # a program of that name that keeps nothing apart is no box
        ours = {str(Path(kind).readlink()) for kind in kinds}
        apart = f"import os, sys; sys.exit('it keeps nothing apart' if {ours} & set(map(os.readlink, {kinds})) else 0)"
        inside = f"from privgate.training.sandbox.bubblewrap import confine; confine(0); import threadpoolctl; {apart}"
        version = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True).stdout  # noqa: S603  what PATH names, as for any program
        trial = start((), python(inside), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL, stderr=subprocess.PIPE)
        try:
            said = trial.communicate(timeout=_TRY_SECONDS)[1]
        finally:
            trial.kill()
    except (OSError, subprocess.SubprocessError) as exc:
        return Installed(why=f"bubblewrap does not run here ({type(exc).__name__})")
    if trial.returncode:
        last = (said.decode(errors="replace").strip().splitlines() or ["it said nothing"])[-1]
        return Installed(why=f"bubblewrap makes no box here: {last[:200]}{_forbidding(last)}")
    return Installed(version=version.split()[-1])


#: setting of the kernel -> its value that lets no program but root's make a namespace, and what to do about it
_FORBIDDING = {
    "kernel.apparmor_restrict_unprivileged_userns": ("1", "give bwrap an AppArmor profile that allows userns"),
    "kernel.unprivileged_userns_clone": ("0", "set it to 1"),
    "user.max_user_namespaces": ("0", "set it to 10000"),
}


def _forbidding(said: str, root: Path = Path("/proc/sys")) -> str:
    """Return which setting of the system forbids namespaces, and the step; empty where it is nothing of the kind."""
    if not re.search(r"permi(ssion|tted)|namespace|no space", said, re.IGNORECASE):
        return ""
    held = {name: root / name.replace(".", "/") for name in _FORBIDDING}
    values = {name: path.read_text(encoding="ascii").strip() for name, path in held.items() if path.is_file()}
    named = [f"{n}={v} forbids it: {step}" for n, (v, step) in _FORBIDDING.items() if values.get(n) == v]
    unknown = f"a profile of AppArmor or of a container may forbid it; else look at {', '.join(_FORBIDDING)}"
    return f" ({'; '.join(named) or unknown})"


def command(program: str, shown: Sequence[Path], *, network: bool = False) -> list[str]:
    """Return the command line before the program inside; ``program`` is bubblewrap's path.

    Code inside may read the folders ``shown``, Python, its libraries and privgate; ``network`` shares the host's.
    """
    line = [program, "--unshare-pid", "--unshare-ipc", "--unshare-uts", "--unshare-cgroup-try"]
    line += [] if network else ["--unshare-net"]
    # root makes the namespaces itself, and the worker becomes nobody: limits on processes do not bind the superuser
    if os.geteuid() == 0:
        line += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        line += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--disable-userns"]
    line += ["--hostname", "box", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"]
    for scratch in ("/dev/shm", HOME):  # noqa: S108  not this host's
        line += ["--perms", "1777", "--size", str(SCRATCH * (os.cpu_count() or 1)), "--tmpfs", scratch]
    for path in (Path(p) for p in _SYSTEM):
        if path.is_symlink():
            line += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            line += ["--ro-bind", str(path), str(path)]
    line += ["--ro-bind", str(Path(__file__).with_name("passwd")), "/etc/passwd"]
    bound = [*(Path(p) for p in (*_SETTINGS, *(_NAMES if network else ())) if Path(p).exists()), *_libraries(), *shown]
    for folder in sorted({folder for path in bound for folder in path.parents if folder != folder.parent}):
        line += ["--perms", "0755", "--dir", str(folder)]  # left to itself, it makes them for the superuser alone
    for path in bound:
        line += ["--ro-bind", str(path), str(path)]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]


def start(
    shown: Sequence[Path], words: Sequence[str], *given: int, network: bool = False, **streams: Any
) -> "subprocess.Popen[bytes]":
    """Start a program in a box, with descriptors that it is given; ``shown`` and ``network`` as for ``command``.

    The filter holds for bubblewrap's own first process, too. ``UsageError``: bubblewrap is not installed any more.
    """
    if (program := shutil.which("bwrap")) is None:
        raise UsageError(_MISSING)
    code, filtered = _filter(network=network), os.memfd_create("filter")
    own, *rest = command(program, shown, network=network)
    try:
        os.write(filtered, code)
        os.lseek(filtered, 0, os.SEEK_SET)
        return subprocess.Popen(  # noqa: S603  our own command line, without a shell
            [own, *(("--seccomp", str(filtered)) if code else ()), *rest, *words],
            env=environment(),
            pass_fds=(*given, filtered),
            cwd="/",
            **streams,
        )
    finally:
        os.close(filtered)


def python(code: str) -> list[str]:
    """Return the command line of a Python inside that finds modules as this process does, but for the user's own."""
    return [sys.executable, "-P", "-B", "-c", f"import sys; sys.path[:] = {[str(p) for p in _search_path()]!r}; {code}"]


def environment() -> dict[str, str]:
    """Return the environment that bubblewrap is started with: what a process inside could read of it is all of it."""
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith("LC_")}
    own = {"PATH": "/usr/bin:/bin", "HOME": HOME, "TMPDIR": HOME, "USER": "nobody", "LOGNAME": "nobody"}
    return {**kept, **own, **ONE_THREAD}


def _package() -> Path:
    return Path(__file__).resolve().parents[2]


def _search_path() -> list[Path]:
    """Return this process's search path without the user's own folders, whose modules travel with the recipe."""
    return [p for p in [Path(p) for p in sys.path if p] if is_library(p) or p.resolve() == _package().parent]


def _libraries() -> list[Path]:
    """Return the folders with Python, installed libraries and privgate, none inside another or the system's."""
    wanted = [Path(sys.prefix), Path(sys.base_prefix), *(p for p in _search_path() if is_library(p)), _package()]
    chosen: list[Path] = []
    for path in sorted({p for p in wanted if p.is_dir()}, key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(p) for p in (*map(Path, _SYSTEM), *chosen)):
            chosen.append(path)
    return chosen


# What code in a box may take; set before any of it is loaded, and it cannot be raised again.

#: processes and threads; the kernel counts those of all boxes of one user together where it does not know better
PROCESSES = 1024
_SET_DUMPABLE, _DROP_BOUND, _NO_NEW_PRIVILEGES = 4, 24, 38  # options of prctl
_CAPABILITIES = 0x20080522  # the version of the system call by which they are given up


def confine(memory: int) -> None:
    """Limit this process and all that it starts, to ``memory`` bytes each (0: no limit); become nobody if it is not."""
    Path("/proc/self/oom_score_adj").write_text("1000", encoding="ascii")  # the box goes first, not its parent
    if os.getuid() != NOBODY:
        os.setgroups([])
        os.setresgid(NOBODY, NOBODY, NOBODY)
        os.setresuid(NOBODY, NOBODY, NOBODY)
    _drop_capabilities()
    limit_memory(memory)
    for kind, most in (
        (resource.RLIMIT_NPROC, PROCESSES),
        (resource.RLIMIT_FSIZE, SCRATCH),
        (resource.RLIMIT_CORE, 0),
        (resource.RLIMIT_DATA, resource.getrlimit(resource.RLIMIT_DATA)[0]),
    ):
        hard = resource.getrlimit(kind)[1]
        bound = most if hard == resource.RLIM_INFINITY else min(most, hard)
        resource.setrlimit(kind, (bound, bound))


def _drop_capabilities() -> None:
    """Keep no capability, and get none by whatever is run."""
    libc, none = ctypes.CDLL(None, use_errno=True), (ctypes.c_uint32 * 6)()
    for each in range(64):  # it says no where there is none, and where this is no longer ours to say
        libc.prctl(_DROP_BOUND, each, 0, 0, 0)
    if libc.prctl(_NO_NEW_PRIVILEGES, 1, 0, 0, 0) or libc.capset((ctypes.c_uint32 * 2)(_CAPABILITIES, 0), none):
        raise OSError(ctypes.get_errno(), "the kernel takes no capabilities away")
    set_readable(False)


def set_readable(readable: bool) -> None:  # noqa: FBT001  a state
    """Let others of the box write this process's memory or not; libraries that read their own /proc/self need it."""
    ctypes.CDLL(None).prctl(_SET_DUMPABLE, int(readable), 0, 0, 0)
