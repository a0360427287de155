"""What every `privgate check` costs beside its trainings: one of 200 records whose training takes a millisecond.

As its user runs it: a process of its own, boxes, a registry in a file, nothing remembered. Processor time and memory
are those of the whole tree of processes, read from /proc: what a killed box took is added to nobody's.
"""

import ctypes
import os
import statistics
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import privgate
from tests.bench.results_table import note

pytestmark = [pytest.mark.bench, pytest.mark.skipif(sys.platform != "linux", reason="processes are read from /proc")]

SUITE = """extends: pdtp-1
schema: privgate/policy/v1
name: with-suite
version: "1"
description: pdtp-1, and what is expected of the data.
data:
  suite: people.json
"""
WANTED = {"without a suite": 3.0, "with a suite": 5.0}
_BE_REAPER, _TICK = 36, os.sysconf("SC_CLK_TCK")


def _processes():
    """Return process -> (its parent, ticks of processor time)."""
    found = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                words = (entry / "stat").read_text().rpartition(")")[2].split()
            except OSError:
                continue
            # with when it began: numbers are used again
            found[int(entry.name)] = (int(words[1]), int(words[11]) + int(words[12]), words[19])
    return found


def _memory(process):
    """Return a process's share of the memory that it uses, in bytes."""
    try:
        rows = Path(f"/proc/{process}/smaps_rollup").read_text().splitlines()
    except OSError:
        return 0
    return next((1024 * int(row.split()[1]) for row in rows if row.startswith("Pss:")), 0)


def measured(command, *, every=0.01, **options):
    """Return what a command cost: its tree's processor seconds and memory, the clock, and when it first said anything.

    Parameters
    ----------
    command : list of str
        Its first output, on stdout or stderr, is its first line.
    every : float
        Seconds between two looks: what a process takes after the last one is not seen.
    """
    ctypes.CDLL(None).prctl(_BE_REAPER, 1, 0, 0, 0)  # whose parent was killed is ours, and still seen
    ticks, memory, first, looked = {}, 0, None, 0.0
    others, began = set(_processes()), time.perf_counter()
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, **options) as process:
        os.set_blocking(process.stdout.fileno(), False)
        said = b""
        while process.poll() is None:
            time.sleep(every)
            now, ours = _processes(), {process.pid}
            for _ in range(8):  # a box's worker is some generations down
                ours |= {number for number, about in now.items() if about[0] in ours}
            ours |= {n for n, about in now.items() if about[0] == os.getpid() and n not in others}
            ticks |= {(number, now[number][2]): now[number][1] for number in ours & set(now)}
            if time.perf_counter() - looked > 10 * every:
                memory, looked = max(memory, sum(map(_memory, ours))), time.perf_counter()
            if part := process.stdout.read():
                first = first or time.perf_counter() - began
                said += part
        said += process.stdout.read() or b""
        clock = time.perf_counter() - began
    return {
        "code": process.returncode,
        "said": said.decode(),
        "processor_seconds": sum(ticks.values()) / _TICK,
        "seconds": clock,
        "first_line_seconds": first or clock,
        "peak_pss_mb": memory / 2**20,
        "processes": len(ticks),
    }


@pytest.fixture
def registered(tmp_path):
    """A registry in a file whose model of 200 records was logged by another process."""
    code = (
        "import sys\nfrom pathlib import Path\nimport numpy as np\n"
        "from sklearn.linear_model import LogisticRegression\n"
        "from privgate import Recipe, TrainingData, log_model, registry\n"
        "folder = Path(sys.argv[1])\nstore = registry.local_registry(folder)\n"
        "rng = np.random.default_rng(0)\nX = rng.normal(size=(200, 5))\n"
        "y = (X[:, 0] + rng.logistic(size=200) > 0).astype(int)\n"
        "recipe = Recipe(LogisticRegression(solver='newton-cholesky', tol=1e-8), seed=7)\n"
        "log_model(recipe, TrainingData(X, y), registered_model_name='small', tracking_uri=store,\n"
        "          store=folder / 'data')\nprint(store)\n"
    )
    done = subprocess.run([sys.executable, "-c", code, tmp_path], capture_output=True, text=True, check=True)
    return done.stdout.split()[-1]


@pytest.mark.parametrize("case", list(WANTED))
def test_a_small_check(case, registered, tmp_path):
    policy = "pdtp-1"
    if case == "with a suite":
        policy = str(tmp_path / "with-suite.yaml")
        Path(policy).write_text(SUITE)
        (tmp_path / "people.json").write_bytes(Path("policies/people.json").read_bytes())
    environment = {k: v for k, v in os.environ.items() if k not in ("MLFLOW_TRACKING_URI", "PRIVGATE_LEDGER")}
    # compiled, as what pip installs is
    subprocess.run([sys.executable, "-m", "compileall", "-q", privgate.__path__[0]], check=True)
    runs = []
    for i in range(3):
        where = ["--report-dir", str(tmp_path / f"out{i}"), "--ledger", str(tmp_path / f"ledger{i}")]
        command = [sys.executable, "-m", "privgate", "check", "models:/small/1", "--policy", policy, *where]
        command += ["--tracking-uri", registered]
        runs.append(measured(command, env=environment, cwd=tmp_path))
        assert runs[-1]["code"] == 0, runs[-1]["said"]
    told = {k: statistics.median(run[k] for run in runs) for k in runs[0] if k not in ("code", "said")}
    note(
        case=f"fixed cost, {case}",
        n=200,
        **told,
        wanted=f"{WANTED[case]:g} s of processor time, 400 MB, first line in 2 s",
        reached=told["processor_seconds"] <= WANTED[case]
        and told["peak_pss_mb"] <= 400
        and told["first_line_seconds"] <= 2,
    )
    assert np.isfinite(told["processor_seconds"])
