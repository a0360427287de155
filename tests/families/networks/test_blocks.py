"""Blocks of networks are tasks of the fleet: remembered, resumed, told about, sampled where a run is to be signed."""

import itertools
import os
import shutil
import signal
import subprocess
import sys
import time
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest

from privgate.families.engine import Asked
from privgate.families.networks import together, torch_nets
from privgate.families.networks.torch_nets import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.torch_recipe import TorchTraining
from privgate.training import context, payload, pools, task_limits, worker
from privgate.training.fit import Answer, Block, Fit
from privgate.training.fleet import Fleet
from privgate.training.ledger import build, sealing_key
from privgate.training.pools import LocalPool
from tests.in_process import InProcess

pytest.importorskip("torch")
UNITS = 260


@pytest.fixture(autouse=True)
def own_key(tmp_path, monkeypatch):
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path / "config"))
    monkeypatch.delenv("PRIVGATE_LEDGER_KEY", raising=False)
    return tmp_path / "config" / "privgate" / "ledger.key"


@pytest.fixture
def small(monkeypatch):
    """Blocks of one model, each handed over by itself."""
    monkeypatch.setattr(torch_nets, "LOST_SECONDS", 0.0)
    monkeypatch.setattr(pools, "LEAST_CHUNK_SECONDS", 0.0)
    made = LocalPool.__init__

    def init(self, *arguments):
        made(self, *arguments)
        self.chunk_seconds = 0.0

    monkeypatch.setattr(LocalPool, "__init__", init)


def subject():
    rng = np.random.default_rng(0)
    X, y = rng.normal(size=(UNITS, 4)).astype(np.float32), np.arange(UNITS) % 2
    return Subject.local(Recipe(TorchTraining(hidden=(2,), epochs=1), seed=3), TrainingData(X, y))


@pytest.fixture(scope="module")
def remembered(tmp_path_factory):
    """A ledger that holds everything, its key, and what was told on the way."""
    home, told = tmp_path_factory.mktemp("remembered"), []
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("XDG_CONFIG_HOME", str(home / "config"))
        patch.delenv("PRIVGATE_LEDGER_KEY", raising=False)
        _, fleet = ask(home / "ledger", progress=lambda *words: told.append(words))
    return home, told, fleet


def ask(folder, **settings):
    """Everybody left out, in one worker process; (answers, fleet)."""
    with Fleet(jobs=1, ledger=folder, isolate="none", **settings) as fleet:
        made, _ = ENGINE.answers(Asked(subject(), np.arange(UNITS), (3,), fleet))
        fleet.spot_check()
        return made, fleet


@pytest.mark.slow
def test_killed_twice_and_resumed_it_repeats_less_than_one_in_a_hundred(tmp_path, small, monkeypatch):
    sent, submit = [], LocalPool.submit

    def counted(self, payload, chunk):
        sent.append(sum(fit.trainings for fit in chunk.fits))
        submit(self, payload, chunk)

    monkeypatch.setattr(LocalPool, "submit", counted)

    def stop_after(models):
        def told(done, total, seconds_left):
            if total > 1 and done >= models:
                raise KeyboardInterrupt

        return told

    ticks = itertools.count()
    monkeypatch.setattr(pools, "time", SimpleNamespace(monotonic=lambda: float(next(ticks))))  # told at every answer
    for models in (70, 60):
        with pytest.raises(KeyboardInterrupt):
            ask(tmp_path / "ledger", progress=stop_after(models))
    made, fleet = ask(tmp_path / "ledger")
    again, second = ask(tmp_path / "ledger")

    assert sum(sent) - (UNITS + 1) < 0.01 * UNITS
    assert 0 < fleet.freshness.trained < UNITS - 120
    assert second.freshness.trained == 0
    assert second.freshness.recalled == UNITS + 1
    np.testing.assert_array_equal(made.log_without, again.log_without)
    assert fleet.calls == 0  # the recipe's own training function was not called


@pytest.mark.slow
def test_progress_counts_models_and_says_how_long_the_rest_takes(remembered):
    _, told, fleet = remembered

    last = [words for words in told if words[1] == UNITS]
    assert last[-1][0] == UNITS
    assert last[-1][2] == 0.0
    assert fleet.activity.startswith("training networks without single people")


@pytest.mark.slow
def test_where_a_run_is_to_be_signed_single_models_of_remembered_blocks_are_trained_afresh(tmp_path, remembered):
    shutil.copytree(remembered[0], tmp_path, dirs_exist_ok=True)
    _, fleet = ask(tmp_path / "ledger", signable=True)

    assert fleet.freshness.compared == context.SAMPLE + 1  # and the model of everybody, which every unit rests on
    assert fleet.freshness.trained == context.SAMPLE + 1
    assert (fleet.freshness.different, fleet.freshness.noisy) == (0, 0)


