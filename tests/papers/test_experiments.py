"""The parts that experiments are made of, on small made-up data."""

import json
import os
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from papers import EXPERIMENTS, Row, Table, candidate_set, datasets, run, shokri2017
from papers.__main__ import experiment
from privgate.errors import ExitCode, UsageError
from privgate.training.fleet import Fleet


def test_a_table_shows_published_next_to_obtained():
    rows = Row("accuracy", 0.5, 0.51), Row("p-value", 1e-20, None, "not run"), Row("times less", 20_000, 28_812.3)
    table = Table("Paper, Table 1", rows, ("a note",))

    assert "| accuracy | 0.5000 | 0.5100 |  |" in table.text()
    assert "| times less | 20,000 | 28,812 |  |" in table.text()
    assert "| p-value | 1e-20 | - | not run |" in table.text()
    assert "- a note" in table.text()
    json.dumps(table.payload(), allow_nan=False)


def test_the_command_lists_experiments_and_names_missing_data(tmp_path):
    listed = CliRunner().invoke(experiment, [])
    refused = CliRunner().invoke(experiment, ["shokri-table2", "--data", str(tmp_path)])

    assert all(name in listed.output for name in EXPERIMENTS)
    assert isinstance(refused.exception, UsageError)
    assert "--data" in str(refused.exception)


def test_make_reproduce_runs_them_from_where_they_lie():
    root = Path(__file__).resolve().parents[2]
    wanted = next(line for line in (root / "Makefile").read_text().splitlines() if "-m papers all" in line)
    assert wanted.split()[0] == "PYTHONPATH=examples"

    def command(*given):
        environment = os.environ | {"PYTHONPATH": "examples"}
        done = subprocess.run([sys.executable, "-m", "papers", *given], cwd=root, env=environment, capture_output=True,
                              text=True, check=False)  # fmt: skip
        return done.returncode, done.stdout, done.stderr

    code, listed, _ = command()
    assert (code, len(listed.splitlines())) == (0, len(EXPERIMENTS))
    code, _, said = command("shokri-table2", "--data", "nowhere")
    assert code == ExitCode.USAGE
    assert said.splitlines()[-1].startswith("error: location30.npz is not in nowhere")


def test_all_experiments_run_one_after_the_other(monkeypatch, tmp_path):
    def one(name, folder, fleet, say):
        yield Table(f"{name} in {folder.name}", (Row("accuracy", 0.5, 0.51),))

    monkeypatch.setattr("papers.run", one)
    done = CliRunner().invoke(experiment, ["all", "--data", str(tmp_path), "--jobs", "1"])

    headings = [line for line in done.output.splitlines() if line.startswith("### ")]
    assert headings == [f"### {name} in {tmp_path.name}" for name in EXPERIMENTS]


def test_experiments_that_ended_are_kept_and_one_that_fails_stops_no_other(monkeypatch, tmp_path):
    ran, broken = [], {"long-adult"}

    def one(name, folder, fleet, say):
        ran.append(name)
        yield Table(f"of {name}", (Row("accuracy", 0.5, 0.51),), ("a note",))
        if name in broken:
            raise ValueError("no such column")

    def command():
        ran.clear()
        done = CliRunner().invoke(experiment, ["all", "--data", str(data), "--jobs", "1", "--keep", str(keep)])
        return done.exit_code, done.stdout, done.stderr

    for name in list(EXPERIMENTS)[3:]:
        monkeypatch.delitem(EXPERIMENTS, name)
    monkeypatch.setattr("papers.run", one)
    data, keep = tmp_path / "data", tmp_path / "kept.jsonl"
    data.mkdir()
    code, _, said = command()
    assert (code, ran) == (1, list(EXPERIMENTS))
    assert "long-adult: ValueError: no such column" in said
    assert "1 failed: long-adult" in said

    broken.clear()
    code, whole, said = command()
    assert (code, ran) == (0, ["long-adult"])
    assert "long-location: passed over" in said
    assert [line for line in whole.splitlines() if line[:3] == "###"] == [f"### of {name}" for name in EXPERIMENTS]
    assert whole.count("- a note") == len(EXPERIMENTS)

    (data / "adult.csv.gz").write_bytes(b"other records")
    code, _, said = command()
    assert (code, ran) == (0, list(EXPERIMENTS))
    assert "long-adult: changed since: data" in said


