"""Workers that are forked from one server: nothing of the caller's is in them, and no two of them draw alike."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from privgate.training import worker
from privgate.training.sandbox import wire, workers


def ask(one, code):
    """Return what a worker evaluates."""
    return wire.json_value(one.ask(eval, code, most=1 << 16, seconds=60), one.nonce)


@pytest.fixture
def two():
    started = [workers.find_plain_server().start_worker(worker.WorkerSettings()) for _ in range(2)]
    yield started
    for each in started:
        each.end()


def test_workers_draw_from_streams_of_their_own_and_one_ends_alone(two):
    assert len({ask(each, "__import__('numpy').random.random()") for each in two}) == 2
    with pytest.raises(workers.GoneError):
        ask(two[0], "__import__('os')._exit(1)")
    assert ask(two[1], "1 + 1") == 2


def test_the_server_holds_nothing_secret_and_takes_no_file_of_the_working_directory(tmp_path, monkeypatch):
    (tmp_path / "yaml.py").write_text("raise SystemExit('a file of the working directory was imported')\n")
    (tmp_path / "script.py").write_text(
        "from privgate.training import worker\nfrom privgate.training.sandbox import wire, workers\n"
        "if __name__ == '__main__':\n"
        "    one = workers.find_plain_server().start_worker(worker.WorkerSettings())\n"
        "    reads = 'open(f\"/proc/{p}/environ\").read()'\n"
        "    for code in (f\"any('of-the-operator' in {reads} for p in (os.getpid(), os.getppid()))\",\n"
        "                 \"os.getenv('MLFLOW_TRACKING_TOKEN')\", \"os.getenv('CUDA_VISIBLE_DEVICES')\",\n"
        "                 \"'site-packages' in __import__('yaml').__file__\"):\n"
        "        code = f\"(lambda os: {code})(__import__('os'))\"\n"
        "        print(wire.json_value(one.ask(eval, code, most=1000, seconds=60), one.nonce))\n"
        "    one.end()\n"
        "else:\n"
        "    raise SystemExit('the script of the caller ran again')\n"
    )
    environment = os.environ | {"MLFLOW_TRACKING_TOKEN": "of-the-operator", "CUDA_VISIBLE_DEVICES": "3"}
    environment["PYTHONPATH"] = str(Path(worker.__file__).parents[2])
    done = subprocess.run(
        [sys.executable, "-P", tmp_path / "script.py"], cwd=tmp_path, env=environment, capture_output=True, text=True,
        check=True, timeout=250,
    )  # fmt: skip

    assert done.stdout.split() == ["False", "None", "3", "True"]


def test_a_worker_ends_with_who_asks_though_others_hold_its_pipe():
    code = (
        "import os, signal, time\nfrom privgate.training import worker\n"
        "from privgate.training.sandbox import wire, workers\n"
        "one = workers.find_plain_server().start_worker(worker.WorkerSettings())\n"
        "print(wire.json_value(one.ask(os.getpid, most=100, seconds=60), one.nonce), flush=True)\n"
        "if not os.fork():\n    time.sleep(100)\n    os._exit(0)\n"
        "print(flush=True)\nos.kill(os.getpid(), signal.SIGKILL)\n"
    )
    with subprocess.Popen([sys.executable, "-c", code], stdout=subprocess.PIPE, start_new_session=True) as asking:
        number = int(asking.stdout.readline())
        asking.stdout.readline()
        asking.wait()
        end = time.monotonic() + 60
        try:
            while Path(f"/proc/{number}").exists() and time.monotonic() < end:
                time.sleep(0.1)
            assert not Path(f"/proc/{number}").exists()
        finally:
            os.killpg(asking.pid, signal.SIGKILL)


def test_another_server_takes_the_place_of_one_that_died():
    server = workers.find_plain_server()
    server._process.kill()
    for _ in range(3):  # it may be on its way out
        one = workers.find_plain_server().start_worker(worker.WorkerSettings())
        try:
            assert ask(one, "1 + 1") == 2
            break
        except workers.GoneError:
            one.end()
    else:
        pytest.fail("every worker died with the first server")
    one.end()
    assert workers.find_plain_server() is not server
