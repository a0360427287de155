"""The commands of every page, typed one after another as they stand there, by the installed command."""

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
INSTALLED = str(Path(sys.executable).with_name("privgate"))
#: the exit codes with which commands may end here that can end otherwise than with 0
ENDS = {"check": {0, 5}, "advise": {0, 1}, "promote": {0, 5}, "doctor": {0, 4}}


def typed(page: str) -> list[list[str]]:
    """Return the command lines of a page's console blocks, as a shell would split them."""
    text = (ROOT / page).read_text(encoding="utf-8")
    blocks = re.findall(r"```console\n(.*?)```", text, flags=re.DOTALL)
    lines = [line[2:] for block in blocks for line in block.splitlines() if line.startswith("$ privgate ")]
    return [shlex.split(line, comments=True) for line in lines]


def logged(place: Path) -> None:
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
    (place / "train.py").write_text(lines + block[1], encoding="utf-8")
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


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_command_ends_as_it_should(page, tmp_path):
    readme_logged(tmp_path) if page == "README.md" else logged(tmp_path)

    # a test of its own runs the demonstration
    lines = [line for line in typed(page) if line[1] != "demo"]
    assert {line[1] for line in lines} >= {"check", "advise", "promote"}
    for line in lines:
        asked(tmp_path, [INSTALLED, *line[1:]], ENDS.get(line[1], {0}))
