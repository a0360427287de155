"""Loading from the registry alone: complete, verified, and without running anything."""

import contextlib
import json
import os
import runpy
import sqlite3
import subprocess
import sys
import types
from pathlib import Path

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn import config_context
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import FunctionTransformer, StandardScaler

from privgate import Recipe, Release, Subject, TrainingData, digest, log_model, log_recipe
from privgate.controls.reproduces import check_reproduces
from privgate.errors import DigestMismatchError, RegistryError, SubjectError
from privgate.registry import load, rest
from privgate.subject import recipe as recipes


def stored(tmp_path, pattern):
    found = sorted((tmp_path / "artifacts").rglob(pattern))
    assert found, f"no stored file matches {pattern}"
    return found[0]


USER = """
import pathlib
pathlib.Path({trace!r}).write_text("yes")
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from pg_user_scale import FACTOR

class Scale(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.fitted_ = True
        return self
    def transform(self, X):
        return X * FACTOR

def fit(X, y, *, seed, C):
    return make_pipeline(Scale(), LogisticRegression(C=C, random_state=seed)).fit(X, y)
"""


@pytest.fixture
def trained(written, tmp_path):
    """A module whose import leaves a trace, and a helper of its own."""
    trace = tmp_path / "imported"
    written("pg_user_scale", "FACTOR = 2.0")
    return written("pg_user_train", USER.format(trace=str(trace))), trace


@pytest.fixture
def logged(registry, data):
    """Return a function that registers a recipe's model as ``credit``, with the data beside it."""

    def log(recipe, data=data, **options):
        return log_model(recipe, data, registered_model_name="credit", store="artifacts", **options)

    return log


@pytest.fixture
def users(trained, logged):
    """The user's own training, registered; return its recipe and the trace of its import."""
    module, trace = trained
    recipe = Recipe(module.fit, params={"C": 0.5}, seed=7)
    logged(recipe)
    return recipe, trace


def forge(path, change):
    """Change a recipe.json and make its digest again, as whoever can write it would."""
    document = json.loads(path.read_text())
    change(document)
    del document["digest"]
    path.write_text(json.dumps({**document, "digest": digest.of_json(document)}))


def test_every_way_of_naming_a_model_gives_the_same_subject(logged, recipe, data):
    info = logged(recipe, release=Release("label"))
    client = mlflow.MlflowClient()
    client.set_registered_model_alias("credit", "candidate", "1")
    client.copy_model_version("models:/credit/1", "prod.credit")
    names = {"credit/1": "credit", "credit@candidate": "credit", "prod.credit/1": "prod.credit", info.model_id: ""}
    files = set()
    for path, name in names.items():
        subject = Subject.load(f"models:/{path}")
        files.add(subject.digests["files"])
        assert subject.recipe.digest == recipe.digest
        assert subject.data.digest == data.digest
        assert subject.release == Release("label")
        assert (subject.name, subject.version) == (name, "1" if name else "")
        np.testing.assert_array_equal(subject.data.candidates[0], data.candidates[0])
    assert len(files) == 1


LOADS = """
import json, sys
from privgate import Subject
digests = [dict(Subject.load(uri).digests) for uri in sys.argv[1:]]
print(json.dumps([digests, "mlflow" in sys.modules]))
"""


