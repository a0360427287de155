"""Whose code a frame runs: the recipe's own, an installed library's, ours, or Python's."""

import sys
import sysconfig
from functools import cache
from pathlib import Path
from types import CodeType, FrameType
from typing import Literal

Whose = Literal["own", "library", "ours", "python"]

_PACKAGE = str(Path(__file__).resolve().parent.parent) + "/"
#: what a notebook or an interactive session calls its code, and cloudpickle 3.1.3 on whatever it carries by value
_TYPED = ("<ipython", "<stdin>", "<cell", "<dynamic-code>")


@cache
def places() -> tuple[str, ...]:
    """Return where Python and its distributions are installed."""
    paths = sysconfig.get_paths()
    roots = {paths[k] for k in ("stdlib", "platstdlib", "purelib", "platlib")}
    roots |= {sys.prefix, sys.base_prefix}
    return tuple(sorted({str(Path(r).resolve()) + "/" for r in roots} | {r + "/" for r in roots}, key=len))


def whose(code: CodeType) -> Whose:
    """Return whose a piece of code is; what a library makes up as text counts as Python's, its caller decides."""
    return of_file(code.co_filename)


@cache
def of_file(name: str) -> Whose:
    """Return whose the code in a file is."""
    if name.startswith("<"):
        return "own" if name.startswith(_TYPED) else "python"
    if name.startswith(_PACKAGE):
        return "ours"
    if "/site-packages/" in name or "/dist-packages/" in name:
        return "library"
    return "python" if name.startswith(places()) else "own"


def asker(frame: FrameType | None) -> Whose:
    """Return who asks for what Python is doing in ``frame``: the innermost code that is not Python's.

    What ours does for the recipe's own code is the recipe's.
    """
    found: Whose = "python"
    while frame is not None:
        kind = whose(frame.f_code)
        if kind == "own" or (kind == "library" and found == "python"):
            return kind
        found = kind if kind == "ours" else found
        frame = frame.f_back
    return found


def importing(frame: FrameType | None) -> bool:
    """Whether Python's own import is at work before any other code."""
    while frame is not None and whose(frame.f_code) == "python":
        if frame.f_code.co_filename.startswith(("<frozen importlib", "<frozen zipimport")):
            return True
        frame = frame.f_back
    return False
