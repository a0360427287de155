"""Versions that are no logged model get a recipe; runs name their models."""

import re
from pathlib import Path

import mlflow
import numpy as np
import pytest
import yaml
from sklearn.naive_bayes import GaussianNB

from privgate import Fleet, Recipe, Subject, TrainingData, log_model
from privgate.__main__ import run
from privgate.errors import SubjectError, UsageError
from privgate.registry import adopt, layout
from privgate.registry.client import connect
from privgate.registry.named import named
from privgate.run import reproduction

X = np.random.default_rng(1).normal(size=(30, 2))
DATA = TrainingData(X, (X[:, 0] > 0).astype(int))


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


@pytest.mark.slow
@pytest.mark.parametrize("uri", ["models:/old/1", "models:/old@live"])
def test_an_old_version_becomes_one_of_the_same_bytes_that_can_be_checked(old, uri):
    with pytest.raises(SubjectError, match=re.escape(f"privgate adopt {uri} --recipe")):
        Subject.load(uri)

    found = adopt(uri, Recipe(GaussianNB()), DATA, store="artifacts")

    assert found == "models:/old/2"
    subject = Subject.load(found)
    assert layout.model_files(Path(subject.model.folder)) == layout.model_files(old)
    with Fleet(jobs=1, ledger="none") as fleet:
        told = reproduction.reproduces(subject, fleet)
    assert told.detail["from_registered_model"] == 0.0
    client = mlflow.MlflowClient()
    assert client.get_model_version("old", "1").tags["privgate.adopted_as"] == "models:/old/2"
    assert client.get_model_version("old", "2").tags["privgate.adopted_from"] == "models:/old/1"
    assert str(client.get_model_version_by_alias("old", "live").version) == "1"
    assert np.allclose(mlflow.pyfunc.load_model(found).predict(X), GaussianNB().fit(DATA.X, DATA.y).predict_proba(X))


def test_nothing_is_made_where_the_data_have_no_place(old):
    with pytest.raises(UsageError, match="store="):
        adopt("models:/old/1", Recipe(GaussianNB()), DATA)
    assert len(mlflow.MlflowClient().search_model_versions("name='old'")) == 1
    assert not mlflow.search_logged_models(output_format="list")


def test_a_version_of_mlflow_3_is_given_a_recipe_where_it_is(registry):
    with mlflow.start_run():
        mlflow.sklearn.log_model(
            GaussianNB().fit(DATA.X, DATA.y), name="own", registered_model_name="own", pip_requirements=[]
        )
    assert adopt("models:/own/1", Recipe(GaussianNB()), DATA, store="artifacts") == "models:/own/1"
    assert Subject.load("models:/own/1").recipe.digest == Recipe(GaussianNB()).digest


def test_the_command_line_adopts(old, tmp_path, monkeypatch, capsys):
    (tmp_path / "pg_adopted.py").write_text(
        "import numpy as np\nfrom sklearn.naive_bayes import GaussianNB\nfrom privgate import TrainingData\n"
        "def fit(X, y, *, seed):\n    return GaussianNB().fit(X, y)\n"
        "def data():\n    X = np.random.default_rng(1).normal(size=(30, 2))\n"
        "    return TrainingData(X, (X[:, 0] > 0).astype(int))\n"
    )
    monkeypatch.chdir(tmp_path)
    named_so = ["--recipe", "pg_adopted:fit", "--seed", "3", "--data", "pg_adopted:data"]
    code = run(["adopt", "models:/old/1", *named_so, "--store", str(tmp_path / "kept")])
    assert code == 0
    assert "models:/old/2 holds the bytes of models:/old/1" in capsys.readouterr().out
    assert Subject.load("models:/old/2").recipe.seed == 3
    assert run(["adopt", "models:/old/1", "--recipe", "pg_adopted", "--data", "pg_adopted:data"]) == 2
    assert run(["adopt", "models:/old/1", *named_so[:4], "--data", "pg_adopted:absent"]) == 2


def test_a_run_names_its_models(registry):
    with mlflow.start_run() as active:
        one = log_model(Recipe(GaussianNB()), DATA, name="one", store="artifacts")
    client, run_id = connect(registry), active.info.run_id
    for uri in (run_id, f"runs:/{run_id}", f"runs:/{run_id}/one"):
        assert named(client, uri).model_id == one.model_id
        assert Subject.load(uri).digests["model"] == Subject.load(f"models:/{one.model_id}").digests["model"]
    with pytest.raises(SubjectError, match="names 0 models of the run, which has logged one"):
        named(client, f"runs:/{run_id}/two")
    with mlflow.start_run(run_id=run_id):
        two = log_model(Recipe(GaussianNB()), DATA, name="two", store="artifacts")
    assert named(client, f"runs:/{run_id}/two").model_id == two.model_id
    with pytest.raises(SubjectError, match="names 2 models"):
        named(client, run_id)
    with mlflow.start_run() as empty:
        pass
    with pytest.raises(SubjectError, match="privgate adopt"):
        named(client, empty.info.run_id)
