"""What ``--plan`` says next to what the check then takes, kind by kind (examples/kinds), and what planning takes."""

import json
import os
import subprocess
import sys

import pytest

from kinds.catalogue import KINDS
from tests.bench.results_table import note

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
#: people: enough that a check takes longer than its workers take to start, where no engine is asked
PEOPLE = int(os.environ.get("PRIVGATE_BENCH_PEOPLE", "400"))
#: seconds of one kind, above which it is left out and said to be
LIMIT = 900.0
#: whose verdict is not a refusal, and where everybody is left out or attacked
ASKED = [k for k in KINDS if k.expects != "refusal"]

SCRIPT = """
import json, os, sys, tempfile, time, warnings
from pathlib import Path
warnings.simplefilter("ignore")
from kinds.catalogue import KINDS
from privgate import Budget, Fleet, Policy, Subject, evaluate, log_model, registry
from privgate.check.costs import costs

kind, n = next(k for k in KINDS if k.name == sys.argv[1]), int(sys.argv[2])
with tempfile.TemporaryDirectory() as folder:
    recipe, data = kind.make(min(kind.n, n))
    uri = registry.local_registry(Path(folder))
    log_model(recipe, data, registered_model_name="kind", tracking_uri=uri, store=Path(folder, "data"))
    subject, policy = Subject.load("models:/kind/1", tracking_uri=uri), Policy.load(kind.policy)
    limits = Budget(full=True)  # what is planned is the whole: nobody knows beforehand who breaks a rule
    # planning by itself remembers a few trainings, so the check has a ledger of its own
    used = time.process_time()
    with Fleet(jobs=1, ledger=Path(folder, "plan")) as fleet:
        cost = costs(policy, subject, fleet=fleet, limits=limits)
    used = time.process_time() - used
    started = time.monotonic()
    with Fleet(jobs=1, ledger=Path(folder, "check")) as fleet:
        fleet.pool  # its start is no part of the work
        verdict = evaluate(policy, subject, fleet=fleet, limits=limits)
        calls = fleet.calls
    took = time.monotonic() - started
print(json.dumps({"planned": cost.seconds, "took": took, "plan_cpu": used, "trainings": calls,
                  "planned_trainings": cost.trainings, "verdict": str(verdict.outcome)}))
"""


@pytest.mark.parametrize("kind", ASKED, ids=[k.name for k in ASKED])
def test_a_plan_next_to_its_check(kind):
    if kind.name == "CatBoost":
        pytest.importorskip("catboost")
    try:
        done = subprocess.run(
            [sys.executable, "-c", SCRIPT, kind.name, str(PEOPLE)],
            capture_output=True,
            text=True,
            timeout=LIMIT,
            check=False,
            env={**os.environ, "PYTHONPATH": os.pathsep.join(["examples", os.environ.get("PYTHONPATH", "")])},
        )
    except subprocess.TimeoutExpired:
        note(bench="plan", model=kind.name, records=min(kind.n, PEOPLE), policy=kind.policy, took=f"> {LIMIT:g}")
        pytest.skip(f"planning and checking everybody take more than {LIMIT:g} s")
    assert done.returncode == 0, done.stderr[-2000:]
    found = json.loads(done.stdout.splitlines()[-1])
    factor = found["planned"] / found["took"]
    note(
        bench="plan",
        model=kind.name,
        records=min(kind.n, PEOPLE),
        policy=kind.policy,
        within_a_factor_2=bool(0.5 <= factor <= 2.0),
        factor=factor,
        factor_of_trainings=found["planned_trainings"] / max(1, found["trainings"]),
        **found,
    )
    assert found["plan_cpu"] <= 3.0
