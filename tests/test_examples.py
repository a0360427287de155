"""The examples run end to end and end as they say."""

import subprocess
import sys
from pathlib import Path

import pytest

EXAMPLES = Path(__file__).resolve().parents[1] / "examples"


@pytest.mark.slow
@pytest.mark.parametrize(("name", "code"), [("approved", 0), ("blocked", 1), ("inconclusive", 5)])
def test_ends_with_the_exit_code_that_it_states(name, code, tmp_path):
    script = EXAMPLES / name / "run.py"
    ended = subprocess.run(
        [sys.executable, str(script), str(tmp_path)], capture_output=True, text=True, check=False, cwd=tmp_path
    )

    assert ended.returncode == code, ended.stdout + ended.stderr
    assert f"exit code {code}" in script.read_text()
    assert (tmp_path / "report" / "report.html").is_file()
