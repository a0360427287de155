"""The Dask scheduler with tasks that do nothing: what one costs, and how long a chunk must be then."""

import json
import os
import subprocess
import sys
import time
from pathlib import Path

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


def cpu_of(process):
    """Processor seconds of a process so far."""
    words = Path(f"/proc/{process.pid}/stat").read_text(encoding="ascii").rpartition(")")[2].split()
    return (int(words[11]) + int(words[12])) / os.sysconf("SC_CLK_TCK")


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
@pytest.mark.parametrize("workers", [1, 2])
def test_what_a_task_costs_the_scheduler_s_own_process(tmp_path, workers):
    """Processor time of the scheduler alone, whatever else the machine does; tasks as the fleet sends them."""
    from distributed import Client

    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    file = tmp_path / "scheduler.json"
    words = ["--host", "127.0.0.1", "--port", "0", "--no-dashboard", "--scheduler-file", str(file)]
    scheduler = subprocess.Popen([sys.executable, "-m", "distributed.cli.dask_scheduler", *words], **quiet)
    started = [scheduler]
    try:
        while not (file.is_file() and file.read_text().strip()):
            time.sleep(0.2)
        address = json.loads(file.read_text())["address"]
        words = [address, "--nthreads", "1", "--no-dashboard", "--no-nanny", "--local-directory", str(tmp_path)]
        command = [sys.executable, "-m", "distributed.cli.dask_worker", *words]
        started += [subprocess.Popen(command, **quiet) for _ in range(workers)]
        with Client(address) as client:
            client.wait_for_workers(workers)
            held = client.submit(bytes, 1000, key="payload", pure=False)
            each = []
            for part in range(4):
                before = cpu_of(scheduler)
                client.gather([
                    client.submit(max, held, b"x", key=f"t-{part}-{i}", pure=False) for i in range(500)
                ])  # fmt: skip
                each.append((cpu_of(scheduler) - before) / 500)
    finally:
        for process in reversed(started):
            process.kill()
            process.wait()
    cost = sorted(each)[1]
    note(
        bench="dask scheduler's own processor time",
        workers=workers,
        scheduler_cpu_seconds_a_task=cost,
        assumed_seconds_a_task=clusters.SCHEDULING_SECONDS,
        tasks_a_second_of_one_core=1 / cost,
        workers_kept_busy_by_chunks_of_one_second=1 / cost,
        chunk_seconds_for_a_thousand_workers_at_a_tenth=10 * 1000 * cost,
    )
    assert cost < 2 * clusters.SCHEDULING_SECONDS
