"""Fixtures that every part of the suite shares."""

import contextlib
import functools
import gc
import os
import re
import shutil
import sqlite3
import sys
import tempfile
from collections.abc import Callable, Generator, Iterator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest

from privgate.controls import suites
from privgate.subject import sources
from privgate.training.sandbox import bubblewrap
from tests import sampling, servers

if TYPE_CHECKING:
    from sqlalchemy import Engine

    from privgate import Policy
    from privgate.training.fleet import Fleet

gc.disable()  # until everything is collected: of what is imported, nothing is garbage
_provided = functools.cache(lambda modules, _path, ask=sources.providing: ask(modules))  # it reads hundreds of files
sources.providing = lambda modules: _provided(tuple(modules), tuple(sys.path))
suites.MOST_SENT = 0  # Great Expectations is imported once in a process, not by each check; commands do as they do
SHARED = Path(os.environ.get("PRIVGATE_DATA", Path(__file__).resolve().parents[2] / "shared" / "data"))
TESTS = Path(__file__).resolve().parent

#: names of programs, joined by commas, that a run does not find, though they may be installed
HIDE = "PRIVGATE_TESTS_HIDE"
#: fixtures and modules by which a test depends on PostgreSQL, Chromium or bubblewrap
OUTSIDE = {"postgres", "browser"}, {"privgate.training.isolation", "privgate.training.sandbox.bubblewrap"}

#: where such tests lie: with programs hidden, nothing else is collected
OUTSIDE_LIES = {"browser", "guard", "training"}
#: how a file says that all its tests are slow
WHOLE_FILE = re.compile(r"^pytestmark = (?:\[[^\]]*)?pytest\.mark\.(slow)\b", re.MULTILINE)
#: fixtures that start a server for the whole session; who shares one is an area of its own
SERVERS = ("guarded_server", "mlflow_server", "postgres")
#: groups that take longest, which begin first: one that began last would run alone at the end
LONGEST = ("registry", "guarded_server", "check", "influence", "claims", "membership", "training", "theorems",
           "run", "guard/store", "kernel", "report", "browser")  # fmt: skip


def pytest_configure(config: pytest.Config) -> None:
    """Put links to all other programs in the place of each folder on PATH that holds one of those to hide."""
    names = set(filter(None, os.environ.get(HIDE, "").split(",")))
    folders = [Path(folder) for folder in os.environ["PATH"].split(os.pathsep)]
    for i, folder in enumerate(folders):
        if any((folder / name).exists() for name in names):
            folders[i] = Path(tempfile.mkdtemp(prefix="privgate-path-"))
            folders[i].chmod(0o755)  # some tests become other users
            config.add_cleanup(functools.partial(shutil.rmtree, folders[i]))
            for program in folder.iterdir():
                if program.name not in names:
                    (folders[i] / program.name).symlink_to(program)
    os.environ["PATH"] = os.pathsep.join(map(str, folders))
    assert not [name for name in names if shutil.which(name)]


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Pass over files of which no test will run: importing what they need takes seconds of each worker.

    These are files whose every test is left out by its mark, and where programs are hidden, what rests on none of them.
    """
    asked = os.environ.get(HIDE) and config.option.markexpr.startswith("outside")
    if asked and collection_path.parent == TESTS and collection_path.name not in OUTSIDE_LIES:
        return True
    text = collection_path.read_text(encoding="utf-8") if collection_path.suffix == ".py" else ""
    marked = WHOLE_FILE.search(text)
    return (marked and f"not {marked[1]}" in config.option.markexpr) or None


@pytest.hookimpl(tryfirst=True)  # before cases are deselected for being slow
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Keep an area's tests in one process, so that a run starts each server, database, browser and cluster once."""
    sampling.mark_the_rest_slow(items)
    fixtures, modules = OUTSIDE
    place: dict[pytest.Item, int] = {}
    used = functools.cache(lambda module: modules & {getattr(v, "__name__", "") for v in vars(module).values()})
    place_of = functools.cache(lambda path: path.relative_to(TESTS) if path.is_relative_to(TESTS) else None)
    for item in items:
        area, fixed = "privgate", set(getattr(item, "fixturenames", ()))
        if fixtures & fixed or used(getattr(item, "module", sys)):
            item.add_marker("outside")
        if inside := place_of(item.path):
            area = inside.name if inside.parent == Path() else inside.parent.as_posix()
            if inside.parts[0] not in OUTSIDE_LIES and item.get_closest_marker("outside"):
                assert item.get_closest_marker("slow"), item.nodeid
        group = next((name for name in SERVERS if name in fixed), area)
        item.add_marker(pytest.mark.xdist_group(group))
        place[item] = LONGEST.index(group) if group in LONGEST else len(LONGEST)
    items.sort(key=place.__getitem__)


