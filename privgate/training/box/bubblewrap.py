"""Is bubblewrap here and does it work; and the command line that makes a box."""

import os
import shutil
import subprocess
import sys
import sysconfig
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cache
from pathlib import Path

from privgate.training.environment import ONE_THREAD

#: whom training code runs as
NOBODY = 65534
#: bytes of ``/tmp`` and of ``/dev/shm`` inside; both are memory
SCRATCH = 1 << 30
#: the only folder to write to inside, empty at first
HOME = "/tmp"  # noqa: S108  not this host's
_TRY_SECONDS = 60.0

_SYSTEM = ("/usr", "/bin", "/sbin", "/lib", "/lib32", "/lib64", "/libx32", "/nix/store")
_SETTINGS = ("/etc/alternatives", "/etc/ld.so.cache", "/etc/ld.so.conf", "/etc/ld.so.conf.d", "/etc/localtime")
#: how hosts are found and trusted
_NAMES = ("/etc/hosts", "/etc/nsswitch.conf", "/etc/resolv.conf", "/etc/ssl", "/etc/pki", "/etc/ca-certificates")
#: variables that change what training computes or how it prints, and say nothing about who runs it
_KEPT = ("LANG", "LANGUAGE", "TZ", "PYTHONHASHSEED", "PYTHONUTF8", "CUDA_VISIBLE_DEVICES",
         "CUBLAS_WORKSPACE_CONFIG")  # fmt: skip


@dataclass(frozen=True)
class Found:
    """Whether boxes can be made here.

    Parameters
    ----------
    version : str
        Of bubblewrap; empty if boxes cannot be made.
    why : str
        Why not, one sentence.
    """

    version: str = ""
    why: str = ""


@cache
def found() -> Found:
    """Return whether boxes can be made here; one is made to see, once in a process."""
    if sys.platform != "linux":
        return Found(why="bubblewrap needs Linux")
    program = shutil.which("bwrap")
    if program is None:
        return Found(why="bubblewrap is not installed (Debian and Ubuntu: apt-get install bubblewrap)")
    trial = [
        *command(program, ()),
        *python("from privgate.training.box.limits import confine; confine(0); import joblib"),
    ]
    try:
        said = subprocess.run([program, "--version"], capture_output=True, text=True, timeout=10, check=True)  # noqa: S603  what PATH names, as for any program
        done = subprocess.run(  # noqa: S603  ditto
            trial, stdin=subprocess.DEVNULL, capture_output=True, env=environment(), timeout=_TRY_SECONDS, check=False
        )
    except (OSError, subprocess.SubprocessError) as exc:
        return Found(why=f"bubblewrap does not run here ({type(exc).__name__})")
    if done.returncode:
        lines = done.stderr.decode(errors="replace").strip().splitlines() or ["it said nothing"]
        return Found(why=f"bubblewrap makes no box here: {lines[-1][:200]}")
    return Found(version=said.stdout.split()[-1])


def command(program: str, shown: Sequence[Path], *, network: bool = False) -> list[str]:
    """Return the command line before the program inside.

    Parameters
    ----------
    program : str
        Path of bubblewrap.
    shown : sequence of Path
        Folders that code inside may read, beside Python, its libraries and privgate.
    network : bool
        Whether it shares the host's network: everything that the host reaches, its own services included.

    Notes
    -----
    Root makes the namespaces itself, and the worker then becomes nobody for good: limits on processes do not bind the
    superuser. Everybody else needs a user namespace, in which no second one can be made.
    """
    line = [
        program,
        "--unshare-pid",
        *([] if network else ["--unshare-net"]),
        "--unshare-ipc",
        "--unshare-uts",
        "--unshare-cgroup-try",
    ]
    if os.geteuid() == 0:
        line += ["--cap-drop", "ALL", "--cap-add", "CAP_SETUID", "--cap-add", "CAP_SETGID"]
    else:
        line += ["--unshare-user", "--uid", str(NOBODY), "--gid", str(NOBODY), "--disable-userns"]
    line += ["--hostname", "box", "--die-with-parent", "--new-session", "--proc", "/proc", "--dev", "/dev"]
    for scratch in ("/dev/shm", HOME):  # noqa: S108  not this host's
        line += ["--perms", "1777", "--size", str(SCRATCH), "--tmpfs", scratch]
    for path in (Path(p) for p in _SYSTEM):
        if path.is_symlink():
            line += ["--symlink", str(path.readlink()), str(path)]
        elif path.is_dir():
            line += ["--ro-bind", str(path), str(path)]
    line += ["--ro-bind", str(Path(__file__).with_name("passwd")), "/etc/passwd"]
    settings = (*_SETTINGS, *(_NAMES if network else ()))
    bound = [*(Path(p) for p in settings if Path(p).exists()), *_libraries(), *shown]
    for folder in sorted({folder for path in bound for folder in path.parents if folder != folder.parent}):
        line += ["--perms", "0755", "--dir", str(folder)]  # left to itself, it makes them for the superuser alone
    for path in bound:
        line += ["--ro-bind", str(path), str(path)]
    return [*line, "--remount-ro", "/dev", "--remount-ro", "/", "--chdir", HOME]


def python(code: str) -> list[str]:
    """Return the command line of a Python inside that finds modules as this process does, but for the user's own."""
    path = [str(p) for p in _search_path()]
    return [sys.executable, "-P", "-B", "-c", f"import sys; sys.path[:] = {path!r}; {code}"]


def environment() -> dict[str, str]:
    """Return the environment that bubblewrap is started with: what a process inside could read of it is all of it."""
    kept = {k: v for k, v in os.environ.items() if k in _KEPT or k.startswith("LC_")}
    own = {"PATH": "/usr/bin:/bin", "HOME": HOME, "TMPDIR": HOME, "USER": "nobody", "LOGNAME": "nobody"}
    return {**kept, **own, **ONE_THREAD}


def _package() -> Path:
    return Path(__file__).resolve().parents[2]


def _is_library(path: Path) -> bool:
    """Whether an entry of the search path holds what was installed, or Python itself: never a folder of somebody's."""
    standard = (Path(sysconfig.get_paths()[name]) for name in ("stdlib", "platstdlib"))
    return path.name in {"site-packages", "dist-packages"} or any(path.is_relative_to(s) for s in standard)


def _search_path() -> list[Path]:
    """Return this process's search path without the user's own folders, whose modules travel with the recipe."""
    entries = [Path(p) for p in sys.path if p]
    return [p for p in entries if _is_library(p) or p.resolve() == _package().parent]


def _libraries() -> list[Path]:
    """Return the folders with Python, installed libraries and privgate, none inside another or the system's."""
    wanted = [Path(sys.prefix), Path(sys.base_prefix), *(p for p in _search_path() if _is_library(p)), _package()]
    chosen: list[Path] = []
    for path in sorted({p for p in wanted if p.is_dir()}, key=lambda p: len(p.parts)):
        if not any(path.is_relative_to(p) for p in (*map(Path, _SYSTEM), *chosen)):
            chosen.append(path)
    return chosen
