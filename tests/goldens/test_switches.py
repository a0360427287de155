"""What a yes rests on is what is said: without the kernel nothing is approved, and no engine makes a yes by itself."""

from dataclasses import replace

import adapters
import numpy as np
import pytest
from test_goldens import rows

import privgate
from privgate import kernel
from privgate.check import confirm
from privgate.influence import aggregate
from privgate.kernel import Limits
from privgate.statistics.leakage import largest_change
from privgate.theorems.catalogue import CLOSED_FORMS as ENGINES
from privgate.theorems.closed_form import RefitRequest
from privgate.training.fleet import Fleet

POLICY = 'schema: privgate/policy/v1\nname: refused\nversion: "1"\nrules: [{metric: dtp, max: %s}]\n'
#: whose rule is in doubt -> limit between what is seen and what the theorem says, nats
DOUBTED = {"sharded": 0.09, "newton": 0.1525}


@pytest.fixture
def without_upper_limits(monkeypatch):
    """Take every upper limit of the kernel away; lower ones stay."""
    limits, near = kernel.limits, kernel.near

    def nothing(case):
        low = limits(case).low
        return Limits(low, np.full(len(low), np.inf))

    def anywhere(case, known=None):
        z0, e0, z1, e1 = near(case, known)
        return z0, np.full_like(e0, np.inf), z1, np.full_like(e1, np.inf)

    monkeypatch.setattr(kernel, "limits", nothing)
    monkeypatch.setattr(kernel, "near", anywhere)


@pytest.mark.usefixtures("without_upper_limits")
@pytest.mark.parametrize(
    "row", [r for r in rows("certificates") if r["row"].endswith("approved")], ids=lambda row: row["row"]
)
def test_without_upper_limits_of_the_kernel_no_theorem_approves(row):
    name = row["row"].split()[0]
    said = adapters.bounds(name, adapters.instance(name, row["seed"]))

    assert said is None or not np.isfinite(said[1]).any()


def refused():
    return [r for r in rows("engines") if any(float(v) > 1 for v in r["high"])]


@pytest.mark.quick(1)
@pytest.mark.parametrize("row", refused(), ids=[r["row"] for r in refused()])
def test_engines_that_answer_at_random_approve_nobody_who_was_refused(row, monkeypatch):
    """The re-check trains for real: an engine that it contradicts is not used, and refits answer in its place."""
    rng = np.random.default_rng(8)
    for engine in ENGINES:
        monkeypatch.setattr(engine, "answers", at_random(engine.answers, rng))
    subject = dict(adapters.engine_cases())[row["row"]]
    units = np.arange(len(subject.data.units))

    answered = adapters.module("leaving_out").answer(
        RefitRequest(subject, units, (None,), adapters.module("in_process").InProcess())
    )

    made, own = answered.retrained, np.zeros(len(units))
    without = np.nan_to_num(made.log_without[0], nan=-np.inf)  # of who has no model
    np.maximum.at(own, made.row_unit, largest_change(made.log_with[0], without))
    assert {"warned"} <= {c.outcome for c in answered.rechecks}
    high = np.where(np.isin(made.status, ("undefined", "failed")), np.inf, own + made.error)
    assert (high > 1).any()


@pytest.mark.quick(3)
@pytest.mark.parametrize("lie", [False, True], ids=["honest", "upper limits are lower ones"])
@pytest.mark.parametrize("name", DOUBTED)
def test_who_is_in_doubt_would_be_approved_by_a_lie_about_upper_limits(name, lie, monkeypatch, tmp_path):
    """Without the confirmation, one lie makes a yes."""
    asked = aggregate.summarize
    if lie:
        monkeypatch.setattr(confirm, "confirm_findings", lambda findings, *_: findings)
        monkeypatch.setattr(
            aggregate, "summarize", lambda *given, **named: replace(made := asked(*given, **named), high=made.low)
        )
    row = next(r for r in rows("certificates") if r["row"] == f"{name} approved")
    policy = tmp_path / "policy.yaml"
    policy.write_text(POLICY % DOUBTED[name])
    with Fleet(jobs=1, ledger="none", isolate="none") as fleet:
        found = privgate.evaluate(policy, adapters.instance(name, row["seed"]), fleet=fleet)

    assert found.approved == lie
    assert lie or found.outcome == "inconclusive"


def at_random(answers, rng):
    """Return an engine's answers with models without a person that are nearly those with: nobody seems to matter."""

    def answer(*given, **named):
        made, rest = answers(*given, **named)
        close = made.log_with + rng.uniform(-1e-3, 1e-3, made.log_with.shape)
        return replace(made, log_without=close, error=np.zeros_like(made.error)), rest

    return answer
