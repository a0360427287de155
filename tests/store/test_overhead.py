"""What the guard costs: promotions on a guarded and an unguarded server, side by side, twenty clients at once."""

import json
import statistics
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

pytestmark = [pytest.mark.bench, pytest.mark.server]

RESULTS = Path(__file__).resolve().parents[2] / "bench-results.jsonl"
CALLS, CLIENTS = 400, 20


def _rounds(registry, name, version):
    body = {"name": name, "alias": "production", "version": version}

    def call(_):
        begin = time.perf_counter()
        status, _answer = registry.post("/api/2.0/mlflow/registered-models/alias", body)
        return status, time.perf_counter() - begin

    call(0)
    with ThreadPoolExecutor(CLIENTS) as pool:
        found = list(pool.map(call, range(CALLS)))
    assert {status for status, _ in found} == {200}
    took = sorted(seconds for _, seconds in found)
    alone = [call(0)[1] for _ in range(40)]
    return {"p50": took[CALLS // 2], "p99": took[int(CALLS * 0.99)], "alone": statistics.median(alone)}


def test_the_guard_costs_milliseconds(tmp_path, tmp_path_factory, running_mlflow, registry_type, site_type):
    site = site_type(tmp_path_factory.mktemp("site"))
    folders = [tmp_path_factory.mktemp(n) for n in ("plain", "guarded")]
    with (
        running_mlflow(folders[0]) as plain,
        running_mlflow(
            folders[1], "--registry-store-uri", f"privgate:sqlite:///{folders[1]}/tracking.db", env=site.env
        ) as guarded,
    ):
        found = {}
        for kind, address in (("plain", plain), ("guarded", guarded)):
            registry = registry_type(address, site)
            version = registry.log("m")
            registry.sign("m", version, tmp_path / kind)
            found[kind] = _rounds(registry, "m", version)
    milliseconds = {k: {n: round(1000 * v, 1) for n, v in times.items()} for k, times in found.items()}
    ratio = {n: round(found["guarded"][n] / found["plain"][n], 2) for n in found["plain"]}
    line = {"bench": "guard_overhead", "milliseconds": milliseconds, "ratio": ratio, "clients": CLIENTS}
    print(json.dumps(line))
    with RESULTS.open("a") as out:
        out.write(json.dumps(line) + "\n")
