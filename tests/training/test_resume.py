"""Killed at any moment and started again: only what is missing is computed, and the result is what it would be."""

import os
import random
import signal
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

SCRIPT = """
import sys
from pathlib import Path

import numpy as np

from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fit import Fit
from privgate.training.fleet import Fleet

N, JOURNAL = int(sys.argv[3]), sys.argv[2]


class Model:
    classes_ = np.array([0, 1])

    def __init__(self, p):
        self.p = p

    def predict_proba(self, X):
        return np.column_stack([np.full(len(X), self.p), np.full(len(X), 1 - self.p)])


def fit(X, y, *, seed, journal):
    with open(journal, "ab") as f:
        f.write(b"%d\\n" % (len(X) * 10**6 + int(X.sum()) % 10**6))
    total = 0.0
    for _ in range(40):  # about a millisecond
        total += np.sort(np.sin(np.arange(2000.0))).sum()
    return Model(0.25 + 0.5 * float(X.sum() % 997) / 997)


if __name__ == "__main__":
    X = np.arange(float(N))[:, None]
    subject = Subject.local(Recipe(fit, params={"journal": JOURNAL}, seed=1), TrainingData(X, np.arange(N) % 2))
    with Fleet(jobs=2, ledger=sys.argv[1], isolate="none") as fleet:  # from a box, nobody can keep a journal
        answers = fleet.fits(subject, [Fit(1, np.arange(1), left_out=np.array([i])) for i in range(N)])
    np.save(Path(sys.argv[1]).parent / "result.npy", np.stack([a.log_p for a in answers]))
"""


def start(folder, n):
    script = folder / "train_often.py"
    script.write_text(SCRIPT)
    words = [sys.executable, str(script), str(folder / "ledger"), str(folder / "journal"), str(n)]
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "XDG_CACHE_HOME": str(folder / "cache")}
    return subprocess.Popen(words, env=env, stdout=subprocess.PIPE, stderr=subprocess.PIPE, start_new_session=True)


def journal(folder):
    return (folder / "journal").read_bytes().split()


def killed_and_resumed(folder, n, kills, sign, rng):
    """Run to the end, killed on the way; return how many trainings there were."""
    begun = time.monotonic()
    for _ in range(kills):
        process = start(folder, n)
        before = len(journal(folder)) if (folder / "journal").is_file() else 0
        # wait for training to have begun again, so that every kill hits work
        while not (folder / "journal").is_file() or len(journal(folder)) <= before:
            assert process.poll() is None, process.communicate()
            assert time.monotonic() - begun < 250
            time.sleep(0.01)
        time.sleep(rng.uniform(0, 0.4))
        os.kill(process.pid, sign)
        process.communicate(timeout=250)
        time.sleep(1.2)  # orphaned workers notice within a second
    last = start(folder, n)
    _, errors = last.communicate(timeout=250)
    assert last.returncode == 0, errors
    sums = n * (n - 1) // 2 - np.arange(n)
    p = 0.25 + 0.5 * (sums % 997) / 997
    np.testing.assert_allclose(np.load(folder / "result.npy")[:, 0], np.log(np.column_stack([p, 1 - p])), rtol=1e-14)
    assert set(journal(folder)) == {b"%d" % ((n - 1) * 10**6 + s % 10**6) for s in sums.tolist()}
    return len(journal(folder))


MANY = pytest.param(10_000, 20, signal.SIGKILL, 4, marks=[pytest.mark.slow, pytest.mark.timeout(600)])


@pytest.mark.parametrize(("n", "kills", "sign", "seed"), [MANY, (400, 1, signal.SIGINT, 1)])
def test_a_killed_run_resumes(tmp_path, n, kills, sign, seed):
    made = killed_and_resumed(tmp_path, n, kills, sign, random.Random(seed))

    # one chunk of 0.2 s a worker a kill: at most 200 calls of one millisecond, and two workers
    assert made - n <= kills * 2 * 200
