"""Real MLflow servers on loopback, for fixtures."""

import contextlib
import os
import random
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest


def find_free_port() -> int:
    """Return a loopback port that nobody listens on, and that no connection gets by itself before it is used.

    Systems give ports from 32768 upwards to outgoing connections, of which the tests make hundreds at any moment.
    """
    for port in random.SystemRandom().sample(range(20_000, 32_000), 100):
        with socket.socket() as s, contextlib.suppress(OSError):
            s.bind(("127.0.0.1", port))
            return port
    pytest.fail("no port is free on loopback")


@contextlib.contextmanager
def run_mlflow(
    folder: Path,
    *options: str,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    port: int | None = None,
    database: Path | None = None,
) -> Iterator[str]:
    """Run a real ``mlflow server`` on loopback while this lasts; ended by its own process group.

    SQLite files that do not exist yet begin as copies of ``database``.
    """
    port = port or find_free_port()
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), *options]
    if "--workers" not in options:
        command += ["--workers", "1"]
    if not {"--backend-store-uri", "--artifacts-only"} & set(options):
        command += ["--backend-store-uri", f"sqlite:///{folder}/tracking.db"]
    if "--artifacts-destination" not in options:
        command += ["--artifacts-destination", str(folder / "artifacts")]
    if database is not None and python == sys.executable:
        for path in {Path(part.partition("sqlite:///")[2]) for part in command if "sqlite:///" in part}:
            if not path.exists():
                shutil.copy(database, path)
    environment = {k: v for k, v in os.environ.items() if not k.startswith("MLFLOW_")}
    environment |= {"MLFLOW_SERVER_ENABLE_JOB_EXECUTION": "false", **(env or {})}
    log = (folder / "server.log").open("wb")
    process = subprocess.Popen(
        command, cwd=folder, env=environment, stdout=log, stderr=subprocess.STDOUT, start_new_session=True
    )
    try:
        _await_health(process, f"http://127.0.0.1:{port}/health", folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        # asked first: a process that ends by itself leaves its measured coverage behind
        for end in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, end)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=60)
        log.close()


def _await_health(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + 280
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"mlflow server did not start:\n{log.read_text(errors='replace')[-2000:]}")
