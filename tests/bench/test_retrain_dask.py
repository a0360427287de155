"""The Dask scheduler with tasks that do nothing: what one costs, and how long a chunk must be then."""

import os
import time

import pytest

from privgate.training import clusters
from tests.bench.results_table import note

pytestmark = pytest.mark.bench


def test_what_a_thousand_workers_would_wait_for():
    from distributed import Client, LocalCluster

    with (
        LocalCluster(n_workers=2, threads_per_worker=1, processes=True, dashboard_address=None) as local,
        Client(local) as client,
    ):
        client.gather(client.map(abs, range(100), pure=False))
        best = float("inf")
        for _ in range(3):
            start = time.perf_counter()
            client.gather(client.map(abs, range(2000), pure=False))
            best = min(best, (time.perf_counter() - start) / 2000)
        one = float("inf")
        for _ in range(100):
            start = time.perf_counter()
            client.submit(abs, 1, pure=False).result()
            one = min(one, time.perf_counter() - start)
    workers, retrains = 1000, 1_000_000
    chunk = 10 * workers * best
    note(
        bench="dask scheduling",
        seconds_a_task=best,
        tasks_a_second=1 / best,
        round_trip_seconds=one,
        assumed_seconds_a_task=clusters.SCHEDULING_SECONDS,
        workers=workers,
        chunk_seconds_below_ten_percent=chunk,
        fits_of_10_ms_a_chunk=chunk / 0.01,
        million_retrains_one_task_each_scheduler_seconds=retrains * best,
        million_retrains_of_10_ms_ideal_seconds=retrains * 0.01 / workers,
        million_retrains_of_10_ms_in_chunks_scheduler_seconds=retrains * 0.01 / chunk * best,
        million_retrains_of_1_s_ideal_seconds=retrains * 1.0 / workers,
        load=os.getloadavg()[0],
    )
