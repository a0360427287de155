"""What is trained is what is stored, and where the training data may lie."""

import logging

import mlflow
import numpy as np
import pandas as pd
import pytest
from sklearn.compose import make_column_transformer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.naive_bayes import GaussianNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler
from sklearn.svm import LinearSVC

from privgate import Fleet, PrivgateError, Recipe, Subject, TrainingData, log_model, log_recipe
from privgate.controls import reproduces
from privgate.errors import DigestMismatchError, SubjectError, UsageError


@pytest.fixture(scope="module")
def from_registered():
    """Return how far a training in a worker is from the registered model; one worker for all."""
    with Fleet(jobs=1, ledger="none") as fleet:
        yield lambda subject: reproduces.check_reproduces(subject, fleet).detail["from_registered_model"]


@pytest.fixture
def people():
    """Columns of objects with None and NaN, as ``read_csv`` of pandas 2 gives them, beside numbers with gaps."""
    rng = np.random.default_rng(4)
    job = rng.choice(np.array(["a", "b", np.nan, None], dtype=object), 60)
    return pd.DataFrame({"job": pd.Series(job, dtype=object), "age": np.where(rng.random(60) < 0.2, np.nan, 40.0)})


def preprocessed():
    """Return an imputer that knows NaN only, and a column a category: a None would be one more."""
    text = make_pipeline(SimpleImputer(strategy="most_frequent"), OneHotEncoder(handle_unknown="ignore"))
    table = make_column_transformer((text, ["job"]), (make_pipeline(SimpleImputer(), StandardScaler()), ["age"]))
    return make_pipeline(table, LogisticRegression())


class Watched(GaussianNB):
    def fit(self, X, y):
        raise AssertionError("trained before it was refused")


def test_what_is_refused_is_refused_before_anything_is_trained_or_logged(registry, data, recipe, tmp_path):
    (tmp_path / "file").write_text("")
    strange = TrainingData(data.X, data.y, candidates=(data.X[:3], [0, 7, 1]), one_record_each=True)
    gap = TrainingData(["a", None, "b"], [0, 1, 0], one_record_each=True)
    said = "1 to 9 candidates .first 1. have a label that no training record has"
    for kind, given, store, error, words in (
        (Recipe(Watched()), data, None, UsageError, "store='artifacts'"),
        (Recipe(Watched()), data, tmp_path / "file", SubjectError, "cannot be stored below"),
        (Recipe(Watched()), strange, "artifacts", SubjectError, said),
        (recipe, gap, "artifacts", PrivgateError, "record 1 does not"),
        (Recipe(LinearSVC()), data, "artifacts", SubjectError, "gives no probabilities"),
    ):
        with pytest.raises(error, match=words):
            log_model(kind, given, registered_model_name="credit", store=store)
    assert not mlflow.search_runs(search_all_experiments=True).size
    assert not mlflow.search_logged_models(output_format="list")


@pytest.mark.slow
def test_kinds_of_nothing_are_trained_on_as_they_are_stored(by_mlflow, people, from_registered):
    y = np.arange(60) % 2
    data = TrainingData(people, y, one_record_each=True)
    log_model(Recipe(preprocessed()), data, registered_model_name="m", store="artifacts")
    subject = Subject.load("models:/m/1")
    assert from_registered(subject) < 1e-12

    fitted = preprocessed().fit(people, y)
    info = by_mlflow(fitted, "own", pyfunc_predict_fn="predict_proba", serialization_format="cloudpickle")
    log_recipe(info, Recipe(preprocessed()), data, store="artifacts")
    assert from_registered(Subject.load(f"models:/{info.model_id}")) < 1e-12


def test_a_store_keeps_the_data_out_of_the_registry(registry, recipe, data, tmp_path):
    for _ in range(2):  # by digest: twice is once
        log_model(recipe, data, registered_model_name="credit", store=tmp_path / "kept")
    assert len(list((tmp_path / "kept").iterdir())) == 1
    assert not list((tmp_path / "artifacts").rglob("X.npy"))
    assert Subject.load("models:/credit/2").data.digest == data.digest
    next((tmp_path / "kept").rglob("y.npy")).write_bytes(b"other")
    with pytest.raises(DigestMismatchError, match=r"y\.npy"):
        Subject.load("models:/credit/1")


def test_who_can_read_uploaded_data_is_said(registry, recipe, data, caplog):
    with caplog.at_level(logging.WARNING):
        info = log_model(recipe, data, store="artifacts")
    assert "whoever may read the artifacts of its experiment" in caplog.text
    run = mlflow.get_run(mlflow.get_logged_model(info.model_id).source_run_id)
    assert "in clear" in run.data.tags["privgate.data"]


@pytest.fixture
def table(tmp_path):
    rng = np.random.default_rng(6)
    frame = pd.DataFrame({"a": rng.normal(size=30), "b": rng.integers(0, 4, 30), "who": np.repeat(np.arange(10), 3)})
    return frame.assign(name=[f"p{k}" for k in range(30)], label=np.where(frame["a"] > 0, "yes", "no"))


@pytest.mark.quick(1)
@pytest.mark.parametrize("kind", ["csv", "parquet"])
def test_data_of_a_file_stay_there(registry, table, tmp_path, kind, from_registered):
    path = tmp_path / f"people.{kind}"
    table.to_csv(path, index=False) if kind == "csv" else table.to_parquet(path)
    about = {"target": "label", "ids": "name", "groups": "who", "candidates": path}
    data = TrainingData.from_file(path, **about, domain=[(-9.0, 9.0), (0.0, 3.0)], sensitive=("b",))

    log_model(Recipe(GaussianNB()), data, registered_model_name="m")

    assert not [p for p in (tmp_path / "artifacts").rglob("*") if p.suffix in {".parquet", ".npy", ".csv"}]
    subject = Subject.load("models:/m/1")
    assert subject.data.digest == data.digest
    assert subject.data.sensitive == ("b",)
    assert list(subject.data.X.columns) == ["a", "b"]
    assert from_registered(subject) == 0.0

    changed = table.assign(b=3)
    changed.to_csv(path, index=False) if kind == "csv" else changed.to_parquet(path)
    with pytest.raises(DigestMismatchError, match="digest"):
        Subject.load("models:/m/1")
    with pytest.raises(DigestMismatchError, match="column 'b' holds other values"):
        log_model(Recipe(GaussianNB()), data)
    path.rename(tmp_path / "gone")
    (tmp_path / f"people.{kind}.dvc").write_text("")
    with pytest.raises(SubjectError, match="dvc pull"):
        Subject.load("models:/m/1")


@pytest.mark.parametrize(
    ("path", "about", "words"),
    [
        ("people.sql", {}, "from_loader"),
        ("people.csv", {"engine": "python"}, "'engine'"),
        ("absent.csv", {}, "is no file; the training data must lie there"),
        ("../../../../../../../../dev/zero", {"file_format": "csv"}, "is no file"),
        ("people.csv", {"dtype": {"a": "no such type"}}, "cannot be read as csv: data type $"),
        ("people.csv", {"dtype": {"named": "float64"}}, "csv: could not convert string to float: $"),
        ("people.csv", {"ids": "absent"}, "no column 'absent'"),
        ("https://me:secret@host/people.csv", {}, "password"),
    ],
)
def test_what_cannot_be_recorded_of_a_file_is_refused(table, tmp_path, path, about, words):
    table.assign(named="secret").to_csv(tmp_path / "people.csv", index=False)
    with pytest.raises(SubjectError, match=words) as refused:
        TrainingData.from_file(path if "://" in path else tmp_path / path, target="label", **about)
    assert "secret" not in str(refused.value)
