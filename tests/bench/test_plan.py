"""What ``--plan`` says next to what the check then takes, kind by kind (examples/kinds)."""

import os
import tempfile
import time
from pathlib import Path

import pytest

from kinds.catalogue import KINDS
from privgate import Budget, Fleet, Policy, Subject, evaluate, log_model, registry
from privgate.check.plan import costs
from tests.bench.results_table import note

pytestmark = [pytest.mark.bench, pytest.mark.timeout(3600)]
PEOPLE = int(os.environ.get("PRIVGATE_BENCH_PEOPLE", "400"))
#: whose verdict is not a refusal: where everybody is left out or attacked
ASKED = [k for k in KINDS if k.expects != "refusal"]


@pytest.mark.parametrize("kind", ASKED, ids=[k.name for k in ASKED])
def test_a_plan_next_to_its_check(kind):
    for module in kind.needs:
        pytest.importorskip(module)
    policy, limits = Policy.load(kind.policy), Budget(full=True)  # nobody knows beforehand who breaks a rule
    with tempfile.TemporaryDirectory() as folder:
        recipe, data = kind.make(min(kind.n, PEOPLE))
        uri = registry.local_registry(Path(folder))
        log_model(recipe, data, registered_model_name="kind", tracking_uri=uri, store=Path(folder, "data"))
        subject = Subject.load("models:/kind/1", tracking_uri=uri)
        with Fleet(jobs=1, ledger=Path(folder, "plan")) as fleet:
            planned = costs(policy, subject, fleet=fleet, limits=limits)
        started = time.monotonic()
        with Fleet(jobs=1, ledger=Path(folder, "check")) as fleet:
            verdict = evaluate(policy, subject, fleet=fleet, limits=limits)
            note(bench="plan", model=kind.name, records=data.n, policy=kind.policy, planned=planned.seconds,
                 took=time.monotonic() - started, planned_trainings=planned.most, trainings=fleet.calls,
                 verdict=str(verdict.outcome))  # fmt: skip
            assert fleet.calls <= 1.1 * planned.most
