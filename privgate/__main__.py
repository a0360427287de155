"""``python -m privgate`` and the ``privgate`` command: run it and map every ending to an exit code."""

import gc
import os
import sys

import click

from privgate.cli import cli, console

#: what the process and those it starts are told, unless their environment says otherwise
SETTINGS = {
    # a warning of a library is no finding, and a report that goes to a pipe must stay readable
    "PYTHONWARNINGS": "ignore",
    # MLflow tries a dead server again for minutes; here a few seconds must do
    "MLFLOW_HTTP_REQUEST_MAX_RETRIES": "2",
    "MLFLOW_HTTP_REQUEST_BACKOFF_FACTOR": "1",
    "MLFLOW_ENABLE_ARTIFACTS_PROGRESS_BAR": "false",
    "GX_ANALYTICS_ENABLED": "false",
    "MLFLOW_DISABLE_TELEMETRY": "true",
}


def main(arguments: list[str] | None = None, command: click.Command = cli) -> None:
    """Run a command line; nobody else ends the process."""
    # once, before any thread: nothing below writes the environment, which a thread may be reading
    for name, value in SETTINGS.items():
        os.environ.setdefault(name, value)
    gc.set_threshold(20_000)  # of what is imported, nothing is garbage; looking through it is a tenth of the time
    code = run(arguments, command)
    gc.freeze()  # nor when the process ends
    sys.exit(code)


def run(arguments: list[str] | None = None, command: click.Command = cli) -> int:
    """Run a command line and return the exit code."""
    return console.run(command, arguments, str(command.name))


if __name__ == "__main__":
    main()