def test_a_registry_in_a_file_is_read_without_mlflow_and_gives_the_same(registry, logged, recipe, monkeypatch):
    info, client = logged(recipe), mlflow.MlflowClient()
    client.set_registered_model_alias("credit", "candidate", "1")
    client.copy_model_version("models:/credit/1", "prod.credit")
    uris = [f"models:/{name}" for name in ("credit/1", "credit@candidate", "prod.credit/1", info.model_id)]
    wanted = [dict(Subject.load(uri).digests) for uri in uris]
    environment = os.environ | {"MLFLOW_TRACKING_URI": mlflow.get_tracking_uri()}
    place = Path(mlflow.get_tracking_uri().removeprefix("sqlite:///"))

    command = [sys.executable, "-c", LOADS, *uris]
    told = json.loads(subprocess.run(command, env=environment, capture_output=True, check=True).stdout)
    assert told == [wanted, False]
    own = rest.SqliteClient(mlflow.get_tracking_uri(), place, mlflow.MlflowClient)
    client.set_model_version_tag("credit", "1", "of", "a version")
    client.set_logged_model_tags(info.model_id, {"of": "a model"})
    for ask, *names in (("get_model_version", "credit", "1"), ("get_logged_model", info.model_id)):
        row, wanted_row = (getattr(each, ask)(*names) for each in (own, client))
        assert vars(row) == {name: getattr(wanted_row, name) for name in vars(row)}
        assert row.tags
    run_id = client.get_logged_model(info.model_id).source_run_id
    assert own.get_run(run_id).info.artifact_uri == client.get_run(run_id).info.artifact_uri
    assert str(own.get_model_version_by_alias("credit", "latest").version) == "1"
    client.delete_model_version("prod.credit", "1")
    for ask in (own.get_model_version, own.get_model_version_download_uri):
        with pytest.raises(mlflow.MlflowException, match="not found"):
            ask("prod.credit", "1")
    monkeypatch.delitem(sys.modules, "mlflow")
    assert rest.find_client(f"sqlite:///{place}", str) is not None
    with contextlib.closing(sqlite3.connect(place)) as store, store:
        store.execute("update alembic_version set version_num = 'another'")
    assert rest.find_client(f"sqlite:///{place}", str) is None


SCRIPT = """
import numpy as np
from sklearn.base import BaseEstimator, TransformerMixin
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline

class Center(TransformerMixin, BaseEstimator):
    def fit(self, X, y=None):
        self.mean_ = np.mean(X, axis=0)
        return self
    def transform(self, X):
        return X - self.mean_

def fit(X, y, *, seed):
    return make_pipeline(Center(), LogisticRegression()).fit(X, y)

if __name__ == "__main__":
    from privgate import Recipe, TrainingData, log_model
    import mlflow, sys
    mlflow.set_experiment(experiment_id=sys.argv[1])
    data = TrainingData(np.arange(40.0).reshape(20, 2) % 7, np.arange(20) % 2)
    log_model(Recipe(fit, seed=1), data, registered_model_name="script", store="artifacts")
"""


def test_a_script_registers_its_own_functions_and_classes(registry, tmp_path, fleet, monkeypatch):
    (script := tmp_path / "train_script.py").write_text(SCRIPT)
    monkeypatch.setattr("sys.argv", ["train", mlflow.MlflowClient().get_experiment_by_name("tests").experiment_id])
    runpy.run_path(str(script), run_name="__main__")
    told = check_reproduces(Subject.load("models:/script/1"), fleet)
    assert told.outcome == "passed"
    assert told.detail["from_registered_model"] < 1e-12  # processors round its sums in different orders


HOSTILE = [
    (("sources", "files"), {"../../evil.py": "sha256:0"}),
    (("sources", "folder"), "privgate/src/../../.."),
    (("data", "path"), "../../../etc"),
    (("data", "kind"), "pickle"),
    (("data", "files"), {"/etc/passwd": "sha256:0"}),
]


def test_loading_executes_nothing_and_names_a_changed_added_or_missing_file(users, tmp_path):
    _, trace = users
    trace.unlink()
    sys.modules.pop("pg_user_train")
    subject = Subject.load("models:/credit/1")
    subject.recipe.digest, subject.digests, subject.recipe.library_estimator
    assert not trace.exists()

    recipe = stored(tmp_path, "recipe.json")
    original = recipe.read_text()
    for (part, key), value in HOSTILE:  # consistently forged
        forge(recipe, lambda document, part=part, key=key, value=value: document[part].update({key: value}))
        with pytest.raises(SubjectError):
            Subject.load("models:/credit/1")
        recipe.write_text(original)
    packages = {"numpy": "0.1", "absent-package": "1"}
    assert subject.detail["preconditions"][0].outcome == "passed"
    forge(recipe, lambda document: document["environment"]["packages"].update(packages))
    told = Subject.load("models:/credit/1").detail["preconditions"][0]
    assert (told.name, told.outcome) == ("environment", "warned")
    assert "recorded with numpy 0.1" in told.message
    assert "absent-package 1 is not installed" in told.message
    recipe.write_text(original)

    for pattern in ("MLmodel", "model.*", "pg_user_train.py", "recipe.json", "X.npy", "y.npy", "data.json"):
        path = stored(tmp_path, pattern)
        content = path.read_bytes()
        changed = content.replace(b'"C": 0.5', b'"C": 0.9') if pattern == "recipe.json" else content + b"\n"
        path.write_bytes(changed)
        with pytest.raises(DigestMismatchError, match=path.name):
            Subject.load("models:/credit/1")
        path.write_bytes(content)
    root = stored(tmp_path, "MLmodel").parent
    own = next((root / "privgate/src").iterdir())
    for path in (root / "extra.bin", own / "__pycache__" / "pg_user_train.cpython-311.pyc"):
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(b"x")
        with pytest.raises(DigestMismatchError, match="was added"):
            Subject.load("models:/credit/1")
        path.unlink()
    Subject.load("models:/credit/1")
    stored(tmp_path, "X.npy").unlink()
    with pytest.raises(DigestMismatchError, match=r"'X\.npy' is missing"):
        Subject.load("models:/credit/1")


