"""Workers that are forked from a warm server: nothing of the caller's is in them, and no two of them draw alike."""

import os
import subprocess
import sys
from concurrent.futures.process import BrokenProcessPool

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


def test_nothing_secret_is_in_what_workers_or_their_server_were_started_with(tmp_path):
    code = (
        "import os\nfrom pathlib import Path\nfrom privgate.training import warm, worker\n"
        "if __name__ == '__main__':\n"
        "    made = warm.executor(worker.WorkerSettings())\n"
        "    for asked in ('self', made.submit(os.getppid).result()):\n"
        "        read = Path(f'/proc/{asked}/environ').read_bytes\n"
        "        print(b'of-the-operator' in made.submit(read).result())\n"
        "    print(made.submit(os.getenv, 'MLFLOW_TRACKING_TOKEN').result())\n"
        "else:\n"
        "    raise SystemExit('the script of the caller ran again')\n"
    )
    (tmp_path / "script.py").write_text(code)
    environment = {**os.environ, "MLFLOW_TRACKING_TOKEN": "of-the-operator"}
    done = subprocess.run(
        [sys.executable, "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True, check=True
    )

    assert done.stdout.split() == ["False", "False", "None"]


def test_a_killed_worker_breaks_its_own_executor_alone(two):
    with pytest.raises(BrokenProcessPool):
        two[0].submit(os._exit, 1).result()
    assert two[1].submit(os.getpid).result() != os.getpid()


def test_importing_what_the_server_imports_does_nothing_elsewhere():
    code = "import privgate.training.warm_libraries, sys; print('mlflow' in sys.modules)"
    environment = {**os.environ, "A_SECRET": "which would make the server begin again"}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)

    assert done.stdout.strip() == "False"


def test_skops_is_imported_without_the_array_libraries_and_knows_the_same_estimators():
    code = (
        "import sys\nfrom privgate.subject.opening_skops import skops_io\nskops_io()\n"
        "print(sorted({'torch', 'dask'} & set(sys.modules)))\n"
        "from skops.io._trusted_types import SKLEARN_ESTIMATOR_TYPE_NAMES as names\n"
        "from sklearn.utils import all_estimators\n"
        "print(len(names) == len(all_estimators()))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)

    assert done.stdout.splitlines() == ["[]", "True"]