def forged(folder, secret, *, whole):
    """Replace the ledger by one that says of the model of everybody, or of all others, that it knows nothing."""
    asked = []

    class Noting(Fleet):
        def fits(self, subject, fits, *, label="retraining"):
            asked.extend(zip(self.keys(subject, fits), fits, strict=True))
            return super().fits(subject, fits, label=label)

    with Noting(jobs=1, ledger=folder, isolate="none") as fleet:
        ENGINE.answers(Asked(subject(), np.arange(UNITS), (3,), fleet))
    for path in folder.iterdir():
        path.unlink()
    chosen = asked[:1] if whole else asked[1:]
    entries = [(key, context.encode(Answer(np.log(np.full((call.rows, 2), 0.5))))) for key, call in chosen]
    (folder / "00000000000000000001-1-forged.seg").write_bytes(build(entries, sealing_key(secret)))


@pytest.mark.slow
@pytest.mark.parametrize("whole", [True, False])
def test_forged_blocks_are_believed_by_an_unsigned_run_alone(tmp_path, remembered, own_key, whole):
    folder = tmp_path / "ledger"
    shutil.copytree(remembered[0], tmp_path, dirs_exist_ok=True)
    forged(folder, own_key.read_bytes(), whole=whole)

    made, believed = ask(folder)
    _, doubted = ask(folder, signable=True)

    assert np.exp((made.log_with if whole else made.log_without)[0, 5]) == pytest.approx([0.5, 0.5])
    assert believed.freshness.different == 0
    assert doubted.freshness.different == (1 if whole else context.SAMPLE)


def test_a_block_has_the_key_of_no_other():
    rows, other = np.arange(3), np.arange(2)
    one, two = Fit(1, rows, left_out=rows[:1]), Fit(1, other, left_out=other[:1])
    block = Block("privgate.families.x:f", 1, (one, two))
    others = [
        Block("privgate.families.x:f", 2, (one, two)),
        Block("privgate.families.x:g", 1, (one, two)),
        Block("privgate.families.x:f", 1, (two, one)),
        Block("privgate.families.x:f", 1, (one, two), ("mixed",)),
        block.alone(0),
    ]

    assert len({b.encoding for b in [block, *others]} | {one.encoding, two.encoding}) == 8
    assert (block.rows, block.trainings, block.alone(1).rows) == (5, 2, 2)


def test_a_block_names_an_engine_s_function_and_nothing_else():
    with pytest.raises(Exception, match="os is no engine's"):
        worker.made_together(None, Block("os:system", 1, ()))


def test_a_block_whose_worker_fails_is_handed_on(tmp_path):
    class Failing(Fleet):
        def fits(self, subject, fits, *, label="retraining"):
            answers = super().fits(subject, fits, label=label)
            return [
                Answer(np.zeros((0, 0)), problem="out of memory") if f.trainings > 1 and k == 0 else a
                for k, (f, a) in enumerate(zip(fits, answers, strict=True))
            ]

    with Failing(jobs=1, ledger="none", isolate="none") as fleet:
        size = torch_nets.block_size(subject(), 30)
        assert size > 1
        made, handed_on = ENGINE.answers(Asked(subject(), np.arange(UNITS), (3,), fleet))
    size = torch_nets.block_size(subject(), UNITS)
    assert handed_on.tolist() == list(range(min(size, UNITS)))
    assert sorted([*made.units, *handed_on]) == list(range(UNITS))


def test_the_estimate_holds_a_block_and_no_matrix_of_units_by_records():
    X = np.zeros((50_000, 4), dtype=np.float32)
    X[0, 0] = 1
    many = Subject.local(Recipe(TorchTraining(hidden=(8,)), seed=1), TrainingData(X, np.arange(50_000) % 2))

    cost = ENGINE.cost(many, np.arange(50_000), (1,))

    assert cost.memory_bytes < 1.5e9 < 50_000**2
    assert 10 < cost.cpu_seconds < 1e5


