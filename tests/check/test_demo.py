"""The demonstration: three models, three decisions, two promotions; the README quotes what it prints."""

import json
import re
from pathlib import Path
from types import SimpleNamespace

import pytest

from privgate import cases
from privgate.__main__ import run
from privgate.cli import demo
from privgate.demo.recipes import recipes

ALL = recipes()
README = Path(__file__).resolve().parents[2] / "README.md"
#: model -> outcome, exit code, the rule that decides about people and its value or upper limit, whom engines answered
RECORDED = {
    "income-smoothed": ("passed", 0, "influence_on_everybody", 0.2425033612, {"refit": 59}),
    "income-neighbours": ("failed", 1, "file_records", 800.0, None),
    "income-boosted": ("passed", 0, "influence_on_people", 0.01, None),
}


@pytest.mark.parametrize("models", [2, pytest.param(3, marks=(pytest.mark.boxed, pytest.mark.slow))])
def test_two_models_are_promoted_and_one_is_blocked(tmp_path, monkeypatch, capsys, models):
    shown_here = dict(list(ALL.items())[:models])
    monkeypatch.setattr("privgate.demo.recipes.recipes", lambda: shown_here)
    monkeypatch.setenv("MLFLOW_EXPERIMENT_NAME", "")
    monkeypatch.delenv("PRIVGATE_COLUMNS")

    assert run(["demo", "--folder", str(tmp_path)]) == 0
    promoted = [name for name in shown_here if RECORDED[name][1] == 0]
    shown = capsys.readouterr().out
    assert all(f"models:/{name}/1 is now @production" in shown for name in promoted)
    assert "adult-0" not in shown.replace("/", "")
    number = re.search(r"As it should be: (\d) models are @production, 1 is refused, (\d+) attacks were run.", shown)
    assert [int(n) for n in number.groups()] == [len(promoted), 16]
    assert "  ! " not in shown  # a warning would be about the sample, not about the model
    assert len(shown.splitlines()) <= 48  # two screens

    quoted = re.search(r"<!-- demo -->\n```text\n(.*?)```", README.read_text(), flags=re.DOTALL).group(1)
    assert quoted.count("\n") == 5
    # the keyed hash is new in every folder, and a file is as long as the library's version makes it
    anybody = lambda text: re.sub(r"record [0-9a-f]{16}|[\d,]+ of [\d,]+ bytes", "", text)
    whole = anybody(re.sub(r"\n {4,6}(?=\S)", " ", shown)).splitlines()  # a line of the terminal has 100 characters
    assert max(map(len, shown.splitlines())) <= 100 + len(str(tmp_path))  # paths stay whole
    missing = [line for line in anybody(quoted).splitlines() if line not in whole]
    assert [re.search(r"income-\w+", line)[0] for line in missing] == [name for name in ALL if name not in shown_here]

    for name, shown_model in shown_here.items():
        outcome, code, decides, value, engines = RECORDED[name]
        document = json.loads((tmp_path / "reports" / name / "report.json").read_text())
        assert document["policy"]["name"] == shown_model.policy
        rule = next(f for f in document["findings"] if f["rule"] == decides)
        assert (document["outcome"], document["exit_code"]) == (outcome, code)
        assert float(rule["high"]) == pytest.approx(value, abs=1e-9), name
        if engines is not None:
            again, *_ = cases.recompute(document, tmp_path / "reports" / name)
            assert again.startswith("influence_on_everybody: the kernel's limits come to 0.")
            assert {s["engine"]: s["answered"] for s in document["evidence"]["influence"]["engines"]} == engines
    refused = json.loads((tmp_path / "reports" / "income-neighbours" / "report.json").read_text())
    assert refused["evidence"]["run"]["trace"]["training_calls"] == 0  # nothing is trained to see that


def test_another_decision_than_is_due_ends_as_a_bug(tmp_path, monkeypatch, capsys):
    made = {
        n: SimpleNamespace(approved=r.approved, evidence=SimpleNamespace(membership=None)) for n, r in recipes().items()
    }
    monkeypatch.setattr(demo, "demonstrate", lambda _: made)

    assert run(["demo", "--folder", str(tmp_path)]) == 0
    made["income-neighbours"].approved = True
    assert run(["demo", "--folder", str(tmp_path)]) == 3
    assert "income-neighbours: another decision was due" in capsys.readouterr().out


def test_a_folder_that_cannot_be_written_is_said_before_anything_is_trained(tmp_path, capsys):
    (tmp_path / "taken").write_text("")

    assert run(["demo", "--folder", str(tmp_path / "taken" / "demo")]) == 2
    assert "cannot be written" in " ".join(capsys.readouterr().err.split())
