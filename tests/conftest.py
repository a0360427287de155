"""Fixtures that every part of the suite shares."""

import contextlib
import functools
import os
import shutil
import signal
import socket
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

SHARED = Path(__file__).resolve().parents[2] / "shared" / "data"
TESTS = Path(__file__).resolve().parent
SERVED = {"gate", "hooks", "registry", "store", "trust"}


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep an area's tests in one process, so that a run starts each server, database, browser and cluster once."""
    for item in items:
        inside = item.path.is_relative_to(TESTS)
        area = item.path.relative_to(TESTS).parts[0] if inside else "privgate"
        served = area in SERVED and {"mlflow_server", "running_mlflow"} & set(getattr(item, "fixturenames", ()))
        item.add_marker(pytest.mark.xdist_group("servers" if served or area in {"store", "registry"} else area))


@pytest.fixture(scope="session")
def shared_data() -> Callable[[str], Path]:
    """Return a file of the papers' data sets, which are kept beside the checkout; skip, saying why, without them."""

    def find(name: str) -> Path:
        path = SHARED / name
        if not path.is_file():
            pytest.skip(f"{name} is not in ../shared/data: the papers' data sets are not part of this repository")
        return path

    return find


@pytest.fixture(scope="session", autouse=True)
def own_ledger(tmp_path_factory: pytest.TempPathFactory) -> None:
    """Remember nothing outside the test run, in this process or in the commands it starts."""
    os.environ["PRIVGATE_LEDGER"] = str(tmp_path_factory.mktemp("ledger"))


def free_port() -> int:
    """Return a loopback port that nobody listens on."""
    with socket.socket() as s:
        s.bind(("127.0.0.1", 0))
        return int(s.getsockname()[1])


@contextlib.contextmanager
def _running_mlflow(
    folder: Path,
    *options: str,
    env: dict[str, str] | None = None,
    python: str = sys.executable,
    wait: bool = True,
    database: Path | None = None,
    politely: bool = True,
) -> Iterator[str]:
    """Run a real ``mlflow server`` on loopback while this lasts; ended by its own process group.

    SQLite files that do not exist yet begin as copies of ``database``. Without ``politely`` it ends by kill -9.
    """
    port = free_port()
    command = [python, "-m", "mlflow", "server", "--host", "127.0.0.1", "--port", str(port), *options]
    if "--workers" not in options:
        command += ["--workers", "1"]
    if "--backend-store-uri" not in options:
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
        if wait:
            _await_health(process, f"http://127.0.0.1:{port}/health", folder / "server.log")
        yield f"http://127.0.0.1:{port}"
    finally:
        # asked first: a process that ends by itself leaves its measured coverage behind
        for end in (signal.SIGTERM, signal.SIGKILL) if politely else (signal.SIGKILL,):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(process.pid, end)
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(timeout=8)
        log.close()


def _await_health(process: subprocess.Popen[bytes], url: str, log: Path) -> None:
    deadline = time.monotonic() + 120
    while time.monotonic() < deadline and process.poll() is None:
        try:
            with urllib.request.urlopen(url, timeout=2) as answer:
                if answer.status == 200:
                    return
        except (urllib.error.URLError, OSError):
            time.sleep(0.2)
    pytest.fail(f"mlflow server did not start:\n{log.read_text(errors='replace')[-2000:]}")


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated SQLite database to copy: migrating takes every server and registry seconds."""
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

    path = tmp_path_factory.mktemp("database") / "empty.db"
    SqlAlchemyStore(f"sqlite:///{path}").engine.dispose()  # no experiment yet: each server's says where its files lie
    return path


@pytest.fixture(scope="session")
def running_mlflow(empty_database: Path) -> Callable[..., contextlib.AbstractContextManager[str]]:
    """Return the context manager behind ``mlflow_server``: (folder, *options, env=..., python=..., wait=...)."""
    return functools.partial(_running_mlflow, database=empty_database)


@pytest.fixture(scope="session")
def mlflow_server(
    tmp_path_factory: pytest.TempPathFactory, running_mlflow: Callable[..., contextlib.AbstractContextManager[str]]
) -> Iterator[str]:
    """Address of a real MLflow server for the whole session; use names of your own in it."""
    with running_mlflow(tmp_path_factory.mktemp("mlflow-server")) as address:
        yield address
