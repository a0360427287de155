"""Side by side with the peers that install: same model, same split, CPU time and figures of each attack, one table."""

import importlib.util
import json
import os
import subprocess
import sys
import time
import venv
from pathlib import Path

import numpy as np
import pytest

from privgate.check import questions
from privgate.evidence import Request
from privgate.membership import attack_measures, attacks
from privgate.membership import board as boards
from privgate.run.run import Budget, Run
from privgate.statistics.roc import tpr_at_fpr
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from tests.bench.results_table import note
from tests.bench.test_fixed_cost import measured

pytestmark = pytest.mark.bench
PEERS = ("sacroml", "adversarial-robustness-toolbox", "fpdf2", "pypdf")
SCRIPT = Path(__file__).parent / "peers_attack.py"


@pytest.fixture(scope="module")
def interpreter(tmp_path_factory):
    """An environment of the peers' own, which sees our libraries behind its own: nothing of ours is replaced."""
    folder = tmp_path_factory.mktemp("peers")
    venv.create(folder, with_pip=True)
    ours = next(p for p in sys.path if p.endswith("site-packages"))
    theirs = next(folder.glob("lib/python*/site-packages"))
    (theirs / "behind.pth").write_text(ours + "\n")
    python = folder / "bin" / "python"
    done = subprocess.run([python, "-m", "pip", "install", "-q", "--no-deps", *PEERS], capture_output=True, check=False)
    if done.returncode:
        pytest.skip("the peers cannot be installed here: " + done.stderr.decode()[-200:])
    return python


def load_split():
    spec = importlib.util.spec_from_file_location("peers_attack", SCRIPT)
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module.split()


def privgate_rows():
    from sklearn.ensemble import RandomForestClassifier

    inside, outside, y_in, y_out, _ = load_split()
    data = TrainingData(inside, y_in, candidates=(outside, y_out), one_record_each=True)
    subject = Subject.local(Recipe(RandomForestClassifier(100), seed=0), data)
    with Fleet(jobs=1, ledger="none") as fleet:
        bench = Run(subject, fleet, Budget(shadow_models=64), seeds=(0,))
        started = time.perf_counter()
        board = bench.compute(boards.make_board)
        yield {"tool": "privgate", "attack": "64 shadow models for all attacks (wall clock, one worker)",
               "seconds": round(time.perf_counter() - started, 2)}  # fmt: skip
        for attack in attacks.ALL:
            started = time.process_time()
            attempt = board.attempt(attack)
            spent = time.process_time() - started
            assert not attempt.problem
            got = questions.measure(
                bench, Request.build("attack_accuracy", attack=attack.name, scope="model", confidence=0.95)
            )
            shown = next(a.figures for a in attack_measures.part(bench).attacks if a.name == attack.name)
            yield {"tool": "privgate", "attack": attack.name, "seconds": round(spent, 2), "auc": round(shown.auc, 4),
                   "acc": round(got.value, 4), "low": round(got.low, 4), "high": round(got.high, 4),
                   "tpr@0.1": round(tpr_at_fpr(attempt.scores, board.members, fpr=0.1), 4)}  # fmt: skip


OURS = """
from sklearn.ensemble import RandomForestClassifier
from privgate.membership import attacks, board
from privgate.run.run import Budget, Run
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet
from peers_attack import split
inside, outside, y_in, y_out, _ = split()
data = TrainingData(inside, y_in, candidates=(outside, y_out))
with Fleet(jobs=1, ledger="none") as fleet:
    run = Run(Subject.local(Recipe(RandomForestClassifier(100), seed=0), data), fleet, Budget(shadow_models=64), (0,))
    (lira,) = (a for a in attacks.ALL if a.name == "lira_offline")
    assert not run.compute(board.make_board).attempt(lira).problem
"""


def test_lira_alone_as_a_whole_process(interpreter):
    """What each takes of the processor from its first import to its end, in one process or several; one thread each."""
    one = dict.fromkeys(("OMP_NUM_THREADS", "OPENBLAS_NUM_THREADS"), "1")
    environment = os.environ | one | {"PYTHONPATH": str(SCRIPT.parent)}
    found = {}
    for tool, command in {
        "sacroml": [interpreter, SCRIPT, "lira"],
        "refits by hand": [sys.executable, SCRIPT, "refits"],
        "privgate": [sys.executable, "-c", OURS],
    }.items():
        runs = [measured([str(c) for c in command], env=environment) for _ in range(3)]
        assert all(r["code"] == 0 and "problem" not in r["said"] for r in runs), runs
        found[tool] = round(min(r["processor_seconds"] for r in runs), 2)
    ratios = {tool: round(found["privgate"] / seconds, 2) for tool, seconds in found.items()}
    note(bench="LiRA alone, whole processes", processor_seconds=found, ours_to_theirs=ratios)


def test_one_table(interpreter):
    done = subprocess.run([interpreter, SCRIPT], capture_output=True, text=True, check=True)
    rows = [json.loads(line[4:]) for line in done.stdout.splitlines() if line.startswith("ROW ")]
    assert {r["tool"] for r in rows} >= {"sacroml", "ART"}
    rows += privgate_rows()

    note(bench="peers", data="breast_cancer, forest of 100, split 70/30", rows=rows)
    best = max(r["auc"] for r in rows if r["tool"] == "privgate" and "auc" in r)
    assert best >= max(r.get("auc", 0) for r in rows if r["tool"] != "privgate") - 0.05
    assert np.isfinite(best)
