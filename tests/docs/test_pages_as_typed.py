"""The commands of README and of the tutorial, typed one after another as they stand there, on an own registry."""

import os
import pickle
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

from privgate.demo import adult

ROOT = Path(__file__).resolve().parents[2]
#: the exit codes with which each command may end here; the model is the tutorial's, which keeps DTP-1
ENDS = {"init": {0}, "check": {0, 5}, "advise": {0, 1}, "promote": {0, 5}, "report": {0}, "explain": {0}}


def typed(page: str) -> list[list[str]]:
    """Return the command lines of a page's console blocks, as a shell would split them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ privgate ")]
    return [shlex.split(line, comments=True) for line in lines]


def logged(place: Path, alpha: str) -> None:
    """Run the tutorial's own block that logs the model, with the people of UCI Adult for its X, y and ids."""
    text = (ROOT / "docs" / "tutorial.md").read_text(encoding="utf-8")
    block = re.search(r"```python\n(.*?)```", text, flags=re.DOTALL)
    assert block is not None
    data = adult.load()
    assert data.candidates is not None
    own = [adult.SIZES.index(size) for size in (9, 15, 7)]  # within the domain of the page
    X_out, y_out = data.candidates
    names = {"X": data.X[:, own], "y": data.y, "ids": data.ids, "X_out": X_out[:, own], "y_out": y_out}
    lines = "import pickle, pathlib\nglobals().update(pickle.loads(pathlib.Path('names').read_bytes()))\n"
    (place / "names").write_bytes(pickle.dumps(names))
    assert "alpha=3.0" in block[1]
    (place / "train.py").write_text(lines + block[1].replace("alpha=3.0", f"alpha={alpha}"), encoding="utf-8")
    asked(place, [sys.executable, "train.py"], {0})


def asked(place: Path, words: list[str], ends: set[int]) -> str:
    given = {k: v for k, v in os.environ.items() if not k.startswith(("PRIVGATE_", "MLFLOW_"))}
    given |= {"MLFLOW_TRACKING_URI": f"sqlite:///{place / 'mlflow.db'}", "PYTHONPATH": str(ROOT)}
    done = subprocess.run(words, cwd=place, env=given, capture_output=True, text=True, check=False)
    said = done.stdout + done.stderr
    assert done.returncode in ends, (words, done.returncode, said[-3000:])
    assert "Traceback" not in said, (words, said[-3000:])
    return said


def readme_logged(place: Path) -> None:
    """Run README's own block, which brings its invented people."""
    block = re.search(r"```python\n(.*?)```", (ROOT / "README.md").read_text(encoding="utf-8"), flags=re.DOTALL)
    assert block is not None
    (place / "train.py").write_text(block[1], encoding="utf-8")
    assert "Created version '1' of model 'credit'" in asked(place, [sys.executable, "train.py"], {0})


def test_the_lines_of_the_readme_log_a_model_as_they_are_printed(tmp_path):
    readme_logged(tmp_path)


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_command_ends_as_it_should(page, tmp_path):
    readme_logged(tmp_path) if page == "README.md" else logged(tmp_path, "3.0")

    # a test of its own runs the demonstration
    lines = [line for line in typed(page) if line[1] != "demo"]
    assert {line[1] for line in lines} >= {"check", "advise", "promote"}
    for line in lines:
        asked(tmp_path, [sys.executable, "-m", *line], ENDS[line[1]])


@pytest.mark.slow
def test_a_blocked_model_is_changed_by_the_commands_that_are_printed(tmp_path):
    logged(tmp_path, "0.1")
    judged = ["models:/credit/1", "--policy", "dtp-1"]
    asked(tmp_path, [sys.executable, "-m", "privgate", "check", *judged], {1})

    said = asked(tmp_path, [sys.executable, "-m", "privgate", "advise", *judged], {0})
    value = re.search(r"^  \+ CategoricalNB: alpha = (\S+)$", said, flags=re.MULTILINE)[1]
    logged(tmp_path, value)
    asked(tmp_path, [sys.executable, "-m", "privgate", "check", "models:/credit/2", *judged[1:]], {0})
