"""What MLflow serves is asked, and must be what is declared."""

from dataclasses import replace

import mlflow
import numpy as np
import pandas as pd
import pytest
import scipy.sparse as sp
from lightgbm import LGBMClassifier
from sklearn.compose import make_column_transformer
from sklearn.feature_extraction.text import CountVectorizer
from sklearn.impute import SimpleImputer
from sklearn.linear_model import LogisticRegression
from sklearn.model_selection import FixedThresholdClassifier
from sklearn.naive_bayes import MultinomialNB
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder
from xgboost import XGBClassifier

from privgate import Recipe, Release, Subject, TrainingData, log_model, log_recipe
from privgate.controls import served as controls
from privgate.errors import UsageError
from privgate.models import ContingencyTable
from privgate.registry import adopt, native

DECLARED = [
    Release(),
    Release("rounded", step=0.01),
    Release("binned", step=0.15),
    Release("top_k", k=2),
    Release("label"),
    Release(temperature=2.0),
    Release("top_k", k=1, temperature=0.5),
]


@pytest.fixture(scope="module")
def flowers():
    rng = np.random.default_rng(5)
    y = rng.integers(0, 3, 60)
    return TrainingData(rng.normal(size=(60, 3)) + y[:, None], np.array(["a", "b", "c"])[y], one_record_each=True)


@pytest.fixture
def judged(registry, fleet):
    """Return a function that says what the control finds of a version, or of a subject."""

    def judge(subject="models:/m/1"):
        (found,) = controls.check_served(Subject.load(subject) if isinstance(subject, str) else subject, fleet)
        return found

    return judge


@pytest.fixture
def with_recipe(by_mlflow):
    """Return a function that logs a model as MLflow does, adds the recipe, and returns what MLflow calls it."""

    def add(model, recipe, data, **options):
        info = by_mlflow(model, **options)
        log_recipe(info, recipe, data, store="artifacts")
        return info

    return add


def log(recipe, data, **options):
    return log_model(recipe, data, registered_model_name="m", store="artifacts", **options)


@pytest.mark.parametrize(("kind", "registered"), [(XGBClassifier, True), (LGBMClassifier, False)])
def test_boosted_trees_as_mlflow_logs_them_serve_labels_until_one_line_changes_that(judged, flowers, kind, registered):
    recipe = Recipe(kind(n_estimators=2, max_depth=1, n_jobs=1), seed=1)
    data = replace(flowers, y=np.unique(flowers.y, return_inverse=True)[1])
    log_one = (mlflow.xgboost if kind is XGBClassifier else mlflow.lightgbm).log_model
    fitted = recipe.train(data.X, data.y, seed=1)
    with mlflow.start_run() as active:
        info = log_one(fitted, name="m", pip_requirements=[], **({"registered_model_name": "m"} if registered else {}))
    ended = mlflow.get_run(active.info.run_id).info
    log_recipe(info, recipe, data, store="artifacts")
    found = judged(info.model_uri)
    assert found.message.startswith("MLflow serves labels, and declared are exact probabilities")
    assert found.message.endswith("or log_recipe(…, serve='probabilities')")
    new = log_recipe(info, recipe, data, store="artifacts", serve="probabilities")
    assert judged(new).outcome == "passed"
    if registered:
        assert new == "models:/m/2"
        assert adopt("models:/m/1", recipe, data, store="artifacts", serve="probabilities") == "models:/m/3"
    assert mlflow.get_logged_model(Subject.load(new).detail["model_id"]).source_run_id == active.info.run_id
    served = mlflow.pyfunc.load_model(new).predict(data.X)
    np.testing.assert_array_equal(served, fitted.predict_proba(data.X))
    np.testing.assert_array_equal(mlflow.pyfunc.load_model(info.model_uri).predict(data.X), fitted.predict(data.X))
    with pytest.raises(UsageError, match="whose release is probabilities"):
        log_recipe(info, recipe, data, store="artifacts", serve="probabilities", release=Release("label"))
    for given in ({"serve": "label", "store": "artifacts"}, {"serve": "probabilities"}):  # no such, and no place
        with pytest.raises(UsageError):
            log_recipe(info, recipe, data, **given)
    after = mlflow.get_run(active.info.run_id).info
    assert (after.status, after.end_time) == (ended.status, ended.end_time)


@pytest.mark.quick(1)
@pytest.mark.parametrize("release", DECLARED, ids=controls.describe_release)
def test_what_is_declared_is_served(judged, flowers, release):
    info = log(Recipe(LogisticRegression(), seed=1), flowers, release=release)
    found = judged()
    assert found.outcome == "passed", found.message
    assert found.detail == {
        "records": 60, "different": 0, "declared": controls.describe_release(release), "questions": 64, "ways": 3,
    }  # fmt: skip

    served = mlflow.pyfunc.load_model(info.model_uri).predict(flowers.X)
    p = LogisticRegression().fit(flowers.X, flowers.y).predict_proba(flowers.X)
    if release.form == "label":
        np.testing.assert_array_equal(served, np.array(["a", "b", "c"])[p.argmax(axis=1)])
    else:
        np.testing.assert_allclose(served, release.shown(p), rtol=1e-9)


