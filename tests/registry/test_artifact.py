"""The stored file: judged by a rule, said where none asks, and withheld by a policy key."""

from types import SimpleNamespace

import mlflow
import numpy as np
import pytest
from sklearn.linear_model import LogisticRegression

from privgate import Policy, Recipe, Subject, TrainingData, log_model, log_recipe, report
from privgate.check import gate
from privgate.errors import SubjectError
from privgate.evidence import ArtifactPart, Evidence, Measurement
from privgate.file import measure
from privgate.registry.files import all_files
from privgate.run.run import Run

POLICY = "schema: privgate/policy/v1\nname: f\nversion: '1'\n%srules:\n  - {metric: file_records, max: %s}\n%s"


@pytest.fixture(scope="module")
def people():
    rng = np.random.default_rng(5)
    X = rng.normal(size=(300, 3))
    return TrainingData(X, (X[:, 0] + rng.normal(size=300) > 0).astype(int), one_record_each=True)


def seen(uri, fleet):
    return measure.look(Run(Subject.load(uri), fleet))


def policy(folder, most=0, key=""):
    other = "  - {metric: pdtp, max: 1}\n" if key else ""  # about such a file alone a policy approves nothing
    (folder / "p.yaml").write_text(POLICY % (key, most, other))
    return Policy.load(folder / "p.yaml")


def rule(verdict):
    return next(f for f in verdict.findings if f.rule == "file_records")


@pytest.mark.parametrize(
    ("said", "most", "whole"),
    [({}, 2, True), ({"may_hold": ["one"]}, 10, True), ({"size": 30, "unread": 20}, 9, True),
     ({"least": 11}, 10, False), ({"least": -1}, 10, False), ({"unread": 9}, 10, False), ({"size": 8.0}, 10, False),
     ({"kept": 3}, 10, False)],
)  # fmt: skip
def test_an_answer_of_another_shape_about_the_file_limits_nothing(said, most, whole):
    answer = {"least": 0, "size": 8, "unread": 2, "may_hold": [], "unknown": [], "kept": [], "judged": "file"} | said
    subject = SimpleNamespace(data=SimpleNamespace(n=10), model=None)
    part = measure.look(SimpleNamespace(subject=subject, fleet=SimpleNamespace(examined=lambda *_: answer)))

    assert (part.least, part.most) == (0, most)
    assert (part.problem == "", part.judged) == ((True, "file") if whole else (False, "model"))
    assert not whole or part.read == part.size - said.get("unread", 2)


def test_small_counts_are_hidden_and_their_verdict_stays(tmp_path):
    part = ArtifactPart(judged="file", records=60, least=7, most=7)
    wanted = policy(tmp_path, most=5)
    request = wanted.rules[0].request()
    measured = Measurement(request, 7, 7, 7, unit="records", n=60, population=60)
    verdict = gate.judged(
        wanted,
        Evidence({"n_records": 60, "n_units": 60}, (), {request: measured}, artifact=part),
        observe=False,
        subject=None,
    )
    document = report.document(verdict, hash_key=b"k" * 32)
    told = next(f for f in document["findings"] if f["rule"] == "file_records")

    assert rule(verdict).outcome == told["outcome"] == "failed"
    assert 5 < told["low"] <= 6
    assert told["high"] == document["evidence"]["measurements"][0]["high"] == 9
    assert document["evidence"]["artifact"]["least"] is None
    assert "7" not in told["message"]


def test_a_plain_model_carries_nobody_and_no_file_beside_it_is_unread(registry, people, fleet):
    log_model(Recipe(LogisticRegression(), seed=1), people, registered_model_name="m", store="artifacts")
    found = seen("models:/m/1", fleet)

    assert (found.judged, found.least, found.most, found.unknown, found.problem) == ("file", 0, 0, (), "")


def beside(native, data):
    """Return what serves a model and keeps data beside it, where the native model is not; pickled by value."""

    class Beside(mlflow.pyfunc.PythonModel):
        def __init__(self):
            self.privgate_native, self.seen = native, data

        def predict(self, context, model_input, params=None):
            return self.privgate_native.predict_proba(model_input)

    Beside.__module__ = "__main__"
    Beside.predict.__annotations__.clear()
    return Beside()


def test_what_stands_beside_the_native_model_is_searched_too(registry, people, fleet):
    fitted = LogisticRegression(random_state=1).fit(people.X, people.y)
    with mlflow.start_run():
        info = mlflow.pyfunc.log_model(
            name="m", python_model=beside(fitted, people.X[:7].copy()), pip_requirements=["scikit-learn"]
        )
    log_recipe(info.model_uri, Recipe(LogisticRegression(), seed=1), people, store="artifacts")
    found = seen(info.model_uri, fleet)

    assert (found.least, found.most, found.problem) == (7, 7, ""), found.unknown


def test_an_input_example_holds_records(by_mlflow, people, fleet):
    fitted = LogisticRegression(random_state=1).fit(people.X, people.y)
    options = {"pyfunc_predict_fn": "predict_proba", "serialization_format": "cloudpickle"}
    info = by_mlflow(fitted, input_example=people.X[:12], **options)
    log_recipe(info.model_uri, Recipe(LogisticRegression(), seed=1), people, store="artifacts")
    found = seen(info.model_uri, fleet)

    assert (found.least, found.most) == (12, 12)


def test_a_file_that_may_not_be_read_is_named(tmp_path, monkeypatch):
    (tmp_path / "model.pkl").write_bytes(b"weights")

    def refuse(path):
        raise PermissionError(13, "Permission denied", str(path))

    monkeypatch.setattr("privgate.documents.strict_json.opened", refuse)
    with pytest.raises(SubjectError, match=r"'model\.pkl' cannot be read: Permission denied"):
        all_files(tmp_path)
