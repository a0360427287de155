"""What an MLmodel file may say: one model, from files that are checked; all else is refused before it is opened."""

import copy
import sys
from importlib import metadata

import mlflow
import pytest
import yaml
from mlflow.utils.yaml_utils import write_yaml

from privgate.errors import SubjectError
from privgate.registry.files import MLFLOW_META, all_files
from privgate.registry.mlmodel import flavor_of
from privgate.registry.named import oddity

FILES = ("model.skops", "other.pkl", "conda.yaml", "python_model.pkl", "artifacts/a", "code/mine.py")
PYFUNC = {"loader_module": "mlflow.sklearn", "model_path": "model.skops", "env": {"conda": "conda.yaml"}}
SKLEARN = {"pickled_model": "model.skops", "serialization_format": "skops"}


@pytest.fixture
def model(tmp_path):
    """Return a function that writes a model of these flavors and returns its folder."""

    def written(flavors, *, extra=(), **more):
        for name in (*FILES, *extra):
            (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / name).write_text("x")
        (tmp_path / "MLmodel").write_text(yaml.safe_dump({"flavors": flavors, **more}))
        return tmp_path

    return written


OWN = {"loader_module": "mlflow.pyfunc.model", "python_model": "python_model.pkl"}
BOOSTED = {"loader_module": "mlflow.xgboost", "data": "other.pkl"}
KEPT = {**PYFUNC, "artifacts": {"a": {"uri": "/home/me/a.bin", "path": "artifacts/a"}}}
TAKEN = [
    ({"python_function": PYFUNC, "sklearn": SKLEARN}, "sklearn"),
    ({"sklearn": SKLEARN}, "sklearn"),
    ({"python_function": BOOSTED, "xgboost": {"data": "other.pkl"}}, "xgboost"),
    *(({"python_function": served}, "python_function") for served in (OWN, PYFUNC, KEPT)),
]


@pytest.mark.parametrize(("flavors", "wanted"), TAKEN)
def test_one_model_is_opened_by_its_own_flavor(model, flavors, wanted):
    assert flavor_of(model(flavors)) == wanted


def test_code_that_is_the_model_is_a_file_of_its_own(tmp_path):
    """MLflow writes where it once lay, and runs the file of that name which lies beside the MLmodel file."""
    (script := tmp_path / "script.py").write_text(
        "import mlflow\n\n\nclass Own(mlflow.pyfunc.PythonModel):\n"
        "    def predict(self, model_input: list[str]):\n        return model_input\n\n\n"
        "mlflow.models.set_model(Own())\n"
    )
    mlflow.pyfunc.save_model(place := tmp_path / "saved", python_model=str(script), pip_requirements=[])
    assert str(script) in (place / "MLmodel").read_text()
    assert flavor_of(place) == "python_function"

    (place / "script.py").unlink()
    with pytest.raises(SubjectError, match="none of the model's files"):
        flavor_of(place)


TWO = [
    {"python_function": {**PYFUNC, "model_path": "other.pkl"}, "sklearn": SKLEARN},
    {"python_function": PYFUNC, "sklearn": {**SKLEARN, "pickled_model": "other.pkl"}},
    {"python_function": {**PYFUNC, "data": "other.pkl"}, "sklearn": SKLEARN},
    {"python_function": {**PYFUNC, "loader_module": "loader"}, "sklearn": SKLEARN},
    {"python_function": {**PYFUNC, "loader_module": "sklearn.loader"}, "sklearn": SKLEARN},
    {"python_function": {**PYFUNC, "loader_module": "mlflow.pyfunc.model"}, "sklearn": SKLEARN},
    {"python_function": PYFUNC, "sklearn": SKLEARN, "xgboost": {"data": "other.pkl"}},
    {"sklearn": SKLEARN, "xgboost": {"data": "other.pkl"}},
    {"python_function": PYFUNC, "sklearn": {**SKLEARN, "code": "code"}},
]


