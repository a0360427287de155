"""Where no box is, the evidence says so, and a policy that demands one approves nothing."""

import numpy as np
from sklearn.naive_bayes import CategoricalNB

from privgate import Domain, Recipe, Subject, TrainingData
from privgate.check import gate
from privgate.policy import Policy
from privgate.training.fleet import Fleet


def policy(folder, isolation):
    path = folder / f"{isolation.replace(' ', '-')}.yaml"
    lines = ["schema: privgate/policy/v1", "name: own", 'version: "1"', f"audit: {{min_isolation: {isolation}}}"]
    path.write_text("\n".join([*lines, "rules:", "  - metric: dtp", "    max: 1.0", ""]))
    return Policy.load(path)


def test_workers_of_this_user_are_no_isolation(tmp_path):
    """One kind of run is judged by both policies: the numbers are the same, and one of them may not approve."""
    rng = np.random.default_rng(3)
    X = rng.integers(0, 3, size=(40, 4))
    data = TrainingData(X, (X[:, 0] > 0).astype(int), domain=Domain(categories=(3,) * 4), one_record_each=True)
    subject = Subject.local(Recipe(CategoricalNB(alpha=5.0, min_categories=3)), data)
    lines = []
    with Fleet(jobs=2, ledger=tmp_path / "ledger", isolate="none") as fleet:
        demanding = policy(tmp_path, "bubblewrap")
        verdict = gate.evaluate(demanding, subject, fleet=fleet, announce=lines.append)
    assert verdict.evidence.run.isolation == "none"
    assert any(s.startswith("isolation none: training code runs as you") for s in lines)
    assert not verdict.approved
    (finding,) = (f for f in verdict.findings if f.rule == "dtp")
    assert finding.outcome == "inconclusive"
    assert "training code ran with isolation none, the policy wants bubblewrap" in finding.message
    for weaker in ("bubblewrap with network", "none"):
        other = gate.judged(policy(tmp_path, weaker), verdict.evidence, observe=False, subject=None)
        assert other.approved == (weaker == "none")