def pytest_collection_finish(session: pytest.Session) -> None:
    """Fail where groups are asked for and not kept: each process would start servers of its own, unseen."""
    if getattr(session.config.option, "loadgroup", False):
        assert all("@" in item.nodeid for item in session.items), "pytest-xdist keeps no groups with this pytest"
    _asked_once()
    # what was imported and collected stays to the end: looking through it again and again took a tenth of the time
    gc.freeze()
    gc.enable()
    gc.set_threshold(20_000, 10, 10)


def _asked_once() -> None:
    """Remember what is found out anew for each registry, logged model and copy of an estimator."""
    if "mlflow.store.db.utils" in sys.modules:
        from mlflow.store.db import utils
        from mlflow.utils import requirements_utils as needed

        kept = sqlite3.connect(":memory:", check_same_thread=False)
        utils._get_latest_schema_revision = functools.cache(utils._get_latest_schema_revision)
        utils._initialize_tables = functools.partial(_initialize, utils._initialize_tables, kept)
        needed._init_packages_to_modules_map = functools.cache(needed._init_packages_to_modules_map)
    if "sklearn.base" in sys.modules:
        from sklearn.base import BaseEstimator

        BaseEstimator._get_param_names = classmethod(functools.cache(BaseEstimator._get_param_names.__func__))


def _initialize(migrate: Callable[["Engine"], None], kept: sqlite3.Connection, engine: "Engine") -> None:
    """Make MLflow's tables; in an empty SQLite database as a copy of the first ones, as all of these are alike."""
    with contextlib.closing(engine.raw_connection()) as pooled:
        here, any_table = pooled.driver_connection, "SELECT 1 FROM sqlite_master"
        alike = isinstance(here, sqlite3.Connection) and not here.execute(any_table).fetchone()
        if copied := alike and kept.execute(any_table).fetchone():
            kept.backup(here)
    if not copied:
        migrate(engine)
    if alike and not copied:
        with contextlib.closing(engine.raw_connection()) as pooled:
            pooled.driver_connection.backup(kept)


def _no_box() -> "bubblewrap.Installed":
    return bubblewrap.Installed(why="this test is about something else, and a box imports every library anew")


