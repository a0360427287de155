"""What an optional library saves is time: the verdict is the same with and without it, or a budget is why not."""

import numpy as np
import pytest
from sklearn.ensemble import HistGradientBoostingClassifier

from privgate import Policy
from privgate.check.costs import costs
from privgate.check.gate import evaluate
from privgate.families.trees import hist_boosting
from privgate.run.run import Budget
from privgate.subject.data import TrainingData
from privgate.subject.recipe import Recipe
from privgate.subject.subject import Subject
from privgate.training.fleet import Fleet

N = 330
PDTP = next(r for r in Policy.load("pdtp-1").rules if r.metric == "pdtp")


@pytest.fixture(scope="module")
def boosted():
    rng = np.random.default_rng(0)
    X = rng.normal(size=(N, 4))
    y = (X[:, 0] + rng.normal(size=N) > 0).astype(int)
    model = HistGradientBoostingClassifier(max_iter=5, max_leaf_nodes=5, random_state=0)
    return Subject.local(Recipe(model, seed=0), TrainingData(X, y))


def asking(**limit):
    rule = type(PDTP)(metric="pdtp", reason=PDTP.reason, **limit)
    return Policy.load("pdtp-1").model_copy(update={"rules": (rule,)})


def judged(monkeypatch, boosted, fleet, policy, *, installed, **limits):
    monkeypatch.setattr(Fleet, "drawn", lambda *_: np.random.default_rng(1))
    monkeypatch.setattr(hist_boosting, "_uncompiled", lambda: "" if installed else "not here")
    found = evaluate(policy, boosted, fleet=fleet, limits=Budget(**limits))
    finding = next(f for f in found.findings if f.metric == "pdtp")
    return found, (finding.outcome, finding.value, finding.low, finding.high)


def tight(aggregate):
    """A limit that the people keep, by less than a sample of them shows."""
    if aggregate == "share_above":
        return {"aggregate": aggregate, "threshold": 0.25, "max": 0.02}
    return {"aggregate": aggregate, "q": 0.95, "max": 0.106}


@pytest.mark.quick(1)
@pytest.mark.parametrize("aggregate", ["share_above", "quantile"])
def test_what_a_sample_leaves_open_everybody_decides(monkeypatch, boosted, fleet, aggregate):
    policy = asking(**tight(aggregate))
    _, slow = judged(monkeypatch, boosted, fleet, policy, installed=False)
    with_, fast = judged(monkeypatch, boosted, fleet, policy, installed=True)

    assert slow[0].name == "PASSED"
    assert fast == slow
    assert [e.engine for e in with_.evidence.influence.engines] == ["tree_ensembles"]
    assert "leave a limit open" in str(with_.evidence.influence)


def test_what_a_sample_decides_stays_decided_by_it(monkeypatch, boosted, fleet):
    for limit in ({"max": 1.0}, {"aggregate": "share_above", "threshold": 0.25, "max": 0.1}):
        found, fast = judged(monkeypatch, boosted, fleet, asking(**limit), installed=True)

        assert fast[0].name == "PASSED"
        assert [e.engine for e in found.evidence.influence.engines] == ["hist_boosting"]


def test_a_budget_leaves_it_open(monkeypatch, boosted, fleet):
    _, found = judged(monkeypatch, boosted, fleet, asking(**tight("quantile")), installed=True, max_retrains=200)

    assert found[0].name == "INCONCLUSIVE"


@pytest.mark.quick(1)
@pytest.mark.parametrize("installed", [False, True])
def test_a_plan_counts_trainings_that_the_recipe_makes_itself(monkeypatch, boosted, installed):
    monkeypatch.setattr(hist_boosting, "_uncompiled", lambda: "" if installed else "not here")
    with Fleet(jobs=1, ledger="none") as own:
        planned = costs(asking(max=1.0), boosted, fleet=own, limits=Budget())
    with Fleet(jobs=1, ledger="none") as own:
        evaluate(asking(max=1.0), boosted, fleet=own)
        made = own.calls

    assert planned.trainings / 1.5 < made < 1.5 * planned.trainings
    assert any("re-check" in line for line in planned.said) == installed