@pytest.mark.parametrize("flavors", TWO)
def test_two_models_in_one_are_refused(model, flavors):
    with pytest.raises(SubjectError, match="log"):
        flavor_of(model(flavors, extra=("code/mine.py",)))


PATHS = [
    *("../other", "a/../../b", "/srv/model", "~/model", "C:/model", "a\\..\\..\\b", "privgate", "privgate/src/x"),
    *("./privgate/reports/x", "a/../privgate/x", "metadata/../privgate/reports/dtp-1/model.pkl"),
]


@pytest.mark.parametrize("path", PATHS)
def test_paths_out_of_the_checked_files_are_refused(model, path):
    for key in ("model_path", "data", "code", "anything"):
        with pytest.raises(SubjectError, match="log the model again"):
            flavor_of(model({"python_function": {**PYFUNC, key: path}}))


def test_code_of_ones_own_is_taken(model):
    own = next(
        n for n in ("mine", "ours") if n not in sys.stdlib_module_names | metadata.packages_distributions().keys()
    )
    flavors = {"python_function": {**PYFUNC, "code": "code"}, "sklearn": {**SKLEARN, "code": "code"}}
    assert flavor_of(model(flavors, extra=(f"code/{own}/__init__.py",))) == "sklearn"
    with pytest.raises(SubjectError, match="none of the model's files"):
        flavor_of(model({"python_function": {**PYFUNC, "code": "."}}))


HIDDEN = ["sklearn/__init__.py", "json/decoder.py", "pickle.so"]


@pytest.mark.parametrize("file", HIDDEN)
def test_code_that_hides_an_installed_module_where_it_is_served_is_refused(model, file):
    flavors = {"python_function": {**PYFUNC, "code": "code"}}
    with pytest.raises(SubjectError, match="hides the installed module"):
        flavor_of(model(flavors, extra=(f"code/{file}",)))


def test_a_second_mlmodel_file_and_a_model_that_lies_elsewhere_are_refused(model):
    with pytest.raises(SubjectError, match="none of the model's files"):
        flavor_of(model({"transformers": {"source_model_name": "somebody/model", "task": "text"}}))
    with pytest.raises(SubjectError, match=r"another MLmodel file \(inner/MLmodel\).* as an attribute"):
        flavor_of(model({"python_function": PYFUNC}, extra=("inner/MLmodel",)))


def test_files_that_are_one_on_some_machines_are_refused(model):
    folder = model({"python_function": PYFUNC}, extra=("MODEL.skops",))
    with pytest.raises(SubjectError, match="one file on some machines"):
        all_files(folder)


ENDS = ("\r", "\x85", "\u2028", "\u2029", "\x0b", "\x0c")  # a line, to some reader
NOTES = [
    ("model_name: credit\nmodel_version: '3'\n", True),
    ("model_name: null\nmodel_version: null\n", True),
    ("model_name: credit\nmodel_version: '3'\nmore: 1\n", False),
    ("model_name: credit\nmodel_version: __import__('os')\n", False),
    ("", False),
    *((f"model_name: credit{end}dependencies: [evil]\nmodel_version: '3'\n", False) for end in ENDS),
    *((f"model_name: 'credit{end}dependencies: [evil]'\nmodel_version: '3'\n", False) for end in ENDS),
    ("model_name: [credit]\nmodel_version: '3'\n", False),
    ("model_name: ~\nmodel_version: '3'\n", False),
    ("model_name: credit #1\nmodel_version: '3'\n", False),
    ("model_name: {python: 3.9}\nmodel_version: '3'\n", False),
    ("model_name: 'credit'\nmodel_version: '3'\n" + " " * 2_000, False),
]


@pytest.mark.parametrize(("text", "own"), NOTES)
def test_only_what_mlflow_itself_notes_may_lie_there_and_counts_in_no_digest(model, text, own):
    folder = model({"python_function": PYFUNC})
    before = all_files(folder)
    (folder / MLFLOW_META).write_bytes(text.encode())
    if own:
        assert all_files(folder) == before
    else:
        with pytest.raises(SubjectError, match="is not the two lines that MLflow writes there"):
            all_files(folder)