@pytest.hookimpl(wrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Generator[None, object, object]:
    """Train in boxes where a test is about them or marked ``boxed``; commands in processes of their own do anyway."""
    with pytest.MonkeyPatch.context() as patch:
        if not any(map(item.get_closest_marker, ("outside", "boxed"))):
            patch.setattr(bubblewrap, "find_bubblewrap", _no_box)
        return (yield)


@pytest.fixture(scope="session", autouse=True)
def _no_waiting_for_the_disk() -> None:
    """Let SQLite return before the disk has it: no test pulls the plug, and each commit waited for 20 ms."""
    from sqlalchemy import Engine, event

    @event.listens_for(Engine, "connect")
    def _connected(connection: object, _record: object) -> None:
        if isinstance(connection, sqlite3.Connection):
            connection.execute("PRAGMA synchronous = OFF")


# the same examples every time, and none that fails because the machine is busy
hypothesis.settings.register_profile(
    "gate", max_examples=50, deadline=None, derandomize=True, suppress_health_check=[hypothesis.HealthCheck.too_slow]
)
hypothesis.settings.load_profile("gate")


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    """Keep what a worker measured before it says that it is finished: 10 s later it is killed, done or not."""
    if not hasattr(session.config, "workeroutput") or "coverage" not in sys.modules:
        return
    measured = sys.modules["coverage"].Coverage.current()
    if measured is not None:
        measured.stop()  # so that the end of the process writes nothing more, and being killed in it loses nothing
        measured.save()


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
    os.environ["PRIVGATE_COLUMNS"] = "100000"  # whole messages; tests of wrapping take it away
    os.environ["PRIVGATE_LEDGER"] = str(tmp_path_factory.mktemp("ledger"))


@pytest.fixture(scope="module")
def fleet(tmp_path_factory: pytest.TempPathFactory) -> Iterator["Fleet"]:
    """A fleet of one worker that remembers what the tests of one file have trained."""
    from privgate.training.fleet import Fleet

    with Fleet(jobs=1, ledger=tmp_path_factory.mktemp("ledger")) as made:
        yield made


@pytest.fixture(autouse=True)
def no_report_tells_a_small_count(monkeypatch: pytest.MonkeyPatch) -> None:
    """Ask it of every report document that any test makes in its own process, the made-up ones of goldens aside."""
    document = sys.modules.get("privgate.report.document")
    if document is None:
        return
    from tests.report.small_counts import told_by

    read = document.read

    def checked(doc: dict[str, object]) -> object:
        told = read(doc)  # refuses what is no report
        found = told_by(doc)
        assert not found, found
        return told

    monkeypatch.setattr(document, "read", checked)


@pytest.fixture
def own_registry(empty_database: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Give served subjects a migrated database to copy, and MLflow's process-wide address back."""
    monkeypatch.setenv("REFEREE_EMPTY_DATABASE", str(empty_database))
    yield
    import mlflow

    mlflow.tracking.fluent._active_experiment_id = None
    os.environ.pop("MLFLOW_EXPERIMENT_ID", None)
    mlflow.set_tracking_uri(None)


@pytest.fixture
def write_policy(tmp_path: Path) -> Callable[..., Path]:
    """Return what writes a policy of a test's own: what stands below its head, and its name."""

    def write(text: str, name: str = "mine") -> Path:
        path = tmp_path / f"{name}.yaml"
        path.write_text(f'schema: privgate/policy/v1\nname: {name}\nversion: "1"\n{text}', encoding="utf-8")
        return path

    return write


@pytest.fixture
def load_policy(write_policy: Callable[..., Path]) -> Callable[..., "Policy"]:
    """Return what loads such a policy."""
    from privgate import Policy

    return lambda text, name="mine": Policy.load(write_policy(text, name))


@pytest.fixture(scope="session")
def free_port() -> Callable[[], int]:
    """Return a function that returns a loopback port for a server that is about to start."""
    return servers.find_free_port


@pytest.fixture(scope="session")
def empty_database(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return a migrated SQLite database to copy: migrating takes every server and registry seconds."""
    from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

    path = tmp_path_factory.mktemp("database") / "empty.db"
    SqlAlchemyStore(f"sqlite:///{path}").engine.dispose()  # no experiment yet: each server's says where its files lie
    return path


@pytest.fixture(scope="session")
def running_mlflow(empty_database: Path) -> Callable[..., contextlib.AbstractContextManager[str]]:
    """Return the context manager behind ``mlflow_server``: (folder, *options, env=..., python=..., port=...)."""
    return functools.partial(servers.run_mlflow, database=empty_database)


@pytest.fixture(scope="session")
def mlflow_server(
    tmp_path_factory: pytest.TempPathFactory, running_mlflow: Callable[..., contextlib.AbstractContextManager[str]]
) -> Iterator[str]:
    """Address of a real MLflow server for the whole session; use names of your own in it."""
    with running_mlflow(tmp_path_factory.mktemp("mlflow-server")) as address:
        yield address