def test_a_model_that_refuses_a_question_keeps_its_worker(registry, fleet, flowers):
    log(Recipe(LogisticRegression(), seed=1), replace(flowers, candidates=(np.full((1, 3), np.nan), flowers.y[:1])))
    subject = Subject.load("models:/m/1")
    problems, workers = [], set()
    for row in (0, flowers.n, 1):
        problems.append(fleet.registered(subject, np.array([row])).problem)
        workers |= {lane.worker for lane in fleet.pool._free}
    assert (list(map(bool, problems)), len(workers)) == ([False, True, False], 1)


def test_exact_probabilities_are_not_what_is_declared(judged, flowers):
    log(Recipe(LogisticRegression(), seed=1), flowers)
    subject = Subject.load("models:/m/1")
    for declared in DECLARED[1:]:
        found = judged(replace(subject, release=declared))
        assert found.outcome == "inconclusive"
        words = controls.describe_release(declared)
        assert found.message.startswith(f"MLflow serves exact probabilities, and declared are {words}")
        assert "log_model" in found.message
        assert "--release probabilities" in found.message


def test_a_script_that_logs_as_mlflow_does_by_default_serves_labels(judged, with_recipe, flowers):
    recipe = Recipe(LogisticRegression())
    info = with_recipe(LogisticRegression().fit(flowers.X, flowers.y), recipe, flowers)
    found = judged()
    assert found.outcome == "inconclusive"
    assert found.message.startswith("MLflow serves labels, and declared are exact probabilities")
    assert "--release label" in found.message

    log_recipe(info, recipe, flowers, release=Release("label"), store="artifacts")
    assert judged().outcome == "passed"


MOVED = FixedThresholdClassifier(LogisticRegression(), threshold=0.2, response_method="predict_proba")
SPARSE = sp.random(60, 4, density=0.5, format="csr", random_state=1)
LIKELIEST = "import numpy as np\n\ndef predict(model, X):\n    return np.eye(2)[model.predict(X)]\n"


@pytest.mark.filterwarnings("ignore::UserWarning")
@pytest.mark.parametrize(
    ("estimator", "X", "form", "said"),
    [
        (MOVED, SPARSE.toarray(), "label", "threshold"),
        (XGBClassifier(n_estimators=3, max_depth=2), SPARSE, "probabilities", "an empty place of a sparse row is 0"),
    ],
)
def test_the_step_can_succeed_for_what_log_model_has_logged(judged, written, estimator, X, form, said):
    step = written("pg_likeliest", LIKELIEST).predict if form == "label" else None
    first = SPARSE.toarray()[:, 0]
    y = 1 - ((first > 0) & (first < 0.6))  # an empty place is no small number
    asked = [(Recipe(estimator), X), (Recipe(estimator, predict=step), SPARSE.toarray())]  # then as the step says
    for (recipe, records), why in zip(asked, (said, ""), strict=True):
        log(recipe, TrainingData(records, y, one_record_each=True), release=Release(form))
        found = judged(f"models:/m/{1 if why else 2}")
        assert found.outcome == ("inconclusive" if why else "passed"), found.message
        assert why in found.message
        assert "log the model" not in found.message


OWN = """
import numpy as np
from sklearn.linear_model import RidgeClassifier

def fit(X, y, *, seed):
    return RidgeClassifier().fit(X, y)

def predict(model, X):
    return 1 / (1 + np.exp(-model.decision_function(np.asarray(X))))
"""


def test_a_predict_function_of_ones_own_is_what_is_served(judged, with_recipe, data, written):
    own = written("pg_own_training", OWN)
    recipe = Recipe(own.fit, seed=1, predict=own.predict)
    log(recipe, data)
    assert judged().outcome == "passed", judged().message
    with_recipe(own.fit(data.X, data.y, seed=1), recipe, data)
    assert judged("models:/m/2").message.startswith("MLflow serves labels")


WORDS = np.array(["red", "green", "blue", "grey"])


@pytest.mark.parametrize(
    ("model", "records"),
    [
        (MultinomialNB(), lambda counts: sp.csr_matrix(counts.astype(float))),
        (make_pipeline(CountVectorizer(), MultinomialNB()),
         lambda counts: [" ".join(np.repeat(WORDS, row)) + " end" for row in counts]),
        (ContingencyTable(classes=[0, 1, 2]), lambda counts: counts.astype(float)),
    ],
    ids=["sparse", "text", "a label that nobody has"],
)  # fmt: skip
def test_sparse_records_and_text_are_asked_too(judged, model, records):
    X = records(np.random.default_rng(0).integers(0, 3, (30, 4)))
    log(Recipe(model), TrainingData(X, np.arange(30) % 2, one_record_each=True))
    assert judged().outcome == "passed", judged().message


