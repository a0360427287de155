"""Which files a worker opens: Python's own ``open`` is watched, from before anything of the user's is imported.

A reader in another language (pyarrow, HDF5, a database's client) opens files that nobody sees here.
"""

import os
import sys
from pathlib import Path
from typing import Any

#: what belongs to the machine and to libraries: programs, fonts, time zones, devices, settings
_MACHINE = ("/proc/", "/sys/", "/dev/", "/etc/", "/usr/", "/lib", "/run/")
_ROOTS = tuple(f"{os.path.realpath(p)}/" for p in (sys.prefix, sys.base_prefix))
_ENDINGS = (".py", ".pyc", ".pyi", ".so", ".ttf", ".otf", ".afm", ".pth", ".mplstyle")
_PARTS = ("/site-packages/", "/dist-packages/", ".dist-info/", "/matplotlib/", "/fontconfig/", "/fonts/", "/zoneinfo/",
          "/.config/mlflow/")  # fmt: skip

_read = dict[str, None]()
_written = set[str]()


def watch_files() -> None:
    """Note from now on which files this process opens; a second call changes nothing."""
    if _note not in _watching:
        _watching.append(_note)
        sys.addaudithook(_note)


def _note(event: str, arguments: tuple[Any, ...]) -> None:
    if event not in ("open", "sqlite3.connect") or not isinstance(arguments[0], str | bytes):
        return
    path = os.fsdecode(arguments[0])
    if path.startswith(_ROOTS) and ".." not in path:  # of libraries, which are many, and whose links stay there
        return
    path = os.path.realpath(path)  # now: a link may be gone in the end
    mode, flags = (arguments[1], arguments[2]) if event == "open" else ("r", 0)
    if (mode or "r")[0] in "wxa" or flags & (os.O_WRONLY | os.O_CREAT):
        _written.add(path)
    elif len(_read) < 10_000:
        _read.setdefault(path)


_watching = list[Any]()


def list_opened(*folders: str) -> list[str]:
    """Return the files that were read, in order: none of a library's, of ``folders``, or that this process wrote."""
    given = (*_ROOTS, *_MACHINE, *(f"{os.path.realpath(f)}/" for f in (*folders, str(Path.cwd()))))
    return [
        path
        for path in _read
        if not path.startswith(given)
        and not path.endswith(_ENDINGS)
        and not any(part in path for part in _PARTS)
        and path not in _written
        and Path(path).is_file()
    ]
