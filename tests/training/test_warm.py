"""Workers that are forked from a warm server: nothing of the caller's is in them, and no two of them draw alike."""

import os
import signal
import subprocess
import sys
import time
from concurrent.futures.process import BrokenProcessPool
from pathlib import Path

import pytest

from privgate.training import warm, worker


@pytest.fixture
def two():
    made = [warm.executor(worker.WorkerSettings()) for _ in range(2)]
    yield made
    for each in made:
        warm.end(each, kill=True)


def test_workers_draw_from_streams_of_their_own(two):
    drawn = [each.submit(eval, "__import__('numpy').random.random()").result() for each in two]

    assert drawn[0] != drawn[1]


def test_the_server_starts_once_holds_nothing_secret_and_takes_no_file_of_the_working_directory(tmp_path):
    (tmp_path / "start").mkdir()
    (tmp_path / "start" / "sitecustomize.py").write_text("import os\nos.environ['SET_AT_START'] = 'again and again'\n")
    (tmp_path / "yaml.py").write_text("raise SystemExit('a file of the working directory was imported')\n")
    (tmp_path / "tool").mkdir()
    (tmp_path / "tool" / "script.py").write_text(
        "import os\nfrom pathlib import Path\nfrom privgate.training import warm, worker\n"
        "if __name__ == '__main__':\n"
        "    made = warm.executor(worker.WorkerSettings())\n"
        "    for asked in ('self', made.submit(os.getppid).result()):\n"
        "        read = Path(f'/proc/{asked}/environ').read_bytes\n"
        "        print(b'of-the-operator' in made.submit(read).result())\n"
        "    print(made.submit(os.getenv, 'MLFLOW_TRACKING_TOKEN').result())\n"
        "    print('site-packages' in made.submit(eval, \"__import__('yaml').__file__\").result())\n"
        "else:\n"
        "    raise SystemExit('the script of the caller ran again')\n"
    )
    environment = os.environ | {"PYTHONPATH": str(tmp_path / "start"), "MLFLOW_TRACKING_TOKEN": "of-the-operator"}
    command = [sys.executable, tmp_path / "tool" / "script.py"]
    done = subprocess.run(
        command, cwd=tmp_path, env=environment, capture_output=True, text=True, check=True, timeout=250
    )

    assert done.stdout.split() == ["False", "False", "None", "True"]


def test_a_worker_sees_the_environment_of_its_moment(monkeypatch):
    warm.begin()
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "3")
    made = warm.executor(worker.WorkerSettings())
    assert made.submit(os.getenv, "CUDA_VISIBLE_DEVICES").result() == "3"
    warm.end(made, kill=True)


@pytest.mark.slow
def test_a_forked_process_has_a_server_of_its_own():
    code = (
        "import os, sys\nfrom privgate.training import warm, worker\nwarm.begin()\n"
        "if not os.fork():\n"
        "    made = warm.executor(worker.WorkerSettings())\n"
        "    print(made.submit(eval, '1 + 1').result(), flush=True)\n"
        "    warm.end(made, kill=True)\n"
        "    os._exit(0)\n"
        "os.wait()\n"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=250)

    assert done.stdout.split() == ["2"]


def test_a_worker_ends_with_who_asks_though_others_hold_its_pipe(tmp_path):
    code = (
        "import os, signal, subprocess, sys, time\nfrom privgate.training import warm, worker\n"
        "made = warm.executor(worker.WorkerSettings())\n"
        "print(made.submit(os.getpid).result(), flush=True)\n"
        "if not os.fork():\n    time.sleep(500)\n    os._exit(0)\n"
        "print(flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as asking:
        number = int(asking.stdout.readline())
        asking.stdout.readline()
        asking.wait()
        end = time.monotonic() + 250
        try:
            while Path(f"/proc/{number}").exists() and time.monotonic() < end:
                time.sleep(0.1)
            assert not Path(f"/proc/{number}").exists()
        finally:
            os.killpg(asking.pid, signal.SIGKILL)


def test_a_killed_worker_breaks_its_own_executor_alone(two):
    with pytest.raises(BrokenProcessPool):
        two[0].submit(os._exit, 1).result()
    assert two[1].submit(os.getpid).result() != os.getpid()


def test_importing_what_the_server_imports_does_nothing_elsewhere():
    code = "import privgate.training.warm_libraries, sys; print('mlflow' in sys.modules)"
    environment = {**os.environ, "A_SECRET": "which would make the server begin again"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


@pytest.mark.slow
def test_skops_is_imported_without_the_array_libraries_and_knows_the_same_estimators():
    code = (
        "import sys\nfrom privgate.subject.libraries import skops_io\nskops_io()\n"
        "print(sorted({'torch', 'dask'} & set(sys.modules)))\n"
        "from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES as names\n"
        "from sklearn.utils import all_estimators\n"
        "print(len(names) == len(all_estimators()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["[]", "True"]
