"""The demonstration: three models, three decisions, one promotion; the README quotes what it prints."""

import json
import math
import re
from pathlib import Path

import pytest

from privgate.cli.demo import demonstrate

README = Path(__file__).resolve().parents[2] / "README.md"
#: model -> outcome, exit code, the rule's value, who answered for how many people, median and 99 % quantile of PDTP
RECORDED = {
    "income-smoothed": ("warned", 0, 0.6017213114, {"categorical_nb": 1000}, 0.0669671163, 0.3212148088),
    "income-laplace": ("failed", 1, 1.7061808622, {"categorical_nb": 1000}, 0.0742343412, 0.8052132365),
    "income-tree": ("failed", 1, math.inf, {"decision_tree": 907, "refit": 0}, math.nan, math.nan),
}


def test_one_model_is_promoted_and_two_are_blocked(tmp_path, monkeypatch, capsys):
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "")
    verdicts = demonstrate(tmp_path)

    assert {name: v.approved for name, v in verdicts.items()} == {
        "income-smoothed": True,
        "income-laplace": False,
        "income-tree": False,
    }
    shown = capsys.readouterr().out
    assert "models:/income-smoothed/1 is now @production" in shown
    assert "adult-0" not in shown.replace("/", "")
    assert len(list((tmp_path / "reports").glob("*/report.html"))) == 3

    quoted = re.search(r"<!-- demo -->\n```text\n(.*?)```", README.read_text(), flags=re.DOTALL).group(1)
    assert quoted.count("\n") == 6
    anybody = lambda text: re.sub(r"record [0-9a-f]{16}", "record", text)  # the keyed hash is new in every folder
    assert [line for line in anybody(quoted).splitlines() if line not in anybody(shown).splitlines()] == []

    for name, (outcome, code, value, engines, median, high) in RECORDED.items():
        document = json.loads((tmp_path / "reports" / name / "report.json").read_text())
        rule = next(f for f in document["findings"] if f["rule"] == "dtp")
        assert (document["outcome"], document["exit_code"]) == (outcome, code)
        assert float(rule["value"]) == pytest.approx(value, abs=1e-9)
        assert {s["engine"]: s["answered"] for s in document["evidence"]["influence"]["engines"]} == engines
        if name == "income-tree":  # decided before the people whose ties only a refit follows were left out
            assert document["evidence"]["influence"]["coverage"]["not_computed"] == 93
            assert not document["units"]["figures"]
            continue
        quantiles = document["units"]["figures"]["pdtp"]["quantiles"]
        assert [float(quantiles[q]) for q in ("0.5", "0.99")] == pytest.approx([median, high], abs=1e-9)
