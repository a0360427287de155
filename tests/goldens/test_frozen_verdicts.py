"""What the gate decided of known models before the house was rebuilt; a verdict moves only with a line in moved.md.

``PYTHONPATH=examples python tests/goldens/test_frozen_verdicts.py verdicts`` freezes what is not there yet, on the tree
before a change. ``truth NAMES`` does so for the models that a file names.
"""

import json
import os
import sys
import tempfile
from importlib.util import find_spec
from pathlib import Path

import pytest

HERE = Path(__file__).parent
TRUTH_POLICY = "release-1"
#: in every run: four kinds and two models of which the truth is known; ``make test-slow`` runs all
DEFAULT = {"logistic", "CategoricalNB", "ridge", "XGBoost", "records in the file: kernel, numbers"}
DEFAULT |= {"columns of one person, harmless: ridge"}


def read_rows(part):
    path = HERE / f"{part}.jsonl"
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()] if path.exists() else []


def read_moves():
    """Return (name, people, from, to) -> the reason, of each line of the table in moved.md."""
    lines = (HERE / "moved.md").read_text(encoding="utf-8").splitlines()
    cells = [[cell.strip() for cell in line.strip("|").split("|")] for line in lines if line.startswith("| ")]
    return {(name, people, old, new): why for name, people, old, new, why in cells[2:]}


def judge_model(name, people, version=""):
    """Return what the gate decides of a kind of examples/kinds, or of a model of examples/truth (0 people: its own)."""
    from kinds.catalogue import KINDS
    from privgate import Budget, Fleet, Policy, PrivgateError, Subject, log_model, registry
    from privgate.check.gate import evaluate
    from truth.catalogue import TRUTH

    if people:
        kind = next(k for k in KINDS if k.name == name)
        policy, make = Policy.load(kind.policy + version), lambda: kind.make(people)
    else:
        known = next(k for k in TRUTH if k.name == name)
        policy, make = Policy.load(TRUTH_POLICY + version), lambda: (known.recipe(), known.data())
    row = {"name": name, "people": people, "policy": policy.name, "version": policy.version}
    with tempfile.TemporaryDirectory() as folder:
        uri = registry.local_registry(Path(folder))
        try:
            recipe, data = make()
            log_model(recipe, data, registered_model_name="kind", tracking_uri=uri, store=Path(folder, "data"))
            subject = Subject.load("models:/kind/1", tracking_uri=uri)
            with Fleet(jobs=1, ledger=Path(folder, "ledger"), time_limit=120) as fleet:
                verdict = evaluate(policy, subject, fleet=fleet, limits=Budget())
        except PrivgateError as exc:
            return row | {"outcome": "turned away", "why": str(exc)[:120]}
    rules = {f.rule: [f.outcome.value, str(f.low), str(f.high)] for f in verdict.findings if f.metric}
    failed = [f.rule for f in verdict.findings if not f.metric and f.outcome.value not in ("passed", "warned")]
    return row | {"outcome": verdict.outcome.value, "rules": rules, "preconditions": failed}


def intervals_meet(old, new):
    """Whether two measurements of one figure can both be right; a rule that measured nothing contradicts none."""
    (low, high), (other_low, other_high) = (map(float, pair[1:]) for pair in (old, new))
    return not (low > other_high + 1e-6 or other_low > high + 1e-6)


def is_quick(row):
    return row["name"] in DEFAULT and row["people"] < 5000


ROWS = [
    pytest.param(row, id=f"{row['name']}, {row['people']}", marks=() if is_quick(row) else pytest.mark.slow)
    for row in (*read_rows("verdicts"), *read_rows("truth"))
]


@pytest.mark.parametrize("row", ROWS)
def test_a_verdict_moves_only_with_a_line_that_says_why(row, shared_data, monkeypatch):
    monkeypatch.setenv("PRIVGATE_DATA", str(shared_data("adult.csv.gz").parent))
    if any(find_spec(module) is None for module in row["needs"]):
        pytest.skip(f"not installed: {', '.join(row['needs'])}")
    new = judge_model(row["name"], row["people"], f"@{row['version']}")

    assert (new["policy"], new["version"]) == (row["policy"], row["version"]), "another version has its own rows"
    if new["outcome"] != row["outcome"]:
        why = read_moves().get((row["name"], str(row["people"]), row["outcome"], new["outcome"]), "")
        assert why, f"{row['outcome']} became {new['outcome']}, and moved.md does not say why"
    elif new["outcome"] != "turned away":
        shared = row["rules"].keys() & new["rules"].keys()
        assert [name for name in shared if not intervals_meet(row["rules"][name], new["rules"][name])] == []


def test_a_refusal_becomes_an_approval_only_with_a_proof_by_hand():
    approvals = [why for (*_, old, new), why in read_moves().items() if old == "failed" and new in ("passed", "warned")]
    assert all("by hand" in why for why in approvals)


def freeze(part, names):
    """Append the rows of a part that are not there yet."""
    from kinds.catalogue import KINDS

    known = {(row["name"], row["people"]) for row in read_rows(part)}
    for name, people in names:
        needs = next((kind.needs for kind in KINDS if people and kind.name == name), ())
        if (name, people) in known or any(find_spec(module) is None for module in needs):
            continue
        row = judge_model(name, people) | {"needs": list(needs)}
        with (HERE / f"{part}.jsonl").open("a", encoding="utf-8") as out:
            print(json.dumps(row), file=out)


if __name__ == "__main__":
    from kinds.catalogue import KINDS

    os.environ.setdefault("PRIVGATE_DATA", "../shared/data")
    if sys.argv[1] == "verdicts":
        fastest = ("logistic, newton", "logistic, declared box", "CategoricalNB", "BernoulliNB", "GaussianNB")
        freeze("verdicts", [(k.name, min(k.n, 1000)) for k in KINDS] + [(name, 5000) for name in fastest])
    else:  # a file of names: leaking and harmless models of each way in which docs/truth.md says that the gate decides
        freeze("truth", [(name, 0) for name in Path(sys.argv[2]).read_text(encoding="utf-8").splitlines()])
