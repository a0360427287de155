"""What the guard costs: promotions on a guarded and an unguarded server in turns, and processor time inside."""

import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor

import pytest
from mlflow.store.model_registry.sqlalchemy_store import SqlAlchemyStore

from privgate.guard import store as guard
from tests.bench.results_table import note
from tests.guard.store.conftest import Registry, Site

pytestmark = [pytest.mark.bench, pytest.mark.server]

CALLS, CLIENTS, TURNS = 400, 20, 4


def calls(registry, name, version, clients, count):
    """Return the seconds of each of ``count`` accepted promotions."""
    body = {"name": name, "alias": "production", "version": version}

    def call(_):
        begin = time.perf_counter()
        status, _answer = registry.post("/api/2.0/mlflow/registered-models/alias", body)
        return status, time.perf_counter() - begin

    with ThreadPoolExecutor(clients) as pool:
        answers = list(pool.map(call, range(count)))
    assert {status for status, _ in answers} == {200}
    return [seconds for _, seconds in answers]


def quantiles(seconds):
    took = sorted(1000 * s for s in seconds)
    return {"p50": round(statistics.median(took), 1), "p99": round(took[int(len(took) * 0.99)], 1)}


def inside(registry, name, version, database, monkeypatch):
    """Return milliseconds of processor time of one promotion in this process: by MLflow's own store, and guarded."""
    monkeypatch.setenv("PRIVGATE_GUARD", str(registry.site.config))
    store = guard.guarded_store(f"privgate:sqlite:///{database}")
    stores, spent = {"guarded": store, "plain": SqlAlchemyStore(f"sqlite:///{database}")}, {}
    for _ in range(2):  # the first time, what is read once is read
        for kind, made in stores.items():
            begin = time.process_time()
            for _ in range(CALLS):
                made.set_registered_model_alias(name, "production", version)
            spent[kind] = 1000 * (time.process_time() - begin) / CALLS
    return spent


def test_the_guard_costs_milliseconds(tmp_path, running_mlflow, running_guarded, monkeypatch):
    site, folders = Site(tmp_path / "site"), [tmp_path / n for n in ("plain", "guarded")]
    for folder in folders:
        folder.mkdir()
    with running_mlflow(folders[0]) as plain, running_guarded(folders[1], site=site) as guarded:
        both = {"plain": Registry(plain, site), "guarded": guarded}
        signed = {}
        for kind, registry in both.items():
            signed[kind] = registry.log("m")
            registry.sign("m", signed[kind])
            calls(registry, "m", signed[kind], 1, 5)
        alone, together = ({"plain": [], "guarded": []} for _ in range(2))
        for _ in range(TURNS):  # in turns, so that a busy moment of the machine hits both
            for kind, registry in both.items():
                alone[kind] += calls(registry, "m", signed[kind], 1, CALLS // TURNS)
                together[kind] += calls(registry, "m", signed[kind], CLIENTS, CALLS // TURNS)
        shutil.copy(folders[1] / "tracking.db", tmp_path / "copy.db")
    spent = inside(both["guarded"], "m", signed["guarded"], tmp_path / "copy.db", monkeypatch)
    assert spent["guarded"] > spent["plain"] > 0
    processor = {f"{kind}_processor_ms": round(ms, 2) for kind, ms in spent.items()}
    processor["added_processor_ms"] = round(spent["guarded"] - spent["plain"], 2)
    for case, took in ((f"{CLIENTS} clients", together), ("one client", alone)):
        figures = {f"{kind}_{q}_ms": ms for kind, seconds in took.items() for q, ms in quantiles(seconds).items()}
        note(bench="guard", case=f"a promotion, {case}", **figures, **(processor if took is alone else {}))
