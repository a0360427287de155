"""What the guard costs: promotions on a guarded and an unguarded server in turns, and the time inside the guard."""

import json
import os
import shutil
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from privgate.guard import guard

pytestmark = [pytest.mark.bench, pytest.mark.server]

RESULTS = Path(__file__).resolve().parents[2] / "bench-results.jsonl"
CALLS, CLIENTS, TURNS = 400, 20, 4


def calls(registry, name, version, clients, count):
    """Return the seconds of each of ``count`` accepted promotions."""
    body = {"name": name, "alias": "production", "version": version}

    def call(_):
        begin = time.perf_counter()
        status, _answer = registry.post("/api/2.0/mlflow/registered-models/alias", body)
        return status, time.perf_counter() - begin

    with ThreadPoolExecutor(clients) as pool:
        found = list(pool.map(call, range(count)))
    assert {status for status, _ in found} == {200}
    return [seconds for _, seconds in found]


def quantiles(seconds):
    took = sorted(1000 * s for s in seconds)
    return {"p50": round(statistics.median(took), 1), "p99": round(took[int(len(took) * 0.99)], 1)}


def inside(registry, name, version, database, monkeypatch):
    """Return milliseconds of the guard's own part: a call of the guarded store less MLflow's own write within it."""
    monkeypatch.setenv("PRIVGATE_GUARD", str(registry.site.config))
    store = guard.guarded(f"privgate:sqlite:///{database}")
    inner = type(store).__mro__[3]
    write, spent = inner.set_registered_model_alias, []

    def timed(*arguments):
        begin = time.perf_counter()
        write(*arguments)
        spent.append(time.perf_counter() - begin)

    monkeypatch.setattr(inner, "set_registered_model_alias", timed)
    own = []
    for _ in range(CALLS):
        begin = time.perf_counter()
        store.set_registered_model_alias(name, "production", version)
        own.append(time.perf_counter() - begin - spent[-1])
    return quantiles(own)


def test_the_guard_costs_milliseconds(tmp_path, running_mlflow, registry_type, site_type, monkeypatch):
    site, folders = site_type(tmp_path / "site"), [tmp_path / n for n in ("plain", "guarded")]
    for folder in folders:
        folder.mkdir()
    with (
        running_mlflow(folders[0]) as plain,
        running_mlflow(
            folders[1], "--registry-store-uri", f"privgate:sqlite:///{folders[1]}/tracking.db", env=site.env
        ) as guarded,
    ):
        both = {"plain": registry_type(plain, site), "guarded": registry_type(guarded, site)}
        signed = {}
        for kind, registry in both.items():
            signed[kind] = registry.log("m")
            registry.sign("m", signed[kind], tmp_path / f"files-{kind}")
            calls(registry, "m", signed[kind], 1, 5)
        alone, together = ({"plain": [], "guarded": []} for _ in range(2))
        for _ in range(TURNS):  # in turns, so that a busy moment of the machine hits both
            for kind, registry in both.items():
                alone[kind] += calls(registry, "m", signed[kind], 1, CALLS // TURNS)
                together[kind] += calls(registry, "m", signed[kind], CLIENTS, CALLS // TURNS)
        shutil.copy(folders[1] / "tracking.db", tmp_path / "copy.db")
    own = inside(both["guarded"], "m", signed["guarded"], tmp_path / "copy.db", monkeypatch)
    found = {n: {k: quantiles(v) for k, v in took.items()} for n, took in (("alone", alone), ("together", together))}
    added = {n: {q: round(t["guarded"][q] - t["plain"][q], 1) for q in ("p50", "p99")} for n, t in found.items()}
    line = {"bench": "guard_overhead", "clients": CLIENTS, "milliseconds": found, "added": added, "inside": own}
    line["load"] = round(os.getloadavg()[0], 1)
    print(json.dumps(line))
    with RESULTS.open("a") as out:
        out.write(json.dumps(line) + "\n")