def test_after_the_time_no_experiment_begins_and_the_command_says_which_remain(monkeypatch, tmp_path):
    monkeypatch.setattr("papers.run", lambda *_: pytest.fail("began"))
    done = CliRunner().invoke(experiment, ["all", "--data", str(tmp_path), "--jobs", "1", "--most-minutes", "1e-9"])

    assert done.exit_code == 1
    assert f"{len(EXPERIMENTS)} remain, and the same command goes on from here: long-location," in done.stderr


def test_an_unknown_experiment_is_named(tmp_path):
    with pytest.raises(UsageError, match="no experiment is called 'x'"):
        run("x", tmp_path, None, print)


def test_the_cost_is_told_before_anything_is_trained(tmp_path):
    told = []
    with pytest.raises(UsageError, match="location30"):
        next(iter(run("long-location", tmp_path, None, told.append)))

    assert "minutes of one core" in told[0]
    assert "nothing is remembered" in told[0]


def test_halves_are_the_papers_two_parts():
    masks = candidate_set.halves(6, 21, np.random.default_rng(0))

    assert (masks[::2] ^ masks[1::2]).all()
    assert masks.sum(axis=1).tolist() == [10, 11] * 3


def test_purchase_like_data_says_that_it_is_synthetic():
    data = datasets.purchase_like(np.random.default_rng(0), n=200, features=40, classes=4)

    assert "synthetic" in data.name
    assert data.X.shape == (200, 40)
    assert set(np.unique(data.X)) == {0.0, 1.0}
    assert data.n_classes == 4
    with pytest.raises(UsageError, match="200 records"):
        data.sample(201, np.random.default_rng(0))


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["NB", "LR", "NN"])
def test_pdtp_of_target_records_is_measured_by_leaving_them_out(kind):
    data = datasets.purchase_like(np.random.default_rng(0), n=120, features=12, classes=3)
    rows = np.arange(0, 120, 2)
    with Fleet(jobs=1, ledger="none") as fleet:
        pdtp = candidate_set.measured_pdtp(kind, data, rows, np.array([3, 10]), fleet, seed=1, checked=kind == "NB")

    assert pdtp.shape == (2,)
    assert (pdtp > 0).all()
    assert np.isfinite(pdtp).all()


def test_noise_flips_the_share_and_marginals_keep_the_means():
    rng = np.random.default_rng(0)
    X = (rng.random((500, 80)) < rng.random(80)).astype(float)

    assert (shokri2017.noisy(X, 0.1, rng) != X).mean() == pytest.approx(0.1, abs=0.01)
    assert shokri2017.marginal(X, 4000, rng).mean(axis=0) == pytest.approx(X.mean(axis=0), abs=0.04)


def test_algorithm_1_finds_records_of_the_wanted_class_by_queries_alone():
    rng = np.random.default_rng(0)
    weight = rng.normal(size=(30, 3)) * 2

    def model(X):
        z = X @ weight
        p = np.exp(z - z.max(axis=1, keepdims=True))
        return p / p.sum(axis=1, keepdims=True)

    wanted = np.arange(60) % 3
    records, found = shokri2017.synthesize(model, wanted, 30, rng, rounds=300, largest=16, smallest=2)

    assert found.mean() > 0.9
    p = model(records[found])
    assert (p.argmax(axis=1) == wanted[found]).all()
    assert (p.max(axis=1) > 0.2).all()
    assert set(np.unique(records)) <= {0.0, 1.0}


def test_splits_are_disjoint_and_cover_everybody():
    data = datasets.purchase_like(np.random.default_rng(0), n=100, features=10, classes=2)
    parts = shokri2017.split(data, (30, 30, 0), np.random.default_rng(0))

    assert [len(p) for p in parts] == [30, 30, 40]
    assert sorted(np.concatenate(parts).tolist()) == list(range(100))
