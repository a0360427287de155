"""The notebooks: what they store is no error and names only what exists; run again, they end as they say.

To store outputs anew, with Jupyter at hand: ``jupyter nbconvert --execute --inplace docs/notebooks/*.ipynb``.
"""

import ast
import json
import os
import re
import subprocess
import sys
from importlib import import_module
from pathlib import Path

import pytest

FOLDER = Path(__file__).resolve().parents[2] / "docs" / "notebooks"
NAMES = sorted(p.stem for p in FOLDER.glob("*.ipynb"))
#: what the code cells must have come to when they are run again, read off what they print
COME_TO = {
    "data_scientist": ("report.html",),
    "mlops": ("version 1 stops", "version 2 goes on", "approved, dtp-1"),
    "compliance": ("REFUSED", "approved | for every person", "quantiles of people"),
    "dp_trainer": ("refused | the recipe claims epsilon 0.5",),
    "researcher": ("178 refits; the largest difference",),
}


def cells(name):
    return json.loads((FOLDER / f"{name}.ipynb").read_text(encoding="utf-8"))["cells"]


def code(name):
    return ["".join(c["source"]) for c in cells(name) if c["cell_type"] == "code"]


def stored(name):
    """Everything that the cells of a notebook came to, as text."""
    outputs = [o for c in cells(name) for o in c.get("outputs", ())]
    texts = [o.get("text") or (o.get("data") or {}).get("text/plain") or "" for o in outputs]
    return "".join(t if isinstance(t, str) else "".join(t) for t in texts)


def test_there_is_one_for_each_role():
    assert set(NAMES) == set(COME_TO)


@pytest.mark.parametrize("name", NAMES)
def test_what_is_stored_is_whole_and_no_error(name):
    given = [c for c in cells(name) if c["cell_type"] == "code"]
    outputs = [o for c in given for o in c["outputs"]]

    assert [o for o in outputs if o["output_type"] == "error"] == []
    assert all(c["execution_count"] for c in given)
    assert all(words in stored(name) for words in COME_TO[name])
    # nothing of the machine that ran it
    assert not re.search(r"/(?:home|root|work|tmp|Users)/|\x1b\[", json.dumps(cells(name)))
    assert (FOLDER / f"{name}.ipynb").stat().st_size < 60_000


@pytest.mark.parametrize("name", NAMES)
def test_every_name_of_privgate_that_is_used_exists(name):
    found = 0
    for source in code(name):
        for node in ast.walk(ast.parse(source)):
            if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "privgate":
                found += 1
                assert all(hasattr(import_module(node.module), a.name) or import_module(f"{node.module}.{a.name}")
                           for a in node.names)  # fmt: skip
    assert found


@pytest.mark.slow
@pytest.mark.parametrize("name", NAMES)
def test_the_cells_run_again_as_a_script(name, tmp_path):
    script = tmp_path / f"{name}.py"
    script.write_text("\n\n".join(code(name)), encoding="utf-8")
    home = {"XDG_CONFIG_HOME": str(tmp_path / "config"), "NO_COLOR": "1"}
    ended = subprocess.run([sys.executable, str(script)], cwd=tmp_path, env={**os.environ, **home}, capture_output=True,
                           text=True, check=False)  # fmt: skip

    assert ended.returncode == 0, ended.stderr[-2000:]
    printed = [words for words in COME_TO[name] if not words.startswith("<")]
    assert all(words in ended.stdout for words in printed), ended.stdout[-2000:]
