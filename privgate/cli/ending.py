"""How a command ends: every ending is an exit code, and nothing but a bug shows a traceback."""

import contextlib
import os
import re
import sys
import traceback
from pathlib import Path
from typing import Any, cast

import click

from privgate.cli.heartbeat import end, wrapped
from privgate.errors import ExitCode, PrivgateError


def _plainly(exc: click.BadParameter) -> click.BadParameter:
    """Return the error in words: click's own name of a kind of number is none."""
    found = re.search(r"is not a valid (integer|float)(?: range)?\.", exc.message)
    if found is None:
        return exc
    kind = "whole number" if found[1] == "integer" else "number"
    return click.BadParameter(exc.message.replace(found[0], f"is no {kind}."), exc.ctx, exc.param, exc.param_hint)


class _Unheard:
    """A stderr that may be full or gone: what nobody hears is dropped, and the exit code still says how."""

    def __init__(self, stream: Any) -> None:
        self._stream = stream

    def __getattr__(self, name: str) -> Any:
        return getattr(self._stream, name)

    def write(self, text: str) -> int:
        with contextlib.suppress(OSError):
            self._stream.write(text)
        return len(text)

    def flush(self) -> None:
        with contextlib.suppress(OSError):
            self._stream.flush()


def run(command: click.Command, arguments: list[str] | None, name: str) -> int:
    """Run a command line and return the exit code; Python and click would answer 1 to everything."""
    if sys.stderr is None:  # click would tell stdout
        sys.stderr = Path(os.devnull).open("w", encoding="utf-8")  # noqa: SIM115  as long as the process
    said, sys.stderr = sys.stderr, cast("Any", _Unheard(sys.stderr))
    code: int = ExitCode.INTERNAL
    with contextlib.suppress(OSError):  # where nobody hears why, the exit code still says how
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
            (_plainly(exc) if isinstance(exc, click.BadParameter) else exc).show()
        except (click.Abort, KeyboardInterrupt):
            code = ExitCode.INTERRUPTED
            click.echo("interrupted: what was computed is kept; the same command resumes", err=True)
        except (BrokenPipeError, SystemExit):  # click ends the process with 1 where nobody reads stdout
            code = ExitCode.INTERRUPTED
        except Exception:  # noqa: BLE001  a crash must not look like a failed policy
            traceback.print_exc()
            click.echo(f"this is a bug in {name}; nothing was approved", err=True)
        finally:
            end()
    sys.stderr = said
    return code
