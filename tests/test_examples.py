"""The examples run end to end and end as they say."""

import json
import os
import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"
#: what each rule said of each example when its verdicts were frozen
KEPT = Path(__file__).parent / "goldens" / "data" / "examples.jsonl"


ENDS = {"approved": 0, "blocked": 1, "inconclusive": 5, "logistic": 0, "boosting": 1, "torch-network": 5, "groups": 0,
        "own-script": 0, "guarded-server": 0, "python-only": 0, "deletion": 0}  # fmt: skip


def test_every_example_is_run_and_listed():
    scripts = {p.parent.name for p in EXAMPLES.glob("*/run.py")}

    # by the tests of privacy claims, and by hand: half an hour
    assert scripts == {*ENDS, "dp-trained", "week"}
    page = (EXAMPLES / "README.md").read_text(encoding="utf-8")
    assert all(f"({name}/" in page for name in scripts)


@pytest.mark.slow
@pytest.mark.timeout(1800)  # a minute each where nothing else runs
@pytest.mark.parametrize(("name", "code"), ENDS.items())
def test_ends_with_the_exit_code_that_it_states(name, code, tmp_path):
    script = EXAMPLES / name / "run.py"
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)],
        capture_output=True,
        text=True,
        check=False,
        cwd=tmp_path,
        env={**os.environ, "XDG_CONFIG_HOME": str(tmp_path / "config")},
    )

    assert ended.returncode == code, ended.stdout + ended.stderr
    assert f"exit code {code}" in script.read_text()
    assert (tmp_path / "report" / "report.html").is_file()
    report = json.loads((tmp_path / "report" / "report.json").read_text())
    found = {f["rule"]: f["outcome"] for f in report["findings"] if f["metric"]}
    kept = [r for r in map(json.loads, KEPT.read_text().splitlines()) if r["row"] == name]
    assert found == {r["rule"]: r["verdict"] for r in kept}  # figures are of other people since: equal ones are gone
    assert report["approved"] == any(r["outcome"] in {"passed", "warned"} for r in kept)
