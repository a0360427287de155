"""What the terminal shows: that a long command is alive, notes, and how a command ends: by an exit code.

Light, because its first line is there before the libraries are read; then follows one at least every 20 s. Where stderr
is a terminal, one line is drawn over and over; elsewhere each is a line of its own.
"""

import contextlib
import errno
import math
import os
import re
import sys
import textwrap
import threading
import time
import traceback
from dataclasses import dataclass, field
from pathlib import Path

import click

from privgate.errors import ExitCode, PrivgateError
from privgate.vocabulary import span

WIDTH = 100  # characters of a line
_SECONDS = 4.0  # of silence, looked at each second: at most 5
_WORTH_TELLING = 10.0  # seconds left, from which an estimate is worth a line
#: a number and the word behind it stay on one line
_TOGETHER = re.compile(r"(?<=\d) (?=[^\W\d_]|%)")


@dataclass
class _State:
    label: str = ""
    done: int = 0
    total: int = 0
    seconds_left: float = math.nan
    began: float = 0.0
    said: float = 0.0
    estimated: bool = False
    ended: threading.Event | None = None
    lock: threading.Lock = field(default_factory=threading.Lock)


_now = _State()


def begin(text: str) -> None:
    """Say what is begun, and from now on at least every 5 s that it goes on."""
    with _now.lock:
        _now.label, _now.done, _now.total, _now.seconds_left, _now.began = "", 0, 0, math.nan, time.monotonic()
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
    """Draw one line of progress on stderr; where that is no terminal, a line a phase, an estimate and every 5 s."""
    with _now.lock:
        fresh = label != _now.label
        _now.label, _now.done, _now.total, _now.seconds_left = label, done, total, seconds_left
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
    remaining = f", about {span(_now.seconds_left)} left" if _now.seconds_left > 0 else ""
    return f"{_now.label}: {_now.done} of {_now.total}{remaining}"


def _say(text: str) -> None:
    _write(("\r\x1b[2K" if sys.stderr.isatty() else "") + wrapped(text))


def _write(text: str, *, nl: bool = True) -> None:
    with contextlib.suppress(OSError):  # without a readable stderr the work goes on
        click.echo(text, nl=nl, err=True)
    _now.said = time.monotonic()


def _beat(ended: threading.Event) -> None:
    while not ended.wait(min(1.0, _SECONDS / 2)):
        with _now.lock:
            if time.monotonic() - _now.said >= _SECONDS and not ended.is_set():
                what = f"{_line()}; " if _now.label and _now.done < _now.total else ""
                behind = f" after {_now.label}" if _now.label and not what else ""
                _say(f"{what}still at work{behind}, {span(round(time.monotonic() - _now.began))} so far")


def wrapped(text: str) -> str:
    """Return text in lines that fit, all but the first further in; a number keeps its unit.

    A path or an address that is longer stays whole.
    """
    lines, given = [], os.environ.get("PRIVGATE_COLUMNS", "")
    width = max(40, int(given)) if given.isdecimal() else WIDTH
    for line in text.split("\n"):
        within = line[: len(line) - len(line.lstrip())]
        kept = _TOGETHER.sub("\N{NO-BREAK SPACE}", line.strip())
        lines += textwrap.wrap(kept, width, initial_indent=within, subsequent_indent=within + "    ",
                               break_long_words=False, break_on_hyphens=False) or [""]  # fmt: skip
    return "\n".join(lines).replace("\N{NO-BREAK SPACE}", " ")


def plain(text: str) -> str:
    """Return foreign text on one line without control characters: names must not move the cursor or forge log lines."""
    return "".join(c if c.isprintable() else "?" for c in text)


def say(text: str, *, err: bool = False) -> None:
    """Print a line, in several where it has more than 100 characters."""
    text = wrapped(plain(text))
    _write(text) if err else click.echo(text)


def note(text: str) -> None:
    """Say something on stderr before work starts."""
    say(f"note: {text}", err=True)


# How a command ends: every ending is an exit code, and nothing but a bug shows a traceback.


def run(command: click.Command, arguments: list[str] | None, name: str) -> int:
    """Run a command line and return the exit code; Python and click would answer 1 to everything."""
    if sys.stderr is None:  # click would tell stdout
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  as long as the process
    code: int = ExitCode.INTERNAL
    with contextlib.suppress(OSError):  # without a readable stderr the exit code still tells the result
        try:
            # https://no-color.org: any value but an empty one
            color = False if os.environ.get("NO_COLOR") else None
            code = int(command.main(args=arguments, prog_name=name, standalone_mode=False, color=color) or 0)
        except PrivgateError as exc:
            code = exc.exit_code
            # names in it may hold bytes that are no text
            click.echo(wrapped(f"error: {exc}").encode("utf-8", "backslashreplace").decode(), err=True)
        except click.ClickException as exc:
            code = ExitCode.USAGE
            exc.show()
        except (click.Abort, KeyboardInterrupt):
            code = ExitCode.INTERRUPTED
            click.echo("interrupted: what was computed is kept; the same command resumes", err=True)
        except (BrokenPipeError, SystemExit):  # click exits with 1 if stdout is closed
            code = ExitCode.INTERRUPTED
        except Exception as exc:  # noqa: BLE001  a crash must not look like a failed policy
            if isinstance(exc, OSError) and exc.errno == errno.ENOSPC:
                click.echo("error: a disk is full: what was written is not whole; make room, and try again", err=True)
                return ExitCode.USAGE
            traceback.print_exc()
            click.echo(f"this is a bug in {name}; nothing was approved", err=True)
        finally:
            end()
    return code