def test_a_gpu_is_one_worker_s_and_its_settings_reach_it(tmp_path):
    data = TrainingData(np.ones((4, 1), dtype=np.float32), np.array([0, 1, 0, 1]))
    gpu, cpu = (Subject.local(Recipe(TorchTraining(device=d), seed=1), data) for d in ("cuda:1", "cpu"))
    shipped = [payload.write(s, tmp_path / str(k)) for k, s in enumerate((gpu, cpu))]
    pool = SimpleNamespace(slots=4)

    assert [pools.Batch(None, s, [], [])._slots(pool) for s in shipped] == [1, 4]
    given = {"CUDA_VISIBLE_DEVICES": "2", "CUBLAS_WORKSPACE_CONFIG": ":4096:8", "CUDA_API_KEY": "x"}
    kept = task_limits.of_worker(given)
    assert {name: kept.get(name) for name in given} == {**given, "CUDA_API_KEY": None}
    assert "torch" in context.libraries_of(cpu)


JOURNALED = """
import sys, time
import numpy as np
from privgate.families.networks import together, torch_nets
from privgate.families.networks.torch_nets import ENGINE
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.torch_recipe import TorchTraining
from privgate.training.fleet import Fleet

FOLDER = sys.argv[1] if __name__ == "__main__" else ""


def net(n_features, n_classes):
    import os, torch
    time.sleep(0.25)
    with open(os.path.join(os.environ["PYTHON_JOURNAL"], "journal"), "ab") as f:
        f.write(b".")
    return torch.nn.Linear(n_features, n_classes)


if __name__ == "__main__":
    torch_nets.LOST_SECONDS = 0.0
    X = np.random.default_rng(0).normal(size=(512, 3)).astype(np.float32)
    recipe = Recipe(TorchTraining(module=net, epochs=1, batch_size=512), seed=1)
    with Fleet(jobs=1, ledger=FOLDER + "/ledger", isolate="none") as fleet:
        ENGINE.answers(Asked(Subject.local(recipe, TrainingData(X, np.arange(512) % 2)), np.arange(512), (1,), fleet))
"""


@pytest.mark.slow
def test_killed_outright_twice_the_process_repeats_less_than_one_in_a_hundred(tmp_path):
    script = tmp_path / "journaled.py"
    script.write_text(JOURNALED)
    env = {**os.environ, "PYTHONPATH": str(Path.cwd()), "PYTHON_JOURNAL": str(tmp_path)}

    def start():
        return subprocess.Popen([sys.executable, str(script), str(tmp_path)], env=env, start_new_session=True)

    def written():
        path = tmp_path / "journal"
        return path.stat().st_size if path.exists() else 0

    for goal in (60, 160):
        process = start()
        until = time.monotonic() + 200
        while written() < goal and time.monotonic() < until and process.poll() is None:
            time.sleep(0.02)
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
        assert written() >= goal
    assert start().wait(timeout=300) == 0
    blocks, looks = 256, 3  # each process's worker tries the module once before it trains anything
    assert written() - (blocks + 1) - looks < 0.01 * blocks


def own_module(n_features, n_classes):
    """A module of somebody's own."""
    import torch

    return torch.nn.Sequential(torch.nn.Linear(n_features, 3), torch.nn.Tanh(), torch.nn.Linear(3, n_classes))


@pytest.mark.parametrize(
    "recipe",
    [
        TorchTraining(hidden=(5, 3), epochs=2, activation="tanh"),
        TorchTraining(hidden=(4,), epochs=2, optimizer="adam", dropout=0.3),
        TorchTraining(module=own_module, epochs=1),
    ],
    ids=["deep", "dropout", "own"],
)
def test_other_questions_train_no_network_again(recipe, monkeypatch):
    rng = np.random.default_rng(1)
    X, y = rng.normal(size=(30, 4)).astype(np.float32), np.arange(30) % 3
    asked = Subject.local(Recipe(recipe, seed=3), TrainingData(X, y, candidates=(X + 1, y)))
    opened = InProcess()._opened(asked)
    fits = [Fit(3, np.array([u, 1]), left_out=np.array([u])) for u in range(0, 30, 3)]
    first = replace(torch_nets._block(tuple(fits)), keep=2**16)
    models = worker.made_together(opened, first)[1]
    assert all(models)
    elsewhere = tuple(replace(fits[k], queries=np.arange(60)) for k in (0, 9, 4))
    block = torch_nets._block(elsewhere)
    trained = worker.made_together(opened, block)[0]
    one = worker.made_together(opened, replace(block, models=(models[0], b"", models[4])))[0]
    monkeypatch.setattr(together._Job, "_trained", None)
    kept = worker.made_together(opened, replace(block, models=(models[0], models[9], models[4])))[0]
    for got in (one, kept):
        np.testing.assert_allclose(got, trained, rtol=0, atol=1e-5)
    assert np.ptp(trained) > 0.1
    assert not any(worker.made_together(opened, replace(block, models=models[:3], keep=8))[1])
