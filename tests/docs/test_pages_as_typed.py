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
ENDS = {"check": {0, 5}, "advise": {0, 1}, "promote": {0, 5}, "guard doctor": {0, 4}}
#: pages of the site, in its order; what the tutorial's model needs comes first
SITE = ("engineer", "guarded-server", "officer", "data-scientist", "policies", "own-models", "what-to-expect",
        "measuring", "index", "ci", "assumptions", "troubleshooting", "reference")  # fmt: skip


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


@pytest.mark.slow
@pytest.mark.parametrize("page", ["README.md", "docs/tutorial.md"])
def test_every_command_ends_as_it_should(page, tmp_path):
    readme_logged(tmp_path) if page == "README.md" else logged(tmp_path, "3.0")

    # a test of its own runs the demonstration
    lines = [line for line in typed(page) if line[1] != "demo"]
    assert {line[1] for line in lines} >= {"check", "advise", "promote"}
    for line in lines:
        asked(tmp_path, [INSTALLED, *line[1:]], ENDS.get(line[1], {0}))


#: the models that pages name: one that release-1 approves, a tree of two versions, and one without a recipe
OTHERS = """
from privgate.demo import adult, recipes
import mlflow, numpy as np, privgate
from sklearn.naive_bayes import GaussianNB
from sklearn.tree import DecisionTreeClassifier
X = np.random.default_rng(1).normal(size=(1600, 3)).round(2)
y = (X[:, 0] > 0).astype(int)
approved = recipes.recipes()["income-boosted"].recipe
privgate.log_model(approved, adult.load(800), registered_model_name="credit", store="data")
for version in range(3):
    model = GaussianNB().fit(X[:800], y[:800])
    mlflow.sklearn.log_model(model, name="m", registered_model_name="old", pyfunc_predict_fn="predict_proba")
data = privgate.TrainingData(X[:800], y[:800], one_record_each=True, candidates=(X[800:], y[800:]))
for version in range(2):
    recipe = privgate.Recipe(DecisionTreeClassifier(), seed=7)
    privgate.log_model(recipe, data, registered_model_name="tree", store="data")
"""
MODULE = """
import numpy as np, privgate
from sklearn.naive_bayes import GaussianNB
def fit(X, y, *, seed):
    return GaussianNB().fit(X, y)
def load():
    X = np.random.default_rng(1).normal(size=(1600, 3)).round(2)
    return privgate.TrainingData(X[:800], (X[:800, 0] > 0).astype(int), one_record_each=True)
"""


@pytest.mark.slow
def test_every_other_page_can_be_typed_too(tmp_path):
    for _ in range(2):
        logged(tmp_path, "3.0")
    (tmp_path / "others.py").write_text(OTHERS, encoding="utf-8")
    (tmp_path / "module.py").write_text(MODULE, encoding="utf-8")
    asked(tmp_path, [sys.executable, "others.py"], {0})
    guard = re.search(
        r"```yaml\n(schema: privgate/guard.*?)```", (ROOT / "docs/guarded-server.md").read_text(), re.DOTALL
    )
    # checker and signer are one user here
    (tmp_path / "guard.yaml").write_text(f"{guard[1]}accept_advisory: true\n", encoding="utf-8")
    here = {"/srv": str(tmp_path / "srv"), "https://mlflow.example": f"sqlite:///{tmp_path / 'mlflow.db'}"}

    done = set()
    for page in SITE:
        for line in typed(f"docs/{page}.md"):
            words = [next((v + w.removeprefix(k) for k, v in here.items() if w.startswith(k)), w) for w in line[1:]]
            # tests/training/test_clusters.py judges on a cluster
            if tuple(words) in done or words[0] == "demo" or "HOST" in " ".join(words):
                continue
            command = " ".join(words[:2] if words[0] in ("guard", "dp") else words[:1])
            asked(tmp_path, [INSTALLED, *words], ENDS.get(command, {0}))
            done.add(tuple(words))
            if command == "guard sign":  # whoever moves the alias of an unguarded registry
                move = "import mlflow; mlflow.MlflowClient().set_registered_model_alias('credit', 'production', '3')"
                asked(tmp_path, [sys.executable, "-c", move], {0})
    assert len(done) > 15


@pytest.mark.slow
def test_a_blocked_model_is_changed_by_the_commands_that_are_printed(tmp_path):
    logged(tmp_path, "0.1")
    judged = ["models:/credit/1", "--policy", "dtp-1"]
    asked(tmp_path, [INSTALLED, "check", *judged], {1})

    said = asked(tmp_path, [INSTALLED, "advise", *judged], {0})
    value = re.search(r"^  \+ CategoricalNB: alpha = (\S+)$", said, flags=re.MULTILINE)[1]
    logged(tmp_path, value)
    asked(tmp_path, [INSTALLED, "check", "models:/credit/2", *judged[1:]], {0})
