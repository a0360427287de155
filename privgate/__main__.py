"""``python -m privgate`` and the ``privgate`` command: run it and map every ending to an exit code."""

import os
import sys
import traceback

import click

from privgate.cli import cli
from privgate.errors import ExitCode, PrivgateError

#: what the process and those it starts are told, unless their environment says otherwise
SETTINGS = {
    # a warning of a library is no finding, and a report that goes to a pipe must stay readable
    "PYTHONWARNINGS": "ignore",
    # MLflow tries a dead server again for minutes; here a few seconds must do
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GX_ANALYTICS_ENABLED": "false",
}


def main(arguments: list[str] | None = None, command: click.Command = cli) -> None:
    """Run a command line; nobody else ends the process."""
    # once, before any thread: nothing below writes the environment, which a thread may be reading
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    sys.exit(run(arguments, command))


def run(arguments: list[str] | None = None, command: click.Command = cli) -> int:
    """Run a command line and return the exit code; Python and click would answer 1 to everything."""
    try:
        code = command.main(args=arguments, prog_name=command.name, standalone_mode=False)
    except PrivgateError as exc:
        click.echo(f"error: {exc}", err=True)
        code = exc.exit_code
    except click.ClickException as exc:
        exc.show()
        code = ExitCode.USAGE
    except (click.Abort, KeyboardInterrupt):
        click.echo("interrupted: what was computed is kept; the same command resumes", err=True)
        code = ExitCode.INTERRUPTED
    except BrokenPipeError:
        code = ExitCode.INTERRUPTED
    except Exception:  # noqa: BLE001  a crash must not look like a failed policy
        traceback.print_exc()
        click.echo("this is a bug in privgate; nothing was approved", err=True)
        code = ExitCode.INTERNAL
    return int(code or 0)


if __name__ == "__main__":
    main()