def test_a_model_that_mlflow_cannot_serve_is_said(judged, data, recipe, tmp_path):
    info = log(recipe, data)
    (path,) = (tmp_path / "artifacts").rglob("MLmodel")
    lines = path.read_text().splitlines(keepends=True)
    start = next(i for i, line in enumerate(lines) if line.startswith("  python_function:"))
    stop = next(i for i, line in enumerate(lines) if i > start and not line.startswith("    "))
    path.write_text("".join(lines[:start] + lines[stop:]))
    log_recipe(info, recipe, data, store="artifacts")
    found = judged()
    assert found.outcome == "warned"
    assert "no python_function flavor" in found.message


def test_parameters_by_which_a_client_chooses_are_refused(judged, with_recipe, data):
    model = LogisticRegression().fit(data.X, data.y)
    signature = mlflow.models.infer_signature(data.X, params={"raw": False})
    with_recipe(model, Recipe(LogisticRegression()), data, signature=signature, pyfunc_predict_fn="predict_proba")
    found = judged()
    assert found.outcome == "inconclusive"
    assert "takes parameters" in found.message


def with_columns():
    """Return (records, candidates, labels) with a category, a whole number that candidates miss, and None."""
    rng = np.random.default_rng(3)
    y = np.arange(40) % 2
    frame = pd.DataFrame({"a": rng.normal(size=40) + y, "age": 20 + np.arange(40)})
    frame["kind"] = pd.Categorical(np.where(rng.random(40) < 0.5, "crimson", "azure"))
    frame["odd"] = np.where(rng.random(40) < 0.5, "maybe", None)
    other = frame.iloc[::-1].reset_index(drop=True).assign(a=rng.normal(size=40))
    frame["age"] = frame["age"].astype(float)  # whole numbers, of which candidates lack one
    other["age"] = other["age"].astype(float).mask(other.index == 3)
    return frame, other, y


def encoded():
    columns = (OneHotEncoder(handle_unknown="ignore"), ["kind", "odd"])
    return make_pipeline(make_column_transformer(columns, remainder=SimpleImputer()), LogisticRegression())


def test_columns_that_a_schema_would_refuse_are_served(judged):
    frame, other, y = with_columns()
    log(Recipe(encoded()), TrainingData(frame, y, candidates=(other, y), one_record_each=True))
    assert judged().outcome == "passed", judged().message


@pytest.mark.parametrize("missing", [False, True])
def test_a_schema_of_ones_own_gets_categories_as_text_and_says_which_column_it_refuses(judged, with_recipe, missing):
    frame, other, y = with_columns()
    with_recipe(
        encoded().fit(frame, y),
        Recipe(encoded()),
        TrainingData(frame, y, candidates=(other, y) if missing else None, one_record_each=True),
        pyfunc_predict_fn="predict_proba",
        serialization_format="cloudpickle",
        signature=mlflow.models.infer_signature(frame.astype({"age": int}) if missing else frame),
    )
    found = judged()
    if not missing:
        assert found.outcome == "passed", found.message
        return
    assert found.outcome == "inconclusive"
    assert "the model's signature refuses some records" in found.message
    assert "log it with one that accepts them, or without" in found.message
    assert not any(word in found.message for word in ("crimson", "azure", "maybe"))


COUNTS = np.arange(40) % 9
FAR = np.linspace(0, 1, 40)


@pytest.mark.parametrize(
    ("X", "kept"),
    [
        (pd.DataFrame({"visits": COUNTS, "far": FAR}), True),
        (pd.DataFrame({"visits": COUNTS.astype("uint64"), "far": FAR}), False),
        (pd.DataFrame({"visits": pd.to_timedelta(COUNTS, "h"), "far": FAR}), False),
        (pd.DataFrame({"visits": COUNTS + 1j, "far": FAR}), False),
        (pd.DataFrame({"visits": pd.Series([1] * 9 + ["x"] * 31, dtype=object), "far": FAR}), False),
        (sp.csr_array(np.outer(COUNTS, COUNTS)), False),
    ],
    ids=["whole numbers", "unsigned", "durations", "complex", "objects", "sparse array"],
)
def test_a_schema_that_refuses_a_record_is_not_stored(X, kept):
    first = X.iloc[:5] if hasattr(X, "iloc") else X[:5]

    assert (native._signature(first, X) is not None) == kept


def test_a_script_that_logs_whatever_is_fitted_gets_one_version_with_its_recipe(registry, flowers):
    mlflow.sklearn.autolog(registered_model_name="m")
    try:
        log(Recipe(LogisticRegression(), seed=1), flowers)
    finally:
        mlflow.sklearn.autolog(disable=True)

    assert len(mlflow.MlflowClient().search_model_versions("name='m'")) == 1
    assert Subject.load("models:/m/1").recipe.seed == 1
