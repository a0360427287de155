"""That a long command is alive, at what, and for how long still: a first line at once, then one at least every 20 s.

Light, because its first line is there before the libraries are read. Where stderr is a terminal, one line is drawn over
and over; elsewhere each is a line of its own.
"""

import contextlib
import math
import os
import re
import sys
import textwrap
import threading
import time
from dataclasses import dataclass, field

import click

from privgate.vocabulary import span

WIDTH = 100  # characters of a line
_SECONDS = 20.0  # of silence
_WORTH_TELLING = 10.0  # seconds left, from which an estimate is worth a line
#: a number and the word behind it stay on one line
_TOGETHER = re.compile(r"(?<=\d) (?=[^\W\d_]|%)")


@dataclass
class _State:
    label: str = ""
    done: int = 0
    total: int = 0
    left: float = math.nan
    began: float = 0.0
    said: float = 0.0
    estimated: bool = False
    ended: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_now = _State()


def begin(text: str) -> None:
    """Say what is begun, and from now on at least every 20 s that it goes on."""
    with _now.lock:
        _now.label, _now.done, _now.total, _now.left, _now.began = "", 0, 0, math.nan, time.monotonic()
        _say(text)
        if _now.ended is None:
            _now.ended = threading.Event()
            threading.Thread(target=_beat, args=(_now.ended,), daemon=True).start()


def end() -> None:
    """Fall silent."""
    if _now.ended is not None:
        _now.ended.set()
        _now.ended = None


def progress(done: int, total: int, seconds_left: float, label: str = "retraining") -> None:
    """Draw one line of progress on stderr; where that is no terminal, a line a phase, an estimate and every 20 s."""
    with _now.lock:
        fresh = label != _now.label
        _now.label, _now.done, _now.total, _now.left = label, done, total, seconds_left
        if fresh:
            _now.began, _now.estimated = time.monotonic(), False
        if sys.stderr.isatty():
            _write(f"\r\x1b[2K{_line()[:WIDTH]}", nl=done >= total)
            return
        first = seconds_left >= _WORTH_TELLING and not _now.estimated
        _now.estimated = _now.estimated or first
        if fresh or first or time.monotonic() - _now.said >= _SECONDS:
            _say(_line())


def _line() -> str:
    left = f", about {span(_now.left)} left" if _now.left > 0 else ""
    return f"{_now.label}: {_now.done} of {_now.total}{left}"


def _say(text: str) -> None:
    _write(("\r\x1b[2K" if sys.stderr.isatty() else "") + wrapped(text))


def _write(text: str, *, nl: bool = True) -> None:
    with contextlib.suppress(OSError):  # where nobody hears of it, the work goes on
        click.echo(text, nl=nl, err=True)
    _now.said = time.monotonic()


def _beat(ended: threading.Event) -> None:
    while not ended.wait(min(1.0, _SECONDS / 2)):
        with _now.lock:
            if time.monotonic() - _now.said >= _SECONDS and not ended.is_set():
                what = f"{_line()}; " if _now.label and _now.done < _now.total else ""
                behind = f" after {_now.label}" if _now.label and not what else ""
                _say(f"{what}still at work{behind}, {span(round(time.monotonic() - _now.began))} so far")


def _width() -> int:
    """Return how long a line may be: ``PRIVGATE_COLUMNS``, for whoever searches logs for whole messages, or 100."""
    given = os.environ.get("PRIVGATE_COLUMNS", "")
    return max(40, int(given)) if given.isdecimal() else WIDTH


def wrapped(text: str) -> str:
    """Return text in lines that fit, all but the first further in; a number keeps its unit.

    A path or an address that is longer stays whole.
    """
    lines = []
    for line in text.split("\n"):
        within = line[: len(line) - len(line.lstrip())]
        kept = _TOGETHER.sub("\N{NO-BREAK SPACE}", line.strip())
        lines += textwrap.wrap(kept, _width(), initial_indent=within, subsequent_indent=within + "    ",
                               break_long_words=False, break_on_hyphens=False) or [""]  # fmt: skip
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")