def test_no_file_beside_the_model_goes_without_digest(logged, recipe, data, tmp_path):
    """What an earlier privgate kept there too; only MLflow's own note in a copy that it loaded changes nothing."""
    info = logged(recipe)
    before = Subject.load("models:/credit/1").digests
    root = stored(tmp_path, "MLmodel").parent
    for place in ("privgate/reports/p/report.json", "registered_model_meta"):
        (root / place).parent.mkdir(parents=True, exist_ok=True)
        (root / place).write_text("{}")
    with pytest.raises(DigestMismatchError, match="registered_model_meta"):
        Subject.load("models:/credit/1")
    (root / "registered_model_meta").write_text("model_name: credit\nmodel_version: '1'\n")
    after = Subject.load("models:/credit/1").digests
    assert {k for k in before if before[k] != after[k]} == {"files"}
    (root / "privgate/reports/p/report.json").unlink()
    subject = Subject.load("models:/credit/1")
    assert subject.digests == before
    Path(subject.model.folder, "MLmodel").write_text("flavors: {}")
    with pytest.raises(DigestMismatchError, match="MLmodel"):
        subject.model.load()
    with (root / "MLmodel").open("a") as model:
        model.write("\nextra: privgate/reports/code\n")
    with pytest.raises(SubjectError, match="own folder"):
        log_recipe(info, recipe, data, store="artifacts")


def test_a_model_without_recipe_says_what_to_run(by_mlflow, data):
    info = by_mlflow(GaussianNB().fit(data.X, data.y), "own")
    with pytest.raises(SubjectError, match="log_recipe"):
        Subject.load("models:/own/1")

    log_recipe(info, Recipe(GaussianNB()), data, store="artifacts")
    other = Recipe(GaussianNB(var_smoothing=1e-8))
    log_recipe("models:/own/1", other, data, store="artifacts")  # a second recipe replaces the first

    subject = Subject.load("models:/own/1")
    assert (subject.data.digest, subject.recipe.digest) == (data.digest, other.digest)
    assert type(subject.model.load()).__name__ == "GaussianNB"


@pytest.mark.parametrize("name", ["Floored", "TorchTraining"])
def test_what_names_a_class_that_went_is_refused(registry, data, monkeypatch, name):
    home = "privgate.torch_recipe" if name == "TorchTraining" else "privgate.models"
    stub = sys.modules.get(home) or types.ModuleType(home)
    kind = type(name, (GaussianNB,), {"__module__": home})
    with monkeypatch.context() as earlier:
        earlier.setitem(sys.modules, home, stub)
        earlier.setattr(stub, name, kind, raising=False)
        earlier.setattr(recipes, "GONE", set())
        log_model(Recipe(kind()), data, registered_model_name="old", store="artifacts")
    with pytest.raises(SubjectError, match=f"^the recipe names '{name}', which went with 0.1.0") as refused:
        load.load_subject("models:/old/1")
    assert type(refused.value) is SubjectError


@pytest.mark.parametrize(
    ("uri", "error", "words"),
    [
        *((uri, SubjectError, r"models:/name|moving target")
          for uri in ("runs:/abc/model", "0123", "models:/credit/latest", "models:/credit/Production", "credit",
                      "models:/")),
        *((uri, RegistryError, r"reading|downloading")
          for uri in ("models:/absent/1", "models:/absent@x", "models:/m-00000000000000000000000000000000")),
    ],
)  # fmt: skip
def test_a_uri_that_names_no_fixed_or_no_known_version_is_refused(registry, uri, error, words):
    with pytest.raises(error, match=words):
        Subject.load(uri)