PLAIN = ("credit", "credit risk (2024), v2", "Kreditausfälle", "信用", "_own", "100% [v2]", "bob's", "-a#1!", "x'")


@pytest.mark.parametrize("name", [*PLAIN, "3", "null", "yes", "a: b", "#a", "a #b"])
def test_what_mlflow_writes_is_taken_for_its_note(model, name):
    folder = model({"python_function": PYFUNC})
    before = all_files(folder)
    write_yaml(str(folder), MLFLOW_META, {"model_name": name, "model_version": "3"}, ensure_yaml_extension=False)
    assert all_files(folder, rows=[("other", "1"), (name, "3")]) == before
    assert all_files(folder, rows=[(name, "")]) == before
    for rows in ([(name, "4")], [("other", "")]):
        with pytest.raises(SubjectError, match="about the model itself"):
            all_files(folder, rows=rows)


# where MLflow reads a file by what an MLmodel file says
NAMES = [
    *(("flavors", "python_function", key) for key in ("model_path", "data", "code", "python_model", "env")),
    *(("flavors", "python_function", "env", kind) for kind in ("conda", "virtualenv")),
    ("flavors", "python_function", "artifacts", "a", "path"),
    *(("flavors", "sklearn", key) for key in ("pickled_model", "model_data", "code", "model_binary")),
    *(("saved_input_example_info", key) for key in ("artifact_path", "serving_input_path")),
]
TARGETS = [
    *("registered_model_meta", "./registered_model_meta", "code/../registered_model_meta", "absent.yaml", "."),
    *("../conda.yaml", "/etc/hostname", "~/conda.yaml", "https://host/conda.yaml", "s3://bucket/conda.yaml"),
    *("file:///etc/hostname", "file:/etc/hostname", "C:/conda.yaml", "code//mine.py", "conda.yaml\0", 7),
    *(["conda.yaml"],),
]


@pytest.mark.parametrize("place", NAMES, ids="-".join)
def test_whatever_it_names_is_a_file_of_the_model(model, place):
    """Each place where a file is named, with each odd target: law."""
    flavors = {"python_function": PYFUNC, "sklearn": SKLEARN}
    assert flavor_of(model(flavors, saved_input_example_info={"artifact_path": "conda.yaml"})) == "sklearn"
    for target in TARGETS:
        content = copy.deepcopy({"flavors": flavors, "saved_input_example_info": {}})
        inner = content
        for key in place[:-1]:
            inner = inner.setdefault(key, {})
        inner[place[-1]] = target
        folder = model(content.pop("flavors"), **content)
        (folder / MLFLOW_META).write_text("model_name: credit\nmodel_version: '3'\n")
        with pytest.raises(SubjectError, match="again"):
            flavor_of(folder)


@pytest.mark.parametrize("end", ENDS)
def test_an_mlmodel_file_has_one_reading_of_its_lines(model, end):
    folder = model({"sklearn": SKLEARN})
    text = (folder / "MLmodel").read_text()
    (folder / "MLmodel").write_bytes(text.replace("\n", "\r\n").encode())  # as written on Windows
    assert flavor_of(folder) == "sklearn"
    (folder / "MLmodel").write_bytes(f"{text}# a remark{end}run_id: x\n".encode())
    with pytest.raises(SubjectError, match="where some readers end a line"):
        flavor_of(folder)


ODD = [
    *("*", "?redit", "cre*", "[c]", "m-1#", "a@b", "a%23", "a\u200b", "a\u202eb", "..", "ﬁn", "e\u0301", "a'b", "a\tb"),
    *(" a", ""),
]


def test_names_that_readers_take_for_another_are_odd_and_those_that_mean_one_thing_are_not():
    plain = ("credit", "prod.credit", "credit risk (2024), v2", "Kreditausfälle", "信用", "a+b=c~d&e;f")
    assert [name for name in ODD if not oddity(name)] == []
    assert [name for name in plain if oddity(name)] == []
