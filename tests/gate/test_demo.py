"""The demonstration: three models, three decisions, one promotion."""

from privgate.cli.demo import demonstrate


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