def test_data_in_a_store_is_referred_to_and_verified(registry, recipe, data, tmp_path):
    log_model(recipe, data, registered_model_name="credit", store=tmp_path / "warehouse")
    (place,) = (tmp_path / "warehouse").iterdir()
    assert not list((tmp_path / "artifacts").rglob("X.npy"))
    assert Subject.load("models:/credit/1").data.digest == data.digest

    (place / "y.npy").write_bytes((place / "y.npy").read_bytes()[:-1] + b"\x07")
    with pytest.raises(DigestMismatchError, match=r"y\.npy"):
        Subject.load("models:/credit/1")


LOADER = """
import numpy as np
from privgate import TrainingData
def load(shift=0):
    X = np.arange(40).reshape(10, 4) % 3
    return TrainingData(X, (X[:, 0] + shift) % 2)
"""


def test_a_loader_runs_only_if_the_operator_allows_it(written, logged, recipe, tmp_path, monkeypatch):
    warehouse = written("pg_warehouse", LOADER)
    loaded = TrainingData.from_loader("pg_warehouse:load", shift=1)
    logged(recipe, loaded)
    assert not list((tmp_path / "artifacts").rglob("X.npy"))
    monkeypatch.delenv("PRIVGATE_LOADERS", raising=False)
    with pytest.raises(SubjectError, match="PRIVGATE_LOADERS"):
        Subject.load("models:/credit/1")

    monkeypatch.setenv("PRIVGATE_LOADERS", "pg_other:load pg_warehouse:load")
    assert Subject.load("models:/credit/1").data.digest == loaded.digest

    monkeypatch.setattr(warehouse, "load", lambda shift: TrainingData(loaded.X, 1 - loaded.y, one_record_each=True))
    with pytest.raises(DigestMismatchError, match="training data"):
        Subject.load("models:/credit/1")


@pytest.mark.quick(3)
@pytest.mark.parametrize(
    "estimator",
    [
        None, [], "a", {"!": "estimator"}, {"!": "tuple", "value": []}, {"!": "estimator", "class": 3, "params": {}},
        {"!": "estimator", "class": "a:B", "params": 3},
        *({"!": "estimator", "class": "a:B", "params": {"c": {"!": kind, "value": 3}}} for kind in ("slice", "import")),
    ],
)  # fmt: skip
def test_an_estimator_that_names_no_classes_is_refused_in_one_sentence(estimator):
    written = {
        "recipe": {
            "kind": "estimator", "seed": None, "predict": None, "dp": None, "params": {}, "estimator": estimator,
        },
        "recipe_digest": "", "sources": {"folder": "", "files": {}}, "model": {"files": {}}, "environment": {},
        "data": {"kind": "run", "digest": "", "run_id": "r", "path": "p", "files": {"a": "b"}},
        "release": Release().payload(), "logged_at": "",
    }  # fmt: skip
    with pytest.raises(SubjectError, match="cannot be read"):
        load.check_document(written, "recipe.json cannot be read")
    good = {"!": "estimator", "class": "a:B", "params": {"c": {"!": "tuple", "value": [1]}}}
    load.check_document({**written, "recipe": {**written["recipe"], "estimator": good}}, "recipe.json cannot be read")


@pytest.mark.parametrize(
    ("steps", "told"),
    [([], ""), ([FunctionTransformer(pd.DataFrame.abs)], "set_config(**{'transform_output': 'pandas'})")],
)
def test_a_setting_that_no_source_of_the_recipe_makes_is_named_where_training_needs_it(registry, steps, told):
    X = pd.DataFrame({"a": np.arange(40.0) % 7, "b": np.arange(40.0) % 5})
    recipe, said = Recipe(make_pipeline(StandardScaler(), *steps, LogisticRegression()), seed=1), ""
    with config_context(transform_output="pandas"):
        try:
            log_model(recipe, TrainingData(X, np.arange(40) % 2, one_record_each=True), store="artifacts")
        except SubjectError as exc:
            said = str(exc)
    assert bool(said) == bool(told)
    assert told in said
