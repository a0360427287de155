"""Versions that are no logged model get a recipe; runs name their models."""

import getpass
import json
import re
import sys
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
import yaml
from sklearn.linear_model import LogisticRegression, Ridge
from sklearn.naive_bayes import GaussianNB

from privgate import Policy, Recipe, Release, Subject, TrainingData, evaluate, log_model
from privgate.__main__ import run
from privgate.check import beforehand
from privgate.errors import SubjectError, UsageError
from privgate.registry import adopt
from privgate.registry.client import connect
from privgate.registry.files import model_files
from privgate.registry.named import named

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


# Whose the records are: declared beside the data of a version that is registered, never guessed.

PEOPLE = np.random.default_rng(2).normal(size=(120, 3))
FRAME = pd.DataFrame(PEOPLE, columns=list("abc")).assign(who=np.arange(120) // 3)


@pytest.fixture
def undeclared(registry):
    data = TrainingData(FRAME, (PEOPLE[:, 0] > 0).astype(int), ids=np.arange(120), one_record_each=False)
    log_model(Recipe(LogisticRegression(), seed=1), data, registered_model_name="monthly", store="artifacts")
    return data


def test_nothing_is_trained_while_nobody_declared_whose_the_records_are(undeclared, capsys):
    assert run(["check", "models:/monthly/1", "--policy", "dtp-1", "--report-dir", "out", "--no-attach"]) == 5
    said = " ".join(capsys.readouterr().out.split())
    assert "nobody declared whose each record is; run" in said
    assert "privgate adopt models:/monthly/1 --one-record-each" in said
    assert json.loads(Path("out/report.json").read_text())["evidence"]["run"]["trace"]["training_calls"] == 0
    told = beforehand.check_people(Policy.load("share-1@4"), Subject.load("models:/monthly/1"))  # an earlier policy
    assert (told.outcome, told.message[:39]) == ("warned", "each record was taken for a person; run")
    for arguments, code, words in (
        (["--groups", "nobody"], 4, "the data have no column 'nobody'"),
        (["--groups", "who", "--one-record-each"], 2, "contradict each other"),
        ([], 2, "give --recipe and --data"),
        (["--one-record-each", "--recipe", "m:r"], 2, "give --recipe and --data"),
    ):
        assert run(["adopt", "models:/monthly/1", *arguments]) == code
        assert words in " ".join(capsys.readouterr().err.split())


def test_a_declaration_is_kept_beside_the_data_and_told_with_who_made_it(undeclared):
    before = Subject.load("models:/monthly/1")
    for option, people, declared in (
        (["--one-record-each"], 120, "one record each"),
        (["--groups", "who"], 40, "groups who"),
    ):
        assert run(["adopt", "models:/monthly/1", *option]) == 0
        after = Subject.load("models:/monthly/1")
        assert len(after.data.units) == people
        assert after.data.digest == before.data.digest == undeclared.digest
        assert after.digests["files"] != before.digests["files"]  # which a statement signs
        assert after.data.declared_by == getpass.getuser()
        assert beforehand.check_people(Policy.load("share-1"), after).outcome == "passed"
        told = evaluate("attacks-1", after).evidence.subject  # too few candidates: nothing is trained
        assert told["people"] == {"declared": after.data.people_declared, "by": getpass.getuser()}
        assert declared.startswith(after.data.people_declared)
        before = after
