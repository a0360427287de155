"""Versions that are no logged model get a recipe; runs name their models."""

import re
import sys
from pathlib import Path

import mlflow
import numpy as np
import pytest
import yaml
from sklearn.linear_model import Ridge
from sklearn.naive_bayes import GaussianNB

from privgate import Recipe, Release, Subject, TrainingData
from privgate.__main__ import run
from privgate.errors import SubjectError, UsageError
from privgate.registry import adopt
from privgate.registry.files import model_files

X = np.random.default_rng(1).normal(size=(30, 2))
DATA = TrainingData(X, (X[:, 0] > 0).astype(int), one_record_each=True)


@pytest.fixture
def old(registry, tmp_path):
    """``models:/old/1``: files of a run, as MLflow 2 has registered them, its alias ``live``."""
    folder = tmp_path / "saved"
    mlflow.sklearn.save_model(
        GaussianNB().fit(DATA.X, DATA.y), folder, pip_requirements=[], pyfunc_predict_fn="predict_proba"
    )
    content = yaml.safe_load((folder / "MLmodel").read_text())
    for key in ("model_id", "prompts", "is_signature_from_type_hint", "type_hint_from_example"):
        content.pop(key, None)
    (folder / "MLmodel").write_text(yaml.safe_dump({**content, "artifact_path": "model", "mlflow_version": "2.9.2"}))
    client = mlflow.MlflowClient()
    with mlflow.start_run() as active:
        client.log_artifacts(active.info.run_id, str(folder), "model")
    client.create_registered_model("old")
    source = f"{active.info.artifact_uri}/model"
    client.create_model_version("old", source=source, run_id=active.info.run_id)
    client.set_registered_model_alias("old", "live", "1")
    return folder


def test_a_version_of_mlflow_3_is_given_a_recipe_where_it_is(by_mlflow, tmp_path):
    by_mlflow(GaussianNB().fit(DATA.X, DATA.y), "own")
    assert adopt("models:/own/1", Recipe(GaussianNB()), DATA, store="artifacts") == "models:/own/1"
    assert Subject.load("models:/own/1").recipe.digest == Recipe(GaussianNB()).digest

    numbers = TrainingData(DATA.X, DATA.X[:, 0], one_record_each=True)
    by_mlflow(Ridge().fit(numbers.X, numbers.y), "line")
    with pytest.raises(SubjectError, match="a regressor releases its numbers"):
        adopt("models:/line/1", Recipe(Ridge()), numbers, release=Release("label"), store=str(tmp_path / "kept"))
    assert not (tmp_path / "kept").exists()


def test_a_version_of_mlflow_2_is_served_as_probabilities_too(old, tmp_path):
    about = {"store": str(tmp_path / "kept"), "serve": "probabilities"}
    assert adopt("models:/old@live", Recipe(GaussianNB()), DATA, **about) == "models:/old/2"
    served = mlflow.pyfunc.load_model("models:/old/2").predict(DATA.X)
    np.testing.assert_array_equal(served, GaussianNB().fit(DATA.X, DATA.y).predict_proba(DATA.X))
    assert mlflow.MlflowClient().get_model_version("old", "2").tags["privgate.adopted_from"] == "models:/old/1"
    with pytest.raises(UsageError, match="whose release is probabilities"):
        adopt("models:/old/1", Recipe(Ridge()), DATA.as_targets(), **about)


def test_the_command_line_adopts(old, tmp_path, monkeypatch, capsys):
    (tmp_path / "pg_adopted.py").write_text(
        "import numpy as np\nfrom sklearn.naive_bayes import GaussianNB\nfrom privgate import TrainingData\n"
        "def fit(X, y, *, seed):\n    return GaussianNB().fit(X, y)\n"
        "def data():\n    X = np.random.default_rng(1).normal(size=(30, 2))\n"
        "    return TrainingData(X, (X[:, 0] > 0).astype(int))\n"
    )
    monkeypatch.chdir(tmp_path)
    with pytest.raises(SubjectError, match=re.escape("privgate adopt models:/old/1 --recipe")):
        Subject.load("models:/old/1")
    with pytest.raises(UsageError, match="store="):  # nothing is made where the data have no place
        adopt("models:/old/1", Recipe(GaussianNB()), DATA)
    assert len(mlflow.MlflowClient().search_model_versions("name='old'")) == 1
    assert not mlflow.search_logged_models(output_format="list")
    named_so = ["--recipe", "pg_adopted:fit", "--seed", "3", "--data", "pg_adopted:data"]
    code = run(["adopt", "models:/old/1", *named_so, "--store", str(tmp_path / "kept"), "--release", "label"])
    assert code == 0
    assert "models:/old/2 holds the bytes of models:/old/1" in capsys.readouterr().out
    subject, client = Subject.load("models:/old/2"), mlflow.MlflowClient()
    assert (subject.recipe.seed, subject.release) == (3, Release("label"))
    assert model_files(Path(subject.model.folder)) == model_files(old)
    assert client.get_model_version("old", "1").tags["privgate.adopted_as"] == "models:/old/2"
    assert client.get_model_version("old", "2").tags["privgate.adopted_from"] == "models:/old/1"
    assert str(client.get_model_version_by_alias("old", "live").version) == "1"
    assert run(["adopt", "models:/old/1", "--recipe", "pg_adopted", "--data", "pg_adopted:data"]) == 2
    assert run(["adopt", "models:/old/1", *named_so[:4], "--data", "pg_adopted:absent"]) == 2


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("def data():\n    return 1 + 'a'\n", 4, "raised TypeError: unsupported operand"),
        ("def data():\n    import pg_no_such\n", 4, "No module named 'pg_no_such' (pg_broken.py, line 2)"),
        ("import sys\nsys.exit(0)\n", 4, "raised SystemExit: 0 (pg_broken.py, line 2)"),
        ("def data(:\n", 4, "line 1); mend it"),
        ("other = 1\n", 2, "cannot be imported"),
    ],
)
def test_an_error_in_the_owners_module_is_the_owners(tmp_path, monkeypatch, capsys, text, code, said):
    (tmp_path / "pg_broken.py").write_text(text)
    monkeypatch.chdir(tmp_path)
    assert run(["adopt", "models:/m/1", "--recipe", "json:loads", "--data", "pg_broken:data"]) == code
    error = capsys.readouterr().err
    assert said in " ".join(error.split())
    assert not {"Traceback", "bug"} & set(error.split())
    sys.modules.pop("pg_broken", None)
