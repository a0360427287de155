"""The whole way: the example's four trainings through the gate, and an audit of a real training function."""

import json
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest
from click.testing import CliRunner

from privgate import Claim, Fleet, Recipe, Subject, TrainingData, evaluate
from privgate.claims import accounting
from privgate.claims.audit import AuditEffort, audit_claim
from privgate.cli.dp import dp
from privgate.run.run import Run

EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "dp-trained"


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_the_example_approves_the_honest_training_and_blocks_the_bugs():
    done = subprocess.run([sys.executable, "run.py"], cwd=EXAMPLE, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
    assert [line for line in done.stdout.splitlines() if not line.startswith(" ")] == [
        "honest: approved",
        "clipping_off: blocked",
        "noise_once: blocked",
        "noise_seed_reused: blocked",
    ]


# -- an audit from the command line, of output perturbation with and without its noise ---------------------------------


def people():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(60, 2))
    return TrainingData(X, np.where(X[:, 0] > 0, "b", "a"), one_record_each=True)


class Vote:
    """The share of each label among all records, noised: what one record changes is 1/60."""

    def __init__(self, share):
        self.share = float(np.clip(share, 0.001, 0.999))

    def predict_proba(self, X):
        return np.tile([1 - self.share, self.share], (len(X), 1))


def vote(X, y, *, seed, noise):
    share = (y == "b").mean() + noise * np.random.default_rng(seed).standard_normal()
    return Vote(share)


def audited(noise, **options):
    extra = [text for k, v in options.items() for text in (f"--{k}", str(v))]
    arguments = ["audit", f"{__name__}:vote", "--data", f"{__name__}:people", "--params", json.dumps({"noise": noise})]
    arguments += ["--delta", "1e-5", "--adjacency", "replace_one", "--jobs", "1", "--canaries", "0", "--json", *extra]
    sys.modules.setdefault(__name__, sys.modules[vote.__module__])
    return CliRunner().invoke(dp, arguments, standalone_mode=False, catch_exceptions=False)


@pytest.mark.parametrize("noise", [0.0, 1.0])
def test_an_audit_breaks_the_claim_of_a_training_without_noise_and_no_other(noise):
    done, broken = audited(noise, epsilon=1.0, runs=30), noise == 0
    answer = json.loads(done.output)
    assert (answer["broken"], answer["epsilon_at_least"] > 1, done.return_value) == (broken, broken, int(broken))
    assert answer["many_runs"]["counted"] == 60


def test_a_claim_without_the_accountant_is_undecided_before_anything_is_trained(monkeypatch):
    monkeypatch.setattr(accounting, "has_accountant", lambda: False)
    claim = Claim("gaussian", "replace_one", epsilon=1.0, delta=1e-5)
    with Fleet(1, "none", isolate="none") as fleet:
        subject = Subject.local(Recipe(vote, params={"noise": 1.0}, dp=claim), people())
        verdict = evaluate("dp-trained", subject, fleet=fleet)
        assert (int(verdict.exit_code), fleet.calls) == (5, 0)
    assert [p.message for p in verdict.evidence.preconditions if p.name == "dp_extra"] == [accounting.MISSING_LIBRARY]


class Average:
    def __init__(self, value):
        self.value = value

    def predict(self, X):
        return np.full(len(X), self.value)


def average(X, y, *, seed, noise):
    return Average(float(np.mean(y)) + noise * np.random.default_rng(seed).standard_normal())


@pytest.mark.parametrize(("noise", "broken"), [(0.0, True), (1.0, False)])
def test_an_audit_plants_a_far_target_in_a_regressor(noise, broken):
    claim = Claim("gaussian", "replace_one", epsilon=1.0, delta=1e-5)
    rng = np.random.default_rng(0)
    data = TrainingData(rng.normal(size=(60, 2)), rng.uniform(-1, 1, 60), one_record_each=True)
    recipe = Recipe(average, params={"noise": noise}, task="regression", dp=claim)
    with Fleet(1, "none", isolate="none") as fleet:
        run, effort = Run(Subject.local(recipe, data), fleet), AuditEffort(3, 30, 0)
        bound = audit_claim(run, claim, delta=1e-5, confidence=0.999, effort=effort)
    assert (bound.epsilon > 1) == broken
